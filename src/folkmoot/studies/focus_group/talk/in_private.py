"""Private questions before and after the discussion, and interviews without the others."""

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
    """The private answers of one participant: opinion and purchase intent.

    `retest` is the opinion of the second asking before the discussion.
    """

    statement: Statement
    intents: tuple[PurchaseIntent, ...]
    retest: Statement | None = None


async def ask_in_private(
    scope: Scope, people: Sequence[Participant], talk: TableDiscussion | None = None
) -> list[PrivateAnswers]:
    """Ask each participant in private, before the discussion or after it (`talk`).

    Before the discussion models are asked for their position twice, in two fresh conversations. The
    difference is the noise of asking. Humans are asked once, because they would remember their
    answer. With seeded opinions no position is asked for. The planted position holds before the
    discussion, and the last one that the coder read holds after it.
    """
    when = InterviewTime.AFTER if talk else InterviewTime.BEFORE
    said = talk.messages if talk else []

    async def ask_participant(scope: Scope, who: Participant) -> PrivateAnswers:
        retest = None
        if who.config.first_opinion == "seeded":
            opinion = who.persona.opinion
            statement = Statement(
                persona_id=who.id,
                when=when,
                position=talk.current_position(who) if talk else who.first_position,
                words="" if talk or not opinion else opinion.sentence,
                planted=talk is None,
            )
            statement = say_statement(scope.child("opinion"), who.texts, statement, who.name, "")
        elif talk or scope.is_human(who.id):
            statement = await who.state_opinion(scope.child("opinion"), when, said)
        else:
            statement, again = await ask_twice(scope, "opinion", partial(_state_before, who))
            retest = again.model_copy(update={"when": InterviewTime.RETEST})
        # The intent is asked with the stated opinion in the system prompt, as all later questions
        # are.
        if talk is None:
            who = with_opinion(who, statement)
        return PrivateAnswers(
            statement, await who.state_purchase_intent(scope.child("intent"), when, said), retest
        )

    return list((await scope.map(people, ask_participant)).values())


async def _state_before(who: Participant, scope: Scope) -> Statement:
    return await who.state_opinion(scope, InterviewTime.BEFORE, [])


class Interview(NamedTuple):
    """The messages of one participant and the interviewer, and the private answers afterwards."""

    messages: tuple[DiscussionMessage, ...]
    private: PrivateAnswers


async def interview_participants(
    scope: Scope,
    people: Sequence[Participant],
    guide: Mapping[DiscussionPhase, Sequence[str]],
) -> dict[str, Interview]:
    """Interview each participant without the others, if the study has `control: alone`.

    The interviewer asks all questions of the guide in their words. Each interview starts from the
    first opinion, as the discussion did.
    """

    async def interview_person(scope: Scope, who: Participant) -> Interview:
        who = replace(who, alone=True)
        said: list[DiscussionMessage] = []
        for number, (phase, question) in enumerate(asked_of_all, 1):
            asked = DiscussionMessage(
                role=MessageRole.MODERATOR,
                speaker_id=MODERATOR,
                speaker_name="Interviewer",
                content=question,
                phase=phase,
                turn_number=len(said) + 1,
                question=number,
            )
            at = scope.child(f"q{number:02d}")
            asked = say_message(at, who.texts, asked, address="", interviewed=who.id)
            said.append(asked)
            words = await who.respond(at, asked, said, addressed=True)
            if isinstance(words, Missing):
                continue
            answer = DiscussionMessage(
                role=MessageRole.PARTICIPANT,
                speaker_id=who.id,
                speaker_name=who.name,
                content=words,
                phase=phase,
                turn_number=len(said) + 1,
                question=number,
                position=1,
                finish=last_finish_reason(at),
            )
            said.append(say_message(at, who.texts, answer, address=at.address, interviewed=who.id))
        statement = await who.state_opinion(scope.child("opinion"), InterviewTime.ALONE, said)
        intents = await who.state_purchase_intent(scope.child("intent"), InterviewTime.ALONE, said)
        return Interview(tuple(said), PrivateAnswers(statement, intents))

    asked_of_all = [
        (phase, question) for phase, questions in guide.items() for question in questions
    ]
    wanted = [who for who in people if who.config.control == "alone"]
    return await scope.map(wanted, interview_person)


def with_opinion(who: Participant, said: Statement) -> Participant:
    """Return the participant with the first opinion that they stated, if they stated one."""
    if said.position is None:
        return who
    opinion = Opinion(valence=said.position, sentence=said.words)
    persona = who.persona.model_copy(update={"opinion": opinion})
    return replace(who, persona=persona, first_words=said.quoted_text)
