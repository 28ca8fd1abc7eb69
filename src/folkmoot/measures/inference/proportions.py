"""Shares, differences between shares, and Holm's adjustment.

The functions are for counts of independent units. For units that talked to each other, use the
module `clustered`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.distributions import chi2_p, normal_p, normal_quantile
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate

# Range of z for the search of p. Beyond the upper end p is 0 in floating point.
_NEAREST, _FURTHEST = 1e-6, 37.0


def wilson(count: int, n: int, level: float = 0.95) -> Estimate:
    """Return the share count / n with Wilson's score interval.

        wilson(8, 10)

    Raises ValueError for n < 1.

    Source: Wilson (1927), doi:10.1080/01621459.1927.10502953.
    """
    # Unlike p ± z √(p(1−p)/n), the interval stays in [0, 1] and has a positive width at 0 % and 100
    # %.
    _check_share(count, n)
    return Estimate(count / n, *_wilson_bounds(count, n, 1 - level), n, method="Wilson")


def _wilson_bounds(count: int, n: int, alpha: float) -> tuple[float, float]:
    share, z2 = count / n, normal_quantile(alpha / 2) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # Use exact bounds at 0 % and 100 %, because rounding could exclude the estimate.
    return middle - half if count else 0.0, middle + half if count < n else 1.0


def score_interval(share: float, n: float, z: float) -> tuple[float, float]:
    """Return the bounds of Wilson's interval for a share of n units.

    - `z`: a quantile of the normal or Student's distribution.
    """
    # `n` need not be an integer: clusters have an effective number of units.
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def newcombe(count1: int, n1: int, count2: int, n2: int, level: float = 0.95) -> Estimate:
    """Return the difference between two independent shares, first minus second, with a p-value.

        newcombe(30, 100, 20, 100)

    Raises ValueError for an empty group.

    Source: Newcombe (1998), doi:10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I.
    """
    # The interval is the hybrid score interval (method 10).
    _check_share(count1, n1)
    _check_share(count2, n2)
    share1, share2 = count1 / n1, count2 / n2
    value = share1 - share2

    def interval_bounds(alpha: float) -> tuple[float, float]:
        low1, high1 = _wilson_bounds(count1, n1, alpha)
        low2, high2 = _wilson_bounds(count2, n2, alpha)
        below = math.hypot(share1 - low1, high2 - share2)
        above = math.hypot(high1 - share1, share2 - low2)
        return value - below, value + above

    low, high = interval_bounds(1 - level)
    return Estimate(
        value,
        max(-1.0, low),
        min(1.0, high),
        n1 + n2,
        _independent_units(n1, n2),
        p=p_of_interval(value, interval_bounds),
        method="Newcombe",
    )


def _independent_units(*sides: int) -> int:
    # 0 if each number of units is large enough for an interval, otherwise the smallest.
    return min(sides) if min(sides) < FEWEST_UNITS else 0


def p_of_interval(value: float, bounds: Callable[[float], tuple[float, float]]) -> float:
    """Return the two-sided p-value of a difference, computed from its confidence interval.

    - `value`: the estimate.
    - `bounds`: returns the interval of the difference for a test level α.
    """
    # p is the α at which one of the bounds is zero.
    from scipy.optimize import brentq

    if value == 0:
        return 1.0

    def distance_to_zero(z: float) -> float:
        low, high = bounds(normal_p(z))
        return low if value > 0 else -high

    if distance_to_zero(_FURTHEST) > 0:
        return 0.0
    # At a confidence level near 0 % the interval is almost the value itself. If it still contains
    # zero, there is no evidence of a difference.
    if distance_to_zero(_NEAREST) <= 0:
        return 1.0
    return normal_p(float(brentq(distance_to_zero, _NEAREST, _FURTHEST, xtol=1e-10)))


# Pearson's test is an approximation for large counts. Cochran (1954) gives five as the smallest
# count that it may expect.
FEWEST_EXPECTED = 5
# The smallest p of a test with drawn tables or permutations is 1 / 20,000.
RESAMPLES = 19_999


def homogeneity_p(first: Sequence[int], second: Sequence[int]) -> float:
    """Return the p-value of a test of equal distributions.

    - `first`, `second`: counts, shape (k,).

    The test is Pearson's χ², or Fisher's exact test if a count of less than five is expected.
    """
    # Categories without counts are dropped.
    table = np.array([pair for pair in zip(first, second, strict=True) if sum(pair)]).T
    if table.ndim < 2 or table.shape[1] < 2 or not table.sum(axis=1).all():
        return 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    if expected.min() < FEWEST_EXPECTED:
        return _fisher_p(table)
    return chi2_p(float(((table - expected) ** 2 / expected).sum()), table.shape[1] - 1)


def _fisher_p(table: NDArray[np.int64]) -> float:
    from scipy.stats import MonteCarloMethod, fisher_exact

    if table.shape[1] == 2:
        return float(fisher_exact(table).pvalue)
    # More options have too many tables with the same totals to list all. The drawn tables are the
    # same in each process, so that a comparison gives the same p.
    method = MonteCarloMethod(n_resamples=RESAMPLES, rng=np.random.default_rng(0))
    # scipy returns an array of one value if the table has more cells than observations.
    return float(np.asarray(fisher_exact(table, method=method).pvalue).item())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method, in the given order.

        holm([0.01, 0.04])  # [0.02, 0.04]

    NaN stays NaN and does not count as a test.

    Source: Holm (1979), Scand. J. Statist. 6, 65–70.
    """
    # The chance of at least one false alarm stays at the nominal level.
    values = np.asarray(p_values, dtype=float)
    # NaN come last in the order and are cut off.
    order = np.argsort(values)[: np.isfinite(values).sum()]
    steps = values[order] * np.arange(order.size, 0, -1)
    adjusted = np.full(values.size, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted.tolist()


def mover(first: Estimate, second: Estimate) -> tuple[float, float]:
    """Return the interval of the difference between two independent estimates, first minus second.

    Source: the method MOVER, Zou and Donner (2008), doi:10.1002/sim.3095.
    """
    distance = first.value - second.value
    down = math.hypot(first.value - first.low, second.high - second.value)
    up = math.hypot(first.high - first.value, second.value - second.low)
    return distance - down, distance + up


def between(
    first: Callable[..., Estimate], second: Callable[..., Estimate], level: float = 0.95
) -> Estimate:
    """Return the difference between two independent estimates, with an interval and a p-value.

    - `first`, `second`: each takes a confidence level and returns an estimate with such an
      interval.
    - `level`: the confidence level of the interval.
    """
    # The default of `level` is .95.
    one, two = first(), second()
    distance = one.value - two.value

    def interval_bounds(alpha: float) -> tuple[float, float]:
        # A smaller alpha would be rounded to a level of exactly 1.
        own_level = 1 - max(alpha, 1e-15)
        return mover(first(level=own_level), second(level=own_level))

    # For two Wilson shares, this interval is Newcombe's.
    few = _independent_units(one.unit_count, two.unit_count)
    if not few and (one.clusters or two.clusters):
        few = one.unit_count + two.unit_count
    ends = interval_bounds(1 - level)
    # An estimate of too few units has no interval, so their difference has none.
    is_known = all(map(math.isfinite, ends))
    p = p_of_interval(distance, interval_bounds) if is_known else math.nan
    return Estimate(distance, *ends, one.n + two.n, few, p=p, method="MOVER")


def _check_share(count: int, n: int) -> None:
    if n < 1:
        raise ValueError("a share of zero units is not defined (n = 0)")
    if not 0 <= count <= n:
        raise ValueError(f"{count} of {n} is not a share")
