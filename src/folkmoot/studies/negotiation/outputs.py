"""What a session leaves behind: tables, its files, and the comparison of conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation import measures
from folkmoot.studies.negotiation.decision import SlotDecision
from folkmoot.studies.negotiation.groups import Group
from folkmoot.studies.negotiation.handoff import payload
from folkmoot.studies.negotiation.measures import DecisionMeasures, SessionResult
from folkmoot.studies.negotiation.room import Room
from folkmoot.studies.negotiation.slots import LODGING, SLOTS


def record_groups(scope: Scope, groups: Sequence[Group]) -> None:
    for group in groups:
        scope.record(
            "groups",
            {
                "group_id": group.id,
                "group_type": group.type.id,
                "size": len(group.members),
                "roles": ", ".join(m.role for m in group.members),
            },
        )
        for member in group.members:
            scope.record(
                "members",
                {
                    "group_id": group.id,
                    "group_type": group.type.id,
                    "member_id": member.id,
                    "member_name": member.name,
                    "role": member.role,
                    "weight": member.weight,
                    "persona": member.persona or None,
                    "preferences_given": bool(member.preferences),
                },
            )


def finish_session(
    scope: Scope, room: Room, everyone: Room, decisions: Sequence[SlotDecision]
) -> SessionResult:
    """Record a session's rows, write its files, and give back what comparisons need."""
    ids = {
        "group_id": room.group.id,
        "group_type": room.group.type.id,
        "condition": room.condition.id,
    }
    measured = []
    for topic, decision in zip(room.topics, decisions, strict=True):
        found = measures.measure(room, topic, decision, everyone)
        measured.append(found)
        at = {**ids, "slot": topic.slot, "topic": topic.id}
        scope.record("decisions", {**at, **_decision_row(room, decision, everyone)})
        _record_details(scope, room, decision, at)
        _record_scores(scope, room, decision, at, found)
    values = measures.session_measures(room, decisions, measured)
    scope.record("measures", {**ids, **{k: _known(v) for k, v in values.items()}})
    _write_files(scope, room, decisions, measured)
    conflicts = {} if room.condition.one_member else {d.topic: d.has_conflict for d in decisions}
    return SessionResult(room.group.id, room.condition.id, values, conflicts)


def _decision_row(room: Room, d: SlotDecision, everyone: Room) -> dict[str, Any]:
    topic = next(t for t in room.topics if t.id == d.topic)
    tally = everyone.tally(topic)
    firsts = {p for v in tally.voters if (p := tally.primary(v.id)) is not None}
    return {
        "source": d.source,
        "has_conflict": d.has_conflict,
        "stated_conflict": len(firsts) > 1 or any(tally.rejections(o) for o in firsts),
        "strategy_id": d.strategy.strategy_id if d.strategy else None,
        "operator": d.strategy.operator if d.strategy else None,
        "proposed_strategy": d.clamped.proposed_strategy if d.clamped else None,
        "resolution_strategy": d.clamped.resolution_strategy if d.clamped else None,
        "drifted": d.clamped.drifted if d.clamped else None,
        "selected_option": d.selected_option,
        "resolution_text": d.resolution_text,
        "fell_back_to": (d.outcome.fell_back_to or None) if d.outcome else None,
        "infeasible": d.outcome.infeasible if d.outcome else None,
        "ballots": d.ballots,
        "subgrouping_required": d.flags.required,
        "subgrouping_optional": d.flags.optional,
        "feedback_rounds": len(d.feedback),
        "resolved": d.resolved,
        "parse_error": d.parse_error,
        "words": d.words,
        "rung": d.rung or None,
    }


def _record_details(scope: Scope, room: Room, d: SlotDecision, at: dict[str, Any]) -> None:
    for turn, line in enumerate(d.lines, start=1):
        scope.record(
            "utterances",
            {
                **at,
                "turn": turn,
                "phase": line.phase,
                "round": line.round,
                "speaker": line.speaker,
                "intent": line.intent,
                "text": line.text,
                "finish": line.finish,
            },
        )
    for member in room.members:
        ballot = d.cast.get(member.id)
        if d.ballots in ("collected", "partial", "missing"):
            scope.record(
                "ballots",
                {
                    **at,
                    "member_id": member.id,
                    "top_choice": ballot.top_choice if ballot else None,
                    "acceptable": "; ".join(ballot.acceptable) if ballot else None,
                    "hard_no": "; ".join(ballot.hard_no) if ballot else None,
                    "missing": ballot is None,
                },
            )
    for f in d.feedback:
        scope.record(
            "feedback",
            {
                **at,
                "round": f.round,
                "target": f.target,
                "targeted": f.targeted,
                "resolved": f.resolved,
                "question": f.question,
                "updated_explanation": f.updated_explanation or None,
                "revised_decision": f.revised_decision or None,
                "refused_options": "; ".join(f.refused) or None,
                "parse_error": f.parse_error,
            },
        )


def _record_scores(
    scope: Scope, room: Room, d: SlotDecision, at: dict[str, Any], found: DecisionMeasures
) -> None:
    topic = next(t for t in room.topics if t.id == d.topic)
    used, plain = room.tally(topic, d.cast), room.tally(topic)
    for voter in used.voters:
        first = used.primary(voter.id)
        for option in used.options:
            known = option in plain.options
            scope.record(
                "scores",
                {
                    **at,
                    "member_id": voter.id,
                    "option": option,
                    "score": used.score(voter.id, option),
                    "text_score": plain.score(voter.id, option) if known else None,
                    "strong_rejection": used.score(voter.id, option) <= used.threshold,
                    "primary": option == first,
                },
            )
    for member in room.group.members:
        scope.record(
            "satisfaction",
            {
                **at,
                "member_id": member.id,
                "satisfaction": found.satisfaction.get(member.id),
                "covered": found.covered.get(member.id),
            },
        )


def _write_files(
    scope: Scope,
    room: Room,
    decisions: Sequence[SlotDecision],
    measured: Sequence[DecisionMeasures],
) -> None:
    folder = f"groups/{room.group.id}/{room.condition.id}"
    by_slot: dict[str, list[dict[str, Any]]] = {slot: [] for slot in SLOTS}
    for d in decisions:
        by_slot[d.slot] += [line.to_json() for line in d.lines]
    scope.write_json(f"{folder}/dialogue.json", by_slot)
    audit: dict[str, Any] = {slot: {} for slot in SLOTS}
    for d, found in zip(decisions, measured, strict=True):
        trail = {**audit_trail(room, d), "satisfaction": dict(found.satisfaction)}
        if d.topic in LODGING:
            audit[d.slot][d.topic] = trail
        else:
            audit[d.slot] = trail
    scope.write_json(f"{folder}/decisions.json", audit)
    scope.write_json(f"{folder}/planner_payload.json", payload(room, decisions))


def audit_trail(room: Room, d: SlotDecision) -> dict[str, Any]:
    """Everything that led to a decision, in the order in which it came about."""
    names = {m.id: m.name for m in room.group.members}
    return {
        "source": d.source,
        "has_conflict": d.has_conflict,
        "conflict_description": d.conflict_description,
        "proposal": d.proposal,
        "proposed_strategy": d.clamped.proposed_strategy if d.clamped else None,
        "resolution_strategy": d.clamped.resolution_strategy if d.clamped else None,
        "drifted": d.clamped.drifted if d.clamped else None,
        "rule": d.strategy.rule if d.strategy else None,
        "options": list(d.options),
        "ballots": {
            "state": d.ballots,
            "cast": [
                {
                    "member": names[m],
                    "top_choice": b.top_choice,
                    "acceptable": list(b.acceptable),
                    "hard_no": list(b.hard_no),
                }
                for m, b in d.cast.items()
            ],
        },
        "vote_summary": dict(d.vote_summary) if d.vote_summary else None,
        "operator_decision": d.outcome.to_json() if d.outcome else None,
        "coverage_commitment": dict(d.coverage) if d.coverage else None,
        "subgrouping_required": d.flags.required,
        "subgrouping_optional": d.flags.optional,
        "subgroup_assignment": d.split.to_json(d.slot, names) if d.split else None,
        "feedback": [
            {
                "round": f.round,
                "asked": names[f.target],
                "left_out": f.targeted,
                "targeted_feedback_question": f.question,
                "resolved": f.resolved,
                "updated_resolution_explanation": f.updated_explanation,
                "final_revised_decision": f.revised_decision,
                "refused_options": list(f.refused),
                **({"_parse_error": True} if f.parse_error else {}),
            }
            for f in d.feedback
        ],
        "selected_option": d.selected_option,
        "portions": [p.to_json() for p in d.portions],
        "resolution_text": d.resolution_text,
        "dropped_lines": d.dropped_lines,
        **({"_parse_error": True} if d.parse_error else {}),
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
