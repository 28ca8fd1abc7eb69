"""Town hall: who is heard when twenty residents, four of them vulnerable, discuss a local issue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.calls import JournalReader
from folkmoot.kit.exposure import ExposureRow
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import SOURCE_MODEL, TownHallConfig, claims
from folkmoot.studies.town_hall.exposure_design import EXPOSURE
from folkmoot.studies.town_hall.files import derived
from folkmoot.studies.town_hall.findings import findings, repeats
from folkmoot.studies.town_hall.measures import compare_levels, comparison_rows
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


def made_afterwards(
    run: RunFolder, journal: JournalReader, prompts: Mapping[str, str]
) -> Iterator[Row]:
    """The rows of exposure, and of the comparison of the levels."""
    yield from EXPOSURE(run, journal, prompts)
    yield from comparison_rows(compare_levels(run))


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
    derived=derived,
    planned=planned,
    show=show,
    seat_models=seat_models,
    source_model=SOURCE_MODEL,
    limit=limit,
    tables=(*TABLES, ExposureRow),
    afterwards=made_afterwards,
    unusable=unusable,
    template=template,
    respondent=PART,
)
