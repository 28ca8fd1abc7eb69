"""Formats of numbers in text."""

from __future__ import annotations

import pytest

from folkmoot.measures.inference.estimates import format_dollars, points_span


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
