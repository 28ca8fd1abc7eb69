"""Random draws that depend only on a seed and a path."""

from __future__ import annotations

import math

from folkmoot.randomness import open_interval_value, uniform_values


def test_a_uniform_draw_is_never_zero_or_one() -> None:
    """Formulas take the logarithm of a draw and of one minus a draw."""
    for eight_bytes in (
        b"\x00" * 8,
        b"\xff" * 8,
        b"\xff" * 6 + b"\xfb\xff",
        b"\xff" * 6 + b"\xfc\x00",
    ):
        draw = open_interval_value(eight_bytes)
        assert math.isfinite(math.log(draw))
        assert math.isfinite(math.log(1 - draw))


def test_stored_draws_stay_the_same() -> None:
    """A run is reproduced only if the same seed and path give the same draws in every version."""
    assert uniform_values(7, "vote", 1) == 0.9561629217046714
