"""One negotiation (a group under a condition) and the trail of each of its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.conversation.answers import Missing
from folkmoot.randomness import uniform
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.operators import Outcome, Portion
from folkmoot.studies.negotiation.settlement import Settlement, same
from folkmoot.studies.negotiation.strategies import (
    SUBGROUP_SLOTS,
    Condition,
    Group,
    Member,
    Strategy,
    Topic,
    slot_of,
    strategy_for,
)
from folkmoot.studies.negotiation.tally import (
    Ballot,
    Branch,
    Tally,
    candidates,
    count,
    words_of,
)
from folkmoot.studies.negotiation.wording import purify, quoted, spelled

SYSTEM = "System"
PHASES = {
    "user_provide": "preference",
    "sys_synthesize": "synthesis",
    "user_respond": "synthesis",
    "sys_request_vote": "vote",
    "user_vote": "vote",
    "sys_vote_result": "vote",
    "sys_feedback": "feedback",
    "user_feedback": "feedback",
}


@dataclass(frozen=True, slots=True)
class Stated:
    """A stated preference, and how the reply ended that says it (None for a ready-made text)."""

    text: str
    finish: str | None = None


# Topic → member id → what was stated. Who stated nothing is not in the mapping.
Statements = Mapping[str, Mapping[str, Stated]]


@dataclass(frozen=True, slots=True)
class Line:
    """One turn of a dialogue: who says what, with which intent, in which phase."""

    speaker: str
    intent: str
    text: str
    phase: str
    round: int | None = None
    finish: str | None = None  # how the reply with these words ended; None for our own words


@dataclass(frozen=True, slots=True)
class Negotiation:
    """One group under one condition, with what it stated."""

    group: Group
    condition: Condition
    stated: Statements
    topics: tuple[Topic, ...]
    config: NegotiationConfig

    @property
    def members(self) -> tuple[Member, ...]:
        """The members this condition hears: one under C1, else all."""
        return self.group.members[:1] if self.condition.one_member else self.group.members

    def voters(self, topic: Topic) -> tuple[Member, ...]:
        """The members who fill in a ballot: the parents where only they vote, else all heard."""
        strategy = strategy_for(self.group.type.id, topic.id)
        if strategy.operator != "parent_vote_lower_misery":
            return self.members
        return tuple(m for m in self.members if m.role == strategy.binding)

    @property
    def feedback(self) -> bool:
        """Whether feedback rounds follow a decision with a conflict."""
        return self.condition.feedback and self.config.enable_feedback

    def topic(self, id: str) -> Topic:
        return next(t for t in self.topics if t.id == id)

    def texts(self, topic: str) -> dict[str, str]:
        """Member id → stated preference, of the members heard."""
        stated = self.stated[topic]
        return {m.id: stated[m.id].text for m in self.members if m.id in stated}

    def tally(self, topic: Topic, ballots: Mapping[str, Ballot] | None = None) -> Tally:
        """The tally of what was stated (and of ballots) on the options that were named."""
        texts = self.texts(topic.id)
        options = candidates(topic.options, texts, ballots)
        return count(self.members, texts, options, ballots)

    def seen(self, text: str) -> str:
        """The mediator's words as members and the planner may see them: under C3 without words of
        theory, save those that members said themselves."""
        if self.condition.synthesis != "raw":
            return text
        return purify(text, [s.text for said in self.stated.values() for s in said.values()])

    def drawn(self, topic: Topic, names: Sequence[str], who: str = "mediator") -> list[str]:
        """Members' ids or options in the order in which `who` sees them. The draw follows from
        group, topic and name alone, so that it is the same under every condition."""
        place = (self.config.random_seed, "negotiation order", self.group.id, topic.id, who)
        return sorted(names, key=lambda name: uniform(*place, name))

    def order(self, topic: Topic) -> list[Member]:
        """The members heard, in the order in which the mediator sees them."""
        by_id = {m.id: m for m in self.members}
        return [by_id[id] for id in self.drawn(topic, list(by_id))]

    def listing(self, topic: Topic) -> list[dict[str, str]]:
        """Names and stated preferences in quotes, as the prompts list them."""
        texts = self.texts(topic.id)
        return [
            {"name": m.name, "text": quoted(texts[m.id])}
            for m in self.order(topic)
            if m.id in texts
        ]

    def line(
        self,
        speaker: str,
        intent: str,
        text: str,
        topic: Topic,
        *,
        round: int | None = None,
        finish: str | None = None,
    ) -> Line:
        if speaker == SYSTEM or intent == "user_vote":  # words of ours; members' stay as said
            text = spelled(text)
        if speaker == SYSTEM:
            text = self.seen(text)
        return Line(speaker, f"{intent}_{topic.slot}", text, PHASES[intent], round, finish)

    def preference_lines(self, topic: Topic) -> tuple[Line, ...]:
        said = ((m, self.stated[topic.id].get(m.id)) for m in self.members)
        return tuple(
            self.line(m.name, "user_provide", s.text, topic, finish=s.finish)
            for m, s in said
            if s is not None
        )


@dataclass(frozen=True, slots=True)
class FeedbackRound:
    """One round of feedback: who was asked, whether it settled the matter, what changed.

    `refused` holds what the revision may not give, and `because` why it does not stand: `struck`
    (a hard constraint ruled it out), `rejected` (somebody who would get it strongly rejects it),
    `split` (it undoes a required split), `unstated` (it does not say who gets what, for all).
    """

    round: int
    target: str
    targeted: bool
    resolved: bool
    question: str
    updated_explanation: str
    revised_decision: str
    refused: tuple[str, ...] = ()
    because: str = ""
    hard_no: tuple[str, ...] = ()
    parse_error: bool = False


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """The whole audit trail of one decision.

    `source` says what settled it: single_user, preferences, synthesis, operator, vote or
    feedback. `proposed` is the label that the model gave its strategy, None if unread. `rung` is
    where the synthesis reply was read (`minimal`: it could not be, and the minimal structure was
    used). `outcome` is the operator's; `portions` what finally holds, after feedback. `stated` is
    the mediator's own statement of who gets what, `said` all its words as it wrote them.
    `overridden`: option → members who get it against their strong rejection. `confirmed`: member →
    whether the decision as recorded is the one that the conversation came to.
    """

    topic: str
    source: str
    has_conflict: bool
    resolution_text: str
    conflict_description: str = ""
    proposal: str = ""
    said: str = ""
    stated: Settlement | None = None
    dropped: tuple[str, ...] = ()
    overridden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    confirmed: Mapping[str, bool | Missing] = field(default_factory=dict)
    strategy: Strategy | None = None
    proposed: str | None = None
    options: tuple[str, ...] = ()
    outcome: Outcome | None = None
    portions: tuple[Portion, ...] = ()
    selected_option: str | None = None
    ballots: str = "none"
    cast: Mapping[str, Ballot] = field(default_factory=dict)
    vote_summary: Mapping[str, Any] | None = None
    coverage: Mapping[str, Any] | None = None
    split: tuple[Branch, Branch] | None = None
    feedback: tuple[FeedbackRound, ...] = ()
    lines: tuple[Line, ...] = ()
    rung: str = ""
    dropped_lines: int = 0
    source_winner: str | None = None

    @property
    def slot(self) -> str:
        return slot_of(self.topic)

    @property
    def strategy_id(self) -> str | None:
        """The canonical id: the label of the resolution, whatever the model proposed."""
        return self.strategy.strategy_id if self.strategy else None

    @property
    def subgrouping_required(self) -> bool:
        """Whether the plan must part the group for this slot. Both flags follow from strategy, slot
        and conflict alone, never from free text."""
        return self._parts_by("subgroup_required")

    @property
    def subgrouping_optional(self) -> bool:
        """Whether the plan may part the group for this slot."""
        return self._parts_by("subgroup_optional")

    def _parts_by(self, strategy_id: str) -> bool:
        eligible = self.has_conflict and self.slot in SUBGROUP_SLOTS
        return eligible and self.strategy_id == strategy_id

    @property
    def drifted(self) -> bool | None:
        """Whether the model named another strategy, spelling (case, spaces, hyphens) aside; None
        where none is locked or none was read."""
        if self.strategy is None or self.proposed is None:
            return None
        return words_of(self.proposed) != words_of(self.strategy.strategy_id)

    @property
    def statement_agrees(self) -> bool | None:
        """Whether the mediator states what the operator decided; None where it could not know
        (before a vote), had to decide itself, or made no statement."""
        if self.outcome is None or self.stated is None or self.cast or not self.stated.portions:
            return None
        return same(self.stated.portions, self.outcome.portions)

    @property
    def parse_error(self) -> bool:
        return self.rung == "minimal"

    @property
    def resolved(self) -> bool | None:
        """Whether feedback ended in agreement; None where there was none."""
        return self.feedback[-1].resolved if self.feedback else None

    @property
    def words(self) -> int:
        """Words spoken to come to this decision, stated preferences left out."""
        return sum(len(line.text.split()) for line in self.lines if line.phase != "preference")

    def with_lines(self, *lines: Line) -> SlotDecision:
        return replace(self, lines=(*self.lines, *lines))
