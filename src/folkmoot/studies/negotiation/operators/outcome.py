"""What an operator decides, structured: who gets what, on which days or in which branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.studies.negotiation.strategies import Strategy
from folkmoot.studies.negotiation.tally import Tally, Voter

WHOLE_TRIP = "whole trip"


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of what was decided: an option, the members it is for, and when.

    Portions of one `when` hold together (rules in force at once); different ones follow each
    other. `owner` is the member whose wish it serves, where the rule gives it to somebody.
    """

    option: str
    members: tuple[str, ...]
    when: str = WHOLE_TRIP
    owner: str = ""

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "option": self.option,
            "members": list(self.members),
            "when": self.when,
        }
        return {**row, "owner": self.owner} if self.owner else row


@dataclass(frozen=True, slots=True)
class Outcome:
    """An operator's decision with its audit trail.

    `selected_option` is the one option that stands for the decision (None where the rule has no
    such thing, or nobody named an option); `portions` is the decision in full. `removed` holds
    options struck out with who struck them; `owed` what somebody is to get for giving way;
    `fell_back_to` the operator that decided when this one could not; `steps` the reasoning.
    """

    operator: str
    selected_option: str | None
    portions: tuple[Portion, ...]
    steps: tuple[str, ...] = ()
    removed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    owed: tuple[tuple[str, str], ...] = ()
    fell_back_to: str = ""
    infeasible: bool = False
    decided_by: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "selected_option": self.selected_option,
            "portions": [p.to_json() for p in self.portions],
            "steps": list(self.steps),
            "removed": [{"option": o, "by": list(by)} for o, by in self.removed],
            "owed": [{"member": m, "option": o} for m, o in self.owed],
            "fell_back_to": self.fell_back_to or None,
            "infeasible": self.infeasible,
            "decided_by": self.decided_by,
            **({"details": self.details} if self.details else {}),
        }


@dataclass(frozen=True, slots=True)
class Case:
    """What an operator is told besides the tally: the strategy's row and the trip's days."""

    strategy: Strategy
    days: int = 3


Operator = Callable[[Tally, Case], Outcome]
Key = Callable[[str], tuple[float, ...]]


def best(tally: Tally, key: Key, options: Sequence[str] | None = None) -> tuple[str, str]:
    """The option with the highest key, and what settled it.

    Every tie: total score, then alphabetical. `settled` is "rule", "score" or "alphabetical".
    """
    among = list(tally.options if options is None else options)
    top = max(key(o) for o in among)
    level = [o for o in among if key(o) == top]
    if len(level) == 1:
        return level[0], "rule"
    most = max(tally.total(o) for o in level)
    ahead = sorted(o for o in level if tally.total(o) == most)
    return ahead[0], "score" if len(ahead) == 1 else "alphabetical"


def for_all(tally: Tally, option: str, when: str = WHOLE_TRIP, owner: str = "") -> Portion:
    return Portion(option, tuple(v.id for v in tally.voters), when, owner)


def undecided(operator: str) -> Outcome:
    """Nobody named an option: there is nothing to apply the rule to."""
    return Outcome(operator, None, (), ("Nobody named an option.",))


def names(tally: Tally, ids: Sequence[str]) -> str:
    """Members by name, as a reader would write them: "Parent 1 and Child 2"."""
    spoken = [v.name for v in tally.voters if v.id in ids]
    return listed(spoken)


def listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def wishes(tally: Tally, voters: Sequence[Voter] | None = None) -> dict[str, list[str]]:
    """Primary option → the members who want it most, options in alphabetical order."""
    found: dict[str, list[str]] = {}
    for voter in tally.voters if voters is None else voters:
        wish = tally.primary(voter.id)
        if wish is not None:
            found.setdefault(wish, []).append(voter.id)
    return dict(sorted(found.items()))
