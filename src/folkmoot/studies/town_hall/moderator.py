"""The moderator of level 4: after each round sums up, names opinions that got too little
room, invites quiet residents, points to overlooked concerns of vulnerable ones. The hall
hears it in the next round. No vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from pydantic import Field

from folkmoot.conversation.answers import Unreadable
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.asking import Stage, ask_one
from folkmoot.studies.town_hall.cognition import Record
from folkmoot.studies.town_hall.records import Call, Moderation, Round
from folkmoot.studies.town_hall.references import Mender
from folkmoot.studies.town_hall.replies import Mended, One, schema_of, validated
from folkmoot.studies.town_hall.room import Room, statements
from folkmoot.studies.town_hall.spelling import text

ID = "moderator"
MINIMAL = Moderation(summary="", parse_error=True)


class Concern(Record):
    """A concern of one resident that nobody has answered."""

    resident: str
    concern: str


class Moderating(Record):
    """What the moderator is asked for."""

    summary: str = Field(min_length=1)
    underrepresented_opinions: tuple[str, ...]
    invited_residents: tuple[str, ...]
    overlooked_concerns: tuple[Concern, ...]
    spoken: str = Field(description="the words that the hall hears", min_length=1)


def speaker(scope: Scope, room: Room) -> Speaker:
    """The moderator: `model` means the run's own model for that role, else a model by name."""
    system = scope.prompt(
        "moderator_system",
        residents=len(room.ids),
        topic=room.topic,
        vulnerable=[{"id": r.id, "label": r.label} for r in room.residents if r.is_vulnerable],
    )
    model = None if room.level.moderator == "model" else room.level.moderator
    return Speaker(id=ID, name="Moderator", role="moderator", system=system, model=model)


async def moderate(
    scope: Scope, room: Room, who: Speaker, round_: Round
) -> tuple[Moderation, Call]:
    """What the moderator says after a round."""
    prompt = scope.prompt(
        "moderator",
        round=round_.number,
        rounds=room.rounds,
        statements=statements(round_),
        quiet=quiet(round_),
    )
    answer = One(schema_of(Moderating), lambda raw: read(room.ids, raw))
    got = await ask_one(scope, who, prompt, answer, Stage("moderate", round_.number))
    return got.value or MINIMAL, got.call


def quiet(round_: Round) -> list[str]:
    """Who said nothing, or less than half of what the middle resident said, in order of id."""
    words = {i: len(t.speaking.full_statement.split()) for i, t in round_.turns.items() if t.heard}
    middle = median(words.values()) if words else 0
    return sorted(i for i, n in words.items() if n == 0 or n < middle / 2)


def read(ids: tuple[str, ...], raw: Mapping[str, Any]) -> Mended[Moderation] | Unreadable:
    """A moderator's reply; ids that do not exist are dropped and noted."""
    mender = Mender(ids, ID)
    found = validated(Moderating, _shaped(raw))
    if isinstance(found, Unreadable):
        return found
    invited = [mender.target(i, "invited_residents") for i in found.invited_residents]
    concerns = [
        (mender.target(c.resident, "overlooked_concerns.resident"), c.concern)
        for c in found.overlooked_concerns
    ]
    moderation = Moderation(
        summary=found.summary,
        underrepresented_opinions=found.underrepresented_opinions,
        invited=tuple(dict.fromkeys(i for i in invited if i)),
        overlooked_concerns=tuple((r, c) for r, c in concerns if r),
        spoken=found.spoken,
    )
    return Mended(moderation, tuple(mender.mends))


def _shaped(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Single texts where lists are wanted, and a speech that was left out: the summary is read."""
    out = dict(raw)
    for name in ("underrepresented_opinions", "invited_residents", "overlooked_concerns"):
        value = out.get(name)
        out[name] = value if isinstance(value, list) else [value] if value else []
    out["underrepresented_opinions"] = [text(t) for t in out["underrepresented_opinions"]]
    out["overlooked_concerns"] = [
        c if isinstance(c, Mapping) else {"resident": "", "concern": text(c)}
        for c in out["overlooked_concerns"]
    ]
    out["invited_residents"] = [text(i) for i in out["invited_residents"]]
    if not text(out.get("spoken")):
        out["spoken"] = text(out.get("summary"))
    return out
