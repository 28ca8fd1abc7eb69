"""The room of one discussion: all that is fixed before its first call. Stages take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.randomness import generator
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.levels import Level, deal
from folkmoot.studies.town_hall.profiles import with_ids
from folkmoot.studies.town_hall.records import Round
from folkmoot.studies.town_hall.residents import Resident, ids, sample_residents


@dataclass(frozen=True)
class ResidentSet:
    """What all levels of a set have in common: the residents and the orders of speaking.

    `orders` has one order per round: that in which the round's statements are listed.
    """

    number: int
    residents: tuple[Resident, ...]
    orders: tuple[tuple[str, ...], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents)


@dataclass(frozen=True)
class Room:
    """One discussion before it begins. `seats`: resident id → model, None for the run's own."""

    id: str
    set: ResidentSet
    level: Level
    seats: Mapping[str, str | None]
    config: TownHallConfig

    @property
    def residents(self) -> tuple[Resident, ...]:
        return self.set.residents

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return self.set.ids

    @property
    def shared(self) -> bool:
        return self.level.context == "shared"

    @property
    def topic(self) -> dict[str, str]:
        return {k: v.strip() for k, v in self.config.topic.model_dump().items()}

    @property
    def rounds(self) -> int:
        return self.config.rounds


def make_set(
    config: TownHallConfig, profiles: tuple[Resident, ...], seed: int, number: int
) -> ResidentSet:
    """The residents of one set and who speaks when; a function of seed and set alone."""
    general, vulnerable = ids(config.residents.general, len(profiles))
    residents = (
        *sample_residents(config.residents, general, seed, number),
        *with_ids(profiles, vulnerable),
    )
    names = [r.id for r in residents]
    rng = generator(seed, ("town_hall", f"set{number:02d}", "orders"))
    orders = tuple(
        tuple(names[i] for i in rng.permutation(len(names))) for _ in range(config.rounds)
    )
    return ResidentSet(number, residents, orders)


def make_room(config: TownHallConfig, of: ResidentSet, level: Level, seed: int) -> Room:
    """The room of one set at one level."""
    general = [r.id for r in of.residents if not r.is_vulnerable]
    vulnerable = [r.id for r in of.residents if r.is_vulnerable]
    seats = deal(level.models, general, vulnerable, seed, of.number)
    return Room(f"set{of.number:02d}_lv{level.name}", of, level, seats, config)


def speakers(scope: Scope, room: Room) -> dict[str, Speaker]:
    """Each resident as somebody who can be asked, with the persona as system prompt."""
    return {
        r.id: Speaker(
            id=r.id,
            name=r.id,
            system=scope.prompt(
                "persona",
                r={"id": r.id},
                portrait=portrait(scope, r),
                topic=room.topic,
                residents=len(room.residents),
                rounds=room.rounds,
            ),
            model=room.seats[r.id],
        )
        for r in room.residents
    }


def session_speaker(scope: Scope, room: Room) -> Speaker:
    """The one session of a shared context, which writes all residents' parts."""
    system = scope.prompt(
        "shared_session",
        portraits=[portrait(scope, r) for r in room.residents],
        residents=list(room.ids),
        topic=room.topic,
        rounds=room.rounds,
    )
    return Speaker(id="session", name="session", system=system, model=room.seats[room.ids[0]])


def portrait(scope: Scope, resident: Resident) -> str:
    """Who a resident is, in one paragraph that opens with "You are"; the same at every level."""
    row = resident.to_row() | {"story": resident.story}
    return scope.prompt("portrait", r=row)


def statements(round_: Round | None, *, but: str = "") -> list[dict[str, str]]:
    """What was said in a round, in its order of speaking, without one resident's and the silent."""
    if round_ is None:
        return []
    turns = [round_.turns[i] for i in round_.order if i != but]
    return [
        {"id": t.resident, "text": one_line(t.speaking.full_statement)}
        for t in turns
        if t.speaking.full_statement
    ]


def own_statements(rounds: tuple[Round, ...], resident: str) -> list[dict[str, Any]]:
    """What one resident has said so far."""
    return [
        {"round": r.number, "text": one_line(r.turns[resident].speaking.full_statement)}
        for r in rounds
        if r.turns[resident].speaking.full_statement
    ]


def moderator_words(round_: Round | None) -> str:
    """What the moderator said after a round, or nothing."""
    return round_.moderation.spoken if round_ is not None and round_.moderation else ""


def one_line(text: str) -> str:
    """A statement without line breaks, so that nobody's words can pass for another's line."""
    return " ".join(text.split())
