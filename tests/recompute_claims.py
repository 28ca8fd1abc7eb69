"""Recompute results of claims from exported CSV files and the claims alone.

Nothing of Folkmoot is imported. A claim is a mapping with the fields of its JSON form (`measure`,
`by`, `contrast`, `where`, `subject`, `paired`, `at_least`, `kind`, `family`, `unit`). The sandwich
is written out with whole matrices, after Pustejovsky and Tipton (2018), doi:10.1080/07350015.2016.
1247004; Tango's interval by maximising the likelihood under each difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import linalg, optimize, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep

MIN_UNITS = 5
Claim = Mapping[str, object]
RecomputedRow = dict[str, object]
InferAtLevel = Callable[[float], tuple]  # level → low, high, p
NO_INTERVAL = (None, None, None)
NUMBER_COLUMNS = ("value", "low", "high", "p", "adjusted_p", "joint_low", "joint_high")
ACROSS_COLUMNS = "columns of a row"  # in place of a column of arms: each arm is a column


def read_arms(folder: Path, claim: Claim) -> tuple[pd.Series, pd.Series]:
    """Return both arms of a claim: values by (unit, subject)."""
    name, _, column = str(claim["measure"]).rpartition(".")
    texts = {str(claim["by"]): str, **dict.fromkeys(claim["subject"], str)}  # type: ignore[call-overload]
    for key, levels in claim["where"]:  # type: ignore[attr-defined]
        texts |= {key: str} if any(isinstance(level, str) for level in levels) else {}
    table = pd.read_csv(folder / f"{name}.csv", dtype=texts)
    if claim["by"] == ACROSS_COLUMNS:
        arm_tables = [
            table.assign(**{ACROSS_COLUMNS: arm, column: table[f"{arm}_{column}"]})
            for arm in claim["contrast"]  # type: ignore[attr-defined]
        ]
        table = pd.concat(arm_tables, ignore_index=True)
    for key, levels in claim["where"]:  # type: ignore[attr-defined]
        non_missing = [level for level in levels if level is not None]
        table = table[table[key].isin(non_missing) | (table[key].isna() & (None in levels))]
    if table.empty:
        raise KeyError(f"no row of {name} counts")
    value = table[column].astype(float)
    if claim["at_least"] is not None:
        value = (value >= claim["at_least"]).astype(float).where(value.notna())
    if "status" in table and table.status.isin(["complete", "failed", "skipped"]).any():
        value = value.where(table.status == "complete")
    row = table.index.astype(str).to_series(index=table.index)
    unit = str(claim["unit"])
    units = next(
        (
            table[unit_column].astype(str)
            for unit_column in (unit, f"{unit}_id")
            if unit_column in table
        ),
        row,
    )
    subject = row
    if claim["subject"]:
        subject = table[list(claim["subject"])].agg("/".join, axis=1)  # type: ignore[call-overload]
    observations = pd.DataFrame(
        {"arm": table[str(claim["by"])], "unit": units, "who": subject, "y": value}
    )
    means = observations.groupby(["arm", "unit", "who"], sort=False).y.mean().dropna()
    first, second = (means[arm] for arm in claim["contrast"])  # type: ignore[attr-defined]
    return first, second


def estimate_difference(first: pd.Series, second: pd.Series, claim: Claim) -> float:
    if claim["paired"]:
        return float((first - second).dropna().mean())
    return float(first.mean() - second.mean())


def infer_bounded(first: pd.Series, second: pd.Series, claim: Claim, level: float) -> tuple:
    """Return the interval at a level, and p. Differences of shares are cut at −1 and 1."""
    low, high, p = infer_unbounded(first, second, claim, level)
    if low is not None and is_bounded(claim):
        low, high = max(low, -1.0), min(high, 1.0)
    return low, high, p


def is_bounded(claim: Claim) -> bool:
    return bool(claim["kind"] == "share" or claim.get("is_mean_of_shares"))


def is_constant(values: pd.Series) -> bool:
    return float(np.ptp(values.groupby(level="unit").mean())) < 1e-9


def infer_without_variation(
    sides: Sequence[pd.Series], scale_minimum: float, level: float
) -> tuple:
    """Infer from units without variation: at most Wilson's upper bound for zero of them differs, by
    as much as the scale from `scale_minimum` to 1 allows. The squares of the bounds of two sides
    are added."""

    def compute_bounds(z: float) -> tuple[float, float]:
        reaches = []
        for side in sides:
            sizes = side.groupby(level="unit").size().to_numpy(float)
            effective_units = sizes.sum() ** 2 / (sizes**2).sum()
            unseen_share, mean = z * z / (effective_units + z * z), float(side.mean())
            reaches.append((unseen_share * (mean - scale_minimum), unseen_share * (1 - mean)))
        aligned_reaches = [reaches[0], *((upper, lower) for lower, upper in reaches[1:])]
        lower, upper = (math.hypot(*(reach[end] for reach in aligned_reaches)) for end in (0, 1))
        return value - lower, value + upper

    value = float(sides[0].mean()) - sum(float(side.mean()) for side in sides[1:])
    low, high = compute_bounds(stats.norm.ppf((1 + level) / 2))
    if abs(value) < 1e-12:
        return low, high, 1.0
    end, sign = (0, 1) if value > 0 else (1, -1)
    z = optimize.brentq(lambda z: sign * compute_bounds(z)[end], 1e-6, 40)
    return low, high, float(2 * stats.norm.sf(z))


def infer_unbounded(first: pd.Series, second: pd.Series, claim: Claim, level: float) -> tuple:
    """Return the interval at a level, and p, if both sides have five independent units or more."""
    units = [side.index.get_level_values("unit") for side in (first, second)]
    if claim["paired"]:
        differences = (first - second).dropna()
        units_of_differences = differences.index.get_level_values("unit")
        if units_of_differences.nunique() < MIN_UNITS:
            return NO_INTERVAL
        is_change_of_vote = differences.isin([-1.0, 0.0, 1.0]).all()
        if (
            claim["kind"] == "share"
            and units_of_differences.nunique() == len(differences)
            and is_change_of_vote
        ):
            joined = pd.concat([first, second], axis=1, keys=["first", "second"]).dropna()
            return infer_tango(joined["first"].astype(int), joined["second"].astype(int), level)
        if is_bounded(claim) and is_constant(differences):
            return infer_without_variation([differences], -1.0, level)
        return infer_sandwich(
            differences.to_numpy(), np.ones((len(differences), 1)), units_of_differences, level
        )
    if min(side_units.nunique() for side_units in units) < MIN_UNITS:
        return NO_INTERVAL
    has_single_observations = all(side_units.nunique() == len(side_units) for side_units in units)
    if claim["kind"] == "share" and has_single_observations:
        return infer_newcombe(int(first.sum()), len(first), int(second.sum()), len(second), level)
    is_disjoint = not set(units[0]) & set(units[1])
    if is_bounded(claim) and is_disjoint and is_constant(first) and is_constant(second):
        return infer_without_variation([first, second], 0.0, level)
    y = np.concatenate([first, second])
    treated = np.r_[np.ones(len(first)), np.zeros(len(second))]
    return infer_sandwich(
        y, np.column_stack([treated, np.ones(len(y))]), [*units[0], *units[1]], level
    )


def infer_sandwich(y: np.ndarray, x: np.ndarray, clusters: Sequence, level: float) -> tuple:
    """CR2 of the first coefficient, by whole matrices. The degrees of freedom are the lower ones of
    errors of one variance and of a variance that is the size of their cluster."""
    bread = np.linalg.inv(x.T @ x)
    residual_maker = np.eye(len(y)) - x @ bread @ x.T
    residuals, value = residual_maker @ y, float((bread @ x.T @ y)[0])
    scores, weights = [], []
    for cluster in dict.fromkeys(clusters):
        members = np.flatnonzero(np.array([name == cluster for name in clusters]))
        adjusted = linalg.fractional_matrix_power(
            residual_maker[np.ix_(members, members)], -0.5
        ).real
        row = adjusted @ x[members] @ bread[0]
        scores.append(row @ residuals[members])
        weights.append(residual_maker[:, members] @ row)
    variance = float(np.square(scores).sum())
    if variance <= 1e-18 * max(1.0, value**2):
        return (None, None, 1.0) if abs(value) < 1e-12 else NO_INTERVAL
    sizes = np.array([list(clusters).count(cluster) for cluster in clusters])
    df = math.inf
    for variances in (np.ones(len(y)), sizes):
        products = (np.array(weights) * variances) @ np.array(weights).T
        df = min(df, np.trace(products) ** 2 / np.square(products).sum())
    if df < 4 - 1e-9:
        return NO_INTERVAL
    error = math.sqrt(variance)
    half_width = stats.t.ppf((1 + level) / 2, df) * error
    return value - half_width, value + half_width, float(2 * stats.t.sf(abs(value) / error, df))


def infer_newcombe(hits: int, n: int, hits2: int, n2: int, level: float) -> tuple:
    def compute_bounds(alpha: float) -> tuple[float, float]:
        return confint_proportions_2indep(
            hits, n, hits2, n2, method="newcomb", compare="diff", alpha=alpha
        )

    value = hits / n - hits2 / n2
    low, high = compute_bounds(1 - level)
    if not value:
        return low, high, 1.0
    end, sign = (0, 1) if value > 0 else (1, -1)
    z = optimize.brentq(lambda z: sign * compute_bounds(2 * stats.norm.sf(z))[end], 1e-6, 12)
    return low, high, float(2 * stats.norm.sf(z))


def infer_tango(first: pd.Series, second: pd.Series, level: float) -> tuple:
    """All differences that the score test does not reject, and McNemar's test. With fewer than 25
    moves the interval is extended to the exact one."""
    n, up, down = len(first), int((first > second).sum()), int((first < second).sum())
    value, moves = (up - down) / n, up + down
    z = stats.norm.ppf((1 + level) / 2)

    def compute_score(difference: float) -> float:
        """The score statistic if the shares of the two moves differ by `difference`."""

        def negative_log_likelihood(rarer: float) -> float:
            commoner = rarer + difference
            stay_share = max(1 - rarer - commoner, 1e-300)
            log_terms = (up * math.log(max(commoner, 1e-300)), down * math.log(max(rarer, 1e-300)))
            return -sum(log_terms) - (n - moves) * math.log(stay_share)

        max_rarer = (1 - difference) / 2
        rarer = optimize.minimize_scalar(
            negative_log_likelihood,
            bounds=(max(0.0, -difference), max_rarer),
            method="bounded",
            options={"xatol": 1e-13},
        ).x
        spread = n * (2 * rarer + difference - difference * difference)
        return (up - down - n * difference) / math.sqrt(spread) if spread > 0 else 0.0

    low = (
        optimize.brentq(lambda difference: compute_score(difference) - z, -1 + 1e-9, value)
        if value > -1
        else -1.0
    )
    high = (
        optimize.brentq(lambda difference: compute_score(difference) + z, value, 1 - 1e-9)
        if value < 1
        else 1.0
    )
    if not moves:
        return low, high, 1.0
    if moves >= 25:
        return low, high, float(stats.chi2.sf((up - down) ** 2 / moves, 1))
    exact = stats.binomtest(up, moves)
    exact_interval = exact.proportion_ci(level, method="exact")
    low = min(low, (2 * exact_interval.low - 1) * moves / n)
    larger_p = max(float(exact.pvalue), float(stats.chi2.sf((up - down) ** 2 / moves, 1)))
    return low, max(high, (2 * exact_interval.high - 1) * moves / n), larger_p


def recompute(folder: Path, claims: Sequence[Claim]) -> list[RecomputedRow]:
    """Estimate, 95 % interval, p, adjusted p and joint interval of each claim, in order. Primary
    claims have a joint interval if there are several; p of others is Holm's in their family."""
    families = [str(claim["family"]) for claim in claims]
    rows: list[RecomputedRow] = []
    infers: list[InferAtLevel | None] = []
    for claim in claims:
        try:
            first, second = read_arms(folder, claim)
        except KeyError:
            rows.append(dict.fromkeys(NUMBER_COLUMNS))
            infers.append(None)
            continue
        infers.append(partial(infer_bounded, first, second, claim))
        low, high, p = infer_bounded(first, second, claim, 0.95)
        result = {
            "value": estimate_difference(first, second, claim),
            "low": low,
            "high": high,
            "p": p,
        }
        rows.append({**dict.fromkeys(NUMBER_COLUMNS), **result})
    for family in set(families):
        family_indices = [n for n, name in enumerate(families) if name == family]
        if len(family_indices) < 2:
            continue
        tested_indices = [n for n in family_indices if rows[n]["p"] is not None]
        p_values = [float(rows[n]["p"]) for n in tested_indices]  # type: ignore[arg-type]
        adjusted = multipletests(p_values, method="holm")[1].tolist() if p_values else []
        for n, p in zip(tested_indices, adjusted, strict=True):
            rows[n]["adjusted_p"] = p
        if family == "primary":
            family_infers = [
                infers[n] if rows[n]["low"] is not None else None for n in family_indices
            ]
            values = [rows[n]["value"] for n in family_indices]
            result = infer_jointly([claims[n] for n in family_indices], values, family_infers)  # type: ignore[assignment]
            for n, (low, high, p) in zip(family_indices, result, strict=True):
                if low is not None:
                    rows[n] |= {"joint_low": low, "joint_high": high, "adjusted_p": p}
    return rows


def infer_jointly(
    claims: Sequence[Claim], values: Sequence, infers: Sequence[InferAtLevel | None]
) -> list[tuple]:
    """Joint interval and adjusted p of each claim of a family: Holm's method by one-sided tests of
    both directions, at .025 each (Strassburger and Bretz 2008, theorem 1)."""
    margins = [float(claim.get("margin") or 0.0) for claim in claims]  # type: ignore[arg-type]
    directions = [str(claim.get("direction") or "different") for claim in claims]
    is_two_sided = [
        direction == "equivalent" or (direction == "different" and margin)
        for direction, margin in zip(directions, margins, strict=True)
    ]
    nulls = [
        -margin if direction == "less" else margin
        for direction, margin in zip(directions, margins, strict=True)
    ]
    bounds: dict[tuple[int, int], float] = {}  # (claim, end of its interval) → joint bound
    halves: dict[tuple[int, int], float] = {}
    for in_stated_direction in (True, False):
        # 0 for the lower bound, 1 for the upper.
        ends = [int((direction == "less") == in_stated_direction) for direction in directions]
        p_values = [
            1.0 if infer is None or skip else one_sided_p(infer, end, null, value)
            for infer, skip, end, null, value in zip(
                infers, is_two_sided, ends, nulls, values, strict=True
            )
        ]
        adjusted = multipletests(p_values, method="holm")[1]
        unrejected = int((adjusted >= 0.025).sum())
        level = 1 - 0.05 / (unrejected or len(claims))
        for i, (infer, end, null) in enumerate(zip(infers, ends, nulls, strict=True)):
            if infer is None:
                continue
            sign = -1 if end else 1
            own_bound = sign * infer(level)[end]
            if is_two_sided[i]:
                bound = own_bound
            elif adjusted[i] >= 0.025:
                bound = min(own_bound, sign * null)
            else:
                bound = sign * null if unrejected else max(own_bound, sign * null)
            bounds[i, end] = sign * bound
            halves[i, end] = adjusted[i]
    return [
        (None, None, None)
        if infer is None
        else (
            bounds[i, 0],
            bounds[i, 1],
            None if is_two_sided[i] else min(1.0, 2 * min(halves[i, 0], halves[i, 1])),
        )
        for i, infer in enumerate(infers)
    ]


def one_sided_p(infer: InferAtLevel, end: int, null: float, value: float) -> float:
    """Return p of a difference of at most `null` (end 0), or of at least `null` (end 1)."""
    two_sided, sign = float(infer(0.95)[2]), -1 if end else 1
    if not null:
        return two_sided / 2 if sign * value > 0 else 1 - two_sided / 2
    if sign * (value - null) <= 0:
        return 1.0
    # The interval reaches the null value at the level 1 − 2 p.
    distance_to_null = lambda log_tail: sign * (infer(-math.expm1(log_tail))[end] - null)  # noqa: E731
    return math.exp(optimize.brentq(distance_to_null, -34.0, -1e-6, xtol=1e-9)) / 2
