"""Town hall: twenty residents, four of them vulnerable, discuss a local issue.

- `protocol`: the order of a discussion. Start here.
- `stages`: the questions.
- `discussion`: the data of a discussion.
- `participants`: how residents are drawn.
- `answers`: the answer types.
- `measures` and `findings`: what is computed from the tables.
- `respondent`: built-in rules that answer in place of a model.
"""

# No other study type imports this package.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.calls import JournalReader
from folkmoot.kit.exposure import ExposureRow
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import (
    SOURCE_MODEL,
    TownHallConfig,
    declare_claims,
    name_conditions,
)
from folkmoot.studies.town_hall.exposure_design import DECISION_DESIGN, EXPOSURE
from folkmoot.studies.town_hall.files import derived_files
from folkmoot.studies.town_hall.findings import compute_findings
from folkmoot.studies.town_hall.measures import (
    compare_levels,
    comparison_rows,
    listed_choices,
    repeated_satisfaction,
    set_of_answer,
)
from folkmoot.studies.town_hall.preparation import (
    config_advisories,
    design_size,
    expected_rows,
    find_problems,
    limit_sets,
    matches_study,
    seat_models,
    template_files,
    unusable_reason,
)
from folkmoot.studies.town_hall.protocol import available_seats, describe_residents, run_protocol
from folkmoot.studies.town_hall.recording import find_utterance
from folkmoot.studies.town_hall.respondent import PART
from folkmoot.studies.town_hall.show import render_lines
from folkmoot.studies.town_hall.tables import TABLES


def derived_rows(run: RunFolder, journal: JournalReader) -> Iterator[Row]:
    """Yield the rows that are computed from recorded rows: exposure, levels, level differences."""
    yield from EXPOSURE(run, journal)
    yield from comparison_rows(compare_levels(run))


STUDY: Study[TownHallConfig] = Study(
    name="town_hall",
    title="Town hall: who is heard, at each level of technical implementation",
    question="Who is heard when twenty residents discuss a redevelopment?",
    config=TownHallConfig,
    protocol=run_protocol,
    prompts=Path(__file__).parent / "prompts",
    roles=("participant", "moderator", "planner", "coder", "second_coder"),
    matches=matches_study,
    check_config=find_problems,
    notes=lambda config, _folder: config_advisories(config),
    size=design_size,
    seats=available_seats,
    claims=declare_claims,
    stopping_rule=lambda _config: "",
    conditions=name_conditions,
    findings=compute_findings,
    repeats=repeated_satisfaction,
    choices=listed_choices,
    reply_unit=set_of_answer,
    reply_unit_name="set",
    derived=derived_files,
    descriptions=describe_residents,
    expected_rows=expected_rows,
    render_run=render_lines,
    utterance_place=find_utterance,
    extra_models=seat_models,
    source_model=SOURCE_MODEL,
    with_limit=limit_sets,
    tables=(*TABLES, ExposureRow),
    compared_tables=("discussions",),
    derived_tables=derived_rows,
    decision_design=DECISION_DESIGN,
    unusable_reason=unusable_reason,
    template_files=template_files,
    respondent_part=PART,
)
