"""The mean of each subject over repeated rounds, some of which are missing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from folkmoot.measures.inference.differences import Side, estimate_difference
from folkmoot.measures.inference.rounds import average_over_rounds

FloatArray = NDArray[np.float64]


def average(table: FloatArray, groups: list[int] | None = None) -> FloatArray:
    """Average a table of participants (rows) and rounds (columns). NaN marks a missing round."""
    people, rounds = np.nonzero(~np.isnan(table))
    of_rounds = np.array(groups or [0] * table.shape[1])[rounds]
    _, people = np.unique(people, return_inverse=True)
    return average_over_rounds(table[~np.isnan(table)], rounds, people, people, of_rounds)


def draw_dropout(
    rng: np.random.Generator, levels: FloatArray, people: int, *, is_selective: bool = False
) -> FloatArray:
    """Draw values of which everything after a random round is missing.

    - `is_selective`: participants with low values leave earlier.
    """
    own = rng.normal(0, 1, people)
    table = own[:, None] + levels + rng.normal(0, 1, (people, len(levels)))
    last = rng.integers(1, len(levels) + 1, people)
    if is_selective:
        last = np.clip(np.round(len(levels) / 2 + 2 * own), 1, len(levels)).astype(int)
    table[np.arange(len(levels)) >= last[:, None]] = np.nan
    table[0] = own[0] + levels  # someone answers every round
    return table


def test_a_missing_round_does_not_change_a_mean_without_noise() -> None:
    own, levels = np.array([0.0, 3.0, -2.0, 7.0]), np.array([1.0, 10.0, 100.0])
    table = own[:, None] + levels
    table[0, 2] = table[1, 0] = table[3, 1] = np.nan
    assert average(table) == pytest.approx(own + levels.mean(), abs=1e-4)


def test_the_mean_is_that_of_least_squares_with_an_effect_of_each_participant_and_round() -> None:
    table = draw_dropout(np.random.default_rng(3), np.linspace(0, 6, 5), 12)
    people, rounds = np.nonzero(~np.isnan(table))
    design = np.hstack([np.eye(12)[people], np.eye(5)[rounds]])
    fitted, *_ = np.linalg.lstsq(design, table[people, rounds], rcond=None)
    expected = fitted[:12].mean() + fitted[12:].mean()
    assert average(table).mean() == pytest.approx(expected, abs=1e-4)


def test_rounds_of_other_roles_are_not_missing() -> None:
    nan = np.nan
    table = np.array([[1.0, 2.0, nan], [3.0, nan, nan], [nan, nan, 50.0], [nan, nan, 52.0]])
    means = average(table, groups=[0, 0, 1])
    # The second participant lacks the second round, which is higher by 1.
    assert means.mean() == pytest.approx((1.5 + 3.5 + 50 + 52) / 4, abs=1e-4)


def test_rounds_that_no_participant_links_are_compared_by_their_means() -> None:
    nan = np.nan
    table = np.array([[1.0, nan], [3.0, nan], [nan, 10.0], [5.0, nan]])
    assert average(table).mean() == pytest.approx((3 + 10) / 2, abs=1e-3)


def test_several_subjects_of_a_participant_are_linked() -> None:
    """The second participant lacks one of two experiments, which are subjects by themselves."""
    values = np.array([0.0, 50.0, 3.0])
    experiments, people = np.array([0, 1, 0]), np.array([0, 0, 1])
    means = average_over_rounds(values, experiments, np.arange(3), people, np.zeros(3, int))
    assert means.mean() == pytest.approx((25 + 25 + 28) / 3, abs=1e-3)


@pytest.mark.parametrize("is_selective", [False, True])
def test_intervals_hold_the_true_difference_if_participants_leave(is_selective: bool) -> None:
    """The levels of rounds differ by up to 6. In one condition the effect differs by round."""
    rng = np.random.default_rng(11)
    levels = np.linspace(0, 6, 8)
    other_levels = levels + np.linspace(-2, 2, 8)
    held, draws = 0, 200
    for _ in range(draws):
        first, second = (
            average(draw_dropout(rng, of_arm, 30, is_selective=is_selective))
            for of_arm in (levels, other_levels)
        )
        found = estimate_difference(Side.from_values(first), Side.from_values(second), "mean")
        held += found.low <= 0 <= found.high
    assert 0.925 <= held / draws <= 0.98
