"""The coverage commitment: what is promised to members whose first choice was not taken."""

from __future__ import annotations

from typing import Any

from folkmoot.studies.negotiation.tally import Tally

COMMITMENT = "Include at least one minority-supported choice in a later day/phase when feasible."


def coverage(slot: str, tally: Tally, selected: str | None) -> dict[str, Any] | None:
    """Who is owed which option, or None where nobody's first choice was passed over."""
    targets = {
        v.id: wish
        for v in tally.voters
        if (wish := tally.primary(v.id)) is not None and wish != selected
    }
    if selected is None or not targets:
        return None
    return {"slot": slot, "minority_targets": targets, "commitment": COMMITMENT}
