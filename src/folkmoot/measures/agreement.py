"""Whether coders agree (Krippendorff's alpha), and whether a person agrees with themselves (kappa).

Alpha is used wherever a model codes text, against a second model, a second draw or a person.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.estimates import Estimate

FloatArray = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]


def krippendorff_alpha(ratings: ArrayLike, level: Level = "nominal") -> float:
    """Krippendorff's alpha = 1 − D_observed / D_expected, at most 1; 0 is chance.

    `ratings` (coders, units) of numbers, NaN where a coder did not code a unit. Codes that are
    no numbers: number them first (any numbers for `nominal`, in order for `ordinal`). Units with
    fewer than two codes carry no information. NaN where there is nothing to compare or where all
    codes are the same (agreement by chance alone cannot be told from agreement).

    Distances δ²: nominal 1; ordinal (Σ_{g=c..k} n_g − (n_c + n_k)/2)²; interval (c − k)². As good
    as .80 is customary for conclusions, .667 for tentative ones.
    Krippendorff (2011), "Computing Krippendorff's alpha-reliability", repository.upenn.edu.
    """
    values, by_unit = _by_unit(ratings)
    return float(_alphas(by_unit.sum(axis=0), values, level))


DRAWS = 2_000


def krippendorff_interval(
    ratings: ArrayLike,
    level: Level = "nominal",
    clusters: Sequence[Hashable] = (),
) -> Estimate:
    """`krippendorff_alpha` with the percentile interval (95 %) of a bootstrap.

    `ratings` as there. Whole `clusters` (units,) are drawn with replacement, the codes of one text
    for instance; without them, units. No interval with fewer than two of them that two coders
    coded. Hayes & Krippendorff (2007), doi:10.1080/19312450709336664, for the idea; they draw
    deviations instead of units.
    """
    values, by_unit = _by_unit(ratings)
    alpha = float(_alphas(by_unit.sum(axis=0), values, level))
    paired = by_unit.sum(axis=(1, 2)) > 0
    named = list(clusters) or range(len(by_unit))
    names = list(dict.fromkeys(c for c, use in zip(named, paired, strict=True) if use))
    low = high = math.nan
    if len(names) > 1 and math.isfinite(alpha):
        parts = np.zeros((len(names), len(values), len(values)))
        place = {name: i for i, name in enumerate(names)}
        for name, unit, use in zip(named, by_unit, paired, strict=True):
            if use:
                parts[place[name]] += unit
        rng = np.random.default_rng(0)
        times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
        sums = np.tensordot(times, parts, axes=1)
        # A draw of units that all have one code has no alpha.
        low, high = np.nanpercentile(_alphas(sums, values, level), [2.5, 97.5])
    return Estimate(
        alpha, float(low), float(high), int(paired.sum()), len(names), method="bootstrap"
    )


def _by_unit(ratings: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The values (v,) and each unit's coincidences (units, v, v)."""
    codes = np.asarray(ratings, float)
    if codes.ndim != 2:
        raise ValueError(f"ratings must be (coders, units), got shape {codes.shape}")
    values = np.unique(codes[np.isfinite(codes)])
    return values, _coincidences(codes, values)


def _alphas(coincidences: FloatArray, values: FloatArray, level: Level) -> FloatArray:
    """Alpha of each matrix of coincidences (…, v, v); NaN where there is none."""
    per_value = coincidences.sum(axis=-1)
    n = per_value.sum(axis=-1)
    delta = _squared_distances(values, per_value, level)
    pairs = per_value[..., :, None] * per_value[..., None, :]
    expected, observed = ((m * delta).sum(axis=(-2, -1)) for m in (pairs, coincidences))
    known = (n >= 2) & (expected > 0)
    return np.where(known, 1.0 - (n - 1) * observed / np.where(known, expected, 1.0), math.nan)


def _coincidences(codes: FloatArray, values: FloatArray) -> FloatArray:
    """The coincidence matrix of each unit (u, v, v): its pairs of codes, 1/(m_u − 1) each; nothing
    where fewer than two coded it."""
    counts = np.array([(codes == v).sum(axis=0) for v in values], float).T.reshape(-1, len(values))
    coders = counts.sum(axis=1)
    weights = np.where(coders > 1, 1.0 / np.maximum(coders - 1.0, 1.0), 0.0)
    # A code does not make a pair with itself.
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(values))
    return np.asarray(pairs * weights[:, None, None], float)


def _squared_distances(values: FloatArray, per_value: FloatArray, level: Level) -> FloatArray:
    c, k = values[:, None], values[None, :]
    if level == "nominal":
        return np.asarray(c != k, float)
    if level == "interval":
        return (c - k) ** 2
    if level == "ordinal":
        # People at or below a value, less half of those at it: ranks, up to a constant.
        rank = np.cumsum(per_value, axis=-1) - per_value / 2
        return np.asarray((rank[..., :, None] - rank[..., None, :]) ** 2)
    raise ValueError(f"unknown level of measurement: {level!r}")


# Possible agreement beyond chance below which kappa says nothing: nearly all ended at one option.
LEAST_ROOM = 0.1


def kappa_of_possible(first: Sequence[Hashable], last: Sequence[Hashable]) -> Estimate:
    """Cohen's kappa of two answers of the same people, as a share of the largest possible one.

    (p_o − p_e) / (p_max − p_e): 0 if the two answers of a person agree no more than those of two
    strangers, 1 if they agree as much as the two distributions allow, so that a move of all to one
    option does not read as disagreement with oneself. With the percentile interval (95 %) of a
    bootstrap over people; NaN where the distributions leave no room for agreement.
    Cohen (1960), doi:10.1177/001316446002000104.
    """
    index = {name: i for i, name in enumerate(dict.fromkeys([*first, *last]))}
    table = np.zeros((len(index), len(index)))
    for one, other in zip(first, last, strict=True):
        table[index[one], index[other]] += 1
    n = len(first)
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n, table.ravel() / n, DRAWS).reshape(DRAWS, *table.shape)
    value = float(_kappas(table[None])[0])
    kappas = _kappas(drawn.astype(float))
    # An interval of the draws that have a kappa would be too narrow where many have none.
    known = math.isfinite(value) and np.isfinite(kappas).mean() > 0.95
    low, high = np.nanquantile(kappas, [0.025, 0.975]) if known else (math.nan, math.nan)
    return Estimate(value, float(low), float(high), n, method="bootstrap")


def _kappas(tables: FloatArray) -> FloatArray:
    """The share of the possible kappa of each table (draws, k, k); NaN without room for one."""
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    first, last = shares.sum(axis=2), shares.sum(axis=1)
    observed = np.trace(shares, axis1=1, axis2=2)
    chance, most = (first * last).sum(axis=1), np.minimum(first, last).sum(axis=1)
    room = most - chance
    return np.where(room > LEAST_ROOM, (observed - chance) / np.maximum(room, LEAST_ROOM), math.nan)


def number_codes(ratings: Sequence[Sequence[Hashable | None]]) -> FloatArray:
    """Codes of any kind (coders, units) as numbers for `krippendorff_alpha`; None becomes NaN."""
    seen: dict[Hashable, int] = {}
    return np.array(
        [
            [math.nan if c is None else float(seen.setdefault(c, len(seen))) for c in coder]
            for coder in ratings
        ]
    )
