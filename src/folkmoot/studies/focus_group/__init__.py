"""Focus group: what eight people say about a concept, what moves them, and what they object to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.focus_group.config import DiscussionConfig, claims
from folkmoot.studies.focus_group.exposure_design import EXPOSURE
from folkmoot.studies.focus_group.files import derived
from folkmoot.studies.focus_group.findings import findings, repeats, strict_tables
from folkmoot.studies.focus_group.participants import places
from folkmoot.studies.focus_group.preparation import (
    check,
    cut,
    list_images,
    notes,
    planned,
    size,
)
from folkmoot.studies.focus_group.protocol import protocol
from folkmoot.studies.focus_group.respondent import PART
from folkmoot.studies.focus_group.show import show
from folkmoot.studies.focus_group.tables import TABLES, unusable


def _recognises(raw: Mapping[str, object]) -> bool:
    return "product_concept" in raw or ("stimuli" in raw and "category" in raw)


STUDY = Study(
    name="focus_group",
    title="Focus group",
    config=DiscussionConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    source_model="anthropic/claude-sonnet-4-20250514",
    recognises=_recognises,
    check=check,
    notes=notes,
    size=size,
    images=list_images,
    places=places,
    claims=claims,
    findings=findings,
    repeats=repeats,
    derived=derived,
    strict_tables=strict_tables,
    planned=planned,
    show=show,
    limit=cut,
    tables=(*TABLES, ExposureRow),
    afterwards=EXPOSURE,
    unusable=unusable,
    respondent=PART,
)
