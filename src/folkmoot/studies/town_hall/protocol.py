"""The town hall: sets of residents, each discussing one issue at every level.

Everything but the level is held equal inside a set: the residents, the order in which statements
are listed, the seed, the topic. Discussions run side by side; each writes its files as it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from folkmoot.engine.session import Scope, Session
from folkmoot.studies.town_hall import logs
from folkmoot.studies.town_hall.comparison import Result, compare, flat_rows
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import hold_discussion
from folkmoot.studies.town_hall.levels import levels_of
from folkmoot.studies.town_hall.measures import measures
from folkmoot.studies.town_hall.outputs import files, plan_of
from folkmoot.studies.town_hall.profiles import load_profiles
from folkmoot.studies.town_hall.quality import quality, total_quality
from folkmoot.studies.town_hall.records import Discussion
from folkmoot.studies.town_hall.room import Room, make_room, make_set
from folkmoot.studies.town_hall.tables import DifferenceRow, LevelRow, record_discussion, record_set
from folkmoot.studies.town_hall.tracking import Scale


@dataclass(frozen=True)
class Design:
    """What is drawn before the first call."""

    config: TownHallConfig
    rooms: list[Room]


@dataclass(frozen=True)
class Held:
    """What is kept in memory of a discussion once its files are written."""

    id: str
    result: Result
    quality: dict[str, Any]
    use: dict[str, Any]


async def protocol(session: Session) -> None:
    """Draw, discuss, compare."""
    design = await draw(session)

    async def discuss(scope: Scope, room: Room) -> Held:
        return keep(scope, await hold_discussion(scope, room), design.config, session.started_at)

    held = list((await session.each(design.rooms, discuss, sets=lambda r: r.set.number)).values())
    report(session, held, design.config)


async def draw(session: Session) -> Design:
    """Residents, orders of speaking and seats of all discussions, sealed into the plan."""
    config: TownHallConfig = session.config
    profiles = tuple(load_profiles(config.vulnerable, session.study_dir))
    sets = [make_set(config, profiles, session.seed, n) for n in range(1, config.sets + 1)]
    rooms = [make_room(config, s, level, session.seed) for s in sets for level in levels_of(config)]
    await session.seal("discussions", plan_of(sets, rooms))
    for of in sets:
        record_set(session, of)
    return Design(config, rooms)


def keep(scope: Scope, discussion: Discussion, config: TownHallConfig, started_at: str) -> Held:
    """Write the files, the log and the rows of one discussion; what the comparison needs of it."""
    for name, content in files(discussion, config).items():
        scope.write_json(f"{discussion.id}/{name}.json", content)
    lines, errors = logs.log_lines(discussion, config)
    scope.write_text(logs.log_name(discussion.id, started_at, ".jsonl"), lines)
    scope.write_text(logs.log_name(discussion.id, started_at, "_errors.log"), errors)
    record_discussion(scope, discussion, config)
    found = measures(discussion, Scale.of(config))
    result = Result(discussion.set_no, discussion.level.name, found)
    return Held(discussion.id, result, quality(discussion), logs.use_of(discussion))


def report(session: Session, held: list[Held], config: TownHallConfig) -> None:
    """Compare the levels and add up how well answers could be read."""
    comparison = compare(levels_of(config), [h.result for h in held])
    session.write_json("levels.json", comparison)
    means, differences = flat_rows(comparison)
    for row in means:
        session.record(LevelRow(**row))
    for row in differences:
        session.record(DifferenceRow(**row))
    names = [level.name for level in levels_of(config)]
    session.write_json(
        "quality.json",
        {
            "all": total_quality(h.quality for h in held),
            "levels": {
                n: total_quality(h.quality for h in held if h.result.level == n) for n in names
            },
        },
    )
    session.write_json("logs/summary.json", logs.summary({h.id: h.use for h in held}))
