"""The distance of answers that are numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from folkmoot.measures.drift import ConditionAnswers, Drift, measure_drift
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.randomness import generator


def measure(first: Sequence[float], second: Sequence[float]) -> Drift:
    """Return the drift between two conditions in which each answer is a unit of its own."""
    units = range(len(first) + len(second))
    conditions = (
        ConditionAnswers(tuple(first), tuple(units[: len(first)])),
        ConditionAnswers(tuple(second), tuple(units[len(first) :])),
    )
    return measure_drift([conditions], generator(0, ("numbers",)))


@pytest.mark.parametrize("other", [38, 46])
def test_answers_apart_from_the_usual_number_are_found_below_and_above_it(other: int) -> None:
    """Both conditions usually give 42, and nearly half of the second one gives another number."""
    drift = measure([42] * 30, [42] * 16 + [other] * 14)
    assert drift.questions[0].distance == pytest.approx(14 / 30)
    assert drift.mean.p < 0.01 and drift.mean.low > 0.2


@pytest.mark.parametrize("usual", [0, 7, 10])
def test_a_number_that_most_answers_have_is_apart_from_all_others(usual: int) -> None:
    """It may be the smallest or the largest number of the scale, or between others."""
    others = [number for number in range(11) if number != usual]
    drift = measure([usual] * 30, [usual] * 20 + others)
    assert drift.questions[0].distance == pytest.approx(1 / 3)


def test_numbers_that_are_spread_out_are_divided_at_their_quartiles() -> None:
    """Four classes of fifteen: the first condition has only the lower two."""
    numbers = [number + 0.5 for number in range(60)]
    assert measure(numbers[:30], numbers[30:]).questions[0].distance == 1
    # Each class holds as many answers of the one condition as of the other, or nearly.
    assert measure(numbers[::2], numbers[1::2]).questions[0].distance == pytest.approx(2 / 30)


NUMBERS = st.lists(st.integers(0, 10) | st.integers(-1000, 1000), min_size=1, max_size=12)


@given(first=NUMBERS, second=NUMBERS)
def test_numbers_mirrored_have_the_same_distance(first: list[int], second: list[int]) -> None:
    mirrored = [[10 - number for number in numbers] for numbers in (first, second)]
    distances = [measure(*pair).questions[0].distance for pair in ((first, second), mirrored)]
    assert distances[0] == pytest.approx(distances[1])


def count_hits(units: int, first_hits: int, second_hits: int, *, paired: bool) -> Estimate:
    """Return the distance of two conditions with so many hits among their units."""
    second_units = range(units) if paired else range(units, 2 * units)
    conditions = (
        ConditionAnswers(tuple(unit < first_hits for unit in range(units)), tuple(range(units))),
        ConditionAnswers(tuple(n < second_hits for n in range(units)), tuple(second_units)),
    )
    return measure_drift([conditions], generator(0, ("hits",))).mean


@pytest.mark.parametrize("units", [6, 8, 12, 60])
def test_a_distance_of_one_leaves_room_for_units_that_were_not_observed(units: int) -> None:
    """Resamples of equal units do not vary. Bounds agree with those of differences of shares."""
    paired = count_hits(units, units, 0, paired=True)
    assert (paired.value, paired.high) == (1, 1)
    assert paired.low == pytest.approx(paired_shares(0, 0, units, 0).low, abs=0.002)
    independent = count_hits(units, units, 0, paired=False)
    assert (independent.value, independent.high) == (1, 1)
    assert independent.low == pytest.approx(newcombe(units, units, 0, units).low, abs=0.06)
    # The interval agrees with the test.
    assert all(estimate.p < 0.05 and estimate.low > 0 for estimate in (paired, independent))


def test_five_equal_units_show_no_shift_that_the_test_does_not() -> None:
    estimate = count_hits(5, 5, 0, paired=True)
    assert estimate.value == 1 and estimate.low == 0 and estimate.p > 0.05


@pytest.mark.parametrize(("units", "low", "high"), [(6, 0.0404, 0.730), (60, 0.440, 0.530)])
def test_equal_distances_of_all_units_have_an_interval(units: int, low: float, high: float) -> None:
    """In each group one of two participants changes the answer."""
    groups = tuple(unit for unit in range(units) for _ in range(2))
    conditions = (
        ConditionAnswers(("yes", "yes") * units, groups),
        ConditionAnswers(("yes", "no") * units, groups),
    )
    estimate = measure_drift([conditions], generator(0, ("half",))).mean
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.001)


@pytest.mark.parametrize("units", [5, 8, 12])
@pytest.mark.parametrize("other_share", [0.65, 0.8])
def test_intervals_of_few_units_hold_the_true_distance(units: int, other_share: float) -> None:
    """The coverage is summed over all results of two conditions without common units."""
    first, second = (binom.pmf(range(units + 1), units, share) for share in (0.5, other_share))
    covered = considered = 0.0
    for hits, other_hits in product(range(units + 1), repeat=2):
        chance = first[hits] * second[other_hits]
        if chance > 1e-3:
            estimate = count_hits(units, hits, other_hits, paired=False)
            considered += chance
            covered += chance * (estimate.low <= other_share - 0.5 <= estimate.high)
    assert covered / considered > 0.93


@pytest.mark.parametrize("truth", [(1.0, 0.0), (0.99, 0.01), (0.95, 0.05), (0.9, 0.1), (1.0, 0.1)])
def test_intervals_near_a_distance_of_one_hold_the_true_distance(
    truth: tuple[float, float],
) -> None:
    units = 6
    first, second = (binom.pmf(range(units + 1), units, share) for share in truth)
    covered = 0.0
    for hits, other_hits in product(range(units + 1), repeat=2):
        # Results that are this rare cannot lower the coverage by half a point.
        if first[hits] * second[other_hits] > 1e-4:
            estimate = count_hits(units, hits, other_hits, paired=False)
            is_held = estimate.low - 1e-9 <= truth[0] - truth[1] <= estimate.high + 1e-9
            covered += is_held * first[hits] * second[other_hits]
    assert covered > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_p_values_of_few_units_are_exact(seed: int) -> None:
    """All exchanges are used, so equal data have the same p, and none is below the smallest one."""

    def measure_answers(second_units: range, count: int) -> Drift:
        first = ConditionAnswers(("yes",) * count, tuple(range(count)))
        second = ConditionAnswers(("no",) * count, tuple(second_units))
        return measure_drift([(first, second)], generator(seed, ("exact",)))

    # Six units in both conditions: all of them, or none, change places.
    assert measure_answers(range(6), 6).mean.p == 2 / 2**6
    # Five units in each condition: of the 252 divisions, two separate the answers.
    assert measure_answers(range(5, 10), 5).mean.p == pytest.approx(2 / 252)
    # With more units there are too many exchanges, so a thousand random ones are used.
    assert measure_answers(range(16), 16).mean.p == pytest.approx(1 / 1001)


def test_exact_p_values_of_numbers_and_of_units_in_one_condition_only() -> None:
    """Four units are in both conditions and two in one: 2⁴ × 2 exchanges."""
    first = ConditionAnswers((1, 2, 1, 2, 1), (0, 1, 2, 3, 4))
    second = ConditionAnswers((7, 8, 7, 8, 9), (0, 1, 2, 3, 5))
    drift = measure_drift([(first, second)], generator(0, ("numbers",)))
    assert drift.questions[0].p == 2 / 2**5


def test_a_question_that_few_units_answered_is_not_tested_beside_others() -> None:
    """Twenty participants on each side answer the first question, and two of B the second."""
    sides = {side: [f"{side}{i}" for i in range(20)] for side in "AB"}
    first = tuple(ConditionAnswers(("yes",) * 20, tuple(units)) for units in sides.values())
    second = (
        ConditionAnswers((1.0, 3.0) * 10, tuple(sides["A"])),
        ConditionAnswers((3.0, 5.0), tuple(sides["B"][:2])),
    )
    drift = measure_drift([(first[0], first[1]), second], generator(0, ("few",)))
    assert [question.difference.unit_count for question in drift.questions] == [20, 2]
    assert drift.questions[0].difference.has_interval
    few = drift.questions[1]
    assert math.isnan(few.p) and not few.difference.has_interval
    # The means are 2 and 4, and the pooled variance is (20 + 2) / 20.
    assert few.difference.value == pytest.approx(2 / math.sqrt(1.1))


def test_an_interval_allows_for_resamples_without_an_answer() -> None:
    """Five of 40 participants on a side answered, so some resamples have none of them."""
    sides = {side: tuple(f"{side}{i}" for i in range(40)) for side in "AB"}
    all_answered = [ConditionAnswers(("yes",) * 40, units) for units in sides.values()]
    few_answered = [
        ConditionAnswers((answer,) * 4 + ("both",), units[:5])
        for answer, units in zip(("left", "right"), sides.values(), strict=True)
    ]
    drift = measure_drift(
        [(all_answered[0], all_answered[1]), (few_answered[0], few_answered[1])],
        generator(0, ("resamples",)),
    )
    estimate = drift.questions[1].difference
    assert estimate.unit_count == 5 and estimate.p < 0.05
    assert 0 < estimate.low < 0.8


@pytest.mark.parametrize(("units", "is_shown"), [(5, False), (6, True)])
def test_numbers_of_few_units_differ_only_if_the_test_rejects(units: int, is_shown: bool) -> None:
    """All units give 3 or 4 in place of 1 or 2. With five units, p is at least 2 in 32."""
    names = tuple(range(units))
    before = tuple(float(1 + unit % 2) for unit in names)
    after = tuple(value + 2 for value in before)
    drift = measure_drift(
        [(ConditionAnswers(before, names), ConditionAnswers(after, names))],
        generator(0, ("few numbers",)),
    )
    difference = drift.questions[0].difference
    assert difference.p == 2 / 2**units
    assert difference.has_interval and difference.excludes_zero == is_shown
