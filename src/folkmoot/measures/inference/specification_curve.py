"""Specification curve: joint tests of a claim over many specifications.

A specification is one way to ask the question or to analyse the data.

Source: Simonsohn, Simmons and Nelson (2020), doi:10.1038/s41562-020-0912-z.
"""

# A grid asks the same question with several prompts, models or draws. The cells of a grid share
# participants, so the cells are not independent. The share of cells in which a claim holds is
# therefore no probability. The tests resample participants with all their answers in all
# specifications. The p-values say how often an equally strong curve would occur if no specification
# had an effect beyond the margin.

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.distributions import student_quantile
from folkmoot.measures.inference.estimates import ALPHA, FEWEST_UNITS, NORMAL_QUANTILE, ROUNDING
from folkmoot.randomness import generator

FloatArray = NDArray[np.float64]
# Specification → both conditions of a claim.
Sides = Mapping[str, tuple[Side, Side]]

# Resamples of units. The smallest p is 1/2001.
DRAWS = 2_000
# Fewer specifications give no prediction interval.
FEWEST_FOR_PREDICTION = 3
# Fewer specifications are not judged, see `Curve.robustness_word`.
FEWEST_SPECIFICATIONS = FEWEST_UNITS
# A claim is fragile if a smaller share of estimates is on the claimed side.
ON_THE_SIDE = 0.8


@dataclass(frozen=True, slots=True)
class Curve:
    """The estimates of one claim in several specifications, with joint tests.

    A specification is one way to ask the question or to analyse the data.
    """

    claim: Claim
    # The difference in each specification, without repeats of identical data.
    estimates: Mapping[str, float]
    # The number of specifications left out because their data are identical.
    merged: int
    median: float
    # p-values of three joint tests: of the median, of the number of significant specifications
    # (`p_count`), and of the mean z (`p_z`). The null hypothesis is that no specification has an
    # effect beyond the margin. For a claim of equivalence, it is that some specification has one.
    # NaN with too few independent units or specifications.
    p_median: float
    p_count: float
    p_z: float
    # The 95 % prediction interval for one more specification. NaN with fewer than three.
    predicted: tuple[float, float]
    # The number of independent units, as `estimate_difference` counts them in one run. These are
    # the units of the smaller condition if they are fewer than five, otherwise those of both.
    units: int
    alpha: float = ALPHA
    # True if the specifications are repeats of one design.
    is_of_repeats: bool = False

    @property
    def on_the_side(self) -> float:
        """The share of estimates in the direction that the claim states."""
        sides = [
            _supports_claim(self.claim, value, self.median) for value in self.estimates.values()
        ]
        return sum(sides) / len(sides)

    @property
    def is_judged(self) -> bool:
        """True if there are enough specifications and units for a joint test."""
        return all(map(math.isfinite, (self.p_median, self.p_count, self.p_z)))

    @property
    def robustness_word(self) -> str:
        """The robustness of the claim in a word: "robust", "fragile" or "mixed".

        The word is "too few" with fewer than five specifications, and "not tested" with too few
        units.
        """
        # The joint tests draw participants. So their p-values can be as small as 1/2001 even with
        # two specifications. They concern these specifications, not a further one. Evidence on a
        # further one comes from specifications that agree. With random signs, all k specifications
        # would be on the claimed side with a probability of 1/2^k. With five, this is 1/32, the
        # first value below 5 %.
        if len(self.estimates) < FEWEST_SPECIFICATIONS:
            return "too few"
        tests = (self.p_median, self.p_count, self.p_z)
        if not self.is_judged:
            return "not tested"
        # Robust: all estimates are on the claimed side, and all three joint tests reject. Fragile:
        # no test rejects, or fewer than 80 % of the estimates are on the claimed side.
        if self.on_the_side == 1 and max(tests) < self.alpha:
            return "robust"
        return "fragile" if self.on_the_side < ON_THE_SIDE or min(tests) >= self.alpha else "mixed"


def _supports_claim(claim: Claim, value: float, median: float) -> bool:
    # For a claim without direction, the claimed side is the side of the median.
    if claim.direction == "equivalent":
        return abs(value) <= claim.margin
    sign = {"greater": 1.0, "less": -1.0}.get(claim.direction, math.copysign(1.0, median))
    return sign * value > claim.margin


def specification_curve(claim: Claim, sides: Sides, alpha: float = ALPHA) -> Curve:
    """Test one claim jointly over several specifications.

    A specification is one way to ask the question or to analyse the data.

    - `sides`: for each specification, the data of both conditions.
    - `alpha`: the level of the tests. Use a smaller level if several claims are judged.
    """
    # Units with equal names are the same unit everywhere.
    distinct = _merge_identical(sides)
    names = list(distinct)
    # Units are drawn with replacement, separately by condition if no unit is in both.
    observed, drawn, units = _bootstrap_differences(distinct)
    median = float(np.median(observed))
    if units < FEWEST_UNITS or len(names) < FEWEST_SPECIFICATIONS:
        p_median = p_count = p_z = math.nan
    elif claim.direction == "equivalent":
        outside = np.abs(drawn).max(axis=1) > claim.margin
        p_median = p_count = p_z = _share_of_draws(outside)
    else:
        p_median, p_count, p_z = _joint_tests(claim, observed, drawn, median)
    return Curve(
        claim,
        dict(zip(names, map(float, observed), strict=True)),
        len(sides) - len(names),
        median,
        p_median,
        p_count,
        p_z,
        _prediction_interval(observed),
        units,
        alpha,
    )


def _merge_identical(sides: Sides) -> dict[str, tuple[Side, Side]]:
    kept: dict[bytes, str] = {}
    for name, both in sides.items():
        content = repr([(side.units, side.values.tolist()) for side in both]).encode()
        kept.setdefault(content, name)
    return {name: sides[name] for name in kept.values()}


def _bootstrap_differences(sides: Sides) -> tuple[FloatArray, FloatArray, int]:
    # Returns the observed differences (s,), those in random samples (draws, s), and the number of
    # units (see `Curve.units`).
    units = [{unit for both in sides.values() for unit in both[arm].units} for arm in (0, 1)]
    shared = bool(units[0] & units[1])
    pools = [units[0] | units[1]] * 2 if shared else units
    sums, counts = [], []
    for arm, pool in enumerate(pools):
        # Sort by text, because units may have different types. The order must not depend on the
        # data.
        place = {unit: i for i, unit in enumerate(sorted(pool, key=repr))}
        of_sides = [_sum_by_specification(both[arm], place) for both in sides.values()]
        sums.append(np.array([total for total, _ in of_sides]))
        counts.append(np.array([count for _, count in of_sides]))
    rng = generator(0, ("specification curve",))
    times = [_draw_units(rng, len(pools[0]))]
    times.append(times[0] if shared else _draw_units(rng, len(pools[1])))
    observed = _mean_difference(sums, counts, [np.ones((1, len(pool))) for pool in pools])[0]
    drawn = _mean_difference(sums, counts, times)
    # A bootstrap mean has the variance with divisor n instead of n − 1. Widen the draws to correct
    # for that.
    fewest = min(len(pool) for pool in pools)
    wider = math.sqrt(fewest / (fewest - 1)) if fewest > 1 else 1.0
    count = fewest if fewest < FEWEST_UNITS else len(units[0] | units[1])
    return observed, observed + (drawn - observed) * wider, count


def _sum_by_specification(
    side: Side, place: Mapping[Hashable, int]
) -> tuple[FloatArray, FloatArray]:
    total, count = np.zeros(len(place)), np.zeros(len(place))
    at = [place[unit] for unit in side.units]
    np.add.at(total, at, side.values)
    np.add.at(count, at, 1.0)
    return total, count


def _draw_units(rng: np.random.Generator, units: int) -> FloatArray:
    return rng.multinomial(units, np.full(units, 1 / units), DRAWS).astype(float)


def _mean_difference(
    sums: list[FloatArray], counts: list[FloatArray], times: list[FloatArray]
) -> FloatArray:
    # First minus second condition: (draws, specifications). Each list has one array per condition.
    # `sums`, `counts` (specifications, units): the sum and the number of a unit's values. `times`
    # (draws, units): how often a unit is drawn.
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = (
            time @ s.T / (time @ count.T)
            for s, count, time in zip(sums, counts, times, strict=True)
        )
    return np.nan_to_num(np.asarray(first - second))


def _joint_tests(
    claim: Claim, observed: FloatArray, drawn: FloatArray, median: float
) -> tuple[float, float, float]:
    sign = {"greater": 1.0, "less": -1.0}.get(claim.direction, math.copysign(1.0, median))
    error = drawn.std(axis=0, ddof=1)
    error = np.where(error > ROUNDING * np.maximum(1.0, np.abs(observed)), error, np.inf)
    found = sign * observed - claim.margin
    null = sign * (drawn - observed)
    # The side was chosen after seeing the median, so the draws take the side of their median too.
    if claim.direction == "different":
        null = np.where(np.median(null, axis=1, keepdims=True) < 0, -null, null)
    z, null_z = found / error, null / error
    tests = (
        (np.median(found), np.median(null, axis=1)),
        ((z > NORMAL_QUANTILE).sum(), (null_z > NORMAL_QUANTILE).sum(axis=1)),
        (z.mean(), null_z.mean(axis=1)),
    )
    p_median, p_count, p_z = (_share_of_draws(under >= value) for value, under in tests)
    return p_median, p_count, p_z


def _share_of_draws(draws: NDArray[np.bool_]) -> float:
    return (int(draws.sum()) + 1) / (len(draws) + 1)


def _prediction_interval(observed: FloatArray) -> tuple[float, float]:
    k = len(observed)
    if k < FEWEST_FOR_PREDICTION:
        return math.nan, math.nan
    spread = float(observed.std(ddof=1)) * math.sqrt(1 + 1 / k)
    reach = student_quantile(0.975, k - 1) * spread
    return float(observed.mean()) - reach, float(observed.mean()) + reach
