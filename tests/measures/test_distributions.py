"""Diversity, polarisation, inequality: known answers and bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.measures.diversity import (
    effective_number,
    entropy,
    esteban_ray,
    gini,
    jensen_shannon,
    normalised_entropy,
    polarisation,
    total_variation,
    total_variation_by_chance,
    van_der_eijk,
)

P, Q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
COUNTS = st.lists(st.integers(0, 50), min_size=3, max_size=7).filter(any)


def test_divergences_known_answers():
    assert entropy(P) == pytest.approx(1.5)
    assert jensen_shannon(P, Q) == pytest.approx(0.0612781, abs=1e-7)
    assert total_variation(P, Q) == pytest.approx(0.25)


def test_effective_number():
    assert effective_number([1, 1, 1, 1]) == pytest.approx(4)
    assert effective_number([7, 0, 0]) == pytest.approx(1)
    assert effective_number(P) == pytest.approx(2**1.5)
    assert normalised_entropy([3, 3, 3]) == pytest.approx(1)
    assert normalised_entropy([3]) == 0.0


@settings(deadline=None)  # the first call imports scipy
@given(COUNTS)
def test_bounds(counts):
    k = len(counts)
    assert 1 - 1e-9 <= effective_number(counts) <= k + 1e-6
    assert -1e-9 <= polarisation(counts) <= 1 + 1e-9
    assert polarisation(counts) == pytest.approx(polarisation(counts[::-1]))
    assert jensen_shannon(counts, counts[::-1]) <= 1 + 1e-9
    assert esteban_ray(counts) <= 0.25 + 1e-9


def test_esteban_ray_known_answers():
    assert esteban_ray([1, 1]) == pytest.approx(0.25)
    assert esteban_ray([1, 2, 1]) == pytest.approx(0.21875)  # 2 × 3/64 + 1/8
    assert esteban_ray([1] * 5) == pytest.approx(0.16)
    assert esteban_ray([3, 0, 0]) == 0.0


def test_van_der_eijk_known_answers():
    assert van_der_eijk([30, 40, 210, 130, 530, 50, 10]) == pytest.approx(0.611333333)
    assert polarisation([30, 40, 210, 130, 530, 50, 10]) == pytest.approx(0.194333333)
    assert van_der_eijk([1, 0, 0, 0, 1]) == pytest.approx(-1)
    assert van_der_eijk([1] * 5) == pytest.approx(0)
    assert van_der_eijk([0, 0, 8, 0, 0]) == pytest.approx(1)
    assert van_der_eijk([4]) == 1.0
    assert van_der_eijk([5, 5]) == 0.0


def test_inequality_known_answers():
    assert gini([1, 2, 3, 4]) == pytest.approx(0.25)
    assert gini([0, 0, 0, 5]) == pytest.approx(0.75)
    assert gini([2, 2, 2]) == pytest.approx(0)
    assert math.isnan(gini([0, 0]))
    with pytest.raises(ValueError, match="not negative"):
        gini([1, -1])


def test_no_distribution():
    with pytest.raises(ValueError, match="no distribution"):
        entropy([0, 0])
    with pytest.raises(ValueError, match="options"):
        total_variation([1, 2], [1, 2, 3])


def test_few_people_lie_apart_by_chance_alone():
    """Two samples of 50 and 60 who choose alike; ten times as many lie nearer."""
    rng = np.random.default_rng(4)
    bound = total_variation_by_chance([25, 15, 10], [30, 18, 12])
    first, second = (rng.multinomial(n, [0.5, 0.3, 0.2], 4_000) for n in (50, 60))
    apart = [total_variation(a, b) for a, b in zip(first, second, strict=True)]
    assert np.mean(np.array(apart) < bound) == pytest.approx(0.95, abs=0.015)
    more = total_variation_by_chance([250, 150, 100], [300, 180, 120])
    assert more == pytest.approx(bound / 10**0.5, rel=0.1)
