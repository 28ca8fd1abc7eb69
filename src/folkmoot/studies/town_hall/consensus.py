"""The final consensus text, with the residents' concerns that it reflects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from folkmoot.conversation.answers import Unreadable
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.asking import Stage, ask_one
from folkmoot.studies.town_hall.cognition import Record
from folkmoot.studies.town_hall.planner import ID, history
from folkmoot.studies.town_hall.records import Call, Consensus, Item, Outcome, Round
from folkmoot.studies.town_hall.references import Mender
from folkmoot.studies.town_hall.replies import Mended, One, schema_of, validated
from folkmoot.studies.town_hall.room import Room
from folkmoot.studies.town_hall.spelling import text

MINIMAL = Consensus("", parse_error=True)


class ReflectedConcern(Record):
    """A concern of one resident that the text takes up."""

    resident: str = Field(description="id of the resident")
    concern: str


class Closing(Record):
    """What is asked for. Nobody says here who is vulnerable; that is worked out from the ids."""

    consensus: str = Field(min_length=1)
    concerns_reflected: tuple[ReflectedConcern, ...]


async def write_consensus(
    scope: Scope,
    room: Room,
    who: Speaker,
    rounds: tuple[Round, ...],
    items: Sequence[Item],
    outcomes: Sequence[Outcome],
) -> tuple[Consensus, Call]:
    """The closing text, written by the planner from the votes and the discussion."""
    prompt = scope.prompt(
        "consensus", items=with_outcomes(items, outcomes), history=history(rounds)
    )
    answer = One(schema_of(Closing), lambda raw: read(room.ids, raw))
    got = await ask_one(scope, who, prompt, answer, Stage("consensus", None, len(rounds)))
    return got.value or MINIMAL, got.call


def with_outcomes(items: Sequence[Item], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Items with how they came out, for prompts."""
    return [
        {"id": i.id, "text": i.text, "passed": o.passed, "yes": o.yes, "no": o.no, "tie": o.tie}
        for i, o in zip(items, outcomes, strict=True)
    ]


def read(ids: tuple[str, ...], raw: Mapping[str, Any]) -> Mended[Consensus] | Unreadable:
    """A closing text; concerns of ids that do not exist are dropped and noted."""
    listed = raw.get("concerns_reflected")
    concerns = [
        {"resident": text(c.get("resident")), "concern": text(c.get("concern"))}
        for c in (listed if isinstance(listed, list) else [])
        if isinstance(c, Mapping)
    ]
    found = validated(Closing, {**raw, "concerns_reflected": concerns})
    if isinstance(found, Unreadable):
        return found
    mender = Mender(ids, ID)
    kept = [
        (mender.target(c.resident, "concerns_reflected.resident"), c.concern)
        for c in found.concerns_reflected
    ]
    pairs = tuple(dict.fromkeys((r, c) for r, c in kept if r))
    return Mended(Consensus(found.consensus.strip(), pairs), tuple(mender.mends))
