"""Study type `cross_pollination`: does arguing with the opposing view improve decisions?

Start reading at `protocol.run_protocol`. `STUDY` registers the study type with the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.engine.study.study import Study
from folkmoot.kit import coding
from folkmoot.kit.base_personas import BasePersonaRow
from folkmoot.kit.exposure import ExposureRow
from folkmoot.measures.reply_checks import speaker_of
from folkmoot.studies.cross_pollination.config import (
    CrossPollinationConfig,
    declare_claims,
    describe_stopping_rule,
    name_conditions,
)
from folkmoot.studies.cross_pollination.exposure_design import DECISION_DESIGN, EXPOSURE
from folkmoot.studies.cross_pollination.files import derived_files
from folkmoot.studies.cross_pollination.findings import compute_findings
from folkmoot.studies.cross_pollination.findings.votes import strict_tables
from folkmoot.studies.cross_pollination.participants import TERMINATED_EARLY, available_seats
from folkmoot.studies.cross_pollination.preparation import (
    design_size,
    dry_run_config,
    from_polis,
    limit_participants,
    unusable_reason,
)
from folkmoot.studies.cross_pollination.protocol import run_protocol
from folkmoot.studies.cross_pollination.respondent import PART
from folkmoot.studies.cross_pollination.tables import DEMOGRAPHICS, TABLES


def _matches_study(raw: Mapping[str, object]) -> bool:
    topic = raw.get("topic")
    return "pilot_id" in raw and isinstance(topic, Mapping) and "options" in topic


def _expected_rows(sealed: Mapping[str, Any]) -> list[ExpectedRows]:
    assignment = sealed.get("assignment", {})
    rows = tuple(
        {"participant_id": participant_id, "condition": condition}
        for participant_id, condition in assignment.items()
    )
    key = ("participant_id",)
    return [
        ExpectedRows(
            "participants",
            key,
            rows,
            done=("status", "complete"),
            stopped=("error_message", TERMINATED_EARLY),
            part="participant_id",
        )
    ]


STUDY = Study(
    name="cross_pollination",
    dry_run_config=dry_run_config,
    title="Adversarial cross-pollination",
    question="Does arguing with the opposing view improve a decision, "
    "compared with only reading or only voting?",
    config=CrossPollinationConfig,
    protocol=run_protocol,
    prompts=Path(__file__).parent / "prompts",
    roles=("participant", "moderator", "judge", "summarizer", "coder", "second_coder", "recruiter"),
    source_model="gpt-4o",
    matches=_matches_study,
    run_id=lambda config: config.pilot_id,
    size=design_size,
    seats=available_seats,
    claims=declare_claims,
    stopping_rule=describe_stopping_rule,
    conditions=name_conditions,
    findings=compute_findings,
    derived=derived_files,
    strict_tables=strict_tables,
    # Participants do not talk to each other. All read the same summaries, for which results hold.
    reply_unit=speaker_of,
    reply_unit_name="speaker",
    expected_rows=_expected_rows,
    uses_embeddings=True,
    with_limit=limit_participants,
    tables=(*TABLES, *coding.TABLES, ExposureRow, BasePersonaRow),
    compared_tables=("participants",),
    derived_tables=EXPOSURE,
    decision_design=DECISION_DESIGN,
    unusable_reason=unusable_reason,
    codebook=DEMOGRAPHICS,
    from_polis=from_polis,
    respondent_part=PART,
)
