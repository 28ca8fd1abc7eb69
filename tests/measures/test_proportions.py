"""Proportions: published intervals and properties of intervals."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency
from statsmodels.stats.multitest import multipletests

from folkmoot.measures.inference.proportions import (
    between,
    holm,
    homogeneity_p,
    newcombe,
    wilson,
)


def test_wilson_equals_a_known_interval():
    interval = wilson(10, 100)
    assert (interval.low, interval.high) == pytest.approx((0.0552291, 0.1743657), abs=1e-7)
    assert interval.value == 0.1


@settings(deadline=None)  # the first call imports statsmodels
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_intervals_stay_in_bounds_and_are_symmetric(pair):
    count, n = pair
    interval, mirrored = wilson(count, n), wilson(n - count, n)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.high > interval.low
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-12)


def test_newcombe_equals_published_examples():
    # Newcombe (1998), table II, method 10, cases (a) and (c).
    a = newcombe(56, 70, 48, 80)
    assert (a.low, a.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    c = newcombe(6, 7, 2, 7)
    assert (c.low, c.high) == pytest.approx((0.0582, 0.8062), abs=5e-5)


def test_newcombe_changes_sign_with_the_groups():
    forward, backward = newcombe(30, 100, 10, 90), newcombe(10, 90, 30, 100)
    assert forward.value == pytest.approx(-backward.value)
    assert forward.low == pytest.approx(-backward.high)
    assert forward.p == pytest.approx(backward.p)


@settings(deadline=None)
@given(*(st.integers(0, 40) for _ in range(4)))
def test_newcombe_excludes_zero_exactly_if_p_is_below_the_level(a, b, c, d):
    if a + b == 0 or c + d == 0:
        return
    e = newcombe(a, a + b, c, c + d)
    # The bounds themselves: `excludes_zero` is False for fewer than five units, which are shown
    # without an interval.
    if abs(e.p - 0.05) > 1e-6:
        assert (e.low > 0 or e.high < 0) == (e.p < 0.05)


def test_p_of_a_large_sample_is_near_that_of_chi_square():
    # 30 of 100 against 10 of 100 by hand: χ² = 12.5.
    assert newcombe(300, 1000, 260, 1000).p == pytest.approx(
        math.erfc(math.sqrt(1000 * 0.04**2 / (2 * 0.28 * 0.72) / 2)), rel=0.02
    )
    assert newcombe(30, 100, 10, 100).p == pytest.approx(math.erfc(math.sqrt(12.5 / 2)), rel=0.25)
    assert newcombe(0, 50, 0, 50).p == newcombe(50, 50, 50, 50).p == 1.0
    assert newcombe(9000, 10000, 1000, 10000).p == 0.0


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_the_size_of_the_test_is_near_the_level(share):
    """The size of the test, summed over all tables of 40 and 40."""
    from scipy.stats import binom

    chance = binom.pmf(range(41), 40, share)
    size = sum(
        chance[a] * chance[b]
        for a in range(41)
        for b in range(41)
        if chance[a] * chance[b] > 1e-6 and newcombe(a, 40, b, 40).excludes_zero
    )
    assert 0.005 < size < 0.06


def test_an_empty_or_impossible_share_is_refused():
    with pytest.raises(ValueError, match="zero units"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="not a share"):
        wilson(3, 2)


def test_holm_equals_a_hand_calculation():
    # Sorted .01 .02 .04 .05 times 4 3 2 1, made monotone.
    assert holm([0.04, 0.01, math.nan, 0.05, 0.02])[:2] == pytest.approx([0.08, 0.04])
    assert holm([0.04, 0.01, 0.05, 0.02]) == pytest.approx([0.08, 0.04, 0.08, 0.06])
    assert math.isnan(holm([math.nan])[0])
    assert holm([]) == []


@pytest.mark.nightly(part="sweeps")
def test_holm_equals_statsmodels():
    p_values = np.random.default_rng(1).random(60) ** 3
    p_values[7:12] = p_values[7]  # ties
    for count in (1, 2, 11, 60):
        theirs = multipletests(p_values[:count], method="holm")[1]
        assert holm(p_values[:count].tolist()) == theirs.tolist()


def test_between_two_shares_equals_newcombe():
    interval, direct = (
        between(partial(wilson, 56, 70), partial(wilson, 48, 80)),
        newcombe(56, 70, 48, 80),
    )
    assert (interval.low, interval.high, interval.p) == pytest.approx(
        (direct.low, direct.high, direct.p)
    )


def test_between_two_differences_equals_a_hand_calculation():
    first, second = newcombe(30, 100, 10, 100), newcombe(20, 100, 10, 100)
    interval = between(partial(newcombe, 30, 100, 10, 100), partial(newcombe, 20, 100, 10, 100))
    assert interval.value == pytest.approx(0.1)
    lower_distance = math.hypot(first.value - first.low, second.high - second.value)
    assert interval.low == pytest.approx(0.1 - lower_distance)


def test_few_votes_are_compared_exactly():
    """Two votes for one option and six for the other: 1 of the 28 ways to place the two."""
    assert homogeneity_p([2, 0], [0, 6]) == pytest.approx(1 / 28)
    # By hand: all three for one of three options, in 3 of the 84 ways to place them. The drawn
    # tables give the same p in each call.
    p = homogeneity_p([3, 0, 0], [0, 3, 3])
    assert p == pytest.approx(3 / 84, abs=0.004) and p == homogeneity_p([3, 0, 0], [0, 3, 3])
    # A table with more cells than votes: the vote for its own option is certain.
    assert homogeneity_p([1, 0, 0], [0, 1, 1]) == 1.0


def test_many_votes_are_compared_by_pearsons_test():
    table = [[30, 40, 50], [50, 40, 30]]
    assert homogeneity_p(*table) == pytest.approx(float(chi2_contingency(table).pvalue))
    assert homogeneity_p([4, 0], [5, 0]) == 1.0
