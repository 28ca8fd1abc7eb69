"""Phase 1: each member states a preference for each slot, once for all conditions."""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.groups import Group, Member
from folkmoot.studies.negotiation.room import Stated, member_speaker
from folkmoot.studies.negotiation.slots import Topic

Answered = tuple[str | Missing, str | None]  # a preference, and how the reply ended


async def collect(
    scope: Scope, group: Group, topics: Sequence[Topic], days: int
) -> tuple[Stated, Stated]:
    """What a group's members state, and how the replies ended that say it; ready-made texts are
    taken as they are. Records the table `preferences`."""

    async def interview(at: Scope, member: Member) -> dict[str, Answered]:
        return await _interview(at, group, member, topics, days)

    said = await scope.each(group.members, interview)
    stated: dict[str, dict[str, str]] = {t.id: {} for t in topics}
    endings: dict[str, dict[str, str]] = {t.id: {} for t in topics}
    for member_id, answers in said.items():
        for topic, (answer, finish) in answers.items():
            if not isinstance(answer, Missing):
                stated[topic][member_id] = answer
                if finish is not None:
                    endings[topic][member_id] = finish
    return stated, endings


async def _interview(
    scope: Scope, group: Group, member: Member, topics: Sequence[Topic], days: int
) -> dict[str, Answered]:
    who = member_speaker(scope, group, member, days)
    answers: dict[str, Answered] = {}
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
        answers[topic.id] = answer, at.finish
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
                "finish": at.finish,
                "given": bool(ready),
                "options_shown": "; ".join(shown),
            },
        )
    return answers
