"""What happened in one discussion, as immutable data: stages make it, measures read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from folkmoot.studies.town_hall.cognition import Reflection, Speaking, Thinking
from folkmoot.studies.town_hall.levels import Level
from folkmoot.studies.town_hall.references import Mend
from folkmoot.studies.town_hall.residents import Resident


@dataclass(frozen=True, slots=True)
class Call:
    """One answer of one seat, or of the shared session: for quality counts and logs.

    `residents` are those whose words it holds. `rung` is where on the ladder it was read,
    `minimal` counts the residents for whom the minimal structure stands. `at` is seconds since
    the epoch; times, tokens and cost are as journaled, so a replay gives the same.
    """

    stage: str
    round: int | None
    agent: str
    residents: tuple[str, ...]
    question: str
    response: str
    rung: str
    reasks: int = 0
    missing: str = ""
    minimal: int = 0
    mends: tuple[Mend, ...] = ()
    memory_length: int = 0
    model: str = ""
    at: float | None = None
    latency_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one resident thought (None where thinking is off) and said in one round."""

    resident: str
    thinking: Thinking | None
    speaking: Speaking

    @property
    def heard(self) -> bool:
        """Was there a statement that could be read (silence included)?"""
        return not self.speaking.parse_error

    @property
    def silent(self) -> bool:
        return self.heard and not self.speaking.full_statement


@dataclass(frozen=True, slots=True)
class Moderation:
    """What the moderator said after a round. Ids are those of residents."""

    summary: str
    underrepresented_opinions: tuple[str, ...] = ()
    invited: tuple[str, ...] = ()
    overlooked_concerns: tuple[tuple[str, str], ...] = ()
    spoken: str = ""
    parse_error: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "summary": self.summary,
            "underrepresented_opinions": list(self.underrepresented_opinions),
            "invited_residents": list(self.invited),
            "overlooked_concerns": [
                {"resident": r, "concern": c} for r, c in self.overlooked_concerns
            ],
            "spoken": self.spoken,
        } | ({"_parse_error": True} if self.parse_error else {})


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `order` is the order in which statements are listed to those who hear them."""

    number: int
    order: tuple[str, ...]
    turns: Mapping[str, Turn]
    moderation: Moderation | None = None
    reflections: Mapping[str, Reflection] = field(default_factory=dict)
    parts: int = 0  # calls that a shared session took for this round; 0 for separate ones


@dataclass(frozen=True, slots=True)
class Item:
    """One binary decision on the ballot and the residents whose words it goes back to."""

    id: str
    text: str
    reasoning: str
    origin: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ballot:
    """One resident's votes (item id → yes or no) and reasons; an item left out was not voted on."""

    resident: str
    votes: Mapping[str, str]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an item came out. A tie fails; who cast no readable vote is counted apart."""

    item: str
    yes: int
    no: int
    uncast: int

    @property
    def passed(self) -> bool:
        return self.yes > self.no

    @property
    def tie(self) -> bool:
        return self.yes == self.no


@dataclass(frozen=True, slots=True)
class Consensus:
    """The closing text, with the residents' concerns that it says it reflects."""

    text: str
    concerns: tuple[tuple[str, str], ...] = ()
    parse_error: bool = False


@dataclass(frozen=True, slots=True)
class Satisfaction:
    """One resident's satisfaction (1–10) at one time; None where it could not be read."""

    score: int | None
    reason: str = ""


@dataclass(frozen=True)
class Discussion:
    """One discussion: a set of residents at one level, from the first survey to the last."""

    id: str
    set_no: int
    level: Level
    residents: tuple[Resident, ...]
    seats: Mapping[str, str | None]
    rounds: tuple[Round, ...]
    items: tuple[Item, ...]
    ballots: Mapping[str, Ballot]
    outcomes: tuple[Outcome, ...]
    consensus: Consensus
    before: Mapping[str, Satisfaction]
    after: Mapping[str, Satisfaction]
    calls: tuple[Call, ...] = ()

    @cached_property
    def vulnerable(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents if r.is_vulnerable)

    @cached_property
    def general(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents if not r.is_vulnerable)

    @cached_property
    def passed(self) -> frozenset[str]:
        return frozenset(o.item for o in self.outcomes if o.passed)
