"""The room of one session: a group under a condition, who can be asked, and what they stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.candidates import candidates
from folkmoot.studies.negotiation.conditions import Condition
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import SYSTEM, Line
from folkmoot.studies.negotiation.groups import Group, Member
from folkmoot.studies.negotiation.operators.outcome import listed
from folkmoot.studies.negotiation.purity import purify
from folkmoot.studies.negotiation.slots import Topic, slot_of
from folkmoot.studies.negotiation.tally import Ballot, Tally, count
from folkmoot.studies.negotiation.wording import spelled

# Topic → member id → the text of the stated preference. A member whose preference could not be
# had is not in the mapping.
Stated = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Room:
    """One group under one condition. `stated` holds what this condition may use of it."""

    group: Group
    condition: Condition
    stated: Stated
    topics: tuple[Topic, ...]
    config: NegotiationConfig
    endings: Stated = field(default_factory=dict)  # how the replies ended that state preferences

    @property
    def key(self) -> str:
        return f"{self.group.id}-{self.condition.id}"

    @property
    def members(self) -> tuple[Member, ...]:
        """The members this condition hears: one under C1, else all."""
        return self.group.members[:1] if self.condition.one_member else self.group.members

    def texts(self, topic: str) -> dict[str, str]:
        heard = {m.id for m in self.members}
        return {m: t for m, t in self.stated.get(topic, {}).items() if m in heard}

    def options(self, topic: Topic, ballots: Mapping[str, Ballot] | None = None) -> tuple[str, ...]:
        return candidates(topic.options, self.texts(topic.id), ballots)

    def tally(self, topic: Topic, ballots: Mapping[str, Ballot] | None = None) -> Tally:
        """The tally of what was stated (and of ballots) on the options that were named."""
        group = Group(self.group.id, self.group.type, self.members)
        return count(group, self.texts(topic.id), self.options(topic, ballots), ballots)

    def seen(self, text: str) -> str:
        """A text as members and the planner may see it: C3's are purified."""
        return purify(text) if self.condition.synthesis == "raw" else text

    def line(
        self,
        speaker: str,
        intent: str,
        text: str,
        phase: str,
        topic: str,
        round: int | None = None,
        finish: str | None = None,
    ) -> Line:
        slot = slot_of(topic)
        if speaker == SYSTEM or intent == "user_vote":  # words of ours; members' stay as said
            text = spelled(text)
        return Line(speaker, f"{intent}_{slot}", self.seen(text), phase, topic, round, finish)

    def preference_lines(self, topic: Topic) -> tuple[Line, ...]:
        texts = self.texts(topic.id)
        return tuple(
            self.line(
                *(m.name, "user_provide", texts[m.id], "preference", topic.id),
                finish=self.endings.get(topic.id, {}).get(m.id),
            )
            for m in self.members
            if m.id in texts
        )


def member_speaker(scope: Scope, group: Group, member: Member, days: int) -> Speaker:
    """A member as somebody who can be asked."""
    others = [m.name for m in group.members if m.id != member.id]
    system = scope.prompt(
        "member_system",
        persona=member.persona.rstrip() or f"a traveller, {member.name}.",
        me=member.name,
        companions=listed(others),
        group_title=group.type.title,
        days=days,
    )
    return Speaker(member.id, member.name, "participant", system)


def mediator(scope: Scope) -> Speaker:
    """The System: one neutral mediator, asked for the exchange as a whole."""
    return Speaker("system", "System", "moderator", scope.prompt("mediator_system"))


def listing(room: Room, topic: Topic) -> list[dict[str, str]]:
    """Names and stated preferences, as the prompts list them."""
    texts = room.texts(topic.id)
    return [
        {"name": m.name, "text": room.seen(" ".join(texts[m.id].split()))}
        for m in room.members
        if m.id in texts
    ]
