"""Phase 1: each member states a preference for each slot, once for all conditions."""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.groups import Group, Member
from folkmoot.studies.negotiation.room import Stated, member_speaker
from folkmoot.studies.negotiation.slots import Topic


async def collect(scope: Scope, group: Group, topics: Sequence[Topic], days: int) -> Stated:
    """What a group's members state; ready-made texts are taken as they are. Records the table
    `preferences`."""

    async def interview(at: Scope, member: Member) -> dict[str, str | Missing]:
        return await _interview(at, group, member, topics, days)

    said = await scope.each(group.members, interview)
    stated: dict[str, dict[str, str]] = {t.id: {} for t in topics}
    for member_id, answers in said.items():
        for topic, answer in answers.items():
            if not isinstance(answer, Missing):
                stated[topic][member_id] = answer
    return stated


async def _interview(
    scope: Scope, group: Group, member: Member, topics: Sequence[Topic], days: int
) -> dict[str, str | Missing]:
    who = member_speaker(scope, group, member, days)
    answers: dict[str, str | Missing] = {}
    for topic in topics:
        at = scope.at(topic.id)
        # Each member sees the usual options in an order of the member's own.
        shown = [topic.options[int(i)] for i in at.rng.permutation(len(topic.options))]
        ready = member.preferences.get(topic.id)
        answer: str | Missing
        if ready:
            answer, shown = ready, []
        else:
            prompt = at.prompt(
                "preference", label=topic.label, question=topic.question, options=shown
            )
            answer = await at.ask(who, prompt)
        answers[topic.id] = answer
        at.record(
            "preferences",
            {
                "group_id": group.id,
                "group_type": group.type.id,
                "member_id": member.id,
                "member_name": member.name,
                "role": member.role,
                "slot": topic.slot,
                "topic": topic.id,
                "text": None if isinstance(answer, Missing) else answer,
                "missing": answer.reason if isinstance(answer, Missing) else None,
                "given": bool(ready),
                "options_shown": "; ".join(shown),
            },
        )
    return answers
