"""The discussion of one group: who answers, who gets a follow-up question, and what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.sentiment import lexicon_version
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
from folkmoot.studies.focus_group.talk.moderator import (
    Moderator,
    ModeratorQuestion,
    respondent_limits,
)

# Maximum number of probes in a row: why is that so, and why does that matter?
PROBE_LADDER = 2


@dataclass
class TableDiscussion:
    """The state of one group's discussion."""

    config: DiscussionConfig
    moderator: Moderator
    participants: Sequence[Participant]
    messages: list[DiscussionMessage] = field(default_factory=list)
    notes: list[ModeratorNotes] = field(default_factory=list)
    # (Question, participant id, reason) of each missing answer.
    silences: list[tuple[int, str, str]] = field(default_factory=list)
    # The number of questions so far.
    questions: int = 0
    # The number of probes so far.
    probes: int = 0

    async def question(self, scope: Scope, phase: DiscussionPhase, index: int) -> None:
        """Ask one question, and let the chosen participants answer it in turn.

        `index` counts the questions of the phase from 0.
        """
        # One of them may be asked for the reason, and then why the reason matters.
        self.questions += 1
        scope = scope.child(f"q{self.questions:02d}")
        moderator = self.moderator
        question_scope = scope.child("moderator")
        question = await moderator.generate_question(question_scope, phase, index, self.messages)
        # The notes are kept as they are now, because the next question changes them.
        self.notes.append(
            ModeratorNotes(
                question=self.questions,
                summary=moderator.summary,
                unanswered=moderator.unanswered,
            )
        )
        respondents = moderator.select_respondents(
            self.participants,
            question.asks,
            self.messages,
            self.config.all_questions - self.questions,
            scope.child("floor").rng,
        )
        asked = self._add_moderator_question(question_scope, phase, question)
        # At most one participant is probed, and there are at most half as many probes as questions.
        has_probed = False
        while respondents:
            speaker = respondents.pop(0)
            answer = await self._record_answer(scope, speaker, asked)
            while answer and (answer.rung or not has_probed):
                remaining = self._remaining_respondents(asked, respondents)
                if remaining is None or answer.rung == PROBE_LADDER:
                    break
                names = (f"probe{answer.rung or ''}", f"again{answer.rung or ''}")
                question_scope = scope.child(speaker.id, names[0])
                text = await moderator.generate_followup(question_scope, answer, self.messages)
                if not text:
                    break
                has_probed, respondents = True, remaining
                self.probes += 1
                follow_up = ModeratorQuestion(text, asks=(speaker.id,), takes_up=answer)
                probe = self._add_moderator_question(
                    question_scope, phase, follow_up, rung=answer.rung + 1
                )
                answer = await self._record_answer(
                    scope.child(speaker.id, names[1]), speaker, probe
                )

    def _answer_count(self) -> int:
        return sum(
            discussion_message.by_participant and discussion_message.question == self.questions
            for discussion_message in self.messages
        )

    def _remaining_respondents(
        self, asked: DiscussionMessage, waiting: list[Participant]
    ) -> list[Participant] | None:
        # A follow-up may take the place of one of them. None if no follow-up can be asked.
        if self.probes >= self.config.all_questions // 2:
            return None
        min_count, max_count = respondent_limits(len(self.participants), self.config.responses_cap)
        if self._answer_count() + len(waiting) < max_count:
            return waiting
        question_speakers = {
            message.speaker_id for message in self.messages if message.question == self.questions
        }
        all_speakers = {message.speaker_id for message in self.messages}
        removable = [
            participant
            for participant in waiting
            if participant.id in all_speakers and participant.id not in asked.asks
        ]
        if len(question_speakers - {MODERATOR}) + len(waiting) <= min_count or not removable:
            return None
        return [participant for participant in waiting if participant is not removable[-1]]

    async def _record_answer(
        self, scope: Scope, participant: Participant, question: DiscussionMessage
    ) -> DiscussionMessage | None:
        # None if the answer is missing.
        is_addressed = participant.id in question.asks
        answer_scope = scope.child(participant.id, "says")
        reply = await participant.respond(
            answer_scope, question, self.messages, addressed=is_addressed
        )
        self.moderator.note_answer(participant.id, not isinstance(reply, Missing))
        if isinstance(reply, Missing):
            self.silences.append((self.questions, participant.id, reply.reason))
            return None
        last_position = self.current_position(participant)
        position_reading = await reading.read_position(
            scope.child(participant.id, "position"),
            participant,
            last_position,
            question,
            reply,
            self.messages,
        )
        # The answer to a probe responds to the moderator unless the coder read another reference.
        target = position_reading.takes_up or (question if question.probe else None)
        has_model_sentiment = (
            self.config.sentiment == reading.MODEL and position_reading.sentiment is not None
        )
        sentiment = position_reading.sentiment if has_model_sentiment else reading.rate_tone(reply)
        source = reading.MODEL if has_model_sentiment else lexicon_version()
        return self._add_message(
            answer_scope,
            DiscussionMessage(
                turn_number=len(self.messages) + 1,
                question=self.questions,
                role=MessageRole.PARTICIPANT,
                speaker_id=participant.id,
                speaker_name=participant.name,
                content=reply,
                phase=question.phase,
                replied_to=target.speaker_id if target else None,
                replied_to_turn=target.turn_number if target else None,
                sentiment=sentiment,
                sentiment_source=None if sentiment is None else source,
                changed_mind=position_reading.changed,
                valence=position_reading.valence,
                position=self._answer_count() + 1,
                addressed=is_addressed,
                probe=question.probe,
                rung=question.rung,
                stance=position_reading.stance,
                surprising=reading.is_surprising(
                    position_reading.stance, sentiment, last_position, position_reading.changed
                ),
                reading_missing=position_reading.missing,
                out_of_character=is_out_of_character(reply),
                finish=last_finish_reason(answer_scope),
            ),
            answer_scope.address,
        )

    def current_position(self, participant: Participant) -> float | None:
        """Return the last known position of a participant, or None."""
        # Until the participant has answered, it is the private position before the discussion.
        own_positions = [
            message.valence
            for message in self.messages
            if message.speaker_id == participant.id and message.valence is not None
        ]
        return own_positions[-1] if own_positions else participant.first_position

    def _add_moderator_question(
        self, scope: Scope, phase: DiscussionPhase, question: ModeratorQuestion, rung: int = 0
    ) -> DiscussionMessage:
        # A planned question has the words of the guide. Any other question is the last reply in
        # `scope`.
        reference, tone = question.takes_up, reading.rate_tone(question.text)
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
                replied_to=reference.speaker_id if reference else None,
                replied_to_turn=reference.turn_number if reference else None,
                sentiment=tone,
                sentiment_source=None if tone is None else lexicon_version(),
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
        # `address` is the reply's address in the journal, or empty without a reply.
        recorded = say_message(scope, self.moderator.texts, message, address=address)
        self.messages.append(recorded)
        return recorded
