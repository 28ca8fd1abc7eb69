"""One discussion from the welcome to the private question at the end.

Sequential by nature: each speaker has heard those before. Groups and concepts run side by side
(see `protocol`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from folkmoot.conversation.answers import Choice, Missing
from folkmoot.conversation.transcript import how_ended
from folkmoot.engine.session import Scope, Session
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import alone, opinion, sentiment, speaking, takeup
from folkmoot.studies.focus_group.answering import Queue
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    MODERATOR,
    DiscussionMessage,
    DiscussionTranscript,
    MessageRole,
    PurchaseIntent,
    heard,
)
from folkmoot.studies.focus_group.llm_client import LLMClient, MockLLMClient
from folkmoot.studies.focus_group.moderator import Moderator
from folkmoot.studies.focus_group.participant import Participant
from folkmoot.studies.focus_group.recruits import recruit


@dataclass
class Table:
    """What has happened at one table so far; lives inside one discussion only."""

    participants: Sequence[Participant]
    moderator: Moderator
    positions: dict[str, float]
    messages: list[DiscussionMessage] = field(default_factory=list)
    silences: list[tuple[int, str, str]] = field(default_factory=list)
    questions: int = 0
    probes: int = 0


@dataclass(frozen=True)
class DiscussionSimulator:
    """One group on one concept. `config` is that of the concept (`DiscussionConfig.on`).

    From Python: `await DiscussionSimulator(config).run()`. Without personas they are recruited;
    `llm_client` answers where there is no scope, None means a `MockLLMClient`.
    """

    config: DiscussionConfig
    llm_client: LLMClient | None = None
    personas: tuple[Profile, ...] = ()
    group: str = "group_001"
    stimulus: str = "concept"

    async def run(self, scope: Scope | None = None) -> DiscussionTranscript:
        """The whole discussion: guide, phases, and what everybody would buy."""
        if scope is None:
            client = self.llm_client or MockLLMClient(self.config.random_seed)
            return await alone.played(self.config, client, self._recruited)
        names = {p.id: p.first_name for p in self.personas}
        moderator = await Moderator(self.config, names).prepared(scope.at("guide"))
        participants = [Participant(p, self.config).seated(scope) for p in self.personas]
        table = Table(
            participants,
            moderator,
            {p.id: p.opinion.valence if p.opinion else 0.0 for p in self.personas},
        )
        for phase in self.config.phases:
            await self._run_phase(scope.at(phase.value), phase, table)
        intents = await self._intents(scope.at("intent"), table)
        return DiscussionTranscript(
            group=self.group,
            stimulus=self.stimulus,
            config=self.config,
            messages=tuple(table.messages),
            personas=self.personas,
            guide=dict(moderator.discussion_guide),
            intents=tuple(intents),
            silences=tuple(table.silences),
        )

    async def _recruited(self, session: Session) -> DiscussionTranscript:
        """The discussion in a session of its own, with people recruited for it if need be."""
        people = self.personas or tuple(next(iter(recruit(session).values())))
        seated = replace(self, personas=people)
        return await seated.run(session.at("discussion", self.group, self.stimulus))

    async def _run_phase(self, scope: Scope, phase: DiscussionPhase, table: Table) -> None:
        """The questions of one phase, one after another."""
        for index in range(self.config.questions_per_phase):
            table.questions += 1
            await self._question(scope.at(f"q{table.questions:02d}"), phase, index, table)

    async def _question(
        self, scope: Scope, phase: DiscussionPhase, index: int, table: Table
    ) -> None:
        """The moderator asks; those who are chosen answer in turn; perhaps one is probed."""
        moderator, config = table.moderator, self.config
        left = len(config.phases) * config.questions_per_phase - table.questions
        at = scope.at("moderator")
        question = await moderator.generate_question(
            at, phase, index, table.messages, moderator.quiet(table.messages)
        )
        by_guide = question == moderator.discussion_guide[phase][index]
        order = moderator.select_respondents(
            table.participants, question, table.messages, left, scope.at("floor").rng
        )
        finish = None if by_guide else how_ended(at)
        table.messages.append(self._asked(question, phase, table, finish))
        fewest, most = speaking.room(len(table.participants), config.responses_cap)
        called = set(speaking.addressed(question, moderator.names))
        queue = Queue(list(order), most, fewest, called | set(_silent(table)))
        while (speaker := queue.next()) is not None:
            message = await self._answer(scope, phase, speaker, question, queue.answers + 1, table)
            if message is None:
                continue
            queue.answers += 1
            if table.probes < self._most_probes and queue.room_for_probe():
                await self._probe(scope, phase, speaker, message, queue, table)

    @property
    def _most_probes(self) -> int:
        """At most every other question has a probe, which keeps a discussion in its length."""
        return (len(self.config.phases) * self.config.questions_per_phase) // 2

    async def _probe(
        self,
        scope: Scope,
        phase: DiscussionPhase,
        speaker: Participant,
        message: DiscussionMessage,
        queue: Queue,
        table: Table,
    ) -> None:
        asking = scope.at(speaker.id, "probe")
        probe = await table.moderator.generate_followup(asking, message, table.messages)
        if probe is None:
            return
        table.probes += 1
        queue.make_room()
        table.messages.append(self._asked(probe, phase, table, how_ended(asking), to=message))
        at = scope.at(speaker.id, "again")
        again = await self._answer(at, phase, speaker, probe, queue.answers + 1, table, probe=True)
        queue.answers += again is not None

    async def _answer(
        self,
        scope: Scope,
        phase: DiscussionPhase,
        speaker: Participant,
        question: str,
        position: int,
        table: Table,
        *,
        probe: bool = False,
    ) -> DiscussionMessage | None:
        """One answer with all that is read from it; None (and a note) when there is none."""
        addressed = probe or speaker.id in speaking.addressed(question, table.moderator.names)
        at = scope.at(speaker.id, "says")
        said = await speaker.respond(
            at,
            question,
            table.messages,
            phase,
            addressed=addressed,
            probe=probe,
        )
        if isinstance(said, Missing):
            table.silences.append((table.questions, speaker.id, said.reason))
            return None
        last = table.positions[speaker.id]
        now = await opinion.read_position(
            scope.at(speaker.id, "position"), self.config, speaker.persona, last, question, said
        )
        table.positions[speaker.id] = now.valence
        message = self._said(speaker, said, phase, position, table, last, now, probe, addressed)
        message = message.model_copy(update={"finish": how_ended(at)})
        table.messages.append(message)
        return message

    def _said(
        self,
        speaker: Participant,
        said: str,
        phase: DiscussionPhase,
        position: int,
        table: Table,
        last: float,
        now: opinion.Position,
        probe: bool,
        addressed: bool,
    ) -> DiscussionMessage:
        names = table.moderator.names
        target = takeup.reply_target(said, speaker.id, table.messages, names)
        by_model = self.config.sentiment == "model" and now.sentiment is not None
        tone = now.sentiment if by_model else sentiment.rate(said)
        stance = takeup.stance(said)
        replied_to = target.speaker_id if target else (MODERATOR if probe else None)
        asked = table.messages[-1].turn_number if probe else None
        return DiscussionMessage(
            role=MessageRole.PARTICIPANT,
            speaker_id=speaker.id,
            speaker_name=speaker.name,
            content=said,
            phase=phase,
            turn_number=len(table.messages) + 1,
            replied_to=replied_to,
            replied_to_turn=target.turn_number if target else asked,
            sentiment=tone,
            sentiment_source=sentiment.MODEL if by_model else sentiment.lexicon_source(),
            changed_mind=now.changed,
            valence=now.valence,
            question=table.questions,
            position=position,
            addressed=addressed,
            probe=probe,
            stance=stance,
            surprising=takeup.surprising(stance, tone, last, now.changed),
        )

    def _asked(
        self,
        text: str,
        phase: DiscussionPhase,
        table: Table,
        finish: str | None,
        to: DiscussionMessage | None = None,
    ) -> DiscussionMessage:
        return DiscussionMessage(
            role=MessageRole.MODERATOR,
            speaker_id=MODERATOR,
            speaker_name="Moderator",
            content=text,
            phase=phase,
            turn_number=len(table.messages) + 1,
            replied_to=to.speaker_id if to else None,
            replied_to_turn=to.turn_number if to else None,
            sentiment=sentiment.rate(text),
            sentiment_source=sentiment.lexicon_source(),
            question=table.questions,
            probe=to is not None,
            finish=finish,
        )

    async def _intents(self, scope: Scope, table: Table) -> list[PurchaseIntent]:
        """What each would buy, asked in private and side by side."""
        context = heard(tuple(table.messages), self.config.context_messages)

        async def ask(scope: Scope, who: Participant) -> PurchaseIntent:
            prompt = scope.prompt(
                "purchase_intent", options=INTENTS, concept=self.config.product_concept
            )
            got = await scope.ask(who.speaker, prompt, heard=context, answer=Choice(INTENTS))
            if isinstance(got, Missing):
                return PurchaseIntent(persona_id=who.id, answer=None, missing=got.reason)
            return PurchaseIntent(persona_id=who.id, answer=got)

        return list((await scope.each(table.participants, ask)).values())


def _silent(table: Table) -> list[str]:
    """Ids of those who have said nothing yet."""
    spoken = {m.speaker_id for m in table.messages}
    return [p.id for p in table.participants if p.id not in spoken]
