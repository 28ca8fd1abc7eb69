"""What a session leaves behind: the files that the source names (the dialogue, the trail of every
decision, the planner's payload, valid by the JSON Schema beside this file) and TripCraft's input.

TripCraft's columns are those of its query files (Chaudhuri et al., ACL 2025, arXiv:2502.20508), one
row a group; the reference information of the user's own trip file is passed through untouched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import polars as pl
from jsonschema import Draft202012Validator

from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.session.session import Scope
from folkmoot.errors import InputError, Problem, ProtocolError
from folkmoot.files import csv_text, read_csv
from folkmoot.kit.calls import JournalReader
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.config import NegotiationConfig, path_in
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision, sentence
from folkmoot.studies.negotiation.measures import SessionResult, compare_conditions, measure
from folkmoot.studies.negotiation.rules.replies import same
from folkmoot.studies.negotiation.rules.strategies import LODGING, SLOTS, Group
from folkmoot.studies.negotiation.rules.tally import METHOD, words_of
from folkmoot.studies.negotiation.tables import (
    TripRow,
    decision_rows,
    ids_of,
    measures_row,
    not_asked_again_row,
)

T = TypeVar("T")


def sealed(group: Group) -> Mapping[str, object]:
    """A group as the plan keeps it."""
    members = [
        {"id": m.id, "name": m.name, "role": m.role, "weight": m.weight, "persona": m.persona}
        for m in group.members
    ]
    return {"id": group.id, "type": group.type.id, "members": members}


def finish_session(
    scope: Scope, case: Negotiation, decisions: Sequence[SlotDecision], trip: Trip
) -> SessionResult:
    """Record a session's decisions and its trip, and write its files."""
    group, condition = case.group, case.condition
    measured = [measure(case, t, d) for t, d in zip(case.topics, decisions, strict=True)]
    for d, m in zip(decisions, measured, strict=True):
        for found in decision_rows(case, d, m.satisfaction, m.unknown, m.covered):
            scope.record(found)
    folder = f"groups/{group.id}/{condition.id}"
    dialogue = {s: [x for d in decisions if d.slot == s for x in _dialogue(d)] for s in SLOTS}
    trails = {
        d.topic: {
            **trail(case, d),
            "satisfaction": dict(m.satisfaction),
            "satisfaction_unknown": dict(m.unknown),
        }
        for d, m in zip(decisions, measured, strict=True)
    }
    scope.write_json(f"{folder}/dialogue.json", dialogue)
    scope.write_json(f"{folder}/decisions.json", _by_slot(trails))
    scope.write_json(f"{folder}/planner_payload.json", payload(case, decisions))
    row = tripcraft_row(case, decisions, trip).items()
    cells = {name: "" if value is None else str(value) for name, value in row}
    scope.record(TripRow.table, {**ids_of(case), **cells})
    return SessionResult(case, tuple(decisions), tuple(measured))


def record_measures(scope: Scope, result: SessionResult, asked_again: Collection[str]) -> None:
    """Record the measures of a session when its group is done; `asked_again`: the topics for which
    a reply was asked for again under any condition."""
    scope.record(measures_row(result.case, result.values()))
    if asked_again:
        without = result.values(asked_again)
        scope.record(not_asked_again_row(result.case, without, len(asked_again)))


def derived(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield the files of all groups: the comparison, and TripCraft's input under each condition."""
    conditions = run.plan["sealed"]["conditions"]["data"]
    trips = run.table(TripRow.table)
    for condition in conditions:
        yield f"tripcraft/{condition}.csv", tripcraft_csv(trips.filter(condition=condition))
    yield "comparison.json", compare_conditions(run)


def _by_slot(by_topic: Mapping[str, T]) -> dict[str, T | dict[str, T]]:
    """Slots in their fixed order, lodging with its two halves."""
    return {
        slot: {half: by_topic[half] for half in LODGING} if slot == "lodging" else by_topic[slot]
        for slot in SLOTS
    }


def _dialogue(d: SlotDecision) -> list[dict[str, str]]:
    """The lines of a decision; those of one half of lodging say which."""
    half = {"decision": d.topic} if d.topic in LODGING else {}
    return [{"speaker": x.speaker, "intent": x.intent, "text": x.text, **half} for x in d.lines]


def trail(case: Negotiation, d: SlotDecision) -> dict[str, object]:
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
            "unmatched": {what: list(entries) for what, entries in d.stated.unmatched.items()},
        }
        if d.stated
        else None,
        "theory_words": {
            "theory": list(d.terms.theory),
            "quoted": list(d.terms.quoted),
            "first_reply": list(d.terms_first),
        },
        "asked_again": list(d.asked_again),
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
                    "top_choice": b.top_choice or None,
                    "acceptable": list(b.acceptable),
                    "hard_no": [*b.hard_no, *b.objections],
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
                "change": f.change or None,
                "hard_no": [*f.hard_no, *f.objections],
                **({"_parse_error": True} if f.parse_error else {}),
            }
            for f in d.feedback
        ],
        "selected_option": d.selected_option,
        "portions": _portions(d),
        "undecided": d.undecided,
        "dropped": list(d.dropped),
        "overridden": {o: list(who) for o, who in d.overridden.items()},
        "confirmed": {
            m: None if isinstance(word, Missing) else word for m, word in d.confirmed.items()
        },
        "refused": {m: list(options) for m, options in d.refused.items()},
        "resolution_text": d.resolution_text or None,
        "dropped_lines": d.dropped_lines,
        **({"_parse_error": True} if d.parse_error else {}),
    }


def _portions(decision: SlotDecision) -> list[dict[str, object]] | None:
    """Return who gets what; None where nothing is decided."""
    return None if decision.undecided else [p.to_json() for p in decision.portions]


def _assignment(d: SlotDecision, names: Mapping[str, str]) -> dict[str, object] | None:
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


def payload(case: Negotiation, decisions: Sequence[SlotDecision]) -> dict[str, object]:
    """The planner's payload of one session, valid by the schema. Raises ProtocolError if it is not
    valid, which would be a bug of this study."""
    group = case.group
    data: dict[str, object] = {
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


def _state(d: SlotDecision, names: Mapping[str, str]) -> dict[str, object]:
    return {
        "has_conflict": d.has_conflict,
        "source": d.source,
        "feedback_rounds": len(d.feedback),
        "resolution_strategy": d.strategy_id,
        "strategy_id": d.strategy_id,
        "operator": d.strategy.operator if d.strategy else None,
        "resolution_text": d.resolution_text or None,
        "selected_option": d.selected_option,
        "portions": _portions(d),
        "undecided": d.undecided,
        "subgrouping_required": d.subgrouping_required,
        "subgrouping_optional": d.subgrouping_optional,
        "vote_summary": d.vote_summary,
        "coverage_commitment": d.coverage,
        "subgroup_assignment": _assignment(d, names),
    }


def _override(d: SlotDecision) -> dict[str, object]:
    changed = [f.change for f in d.feedback if f.change]
    return {
        "resolution_text": d.resolution_text,
        "explanation": changed[-1] if changed else "",
        "rounds": len(d.feedback),
        "resolved": d.resolved,
    }


def validate(data: object) -> None:
    """Raises ProtocolError that names the first place where a payload breaks the schema."""
    errors = sorted(_validator().iter_errors(data), key=lambda e: [str(p) for p in e.path])
    if errors:
        place = "/".join(map(str, errors[0].path)) or "payload"
        raise ProtocolError(f"planner payload, {place}: {errors[0].message}")


@cache
def schema() -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of the payload."""
    text = files(__package__).joinpath("planner_payload.schema.json").read_text(encoding="utf-8")
    data: dict[str, object] = json.loads(text)
    return data


@cache
def _validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


TRIPCRAFT_COLUMNS = (
    *("org", "dest", "days", "visiting_city_number", "date", "people_number"),
    *("local_constraint", "budget", "query", "level", "persona"),
)
REFERENCE = "reference_information"
_TRIPCRAFT_COLUMN = re.compile(rf"{'|'.join((*TRIPCRAFT_COLUMNS, 'group_id', REFERENCE))}(?:_\d+)?")
PERSONA_FIELDS = (
    ("Traveler Type", "traveler_type"),
    ("Purpose of Travel", "travel_purpose"),
    ("Spending Preference", "spending_preference"),
)
# The words that TripCraft's constraints know, by topic; an option maps to those it shares words
# with. What has no counterpart is left out there; the query says it in words.
TRIPCRAFT_WORDS: Mapping[str, tuple[str, ...]] = {
    "cuisine": ("Chinese", "American", "Italian", "Mexican", "Indian", "Mediterranean", "French"),
    "event": ("Sports", "Arts & Theatre", "Music", "Film"),
    "attraction": (
        *("Boat Tours & Water Sports", "Casinos & Gambling", "Classes & Workshops"),
        *("Concerts & Shows", "Food & Drink", "Fun & Games", "Museums", "Nature & Parks"),
        *("Nightlife", "Outdoor Activities", "Shopping", "Sights & Landmarks", "Spas & Wellness"),
        *("Water & Amusement Parks", "Zoos & Aquariums"),
    ),
    "room_type": ("shared room", "not shared room", "private room", "entire room"),
    "house_rule": ("smoking", "parties", "children under 10", "visitors", "pets"),
}
_ALIKE: Mapping[str, str] = {
    "concert": "Music",
    "theatre": "Arts & Theatre",
    "comedy": "Arts & Theatre",
    "entire home": "entire room",
    "adjoining rooms": "not shared room",
    "pets allowed": "pets",
    "visitors allowed": "visitors",
    "children welcome": "children under 10",
}
_SPENDING = {"economical": "Economical Traveler", "luxury": "Luxury Traveler"}
Trip = Mapping[str, object]  # a row of such a file, ours or the user's


def read_trips(config: NegotiationConfig, folder: Path) -> Sequence[Trip]:
    """The rows of the user's trip file, [] if there is none. Raises InputError."""
    if config.trip.file is None:
        return []
    path = path_in(folder, config.trip.file)
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path}", key="trip.file"))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem("is not UTF-8", file=str(path), key="trip.file")) from error
    columns, lines = read_csv(text, str(path))
    rows = [row for _, row in lines]
    unknown = [c for c in columns if not _TRIPCRAFT_COLUMN.fullmatch(c)]
    if not rows or unknown:
        what = f"unknown column `{unknown[0]}`" if unknown else "holds no row"
        known = ", ".join(("group_id", *TRIPCRAFT_COLUMNS, f"{REFERENCE}[_N]"))
        raise InputError(Problem(what, file=str(path), key="trip.file", hint=f"columns: {known}"))
    return rows


def trip_of(trips: Sequence[Trip], group_id: str, index: int) -> Trip:
    """The trip of a group: its own by `group_id`, else dealt in turn."""
    own = next((t for t in trips if t.get("group_id") == group_id), None)
    return own or (trips[index % len(trips)] if trips else {})


def tripcraft_row(case: Negotiation, decisions: Sequence[SlotDecision], trip: Trip) -> Trip:
    """One group as TripCraft's planner reads it."""
    config, by_topic = case.config, {d.topic: d for d in decisions}
    made_up = config.trip
    budget = "" if made_up.budget is None else made_up.budget
    stated: dict[str, object] = {
        "org": trip.get("org") or made_up.org,
        "dest": trip.get("dest") or made_up.dest,
        "days": trip.get("days") or config.days,
        "visiting_city_number": trip.get("visiting_city_number") or made_up.visiting_city_number,
        "date": trip.get("date") or str(list(made_up.date)),
        "people_number": len(case.group.members),
        # TripCraft's readers take a Python literal here.
        "local_constraint": repr(constraints(by_topic, made_up.transportation)),
        "budget": trip.get("budget") or budget,
    }
    persona = persona_line(by_topic, made_up.location_preference)
    references = {k: v for k, v in trip.items() if k.startswith(REFERENCE)}
    return {
        **stated,
        "query": _query(case, by_topic, stated),
        "level": trip.get("level") or made_up.level,
        "persona": persona,
        **(references or {REFERENCE: made_up.reference_information}),
    }


def persona_line(by_topic: Mapping[str, SlotDecision], location: str = "") -> str:
    """The four-field line: type, purpose, spending, location (by default the attractions)."""
    fields = [f"{name}: {_told(by_topic[topic])}" for name, topic in PERSONA_FIELDS]
    return "; ".join([*fields, f"Location Preference: {location or _told(by_topic['attraction'])}"])


def _told(decision: SlotDecision) -> str:
    """The options that a decision gives, first the selected one, in title case."""
    first = [decision.selected_option] if decision.selected_option else []
    options = dict.fromkeys([*first, *(p.option for p in decision.portions)])
    return " / ".join(_SPENDING.get(o, o.title()) for o in options) or "Any"


def constraints(
    by_topic: Mapping[str, SlotDecision], transportation: str | None
) -> dict[str, object]:
    """TripCraft's local constraints of what was decided; None where it has no word for it."""

    def known(topic: str) -> list[str] | None:
        words = (_known(topic, p.option) for p in by_topic[topic].portions)
        return list(dict.fromkeys(w for w in words if w)) or None

    def first(topic: str) -> str | None:
        return next(iter(known(topic) or ()), None)

    return {
        "house rule": first("house_rule"),
        "cuisine": known("cuisine"),
        "room type": first("room_type"),
        "transportation": transportation,
        "event": known("event"),
        "attraction": known("attraction"),
    }


def _known(topic: str, option: str) -> str | None:
    if option in _ALIKE:
        return _ALIKE[option]
    own = set(words_of(option)) - {"and"}
    # "no smoking" asks for a place without it, which TripCraft's rule words cannot say.
    if topic == "house_rule" and "no" in own:
        return None
    best = max(TRIPCRAFT_WORDS[topic], key=lambda w: len(own & set(words_of(w))))
    return best if own & set(words_of(best)) else None


def _query(case: Negotiation, by_topic: Mapping[str, SlotDecision], stated: Trip) -> str:
    """The request in words, with every decision's resolution."""
    way = "".join(f" {to} {stated[k]}" for to, k in (("from", "org"), ("to", "dest")) if stated[k])
    money = f" with a budget of ${stated['budget']}" if stated["budget"] != "" else ""
    size, kind = len(case.group.members), case.group.type.title.lower()
    said = [
        f"{t.label.capitalize()}: {sentence(by_topic[t.id].resolution_text)}"
        for t in case.topics
        if by_topic[t.id].resolution_text
    ]
    head = f"Please plan a {stated['days']}-day trip{way} for a group of {size} ({kind}){money}."
    return " ".join([head, *said])


def tripcraft_csv(trips: pl.DataFrame) -> str:
    """The rows as CSV text; columns in TripCraft's order, then the reference columns."""
    references = [c for c in trips.columns if c.startswith(REFERENCE)]
    rows = trips.select(*TRIPCRAFT_COLUMNS, *references).fill_null("")
    return csv_text([rows.columns, *rows.iter_rows()])
