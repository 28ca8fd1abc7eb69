"""Town hall: who is heard when twenty residents, four of them vulnerable, discuss a local issue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.study import Planned, Study
from folkmoot.studies.town_hall.checks import notes, problems, seat_models
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.findings import findings
from folkmoot.studies.town_hall.protocol import protocol
from folkmoot.studies.town_hall.show import show
from folkmoot.studies.town_hall.tables import TABLES, unusable
from folkmoot.studies.town_hall.template import template


def _recognises(raw: Mapping[str, Any]) -> bool:
    topic = raw.get("topic")
    return isinstance(topic, Mapping) and "background" in topic and "levels" in raw


def _limit(config: TownHallConfig, most: int) -> TownHallConfig:
    """At most so many sets (each is one discussion per level)."""
    return config.model_copy(update={"sets": min(config.sets, most)})


def _planned(sealed: Mapping[str, Any]) -> list[Planned]:
    plan = sealed.get("discussions", {})
    talks = tuple({"discussion_id": name} for name in plan.get("seats", {}))
    people = tuple(
        {"set": int(name.removeprefix("set")), "id": r["id"], "occupation": r["occupation"]}
        for name, residents in plan.get("residents", {}).items()
        for r in residents
    )
    return [
        Planned("discussions", ("discussion_id",), talks, "discussion"),
        Planned("residents", ("set", "id"), people, "resident"),
    ]


STUDY = Study(
    name="town_hall",
    title="Town hall: who is heard, at each level of technical implementation",
    config=TownHallConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    recognises=_recognises,
    check=problems,
    notes=notes,
    findings=findings,
    planned=_planned,
    show=show,
    seat_models=seat_models,
    limit=_limit,
    tables=TABLES,
    unusable=unusable,
    template=template,
)
