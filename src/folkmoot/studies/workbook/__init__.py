"""Workbook: an experiment that is defined by a spreadsheet.

Start reading with `config` and `protocol`. No other study type imports this package.

- `config`: the data classes of a workbook.
- `protocol`: the order of a run.
- `spreadsheet`: reads files into these data classes.
- `checks`: finds problems of the design.
- `participants`: draws sessions and roles.
- `sessions` and `asking`: the state of a session and its questions.
- `language`: expressions and placeholders, the language of the cells.
- `answers`: reads options and replies.
"""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.workbook.checks import cells_with_images
from folkmoot.studies.workbook.config import WorkbookConfig, declare_claims, name_conditions
from folkmoot.studies.workbook.exposure_design import DECISION_DESIGN, EXPOSURE
from folkmoot.studies.workbook.files import derived_files
from folkmoot.studies.workbook.findings import (
    compute_findings,
    session_of_answer,
)
from folkmoot.studies.workbook.preparation import (
    check_config,
    config_advisories,
    design_size,
    expected_rows,
    limit_sessions,
    load_workbook_config,
    preview_prompts,
)
from folkmoot.studies.workbook.protocol import available_seats, run_protocol
from folkmoot.studies.workbook.respondent import PART
from folkmoot.studies.workbook.spreadsheet.layouts import template_files
from folkmoot.studies.workbook.spreadsheet.qualtrics.importing import SUFFIX, import_survey
from folkmoot.studies.workbook.tables import (
    TABLES,
    describe_participants,
    name_answers,
    number_ranges,
    strict_tables,
    unusable_reason,
)

STUDY = Study(
    name="workbook",
    title="An experiment defined in a spreadsheet",
    question="Your own experiment, written as a spreadsheet: roles, rounds, variables, questions",
    config=WorkbookConfig,
    protocol=run_protocol,
    prompts=Path(__file__).parent / "prompts",
    roles=("participant", "facilitator", "summarizer", "biographer", "coder", "second_coder"),
    run_id=lambda config: str(config.workbook.settings.experiment_id),
    check_config=check_config,
    notes=lambda config, _folder: config_advisories(config),
    size=design_size,
    seats=available_seats,
    image_locations=cells_with_images,
    preview=preview_prompts,
    claims=declare_claims,
    stopping_rule=lambda _config: "",
    conditions=name_conditions,
    findings=compute_findings,
    named_answers=name_answers,
    reply_unit=session_of_answer,
    reply_unit_name="session",
    strict_tables=strict_tables,
    descriptions=describe_participants,
    number_ranges=number_ranges,
    expected_rows=expected_rows,
    load_config=load_workbook_config,
    file_suffixes=(".xlsx",),
    with_limit=limit_sessions,
    tables=(*TABLES, ExposureRow),
    compared_tables=("sessions",),
    derived=derived_files,
    derived_tables=EXPOSURE,
    decision_design=DECISION_DESIGN,
    unusable_reason=unusable_reason,
    template_files=template_files,
    respondent_part=PART,
    importers={SUFFIX: import_survey},
)
