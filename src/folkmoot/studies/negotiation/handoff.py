"""Phase 6: the planner's payload, each one validated against the JSON Schema beside this file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from folkmoot.errors import ProtocolError
from folkmoot.studies.negotiation.decision import SlotDecision
from folkmoot.studies.negotiation.purity import purify_json
from folkmoot.studies.negotiation.room import Room
from folkmoot.studies.negotiation.slots import LODGING, SLOTS

PRECEDENCE = ("feedback_overrides", "slot_decision_state", "constraint_state")
_AUTHORITY = "Constraint State is authoritative and contains only user preferences."
_ORDER = "feedback_overrides > slot_decision_state > constraint_state"
_MEALS = "Fill Breakfast/Lunch/Dinner with concrete restaurant names from references."
_SHARED = "Meals and lodging stay shared for the whole group unless a user says otherwise."
_LOCK = "SLOT DECISION STATE is authoritative for strategy lock fields."
_SPLIT = (
    "When subgrouping_required=true, output explicit: Shared Backbone (the common timeline that "
    "all members follow), Group A and Group B (explicit branch assignments), and Rejoin (the "
    "point where both groups merge back)."
)
_SLOT_ONLY = "Slot-only split: meals/lodging stay shared unless explicit user override."


def payload(room: Room, decisions: Sequence[SlotDecision]) -> dict[str, Any]:
    """The planner's payload of one session, valid by the schema. Under C3 every text in it is
    pure. Raises ProtocolError if it is not valid, which would be a bug of this study."""
    by_topic = {d.topic: d for d in decisions}
    data: dict[str, Any] = {
        "group_id": room.group.id,
        "group_type": room.group.type.id,
        "condition": room.condition.id,
        "days": room.config.days,
        "members": [
            {"user_id": m.id, "name": m.name, "role": m.role, "weight": m.weight}
            for m in room.group.members
        ],
        "constraint_state": _by_slot({t.id: room.texts(t.id) for t in room.topics}),
        "slot_decision_state": _by_slot({t: _decision(room, d) for t, d in by_topic.items()}),
        "feedback_overrides": {d.topic: _override(d) for d in decisions if d.source == "feedback"},
        "subgroup_signals": {
            "required_slots": [d.slot for d in decisions if d.flags.required],
            "optional_slots": [d.slot for d in decisions if d.flags.optional],
        },
        "precedence": list(PRECEDENCE),
        "planner_instructions": list(instructions(locked=room.condition.locked)),
    }
    if room.condition.synthesis == "raw":
        ids = {k: data[k] for k in ("group_id", "group_type", "condition")}
        data = {**purify_json(data), **ids}
    validate(data)
    return data


def instructions(*, locked: bool) -> tuple[str, ...]:
    """The planner's rules. Without a strategy lock those about it and about splits are left out,
    which also keeps C3 free of their words."""
    if locked:
        return (_AUTHORITY, _LOCK, _ORDER, _MEALS, _SPLIT, _SLOT_ONLY)
    return (_AUTHORITY, _ORDER, _MEALS, _SHARED)


def validate(data: Any) -> None:
    """Raises ProtocolError that names the first place where a payload breaks the schema."""
    errors = sorted(_validator().iter_errors(data), key=lambda e: [str(p) for p in e.path])
    if errors:
        first = errors[0]
        place = "/".join(map(str, first.path)) or "payload"
        raise ProtocolError(f"planner payload, {place}: {first.message}")


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the payload."""
    text = files(__package__).joinpath("planner_payload.schema.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@cache
def _validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


def _by_slot(by_topic: dict[str, Any]) -> dict[str, Any]:
    """Slots in their fixed order, lodging with its two halves."""
    return {
        slot: {half: by_topic[half] for half in LODGING} if slot == "lodging" else by_topic[slot]
        for slot in SLOTS
    }


def _decision(room: Room, d: SlotDecision) -> dict[str, Any]:
    names = {m.id: m.name for m in room.group.members}
    return {
        "has_conflict": d.has_conflict,
        "source": d.source,
        "feedback_rounds": len(d.feedback),
        "resolution_strategy": d.clamped.resolution_strategy if d.clamped else None,
        "strategy_id": d.strategy.strategy_id if d.strategy else None,
        "operator": d.strategy.operator if d.strategy else None,
        "resolution_text": d.resolution_text,
        "selected_option": d.selected_option,
        "portions": [p.to_json() for p in d.portions],
        "subgrouping_required": d.flags.required,
        "subgrouping_optional": d.flags.optional,
        "vote_summary": dict(d.vote_summary) if d.vote_summary else None,
        "coverage_commitment": dict(d.coverage) if d.coverage else None,
        "subgroup_assignment": d.split.to_json(d.slot, names) if d.split else None,
    }


def _override(d: SlotDecision) -> dict[str, Any]:
    changed = [f.updated_explanation for f in d.feedback if f.updated_explanation]
    return {
        "resolution_text": d.resolution_text,
        "explanation": changed[-1] if changed else "",
        "rounds": len(d.feedback),
        "resolved": bool(d.resolved),
    }
