"""The satisfaction survey, 1–10 with a reason, before the first round and after the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from folkmoot.conversation.answers import Unreadable
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.asking import Got, Group, Stage, ask_group, ask_one
from folkmoot.studies.town_hall.consensus import with_outcomes
from folkmoot.studies.town_hall.planner import history
from folkmoot.studies.town_hall.records import (
    Ballot,
    Call,
    Consensus,
    Item,
    Outcome,
    Round,
    Satisfaction,
)
from folkmoot.studies.town_hall.references import Mend
from folkmoot.studies.town_hall.replies import Mended, One, Reader
from folkmoot.studies.town_hall.room import Room, own_statements
from folkmoot.studies.town_hall.spelling import text, whole

LOW, HIGH = 1, 10
BEFORE, AFTER = "satisfaction_before", "satisfaction_after"
TOKENS = 45
SCHEMA: dict[str, Any] = {
    "title": "Satisfaction",
    "type": "object",
    "properties": {
        "satisfaction": {"type": "integer", "minimum": LOW, "maximum": HIGH},
        "reason": {"type": "string"},
    },
    "required": ["satisfaction", "reason"],
}
UNKNOWN = Satisfaction(None)
NO_TEXT = Consensus("")


@dataclass(frozen=True, slots=True)
class Ending:
    """What there is to be satisfied with; none of it before the meeting."""

    rounds: tuple[Round, ...] = ()
    items: tuple[Item, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    ballots: Mapping[str, Ballot] = field(default_factory=dict)
    consensus: Consensus = NO_TEXT


async def survey(
    scope: Scope, room: Room, seats: Mapping[str, Speaker], ending: Ending | None
) -> tuple[dict[str, Satisfaction], list[Call]]:
    """Each resident asked alone; `ending` None is the survey before the meeting."""

    async def ask(own: Scope, who: Speaker) -> Got[Satisfaction]:
        said = own_statements(ending.rounds, who.id) if ending else []
        prompt = _prompt(own, who.id, said, ending)
        stage = Stage(AFTER if ending else BEFORE, None, len(said))
        return await ask_one(own, who, prompt, One(SCHEMA, read), stage)

    got = await scope.each([seats[i] for i in room.ids], ask)
    return {i: g.value or UNKNOWN for i, g in got.items()}, [g.call for g in got.values()]


async def shared_survey(
    scope: Scope, room: Room, session: Speaker, ending: Ending | None
) -> tuple[dict[str, Satisfaction], list[Call]]:
    """All residents' answers from the one session."""

    def prompt(chunk: list[str], _: Mapping[str, Satisfaction]) -> str:
        return scope.prompt(
            "shared_satisfaction",
            ids=chunk,
            after=ending is not None,
            items=with_outcomes(ending.items, ending.outcomes) if ending else [],
            consensus=ending.consensus.text if ending else "",
            history=history(ending.rounds) if ending else [],
        )

    readers: dict[str, Reader[Satisfaction]] = dict.fromkeys(room.ids, read)
    group = Group(readers, dict.fromkeys(room.ids, SCHEMA), TOKENS)
    stage = Stage(AFTER if ending else BEFORE, None, len(ending.rounds) if ending else 0)
    longest = room.config.longest_shared_reply
    found, calls = await ask_group(scope, session, prompt, group, stage, longest=longest)
    return {i: found.get(i, UNKNOWN) for i in room.ids}, calls


def read(raw: Mapping[str, Any]) -> Mended[Satisfaction] | Unreadable:
    """One answer. A score out of range is asked for again, never moved to the nearest."""
    said = raw.get("satisfaction")
    score = whole(said, HIGH)
    if score is None or not LOW <= score <= HIGH:
        return Unreadable(f"satisfaction must be a whole number from {LOW} to {HIGH}.")
    spelt = (Mend("satisfaction", "spelling", text(said), str(score)),)
    return Mended(
        Satisfaction(score, text(raw.get("reason"))), () if isinstance(said, int) else spelt
    )


def _prompt(scope: Scope, resident: str, said: list[dict[str, Any]], ending: Ending | None) -> str:
    if ending is None:
        return scope.prompt(BEFORE, me=resident)
    own = ending.ballots[resident].votes
    items = with_outcomes(ending.items, ending.outcomes)
    return scope.prompt(
        AFTER,
        me=resident,
        items=[{**i, "mine": own.get(i["id"], "")} for i in items],
        consensus=ending.consensus.text,
        own=said,
    )
