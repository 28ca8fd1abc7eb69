"""Group negotiation: strategy-locked dialogues of travellers, with auditable decisions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.exposure import ExposureRow
from folkmoot.studies.negotiation.config import NegotiationConfig, claims
from folkmoot.studies.negotiation.exposure_design import EXPOSURE
from folkmoot.studies.negotiation.files import derived
from folkmoot.studies.negotiation.findings import findings, repeats, strict_tables
from folkmoot.studies.negotiation.participants import places
from folkmoot.studies.negotiation.preparation import check, cut, planned, size, template
from folkmoot.studies.negotiation.protocol import protocol
from folkmoot.studies.negotiation.respondent import PART
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS
from folkmoot.studies.negotiation.show import show
from folkmoot.studies.negotiation.tables import TABLES, unusable


def _recognises(raw: Mapping[str, object]) -> bool:
    conditions = raw.get("conditions")
    ours = isinstance(conditions, list) and bool(conditions) and set(conditions) <= set(CONDITIONS)
    return ours or "groups_per_type" in raw or "max_feedback_rounds" in raw


STUDY = Study(
    name="negotiation",
    title="Group negotiation",
    config=NegotiationConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    recognises=_recognises,
    check=check,
    size=size,
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
    template=template,
)
