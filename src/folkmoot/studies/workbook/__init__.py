"""Workbook: a spreadsheet is the experiment. `folkmoot run experiment.xlsx`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.study import Planned, Study
from folkmoot.studies.workbook.config import WorkbookConfig
from folkmoot.studies.workbook.convert import convert
from folkmoot.studies.workbook.estimate import check, limit, load, notes
from folkmoot.studies.workbook.findings import findings
from folkmoot.studies.workbook.protocol import protocol
from folkmoot.studies.workbook.show import show
from folkmoot.studies.workbook.tables import TABLES, unusable
from folkmoot.studies.workbook.template import template


def _planned(sealed: Mapping[str, Any]) -> list[Planned]:
    sessions = sealed.get("assignment", [])
    played = tuple({"session": s["session"], "treatment": s["treatment"]} for s in sessions)
    seats = tuple(
        {"session": s["session"], "participant_id": p["ID"], "role": p["role"]}
        for s in sessions
        for p in s["participants"]
    )
    return [
        Planned("sessions", ("session",), played, "session", done=("ended", "completed")),
        Planned("assignment", ("session", "participant_id"), seats),
    ]


STUDY = Study(
    name="workbook",
    title="An experiment defined in a spreadsheet",
    config=WorkbookConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    run_id=lambda config: str(config.workbook.settings.experiment_id),
    check=check,
    notes=notes,
    findings=findings,
    planned=_planned,
    show=show,
    load=load,
    suffixes=(".xlsx",),
    limit=limit,
    tables=TABLES,
    unusable=unusable,
    template=template,
    convert=convert,
)
