"""How figures are put into words."""

from __future__ import annotations

import pytest

from folkmoot.measures.inference.estimates import format_dollars, points_span


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (None, "cost unknown"),
        (0.0, "$0"),
        (0.0004, "$0.0004"),
        (0.05, "$0.05"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money_is_never_zero_when_it_is_unknown_or_small(cost: float | None, said: str) -> None:
    assert format_dollars(cost) == said


@pytest.mark.parametrize(
    ("ends", "margin", "said"),
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
def test_an_end_on_one_side_of_a_bound_is_not_printed_as_the_bound(
    ends: tuple[float, float], margin: float, said: str
) -> None:
    assert points_span(*ends, margin) == said
