"""Town hall: who is heard when twenty residents, four of them vulnerable, discuss a local issue."""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.town_hall.config import SOURCE_MODEL, TownHallConfig, claims
from folkmoot.studies.town_hall.exposure_design import EXPOSURE
from folkmoot.studies.town_hall.findings import findings, repeats
from folkmoot.studies.town_hall.preparation import (
    limit,
    notes,
    planned,
    problems,
    recognises,
    seat_models,
    size,
    template,
    unusable,
)
from folkmoot.studies.town_hall.protocol import places, protocol
from folkmoot.studies.town_hall.respondent import PART
from folkmoot.studies.town_hall.show import show
from folkmoot.studies.town_hall.tables import TABLES

STUDY: Study[TownHallConfig] = Study(
    name="town_hall",
    title="Town hall: who is heard, at each level of technical implementation",
    config=TownHallConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    recognises=recognises,
    check=problems,
    notes=notes,
    size=size,
    places=places,
    claims=claims,
    findings=findings,
    repeats=repeats,
    planned=planned,
    show=show,
    seat_models=seat_models,
    source_model=SOURCE_MODEL,
    limit=limit,
    tables=(*TABLES, ExposureRow),
    afterwards=EXPOSURE,
    unusable=unusable,
    template=template,
    respondent=PART,
)
