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

    async def state(scope: Scope, group: Group) -> Stated:
        return await collect(scope, group, subjects, config.days)

    stated = await session.at("preferences").each(groups, state)

    async def hold(scope: Scope, pair: Pair) -> tuple[SessionResult, dict[str, object]]:
        room = Room(pair.group, pair.condition, stated[pair.group.id], subjects, config)
        everyone = Room(pair.group, CONDITIONS["C2"], stated[pair.group.id], subjects, config)
        decisions = await negotiate(scope, room)
        result = finish_session(scope, room, everyone, decisions)
        trip = tripcraft.trip_of(trips, pair.group.id, pair.index)
        return result, tripcraft.row(room, decisions, trip)

    pairs = [Pair(g, c, n) for n, g in enumerate(groups) for c in conditions]
    held = await session.at("negotiation").each(pairs, hold)
    for condition in conditions:
        rows = [row for (result, row) in held.values() if result.condition == condition.id]
        session.write_text(f"tripcraft/{condition.id}.csv", tripcraft.to_csv(rows))
    results = [result for result, _ in held.values()]
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
