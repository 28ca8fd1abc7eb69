"""How figures are put into words."""

from __future__ import annotations

import pytest

from folkmoot.measures.inference.estimates import format_dollars


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
