"""Adversarial cross-pollination: does arguing with the opposing view improve decisions?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.study.study import PlannedRows, Study
from folkmoot.kit import coding
from folkmoot.kit.base_personas import BasePersonaRow
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig, claims
from folkmoot.studies.cross_pollination.exposure_design import EXPOSURE
from folkmoot.studies.cross_pollination.files import derived
from folkmoot.studies.cross_pollination.findings import findings
from folkmoot.studies.cross_pollination.findings.votes import strict_tables
from folkmoot.studies.cross_pollination.participants import places
from folkmoot.studies.cross_pollination.preparation import (
    cut,
    from_polis,
    rehearsal,
    size,
    unusable,
)
from folkmoot.studies.cross_pollination.protocol import protocol
from folkmoot.studies.cross_pollination.respondent import PART
from folkmoot.studies.cross_pollination.tables import DEMOGRAPHICS, TABLES


def _recognises(raw: Mapping[str, object]) -> bool:
    topic = raw.get("topic")
    return "pilot_id" in raw and isinstance(topic, Mapping) and "options" in topic


def _planned(sealed: Mapping[str, Any]) -> list[PlannedRows]:
    arms = sealed.get("assignment", {})
    rows = tuple({"participant_id": who, "condition": arm} for who, arm in arms.items())
    key = ("participant_id",)
    done = ("status", "complete")
    return [PlannedRows("participants", key, rows, done=done, part="participant_id")]


STUDY = Study(
    name="cross_pollination",
    rehearsal=rehearsal,
    title="Adversarial cross-pollination",
    config=CrossPollinationConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    source_model="gpt-4o",
    recognises=_recognises,
    run_id=lambda config: config.pilot_id,
    size=size,
    places=places,
    claims=claims,
    findings=findings,
    derived=derived,
    strict_tables=strict_tables,
    planned=_planned,
    embeds=True,
    limit=cut,
    tables=(*TABLES, *coding.TABLES, ExposureRow, BasePersonaRow),
    afterwards=EXPOSURE,
    unusable=unusable,
    codebook=DEMOGRAPHICS,
    from_polis=from_polis,
    respondent=PART,
)
