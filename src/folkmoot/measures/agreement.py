"""Agreement of coders (Krippendorff's alpha) and of a participant's repeated answers (kappa)."""

# If a model codes text, alpha compares the model with a second model, a second draw or a human.

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import encode_labels, interval_of_equal_units
from folkmoot.measures.inference.distributions import student_quantile
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    NORMAL_QUANTILE,
    ROUNDING,
    Estimate,
    jackknife,
    varies,
)
from folkmoot.measures.inference.proportions import score_interval

FloatArray = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]


def krippendorff_alpha(ratings: ArrayLike, level: Level = "nominal") -> float:
    """Return Krippendorff's alpha: 1 for full agreement of coders, 0 for agreement by chance alone.

        krippendorff_alpha([[1, 2, 2, 1], [1, 2, 2, 1]])  # 1.0

    - `ratings`: codes as numbers, shape (coders, units). NaN marks a unit that a coder did not
      code.
    - `level`: `nominal` for any numbers, `ordinal` for ascending numbers, `interval` for amounts.

    Customary limits are .80 for conclusions and .667 for tentative conclusions. The result is NaN
    if no unit has two codes, or if all codes are equal.

    Source: Krippendorff (2011), "Computing Krippendorff's alpha-reliability", repository.upenn.edu.
    """
    # If all codes are equal, chance agreement cannot be separated from real agreement.
    values, by_unit = _by_unit(ratings)
    return float(_alpha_values(by_unit.sum(axis=0), values, level))


# Alpha has no interval if fewer codes than this differ from the most frequent code. So few codes
# do not show whether coders agree on the rare ones.
FEWEST_RARER = 10


def krippendorff_interval(
    ratings: ArrayLike,
    level: Level = "nominal",
    clusters: Sequence[Hashable] = (),
) -> Estimate:
    """Return Krippendorff's alpha with a 95 % interval.

    - `ratings`: codes as numbers, shape (coders, units).
    - `clusters`: the independent group of each unit, shape (units,). Default: every unit is
      independent.

    The interval is NaN with fewer than five clusters, or if nearly all codes are equal.
    """
    # For nominal codes, at least ten codes must differ from the most frequent code. A cluster is,
    # for example, the text that was coded.
    values, by_unit = _by_unit(ratings)
    total = by_unit.sum(axis=0)
    alpha = float(_alpha_values(total, values, level))
    paired = by_unit.sum(axis=(1, 2)) > 0
    named = list(clusters) or range(len(by_unit))
    names: dict[Hashable, int] = {}
    at = [names.setdefault(c, len(names)) for c, use in zip(named, paired, strict=True) if use]
    parts = np.zeros((len(names), *total.shape))
    np.add.at(parts, at, by_unit[paired])
    low = high = math.nan
    if len(names) >= FEWEST_UNITS and math.isfinite(alpha):
        if level != "nominal":
            low, high = _interval_of_distances(alpha, parts, values, level)
        elif total.sum() - total.sum(axis=1).max() >= FEWEST_RARER:
            low, high = _interval_of_codes(parts, int(paired.sum()))
    method = "Wilson, of disagreement" if level == "nominal" else "jackknife"
    return Estimate(alpha, low, high, int(paired.sum()), len(names), method=method)


def _interval_of_codes(parts: FloatArray, units: int) -> tuple[float, float]:
    # For nominal codes. `parts` (clusters, values, values): how often two codes occur together.
    # `units`: the number of units with at least two codes.
    codes = parts.sum(axis=(1, 2))
    apart = codes - np.trace(parts, axis1=1, axis2=2)
    share = float(apart.sum() / codes.sum())
    g = len(parts)
    # The variance of a ratio estimate, with clusters as sampling units.
    variance = g / (g - 1) * float(((apart - share * codes) ** 2).sum()) / float(codes.sum()) ** 2
    pairs = min(share * (1 - share) / variance, units) if variance > ROUNDING**2 else g
    low, high = score_interval(share, pairs, student_quantile(0.975, g - 1))
    # alpha = 1 − scale · share, so the bounds of the share give those of alpha. The caller rules
    # out equal codes, for which the scale is undefined.
    per_value = parts.sum(axis=(0, 1))
    n = float(per_value.sum())
    scale = (n - 1) * n / (n**2 - float((per_value**2).sum()))
    return 1 - scale * high, 1 - scale * low


def _interval_of_distances(
    alpha: float, parts: FloatArray, values: FloatArray, level: Level
) -> tuple[float, float]:
    # For ordinal or interval codes. `parts` (clusters, values, values): how often two codes occur
    # together.
    if alpha >= 1:
        # Perfect agreement: every jackknife value is 1, so there is no variance to use.
        return math.nan, math.nan
    if not varies(parts / parts.sum(axis=(1, 2), keepdims=True)):
        # All clusters are alike, so there is no variance to use either.
        return math.nan, math.nan
    without = _alpha_values(parts.sum(axis=0) - parts, values, level)
    if not np.isfinite(without).all() or (without >= 1).any():
        return math.nan, math.nan
    _, error = jackknife(-math.log(1 - alpha), -np.log(1 - without), np.ones(len(parts)))
    if error <= ROUNDING:
        # Unlike clusters may count alike, such as those that are mirror images of each other.
        return math.nan, math.nan
    # A symmetric interval of −log(1 − alpha) keeps the upper bound of alpha below 1.
    reach = student_quantile(0.975, len(parts) - 1) * error
    return 1 - (1 - alpha) * math.exp(reach), 1 - (1 - alpha) * math.exp(-reach)


def _by_unit(ratings: ArrayLike) -> tuple[FloatArray, FloatArray]:
    # Returns the distinct codes, and how often each pair of codes occurs together: (units, values,
    # values).
    codes = np.asarray(ratings, float)
    if codes.ndim != 2:
        raise ValueError(f"ratings must be (coders, units), got shape {codes.shape}")
    values = np.unique(codes[np.isfinite(codes)])
    return values, _coincidence_matrices(codes, values)


def _alpha_values(coincidences: FloatArray, values: FloatArray, level: Level) -> FloatArray:
    # `coincidences` (…, values, values): entry (a, b) is the weight of the pairs of codes a and b.
    # Alpha is NaN for a matrix without pairs or with only one value.
    per_value = coincidences.sum(axis=-1)
    n = per_value.sum(axis=-1)
    delta = _squared_distances(values, per_value, level)
    pairs = per_value[..., :, None] * per_value[..., None, :]
    expected, observed = ((m * delta).sum(axis=(-2, -1)) for m in (pairs, coincidences))
    known = (n >= 2) & (expected > 0)
    return np.where(known, 1.0 - (n - 1) * observed / np.where(known, expected, 1.0), math.nan)


def _coincidence_matrices(codes: FloatArray, values: FloatArray) -> FloatArray:
    # Returns (units, values, values). Each pair of codes has the weight 1/(m − 1), where m is the
    # number of codes of the unit. A unit with fewer than two codes has only zeros.
    counts = np.array([(codes == value).sum(axis=0) for value in values], float).T.reshape(
        -1, len(values)
    )
    coders = counts.sum(axis=1)
    weights = np.where(coders > 1, 1.0 / np.maximum(coders - 1.0, 1.0), 0.0)
    # Subtract the pairs of a code with itself.
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(values))
    return np.asarray(pairs * weights[:, None, None], float)


def _squared_distances(values: FloatArray, per_value: FloatArray, level: Level) -> FloatArray:
    c, k = values[:, None], values[None, :]
    if level == "nominal":
        return np.asarray(c != k, float)
    if level == "interval":
        return (c - k) ** 2
    if level == "ordinal":
        # Mid-ranks up to a constant: the number at or below a value, minus half of those at it.
        rank = np.cumsum(per_value, axis=-1) - per_value / 2
        return np.asarray((rank[..., :, None] - rank[..., None, :]) ** 2)
    raise ValueError(f"unknown level of measurement: {level!r}")


# If the possible agreement beyond chance is at most this, kappa is undefined. Nearly all answers
# are then the same option.
LEAST_ROOM = 0.1


def kappa_of_possible(
    first: Sequence[Hashable],
    last: Sequence[Hashable],
    questions: Sequence[Hashable] = (),
    who: Sequence[Hashable] = (),
) -> Estimate:
    """Return how well the two answers of each participant agree, as kappa divided by its maximum.

    The result is at most 1, and 0 for agreement by chance alone. The maximum allows for differences
    of the two distributions that sampling explains, so few answers may stay below 1.

        kappa_of_possible(["yes", "no", "no"], ["yes", "no", "yes"])

    - `first`, `last`: the two answers, shape (n,).
    - `questions`: the question of each pair of answers, shape (n,).
    - `who`: the participant of each pair, shape (n,). Needed if a participant answered several
      questions.

    The result is NaN if the answers leave hardly any room for agreement beyond chance.

    Formula: Cohen's kappa divided by its largest possible value. Source: Cohen (1960),
    doi:10.1177/001316446002000104.
    """
    # The largest value is computed from the two distributions of answers, so a move of all
    # participants to one option does not lower the result. Chance agreement is computed within
    # questions.
    n = len(first)
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    tables = _tables_of(first, last, list(questions) or [0] * n)
    sizes = np.array([table.sum() for table in tables])
    chances, rooms, errors = np.array([_chance_and_most(table) for table in tables]).T
    same = np.array([a == b for a, b in zip(first, last, strict=True)], float)
    observed, chance = float(same.mean()), float(sizes @ chances) / n
    most = float(sizes @ rooms) / n
    if most - chance <= LEAST_ROOM:
        return Estimate(math.nan, math.nan, math.nan, n)
    # The interval is Wilson's for the observed agreement. The largest agreement has sampling error,
    # so it is varied by half a standard error.
    groups = encode_labels(list(who) or range(n))
    pairs, people = _effective_sample_size(same, groups)
    low, high = score_interval(observed, pairs, NORMAL_QUANTILE)
    slack = 0.5 * float(np.sqrt((sizes**2) @ errors**2)) / n
    widest, least = min(1.0, most + slack), max(high, most - slack)
    return Estimate(
        (observed - chance) / (most - chance),
        (low - chance) / (widest - chance),
        min(1.0, (high - chance) / (least - chance)),
        n,
        people if people < n else 0,
        method="Wilson, of agreement",
    )


def _tables_of(
    first: Sequence[Hashable], last: Sequence[Hashable], questions: Sequence[Hashable]
) -> list[FloatArray]:
    # One table for each question, with first answers in rows and last answers in columns.
    pairs: dict[Hashable, list[tuple[Hashable, Hashable]]] = {}
    for one, other, question in zip(first, last, questions, strict=True):
        pairs.setdefault(question, []).append((one, other))
    tables = []
    for own in pairs.values():
        index = {name: i for i, name in enumerate(dict.fromkeys(x for pair in own for x in pair))}
        table = np.zeros((len(index), len(index)))
        for one, other in own:
            table[index[one], index[other]] += 1
        tables.append(table)
    return tables


def _chance_and_most(table: FloatArray) -> tuple[float, float, float]:
    # Returns chance agreement, largest possible agreement, and the standard error of the latter.
    # `table`: counts of first answers (rows) and last answers (columns).
    n = table.sum()
    shares = table / n
    first, last = shares.sum(axis=1), shares.sum(axis=0)
    gap = first - last
    variance = np.maximum(first + last - 2 * np.diag(shares) - gap**2, 0.0) / n
    # Sampling alone makes the two distributions differ, so its variance is subtracted.
    left = np.sqrt(np.maximum(gap**2 - variance, 0.0))
    return float(first @ last), 1 - float(left.sum()) / 2, math.sqrt(float(variance.sum())) / 2


def _effective_sample_size(values: FloatArray, groups: NDArray[np.int64]) -> tuple[float, int]:
    # `values` are 0 or 1. The effective number is at most n. If the shares of all groups are equal,
    # it is the number of groups.
    n, people, mean = len(values), int(groups.max()) + 1, float(values.mean())
    if people == n:
        return float(n), people
    apart = np.bincount(groups, weights=values - mean)
    variance = people / max(1, people - 1) * float(apart @ apart) / n**2
    size = min(mean * (1 - mean) / variance, n) if variance > ROUNDING**2 else float(people)
    return size, people


def correlation_with_oneself(
    first: ArrayLike,
    last: ArrayLike,
    questions: Sequence[Hashable],
    units: Sequence[Hashable],
    askings: float = 2.0,
) -> Estimate:
    """Return the correlation between the first and the last answers of participants.

    - `first`, `last`: the two numeric answers of each pair, shape (n,).
    - `questions`: the question of each pair, shape (n,).
    - `units`: the independent unit of each pair, a participant or a conversation group, shape (n,).
    - `askings`: how often each participant answered a question.

    The result is NaN if answers to a question do not vary. The interval is NaN with fewer than five
    units.
    """
    # Correlated within questions, so a shift of all answers to a question does not count. With more
    # than 2 askings, the n pairs are all pairs of these answers, and the result is the intraclass
    # correlation.
    x, y = np.asarray(first, float), np.asarray(last, float)
    n, asked, own = len(x), encode_labels(questions), encode_labels(units)
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    # Sums per unit suffice: the correlation without one unit is that of the total minus its sums.
    sums = np.zeros((int(own.max()) + 1, int(asked.max()) + 1, 6))
    np.add.at(sums, (own, asked), np.stack([np.ones(n), x, y, x * x, y * y, x * y], axis=1))
    whole = sums.sum(axis=0)
    value, g = float(_mean_correlations(whole)), len(sums)
    none = Estimate(value, math.nan, math.nan, n, g)
    if not math.isfinite(value) or g < FEWEST_UNITS:
        return none
    without = _mean_correlations(whole - sums)
    # One unit carries all variation, so the result without it is undefined.
    if not np.isfinite(without).all():
        return none
    middle, *others = _fisher_transform(np.array([value, *without]), askings).tolist()
    _, error = jackknife(middle, others, np.ones(g))
    if error <= ROUNDING:
        low, high = _equal_correlations(value, x, asked, own)
        return Estimate(value, low, high, n, g, method="Wilson, of equal answers")
    reach = student_quantile(0.975, g - 1) * error
    odds = np.exp(2 * np.array([middle - reach, middle + reach]))
    low, high = (1 - askings / (odds + askings - 1)).tolist()
    return Estimate(value, low, high, n, g, method="jackknife, Fisher's z")


def _equal_correlations(
    value: float, x: FloatArray, asked: NDArray[np.int64], own: NDArray[np.int64]
) -> tuple[float, float]:
    # No unit changes the correlation, for example because all second answers equal the first. The
    # jackknife would give an interval without width. In truth a share of units may differ, which
    # then answer like two participants with different answers. D is the chance that two answers to
    # a question differ. With a share π of differing pairs the correlation is lower by π/D, as
    # kappa is.
    unseen = interval_of_equal_units(0.0, np.bincount(own), (0.0, 1.0))[1]
    differing = []
    for question in range(int(asked.max()) + 1):
        answers = x[asked == question]
        shares = np.unique(answers, return_counts=True)[1] / len(answers)
        chance = 1 - float((shares**2).sum())
        # A question without variation has no correlation and is not in the mean.
        differing += [1 / chance] * len(answers) if chance > 0 and len(answers) > 2 else []
    reach = unseen * float(np.mean(differing))
    return max(-1.0, value - reach), min(1.0, value + reach)


# Keeps correlations of ±1 inside the domain of the logarithm.
_NEARLY = 1e-9


def _fisher_transform(r: FloatArray, askings: float) -> FloatArray:
    held = np.clip(r, -1 / (askings - 1) + _NEARLY, 1 - _NEARLY)
    return np.asarray(0.5 * np.log((1 + (askings - 1) * held) / (1 - held)))


def _mean_correlations(sums: FloatArray) -> FloatArray:
    # `sums` (…, questions, 6) holds the sums of 1, x, y, x², y² and xy. The mean over questions is
    # weighted by the number of pairs.
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    pairs = np.maximum(n, 1.0)
    spread = np.maximum(xx - x * x / pairs, 0.0) * np.maximum(yy - y * y / pairs, 0.0)
    known = (n > 2) & (spread > 1e-12 * np.maximum(1.0, xx * yy))
    r = np.where(known, (xy - x * y / pairs) / np.sqrt(np.where(known, spread, 1.0)), 0.0)
    weight = np.where(known, n, 0.0)
    total = weight.sum(axis=-1)
    return np.where(total > 0, (weight * r).sum(axis=-1) / np.maximum(total, 1.0), math.nan)


def number_codes(ratings: Sequence[Sequence[Hashable | None]]) -> FloatArray:
    """Convert codes of any type to numbers for `krippendorff_alpha`, shape (coders, units).

    None becomes NaN.
    """
    seen: dict[Hashable, int] = {}
    return np.array(
        [
            [math.nan if c is None else float(seen.setdefault(c, len(seen))) for c in coder]
            for coder in ratings
        ]
    )
