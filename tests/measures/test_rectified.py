"""Prediction-powered means: they cover whatever the simulation says, or are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from folkmoot.measures.inference.rectified import (
    people_needed,
    rectified_difference,
    rectified_mean,
)
from tests.sweeps import sample_daily

DRAW_COUNT = 400


def population(rng: np.random.Generator, n: int, others: int, rate: float, bias: float, fit: float):
    """Answers with this rate; a simulation off by `bias` that follows them as far as `fit` says."""
    truth = rng.random(n + others) < rate
    luck = rng.random(n + others) < rate
    told = np.where(rng.random(n + others) < fit, truth, luck) + bias
    return truth[:n].astype(float), told[:n], told[n:]


def coverage_of(draw, truth: float) -> float:
    """Return the share of draws in which the corrected interval contains the truth.

    Every draw must have an interval.
    """
    found = [draw() for _ in range(DRAW_COUNT)]
    assert all(e.corrected.has_interval for e in found)
    return float(np.mean([e.corrected.low <= truth <= e.corrected.high for e in found]))


@pytest.mark.parametrize("fit", sample_daily([0.0, 0.6, 0.95], daily=[0.0, 0.95], part="alarms"))
@pytest.mark.parametrize(
    ("n", "rate"),
    sample_daily(
        [(60, 0.4), (30, 0.1), (10, 0.4), (40, 0.3), (200, 0.1)],
        daily=[(30, 0.1), (10, 0.4), (200, 0.1)],
        part="alarms",
    ),
)
def test_the_interval_covers_however_wrong_the_simulation_is(
    n: int, rate: float, fit: float
) -> None:
    rng = np.random.default_rng(5)
    share = coverage_of(
        lambda: rectified_mean(*population(rng, n, 1000, rate, 0.5, fit), share=True), rate
    )
    assert share >= 0.93


def test_a_good_simulation_narrows_the_interval() -> None:
    rng = np.random.default_rng(1)
    found = [
        rectified_mean(*population(rng, 80, 1000, 0.4, 0.3, 0.95), share=True) for _ in range(50)
    ]
    widths = [(e.corrected.high - e.corrected.low) / (e.people.high - e.people.low) for e in found]
    assert np.mean(widths) < 0.5 and np.mean([e.worth for e in found]) > 300


def in_groups(rng: np.random.Generator, groups: int, size: int, icc: float):
    """Answers of people in groups that are alike as far as `icc` says, and of their simulation."""
    shared = np.repeat(rng.normal(0, math.sqrt(icc), groups), size)
    y = shared + rng.normal(0, math.sqrt(1 - icc), groups * size)
    return y, 0.5 * y + rng.normal(0, 1, len(y)) + 2, np.repeat(range(groups), size)


@pytest.mark.parametrize(
    ("groups", "size"), sample_daily([(12, 8), (30, 8)], daily=1, part="alarms")
)
def test_people_in_groups_are_as_many_as_their_groups(groups: int, size: int) -> None:
    rng = np.random.default_rng(3)

    def draw(*, told: bool):
        y, f, units = in_groups(rng, groups, size, 0.3)
        many = rng.normal(2, math.sqrt(1.25), 2_000)
        return rectified_mean(y, f, many, clusters=units.tolist() if told else None)

    assert coverage_of(lambda: draw(told=True), 0.0) >= 0.93
    assert coverage_of(lambda: draw(told=False), 0.0) < 0.85  # what the clusters are for


def test_below_the_limits_nothing_is_corrected_and_it_says_why() -> None:
    rng = np.random.default_rng(0)
    few = rectified_mean([0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 1, 1, 0], share=True)
    assert few.refused == "5 people; a correction needs 20" and few.weight == 0
    assert few.corrected == few.people and few.people.has_interval  # Wilson, of 0 of 5
    y, f, units = in_groups(rng, 6, 8, 0.1)
    assert rectified_mean(y, f, f, clusters=units.tolist()).refused.startswith("6 groups")
    rare = rectified_mean([1] * 4 + [0] * 56, [1] * 4 + [0] * 56, [0, 1] * 50, share=True)
    assert rare.refused.startswith("4 people gave the rarer answer")


def test_known_answer_by_hand() -> None:
    """n = N = 40: cov = var(predicted) = 10/39, so w = 1 / (1 + 1) = 1/2."""
    half = [0.0, 1.0] * 20
    found = rectified_mean(half, half, [1.0] * 30 + [0.0] * 10)
    assert found.weight == pytest.approx(0.5)
    assert found.corrected.value == pytest.approx(0.5 + 0.5 * (0.75 - 0.5))
    own = 2.0226909 * math.sqrt((10 / 39) / 4 / 40)
    many = 1.96 * 0.5 * math.sqrt((7.5 / 39) / 40)
    reach = found.corrected.high - found.corrected.value
    assert reach == pytest.approx(math.hypot(own, many), rel=1e-6)


def test_a_simulation_that_says_the_same_of_everybody_is_worth_nothing() -> None:
    found = rectified_mean([0.0, 1.0] * 15, [1] * 30, [1] * 100)
    assert (found.weight, found.worth) == (0, 30) and math.isnan(found.fit)


def test_a_corrected_effect_covers_the_true_one() -> None:
    rng = np.random.default_rng(8)
    inside = []
    for _ in range(DRAW_COUNT):
        arms = [
            rectified_mean(*population(rng, 80, 800, rate, 0.2, 0.7), share=True)
            for rate in (0.5, 0.3)
        ]
        effect = rectified_difference(*arms)
        inside.append(effect.low <= 0.2 <= effect.high)
    assert np.mean(inside) >= 0.93


@pytest.mark.parametrize("fit", [0.0, 0.8])
def test_as_many_people_as_are_planned_give_the_planned_width(fit: float) -> None:
    rng = np.random.default_rng(2)
    n = people_needed(0.4, 1.0, fit)
    widths = []
    for _ in range(100):
        y = rng.normal(size=n)
        f = fit * y + math.sqrt(1 - fit**2) * rng.normal(size=n)
        e = rectified_mean(y, f, rng.normal(size=20_000)).corrected
        widths.append(e.high - e.low)
    assert np.mean(widths) == pytest.approx(0.4, rel=0.1)
    assert people_needed(9.0, 1.0, 0.0) == 20
    with pytest.raises(ValueError, match="width"):
        people_needed(0.0, 1.0, 0.5)


def test_unpaired_answers_are_an_error() -> None:
    for people, told in (([1], [1]), ([1, 0], [1])):
        with pytest.raises(ValueError, match="answers of people"):
            rectified_mean(people, told, [1, 0, 1])
