"""Numbers of `levels.json` in words, for all findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCORE = "weighted_inclusivity_score"
Estimate = Mapping[str, Any]
Summaries = Mapping[str, Any]


def value(summary: Mapping[str, Any], figure: str, group: str) -> float | None:
    """The mean of a figure in a group; None where it is unknown."""
    value = summary["figures"][figure][group]["estimate"]
    return None if value is None else float(value)


def interval(label: str, estimate: Estimate) -> list[tuple[str, float, float, float]]:
    """One line of a chart of intervals, of no width where there is no interval; none of nothing."""
    value, low, high = estimate["estimate"], estimate["low"], estimate["high"]
    if value is None:
        return []
    return [(label, value, value if low is None else low, value if high is None else high)]


def number(estimate: Estimate) -> str:
    """A mean as text."""
    return plain(estimate["estimate"])


def signed(estimate: Estimate) -> str:
    """A difference with its sign and interval."""
    value, low, high = estimate["estimate"], estimate["low"], estimate["high"]
    if value is None:
        return "unknown"
    interval = f" [{low:+.2f}, {high:+.2f}]" if low is not None else ""
    return f"{value:+.2f}{interval}"


def told(estimate: Estimate) -> str:
    """Whether the interval of a difference leaves zero possible, as the end of a sentence."""
    low, high = estimate["low"], estimate["high"]
    if low is None:
        return ""
    return ", which excludes zero" if low > 0 or high < 0 else ", which leaves zero possible"


def plain(value: float | None, *, sign: bool = False) -> str:
    """A number with two digits."""
    if value is None:
        return "unknown"
    return f"{value:+.2f}" if sign else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A share as a percentage."""
    return "none (no such item)" if value is None else f"{value:.0%}"
