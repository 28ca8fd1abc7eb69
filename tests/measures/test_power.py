"""Power, compared with published figures."""

from __future__ import annotations

import math

import pytest

from folkmoot.measures.inference.power import (
    cohen_h,
    design_effect,
    detectable_share,
    effective_n,
    n_two_shares,
    power_two_shares,
    smallest_d_paired,
    smallest_h,
)


def test_power_and_size_equal_published_figures():
    assert power_two_shares(0.10, 0.20, 300) == pytest.approx(0.935214, abs=1e-6)
    assert n_two_shares(0.10, 0.20) == pytest.approx(194.908, abs=1e-3)
    assert smallest_h(300) == pytest.approx(0.2287, abs=5e-5)


def test_a_detectable_share_has_the_requested_power():
    share = detectable_share(0.1, 300)
    assert cohen_h(share, 0.1) == pytest.approx(smallest_h(300))
    assert power_two_shares(0.1, share, 300) == pytest.approx(0.8, abs=1e-3)
    assert math.isnan(detectable_share(0.99, 10))


def test_equal_shares_have_the_power_of_the_level():
    assert power_two_shares(0.2, 0.2, 300) == pytest.approx(0.05)
    assert n_two_shares(0.2, 0.2) == math.inf


def test_clusters_reduce_the_effective_sample():
    assert design_effect(20, 0.05) == pytest.approx(1.95)
    assert effective_n(400, 20, 0.05) == pytest.approx(400 / 1.95)
    assert design_effect(1, 0.5) == 1
    with pytest.raises(ValueError, match="impossible clusters"):
        design_effect(20, 2)


def test_the_smallest_paired_effect_equals_the_textbook():
    # The textbook: 34 pairs see d = .5 with 80 %.
    assert smallest_d_paired(34) == pytest.approx(0.495, abs=0.005)
    assert math.isnan(smallest_d_paired(1))
