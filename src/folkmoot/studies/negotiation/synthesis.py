"""Phase 2: the mediator's proposal, plain under C3, under the locked strategy in C4 and C5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from folkmoot.conversation.answers import Json
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.decision import SYSTEM, Line
from folkmoot.studies.negotiation.groups import RESERVED
from folkmoot.studies.negotiation.replies import (
    GuidedSynthesis,
    PlainSynthesis,
    Spoken,
    for_speakers,
)
from folkmoot.studies.negotiation.room import Room, listing, mediator
from folkmoot.studies.negotiation.slots import Topic
from folkmoot.studies.negotiation.strategies import Strategy, table
from folkmoot.studies.negotiation.tally import Tally


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the mediator returned, read. `label` is the strategy it named ("" under C3)."""

    has_conflict: bool
    conflict_description: str
    explanation: str
    label: str
    opening: str
    responses: tuple[tuple[str, str], ...]
    rung: str
    dropped: int
    finish: str | None = None  # how the mediator's reply ended


async def propose(
    scope: Scope,
    room: Room,
    topic: Topic,
    tally: Tally,
    strategy: Strategy | None = None,
    outcome: str = "",
) -> Proposal:
    """Ask the mediator. A reply that stays unreadable gives the minimal structure: whether the
    stated preferences differ, and no words."""
    names = (SYSTEM, *(m.name for m in room.members))
    shared: dict[str, Any] = {
        "group_title": room.group.type.title,
        "days": room.config.days,
        "names": list(names[1:]),
        "label": topic.label,
        "members": listing(room, topic),
        "options": [room.seen(o) for o in tally.options],
    }
    if strategy is None:
        model = for_speakers(PlainSynthesis, names)
        prompt = scope.prompt("synthesis_raw", **shared)
    else:
        model = for_speakers(GuidedSynthesis, names)
        rows = [s for (kind, _), s in table().items() if kind == room.group.type.id]
        prompt = scope.prompt(
            "synthesis_guided",
            **shared,
            group_type=room.group.type.id,
            topic=topic.id,
            strategy=strategy,
            strategies=rows,
            outcome=outcome,
        )
    minimal = model(
        has_conflict=stated_conflict(tally),
        conflict_description="",
        resolution_explanation="",
        dialogue=[],
    )
    got = await scope.exchange(mediator(scope), prompt, answer=Json(model, fallback=minimal))
    reply = got.value if isinstance(got.value, PlainSynthesis) else minimal
    assert isinstance(reply, PlainSynthesis)
    opening, responses, dropped = sort_lines(reply.dialogue, names[1:])
    return Proposal(
        has_conflict=reply.has_conflict,
        conflict_description=reply.conflict_description.strip(),
        explanation=reply.resolution_explanation.strip(),
        label=reply.resolution_strategy.strip() if isinstance(reply, GuidedSynthesis) else "",
        opening=opening,
        responses=responses,
        rung=got.rung if isinstance(got.value, PlainSynthesis) else "minimal",
        dropped=dropped,
        finish=got.reply.finish,
    )


def stated_conflict(tally: Tally) -> bool:
    """Whether the texts alone conflict: first choices differ, or one is strongly rejected."""
    wanted = {p for v in tally.voters if (p := tally.primary(v.id)) is not None}
    return len(wanted) > 1 or any(tally.rejections(o) for o in wanted)


def sort_lines(
    dialogue: Sequence[Spoken], names: Sequence[str]
) -> tuple[str, tuple[tuple[str, str], ...], int]:
    """The System's first words, the members' lines by their listed names, and how many lines had
    an unknown speaker or no words."""
    by_key = {_key(n): n for n in names}
    opening = ""
    said: list[tuple[str, str]] = []
    dropped = 0
    for line in dialogue:
        text, key = line.text.strip(), _key(line.speaker)
        if text and key in by_key:
            said.append((by_key[key], text))
        elif text and key in RESERVED:
            opening = opening or text
        else:
            dropped += 1
    return opening, tuple(said), dropped


def response_lines(room: Room, topic: Topic, proposal: Proposal) -> list[Line]:
    return [
        room.line(name, "user_respond", text, "synthesis", topic.id, finish=proposal.finish)
        for name, text in proposal.responses
    ]


def _key(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())
