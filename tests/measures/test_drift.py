"""The distance of answers that are numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.measures.drift import ConditionAnswers, Drift, measure_drift
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
