"""What a session leaves behind: its rows, and the files that the source names: the dialogue, the
trail of every decision, and the planner's payload, valid by the JSON Schema beside this file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.errors import ProtocolError
from folkmoot.studies.negotiation import tripcraft
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision, theory_words
from folkmoot.studies.negotiation.measures import (
    DecisionMeasures,
    SessionResult,
    everyone_in,
    measure,
    session_measures,
)
from folkmoot.studies.negotiation.operators import counterfactuals
from folkmoot.studies.negotiation.replies import same
from folkmoot.studies.negotiation.strategies import LODGING, SLOTS, Group, Topic
from folkmoot.studies.negotiation.tables import (
    BallotRow,
    ConfirmationRow,
    CounterfactualRow,
    DecisionRow,
    FeedbackRow,
    GroupRow,
    MeasuresRow,
    MemberRow,
    PortionRow,
    SatisfactionRow,
    ScoreRow,
    UtteranceRow,
)
from folkmoot.studies.negotiation.tally import METHOD, STRONG_REJECTION, Tally


def sealed(group: Group) -> Mapping[str, object]:
    """A group as the plan keeps it."""
    members = [
        {"id": m.id, "name": m.name, "role": m.role, "weight": m.weight, "persona": m.persona}
        for m in group.members
    ]
    return {"id": group.id, "type": group.type.id, "members": members}


def record_groups(scope: Scope, groups: Sequence[Group]) -> None:
    for group in groups:
        ids = {"group_id": group.id, "group_type": group.type.id}
        roles = ", ".join(m.role for m in group.members)
        scope.record(GroupRow(**ids, size=len(group.members), roles=roles))
        for member in group.members:
            scope.record(
                MemberRow(
                    **ids,
                    member_id=member.id,
                    member_name=member.name,
                    role=member.role,
                    weight=member.weight,
                    persona=member.persona or None,
                    preferences_given=bool(member.preferences),
                )
            )


def finish_session(
    scope: Scope, case: Negotiation, decisions: Sequence[SlotDecision], trip: tripcraft.Trip
) -> SessionResult:
    """Record a session's rows, write its files, and return what the study ends with."""
    group, condition = case.group, case.condition
    ids: dict[str, Any] = {
        "group_id": group.id,
        "group_type": group.type.id,
        "condition": condition.id,
    }
    measured = []
    for topic, decision in zip(case.topics, decisions, strict=True):
        found = measure(case, topic, decision)
        measured.append(found)
        _record_decision(scope, case, topic, decision, found, ids)
    values = session_measures(case, decisions, measured)
    known: dict[str, Any] = {k: v if math.isfinite(v) else None for k, v in values.items()}
    scope.record(MeasuresRow(**ids, **known))
    folder = f"groups/{group.id}/{condition.id}"
    dialogue = {s: [x for d in decisions if d.slot == s for x in _dialogue(d)] for s in SLOTS}
    trails = {
        d.topic: {**trail(case, d), "satisfaction": dict(m.satisfaction)}
        for d, m in zip(decisions, measured, strict=True)
    }
    scope.write_json(f"{folder}/dialogue.json", dialogue)
    scope.write_json(f"{folder}/decisions.json", _by_slot(trails))
    scope.write_json(f"{folder}/planner_payload.json", payload(case, decisions))
    conflicts = {} if condition.one_member else {d.topic: d.has_conflict for d in decisions}
    row = tripcraft.row(case, decisions, trip)
    return SessionResult(group.id, condition.id, values, conflicts, row)


def _record_decision(
    scope: Scope,
    case: Negotiation,
    topic: Topic,
    d: SlotDecision,
    measured: DecisionMeasures,
    ids: Mapping[str, Any],
) -> None:
    at = {**ids, "slot": topic.slot, "topic": topic.id}
    raw = case.condition.synthesis == "raw"
    scope.record(
        DecisionRow(
            **at,
            source=d.source,
            has_conflict=d.has_conflict,
            stated_conflict=everyone_in(case).tally(topic).conflict,
            strategy_id=d.strategy_id,
            operator=d.strategy.operator if d.strategy else None,
            proposed_strategy=d.proposed,
            resolution_strategy=d.strategy_id,
            drifted=d.drifted,
            selected_option=d.selected_option,
            resolution_text=d.resolution_text,
            dropped="; ".join(d.dropped),
            overridden="; ".join(f"{o}: {', '.join(who)}" for o, who in d.overridden.items()),
            mediator_words=d.said or None,
            theory_words="; ".join(theory_words(d.said)) if raw else None,
            statement_agrees=d.statement_agrees,
            unread_entries=d.stated.unread if d.stated else None,
            winner_by_source_ballots=d.source_winner,
            members_shown="; ".join(m.name for m in case.order(topic)) if d.stated else None,
            options_shown="; ".join(case.drawn(topic, d.options)) if d.stated else None,
            fell_back_to=(d.outcome.fell_back_to or None) if d.outcome else None,
            infeasible=d.outcome.infeasible if d.outcome else None,
            ballots=d.ballots,
            subgrouping_required=d.subgrouping_required,
            subgrouping_optional=d.subgrouping_optional,
            feedback_rounds=len(d.feedback),
            resolved=d.resolved,
            parse_error=d.parse_error,
            words=d.words,
            rung=d.rung or None,
        )
    )
    for turn, line in enumerate(d.lines, start=1):
        scope.record(UtteranceRow(**at, turn=turn, **asdict(line)))
    voters = [m.id for m in case.voters(topic)]
    for member in case.members if d.ballots in ("collected", "partial", "missing") else ():
        ballot, votes = d.cast.get(member.id), member.id in voters
        scores = ballot.scores.items() if ballot else ()
        shown = "; ".join(case.drawn(topic, d.options, member.id))
        scope.record(
            BallotRow(
                **at,
                member_id=member.id,
                top_choice=ballot.top_choice if ballot else None,
                acceptable="; ".join(ballot.acceptable) if ballot else None,
                hard_no="; ".join(ballot.hard_no) if ballot else None,
                scores="; ".join(f"{o} {s:g}" for o, s in scores) or None,
                missing=votes and ballot is None,
                excluded=not votes,
                options_shown=shown if votes else None,
            )
        )
    for portion in d.portions:
        for id in portion.members:
            scope.record(PortionRow(**at, member_id=id, option=portion.option, when=portion.when))
    for id, word in d.confirmed.items():
        missing = word.reason if isinstance(word, Missing) else None
        confirmed = None if isinstance(word, Missing) else word
        scope.record(ConfirmationRow(**at, member_id=id, confirmed=confirmed, missing=missing))
    for f in d.feedback:
        scope.record(
            FeedbackRow(
                **at,
                round=f.round,
                target=f.target,
                targeted=f.targeted,
                resolved=f.resolved,
                question=f.question,
                updated_explanation=f.updated_explanation or None,
                revised_decision=f.revised_decision or None,
                refused_options="; ".join(f.refused) or None,
                refused_because=f.because or None,
                hard_no="; ".join(f.hard_no) or None,
                parse_error=f.parse_error,
            )
        )
    used, plain = case.tally(topic, d.cast), case.tally(topic)
    _record_counterfactuals(scope, case, d, used, at)
    for voter in used.voters:
        for option, score in used.scores[voter.id].items():
            scope.record(
                ScoreRow(
                    **at,
                    member_id=voter.id,
                    option=option,
                    score=int(score),
                    text_score=_whole(plain.scores[voter.id].get(option)),
                    strong_rejection=score <= STRONG_REJECTION,
                    primary=option == used.primary(voter.id),
                )
            )
    for member in case.group.members:
        scope.record(
            SatisfactionRow(
                **at,
                member_id=member.id,
                satisfaction=measured.satisfaction.get(member.id),
                covered=measured.covered.get(member.id),
            )
        )


def _record_counterfactuals(
    scope: Scope, case: Negotiation, d: SlotDecision, tally: Tally, at: Mapping[str, Any]
) -> None:
    """What every operator makes of the texts and ballots: once a group, before feedback if C4 is
    compared."""
    once = "C4" if "C4" in case.config.conditions else "C5"
    if d.strategy is None or d.outcome is None or case.condition.id != once:
        return
    found = counterfactuals(tally, d.strategy, case.config.days, has_conflict=d.has_conflict)
    for operator, outcome in found.items():
        scope.record(
            CounterfactualRow(
                **at,
                operator=operator,
                in_force=operator == d.strategy.operator,
                selected_option=outcome.selected_option,
                same_winner=outcome.selected_option == d.outcome.selected_option,
                margin=outcome.margin,
                decided_by=outcome.decided_by,
            )
        )


def _whole(score: float | None) -> int | None:
    return None if score is None else int(score)


def _by_slot(by_topic: Mapping[str, Any]) -> dict[str, Any]:
    """Slots in their fixed order, lodging with its two halves."""
    return {
        slot: {half: by_topic[half] for half in LODGING} if slot == "lodging" else by_topic[slot]
        for slot in SLOTS
    }


def _dialogue(d: SlotDecision) -> list[dict[str, str]]:
    """The lines of a decision; those of one half of lodging say which."""
    half = {"decision": d.topic} if d.topic in LODGING else {}
    return [{"speaker": x.speaker, "intent": x.intent, "text": x.text, **half} for x in d.lines]


def trail(case: Negotiation, d: SlotDecision) -> dict[str, Any]:
    """Everything that led to a decision, in the order in which it came about."""
    names = case.group.names
    return {
        "source": d.source,
        "has_conflict": d.has_conflict,
        "conflict_description": d.conflict_description,
        "mediator_words": d.said,
        "statement": {
            "portions": [p.to_json() for p in d.stated.portions],
            "dropped": list(d.stated.dropped),
            "unread_entries": d.stated.unread,
        }
        if d.stated
        else None,
        "proposal": d.proposal,
        "proposed_strategy": d.proposed,
        "resolution_strategy": d.strategy_id,
        "drifted": d.drifted,
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
                    **({"scores": dict(b.scores)} if b.scores else {}),
                }
                for m, b in d.cast.items()
            ],
        },
        "vote_summary": d.vote_summary,
        "operator_decision": d.outcome.to_json() if d.outcome else None,
        "coverage_commitment": d.coverage,
        "subgrouping_required": d.subgrouping_required,
        "subgrouping_optional": d.subgrouping_optional,
        "subgroup_assignment": _assignment(d, names),
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
                "refused_because": f.because or None,
                "hard_no": list(f.hard_no),
                **({"_parse_error": True} if f.parse_error else {}),
            }
            for f in d.feedback
        ],
        "selected_option": d.selected_option,
        "portions": [p.to_json() for p in d.portions],
        "dropped": list(d.dropped),
        "overridden": {o: list(who) for o, who in d.overridden.items()},
        "confirmed": {
            m: None if isinstance(word, Missing) else word for m, word in d.confirmed.items()
        },
        "resolution_text": d.resolution_text,
        "dropped_lines": d.dropped_lines,
        **({"_parse_error": True} if d.parse_error else {}),
    }


def _assignment(d: SlotDecision, names: Mapping[str, str]) -> dict[str, Any] | None:
    if d.split is None:
        return None
    branches = {
        group: {
            "anchor": branch.anchor,
            "members": [{"user_id": m, "name": names[m]} for m in branch.members],
        }
        for group, branch in zip(("group_a", "group_b"), d.split, strict=True)
    }
    as_counted = d.outcome is not None and same(d.portions, d.outcome.portions)
    return {"slot": d.slot, "method": METHOD if as_counted else "stated_in_feedback", **branches}


# --- phase 6: the planner's payload ------------------------------------------------------------

PRECEDENCE = ("feedback_overrides", "slot_decision_state", "constraint_state")
_AUTHORITY = "Constraint State is authoritative and contains only user preferences."
_LOCK = "SLOT DECISION STATE is authoritative for strategy lock fields."
_ORDER = "feedback_overrides > slot_decision_state > constraint_state"
_MEALS = "Fill Breakfast/Lunch/Dinner with concrete restaurant names from references."
_SPLIT = (
    "When subgrouping_required=true, output explicit: Shared Backbone (the common timeline that "
    "all members follow), Group A and Group B (explicit branch assignments), and Rejoin (the "
    "point where both groups merge back)."
)
_SLOT_ONLY = "Slot-only split: meals/lodging stay shared unless explicit user override."
_SHARED = "Meals and lodging stay shared for the whole group unless a user says otherwise."
# Without a strategy lock the rules about it and about splits are left out, which also keeps C3
# free of their words.
INSTRUCTIONS = {
    True: (_AUTHORITY, _LOCK, _ORDER, _MEALS, _SPLIT, _SLOT_ONLY),
    False: (_AUTHORITY, _ORDER, _MEALS, _SHARED),
}


def payload(case: Negotiation, decisions: Sequence[SlotDecision]) -> dict[str, Any]:
    """The planner's payload of one session, valid by the schema. Raises ProtocolError if it is not
    valid, which would be a bug of this study."""
    group = case.group
    data: dict[str, Any] = {
        "group_id": group.id,
        "group_type": group.type.id,
        "condition": case.condition.id,
        "days": case.config.days,
        "members": [
            {"user_id": m.id, "name": m.name, "role": m.role, "weight": m.weight}
            for m in group.members
        ],
        "constraint_state": _by_slot({t.id: case.texts(t.id) for t in case.topics}),
        "slot_decision_state": _by_slot({d.topic: _state(d, group.names) for d in decisions}),
        "feedback_overrides": {d.topic: _override(d) for d in decisions if d.source == "feedback"},
        "subgroup_signals": {
            "required_slots": [d.slot for d in decisions if d.subgrouping_required],
            "optional_slots": [d.slot for d in decisions if d.subgrouping_optional],
        },
        "precedence": list(PRECEDENCE),
        "planner_instructions": list(INSTRUCTIONS[case.condition.locked]),
    }
    validate(data)
    return data


def _state(d: SlotDecision, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "has_conflict": d.has_conflict,
        "source": d.source,
        "feedback_rounds": len(d.feedback),
        "resolution_strategy": d.strategy_id,
        "strategy_id": d.strategy_id,
        "operator": d.strategy.operator if d.strategy else None,
        "resolution_text": d.resolution_text,
        "selected_option": d.selected_option,
        "portions": [p.to_json() for p in d.portions],
        "subgrouping_required": d.subgrouping_required,
        "subgrouping_optional": d.subgrouping_optional,
        "vote_summary": d.vote_summary,
        "coverage_commitment": d.coverage,
        "subgroup_assignment": _assignment(d, names),
    }


def _override(d: SlotDecision) -> dict[str, Any]:
    changed = [f.updated_explanation for f in d.feedback if f.updated_explanation]
    return {
        "resolution_text": d.resolution_text,
        "explanation": changed[-1] if changed else "",
        "rounds": len(d.feedback),
        "resolved": bool(d.resolved),
    }


def validate(data: Any) -> None:
    """Raises ProtocolError that names the first place where a payload breaks the schema."""
    errors = sorted(_validator().iter_errors(data), key=lambda e: [str(p) for p in e.path])
    if errors:
        place = "/".join(map(str, errors[0].path)) or "payload"
        raise ProtocolError(f"planner payload, {place}: {errors[0].message}")


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
