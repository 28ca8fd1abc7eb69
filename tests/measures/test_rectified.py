"""Prediction-powered means: valid whatever the simulation says, narrower when it predicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from folkmoot.measures.rectified import rectified_mean

VALUES = st.floats(-5, 5)


def population(rng: np.random.Generator, n: int, others: int, bias: float, fit: float):
    """Answers with mean .4; a simulation off by `bias` that follows them as far as `fit` says."""
    truth = rng.random(n + others) < 0.4
    luck = rng.random(n + others) < 0.4
    told = np.where(rng.random(n + others) < fit, truth, luck) + bias
    return truth[:n].astype(float), told[:n], told[n:]


@pytest.mark.parametrize("fit", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_the_interval_covers_however_wrong_the_simulation_is(bias: float, fit: float) -> None:
    rng = np.random.default_rng(5)
    inside, widths = [], []
    for _ in range(800):
        found = rectified_mean(*population(rng, 60, 1000, bias, fit))
        inside.append(found.corrected.low <= 0.4 <= found.corrected.high)
        widths.append(
            (found.corrected.high - found.corrected.low) / (found.people.high - found.people.low)
        )
    assert 0.925 <= np.mean(inside) <= 0.975
    assert np.mean(widths) <= 1.01
    if fit == 0.95:
        assert np.mean(widths) < 0.5


def test_people_who_all_say_the_same_do_not_tell_how_sure_that_is() -> None:
    found = rectified_mean([0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 1, 1, 0])
    assert (found.corrected.value, found.people.value) == (0, 0)
    assert not found.corrected.has_interval
    assert not found.people.has_interval


def test_known_answer_by_hand() -> None:
    """n = 4 and N = 4: cov = 1/3, var = 1/3, so w = 1 / (1 + 1) = 1/2."""
    found = rectified_mean([0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 1, 0])
    assert found.weight == pytest.approx(0.5)
    assert found.corrected.value == pytest.approx(0.5 + 0.5 * (0.75 - 0.5))
    # var(y − f/2)/4 = (1/12)/4, plus (1/4) · (1/4)/4.
    half = found.corrected.high - found.corrected.value
    assert half == pytest.approx(3.182446 * (1 / 48 + 1 / 64) ** 0.5, rel=1e-6)
    assert found.worth == pytest.approx(4 * (1 / 12) / (1 / 48 + 1 / 64))


@given(arrays(float, 8, elements=VALUES), arrays(float, 8, elements=VALUES))
def test_a_simulation_never_makes_the_estimate_worse_than_people_alone(people, told) -> None:
    found = rectified_mean(people, told, [])
    assert found.weight == 0
    assert found.corrected.value == pytest.approx(found.people.value)
    assert found.worth == pytest.approx(8)


def test_a_simulation_that_says_the_same_of_everybody_is_worth_nothing() -> None:
    found = rectified_mean([0, 1, 1, 0, 1], [1] * 5, [1] * 100)
    assert (found.weight, found.worth) == (0, 5)


def test_too_few_or_unpaired_answers_are_refused() -> None:
    for people, told in (([1], [1]), ([1, 0], [1])):
        with pytest.raises(ValueError, match="answers of people"):
            rectified_mean(people, told, [1, 0, 1])
