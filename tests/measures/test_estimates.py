"""Formats of numbers in text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.measures.inference.estimates import (
    format_dollars,
    format_percent,
    format_points,
    format_signed,
    format_span,
    points_span,
)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (None, "cost unknown"),
        (0.0, "$0"),
        (0.0004, "$0.0004"),
        (0.05, "$0.05"),
        (1234.5, "$1,234.50"),
    ],
)
def test_unknown_or_small_costs_are_not_shown_as_zero(cost: float | None, text: str) -> None:
    assert format_dollars(cost) == text


@pytest.mark.parametrize(
    ("ends", "margin", "text"),
    [
        ((-0.06, 0.02), 0.0, "−6 to +2"),
        ((0.003, 0.2), 0.0, "+0.3 to +20.0"),
        ((-0.2, -0.0004), 0.0, "−20.00 to −0.04"),
        ((0.0, 0.2), 0.0, "0 to +20"),
        ((-0.028, 0.053), 0.05, "−2.8 to +5.3"),
        ((-0.28, 0.05), 0.05, "−28 to +5"),
        ((float("nan"), 0.05), 0.0, "no interval"),
    ],
)
def test_a_bound_near_a_margin_is_not_rounded_to_the_margin(
    ends: tuple[float, float], margin: float, text: str
) -> None:
    assert points_span(*ends, margin) == text


def test_ties_are_rounded_away_from_zero_in_all_formats() -> None:
    assert format_percent(0.125) == "13 %"
    assert format_points(0.125) == "+13 points"
    assert format_percent(0.0625, 1) == "6.3 %"
    assert format_points(-0.0625, 1) == "−6.3 points"
    assert format_span(0.125, 0.625) == "13 to 63 %"
    assert format_signed(-0.125) == "−0.13"
    # The nearest float to this difference is below the tie.
    assert format_percent(0.3 - 0.175) == "13 %"


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.0, 0, "0 %"),
        (1.0, 0, "100 %"),
        (1.0, 1, "100.0 %"),
        (0.1 + 0.2 - 0.3, 0, "0 %"),
        (399 / 400, 0, "99.8 %"),
        (0.9996, 1, "99.96 %"),
        (0.0004, 0, "0.04 %"),
        (0.0004, 1, "0.04 %"),
        (0.006, 0, "0.6 %"),
        (math.fsum([0.1] * 10) - 1e-16, 0, "100 %"),
        (math.nan, 0, "unknown"),
    ],
)
def test_only_whole_shares_are_shown_as_0_or_100_percent(
    share: float, digits: int, text: str
) -> None:
    assert format_percent(share, digits) == text


@given(st.integers(0, 100_000), st.integers(1, 100_000), st.integers(0, 2))
def test_a_share_of_a_count_is_shown_as_whole_only_if_it_is(
    hits: int, more: int, digits: int
) -> None:
    number = re.sub(r"\.0+$", "", format_percent(hits / (hits + more), digits).removesuffix(" %"))
    assert number != "100"
    assert (number == "0") == (hits == 0)
