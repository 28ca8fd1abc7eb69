"""Subgroup flags, strictly derived, and the assignment of members to two branches.

Flags come from the canonical strategy, the slot and the conflict, never from free text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from folkmoot.studies.negotiation.slots import SUBGROUP_SLOTS
from folkmoot.studies.negotiation.tally import Tally

METHOD = "preference_nearest_split_with_stable_tiebreak"
# Stand-ins where fewer than two options were named, so that a required split is still two groups.
OPEN_ANCHORS = ("own choice", "another choice")


@dataclass(frozen=True, slots=True)
class Flags:
    """Whether the plan must, or may, part the group for this slot."""

    required: bool = False
    optional: bool = False


NO_SPLIT = Flags()


def flags(strategy_id: str | None, slot: str, has_conflict: bool) -> Flags:
    """Only cuisine, attraction and event, only with a conflict, only by the strategy's id."""
    if slot not in SUBGROUP_SLOTS or not has_conflict:
        return NO_SPLIT
    return Flags(strategy_id == "subgroup_required", strategy_id == "subgroup_optional")


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the two groups: its option and the ids of its members."""

    anchor: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    group_a: Branch
    group_b: Branch

    def to_json(self, slot: str, names: dict[str, str]) -> dict[str, Any]:
        def branch(b: Branch) -> dict[str, Any]:
            who = [{"user_id": m, "name": names[m]} for m in b.members]
            return {"anchor": b.anchor, "members": who}

        return {
            "slot": slot,
            "method": METHOD,
            "group_a": branch(self.group_a),
            "group_b": branch(self.group_b),
        }


def nearest_split(tally: Tally) -> Split:
    """Each member goes to the higher-scoring of the top two options.

    Equal scores alternate by the member's place among all members by id (even A, odd B). Neither
    group is empty: the member who gives up least (then the last by id) is moved. Needs two
    members or more.
    """
    anchors = (*tally.ranked()[:2], *OPEN_ANCHORS)[:2]
    lean = {
        v.id: _score(tally, v.id, anchors[0]) - _score(tally, v.id, anchors[1])
        for v in tally.voters
    }
    in_a = {
        v.id: lean[v.id] > 0 or (lean[v.id] == 0 and index % 2 == 0)
        for index, v in enumerate(tally.voters)
    }
    if len(set(in_a.values())) == 1:
        ids = [v.id for v in tally.voters]
        moved = min(reversed(ids), key=lambda m: abs(lean[m]))
        in_a[moved] = not in_a[moved]
    return Split(
        Branch(anchors[0], tuple(m for m, a in in_a.items() if a)),
        Branch(anchors[1], tuple(m for m, a in in_a.items() if not a)),
    )


def _score(tally: Tally, voter: str, option: str) -> float:
    return tally.score(voter, option) if option in tally.options else 0.0
