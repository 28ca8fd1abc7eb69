"""Group negotiation, in the order in which it happens.

Groups are drawn and sealed; each group's members state their preferences once; each group then
goes through the seven slots under every condition, from those same statements; what was decided
goes to the planner, and the conditions are compared within groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from folkmoot.engine.session import Scope, Session
from folkmoot.studies.negotiation import tripcraft
from folkmoot.studies.negotiation.conditions import CONDITIONS, Condition
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.design import groups_of
from folkmoot.studies.negotiation.groups import Group
from folkmoot.studies.negotiation.measures import SessionResult, compare
from folkmoot.studies.negotiation.negotiate import negotiate
from folkmoot.studies.negotiation.outputs import finish_session, record_groups
from folkmoot.studies.negotiation.preferences import collect
from folkmoot.studies.negotiation.room import Room, Stated
from folkmoot.studies.negotiation.slots import topics


@dataclass(frozen=True, slots=True)
class Pair:
    """One session: a group under a condition."""

    group: Group
    condition: Condition
    index: int

    @property
    def id(self) -> str:
        return f"{self.group.id}-{self.condition.id}"


async def protocol(session: Session) -> None:
    """The study."""
    config: NegotiationConfig = session.config
    groups = groups_of(config, session.study_dir)
    trips = tripcraft.read_trips(config, session.study_dir)
    subjects = topics(config.options)
    conditions = [CONDITIONS[c] for c in config.conditions]
    await session.seal("groups", [_sealed(g) for g in groups])
    await session.seal("conditions", list(config.conditions))
    record_groups(session, groups)

    pairs = [Pair(g, c, n) for n, g in enumerate(groups) for c in conditions]
    # Places first: rows stand phase by phase, whatever group is through with both before another.
    asking = {g.id: session.at("preferences", g.id) for g in groups}
    talking = {pair.id: session.at("negotiation", pair.id) for pair in pairs}

    async def hold(
        pair: Pair, stated: Stated, endings: Stated
    ) -> tuple[SessionResult, dict[str, object]]:
        scope = talking[pair.id]
        room = Room(pair.group, pair.condition, stated, subjects, config, endings)
        everyone = Room(pair.group, CONDITIONS["C2"], stated, subjects, config, endings)
        decisions = await negotiate(scope, room)
        result = finish_session(scope, room, everyone, decisions)
        trip = tripcraft.trip_of(trips, pair.group.id, pair.index)
        return result, tripcraft.row(room, decisions, trip)

    async def compared(scope: Scope, group: Group) -> list[tuple[SessionResult, dict[str, object]]]:
        stated = await collect(asking[group.id], group, subjects, config.days)
        own = [pair for pair in pairs if pair.group is group]
        return list((await scope.each(own, lambda _, pair: hold(pair, *stated))).values())

    by_group = await session.at("negotiation").each(groups, compared, sets=lambda g: g.id)
    held = [of for group in by_group.values() for of in group]
    for condition in conditions:
        rows = [row for (result, row) in held if result.condition == condition.id]
        session.write_text(f"tripcraft/{condition.id}.csv", tripcraft.to_csv(rows))
    results = [result for result, _ in held]
    session.write_json("comparison.json", compare(results, config.conditions))


def _sealed(group: Group) -> Mapping[str, object]:
    return {
        "id": group.id,
        "type": group.type.id,
        "members": [
            {"id": m.id, "name": m.name, "role": m.role, "weight": m.weight, "persona": m.persona}
            for m in group.members
        ],
    }
