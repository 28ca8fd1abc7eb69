"""Results of claims, computed anew from exported CSV files and the claims alone.

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

FEWEST = 5
Claim = Mapping[str, object]
Found = dict[str, object]
Infer = Callable[[float], tuple]  # level → low, high, p
NOTHING = (None, None, None)
NUMBERS = ("value", "low", "high", "p", "adjusted_p", "joint_low", "joint_high")
ACROSS = "columns of a row"  # in place of a column of arms: each arm is a column


def read(folder: Path, claim: Claim) -> tuple[pd.Series, pd.Series]:
    """Both arms of a claim: values by (unit, subject)."""
    name, _, column = str(claim["measure"]).rpartition(".")
    texts = {str(claim["by"]): str, **dict.fromkeys(claim["subject"], str)}  # type: ignore[call-overload]
    for key, levels in claim["where"]:  # type: ignore[attr-defined]
        texts |= {key: str} if any(isinstance(level, str) for level in levels) else {}
    table = pd.read_csv(folder / f"{name}.csv", dtype=texts)
    if claim["by"] == ACROSS:
        parts = [
            table.assign(**{ACROSS: arm, column: table[f"{arm}_{column}"]})
            for arm in claim["contrast"]  # type: ignore[attr-defined]
        ]
        table = pd.concat(parts, ignore_index=True)
    for key, levels in claim["where"]:  # type: ignore[attr-defined]
        known = [level for level in levels if level is not None]
        table = table[table[key].isin(known) | (table[key].isna() & (None in levels))]
    if table.empty:
        raise KeyError(f"no row of {name} counts")
    value = table[column].astype(float)
    if claim["at_least"] is not None:
        value = (value >= claim["at_least"]).astype(float).where(value.notna())
    if "status" in table and table.status.isin(["complete", "failed", "skipped"]).any():
        value = value.where(table.status == "complete")
    row = table.index.astype(str).to_series(index=table.index)
    unit = str(claim["unit"])
    of = next((table[c].astype(str) for c in (unit, f"{unit}_id") if c in table), row)
    subject = row
    if claim["subject"]:
        subject = table[list(claim["subject"])].agg("/".join, axis=1)  # type: ignore[call-overload]
    told = pd.DataFrame({"arm": table[str(claim["by"])], "unit": of, "who": subject, "y": value})
    means = told.groupby(["arm", "unit", "who"], sort=False).y.mean().dropna()
    first, second = (means[arm] for arm in claim["contrast"])  # type: ignore[attr-defined]
    return first, second


def estimate(first: pd.Series, second: pd.Series, claim: Claim) -> float:
    if claim["paired"]:
        return float((first - second).dropna().mean())
    return float(first.mean() - second.mean())


def infer(first: pd.Series, second: pd.Series, claim: Claim, level: float) -> tuple:
    """The interval at a level, and p. No difference of shares lies beyond −1 and 1."""
    low, high, p = unlimited(first, second, claim, level)
    if low is not None and is_bounded(claim):
        low, high = max(low, -1.0), min(high, 1.0)
    return low, high, p


def is_bounded(claim: Claim) -> bool:
    return bool(claim["kind"] == "share" or claim.get("is_mean_of_shares"))


def all_alike(values: pd.Series) -> bool:
    return float(np.ptp(values.groupby(level="unit").mean())) < 1e-9


def equal_units(sides: Sequence[pd.Series], least: float, level: float) -> tuple:
    """Units without variation: at most Wilson's upper end for none of them differs, by as much as
    the scale from `least` to 1 allows. The ends of two sides are put together by their squares."""

    def bounds(z: float) -> tuple[float, float]:
        reaches = []
        for side in sides:
            sizes = side.groupby(level="unit").size().to_numpy(float)
            of = sizes.sum() ** 2 / (sizes**2).sum()
            unseen, middle = z * z / (of + z * z), float(side.mean())
            reaches.append((unseen * (middle - least), unseen * (1 - middle)))
        turned = [reaches[0], *((up, down) for down, up in reaches[1:])]
        down, up = (math.hypot(*(reach[end] for reach in turned)) for end in (0, 1))
        return value - down, value + up

    value = float(sides[0].mean()) - sum(float(side.mean()) for side in sides[1:])
    low, high = bounds(stats.norm.ppf((1 + level) / 2))
    if abs(value) < 1e-12:
        return low, high, 1.0
    end, sign = (0, 1) if value > 0 else (1, -1)
    z = optimize.brentq(lambda z: sign * bounds(z)[end], 1e-6, 40)
    return low, high, float(2 * stats.norm.sf(z))


def unlimited(first: pd.Series, second: pd.Series, claim: Claim, level: float) -> tuple:
    """The interval at a level, and p; nothing with fewer than five independent units on a side."""
    units = [side.index.get_level_values("unit") for side in (first, second)]
    if claim["paired"]:
        moved = (first - second).dropna()
        of = moved.index.get_level_values("unit")
        if of.nunique() < FEWEST:
            return NOTHING
        counted = moved.isin([-1.0, 0.0, 1.0]).all()
        if claim["kind"] == "share" and of.nunique() == len(moved) and counted:
            both = pd.concat([first, second], axis=1, keys=["first", "second"]).dropna()
            return tango(both["first"].astype(int), both["second"].astype(int), level)
        if is_bounded(claim) and all_alike(moved):
            return equal_units([moved], -1.0, level)
        return sandwich(moved.to_numpy(), np.ones((len(moved), 1)), of, level)
    if min(own.nunique() for own in units) < FEWEST:
        return NOTHING
    alone = all(own.nunique() == len(own) for own in units)
    if claim["kind"] == "share" and alone:
        return newcombe(int(first.sum()), len(first), int(second.sum()), len(second), level)
    apart = not set(units[0]) & set(units[1])
    if is_bounded(claim) and apart and all_alike(first) and all_alike(second):
        return equal_units([first, second], 0.0, level)
    y = np.concatenate([first, second])
    treated = np.r_[np.ones(len(first)), np.zeros(len(second))]
    return sandwich(y, np.column_stack([treated, np.ones(len(y))]), [*units[0], *units[1]], level)


def sandwich(y: np.ndarray, x: np.ndarray, clusters: Sequence, level: float) -> tuple:
    """CR2 of the first coefficient, by whole matrices; the fewer degrees of freedom under errors of
    one variance, and of the variance that is the size of their cluster."""
    bread = np.linalg.inv(x.T @ x)
    residual_maker = np.eye(len(y)) - x @ bread @ x.T
    residuals, value = residual_maker @ y, float((bread @ x.T @ y)[0])
    scores, weights = [], []
    for cluster in dict.fromkeys(clusters):
        own = np.flatnonzero(np.array([c == cluster for c in clusters]))
        adjusted = linalg.fractional_matrix_power(residual_maker[np.ix_(own, own)], -0.5).real
        line = adjusted @ x[own] @ bread[0]
        scores.append(line @ residuals[own])
        weights.append(residual_maker[:, own] @ line)
    variance = float(np.square(scores).sum())
    if variance <= 1e-18 * max(1.0, value**2):
        return (None, None, 1.0) if abs(value) < 1e-12 else NOTHING
    sizes = np.array([list(clusters).count(cluster) for cluster in clusters])
    df = math.inf
    for variances in (np.ones(len(y)), sizes):
        products = (np.array(weights) * variances) @ np.array(weights).T
        df = min(df, np.trace(products) ** 2 / np.square(products).sum())
    if df < 4 - 1e-9:
        return NOTHING
    error = math.sqrt(variance)
    reach = stats.t.ppf((1 + level) / 2, df) * error
    return value - reach, value + reach, float(2 * stats.t.sf(abs(value) / error, df))


def newcombe(hits: int, n: int, others: int, of: int, level: float) -> tuple:
    def bounds(alpha: float) -> tuple[float, float]:
        return confint_proportions_2indep(
            hits, n, others, of, method="newcomb", compare="diff", alpha=alpha
        )

    value = hits / n - others / of
    low, high = bounds(1 - level)
    if not value:
        return low, high, 1.0
    end, sign = (0, 1) if value > 0 else (1, -1)
    z = optimize.brentq(lambda z: sign * bounds(2 * stats.norm.sf(z))[end], 1e-6, 12)
    return low, high, float(2 * stats.norm.sf(z))


def tango(first: pd.Series, second: pd.Series, level: float) -> tuple:
    """All differences that the score test does not reject, and McNemar's test; with fewer than 25
    moves stretched to the exact interval."""
    n, up, down = len(first), int((first > second).sum()), int((first < second).sum())
    value, moves = (up - down) / n, up + down
    z = stats.norm.ppf((1 + level) / 2)

    def score(d: float) -> float:
        """The score statistic where the shares of the two moves differ by d."""

        def against(rarer: float) -> float:
            more = rarer + d
            stay = max(1 - rarer - more, 1e-300)
            logs = (up * math.log(max(more, 1e-300)), down * math.log(max(rarer, 1e-300)))
            return -sum(logs) - (n - moves) * math.log(stay)

        most = (1 - d) / 2
        rarer = optimize.minimize_scalar(
            against, bounds=(max(0.0, -d), most), method="bounded", options={"xatol": 1e-13}
        ).x
        spread = n * (2 * rarer + d - d * d)
        return (up - down - n * d) / math.sqrt(spread) if spread > 0 else 0.0

    low = optimize.brentq(lambda d: score(d) - z, -1 + 1e-9, value) if value > -1 else -1.0
    high = optimize.brentq(lambda d: score(d) + z, value, 1 - 1e-9) if value < 1 else 1.0
    if not moves:
        return low, high, 1.0
    if moves >= 25:
        return low, high, float(stats.chi2.sf((up - down) ** 2 / moves, 1))
    exact = stats.binomtest(up, moves)
    of = exact.proportion_ci(level, method="exact")
    low = min(low, (2 * of.low - 1) * moves / n)
    larger = max(float(exact.pvalue), float(stats.chi2.sf((up - down) ** 2 / moves, 1)))
    return low, max(high, (2 * of.high - 1) * moves / n), larger


def recompute(folder: Path, claims: Sequence[Claim]) -> list[Found]:
    """Estimate, 95 % interval, p, adjusted p and joint interval of each claim, in order. Primary
    claims have a joint interval if there are several; p of others is Holm's in their family."""
    families = [str(claim["family"]) for claim in claims]
    found: list[Found] = []
    infers: list[Infer | None] = []
    for claim in claims:
        try:
            first, second = read(folder, claim)
        except KeyError:
            found.append(dict.fromkeys(NUMBERS))
            infers.append(None)
            continue
        infers.append(partial(infer, first, second, claim))
        low, high, p = infer(first, second, claim, 0.95)
        told = {"value": estimate(first, second, claim), "low": low, "high": high, "p": p}
        found.append({**dict.fromkeys(NUMBERS), **told})
    for family in set(families):
        own = [n for n, name in enumerate(families) if name == family]
        if len(own) < 2:
            continue
        counted = [n for n in own if found[n]["p"] is not None]
        ps = [float(found[n]["p"]) for n in counted]  # type: ignore[arg-type]
        adjusted = multipletests(ps, method="holm")[1].tolist() if ps else []
        for n, p in zip(counted, adjusted, strict=True):
            found[n]["adjusted_p"] = p
        if family == "primary":
            sides = [infers[n] if found[n]["low"] is not None else None for n in own]
            values = [found[n]["value"] for n in own]
            told = joint([claims[n] for n in own], values, sides)  # type: ignore[assignment]
            for n, (low, high, p) in zip(own, told, strict=True):
                if low is not None:
                    found[n] |= {"joint_low": low, "joint_high": high, "adjusted_p": p}
    return found


def joint(claims: Sequence[Claim], values: Sequence, infers: Sequence[Infer | None]) -> list[tuple]:
    """Joint interval and adjusted p of each claim of a family: Holm's method by one-sided tests of
    both directions, at .025 each (Strassburger and Bretz 2008, theorem 1)."""
    margins = [float(claim.get("margin") or 0.0) for claim in claims]  # type: ignore[arg-type]
    ways = [str(claim.get("direction") or "different") for claim in claims]
    both = [
        way == "equivalent" or (way == "different" and m)
        for way, m in zip(ways, margins, strict=True)
    ]
    nulls = [-m if way == "less" else m for way, m in zip(ways, margins, strict=True)]
    bounds: dict[tuple[int, int], float] = {}  # (claim, end of its interval) → joint bound
    halves: dict[tuple[int, int], float] = {}
    for stated in (True, False):
        ends = [int((way == "less") == stated) for way in ways]  # 0 where the lower bound is meant
        ps = [
            1.0 if test is None or keeps else one_sided(test, end, null, value)
            for test, keeps, end, null, value in zip(infers, both, ends, nulls, values, strict=True)
        ]
        adjusted = multipletests(ps, method="holm")[1]
        left = int((adjusted >= 0.025).sum())
        level = 1 - 0.05 / (left or len(claims))
        for n, (test, end, null) in enumerate(zip(infers, ends, nulls, strict=True)):
            if test is None:
                continue
            sign = -1 if end else 1
            own = sign * test(level)[end]
            if both[n]:
                bound = own
            elif adjusted[n] >= 0.025:
                bound = min(own, sign * null)
            else:
                bound = sign * null if left else max(own, sign * null)
            bounds[n, end] = sign * bound
            halves[n, end] = adjusted[n]
    return [
        (None, None, None)
        if test is None
        else (
            bounds[n, 0],
            bounds[n, 1],
            None if both[n] else min(1.0, 2 * min(halves[n, 0], halves[n, 1])),
        )
        for n, test in enumerate(infers)
    ]


def one_sided(test: Infer, end: int, null: float, value: float) -> float:
    """p of a difference of at most `null` (end 0), or of at least `null` (end 1)."""
    two_sided, sign = float(test(0.95)[2]), -1 if end else 1
    if not null:
        return two_sided / 2 if sign * value > 0 else 1 - two_sided / 2
    if sign * (value - null) <= 0:
        return 1.0
    # The interval reaches the null value at the level 1 − 2 p.
    beyond = lambda log: sign * (test(-math.expm1(log))[end] - null)  # noqa: E731
    return math.exp(optimize.brentq(beyond, -34.0, -1e-6, xtol=1e-9)) / 2
