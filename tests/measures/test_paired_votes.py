"""Paired votes: the classic vision table, degenerate tables, moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from folkmoot.measures.inference.paired_votes import (
    bowker,
    mcnemar,
    moves_towards,
    paired_shares,
    stuart_maxwell,
    transition_table,
)

VISION = np.array(
    [[1520, 266, 124, 66], [234, 1512, 432, 78], [117, 362, 1772, 205], [36, 82, 179, 492]]
)


def test_vision_table():
    b, s = bowker(VISION), stuart_maxwell(VISION)
    assert (b.statistic, b.df, b.p) == pytest.approx((19.10655, 6, 0.00398742), rel=1e-5)
    assert (s.statistic, s.df, s.p) == pytest.approx((11.95657, 3, 0.00753343), rel=1e-5)


def test_mcnemar_known_answers():
    assert mcnemar(121, 59).statistic == pytest.approx(21.355556, rel=1e-6)
    # Exact: 2 * (1 + 6) / 64 for 1 of 6.
    assert mcnemar(1, 5).p == pytest.approx(2 * 7 / 64)
    assert mcnemar(0, 0).p == 1.0


def test_two_options_bowker_is_mcnemar_and_stuart_maxwell():
    table = np.array([[101, 121], [59, 33]])
    assert bowker(table).statistic == pytest.approx(mcnemar(121, 59).statistic)
    assert stuart_maxwell(table).statistic == pytest.approx(21.355556, rel=1e-6)


def test_an_option_that_nobody_moved_to_changes_nothing():
    wider = np.zeros((6, 6), dtype=int)
    wider[:4, :4] = VISION
    wider[4, 4] = 50
    assert bowker(wider).statistic == pytest.approx(bowker(VISION).statistic)
    assert bowker(wider).df == 6
    assert stuart_maxwell(wider).statistic == pytest.approx(stuart_maxwell(VISION).statistic)
    assert stuart_maxwell(wider).df == 3


def test_islands_of_options_are_two_separate_tests():
    table = np.zeros((4, 4), dtype=int)
    table[0, 1], table[1, 0], table[2, 3], table[3, 2] = 12, 4, 9, 1
    found = stuart_maxwell(table)
    assert found.df == 2
    assert found.statistic == pytest.approx(64 / 16 + 64 / 10)


def test_nobody_changed():
    still = np.diag([5, 6, 7])
    assert bowker(still).p == stuart_maxwell(still).p == 1.0


def test_transition_table_counts_and_refuses_strangers():
    table = transition_table(["a", "a", "b"], ["a", "b", "b"], ["a", "b", "c"])
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match="not an option"):
        transition_table(["a"], ["d"], ["a", "b"])
    with pytest.raises(ValueError, match="first votes"):
        transition_table(["a"], [], ["a"])


def test_moves_towards():
    found = moves_towards("aaaab", "abcab", "bbbba", options=3)
    assert (found.to_target, found.elsewhere, found.stayed) == (1, 1, 3)
    assert found.moved_count == 2
    assert found.by_chance == 1.0


COUNTS = st.integers(0, 60)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_paired_difference_lies_within_its_interval_and_mirrors(both, first, second, neither):
    if both + first + second + neither == 0:
        return
    e, mirrored = (
        paired_shares(both, first, second, neither),
        paired_shares(both, second, first, neither),
    )
    assert -1 <= e.low <= e.value <= e.high <= 1
    assert (mirrored.low, mirrored.high) == pytest.approx((-e.high, -e.low))


def test_a_paired_difference_of_many_people_is_near_the_textbook_interval():
    n, back, there = 16_000, 1_500, 860
    e = paired_shares(7_940, back, there, n - 7_940 - back - there)
    error = math.sqrt(back + there - (there - back) ** 2 / n) / n
    wald = (-0.04, -0.04 - 1.96 * error, -0.04 + 1.96 * error)
    assert (e.value, e.low, e.high) == pytest.approx(wald, abs=2e-4)
    assert e.p == mcnemar(back, there).p


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_paired_interval_excludes_zero_exactly_where_mcnemar_does(both, first, second, neither):
    if both + first + second + neither < 5:
        return
    e = paired_shares(both, first, second, neither)
    assert e.p >= mcnemar(first, second).p
    for level in (0.95, 0.99, 0.9995):
        strict = paired_shares(both, first, second, neither, level)
        if abs(e.p - (1 - level)) > 1e-7:
            assert strict.excludes_zero == (e.p < 1 - level)
    if abs(e.p - 0.05) > 1e-9:
        assert e.excludes_zero == (e.p < 0.05)


def test_the_bounds_of_a_paired_interval_are_where_the_score_test_turns():
    """Tango's statistic at each bound, the nuisance share found by maximising the likelihood."""
    both, first, second, neither = 40, 24, 4, 32
    e = paired_shares(both, first, second, neither)
    n = both + first + second + neither
    for bound in (e.low, e.high):

        def unlikely(rarer, bound=bound):  # rarer: P(first alone)
            other = rarer + bound
            rest = 1 - rarer - other
            return -(
                first * math.log(rarer)
                + second * math.log(other)
                + (both + neither) * math.log(rest)
            )

        least = max(1e-9, 1e-9 - bound)
        found = minimize_scalar(unlikely, bounds=(least, (1 - bound) / 2 - 1e-9), method="bounded")
        variance = (2 * found.x + bound - bound**2) / n
        assert abs((e.value - bound) / math.sqrt(variance)) == pytest.approx(1.959964, rel=1e-4)


def test_paired_intervals_cover_as_they_say():
    rng = np.random.default_rng(7)
    shares = np.array([0.25, 0.05, 0.12, 0.58])
    draws = rng.multinomial(60, shares, size=1500)
    inside = [e.low <= 0.07 <= e.high for e in (paired_shares(*map(int, d)) for d in draws)]
    assert 0.93 <= np.mean(inside) <= 0.985
