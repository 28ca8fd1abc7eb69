"""How spread answers are over options, how far two distributions lie apart, who gets how much.

All functions take counts or shares (k,) of options and normalise them; logarithms are of base 2
unless said otherwise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.estimates import Estimate, jackknife
from folkmoot.randomness import generator

FloatArray = NDArray[np.float64]


def shares(counts: ArrayLike) -> FloatArray:
    """Counts (k,) as shares that sum to 1. Raises ValueError for negative or all-zero counts."""
    p = np.asarray(counts, float)
    if p.ndim != 1 or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ValueError(f"no distribution: {counts!r}")
    normalised: FloatArray = p / p.sum()
    return normalised


def entropy(counts: ArrayLike) -> float:
    """Shannon entropy −Σ p log p, in bits; 0 when all agree, log k when evenly split.

    Shannon (1948), doi:10.1002/j.1538-7305.1948.tb01338.x; computed by scipy.
    """
    from scipy.stats import entropy as shannon

    return float(shannon(shares(counts), base=2))


def normalised_entropy(counts: ArrayLike) -> float:
    """Entropy over its maximum log k, in [0, 1]; 0 for a single option."""
    k = len(np.asarray(counts, float))
    return entropy(counts) / float(np.log2(k)) if k > 1 else 0.0


def effective_number(counts: ArrayLike) -> float:
    """The effective number of options (Hill number of order 1): how many equally liked ones say as
    much. exp(−Σ p ln p), between 1 and k. Hill (1973), doi:10.2307/1934352.
    """
    p = shares(counts)
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


FEWEST_VOTES = 20  # for an interval of how spread votes are
FEWEST_ELSEWHERE = 5  # votes for other options than the first; fewer are counted, not averaged


def evenness_estimate(counts: ArrayLike) -> Estimate:
    """Entropy over its maximum of counts (k,), less its bias in small samples, with an interval.

    By the jackknife over people, with the variance that entropy has where all options are liked
    alike, (k − 1) / 2n², added. Where fewer than five chose another option than the first, the
    bounds are those of the exact (Clopper and Pearson's) bounds of their share: all of them at one
    other option, or spread over all. No interval below 20 votes.
    """
    from scipy.stats import t as student

    votes = np.asarray(counts, float)
    n, k = int(votes.sum()), len(votes)
    value = normalised_entropy(votes)
    if n < FEWEST_VOTES or k < 2:
        return Estimate(value, math.nan, math.nan, n)
    if n - votes.max() < FEWEST_ELSEWHERE:
        low, high = _evenness_of_few(int(n - votes.max()), n, k)
        return Estimate(value, low, high, n, method="Clopper–Pearson, of other votes")
    cells = np.flatnonzero(votes)
    without = _entropies_in_nats(votes - np.eye(k)[cells])
    corrected, error = jackknife(float(_entropies_in_nats(votes)), without, votes[cells])
    error = math.sqrt(error**2 + (k - 1) / (2 * n**2))
    reach = float(student.ppf(0.975, n - 1)) * error
    most = math.log(k)
    value, low, high = (
        min(1.0, max(0.0, bound / most))
        for bound in (corrected, corrected - reach, corrected + reach)
    )
    return Estimate(value, low, high, n, method="jackknife")


def _evenness_of_few(elsewhere: int, n: int, k: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    bounds = binomtest(elsewhere, n).proportion_ci(0.95, method="exact")
    low = normalised_entropy([1 - bounds.low, bounds.low]) / math.log2(k)
    share = min(float(bounds.high), 1 - 1 / k)
    return float(low), normalised_entropy([1 - share, *[share / (k - 1)] * (k - 1)])


def effective_ratio(table: ArrayLike) -> Estimate:
    """The effective number of options after over before, from a table (k, k) of the same people.

    Rows are the first vote, columns the last. The interval is the jackknife's over people on the
    log scale, with the variance of moves between options that are liked alike added,
    (moves + 1) (k − 1) / n³, and as many degrees of freedom as people moved, less one: who stayed
    tells nothing of the others. None below 20 people.
    """
    from scipy.stats import t as student

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
    moves = n - float(np.trace(pairs))
    error = math.sqrt(error**2 + (moves + 1) * (k - 1) / n**3)
    reach = math.exp(float(student.ppf(0.975, max(1.0, moves - 1))) * error)
    return Estimate(value, value / reach, value * reach, n, method="jackknife")


def spread_of_ratings(answers: ArrayLike, scale: float) -> Estimate:
    """The median over items of the standard deviation of answers (people, items), of the scale.

    The interval is the jackknife's over people, on the log scale. NaN is left out item by item.
    """
    from scipy.stats import t as student

    x = np.asarray(answers, float)
    known = np.isfinite(x)
    y = np.where(known, x - np.nanmean(x, axis=0), 0.0)
    n, total, squares = known.sum(axis=0), y.sum(axis=0), (y * y).sum(axis=0)
    value = float(_median_spread(n, total, squares)) / scale
    without = _median_spread(n - known, total - y, squares - y * y) / scale
    if value <= 0 or not (without > 0).all():
        return Estimate(value, math.nan, math.nan, len(x))
    _, error = jackknife(math.log(value), np.log(without), np.ones(len(x)))
    reach = math.exp(float(student.ppf(0.975, len(x) - 1)) * error)
    return Estimate(value, value / reach, value * reach, len(x), method="jackknife")


def _median_spread(n: NDArray[np.int64], total: FloatArray, squares: FloatArray) -> FloatArray:
    """The median over the last axis of standard deviations, from counts, sums and squares."""
    variance = (squares - total**2 / np.maximum(n, 1)) / np.maximum(n - 1, 1)
    return np.asarray(np.median(np.sqrt(np.maximum(variance, 0.0)), axis=-1))


def _entropies_in_nats(counts: FloatArray) -> FloatArray:
    """Shannon entropies in nats of counts (…, k)."""
    p = counts / counts.sum(axis=-1, keepdims=True)
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1))


def jensen_shannon(first: ArrayLike, second: ArrayLike) -> float:
    """Jensen–Shannon divergence H((p+q)/2) − (H(p) + H(q))/2, in bits: [0, 1].

    The square of what scipy calls the Jensen–Shannon distance.
    Lin (1991), doi:10.1109/18.61115; computed by scipy.
    """
    from scipy.spatial.distance import jensenshannon

    p, q = _paired_distributions(first, second)
    return float(jensenshannon(p, q, base=2) ** 2)


def total_variation(first: ArrayLike, second: ArrayLike) -> float:
    """½ Σ |p − q|, in [0, 1]: the least share of people who must differ between the two."""
    p, q = _paired_distributions(first, second)
    return float(0.5 * np.abs(p - q).sum())


def total_variation_by_chance(first: ArrayLike, second: ArrayLike) -> float:
    """The total variation that samples of these sizes (counts (k,), (k,)) stay below with a chance
    of 95 % where both choose alike: 2,000 draws from their shares put together."""
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
    """Esteban and Ray's polarisation of nominal choices, K = 1, α = 1 and all options at distance
    1: Σ_i p_i² (1 − p_i) of `counts` (k,). Largest for two equal camps (.25); 0 when all agree.
    Esteban and Ray (1994), doi:10.2307/2951734.
    """
    p = shares(counts)
    return float((p**2 * (1 - p)).sum())


def van_der_eijk(counts: ArrayLike) -> float:
    """Van der Eijk's coefficient of agreement A for an ordered scale, in [−1, 1].

    1: all in one category; 0: evenly spread; −1: half at each end. The distribution (k,) is cut
    into layers with the same people in each non-empty category; a layer with S of k categories
    has agreement U · (1 − (S − 1)/(k − 1)), where U compares triples of categories that are
    unimodal (TU) with those that are not (TDU): ((k − 2) TU − (k − 1) TDU) / ((k − 2)(TU + TDU)).
    A is the mean of the layers by their weight. Needs k ≥ 3 categories for U; with two, A is
    1 − 2 min(p).
    Van der Eijk (2001), doi:10.1023/A:1010374114305.
    """
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
    """A of a layer: `pattern` (k,) says which categories are non-empty."""
    k, size = len(pattern), int(pattern.sum())
    if size in (1, k):
        return 1.0 if size == 1 else 0.0
    unimodal = bimodal = 0
    for i in range(k - 2):
        for j in range(i + 1, k - 1):
            for m in range(j + 1, k):
                triple = (bool(pattern[i]), bool(pattern[j]), bool(pattern[m]))
                # 110 and 011 support agreement, 101 denies it; the rest says nothing.
                unimodal += triple in ((True, True, False), (False, True, True))
                bimodal += triple == (True, False, True)
    u = ((k - 2) * unimodal - (k - 1) * bimodal) / ((k - 2) * (unimodal + bimodal))
    return float(u * (1 - (size - 1) / (k - 1)))


def polarisation(counts: ArrayLike) -> float:
    """(1 − A) / 2 with A of `van_der_eijk`, in [0, 1]: 0 all agree, .5 even, 1 two camps."""
    return (1 - van_der_eijk(counts)) / 2


def gini(amounts: ArrayLike) -> float:
    """The Gini coefficient Σ_i Σ_j |x_i − x_j| / (2 n² x̄) of amounts (n,) ≥ 0.

    0: all have the same; (n − 1)/n: one has all (no small-sample correction). NaN for nothing to
    share out. Raises ValueError for negative amounts.
    Gini (1912), Variabilità e mutabilità; the sorted form is that of Sen (1973).
    """
    x = np.sort(np.asarray(amounts, float).ravel())
    if (x < 0).any() or not np.isfinite(x).all():
        raise ValueError("amounts must be finite and not negative")
    if not len(x) or x.sum() == 0:
        return math.nan
    ranks = np.arange(1, len(x) + 1)
    return float((2 * (ranks * x).sum() / (len(x) * x.sum())) - (len(x) + 1) / len(x))
