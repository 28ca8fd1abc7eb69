"""The files of a session, such as the input for two programs that plan trips.

A session is one group under one condition.
"""

# `planner_payload.json` follows the JSON Schema in this folder. The other input has the columns of
# TripCraft's query files (Chaudhuri et al., ACL 2025, arXiv:2502.20508), one row per group.
# Reference information in the researcher's trip file is exported unchanged.

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
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
from folkmoot.hints import capitalise
from folkmoot.kit.calls import JournalReader
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.config import NegotiationConfig, path_in
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision, as_sentence
from folkmoot.studies.negotiation.measures import (
    SessionResult,
    compare_conditions,
    measure_decision,
)
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP, Portion
from folkmoot.studies.negotiation.rules.replies import same_allocation
from folkmoot.studies.negotiation.rules.strategies import LODGING, SLOTS, Group
from folkmoot.studies.negotiation.rules.tally import METHOD, words_of
from folkmoot.studies.negotiation.tables import (
    MeasuresRow,
    NotAskedAgainRow,
    PreferenceRow,
    TripRow,
    decision_rows,
    finite_values,
    ids_of,
)

T = TypeVar("T")


def sealed_group(group: Group) -> Mapping[str, object]:
    """Return a group as JSON data for the sealed plan, the design that is fixed before a run."""
    members = [
        {
            "id": member.id,
            "name": member.name,
            "role": member.role,
            "weight": member.weight,
            "persona": member.persona,
        }
        for member in group.members
    ]
    return {"id": group.id, "type": group.type.id, "members": members}


def describe_members(run: RunFolder) -> dict[tuple[str, ...], str]:
    """Return the preferences that the researcher stated, by group, member and topic.

    A preference for which the member was asked is an empty text.
    """
    # `sealed_group` leaves the preferences out.
    rows = run.read_rows(PreferenceRow).iter_rows(named=True)
    return {
        (row["group_id"], row["member_id"], row["topic"]): (row["text"] or "") * row["given"]
        for row in rows
    }


def finish_session(
    scope: Scope, case: Negotiation, decisions: Sequence[SlotDecision], trip: Trip
) -> SessionResult:
    """Record the decisions and the trip of a session, and write the files of the session."""
    group, condition = case.group, case.condition
    measures = [
        measure_decision(case, topic, slot_decision)
        for topic, slot_decision in zip(case.topics, decisions, strict=True)
    ]
    for slot_decision, decision_measures in zip(decisions, measures, strict=True):
        for table_row in decision_rows(
            case,
            slot_decision,
            decision_measures.satisfaction,
            decision_measures.unknown,
            decision_measures.covered,
        ):
            scope.record(table_row)
    folder = f"groups/{group.id}/{condition.id}"
    dialogue = {
        slot: [
            x
            for slot_decision in decisions
            if slot_decision.slot_name == slot
            for x in _dialogue_lines(slot_decision)
        ]
        for slot in SLOTS
    }
    trails = {
        slot_decision.topic: {
            **decision_trail(case, slot_decision),
            "satisfaction": dict(decision_measures.satisfaction),
            "satisfaction_unknown": dict(decision_measures.unknown),
        }
        for slot_decision, decision_measures in zip(decisions, measures, strict=True)
    }
    scope.write_json(f"{folder}/dialogue.json", dialogue)
    scope.write_json(f"{folder}/decisions.json", _by_slot(trails))
    scope.write_json(f"{folder}/planner_payload.json", planner_payload(case, decisions))
    row = tripcraft_row(case, decisions, trip).items()
    cells = {name: "" if value is None else str(value) for name, value in row}
    scope.record(TripRow.table, {**ids_of(case), **cells})
    return SessionResult(case, tuple(decisions), tuple(measures))


def record_measures(scope: Scope, result: SessionResult, asked_again: Collection[str]) -> None:
    """Record the measures of a session.

    `asked_again`: the topics on which a question to the group was asked twice, under any condition.
    """
    # This is done after all sessions of the group.
    ids = ids_of(result.case)
    scope.record(MeasuresRow.from_source(finite_values(result.values()), **ids))
    if asked_again:
        values_without = finite_values(result.values(asked_again))
        left_out = len(asked_again)
        scope.record(NotAskedAgainRow.from_source(values_without, **ids, left_out=left_out))


def derived_files(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield the path and the content of each file that is computed from the tables of a run."""
    conditions = run.plan["sealed"]["conditions"]["data"]
    trips = run.read_table(TripRow.table)
    for condition in conditions:
        yield f"tripcraft/{condition}.csv", tripcraft_csv(trips.filter(condition=condition))
    yield "comparison.json", compare_conditions(run)


def _by_slot(by_topic: Mapping[str, T]) -> dict[str, T | dict[str, T]]:
    return {
        slot: {half: by_topic[half] for half in LODGING} if slot == "lodging" else by_topic[slot]
        for slot in SLOTS
    }


def _dialogue_lines(slot_decision: SlotDecision) -> list[dict[str, str]]:
    half = {"decision": slot_decision.topic} if slot_decision.topic in LODGING else {}
    return [
        {
            "speaker": dialogue_turn.speaker,
            "intent": dialogue_turn.intent,
            "text": dialogue_turn.text,
            **half,
        }
        for dialogue_turn in slot_decision.lines
    ]


def decision_trail(case: Negotiation, slot_decision: SlotDecision) -> dict[str, object]:
    """Return the audit trail of a decision as JSON data, in chronological order."""
    names = case.group.names_by_member
    return {
        "source": slot_decision.source,
        "has_conflict": slot_decision.has_conflict,
        "conflict_description": slot_decision.conflict_description,
        "mediator_words": slot_decision.said,
        "statement": {
            "portions": [portion.to_json() for portion in slot_decision.stated.portions],
            "dropped": list(slot_decision.stated.dropped),
            "unread_entries": slot_decision.stated.unread_count,
            "unmatched": {
                what: list(entries) for what, entries in slot_decision.stated.unmatched.items()
            },
        }
        if slot_decision.stated
        else None,
        "theory_words": {
            "theory": list(slot_decision.terms.theory),
            "quoted": list(slot_decision.terms.quoted),
            "first_reply": list(slot_decision.terms_first),
        },
        "asked_again": list(slot_decision.asked_again),
        "proposal": slot_decision.proposal,
        "proposed_strategy": slot_decision.proposed,
        "resolution_strategy": slot_decision.strategy_id,
        "drifted": slot_decision.strategy_drifted,
        "rule": slot_decision.strategy.rule if slot_decision.strategy else None,
        "options": list(slot_decision.options),
        "ballots": {
            "state": slot_decision.ballots,
            "cast": [
                {
                    "member": names[member_id],
                    "top_choice": ballot.top_choice or None,
                    "acceptable": list(ballot.acceptable),
                    "hard_no": [*ballot.hard_no, *ballot.objections],
                    **({"scores": dict(ballot.scores)} if ballot.scores else {}),
                }
                for member_id, ballot in slot_decision.cast.items()
            ],
        },
        "vote_summary": slot_decision.vote_summary,
        "operator_decision": slot_decision.outcome.to_json() if slot_decision.outcome else None,
        "coverage_commitment": slot_decision.coverage,
        "subgrouping_required": slot_decision.subgrouping_required,
        "subgrouping_optional": slot_decision.subgrouping_optional,
        "subgroup_assignment": _assignment_data(slot_decision, names),
        "feedback": [
            {
                "round": feedback_round.round,
                "asked": names[feedback_round.target],
                "left_out": feedback_round.targeted,
                "targeted_feedback_question": feedback_round.question,
                "resolved": feedback_round.resolved,
                "updated_resolution_explanation": feedback_round.updated_explanation,
                "final_revised_decision": feedback_round.revised_decision,
                "refused_options": list(feedback_round.refused),
                "refused_because": feedback_round.because or None,
                "change": feedback_round.change or None,
                "hard_no": [*feedback_round.hard_no, *feedback_round.objections],
                **({"_parse_error": True} if feedback_round.parse_error else {}),
            }
            for feedback_round in slot_decision.feedback
        ],
        "selected_option": slot_decision.selected_option,
        "portions": _portion_data(slot_decision),
        "undecided": slot_decision.undecided_reason,
        "dropped": list(slot_decision.dropped),
        "overridden": {
            option: list(member_ids) for option, member_ids in slot_decision.overridden.items()
        },
        "confirmed": {
            member_id: None if isinstance(word, Missing) else word
            for member_id, word in slot_decision.confirmed.items()
        },
        "refused": {
            member_id: list(options) for member_id, options in slot_decision.refused.items()
        },
        "resolution_text": slot_decision.resolution_text or None,
        "dropped_lines": slot_decision.dropped_lines,
        **({"_parse_error": True} if slot_decision.parse_error else {}),
    }


def _portion_data(decision: SlotDecision) -> list[dict[str, object]] | None:
    return (
        None if decision.undecided_reason else [portion.to_json() for portion in decision.portions]
    )


def _assignment_data(
    slot_decision: SlotDecision, names: Mapping[str, str]
) -> dict[str, object] | None:
    if slot_decision.split is None:
        return None
    branches = {
        group: {
            "anchor": branch.anchor,
            "members": [{"user_id": member, "name": names[member]} for member in branch.members],
        }
        for group, branch in zip(("group_a", "group_b"), slot_decision.split, strict=True)
    }
    is_as_counted = slot_decision.outcome is not None and same_allocation(
        slot_decision.portions, slot_decision.outcome.portions
    )
    return {
        "slot": slot_decision.slot_name,
        "method": METHOD if is_as_counted else "stated_in_feedback",
        **branches,
    }


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
# Without a strategy lock the rules about lock and splits are left out. So the payload of C3
# contains no words of theory.
INSTRUCTIONS = {
    True: (_AUTHORITY, _LOCK, _ORDER, _MEALS, _SPLIT, _SLOT_ONLY),
    False: (_AUTHORITY, _ORDER, _MEALS, _SHARED),
}


def planner_payload(case: Negotiation, decisions: Sequence[SlotDecision]) -> dict[str, object]:
    """Return the content of planner_payload.json.

    Raises ProtocolError if the content violates its JSON schema.
    """
    # The file is the input of the program that plans the trip. A violation would be a bug of this
    # study.
    group = case.group
    data: dict[str, object] = {
        "group_id": group.id,
        "group_type": group.type.id,
        "condition": case.condition.id,
        "days": case.config.days,
        "members": [
            {
                "user_id": member.id,
                "name": member.name,
                "role": member.role,
                "weight": member.weight,
            }
            for member in group.members
        ],
        "constraint_state": _by_slot({topic.id: case.texts(topic.id) for topic in case.topics}),
        "slot_decision_state": _by_slot(
            {
                slot_decision.topic: _state_data(slot_decision, group.names_by_member)
                for slot_decision in decisions
            }
        ),
        "feedback_overrides": {
            slot_decision.topic: _override_data(slot_decision)
            for slot_decision in decisions
            if slot_decision.source == "feedback"
        },
        "subgroup_signals": {
            "required_slots": [
                slot_decision.slot_name
                for slot_decision in decisions
                if slot_decision.subgrouping_required
            ],
            "optional_slots": [
                slot_decision.slot_name
                for slot_decision in decisions
                if slot_decision.subgrouping_optional
            ],
        },
        "precedence": list(PRECEDENCE),
        "planner_instructions": list(INSTRUCTIONS[case.condition.has_locked_strategy]),
    }
    validate_payload(data)
    return data


def _state_data(slot_decision: SlotDecision, names: Mapping[str, str]) -> dict[str, object]:
    return {
        "has_conflict": slot_decision.has_conflict,
        "source": slot_decision.source,
        "feedback_rounds": len(slot_decision.feedback),
        "resolution_strategy": slot_decision.strategy_id,
        "strategy_id": slot_decision.strategy_id,
        "operator": slot_decision.strategy.operator if slot_decision.strategy else None,
        "resolution_text": slot_decision.resolution_text or None,
        "selected_option": slot_decision.selected_option,
        "portions": _portion_data(slot_decision),
        "undecided": slot_decision.undecided_reason,
        "subgrouping_required": slot_decision.subgrouping_required,
        "subgrouping_optional": slot_decision.subgrouping_optional,
        "vote_summary": slot_decision.vote_summary,
        "coverage_commitment": slot_decision.coverage,
        "subgroup_assignment": _assignment_data(slot_decision, names),
    }


def _override_data(slot_decision: SlotDecision) -> dict[str, object]:
    changes = [
        feedback_round.change for feedback_round in slot_decision.feedback if feedback_round.change
    ]
    return {
        "resolution_text": slot_decision.resolution_text,
        "explanation": changes[-1] if changes else "",
        "rounds": len(slot_decision.feedback),
        "resolved": slot_decision.is_resolved,
    }


def validate_payload(data: object) -> None:
    """Check the content of planner_payload.json against its JSON schema.

    Raises ProtocolError that names the first violation.
    """
    # Sort the errors, so that the same payload always names the same place.
    errors = sorted(
        _payload_validator().iter_errors(data), key=lambda entry: [str(part) for part in entry.path]
    )
    if errors:
        location = "/".join(map(str, errors[0].path)) or "payload"
        raise ProtocolError(f"planner payload, {location}: {errors[0].message}")


@cache
def payload_schema() -> dict[str, object]:
    """Return the JSON schema of planner_payload.json."""
    text = files(__package__).joinpath("planner_payload.schema.json").read_text(encoding="utf-8")
    data: dict[str, object] = json.loads(text)
    return data


@cache
def _payload_validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(payload_schema())
    return Draft202012Validator(payload_schema())


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
LOCATION = "Location Preference"
CONSTRAINTS = "local_constraint"
# The terms of TripCraft's constraints by topic. A house rule is what the place must permit: "pets"
# excludes places with the rule "No pets". So no term expresses a prohibition.
TRIPCRAFT_TERMS: Mapping[str, tuple[str, ...]] = {
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
# Other names of the terms, by topic.
_OTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    "event": {"concert": "Music", "comedy": "Arts & Theatre"},
    "attraction": {
        "water parks": "Water & Amusement Parks",
        "amusement parks": "Water & Amusement Parks",
        "food tours": "Food & Drink",
    },
    "room_type": {
        "no shared room": "not shared room",
        "adjoining rooms": "not shared room",
        "entire home": "entire room",
        "entire house": "entire room",
        "entire apartment": "entire room",
    },
    "house_rule": {"children": "children under 10"},
}
# Words that do not change which term an option names: those of all topics, and those of one.
_ARTICLES = ("a", "an", "the", "and")
_FILLERS: Mapping[str, tuple[str, ...]] = {
    "cuisine": ("food", "cuisine", "restaurant", "meal", "lunch", "dinner"),
    "event": ("event", "live", "show"),
    "attraction": ("visit",),
    "house_rule": ("allowed", "permitted", "welcome"),
}
# Other characters may cross an option out ("❌ pets") or question it ("pets?").
_PLAIN_OPTION = re.compile(r"\w[\w\s&-]*")
# With any of these terms the room is not shared.
_NOT_SHARED = frozenset({"not shared room", "private room", "entire room"})
_SPENDING = {"economical": "Economical Traveler", "luxury": "Luxury Traveler"}
# A row of a trip file, generated or the researcher's.
Trip = Mapping[str, object]


def read_trips(config: NegotiationConfig, folder: Path) -> Sequence[Trip]:
    """Return the rows of the researcher's trip file.

    Raises InputError if the file cannot be read or has wrong columns.

    The result is empty if the study file names no trip file.
    """
    if config.trip.file is None:
        return []
    path = path_in(folder, config.trip.file)
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path}", key="trip.file"))
    try:
        # Spreadsheet programs write a byte order mark, which this codec removes.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem("is not UTF-8", file=str(path), key="trip.file")) from error
    columns, numbered_rows = read_csv(text, str(path))
    rows = [row for _, row in numbered_rows]
    unknown = [column for column in columns if not _TRIPCRAFT_COLUMN.fullmatch(column)]
    if not rows or unknown:
        message = f"unknown column `{unknown[0]}`" if unknown else "holds no row"
        known = ", ".join(("group_id", *TRIPCRAFT_COLUMNS, f"{REFERENCE}[_N]"))
        raise InputError(
            Problem(message, file=str(path), key="trip.file", hint=f"columns: {known}")
        )
    problems = [
        Problem(
            f"`{CONSTRAINTS}` is no Python dictionary",
            file=str(path),
            where=str(line),
            key="trip.file",
            hint="as {'transportation': 'no flight'}",
        )
        for line, row in numbered_rows
        if _parse_constraints(row) is None
    ]
    if problems:
        raise InputError(problems)
    return rows


def _parse_constraints(trip: Trip) -> Mapping[str, object] | None:
    # Returns None if the cell holds no dictionary. An empty cell and "None" state no constraint.
    try:
        value = ast.literal_eval(str(trip.get(CONSTRAINTS) or None))
    # `ast.literal_eval` raises all of these, for deep nesting for example.
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def trip_of(trips: Sequence[Trip], group_id: str, index: int) -> Trip:
    """Return the row of the researcher's trip file that a group gets.

    `index`: the position of the group. It selects a row if no row has the group's id.
    """
    # Groups without a row of their own take the rows in turn. After the last row the first one is
    # used again.
    group_trip = next((trip for trip in trips if trip.get("group_id") == group_id), None)
    return group_trip or (trips[index % len(trips)] if trips else {})


def tripcraft_row(case: Negotiation, decisions: Sequence[SlotDecision], trip: Trip) -> Trip:
    """Return the decisions of one group as one row of input for the planner TripCraft.

    A decision has precedence over the constraint or the persona in `trip` on the same topic.
    """
    config, by_topic = (
        case.config,
        {slot_decision.topic: slot_decision for slot_decision in decisions},
    )
    default_trip = config.trip
    budget = "" if default_trip.budget is None else default_trip.budget
    # A cell of the trip file has precedence over the keys of the study file.
    columns: dict[str, object] = {
        "org": trip.get("org") or default_trip.org,
        "dest": trip.get("dest") or default_trip.dest,
        "days": trip.get("days") or config.days,
        "visiting_city_number": trip.get("visiting_city_number")
        or default_trip.visiting_city_number,
        "date": trip.get("date") or str(list(default_trip.date)),
        "people_number": len(case.group.members),
        # TripCraft parses this column as a Python literal.
        CONSTRAINTS: repr(
            local_constraints(by_topic, _parse_constraints(trip) or {}, default_trip.transportation)
        ),
        "budget": trip.get("budget") or budget,
    }
    persona = persona_line(by_topic, _parse_persona(trip), default_trip.location_preference)
    references = {key: value for key, value in trip.items() if key.startswith(REFERENCE)}
    return {
        **columns,
        "query": _request_text(case, by_topic, columns),
        "level": trip.get("level") or default_trip.level,
        "persona": persona,
        **(references or {REFERENCE: default_trip.reference_information}),
    }


def _parse_persona(trip: Trip) -> dict[str, str]:
    fields = (field.partition(":") for field in str(trip.get("persona") or "").split(";"))
    return {name.strip(): value.strip() for name, _, value in fields if value.strip()}


def persona_line(
    by_topic: Mapping[str, SlotDecision], stated: Mapping[str, str], location: str = ""
) -> str:
    """Return the line of TripCraft's input that describes the travellers.

    - `by_topic`: the decision on each topic.
    - `stated`: the persona of the trip file, as a map from field to value. It fills the fields
      that the group did not decide.
    - `location`: the preferred location if the trip file has none. With "", the line names the
      chosen attractions instead.
    """
    decided = {
        name: _decided_options(by_topic[topic]) or stated.get(name, "Any")
        for name, topic in PERSONA_FIELDS
    }
    decided[LOCATION] = (
        stated.get(LOCATION) or location or _decided_options(by_topic["attraction"]) or "Any"
    )
    # Other fields of the trip file follow.
    fields = {**decided, **stated, **decided}
    return "; ".join(f"{name}: {value}" for name, value in fields.items())


def _decided_options(decision: SlotDecision) -> str:
    first = [decision.selected_option] if decision.selected_option else []
    options = dict.fromkeys([*first, *(portion.option for portion in decision.portions)])
    return " / ".join(_SPENDING.get(option, option.title()) for option in options)


def local_constraints(
    by_topic: Mapping[str, SlotDecision],
    stated: Mapping[str, object],
    transportation: str | None,
) -> dict[str, object]:
    """Return the constraints in TripCraft's input format, as a map from constraint name to value.

    - `by_topic`: the decision on each topic. If TripCraft has no term for the decided option, the
      value is None.
    - `stated`: the constraints of the trip file, for all that the group did not decide.
    - `transportation`: the means of transport, if the trip file states none.
    """

    def find_terms(topic: str) -> list[str | None]:
        portions = by_topic[topic].portions
        return list(dict.fromkeys(_find_term(topic, portion.option) for portion in portions))

    def known_terms(topic: str) -> list[str]:
        return [term for term in find_terms(topic) if term]

    decided: dict[str, object] = {
        "house rule": _lasting_house_rule(by_topic["house_rule"].portions),
        "cuisine": known_terms("cuisine") or None,
        "room type": _common_room_type(find_terms("room_type")),
        "transportation": transportation,
        "event": known_terms("event") or None,
        "attraction": known_terms("attraction") or None,
    }
    # A constraint of the trip file is kept if no decision replaces it. Groups decide nothing about
    # transport, and may leave a topic open.
    decided_topics = {topic for topic, decision in by_topic.items() if decision.portions}
    kept = {
        name: value
        for name, value in stated.items()
        if value is not None and str(name).replace(" ", "_") not in decided_topics
    }
    return {**decided, **kept}


def _lasting_house_rule(portions: Sequence[Portion]) -> str | None:
    # TripCraft takes one rule, for all places of the trip. Of several rules at one time all are in
    # force, so the first with a term is true. A rule of only some days would rule out the decided
    # plan.
    times_by_term: defaultdict[str | None, set[str]] = defaultdict(set)
    for portion in portions:
        times_by_term[_find_term("house_rule", portion.option)].add(portion.when)
    all_times = {portion.when for portion in portions}
    return next(
        (
            term
            for term, times in times_by_term.items()
            if term and (WHOLE_TRIP in times or times == all_times)
        ),
        None,
    )


def _common_room_type(terms: Sequence[str | None]) -> str | None:
    # TripCraft takes one type, for all rooms of the trip. A type that only some members get, or
    # only on some days, would rule out the decided plan.
    if len(terms) == 1:
        return terms[0]
    return "not shared room" if terms and _NOT_SHARED.issuperset(terms) else None


def _find_term(topic: str, option: str) -> str | None:
    # The whole option must be a name of the term. Beside a term any other word may negate it
    # ("smoking forbidden", "pet free") or change it ("Latin American"). The query states an option
    # without a term in words.
    if not _PLAIN_OPTION.fullmatch(option):
        return None
    return _terms_by_words(topic).get(_distinctive_words(topic, option))


@cache
def _terms_by_words(topic: str) -> Mapping[tuple[str, ...], str]:
    names = {term: term for term in TRIPCRAFT_TERMS[topic]}
    for term in TRIPCRAFT_TERMS[topic]:
        sides = term.split(" & ")
        # Each side of "Zoos & Aquariums" names the term. "Water & Amusement Parks" shares a noun,
        # so "water" alone is no name.
        if len({len(side.split()) for side in sides}) == 1:
            names.update(dict.fromkeys(sides, term))
    names.update(_OTHER_NAMES.get(topic, {}))
    return {_distinctive_words(topic, name): term for name, term in names.items()}


def _distinctive_words(topic: str, phrase: str) -> tuple[str, ...]:
    ignored = {*_ARTICLES, *_FILLERS.get(topic, ())}
    return tuple(word for word in words_of(phrase) if word not in ignored)


def _request_text(case: Negotiation, by_topic: Mapping[str, SlotDecision], stated: Trip) -> str:
    route = "".join(
        f" {preposition} {stated[key]}"
        for preposition, key in (("from", "org"), ("to", "dest"))
        if stated[key]
    )
    budget_text = f" with a budget of ${stated['budget']}" if stated["budget"] != "" else ""
    size, kind = len(case.group.members), case.group.type.title.lower()
    sentences = [
        f"{capitalise(topic.label)}: {as_sentence(by_topic[topic.id].resolution_text)}"
        for topic in case.topics
        if by_topic[topic.id].resolution_text
    ]
    request = (
        f"Please plan a {stated['days']}-day trip{route} for a group of {size} "
        f"({kind}){budget_text}."
    )
    return " ".join([request, *sentences])


def tripcraft_csv(trips: pl.DataFrame) -> str:
    """Return the rows of the table `trips` as a CSV file for TripCraft."""
    # TripCraft's columns come first, in the order of its files. Columns with reference information
    # follow.
    references = [column for column in trips.columns if column.startswith(REFERENCE)]
    rows = trips.select(*TRIPCRAFT_COLUMNS, *references).fill_null("")
    return csv_text([rows.columns, *rows.iter_rows()])
