"""Proportions: published intervals, and properties that intervals must have."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.measures.proportions import (
    all_pairs,
    between,
    difference_p,
    holm,
    newcombe,
    wilson,
)


def test_wilson_known_answer():
    found = wilson(10, 100)
    assert (found.low, found.high) == pytest.approx((0.0552291, 0.1743657), abs=1e-7)
    assert found.value == 0.1


@settings(deadline=None)  # the first call imports statsmodels
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_stays_in_bounds_and_mirrors(pair):
    count, n = pair
    found, mirrored = wilson(count, n), wilson(n - count, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low
    assert mirrored.low == pytest.approx(1 - found.high, abs=1e-12)


def test_newcombe_published_example():
    # Newcombe (1998), table II, method 10, cases (a) and (c).
    a = newcombe(56, 70, 48, 80)
    assert (a.low, a.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    c = newcombe(6, 7, 2, 7)
    assert (c.low, c.high) == pytest.approx((0.0582, 0.8062), abs=5e-5)


def test_newcombe_changes_sign_with_the_groups():
    forth, back = newcombe(30, 100, 10, 90), newcombe(10, 90, 30, 100)
    assert forth.value == pytest.approx(-back.value)
    assert forth.low == pytest.approx(-back.high)
    assert forth.p == pytest.approx(back.p)


def test_difference_p_is_chi_square_or_fisher():
    # 2x2 by hand: expected 20/30, chi2 = 4 * 100/20 + 4 * 100/30... = 16.667 for 30:70 v 10:90.
    assert difference_p(30, 100, 10, 100) == pytest.approx(math.erfc(math.sqrt(12.5 / 2)), rel=1e-9)
    # Fisher's tea: 3 of 4 against 1 of 4.
    assert difference_p(3, 4, 1, 4) == pytest.approx(0.4857142857)
    assert difference_p(0, 50, 0, 50) == 1.0
    assert difference_p(50, 50, 50, 50) == 1.0


def test_nobody_has_no_share():
    with pytest.raises(ValueError, match="nobody"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="not a share"):
        wilson(3, 2)


def test_holm_by_hand():
    # Sorted .01 .02 .04 .05 times 4 3 2 1, made monotone.
    assert holm([0.04, 0.01, math.nan, 0.05, 0.02])[:2] == pytest.approx([0.08, 0.04])
    assert holm([0.04, 0.01, 0.05, 0.02]) == pytest.approx([0.08, 0.04, 0.08, 0.06])
    assert math.isnan(holm([math.nan])[0])


def test_all_pairs_later_minus_earlier_and_adjusted():
    pairs = all_pairs({"plain": (5, 100), "empty": (0, 0), "passive": (15, 100), "acp": (40, 100)})
    assert [(p.first, p.second) for p in pairs] == [
        ("passive", "plain"),
        ("acp", "plain"),
        ("acp", "passive"),
    ]
    assert pairs[1].difference.value == pytest.approx(0.35)
    assert all(p.holm_p >= p.difference.p for p in pairs)
    assert min(p.holm_p for p in pairs) == pytest.approx(3 * min(p.difference.p for p in pairs))
    assert all_pairs({"only": (1, 2)}) == []


def test_between_two_shares_is_newcombe():
    found, direct = between(wilson(56, 70), wilson(48, 80)), newcombe(56, 70, 48, 80)
    assert (found.low, found.high) == pytest.approx((direct.low, direct.high))


def test_between_differences_by_hand():
    first, second = newcombe(30, 100, 10, 100), newcombe(20, 100, 10, 100)
    found = between(first, second)
    assert found.value == pytest.approx(0.1)
    down = math.hypot(first.value - first.low, second.high - second.value)
    assert found.low == pytest.approx(0.1 - down)
