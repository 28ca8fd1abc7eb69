"""Prediction-powered means cover the truth for any simulation, or are refused."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import pytest

from folkmoot.measures.inference.rectified import (
    people_needed,
    rectified_difference,
    rectified_mean,
)
from tests.sweeps import sample_daily

DRAW_COUNT = 400


def draw_population(
    rng: np.random.Generator, n: int, others: int, rate: float, bias: float, fit: float
):
    """Draw answers with a rate, and a biased simulation that equals them at rate `fit`."""
    truth = rng.random(n + others) < rate
    random_answers = rng.random(n + others) < rate
    simulated = np.where(rng.random(n + others) < fit, truth, random_answers) + bias
    return truth[:n].astype(float), simulated[:n], simulated[n:]


def measure_coverage(draw, truth: float) -> float:
    """Return the share of draws in which the corrected interval contains the truth.

    Every draw must have an interval.
    """
    estimates = [draw() for _ in range(DRAW_COUNT)]
    assert all(estimate.corrected.has_interval for estimate in estimates)
    return float(
        np.mean(
            [estimate.corrected.low <= truth <= estimate.corrected.high for estimate in estimates]
        )
    )


@pytest.mark.parametrize("fit", sample_daily([0.0, 0.6, 0.95], daily=[0.0, 0.95], part="alarms"))
@pytest.mark.parametrize(
    ("n", "rate"),
    sample_daily(
        [(60, 0.4), (30, 0.1), (10, 0.4), (40, 0.3), (200, 0.1)],
        daily=[(30, 0.1), (10, 0.4), (200, 0.1)],
        part="alarms",
    ),
)
def test_the_interval_covers_the_truth_for_biased_simulations(
    n: int, rate: float, fit: float
) -> None:
    rng = np.random.default_rng(5)
    share = measure_coverage(
        lambda: rectified_mean(*draw_population(rng, n, 1000, rate, 0.5, fit), share=True), rate
    )
    assert share >= 0.93


def test_a_good_simulation_narrows_the_interval() -> None:
    rng = np.random.default_rng(1)
    estimates = [
        rectified_mean(*draw_population(rng, 80, 1000, 0.4, 0.3, 0.95), share=True)
        for _ in range(50)
    ]
    widths = [
        (estimate.corrected.high - estimate.corrected.low)
        / (estimate.people.high - estimate.people.low)
        for estimate in estimates
    ]
    assert np.mean(widths) < 0.5 and np.mean([estimate.worth for estimate in estimates]) > 300


def draw_groups(rng: np.random.Generator, groups: int, size: int, icc: float):
    """Draw answers of humans in groups with an ICC, and answers of their simulation."""
    shared = np.repeat(rng.normal(0, math.sqrt(icc), groups), size)
    y = shared + rng.normal(0, math.sqrt(1 - icc), groups * size)
    return y, 0.5 * y + rng.normal(0, 1, len(y)) + 2, np.repeat(range(groups), size)


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize(("groups", "size"), [(12, 8), (30, 8)])
def test_humans_in_groups_are_clustered(groups: int, size: int) -> None:
    rng = np.random.default_rng(3)

    def rectify(*, clustered: bool):
        y, f, units = draw_groups(rng, groups, size, 0.3)
        other_simulated = rng.normal(2, math.sqrt(1.25), 2_000)
        return rectified_mean(y, f, other_simulated, clusters=units.tolist() if clustered else None)

    assert measure_coverage(lambda: rectify(clustered=True), 0.0) >= 0.93
    assert (
        measure_coverage(lambda: rectify(clustered=False), 0.0) < 0.85
    )  # without clusters the coverage is too low


def test_small_samples_are_not_corrected_and_the_reason_is_given() -> None:
    rng = np.random.default_rng(0)
    few_humans = rectified_mean([0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 1, 1, 0], share=True)
    assert few_humans.refused == "5 people; a correction needs 20" and few_humans.weight == 0
    assert (
        few_humans.corrected == few_humans.people and few_humans.people.has_interval
    )  # Wilson, of 0 of 5
    y, f, units = draw_groups(rng, 6, 8, 0.1)
    assert rectified_mean(y, f, f, clusters=units.tolist()).refused.startswith("6 groups")
    rare_answer = rectified_mean([1] * 4 + [0] * 56, [1] * 4 + [0] * 56, [0, 1] * 50, share=True)
    assert rare_answer.refused.startswith("4 people gave the rarer answer")


def test_a_corrected_mean_equals_a_hand_calculation() -> None:
    """n = N = 40: cov = var(predicted) = 10/39, so w = 1 / (1 + 1) = 1/2."""
    half = [0.0, 1.0] * 20
    estimate = rectified_mean(half, half, [1.0] * 30 + [0.0] * 10)
    assert estimate.weight == pytest.approx(0.5)
    assert estimate.corrected.value == pytest.approx(0.5 + 0.5 * (0.75 - 0.5))
    human_part = 2.0226909 * math.sqrt((10 / 39) / 4 / 40)
    simulated_part = 1.959963984540054 * 0.5 * math.sqrt((7.5 / 39) / 40)
    half_width = estimate.corrected.high - estimate.corrected.value
    assert half_width == pytest.approx(math.hypot(human_part, simulated_part), rel=1e-6)


def test_a_constant_simulation_has_no_weight() -> None:
    estimate = rectified_mean([0.0, 1.0] * 15, [1] * 30, [1] * 100)
    assert (estimate.weight, estimate.worth) == (0, 30) and math.isnan(estimate.fit)


@pytest.mark.nightly(part="alarms")
def test_a_corrected_effect_covers_the_true_one() -> None:
    rng = np.random.default_rng(8)
    is_covered = []
    for _ in range(DRAW_COUNT):
        conditions = [
            rectified_mean(*draw_population(rng, 80, 800, rate, 0.2, 0.7), share=True)
            for rate in (0.5, 0.3)
        ]
        effect = rectified_difference(*conditions)
        is_covered.append(effect.low <= 0.2 <= effect.high)
    assert np.mean(is_covered) >= 0.93


@pytest.mark.parametrize("fit", [0.0, 0.8])
def test_the_planned_number_of_humans_gives_the_planned_width(fit: float) -> None:
    rng = np.random.default_rng(2)
    n = people_needed(0.4, 1.0, fit)
    widths = []
    for _ in range(100):
        y = rng.normal(size=n)
        f = fit * y + math.sqrt(1 - fit**2) * rng.normal(size=n)
        estimate = rectified_mean(y, f, rng.normal(size=20_000)).corrected
        widths.append(estimate.high - estimate.low)
    assert np.mean(widths) == pytest.approx(0.4, rel=0.1)
    assert people_needed(9.0, 1.0, 0.0) == 20
    with pytest.raises(ValueError, match="width"):
        people_needed(0.0, 1.0, 0.5)


def test_the_planned_number_of_humans_allows_for_few_simulated_participants() -> None:
    rng, fit, participant_count = np.random.default_rng(3), 0.8, 120
    n = people_needed(0.4, 1.0, fit, simulated=participant_count)
    assert n is not None and n > 1.5 * cast(int, people_needed(0.4, 1.0, fit))
    widths = []
    for _ in range(200):
        y = rng.normal(size=n)
        f = fit * y + math.sqrt(1 - fit**2) * rng.normal(size=n)
        estimate = rectified_mean(y, f, rng.normal(size=participant_count - n)).corrected
        widths.append(estimate.high - estimate.low)
    assert np.mean(widths) == pytest.approx(0.4, rel=0.05)
    # Humans alone need 97 for this width, so 90 with simulated answers of the same people do not
    # suffice at any fit.
    assert people_needed(0.4, 1.0, 1.0, simulated=90) is None


def test_unpaired_answers_are_an_error() -> None:
    for humans, simulated in (([1], [1]), ([1, 0], [1])):
        with pytest.raises(ValueError, match="answers of people"):
            rectified_mean(humans, simulated, [1, 0, 1])
