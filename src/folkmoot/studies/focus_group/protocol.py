"""The focus group: recruit, discuss each concept in each group, write down what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import how_ended
from folkmoot.engine.session import Scope, Session
from folkmoot.people.sources.grounded import Opinion, Profile
from folkmoot.studies.focus_group import files, reading
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase, Stimulus
from folkmoot.studies.focus_group.discussion import (
    MODERATOR,
    DiscussionMessage,
    DiscussionTranscript,
    MessageRole,
    PurchaseIntent,
    Statement,
    When,
)
from folkmoot.studies.focus_group.moderator import Moderator, addressed, room
from folkmoot.studies.focus_group.participants import (
    Participant,
    facing,
    recruit,
    with_own_opinions,
)
from folkmoot.studies.focus_group.tables import record_discussion, record_personas


async def protocol(session: Session[DiscussionConfig], invited: Sequence[Profile] = ()) -> None:
    """All groups side by side, and within a group its concepts, each from a fresh start.

    Those `invited` sit in every group; by default each group has recruits of its own.
    """
    config = session.config
    recruits = dict.fromkeys(config.groups, invited) if invited else recruit(session)
    groups = {group: with_own_opinions(people, config) for group, people in recruits.items()}
    await session.seal(
        "recruits",
        {group: [p.model_dump(mode="json") for p in people] for group, people in groups.items()},
    )
    for group, people in groups.items():
        record_personas(session, group, people)

    async def discuss(scope: Scope, group: str) -> list[DiscussionTranscript]:
        async def on_concept(scope: Scope, stimulus: Stimulus) -> DiscussionTranscript:
            people = facing(session, group, groups[group], stimulus)
            said = await discussion(scope, config.on(stimulus), people, group, stimulus.id)
            record_discussion(scope, said)
            files.write_discussion(session, said)
            return said

        return list((await scope.each(config.concepts, on_concept)).values())

    talks = await session.at("discussion").each(config.groups, discuss, sets=str)
    files.write_topline(session, [talk for group in talks.values() for talk in group])


async def discussion(
    scope: Scope, config: DiscussionConfig, people: Sequence[Profile], group: str, stimulus: str
) -> DiscussionTranscript:
    """One group on one concept (`config` is that of the concept, see `DiscussionConfig.on`).

    The moderator plans the guide; each reads the concept in private and says what they think; the
    phases follow one another, question by question, each speaker having heard those before; at the
    end everybody is asked in private again.
    """
    moderator = Moderator(config, {p.id: p.first_name for p in people})
    await moderator.generate_discussion_guide(scope.at("guide"))
    before = await in_private(scope.at("before"), [Participant(p, config) for p in people])
    at_table = [
        Participant(with_opinion(p, said.statement), config)
        for p, said in zip(people, before, strict=True)
    ]
    talk = Talk(config, moderator, at_table)
    for phase in config.phases:
        for index in range(config.questions_per_phase):
            await talk.question(scope.at(phase.value), phase, index)
    after = await in_private(scope.at("after"), at_table, talk)
    return DiscussionTranscript(
        group=group,
        stimulus=stimulus,
        config=config,
        messages=tuple(talk.messages),
        personas=tuple(who.persona for who in at_table),
        guide=moderator.discussion_guide,
        statements=tuple(said.statement for said in (*before, *after)),
        intents=tuple(intent for said in (*before, *after) for intent in said.intents),
        silences=tuple(talk.silences),
    )


class Private(NamedTuple):
    """What one person says in private: what they think of it, and whether they would buy it."""

    statement: Statement
    intents: tuple[PurchaseIntent, ...]


async def in_private(
    scope: Scope, people: Sequence[Participant], talk: Talk | None = None
) -> list[Private]:
    """Everybody is asked in private, before anything was said or after a talk.

    With seeded opinions nobody is asked for a position: the planted one holds before the talk, the
    one last read after it.
    """
    when = When.AFTER if talk else When.BEFORE
    said = talk.messages if talk else []

    async def one(scope: Scope, who: Participant) -> Private:
        if who.config.first_opinion == "seeded":
            opinion = who.persona.opinion
            statement = Statement(
                persona_id=who.id,
                when=when,
                position=talk.position(who) if talk else who.first_position,
                words="" if talk or not opinion else opinion.sentence,
                planted=talk is None,
            )
        else:
            statement = await who.states(scope.at("opinion"), when, said)
            if talk is None:
                who = replace(who, persona=with_opinion(who.persona, statement))
        return Private(statement, await who.would_buy(scope.at("intent"), when, said))

    return list((await scope.each(people, one)).values())


def with_opinion(person: Profile, said: Statement) -> Profile:
    """A person with the first opinion that they stated, if they did."""
    if said.position is None:
        return person
    return person.model_copy(
        update={"opinion": Opinion(valence=said.position, sentence=said.words)}
    )


@dataclass
class Talk:
    """What has happened at one table so far, and the rules of a question."""

    config: DiscussionConfig
    moderator: Moderator
    participants: Sequence[Participant]
    messages: list[DiscussionMessage] = field(default_factory=list)
    silences: list[tuple[int, str, str]] = field(default_factory=list)
    questions: int = 0
    probes: int = 0

    async def question(self, scope: Scope, phase: DiscussionPhase, index: int) -> None:
        """The moderator asks; those who are chosen answer in turn; at most one is probed.

        A probe and its answer keep to the limits of the question: the last who can wait drops
        out. At most every other question has a probe, which keeps a discussion in its length.
        """
        self.questions += 1
        scope = scope.at(f"q{self.questions:02d}")
        moderator = self.moderator
        all_questions = len(self.config.phases) * self.config.questions_per_phase
        at = scope.at("moderator")
        text = await moderator.generate_question(at, phase, index, self.messages)
        respondents = moderator.select_respondents(
            self.participants,
            text,
            self.messages,
            all_questions - self.questions,
            scope.at("floor").rng,
        )
        by_guide = text == moderator.discussion_guide[phase][index]
        asked = self._asks(phase, text, None if by_guide else how_ended(at))
        waiting, probed = list(respondents), False
        while waiting:
            speaker = waiting.pop(0)
            answer = await self._answer(scope, speaker, asked)
            if answer is None or probed or self.probes >= all_questions // 2:
                continue
            after = self._waiting_after_a_probe(asked, waiting, len(respondents))
            if after is None:
                continue
            at = scope.at(speaker.id, "probe")
            text = await moderator.generate_followup(at, answer, self.messages) or ""
            if text:
                probed, waiting = True, after
                self.probes += 1
                probe = self._asks(phase, text, how_ended(at), to=answer)
                await self._answer(scope.at(speaker.id, "again"), speaker, probe)

    def _answers(self) -> int:
        """How many answers the question has so far."""
        return sum(m.by_participant and m.question == self.questions for m in self.messages)

    def _waiting_after_a_probe(
        self, asked: DiscussionMessage, waiting: list[Participant], respondents: int
    ) -> list[Participant] | None:
        """Who still answers a question if somebody is probed; None where a probe has no room.

        Neither those asked by name nor those who have not spoken yet drop out.
        """
        fewest, most = room(len(self.participants), self.config.responses_cap)
        if self._answers() + len(waiting) < most:
            return waiting
        must = addressed(asked.content, self.moderator.names)
        spoken = {m.speaker_id for m in self.messages}
        free = [p for p in waiting if p.id in spoken and p.id not in must]
        if respondents <= fewest or not free:
            return None
        return [p for p in waiting if p is not free[-1]]

    async def _answer(
        self, scope: Scope, who: Participant, asked: DiscussionMessage
    ) -> DiscussionMessage | None:
        """One answer with all that is read from it; None (and a note) when there is none."""
        names = self.moderator.names
        called = asked.probe or who.id in addressed(asked.content, names)
        at = scope.at(who.id, "says")
        said = await who.respond(at, asked, self.messages, addressed=called)
        if isinstance(said, Missing):
            self.silences.append((self.questions, who.id, said.reason))
            return None
        last = self.position(who)
        now = await reading.read_position(
            scope.at(who.id, "position"), who, last, asked.content, said
        )
        stance = reading.stance(said)
        to = reading.reply_target(said, who.id, self.messages, names)
        if to is None and asked.probe:
            to = asked
        by_model = self.config.sentiment == reading.MODEL and now.sentiment is not None
        tone = now.sentiment if by_model else reading.tone(said)
        return self._add(
            role=MessageRole.PARTICIPANT,
            speaker_id=who.id,
            speaker_name=who.name,
            content=said,
            phase=asked.phase,
            replied_to=to.speaker_id if to else None,
            replied_to_turn=to.turn_number if to else None,
            sentiment=tone,
            sentiment_source=reading.MODEL if by_model else reading.lexicon(),
            changed_mind=now.changed,
            valence=now.valence,
            position=self._answers() + 1,
            addressed=called,
            probe=asked.probe,
            stance=stance,
            surprising=reading.surprising(stance, tone, last, now.changed),
            finish=how_ended(at),
        )

    def position(self, who: Participant) -> float | None:
        """Where somebody stands: after their last answer, else in their private opinion."""
        own = [m.valence for m in self.messages if m.speaker_id == who.id and m.valence is not None]
        return own[-1] if own else who.first_position

    def _asks(
        self,
        phase: DiscussionPhase,
        text: str,
        finish: str | None,
        to: DiscussionMessage | None = None,
    ) -> DiscussionMessage:
        """The moderator's words; `to`: the answer that they probe."""
        return self._add(
            role=MessageRole.MODERATOR,
            speaker_id=MODERATOR,
            speaker_name="Moderator",
            content=text,
            phase=phase,
            replied_to=to.speaker_id if to else None,
            replied_to_turn=to.turn_number if to else None,
            sentiment=reading.tone(text),
            sentiment_source=reading.lexicon(),
            probe=to is not None,
            finish=finish,
        )

    def _add(self, **fields: Any) -> DiscussionMessage:
        turn = len(self.messages) + 1
        message = DiscussionMessage(turn_number=turn, question=self.questions, **fields)
        self.messages.append(message)
        return message
