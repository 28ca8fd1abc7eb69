"""The discussion of one group: who answers a question, who is probed, and how answers are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.sentiment import lexicon_version, sentiment_score
from folkmoot.conversation.transcript import last_finish_reason
from folkmoot.engine.session.session import Scope
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    MODERATOR,
    DiscussionMessage,
    MessageRole,
    ModeratorNotes,
)
from folkmoot.studies.focus_group.participants import Participant
from folkmoot.studies.focus_group.tables import say_message
from folkmoot.studies.focus_group.talk import reading
from folkmoot.studies.focus_group.talk.character import is_out_of_character
from folkmoot.studies.focus_group.talk.moderator import Moderator, Question, respondent_limits

# Maximum number of probes in a row: why is that so, and why does that matter?
PROBE_LADDER = 2


@dataclass
class TableDiscussion:
    """The discussion of one group so far, and the rules of a question.

    `silences` holds (question, participant id, reason) of missing answers.
    """

    config: DiscussionConfig
    moderator: Moderator
    participants: Sequence[Participant]
    messages: list[DiscussionMessage] = field(default_factory=list)
    notes: list[ModeratorNotes] = field(default_factory=list)
    silences: list[tuple[int, str, str]] = field(default_factory=list)
    questions: int = 0
    probes: int = 0

    async def question(self, scope: Scope, phase: DiscussionPhase, index: int) -> None:
        """Ask one question: the chosen participants answer in turn, and at most one is probed.

        A participant is probed for the reason and then for why it matters. Probes keep to the
        limits of the question: if it is full, the last participant who may wait does not answer.
        There are at most half as many probes as questions, which limits the length of a discussion.
        """
        self.questions += 1
        scope = scope.child(f"q{self.questions:02d}")
        moderator = self.moderator
        at = scope.child("moderator")
        question = await moderator.generate_question(at, phase, index, self.messages)
        # The notes are kept as they are now, because the next question changes them.
        self.notes.append(
            ModeratorNotes(
                question=self.questions,
                summary=moderator.summary,
                unanswered=moderator.unanswered,
            )
        )
        waiting = moderator.select_respondents(
            self.participants,
            question.asks,
            self.messages,
            self.config.all_questions - self.questions,
            scope.child("floor").rng,
        )
        asked = self._add_moderator_question(at, phase, question)
        probed = False
        while waiting:
            speaker = waiting.pop(0)
            answer = await self._record_answer(scope, speaker, asked)
            while answer and (answer.rung or not probed):
                after = self._remaining_respondents(asked, waiting)
                if after is None or answer.rung == PROBE_LADDER:
                    break
                names = (f"probe{answer.rung or ''}", f"again{answer.rung or ''}")
                at = scope.child(speaker.id, names[0])
                text = await moderator.generate_followup(at, answer, self.messages)
                if not text:
                    break
                probed, waiting = True, after
                self.probes += 1
                follow_up = Question(text, asks=(speaker.id,), takes_up=answer)
                probe = self._add_moderator_question(at, phase, follow_up, rung=answer.rung + 1)
                answer = await self._record_answer(
                    scope.child(speaker.id, names[1]), speaker, probe
                )

    def _answer_count(self) -> int:
        """Return the number of answers to the current question so far."""
        return sum(
            discussion_message.by_participant and discussion_message.question == self.questions
            for discussion_message in self.messages
        )

    def _remaining_respondents(
        self, asked: DiscussionMessage, waiting: list[Participant]
    ) -> list[Participant] | None:
        """Return who still answers the question if a probe is made, or None without room for it.

        Participants who were addressed or have not spoken yet stay.
        """
        if self.probes >= self.config.all_questions // 2:
            return None
        fewest, most = respondent_limits(len(self.participants), self.config.responses_cap)
        if self._answer_count() + len(waiting) < most:
            return waiting
        here = {
            discussion_message.speaker_id
            for discussion_message in self.messages
            if discussion_message.question == self.questions
        }
        spoken = {discussion_message.speaker_id for discussion_message in self.messages}
        free = [
            participant
            for participant in waiting
            if participant.id in spoken and participant.id not in asked.asks
        ]
        if len(here - {MODERATOR}) + len(waiting) <= fewest or not free:
            return None
        return [participant for participant in waiting if participant is not free[-1]]

    async def _record_answer(
        self, scope: Scope, who: Participant, asked: DiscussionMessage
    ) -> DiscussionMessage | None:
        """Ask for one answer, let the coder read it and record it. Return None if it is missing."""
        called = who.id in asked.asks
        at = scope.child(who.id, "says")
        said = await who.respond(at, asked, self.messages, addressed=called)
        self.moderator.note_answer(who.id, not isinstance(said, Missing))
        if isinstance(said, Missing):
            self.silences.append((self.questions, who.id, said.reason))
            return None
        last = self.current_position(who)
        now = await reading.read_position(
            scope.child(who.id, "position"), who, last, asked, said, self.messages
        )
        # The answer to a probe responds to the moderator unless the coder read another reference.
        to = now.takes_up or (asked if asked.probe else None)
        by_model = self.config.sentiment == reading.MODEL and now.sentiment is not None
        felt = now.sentiment if by_model else sentiment_score(said)
        return self._add_message(
            at,
            DiscussionMessage(
                turn_number=len(self.messages) + 1,
                question=self.questions,
                role=MessageRole.PARTICIPANT,
                speaker_id=who.id,
                speaker_name=who.name,
                content=said,
                phase=asked.phase,
                replied_to=to.speaker_id if to else None,
                replied_to_turn=to.turn_number if to else None,
                sentiment=felt,
                sentiment_source=reading.MODEL if by_model else lexicon_version(),
                changed_mind=now.changed,
                valence=now.valence,
                position=self._answer_count() + 1,
                addressed=called,
                probe=asked.probe,
                rung=asked.rung,
                stance=now.stance,
                surprising=reading.is_surprising(now.stance, felt, last, now.changed),
                reading_missing=now.missing,
                out_of_character=is_out_of_character(said),
                finish=last_finish_reason(at),
            ),
            at.address,
        )

    def current_position(self, who: Participant) -> float | None:
        """Return the last known position of a participant: in the discussion, else in private."""
        own = [
            discussion_message.valence
            for discussion_message in self.messages
            if discussion_message.speaker_id == who.id and discussion_message.valence is not None
        ]
        return own[-1] if own else who.first_position

    def _add_moderator_question(
        self, scope: Scope, phase: DiscussionPhase, question: Question, rung: int = 0
    ) -> DiscussionMessage:
        """Record a question of the moderator.

        If the question was not planned, its text is the last reply in `scope`.
        """
        taken_up = question.takes_up
        return self._add_message(
            scope,
            DiscussionMessage(
                turn_number=len(self.messages) + 1,
                question=self.questions,
                role=MessageRole.MODERATOR,
                speaker_id=MODERATOR,
                speaker_name="Moderator",
                content=question.text,
                phase=phase,
                replied_to=taken_up.speaker_id if taken_up else None,
                replied_to_turn=taken_up.turn_number if taken_up else None,
                sentiment=sentiment_score(question.text),
                sentiment_source=lexicon_version(),
                asks=question.asks,
                probe=rung > 0,
                rung=rung,
                out_of_character=is_out_of_character(question.text),
                finish=None if question.planned else last_finish_reason(scope),
            ),
            "" if question.planned else scope.address,
        )

    def _add_message(
        self, scope: Scope, message: DiscussionMessage, address: str
    ) -> DiscussionMessage:
        """Record a message. `address` is that of the reply, empty for other texts."""
        said = say_message(scope, self.moderator.texts, message, address=address)
        self.messages.append(said)
        return said
