"""Workbook: a spreadsheet is the experiment. `folkmoot run experiment.xlsx`."""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.workbook.checks import cells_with_images
from folkmoot.studies.workbook.config import WorkbookConfig, claims
from folkmoot.studies.workbook.exposure_design import EXPOSURE
from folkmoot.studies.workbook.findings import findings, strict_tables
from folkmoot.studies.workbook.preparation import check, limit, load, notes, planned, preview, size
from folkmoot.studies.workbook.protocol import places, protocol
from folkmoot.studies.workbook.respondent import PART
from folkmoot.studies.workbook.spreadsheet.layouts import template
from folkmoot.studies.workbook.tables import TABLES, unusable

STUDY = Study(
    name="workbook",
    title="An experiment defined in a spreadsheet",
    config=WorkbookConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    run_id=lambda config: str(config.workbook.settings.experiment_id),
    check=check,
    notes=notes,
    size=size,
    places=places,
    images=cells_with_images,
    preview=preview,
    claims=claims,
    findings=findings,
    strict_tables=strict_tables,
    planned=planned,
    load=load,
    suffixes=(".xlsx",),
    limit=limit,
    tables=(*TABLES, ExposureRow),
    afterwards=EXPOSURE,
    unusable=unusable,
    template=template,
    respondent=PART,
)
