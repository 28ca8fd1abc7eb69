"""Negotiation: groups of travellers plan a trip under up to five conditions.

- `protocol`: the course of the study. Start here.
- `rules`: the pure functions that turn preferences and ballots into a decision.
- `findings`: the results.
"""

# A mediator proposes each decision, and a deterministic rule can decide in its place. Every
# decision has an audit trail.

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.negotiation.config import NegotiationConfig, declare_claims, name_conditions
from folkmoot.studies.negotiation.exposure_design import DECISION_DESIGN, EXPOSURE
from folkmoot.studies.negotiation.files import derived_files, describe_members
from folkmoot.studies.negotiation.findings import compute_findings
from folkmoot.studies.negotiation.measures import (
    group_of_answer,
    listed_choices,
    repeated_statements,
    strict_tables,
    unusable_reason,
)
from folkmoot.studies.negotiation.participants import available_seats
from folkmoot.studies.negotiation.preparation import (
    check_config,
    design_size,
    expected_rows,
    limit_groups,
    template_files,
)
from folkmoot.studies.negotiation.protocol import run_protocol
from folkmoot.studies.negotiation.respondent import PART
from folkmoot.studies.negotiation.rules.replies import find_line
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS
from folkmoot.studies.negotiation.show import render_lines
from folkmoot.studies.negotiation.tables import TABLES


def _matches_study(raw: Mapping[str, object]) -> bool:
    # These conditions and keys occur in no other study type, so a study file needs no `study` key.
    conditions = raw.get("conditions")
    has_our_conditions = (
        isinstance(conditions, list) and bool(conditions) and set(conditions) <= set(CONDITIONS)
    )
    return has_our_conditions or "groups_per_type" in raw or "max_feedback_rounds" in raw


STUDY = Study(
    name="negotiation",
    title="Group negotiation",
    question="Whose preferences survive when a group has to agree?",
    config=NegotiationConfig,
    protocol=run_protocol,
    prompts=Path(__file__).parent / "prompts",
    roles=("participant", "moderator", "coder", "second_coder"),
    matches=_matches_study,
    check_config=check_config,
    size=design_size,
    seats=available_seats,
    claims=declare_claims,
    stopping_rule=lambda _config: "",
    conditions=name_conditions,
    findings=compute_findings,
    repeats=repeated_statements,
    choices=listed_choices,
    reply_unit=group_of_answer,
    reply_unit_name="group",
    derived=derived_files,
    strict_tables=strict_tables,
    descriptions=describe_members,
    expected_rows=expected_rows,
    render_run=render_lines,
    utterance_place=find_line,
    with_limit=limit_groups,
    tables=(*TABLES, ExposureRow),
    compared_tables=("measures",),
    derived_tables=EXPOSURE,
    decision_design=DECISION_DESIGN,
    unusable_reason=unusable_reason,
    respondent_part=PART,
    template_files=template_files,
)
