"""Workbook: a spreadsheet is the experiment. `folkmoot run experiment.xlsx`."""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study import Study
from folkmoot.studies.workbook.config import WorkbookConfig
from folkmoot.studies.workbook.findings import findings
from folkmoot.studies.workbook.planning import check, estimate, limit, load, notes
from folkmoot.studies.workbook.protocol import protocol
from folkmoot.studies.workbook.records import CODEBOOK
from folkmoot.studies.workbook.show import show
from folkmoot.studies.workbook.template import template

STUDY = Study(
    name="workbook",
    title="An experiment defined in a spreadsheet",
    config=WorkbookConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    run_id=lambda config: str(config.workbook.settings.experiment_id),
    check=check,
    notes=notes,
    estimate=estimate,
    findings=findings,
    show=show,
    load=load,
    suffixes=(".xlsx",),
    limit=limit,
    codebook=CODEBOOK,
    template=template,
)
