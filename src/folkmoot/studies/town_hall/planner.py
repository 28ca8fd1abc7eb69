"""The planner: after the last round, decision points as yes/no items, credited to residents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from folkmoot.conversation.answers import Unreadable
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.asking import Stage, ask_one
from folkmoot.studies.town_hall.cognition import Record
from folkmoot.studies.town_hall.records import Call, Item, Round
from folkmoot.studies.town_hall.references import Mend, Mender
from folkmoot.studies.town_hall.replies import Mended, One, schema_of, validated
from folkmoot.studies.town_hall.room import Room, statements
from folkmoot.studies.town_hall.spelling import text

ID = "planner"


class PlannedItem(Record):
    """One point to be decided."""

    proposal: str = Field(description="worded so that yes means to do it", min_length=1)
    reasoning: str
    originating_residents: tuple[str, ...] = Field(description="ids of those who raised it")


class Planned(Record):
    """What the planner is asked for."""

    items: tuple[PlannedItem, ...] = Field(min_length=1)


def speaker(scope: Scope, room: Room) -> Speaker:
    """The planner, who is not told who is vulnerable; the same model at every level."""
    system = scope.prompt("planner_system", residents=len(room.ids), topic=room.topic)
    return Speaker(id=ID, name="Planner", role="planner", system=system)


async def plan_items(
    scope: Scope, room: Room, who: Speaker, rounds: tuple[Round, ...]
) -> tuple[tuple[Item, ...], Call]:
    """The ballot; empty when the planner could not be read."""
    most = room.config.max_vote_items
    prompt = scope.prompt("planner", history=history(rounds), most=most)
    answer = One(schema_of(Planned), lambda raw: read(room.ids, most, raw))
    got = await ask_one(scope, who, prompt, answer, Stage("plan", None, len(rounds)))
    return got.value or (), got.call


def history(rounds: tuple[Round, ...]) -> list[dict[str, Any]]:
    """All that was said in public, round by round."""
    return [{"round": r.number, "statements": statements(r)} for r in rounds]


def read(
    ids: tuple[str, ...], most: int, raw: Mapping[str, Any]
) -> Mended[tuple[Item, ...]] | Unreadable:
    """A planner's reply. Bad ids, repeated items and items beyond `most` are dropped and noted."""
    found = validated(Planned, _shaped(raw))
    if isinstance(found, Unreadable):
        return found
    mender = Mender(ids, ID)
    extra: list[Mend] = []
    kept: list[Item] = []
    for planned in found.items:
        if any(i.text.casefold() == planned.proposal.strip().casefold() for i in kept):
            extra.append(Mend("items", "repeated", planned.proposal[:80]))
        elif len(kept) == most:
            extra.append(Mend("items", "too_many", planned.proposal[:80]))
        else:
            kept.append(_item(planned, len(kept) + 1, mender))
    return Mended(tuple(kept), (*mender.mends, *extra))


def _item(planned: PlannedItem, number: int, mender: Mender) -> Item:
    origin = [
        mender.target(i, "items.originating_residents") for i in planned.originating_residents
    ]
    if not any(origin):
        mender.mends.append(Mend("items.originating_residents", "no_origin", f"V{number}"))
    return Item(
        id=f"V{number}",
        text=" ".join(planned.proposal.split()),
        reasoning=planned.reasoning,
        origin=tuple(sorted({i for i in origin if i})),
    )


def _shaped(raw: Mapping[str, Any]) -> dict[str, Any]:
    items = raw.get("items")
    if not isinstance(items, list):
        return dict(raw)
    shaped = []
    for item in items:
        if isinstance(item, Mapping):
            origin = item.get("originating_residents")
            origin = origin if isinstance(origin, list) else [origin] if origin else []
            shaped.append(
                {
                    **item,
                    "reasoning": text(item.get("reasoning")),
                    "originating_residents": [text(i) for i in origin],
                }
            )
    return {"items": shaped}
