"""Spread of answers over options, distance between distributions, and inequality of amounts.

All functions on options take counts or shares of shape (k,). Logarithms have base 2.
"""

# Counts and shares are normalised. `effective_number` uses the natural logarithm.

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import interval_of_equal_units
from folkmoot.measures.inference.distributions import clopper_pearson, student_quantile
from folkmoot.measures.inference.estimates import ROUNDING, Estimate, jackknife
from folkmoot.randomness import generator

FloatArray = NDArray[np.float64]


def shares(counts: ArrayLike) -> FloatArray:
    """Return counts as shares that sum to 1, shape (k,).

    Raises ValueError if a count is negative or all counts are zero.
    """
    p = np.asarray(counts, float)
    if p.ndim != 1 or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ValueError(f"no distribution: {counts!r}")
    normalised: FloatArray = p / p.sum()
    return normalised


def entropy(counts: ArrayLike) -> float:
    """Return the Shannon entropy in bits: 0 if all agree, log k if evenly split.

        entropy([5, 5])  # 1.0

    Formula: −Σ p log p, computed by scipy. Source: Shannon (1948),
    doi:10.1002/j.1538-7305.1948.tb01338.x.
    """
    from scipy.special import entr

    return float(entr(shares(counts)).sum()) / math.log(2)


def normalised_entropy(counts: ArrayLike) -> float:
    """Return the entropy divided by the largest possible entropy, from 0 to 1.

    With a single option, the result is 0.
    """
    k = len(np.asarray(counts, float))
    return entropy(counts) / float(np.log2(k)) if k > 1 else 0.0


def effective_number(counts: ArrayLike) -> float:
    """Return the effective number of options, between 1 and k.

        effective_number([5, 5, 0])  # 2.0

    Formula: exp(−Σ p ln p), the Hill number of order 1. Source: Hill (1973), doi:10.2307/1934352.
    """
    p = shares(counts)
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


# Fewer votes than this give no interval for the spread of votes.
FEWEST_VOTES = 20
# With fewer votes for other options than the first, the jackknife is unreliable and an exact
# interval is used.
FEWEST_ELSEWHERE = 5


def evenness_estimate(counts: ArrayLike) -> Estimate:
    """Return how evenly votes are spread over options.

    1 means that all options have equally many votes. 0 means that one option has all votes.

    - `counts`: votes per option, shape (k,).

    The interval is NaN with fewer than 20 votes.
    """
    # The entropy divided by its maximum, corrected for small samples.
    votes = np.asarray(counts, float)
    n, k = int(votes.sum()), len(votes)
    value = normalised_entropy(votes)
    if n < FEWEST_VOTES or k < 2:
        return Estimate(value, math.nan, math.nan, n)
    if n - votes.max() < FEWEST_ELSEWHERE:
        low, high = _evenness_of_few(int(n - votes.max()), n, k)
        return Estimate(value, low, high, n, method="Clopper–Pearson, of other votes")
    # Leaving out any voter of an option has the same result, so one computation per option
    # suffices.
    cells = np.flatnonzero(votes)
    without = _entropies_in_nats(votes - np.eye(k)[cells])
    corrected, error = jackknife(float(_entropies_in_nats(votes)), without, votes[cells])
    # Add the variance under equal popularity, which the jackknife misses.
    error = math.sqrt(error**2 + (k - 1) / (2 * n**2))
    reach = student_quantile(0.975, n - 1) * error
    most = math.log(k)
    value, low, high = (
        min(1.0, max(0.0, bound / most))
        for bound in (corrected, corrected - reach, corrected + reach)
    )
    return Estimate(value, low, high, n, method="jackknife")


def _evenness_of_few(elsewhere: int, n: int, k: int) -> tuple[float, float]:
    least, most = clopper_pearson(elsewhere, n)
    low = normalised_entropy([1 - least, least]) / math.log2(k)
    share = min(most, 1 - 1 / k)
    return float(low), normalised_entropy([1 - share, *[share / (k - 1)] * (k - 1)])


def effective_ratio(table: ArrayLike) -> Estimate:
    """Return the factor by which the effective number of options changed between two votes.

    - `table`: numbers of participants by first vote (row) and last vote (column), shape (k, k).

    The interval is NaN with fewer than 20 participants.
    """
    # The factor is the number in last votes divided by the number in first votes. Below 1, the last
    # votes are less diverse than the first.
    pairs = np.asarray(table, float)
    n, k = int(pairs.sum()), len(pairs)
    value = effective_number(pairs.sum(axis=0)) / effective_number(pairs.sum(axis=1))
    if n < FEWEST_VOTES:
        return Estimate(value, math.nan, math.nan, n)
    rows, columns = np.nonzero(pairs)
    after = pairs.sum(axis=0) - np.eye(k)[columns]
    before = pairs.sum(axis=1) - np.eye(k)[rows]
    without = _entropies_in_nats(after) - _entropies_in_nats(before)
    _, error = jackknife(math.log(value), without, pairs[rows, columns])
    # Only moves carry information, so the degrees of freedom are the number of moves less one. The
    # added term is the variance of moves between equally popular options.
    moves = n - float(np.trace(pairs))
    error = math.sqrt(error**2 + (moves + 1) * (k - 1) / n**3)
    reach = math.exp(student_quantile(0.975, max(1.0, moves - 1)) * error)
    return Estimate(value, value / reach, value * reach, n, method="jackknife")


def spread_of_ratings(answers: ArrayLike, scale: float) -> Estimate:
    """Return the typical spread of ratings: the median standard deviation of an item, over `scale`.

    - `answers`: ratings, shape (participants, items). NaN marks a missing answer.
    - `scale`: the width of the rating scale.
    """
    # A missing answer is left out of its item. The interval is the jackknife over participants on
    # the log scale.
    x = np.asarray(answers, float)
    known = np.isfinite(x)
    # Centring first avoids cancellation in the sums of squares.
    y = np.where(known, x - np.nanmean(x, axis=0), 0.0)
    n, total, squares = known.sum(axis=0), y.sum(axis=0), (y * y).sum(axis=0)
    value = float(_median_spread(n, total, squares)) / scale
    without = _median_spread(n - known, total - y, squares - y * y) / scale
    if value <= ROUNDING:
        # A share of participants may answer otherwise unseen, at most with the other end.
        unseen = interval_of_equal_units(0.0, np.ones(len(x)), (0.0, 1.0))[1]
        widest = min(unseen, 0.5)
        high = math.sqrt(widest * (1 - widest))
        return Estimate(value, 0.0, high, len(x), method="Wilson, of equal answers")
    if not (without > ROUNDING).all():
        return Estimate(value, math.nan, math.nan, len(x))
    _, error = jackknife(math.log(value), np.log(without), np.ones(len(x)))
    if error <= ROUNDING:
        # The spread is the same without any one of the participants, such as with each half at one
        # end. Those who answer otherwise unseen may be in the middle or at the ends.
        unseen = interval_of_equal_units(0.0, np.ones(len(x)), (0.0, 1.0))[1]
        low, high = (math.sqrt(value**2 * (1 - unseen) + unseen * end) for end in (0.0, 0.25))
        return Estimate(value, low, max(value, high), len(x), method="Wilson, of equal answers")
    reach = math.exp(student_quantile(0.975, len(x) - 1) * error)
    return Estimate(value, value / reach, value * reach, len(x), method="jackknife")


def _median_spread(n: NDArray[np.int64], total: FloatArray, squares: FloatArray) -> FloatArray:
    # Over the last axis. `n`, `total`, `squares`: number, sum and sum of squares of the values.
    variance = (squares - total**2 / np.maximum(n, 1)) / np.maximum(n - 1, 1)
    return np.asarray(np.median(np.sqrt(np.maximum(variance, 0.0)), axis=-1))


def _entropies_in_nats(counts: FloatArray) -> FloatArray:
    p = counts / counts.sum(axis=-1, keepdims=True)
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1))


def jensen_shannon(first: ArrayLike, second: ArrayLike) -> float:
    """Return the Jensen–Shannon divergence between two distributions in bits, from 0 to 1.

    Formula: H((p+q)/2) − (H(p) + H(q))/2. Source: Lin (1991), doi:10.1109/18.61115.
    """
    # It is the square of scipy's Jensen–Shannon distance.
    from scipy.spatial.distance import jensenshannon

    p, q = _paired_distributions(first, second)
    return float(jensenshannon(p, q, base=2) ** 2)


def total_variation(first: ArrayLike, second: ArrayLike) -> float:
    """Return the smallest share of answers that must change to make two distributions equal.

        total_variation([1, 1], [2, 0])  # 0.5

    Formula: ½ Σ |p − q|, from 0 to 1.
    """
    p, q = _paired_distributions(first, second)
    return float(0.5 * np.abs(p - q).sum())


def total_variation_by_chance(first: ArrayLike, second: ArrayLike) -> float:
    """Return the total variation that two samples from one distribution may show by chance.

    - `first`, `second`: the counts of the two samples, shape (k,).
    """
    # The total variation that 95 % of 2,000 pairs of draws do not reach. The draws have the same
    # sizes and come from the pooled shares.
    a, b = np.asarray(first, int), np.asarray(second, int)
    pooled = shares(a + b)
    rng = generator(0, ("total variation",))
    one, two = (rng.multinomial(n, pooled, 2_000) / n for n in (a.sum(), b.sum()))
    return float(np.quantile(0.5 * np.abs(one - two).sum(axis=1), 0.95))


def _paired_distributions(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, q = shares(first), shares(second)
    if p.shape != q.shape:
        raise ValueError(f"distributions over {len(p)} and {len(q)} options")
    return p, q


def esteban_ray(counts: ArrayLike) -> float:
    """Return how polarised choices are, from 0 (all choose the same option) to .25.

    - `counts`: the number of choices of each option, shape (k,).

    Formula: Σ_i p_i² (1 − p_i). Source: Esteban and Ray (1994), doi:10.2307/2951734.
    """
    # The maximum is reached by two options with half of the choices each.
    # The case K = 1, α = 1 with all options at distance 1.
    p = shares(counts)
    return float((p**2 * (1 - p)).sum())


def van_der_eijk(counts: ArrayLike) -> float:
    """Return Van der Eijk's coefficient of agreement for an ordered scale, from −1 to 1.

    - `counts`: answers per category in order of the scale, shape (k,).

    1 means that all answers are in one category. 0 means that answers are evenly spread. −1 means
    that half of the answers are at each end.

    Source: Van der Eijk (2001), doi:10.1023/A:1010374114305.
    """
    # With k ≥ 3, A is the mean over layers of the distribution, weighted by size. A layer has the
    # same count in each of its S non-empty categories. Its agreement is U · (1 − (S − 1)/(k − 1)),
    # with U = ((k − 2) TU − (k − 1) TDU) / ((k − 2)(TU + TDU)). TU counts the unimodal and TDU the
    # bimodal triples of categories.
    p = shares(counts)
    if len(p) == 1:
        return 1.0
    if len(p) == 2:
        return float(1 - 2 * p.min())
    left, agreement = p.copy(), 0.0
    while (pattern := left > 1e-12).any():
        depth = left[pattern].min()
        agreement += depth * pattern.sum() * _layer_agreement(pattern)
        left = np.where(pattern, left - depth, 0.0)
    return float(agreement)


def _layer_agreement(pattern: np.ndarray) -> float:
    # `pattern` (k,): True for the categories over which the answers are spread evenly.
    k, size = len(pattern), int(pattern.sum())
    if size in (1, k):
        return 1.0 if size == 1 else 0.0
    unimodal = bimodal = 0
    for i in range(k - 2):
        for j in range(i + 1, k - 1):
            for m in range(j + 1, k):
                triple = (bool(pattern[i]), bool(pattern[j]), bool(pattern[m]))
                # 110 and 011 are unimodal, and 101 is bimodal. Other patterns count for neither.
                unimodal += triple in ((True, True, False), (False, True, True))
                bimodal += triple == (True, False, True)
    u = ((k - 2) * unimodal - (k - 1) * bimodal) / ((k - 2) * (unimodal + bimodal))
    return float(u * (1 - (size - 1) / (k - 1)))


def polarisation(counts: ArrayLike) -> float:
    """Return how divided answers on an ordered scale are, from 0 to 1.

    - `counts`: answers per category in order of the scale, shape (k,).

    0 means that all agree. 0.5 means that answers are evenly spread. 1 means that half of the
    answers are at each end.

    Formula: (1 − A) / 2, with the coefficient A of `van_der_eijk`.
    """
    return (1 - van_der_eijk(counts)) / 2


def gini(amounts: ArrayLike) -> float:
    """Return the Gini coefficient of amounts, a measure of inequality.

        gini([1, 1, 1])  # 0.0

    - `amounts`: numbers that are not negative, shape (n,).

    0 means that all amounts are equal. NaN if the sum of the amounts is zero. Raises ValueError for
    negative amounts.

    Sources: Gini (1912), Variabilità e mutabilità. Sorted form: Sen (1973).
    """
    # (n − 1)/n: only one amount is larger than zero. There is no small-sample correction.
    x = np.sort(np.asarray(amounts, float).ravel())
    if (x < 0).any() or not np.isfinite(x).all():
        raise ValueError("amounts must be finite and not negative")
    if not len(x) or x.sum() == 0:
        return math.nan
    ranks = np.arange(1, len(x) + 1)
    return float((2 * (ranks * x).sum() / (len(x) * x.sum())) - (len(x) + 1) / len(x))
