"""What each person says without the others: in private before and after the talk, and in an
interview of their own where that is the control."""

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
    """What one person says in private: what they think of it, and whether they would buy it.

    `retest`: the same question about their opinion, asked a second time before the talk.
    """

    statement: Statement
    intents: tuple[PurchaseIntent, ...]
    retest: Statement | None = None


async def ask_in_private(
    scope: Scope, people: Sequence[Participant], talk: TableDiscussion | None = None
) -> list[PrivateAnswers]:
    """Everybody is asked in private, before anything was said or after a talk.

    Before the talk models are asked for their position twice, in two fresh conversations: what
    differs is the noise of asking. Humans are asked once, since they would remember.
    With seeded opinions nobody is asked for a position: the planted one holds before the talk, the
    one last read after it.
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
        if talk is None:
            who = with_opinion(who, statement)
        return PrivateAnswers(
            statement, await who.state_purchase_intent(scope.child("intent"), when, said), retest
        )

    return list((await scope.map(people, ask_participant)).values())


async def _state_before(who: Participant, scope: Scope) -> Statement:
    return await who.state_opinion(scope, InterviewTime.BEFORE, [])


class Interview(NamedTuple):
    """What was said between one person and the moderator, and in private afterwards."""

    messages: tuple[DiscussionMessage, ...]
    private: PrivateAnswers


async def interview_participants(
    scope: Scope,
    people: Sequence[Participant],
    guide: Mapping[DiscussionPhase, Sequence[str]],
) -> dict[str, Interview]:
    """With `control: alone`, each of the same people is interviewed without the others.

    The questions are the guide's own words, every one of them; each interview starts from the
    first opinion, as the talk did.
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
    """Return a participant with the first opinion that they stated, if they did."""
    if said.position is None:
        return who
    opinion = Opinion(valence=said.position, sentence=said.words)
    persona = who.persona.model_copy(update={"opinion": opinion})
    return replace(who, persona=persona, first_words=said.quoted_text)
