"""Study type `focus_group`: a moderated discussion of one or more product concepts.

A run reports the opinions of a group, what changes them, and which objections participants raise.
Start reading at `protocol.run_protocol`. `STUDY` registers the study type with the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.measures.reply_checks import part_of_stage
from folkmoot.studies.focus_group.config import DiscussionConfig, declare_claims, name_conditions
from folkmoot.studies.focus_group.exposure_design import DECISION_DESIGN, EXPOSURE
from folkmoot.studies.focus_group.files import derived_files
from folkmoot.studies.focus_group.findings import compute_findings
from folkmoot.studies.focus_group.participants import available_seats
from folkmoot.studies.focus_group.positions import repeated_positions, strict_tables
from folkmoot.studies.focus_group.preparation import (
    check_config,
    config_advisories,
    design_size,
    expected_rows,
    limit_groups,
    list_images,
)
from folkmoot.studies.focus_group.protocol import run_protocol
from folkmoot.studies.focus_group.respondent import PART
from folkmoot.studies.focus_group.show import render_positions
from folkmoot.studies.focus_group.tables import TABLES, unusable_reason


def _matches_study(raw: Mapping[str, object]) -> bool:
    return "product_concept" in raw or ("stimuli" in raw and "category" in raw)


STUDY = Study(
    name="focus_group",
    title="Focus group",
    question="What does a moderated group say about a product, and how do its opinions shift?",
    config=DiscussionConfig,
    protocol=run_protocol,
    prompts=Path(__file__).parent / "prompts",
    roles=("participant", "moderator", "coder", "second_coder"),
    source_model="anthropic/claude-sonnet-4-20250514",
    matches=_matches_study,
    check_config=check_config,
    notes=config_advisories,
    size=design_size,
    image_locations=list_images,
    seats=available_seats,
    claims=declare_claims,
    stopping_rule=lambda _config: "",
    conditions=name_conditions,
    findings=compute_findings,
    repeats=repeated_positions,
    reply_unit=part_of_stage,
    reply_unit_name="group",
    derived=derived_files,
    strict_tables=strict_tables,
    expected_rows=expected_rows,
    render_run=render_positions,
    with_limit=limit_groups,
    tables=(*TABLES, ExposureRow),
    compared_tables=("intents", "opinions"),
    derived_tables=EXPOSURE,
    decision_design=DECISION_DESIGN,
    unusable_reason=unusable_reason,
    respondent_part=PART,
)
