"""The contrasts of control answers: between conditions, and between first and final decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import polars as pl

from folkmoot.kit.controls.conversations import FINAL, FIRST
from folkmoot.kit.findings import condition_name
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.proportions import wilson

# Compare all pairs of at most this many conditions: six conditions make 15 pairs.
_MOST_CONDITIONS = 6


class Contrast(NamedTuple):
    """Two groups of control answers to compare. A group is a pair (condition, moment)."""

    first: tuple[str, str]
    second: tuple[str, str]

    @property
    def says(self) -> str:
        """The contrast in words for tables and charts."""
        if self.first[0] == self.second[0]:
            name = condition_name(self.first[0])
            return f"{name}: {self.second[1]} against {self.first[1]} decision"
        return f"{condition_name(self.first[0])} against {condition_name(self.second[0])}"


def contrasts_in(answers: pl.DataFrame) -> Iterator[Contrast]:
    """Yield the contrasts in a table of control answers.

    The contrasts are all pairs of conditions at the final decision. Within each condition, there is
    also the contrast of the first and the final decision.
    """
    groups = answers.select("condition", "moment").unique(maintain_order=True).rows()
    final = [group for group in groups if group[1] == FINAL]
    yield from (Contrast(*pair) for pair in combinations(final[:_MOST_CONDITIONS], 2))
    yield from (
        Contrast((condition, FIRST), (condition, FINAL))
        for condition, _ in final
        if (condition, FIRST) in groups
    )


def unit_name(rows: pl.DataFrame) -> str:
    """Return the name of the unit of analysis, for the field `unit` of a finding."""
    alone = rows.select((pl.col("unit") == pl.col("participant_id")).all()).item()
    return "participant" if alone else "conversation"


def share_of_units(hits: Sequence[bool], units: Sequence[str]) -> Estimate:
    """Return the share of hits with its interval over independent units.

    With one answer per unit, or if all answers are hits, the interval is Wilson's over units.
    Otherwise it is the interval for clustered data.
    """
    if len(set(units)) == len(hits):
        return wilson(sum(hits), len(hits))
    found = clustered_share([float(hit) for hit in hits], units)
    if found.has_interval or not all(hits):
        return found
    whole = wilson(len(set(units)), len(set(units)))
    return replace(found, low=whole.low, high=whole.high, method=whole.method)
