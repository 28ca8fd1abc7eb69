"""Holm's method for several claims, and confidence intervals that agree with Holm's verdicts.

Sources: Strassburger and Bretz (2008), Statistics in Medicine 27, 4914–4927. Guilbaud (2008),
Biometrical Journal 50, 678–692. Shaffer (1980), Annals of Statistics 8, 1342–1347, for decisions
about the sign of a difference.
"""

# Each claim has two one-sided tests: that the difference is at most `low_null`, and that it is at
# least `high_null`. Holm's method is used twice, once for each direction, at half of the level. So
# each decision includes the sign, and the chance of even one false decision is at most the level.
# The intervals hold jointly at 95 % and agree with each decision.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from folkmoot.measures.inference.estimates import ALPHA
from folkmoot.measures.inference.proportions import holm

# From a confidence level to the interval (low, high) of a difference.
IntervalFunction = Callable[[float], tuple[float, float]]


class JointInterval(NamedTuple):
    """The interval of a primary claim. The intervals of all primary claims hold jointly at 95 %."""

    low: float
    high: float
    # True if the interval does not contain this bound (`is_low_excluded`, `is_high_excluded`).
    is_low_excluded: bool = False
    is_high_excluded: bool = False


class DirectionalTests(NamedTuple):
    """The two one-sided tests of a claim, one for each direction of the difference."""

    low_null: float
    high_null: float
    # The one-sided p-value of the hypothesis that the difference is at most `low_null`.
    p_above: float
    # The one-sided p-value of the hypothesis that the difference is at least `high_null`.
    p_below: float
    # The interval (low, high) of the claim by itself at a two-sided level.
    interval_at: IntervalFunction
    # True if the claim needs both bounds for a decision. A null value then never replaces its
    # bounds.
    keeps_share: bool = False
    # True if the claim states that the difference is below `high_null`.
    is_mirrored: bool = False


class JointResult(NamedTuple):
    """The result of one claim, adjusted for all primary claims that are tested together."""

    interval: JointInterval
    # The two-sided p-value, adjusted by Holm's method. NaN for a claim with `keeps_share`, because
    # only its bounds decide it.
    adjusted_p: float
    # True if the difference is shown to be above `low_null`.
    is_above: bool
    # True if it is shown to be below `high_null`.
    is_below: bool


class _Side(NamedTuple):
    # A one-sided test: is the difference larger than `null`? A test for "smaller" is stored with
    # all signs reversed.

    null: float
    p: float
    bound_at: Callable[[float], float]
    keeps_share: bool


class _SideResult(NamedTuple):
    bound: float
    is_excluded: bool
    is_rejected: bool
    adjusted_p: float


def decide_jointly(
    tests: Sequence[DirectionalTests | None], alpha: float = ALPHA
) -> list[JointResult | None]:
    """Return the results of claims that are tested together, in order.

    - `tests`: the tests of each claim, or None for a claim that cannot be tested.
    """
    # None still counts in the correction for the number of claims, because this number was fixed
    # before the data.
    stated = _decide_direction([each and _side_of(each, each.is_mirrored) for each in tests], alpha)
    opposite = _decide_direction(
        [each and _side_of(each, not each.is_mirrored) for each in tests], alpha
    )
    return [
        each and _join(each, stated_side, opposite_side)
        for each, stated_side, opposite_side in zip(tests, stated, opposite, strict=True)
    ]


def p_above_value(value: float, interval_at: IntervalFunction) -> float:
    """Return the one-sided p-value of the hypothesis that a difference is at most `value`."""
    return _p_beyond(value, lambda level: interval_at(level)[0])


def p_below_value(value: float, interval_at: IntervalFunction) -> float:
    """Return the one-sided p-value of the hypothesis that a difference is at least `value`."""
    return _p_beyond(-value, lambda level: -interval_at(level)[1])


def _p_beyond(null: float, bound_at: Callable[[float], float]) -> float:
    # `bound_at` returns the lower bound of the interval at a confidence level, such as .95.
    most, least = 0.0, -34.0
    if not bound_at(-math.expm1(-1e-6)) > null:
        # The estimate itself is not beyond the value.
        return 1.0
    # The p-value is half of the α at which the bound equals `null`.
    # Bisection over the logarithm of α: p-values are compared in proportion.
    for _ in range(45):
        middle = (most + least) / 2
        is_beyond = bound_at(-math.expm1(middle)) > null
        most, least = (middle, least) if is_beyond else (most, middle)
    return math.exp(most) / 2


def _side_of(test: DirectionalTests, is_below: bool) -> _Side:
    if is_below:
        return _Side(
            -test.high_null,
            test.p_below,
            lambda level: -test.interval_at(level)[1],
            test.keeps_share,
        )
    return _Side(
        test.low_null, test.p_above, lambda level: test.interval_at(level)[0], test.keeps_share
    )


def _decide_direction(sides: Sequence[_Side | None], alpha: float) -> list[_SideResult | None]:
    # A hypothesis that cannot be rejected has the largest p-value, so that it counts in each step.
    adjusted = holm([1.0 if side is None or side.keeps_share else side.p for side in sides])
    rejected = [p < alpha / 2 for p in adjusted]
    left = len(sides) - sum(rejected)
    # Each claim that is left has an equal share. If none is left, all claims share the level.
    level = 1 - alpha / (left or len(sides))
    # The bound of a rejected hypothesis is its null value. If all are rejected, the Bonferroni
    # bound is used where it is further from the null value. If a hypothesis is not rejected, the
    # bound has the level at which Holm's method stopped.
    results: list[_SideResult | None] = []
    for side, p, is_rejected in zip(sides, adjusted, rejected, strict=True):
        if side is None:
            results.append(None)
        elif side.keeps_share:
            results.append(_SideResult(side.bound_at(level), False, False, math.nan))
        elif is_rejected:
            bound = side.null if left else max(side.null, side.bound_at(level))
            results.append(_SideResult(bound, bound == side.null, True, p))
        else:
            bound = min(side.null, side.bound_at(level))
            results.append(_SideResult(bound, False, False, p))
    return results


def _join(
    test: DirectionalTests, stated: _SideResult | None, opposite: _SideResult | None
) -> JointResult | None:
    if stated is None or opposite is None:
        return None
    above, below = (opposite, stated) if test.is_mirrored else (stated, opposite)
    return JointResult(
        JointInterval(above.bound, -below.bound, above.is_excluded, below.is_excluded),
        # `min` returns 1 if its second argument is NaN.
        math.nan if test.keeps_share else min(1.0, 2 * min(above.adjusted_p, below.adjusted_p)),
        above.is_rejected,
        below.is_rejected,
    )
