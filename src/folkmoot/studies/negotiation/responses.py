"""Members who answer the System themselves, if the study file sets `members_speak`.

In the source study one reply of the mediator holds the whole exchange: the proposal and what each
member says to it. With `members_speak` the mediator writes only the words of the System, and each
member is asked. So a human can take a member's seat under C3 to C5.
"""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.session.session import Scope
from folkmoot.studies.negotiation.ballots import show_line
from folkmoot.studies.negotiation.decision import (
    DialogueTurn,
    Negotiation,
    Origin,
    SlotDecision,
)
from folkmoot.studies.negotiation.participants import member_speaker
from folkmoot.studies.negotiation.quotes import quote_preference, quote_topic
from folkmoot.studies.negotiation.rules.strategies import Member


async def collect_responses(
    scope: Scope,
    case: Negotiation,
    decision: SlotDecision,
    heard: Sequence[DialogueTurn],
    members: Sequence[Member],
    round: int | None = None,
) -> list[DialogueTurn]:
    """Ask members one after the other for a response, and return their utterances.

    Each member reads `heard`, and what the members asked before have said. A member who gives no
    answer says nothing. `round` is the number of the feedback round, or None if the members respond
    to the proposal.
    """
    topic, intent = case.topic(decision.topic), "user_feedback" if round else "user_respond"
    responses: list[DialogueTurn] = []
    for member in members:
        member_scope = scope.child(member.id)
        lines = [show_line(case, topic, decision, line) for line in (*heard, *responses)]
        prompt = member_scope.prompt(
            "response",
            label=quote_topic(topic, "label"),
            preference=quote_preference(case, topic, member.id),
            dialogue=[line for line in lines if line is not None],
        )
        speaker = member_speaker(member_scope, case.group, member, case.config.days)
        answer = await member_scope.ask(speaker, prompt, about=topic.label)
        if not isinstance(answer, Missing):
            origin = Origin(
                member_scope.address or "",
                author=member.id,
                finish=member_scope.finish,
                round=round,
            )
            responses.append(case.record_line(scope, member.id, intent, answer, topic, origin))
    return responses
