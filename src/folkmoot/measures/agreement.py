"""Whether coders agree (Krippendorff's alpha), and whether a person agrees with themselves (kappa).

Alpha is used wherever a model codes text, against a second model, a second draw or a person.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, jackknife
from folkmoot.measures.inference.proportions import score_interval

FloatArray = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]
Z = 1.959963984540054  # of 95 %


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
    return float(_alpha_values(by_unit.sum(axis=0), values, level))


# Codes other than the most frequent one, below which alpha has no interval: whether coders find a
# rare code alike cannot be told from so few.
FEWEST_RARER = 10


def krippendorff_interval(
    ratings: ArrayLike,
    level: Level = "nominal",
    clusters: Sequence[Hashable] = (),
) -> Estimate:
    """`krippendorff_alpha` with an interval (95 %).

    `ratings` as there. Whole `clusters` (units,) are independent, the codes of one text for
    instance; without them, units. Of nominal codes: Wilson's interval of the share of pairs that
    disagree, with as many independent pairs as its variance between clusters shows, over the
    disagreement expected. Else the jackknife over clusters of −log(1 − alpha). No interval with
    fewer than five clusters, or of nominal codes with fewer than ten that are not the most
    frequent.
    """
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
            low, high = _interval_of_codes(alpha, parts, int(paired.sum()))
    method = "Wilson, of disagreement" if level == "nominal" else "jackknife"
    return Estimate(alpha, low, high, int(paired.sum()), len(names), method=method)


def _interval_of_codes(alpha: float, parts: FloatArray, units: int) -> tuple[float, float]:
    """The bounds of a nominal alpha, from the coincidences of clusters (g, v, v)."""
    from scipy.stats import t as student

    codes = parts.sum(axis=(1, 2))
    apart = codes - np.trace(parts, axis1=1, axis2=2)
    share = float(apart.sum() / codes.sum())
    g = len(parts)
    variance = g / (g - 1) * float(((apart - share * codes) ** 2).sum()) / float(codes.sum()) ** 2
    pairs = min(share * (1 - share) / variance, units) if variance else g
    low, high = score_interval(share, pairs, float(student.ppf(0.975, g - 1)))
    # Of alpha = 1 − scale · share; all alike or all apart leaves no scale.
    per_value = parts.sum(axis=(0, 1))
    n = float(per_value.sum())
    scale = (n - 1) * n / (n**2 - float((per_value**2).sum()))
    return 1 - scale * high, 1 - scale * low


def _interval_of_distances(
    alpha: float, parts: FloatArray, values: FloatArray, level: Level
) -> tuple[float, float]:
    from scipy.stats import t as student

    if alpha >= 1:
        return math.nan, math.nan  # no distance is known to differ from zero
    without = _alpha_values(parts.sum(axis=0) - parts, values, level)
    if not np.isfinite(without).all() or (without >= 1).any():
        return math.nan, math.nan
    _, error = jackknife(-math.log(1 - alpha), -np.log(1 - without), np.ones(len(parts)))
    reach = float(student.ppf(0.975, len(parts) - 1)) * error
    return 1 - (1 - alpha) * math.exp(reach), 1 - (1 - alpha) * math.exp(-reach)


def _by_unit(ratings: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The values (v,) and each unit's coincidences (units, v, v)."""
    codes = np.asarray(ratings, float)
    if codes.ndim != 2:
        raise ValueError(f"ratings must be (coders, units), got shape {codes.shape}")
    values = np.unique(codes[np.isfinite(codes)])
    return values, _coincidence_matrices(codes, values)


def _alpha_values(coincidences: FloatArray, values: FloatArray, level: Level) -> FloatArray:
    """Alpha of each matrix of coincidences (…, v, v); NaN where there is none."""
    per_value = coincidences.sum(axis=-1)
    n = per_value.sum(axis=-1)
    delta = _squared_distances(values, per_value, level)
    pairs = per_value[..., :, None] * per_value[..., None, :]
    expected, observed = ((m * delta).sum(axis=(-2, -1)) for m in (pairs, coincidences))
    known = (n >= 2) & (expected > 0)
    return np.where(known, 1.0 - (n - 1) * observed / np.where(known, expected, 1.0), math.nan)


def _coincidence_matrices(codes: FloatArray, values: FloatArray) -> FloatArray:
    """The coincidence matrix of each unit (u, v, v): its pairs of codes, 1/(m_u − 1) each; nothing
    where fewer than two coded it."""
    counts = np.array([(codes == value).sum(axis=0) for value in values], float).T.reshape(
        -1, len(values)
    )
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


def kappa_of_possible(
    first: Sequence[Hashable],
    last: Sequence[Hashable],
    questions: Sequence[Hashable] = (),
    who: Sequence[Hashable] = (),
) -> Estimate:
    """Cohen's kappa of two answers of the same people, as a share of the largest possible one.

    (p_o − p_e) / (p_max − p_e): 0 if the two answers of a person agree no more than those of two
    strangers, 1 if they agree as much as the two distributions allow, so that a move of all to one
    option does not read as disagreement with oneself. In p_max the distributions differ by what is
    left of their difference without its variance. NaN where they leave no room for agreement.
    `questions` (n,): what was asked; chance is computed within a question. `who` (n,): the person,
    where one answered several questions.

    The interval (95 %) is Wilson's of p_o, with as many independent pairs as its variance between
    people shows, and with p_max half a standard error wider on each side.
    Cohen (1960), doi:10.1177/001316446002000104.
    """
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
    groups = _encode_labels(list(who) or range(n))
    pairs, people = _effective_sample_size(same, groups)
    low, high = score_interval(observed, pairs, Z)
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
    """The square table (k, k) of first and last answers to each question."""
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
    """Agreement of a table by chance, the most that is possible, and the standard error of that."""
    n = table.sum()
    shares = table / n
    first, last = shares.sum(axis=1), shares.sum(axis=0)
    gap = first - last
    variance = np.maximum(first + last - 2 * np.diag(shares) - gap**2, 0.0) / n
    left = np.sqrt(np.maximum(gap**2 - variance, 0.0))
    return float(first @ last), 1 - float(left.sum()) / 2, math.sqrt(float(variance.sum())) / 2


def _effective_sample_size(values: FloatArray, groups: NDArray[np.int64]) -> tuple[float, int]:
    """How many independent values these (n,) of 0 and 1 are worth, and how many groups there are.

    By the variance of their mean between `groups` (n,); never more than there are, and as many as
    groups where all values are alike."""
    n, people, mean = len(values), int(groups.max()) + 1, float(values.mean())
    if people == n:
        return float(n), people
    apart = np.bincount(groups, weights=values - mean)
    variance = people / max(1, people - 1) * float(apart @ apart) / n**2
    return (min(mean * (1 - mean) / variance, n) if variance else float(people)), people


def correlation_with_oneself(
    first: ArrayLike,
    last: ArrayLike,
    questions: Sequence[Hashable],
    units: Sequence[Hashable],
    askings: float = 2.0,
) -> Estimate:
    """The correlation of two numeric answers of the same people, within `questions` (n,).

    `first`, `last` (n,); `units` (n,): what is independent, the person or those who talked.
    Answers are taken from the mean of their question and divided by its standard deviation, so that
    a shift of all does not count. `askings`: how often a person was asked, where these are all
    pairs of the answers; the correlation is then the intraclass one. NaN where nobody differs from
    the others.

    The interval (95 %) is the jackknife's over units, none below five, on Fisher's scale
    ½ log((1 + (k − 1) r) / (1 − r)) with k askings. Fisher (1925), Statistical Methods for Research
    Workers, ch. VII.
    """
    from scipy.stats import t as student

    x, y = np.asarray(first, float), np.asarray(last, float)
    n, asked, own = len(x), _encode_labels(questions), _encode_labels(units)
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    sums = np.zeros((int(own.max()) + 1, int(asked.max()) + 1, 6))
    np.add.at(sums, (own, asked), np.stack([np.ones(n), x, y, x * x, y * y, x * y], axis=1))
    whole = sums.sum(axis=0)
    value, g = float(_mean_correlations(whole)), len(sums)
    none = Estimate(value, math.nan, math.nan, n, g)
    if not math.isfinite(value) or g < FEWEST_UNITS:
        return none
    without = _mean_correlations(whole - sums)
    if not np.isfinite(without).all():  # one unit makes all of the difference
        return none
    middle, *others = _fisher_transform(np.array([value, *without]), askings).tolist()
    _, error = jackknife(middle, others, np.ones(g))
    reach = float(student.ppf(0.975, g - 1)) * error
    odds = np.exp(2 * np.array([middle - reach, middle + reach]))
    low, high = (1 - askings / (odds + askings - 1)).tolist()
    return Estimate(value, low, high, n, g, method="jackknife, Fisher's z")


_NEARLY = 1e-9


def _fisher_transform(r: FloatArray, askings: float) -> FloatArray:
    """Fisher's scale of correlations between `askings` answers."""
    held = np.clip(r, -1 / (askings - 1) + _NEARLY, 1 - _NEARLY)
    return np.asarray(0.5 * np.log((1 + (askings - 1) * held) / (1 - held)))


def _mean_correlations(sums: FloatArray) -> FloatArray:
    """The mean correlation over questions, by their number of pairs, from sums (…, questions, 6) of
    1, x, y, x², y² and xy; NaN where no question has any spread."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    pairs = np.maximum(n, 1.0)
    spread = np.maximum(xx - x * x / pairs, 0.0) * np.maximum(yy - y * y / pairs, 0.0)
    known = (n > 2) & (spread > 1e-12 * np.maximum(1.0, xx * yy))
    r = np.where(known, (xy - x * y / pairs) / np.sqrt(np.where(known, spread, 1.0)), 0.0)
    weight = np.where(known, n, 0.0)
    total = weight.sum(axis=-1)
    return np.where(total > 0, (weight * r).sum(axis=-1) / np.maximum(total, 1.0), math.nan)


def _encode_labels(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(label, len(seen)) for label in labels], np.int64)


def number_codes(ratings: Sequence[Sequence[Hashable | None]]) -> FloatArray:
    """Codes of any kind (coders, units) as numbers for `krippendorff_alpha`; None becomes NaN."""
    seen: dict[Hashable, int] = {}
    return np.array(
        [
            [math.nan if c is None else float(seen.setdefault(c, len(seen))) for c in coder]
            for coder in ratings
        ]
    )
