"""The planner's payload against its schema, and the export in TripCraft's format."""

from __future__ import annotations

import ast
import copy
import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from folkmoot.engine.study.study_file import validate_settings
from folkmoot.errors import ProtocolError
from folkmoot.studies.negotiation import STUDY, files
from folkmoot.studies.negotiation.decision import SlotDecision
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP, Portion
from folkmoot.studies.negotiation.rules.strategies import TOPICS
from tests.studies.negotiation.conftest import (
    CALM,
    GROUPS,
    Runner,
    read_session_file,
    select_groups,
)

CONDITIONS = ("C1", "C2", "C3", "C4", "C5")


def test_every_written_payload_is_valid(full_run: Any) -> None:
    validator = Draft202012Validator(files.payload_schema())
    for group in GROUPS:
        for condition in CONDITIONS:
            payload = read_session_file(full_run, group["id"], condition, "planner_payload")
            assert list(validator.iter_errors(payload)) == []


def _replace_at(*path: str | int) -> Callable[[Any, Any], None]:
    def replace_value(data: Any, value: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return replace_value


ATTRACTION = ("slot_decision_state", "attraction")


@pytest.mark.parametrize(
    ("replace_value", "value"),
    [
        (_replace_at("condition"), "C6"),
        (_replace_at("precedence"), ["slot_decision_state"]),
        (_replace_at("planner_instructions"), []),
        (_replace_at("extra"), 1),
        (_replace_at("members"), []),
        (_replace_at(*ATTRACTION, "subgroup_assignment"), None),
        (_replace_at(*ATTRACTION, "subgrouping_optional"), True),
        (_replace_at(*ATTRACTION, "subgroup_assignment", "group_a", "members"), []),
        (_replace_at(*ATTRACTION, "vote_summary", "method"), "judge"),
        (_replace_at(*ATTRACTION, "has_conflict"), "yes"),
        (_replace_at("slot_decision_state", "travel_purpose", "subgrouping_optional"), True),
        (_replace_at("slot_decision_state", "lodging", "house_rule", "subgrouping_required"), True),
        (_replace_at("subgroup_signals", "optional_slots"), ["travel_purpose"]),
        (_replace_at("feedback_overrides", "cuisine"), {"resolution_text": "x"}),
        (_replace_at("condition"), "C3"),
    ],
)
def test_what_breaks_the_schema_is_refused(full_run: Any, replace_value: Any, value: Any) -> None:
    payload = copy.deepcopy(read_session_file(full_run, "team", "C4", "planner_payload"))
    files.validate_payload(payload)
    replace_value(payload, value)
    with pytest.raises(ProtocolError, match="planner payload"):
        files.validate_payload(payload)


def test_precedence_and_instructions(full_run: Any) -> None:
    locked = read_session_file(full_run, "team", "C5", "planner_payload")
    assert locked["precedence"] == ["feedback_overrides", "slot_decision_state", "constraint_state"]
    rules = " ".join(locked["planner_instructions"])
    assert all(word in rules for word in ("Shared Backbone", "Group A", "Group B", "Rejoin"))
    assert "Breakfast/Lunch/Dinner" in rules
    plain = read_session_file(full_run, "team", "C3", "planner_payload")
    assert "Group A" not in " ".join(plain["planner_instructions"])


def test_signals_name_the_split_slots(full_run: Any) -> None:
    payload = read_session_file(full_run, "strange", "C5", "planner_payload")
    assert payload["subgroup_signals"] == {
        "required_slots": ["cuisine", "attraction"],
        "optional_slots": ["event"],
    }


def test_the_constraint_state_contains_only_stated_preferences(full_run: Any) -> None:
    state = read_session_file(full_run, "pair", "C4", "planner_payload")["constraint_state"]
    assert state["cuisine"] == {
        "traveler_1": "I love a diner.",
        "traveler_2": "I love barbecue, no diner.",
    }
    assert state["lodging"]["house_rule"]["traveler_1"] == "I want no smoking."
    alone = read_session_file(full_run, "pair", "C1", "planner_payload")["constraint_state"]
    assert alone["cuisine"] == {"traveler_1": "I love a diner."}


def read_trip_rows(run: Any, condition: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run.folder.text(f"tripcraft/{condition}.csv"))))


def test_tripcraft_has_one_row_a_group(full_run: Any) -> None:
    for condition in CONDITIONS:
        rows = read_trip_rows(full_run, condition)
        assert len(rows) == len(GROUPS)
        assert list(rows[0]) == [
            *("org", "dest", "days", "visiting_city_number", "date", "people_number"),
            *("local_constraint", "budget", "query", "level", "persona"),
            "reference_information",
        ]
    row = read_trip_rows(full_run, "C1")[0]
    assert row["persona"] == (
        "Traveler Type: Laidback Traveler; Purpose of Travel: Relaxation; "
        "Spending Preference: Economical Traveler; Location Preference: Museums"
    )
    assert row["people_number"] == "3"
    constraint = ast.literal_eval(row["local_constraint"])
    assert constraint == {
        "house rule": None,
        "cuisine": None,
        "room type": "entire room",
        "transportation": None,
        "event": ["Arts & Theatre"],
        "attraction": ["Museums"],
    }
    assert "Food: Diner for everyone." in row["query"]


# Options, and what TripCraft is told in place of them.
STATED_OPTIONS: list[tuple[str, str, object]] = [
    ("room_type", "separate rooms", None),
    ("room_type", "double room", None),
    ("room_type", "no shared room", "not shared room"),
    ("room_type", "private rooms", "private room"),
    ("house_rule", "smoking forbidden", None),
    ("house_rule", "smoke-free", None),
    ("house_rule", "pet-free house", None),
    ("house_rule", "without pets", None),
    ("house_rule", "pets welcome", "pets"),
    ("cuisine", "not American", None),
    ("cuisine", "Latin American", None),
    ("cuisine", "an Italian restaurant", ["Italian"]),
    ("attraction", "no museums", None),
    ("attraction", "food tours", ["Food & Drink"]),
    ("attraction", "concert", ["Concerts & Shows"]),
    ("event", "no sports", None),
    ("event", "live music", ["Music"]),
]


def test_the_planner_is_told_only_terms_that_an_option_names(run_negotiation: Runner) -> None:
    """C1 decides what the first member states, so each group decides one of the options."""
    groups = []
    for number, (topic, option, _) in enumerate(STATED_OPTIONS):
        preferences = {**CALM, "room_type": "hotel", "house_rule": "quiet hours", topic: option}
        del preferences["lodging"]
        member = {"role": "partner", "preferences": preferences}
        groups.append({"id": f"g{number}", "type": "spouses", "members": [member, member]})
    options: dict[str, list[str]] = {}
    for topic, option, _ in STATED_OPTIONS:
        options.setdefault(topic, []).append(option)
    run = run_negotiation(groups=groups, conditions=["C1"], options=options)
    rows = read_trip_rows(run, "C1")
    told = [ast.literal_eval(row["local_constraint"]) for row in rows]
    assert [
        (topic, option, constraint[topic.replace("_", " ")])
        for constraint, (topic, option, _) in zip(told, STATED_OPTIONS, strict=True)
    ] == STATED_OPTIONS
    assert "Rooms: Separate rooms for everyone." in rows[0]["query"]
    assert "House rules: Without pets for everyone." in rows[7]["query"]


def decide_portions(topic: str, *portions: Portion) -> dict[str, object]:
    """Return TripCraft's constraints if the decision on the topic has these parts."""
    by_topic = {
        other: SlotDecision(topic=other, source="vote", has_conflict=False, resolution_text="")
        for other in TOPICS
    }
    by_topic[topic] = replace(by_topic[topic], portions=portions)
    return files.local_constraints(by_topic, {}, None)


def decide_options(topic: str, *options: str) -> dict[str, object]:
    """Return TripCraft's constraints if each option is a part of the decision on the topic."""
    return decide_portions(
        topic, *(Portion(option, (f"traveler_{n}",)) for n, option in enumerate(options))
    )


TERMS = [(topic, term) for topic, terms in files.TRIPCRAFT_TERMS.items() for term in terms]
NEGATIONS = ("no", "not", "non", "never", "without", "free", "forbidden", "anything but", "except")
OTHER_WORDS = st.lists(
    st.sampled_from(["a", "the", "food", "allowed", "live", "room", "and", "house", "please"]),
    max_size=3,
).map(" ".join)


@given(st.sampled_from(TERMS), st.sampled_from(NEGATIONS), OTHER_WORDS, OTHER_WORDS, st.booleans())
def test_a_negated_term_is_never_the_constraint(
    topic_and_term: tuple[str, str], negation: str, before: str, after: str, is_first: bool
) -> None:
    topic, term = topic_and_term
    words = [before, negation, term] if is_first else [before, term, negation]
    told = decide_options(topic, " ".join([*words, after]).strip())
    assert told[topic.replace("_", " ")] not in (term, [term])


@pytest.mark.parametrize(("topic", "term"), TERMS)
def test_each_term_names_itself(topic: str, term: str) -> None:
    told = decide_options(topic, term.lower().replace("&", "and"))
    assert told[topic.replace("_", " ")] in (term, [term])


def test_a_room_type_of_some_members_is_no_constraint_for_all(full_run: Any) -> None:
    strangers = [group["id"] for group in GROUPS].index("strange")
    row = read_trip_rows(full_run, "C4")[strangers]
    assert "Entire home for Stranger 1 and Stranger 3; private room for Stranger 2" in row["query"]
    assert ast.literal_eval(row["local_constraint"])["room type"] == "not shared room"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("private room", "private rooms"), "private room"),
        (("private room", "adjoining rooms"), "not shared room"),
        (("private room", "shared room"), None),
        (("private room", "hotel"), None),
    ],
)
def test_one_room_type_has_to_be_true_of_all_parts(options: tuple[str, ...], told: object) -> None:
    assert decide_options("room_type", *options)["room type"] == told


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ((("quiet hours", WHOLE_TRIP), ("pets allowed", WHOLE_TRIP)), "pets"),
        ((("quiet hours", WHOLE_TRIP), ("pets allowed", "another day")), None),
        ((("smoking allowed", "Day 1"), ("no smoking", "Day 2")), None),
        ((("pets allowed", "Day 1"), ("pets welcome", "Day 2")), "pets"),
    ],
)
def test_one_house_rule_has_to_be_true_of_the_whole_trip(
    rules: tuple[tuple[str, str], ...], told: object
) -> None:
    portions = [Portion(option, ("traveler_0",), when) for option, when in rules]
    assert decide_portions("house_rule", *portions)["house rule"] == told


def test_reference_information_is_passed_through(run_negotiation: Runner, tmp_path: Path) -> None:
    reference = '[{"Description": "Attractions, \\"quoted\\"", "Content": "é\nx"}]'
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["group_id", "org", "dest", "days", "date", "reference_information_1"])
    writer.writerow(["other", "A", "B", "5", "['2024-11-01']", "wrong"])
    writer.writerow(["fam", "Oslo", "Bergen", "5", "['2024-11-02']", reference])
    (tmp_path / "trips.csv").write_text(text.getvalue(), encoding="utf-8")
    trip = {"file": str(tmp_path / "trips.csv"), "transportation": "no flight"}
    run = run_negotiation(groups=select_groups("fam"), conditions=["C4"], trip=trip)
    (row,) = read_trip_rows(run, "C4")
    assert row["reference_information_1"] == reference
    assert (row["org"], row["dest"], row["days"]) == ("Oslo", "Bergen", "5")
    assert "reference_information" not in row
    assert ast.literal_eval(row["local_constraint"])["transportation"] == "no flight"
    assert row["query"].startswith("Please plan a 5-day trip from Oslo to Bergen")


def test_the_trip_file_constrains_what_the_group_does_not_decide(
    run_negotiation: Runner, tmp_path: Path
) -> None:
    """C2 decides nothing. Under C1 a decision wins, even if TripCraft has no term for it."""
    stated = {
        "house rule": "visitors",
        "cuisine": ["Chinese"],
        "room type": "private room",
        "transportation": "no flight",
        "event": None,
    }
    persona = "Traveler Type: Planner; Location Preference: Beaches; Age: Adults"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["people_number", "local_constraint", "persona"])
    writer.writerow(["9", repr(stated), persona])
    (tmp_path / "trips.csv").write_text(text.getvalue(), encoding="utf-8")
    trip = {
        "file": str(tmp_path / "trips.csv"),
        "transportation": "no self-driving",
        "location_preference": "Hills",
    }
    run = run_negotiation(groups=select_groups("team"), conditions=["C1", "C2"], trip=trip)
    ((decided,), (open_row,)) = (read_trip_rows(run, condition) for condition in ("C1", "C2"))
    assert ast.literal_eval(open_row["local_constraint"]) == {**stated, "attraction": None}
    assert ast.literal_eval(decided["local_constraint"]) == {
        "house rule": None,
        "cuisine": None,
        "room type": "entire room",
        "transportation": "no flight",
        "event": ["Arts & Theatre"],
        "attraction": ["Museums"],
    }
    assert open_row["persona"] == (
        "Traveler Type: Planner; Purpose of Travel: Any; Spending Preference: Any; "
        "Location Preference: Beaches; Age: Adults"
    )
    assert decided["persona"].startswith("Traveler Type: Laidback Traveler; ")
    assert decided["persona"].endswith("; Location Preference: Beaches; Age: Adults")
    assert decided["people_number"] == "4"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2\n", "unknown column `a`"),
        ("org,dest\n", "holds no row"),
        ("org,local_constraint\nA,None\nB,no flight\n", "`local_constraint` is no"),
        ("local_constraint\n[]\n", "`local_constraint` is no"),
        (None, "there is no"),
    ],
)
def test_a_bad_trip_file_is_refused(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "trips.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    config = validate_settings(STUDY, {"trip": {"file": "trips.csv"}})
    (problem,) = STUDY.check_config(config, tmp_path)
    assert says in problem.message
