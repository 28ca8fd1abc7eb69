"""Positions on the concept: when a person has moved, and how far towards the others.

A move and an approach are two measures. A move is a change from one's own earlier position, in
whatever direction. An approach is how much nearer a person came to the others' positions.
"""

from __future__ import annotations

from collections.abc import Mapping

from folkmoot.people.sources.grounded.attributes import valence_label

# Positions are kept with two decimals. A difference of two of them has no more, and without
# rounding .7 - .6 would be less than .1.
DECIMALS = 2
# Smaller differences of position are wording, not a change of mind.
SMALLEST_MOVE = 0.1

LEANINGS = {
    "very negative": "strongly against it",
    "negative": "rather against it",
    "neutral": "undecided",
    "positive": "rather in favor of it",
    "very positive": "strongly in favor of it",
}

Positions = Mapping[str, float]


def describe_position(position: float) -> str:
    """Return a position in words: `rather in favor of it`."""
    return LEANINGS[valence_label(position)]


def has_moved(before: float | None, after: float | None) -> bool:
    """Whether a position differs from one's own earlier one by at least `SMALLEST_MOVE`."""
    if before is None or after is None:
        return False
    return abs(round(after - before, DECIMALS)) >= SMALLEST_MOVE


def measure_approach(
    start: Positions, person: str, before: float | None, after: float | None
) -> float | None:
    """Return by how many points a person came closer to the mean position of the others at
    `start`; negative if the distance grew, None if a position is not known.

    Noise alone makes it zero on average: it takes a distance off as often as it adds one. A step
    in the direction of the others would not do, since noise regresses towards them.
    """
    others = [position for other, position in start.items() if other != person]
    if before is None or after is None or not others:
        return None
    reference = sum(others) / len(others)
    return round(abs(before - reference) - abs(after - reference), 4)
