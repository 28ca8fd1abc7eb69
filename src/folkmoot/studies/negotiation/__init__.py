"""Group negotiation: strategy-locked dialogues of travellers, with auditable decisions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.study import Planned, Study
from folkmoot.studies.negotiation.codebook import CODEBOOK, TABLES, unusable
from folkmoot.studies.negotiation.conditions import CONDITIONS
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.findings import findings
from folkmoot.studies.negotiation.planning import check, cut, template
from folkmoot.studies.negotiation.protocol import protocol
from folkmoot.studies.negotiation.show import show


def _recognises(raw: Mapping[str, Any]) -> bool:
    conditions = raw.get("conditions")
    ours = isinstance(conditions, list) and bool(conditions) and set(conditions) <= set(CONDITIONS)
    return ours or "groups_per_type" in raw or "max_feedback_rounds" in raw


def _planned(sealed: Mapping[str, Any]) -> list[Planned]:
    rows = tuple(
        {"group_id": group["id"], "condition": condition, "group_type": group["type"]}
        for group in sealed.get("groups", [])
        for condition in sealed.get("conditions", [])
    )
    return [Planned("measures", ("group_id", "condition"), rows, "session")]


STUDY = Study(
    name="negotiation",
    title="Group negotiation",
    config=NegotiationConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    recognises=_recognises,
    check=check,
    findings=findings,
    planned=_planned,
    show=show,
    limit=cut,
    tables=TABLES,
    unusable=unusable,
    codebook=CODEBOOK,
    template=template,
)
