"""Numbers as text, for prompts, pages and messages that state an exact value."""

from __future__ import annotations

from decimal import Decimal


def number_text(value: float) -> str:
    """Return a number as text without rounding noise, such as `4` for 4.0."""
    # .1 + .2 becomes `0.3`.
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    # Twelve digits drop the errors of binary fractions and keep all digits of usual data.
    shown = f"{value:.12g}"
    # Expressions read no exponent, so a small number is written with all its decimals.
    return f"{Decimal(shown):f}" if "e-" in shown and abs(value) > 1e-15 else shown
