"""Human bands: the data file is complete, and the words follow the numbers."""

from __future__ import annotations

import math

import pytest

from folkmoot.errors import FolkmootError
from folkmoot.measures.bands import (
    human_band,
    human_bands,
    sentence,
)


def test_all_bands_are_complete():
    assert len(human_bands()) >= 10
    for key, band in human_bands().items():
        assert band.key == key
        assert band.label and band.range and band.n > 0
        assert len(band.source) > 40, key
        assert math.isfinite(band.centre)
        if band.has_range:
            assert band.low <= band.centre <= band.high


def test_bands_equal_published_figures():
    change = human_band("top_choice_changed")
    assert change.centre == pytest.approx(293 / 526, abs=5e-4)
    # The deliberations with the fewest and the most changes: 13 of 41 and 10 of 11.
    assert (change.low, change.high) == pytest.approx((13 / 41, 10 / 11), abs=5e-4)
    assert human_bands()["sd_ratio"].low == 0.735


def test_bands_have_full_sources_and_unverified_ones_are_refused():
    for band in human_bands().values():
        for source_part in ("(20", "doi:10.", "; computed from"):
            assert source_part in band.source, band.key
    assert not human_bands()["sd_ratio"].verified
    with pytest.raises(FolkmootError, match="not verified"):
        human_band("sd_ratio")


def test_sentences_name_the_design_of_the_human_studies_and_give_no_verdict():
    band = human_band("top_choice_changed")
    assert sentence({"in this run": {"Passive": 0.16}}, band) == (
        "Share who changed their top choice: 32 % to 91 % in people (top-ranked of five to nine "
        "policies before and after days of deliberation); in this run Passive 16 %."
    )
    assert ": 0.55 in people (" in sentence({"": {"r": 0.9}}, human_bands()["item_pre_post_r"])


def test_an_unknown_band_is_refused():
    with pytest.raises(FolkmootError, match="known: "):
        human_band("happiness")
