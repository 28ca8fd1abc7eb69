"""Paired votes: the published vision table, degenerate tables, moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from folkmoot.measures.inference.paired_votes import (
    bowker,
    equal_totals_p,
    mcnemar,
    moves_towards,
    paired_shares,
    stuart_maxwell,
    transition_table,
)

VISION = np.array(
    [[1520, 266, 124, 66], [234, 1512, 432, 78], [117, 362, 1772, 205], [36, 82, 179, 492]]
)


def test_tests_of_the_vision_table_equal_published_values():
    b, s = bowker(VISION), stuart_maxwell(VISION)
    assert (b.statistic, b.df, b.p) == pytest.approx((19.10655, 6, 0.00398742), rel=1e-5)
    assert (s.statistic, s.df, s.p) == pytest.approx((11.95657, 3, 0.00753343), rel=1e-5)


def test_mcnemar_known_answers():
    assert mcnemar(121, 59).statistic == pytest.approx(21.355556, rel=1e-6)
    # Exact: 2 * (1 + 6) / 64 for 1 of 6.
    assert mcnemar(1, 5).p == pytest.approx(2 * 7 / 64)
    assert mcnemar(0, 0).p == 1.0


def test_with_two_options_bowker_and_stuart_maxwell_equal_mcnemar():
    table = np.array([[101, 121], [59, 33]])
    assert bowker(table).statistic == pytest.approx(mcnemar(121, 59).statistic)
    assert stuart_maxwell(table).statistic == pytest.approx(21.355556, rel=1e-6)


def test_an_option_without_moves_changes_no_test():
    table = np.zeros((6, 6), dtype=int)
    table[:4, :4] = VISION
    table[4, 4] = 50
    assert bowker(table).statistic == pytest.approx(bowker(VISION).statistic)
    assert bowker(table).df == 6
    assert stuart_maxwell(table).statistic == pytest.approx(stuart_maxwell(VISION).statistic)
    assert stuart_maxwell(table).df == 3


def test_separate_sets_of_options_are_tested_separately():
    table = np.zeros((4, 4), dtype=int)
    table[0, 1], table[1, 0], table[2, 3], table[3, 2] = 12, 4, 9, 1
    result = stuart_maxwell(table)
    assert result.df == 2
    assert result.statistic == pytest.approx(64 / 16 + 64 / 10)


def test_few_moves_are_tested_exactly():
    """Three moves from the first option to each of two others: 4 of 64 orders are as one-sided."""
    table = np.array([[9, 3, 3], [0, 5, 0], [0, 0, 4]])
    assert equal_totals_p(table) == pytest.approx(4 / 64)
    assert stuart_maxwell(table).p < 0.05
    # Between two options, the test is McNemar's.
    table = np.array([[2, 5, 0], [0, 0, 0], [0, 0, 8]])
    assert equal_totals_p(table) == pytest.approx(2 / 32)
    assert equal_totals_p(np.diag([5, 6, 7])) == 1.0


def test_many_moves_are_tested_by_stuart_and_maxwell():
    assert equal_totals_p(VISION) == stuart_maxwell(VISION).p


def test_votes_without_changes_have_p_one():
    table = np.diag([5, 6, 7])
    assert bowker(table).p == stuart_maxwell(table).p == 1.0


def test_the_transition_table_counts_and_refuses_unknown_options():
    table = transition_table(["a", "a", "b"], ["a", "b", "b"], ["a", "b", "c"])
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match="not an option"):
        transition_table(["a"], ["d"], ["a", "b"])
    with pytest.raises(ValueError, match="first votes"):
        transition_table(["a"], [], ["a"])


def test_moves_towards_a_target_are_counted():
    moves = moves_towards("aaaab", "abcab", "bbbba", options=3)
    assert (moves.to_target, moves.elsewhere, moves.stayed) == (1, 1, 3)
    assert moves.moved_count == 2
    assert moves.by_chance == 1.0


COUNTS = st.integers(0, 60)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_paired_difference_lies_within_its_interval_and_mirrors(both, first, second, neither):
    if both + first + second + neither == 0:
        return
    estimate, mirrored = (
        paired_shares(both, first, second, neither),
        paired_shares(both, second, first, neither),
    )
    assert -1 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert (mirrored.low, mirrored.high) == pytest.approx((-estimate.high, -estimate.low))


def test_a_large_paired_difference_is_near_the_wald_interval():
    n, first_only, second_only = 16_000, 1_500, 860
    estimate = paired_shares(7_940, first_only, second_only, n - 7_940 - first_only - second_only)
    error = math.sqrt(first_only + second_only - (second_only - first_only) ** 2 / n) / n
    wald = (-0.04, -0.04 - 1.96 * error, -0.04 + 1.96 * error)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(wald, abs=2e-4)
    assert estimate.p == mcnemar(first_only, second_only).p


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_paired_interval_excludes_zero_exactly_if_mcnemar_is_significant(
    both, first, second, neither
):
    if both + first + second + neither < 5:
        return
    estimate = paired_shares(both, first, second, neither)
    assert estimate.p >= mcnemar(first, second).p
    for level in (0.95, 0.99, 0.9995):
        estimate_at_level = paired_shares(both, first, second, neither, level)
        if abs(estimate.p - (1 - level)) > 1e-7:
            assert estimate_at_level.excludes_zero == (estimate.p < 1 - level)
    if abs(estimate.p - 0.05) > 1e-9:
        assert estimate.excludes_zero == (estimate.p < 0.05)


def test_the_score_statistic_at_the_bounds_equals_the_quantile():
    """Tango's statistic at each bound. The nuisance share maximises the likelihood."""
    both, first, second, neither = 40, 24, 4, 32
    estimate = paired_shares(both, first, second, neither)
    n = both + first + second + neither
    for bound in (estimate.low, estimate.high):

        def negative_log_likelihood(rarer, bound=bound):  # rarer: P(first alone)
            commoner = rarer + bound
            unchanged = 1 - rarer - commoner
            return -(
                first * math.log(rarer)
                + second * math.log(commoner)
                + (both + neither) * math.log(unchanged)
            )

        minimum = max(1e-9, 1e-9 - bound)
        optimum = minimize_scalar(
            negative_log_likelihood, bounds=(minimum, (1 - bound) / 2 - 1e-9), method="bounded"
        )
        variance = (2 * optimum.x + bound - bound**2) / n
        assert abs((estimate.value - bound) / math.sqrt(variance)) == pytest.approx(
            1.959964, rel=1e-4
        )


def test_paired_intervals_have_their_coverage():
    rng = np.random.default_rng(7)
    shares = np.array([0.25, 0.05, 0.12, 0.58])
    draws = rng.multinomial(60, shares, size=1500)
    is_covered = [
        estimate.low <= 0.07 <= estimate.high
        for estimate in (paired_shares(*map(int, draw)) for draw in draws)
    ]
    assert 0.93 <= np.mean(is_covered) <= 0.985
