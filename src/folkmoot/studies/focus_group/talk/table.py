"""What happens at one table: who answers a question, who is probed, what is read from an answer."""

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

PROBE_LADDER = 2  # of a ladder of probes: why is that so, and why does that matter?


@dataclass
class TableDiscussion:
    """What has happened at one table so far, and the rules of a question."""

    config: DiscussionConfig
    moderator: Moderator
    participants: Sequence[Participant]
    messages: list[DiscussionMessage] = field(default_factory=list)
    notes: list[ModeratorNotes] = field(default_factory=list)
    silences: list[tuple[int, str, str]] = field(default_factory=list)
    questions: int = 0
    probes: int = 0

    async def question(self, scope: Scope, phase: DiscussionPhase, index: int) -> None:
        """The moderator asks; those who are chosen answer in turn; at most one is probed, by why
        and then by why that matters.

        A probe and its answer keep to the limits of the question: the last who can wait drops
        out. There are at most half as many probes as questions, which keeps a discussion in its
        length.
        """
        self.questions += 1
        scope = scope.child(f"q{self.questions:02d}")
        moderator = self.moderator
        at = scope.child("moderator")
        question = await moderator.generate_question(at, phase, index, self.messages)
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
        """How many answers the question has so far."""
        return sum(
            discussion_message.by_participant and discussion_message.question == self.questions
            for discussion_message in self.messages
        )

    def _remaining_respondents(
        self, asked: DiscussionMessage, waiting: list[Participant]
    ) -> list[Participant] | None:
        """Who still answers a question if somebody is probed; None where a probe has no room.

        Neither those asked by name nor those who have not spoken yet drop out.
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
        """One answer with all that is read from it; None (and a note) when there is none."""
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
        """Where somebody stands: after their last answer, else in their private opinion."""
        own = [
            discussion_message.valence
            for discussion_message in self.messages
            if discussion_message.speaker_id == who.id and discussion_message.valence is not None
        ]
        return own[-1] if own else who.first_position

    def _add_moderator_question(
        self, scope: Scope, phase: DiscussionPhase, question: Question, rung: int = 0
    ) -> DiscussionMessage:
        """Record a question as the moderator asks it. If it was not planned, it is the last reply
        that `scope` got. `rung` as in `DiscussionMessage`."""
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
        """Record a message as it is said; `address` is that of the reply, empty for other words."""
        said = say_message(scope, self.moderator.texts, message, address=address)
        self.messages.append(said)
        return said
