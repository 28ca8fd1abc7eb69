"""Private questions before and after the discussion, and interviews with one participant each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.transcript import last_finish_reason
from folkmoot.engine.session.session import Scope
from folkmoot.kit.retest import ask_twice
from folkmoot.people.sources.grounded import Opinion
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    MODERATOR,
    DiscussionMessage,
    InterviewTime,
    MessageRole,
    PurchaseIntent,
    Statement,
)
from folkmoot.studies.focus_group.participants import Participant
from folkmoot.studies.focus_group.tables import say_message, say_statement
from folkmoot.studies.focus_group.talk.table import TableDiscussion


class PrivateAnswers(NamedTuple):
    """The private answers of one participant at one time."""

    statement: Statement
    intents: tuple[PurchaseIntent, ...]
    # The second opinion, if the participant is asked twice before the discussion.
    retest: Statement | None = None


async def ask_in_private(
    scope: Scope, people: Sequence[Participant], talk: TableDiscussion | None = None
) -> list[PrivateAnswers]:
    """Ask each participant in private for an opinion and for the intent to buy.

    `talk`: the finished discussion. None before the discussion.
    """
    # Before the discussion, models are asked for their position twice, and the difference is noise.
    # Humans are asked once, because they would remember their answer. With seeded opinions (drawn
    # with the persona) no position is asked for.
    when = InterviewTime.AFTER if talk else InterviewTime.BEFORE
    messages = talk.messages if talk else []

    async def ask_participant(scope: Scope, participant: Participant) -> PrivateAnswers:
        retest = None
        if participant.config.first_opinion == "seeded":
            opinion = participant.persona.opinion
            statement = Statement(
                persona_id=participant.id,
                when=when,
                position=talk.current_position(participant) if talk else participant.first_position,
                words="" if talk or not opinion else opinion.sentence,
                planted=talk is None,
            )
            statement = say_statement(
                scope.child("opinion"), participant.texts, statement, participant.name, ""
            )
        elif talk or scope.is_human(participant.id):
            statement = await participant.state_opinion(scope.child("opinion"), when, messages)
        else:
            statement, retest_statement = await ask_twice(
                scope, "opinion", partial(_state_before, participant)
            )
            retest = retest_statement.model_copy(update={"when": InterviewTime.RETEST})
        # The intent is asked with the stated opinion in the system prompt, as all later questions
        # are.
        if talk is None:
            participant = with_opinion(participant, statement)
        return PrivateAnswers(
            statement,
            await participant.state_purchase_intent(scope.child("intent"), when, messages),
            retest,
        )

    return list((await scope.map(people, ask_participant)).values())


async def _state_before(participant: Participant, scope: Scope) -> Statement:
    return await participant.state_opinion(scope, InterviewTime.BEFORE, [])


class Interview(NamedTuple):
    """The messages of one participant's interview, and the private answers after it."""

    messages: tuple[DiscussionMessage, ...]
    private: PrivateAnswers


async def interview_participants(
    scope: Scope,
    people: Sequence[Participant],
    guide: Mapping[DiscussionPhase, Sequence[str]],
) -> dict[str, Interview]:
    """Interview each participant alone. Return a map from participant id to interview.

    Returns an empty dict unless the study has `control: alone`.
    """
    # The interviewer asks all questions of the guide word for word. The prompts contain the
    # participant's first opinion and no words of other participants.

    async def interview_person(scope: Scope, participant: Participant) -> Interview:
        participant = replace(participant, alone=True)
        messages: list[DiscussionMessage] = []
        for number, (phase, question) in enumerate(asked_of_all, 1):
            question_message = DiscussionMessage(
                role=MessageRole.MODERATOR,
                speaker_id=MODERATOR,
                speaker_name="Interviewer",
                content=question,
                phase=phase,
                turn_number=len(messages) + 1,
                question=number,
            )
            question_scope = scope.child(f"q{number:02d}")
            question_message = say_message(
                question_scope,
                participant.texts,
                question_message,
                address="",
                interviewed_id=participant.id,
            )
            messages.append(question_message)
            reply = await participant.respond(
                # Nobody else can answer, so the participant always does.
                question_scope,
                question_message,
                messages,
                addressed=True,
            )
            if isinstance(reply, Missing):
                continue
            answer = DiscussionMessage(
                role=MessageRole.PARTICIPANT,
                speaker_id=participant.id,
                speaker_name=participant.name,
                content=reply,
                phase=phase,
                turn_number=len(messages) + 1,
                question=number,
                position=1,
                finish=last_finish_reason(question_scope),
            )
            messages.append(
                say_message(
                    question_scope,
                    participant.texts,
                    answer,
                    address=question_scope.address,
                    interviewed_id=participant.id,
                )
            )
        statement = await participant.state_opinion(
            scope.child("opinion"), InterviewTime.ALONE, messages
        )
        intents = await participant.state_purchase_intent(
            scope.child("intent"), InterviewTime.ALONE, messages
        )
        return Interview(tuple(messages), PrivateAnswers(statement, intents))

    asked_of_all = [
        (phase, question) for phase, questions in guide.items() for question in questions
    ]
    interviewed = [participant for participant in people if participant.config.control == "alone"]
    return await scope.map(interviewed, interview_person)


def with_opinion(participant: Participant, statement: Statement) -> Participant:
    """Return a copy of the participant. The first opinion of the copy is `statement`."""
    # The participant is unchanged if the statement has no position.
    if statement.position is None:
        return participant
    opinion = Opinion(valence=statement.position, sentence=statement.words)
    persona = participant.persona.model_copy(update={"opinion": opinion})
    return replace(participant, persona=persona, first_words=statement.quoted_text)
