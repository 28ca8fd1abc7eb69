"""Positions on the concept: when a person has moved, and how far towards the others.

A move and an approach are two measures. A move is a change from one's own earlier position, in
whatever direction. An approach is how much nearer a person came to the others' positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from folkmoot.people.sources.grounded.attributes import valence_label
from folkmoot.studies.focus_group.discussion import InterviewTime

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


# The columns that name a discussion, and a person in it.
TALK = ["group", "stimulus"]
PERSON = [*TALK, "persona_id"]
MOST_LINES = 20  # participants or groups that a chart can tell apart


def carry_positions_forward(opinions: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Each person's positions, the last one carried to the last turn of the talk."""
    known = opinions.filter(pl.col("valence").is_not_null()).sort("turn", maintain_order=True)
    rows = known.select("name", "turn", "valence").rows()
    last = float(max((turn for _, turn, _ in rows), default=0))
    ends = {name: (name, last, valence) for name, _, valence in rows}
    return [(name, float(turn), valence) for name, turn, valence in rows] + list(ends.values())


def mean_position_by_question(opinions: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Mean position of each group after each question, of as many groups as can be told apart."""
    out: list[tuple[str, float, float]] = []
    for group in opinions["group"].unique(maintain_order=True).to_list()[:MOST_LINES]:
        now: dict[str, float] = {}
        means: dict[int, float] = {}
        own = opinions.filter((pl.col("group") == group) & pl.col("valence").is_not_null())
        for row in own.iter_rows(named=True):
            now[row["persona_id"]] = row["valence"]
            means[row["question"]] = sum(now.values()) / len(now)
        out += [(group, float(q), round(mean, 4)) for q, mean in means.items()]
    return out


def position_pairs(stated: pl.DataFrame, end: InterviewTime = InterviewTime.AFTER) -> pl.DataFrame:
    """One row a person of whom both are known: the private position before the talk and at the
    `end`, as `after`."""
    before, after = (
        stated.filter((pl.col("when") == when.value) & pl.col("position").is_not_null())
        for when in (InterviewTime.BEFORE, end)
    )
    both = before.join(after, on=PERSON, suffix="_after", maintain_order="left")
    return both.select(*PERSON, "name", before=pl.col("position"), after=pl.col("position_after"))
