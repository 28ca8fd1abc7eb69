"""The planner's payload against its schema, and the export in TripCraft's format."""

from __future__ import annotations

import ast
import copy
import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from folkmoot.engine.study.study_file import validate_settings
from folkmoot.errors import ProtocolError
from folkmoot.studies.negotiation import STUDY, files
from tests.studies.negotiation.conftest import GROUPS, Runner, session_json, some

CONDITIONS = ("C1", "C2", "C3", "C4", "C5")


def test_every_written_payload_is_valid(whole: Any) -> None:
    validator = Draft202012Validator(files.payload_schema())
    for group in GROUPS:
        for condition in CONDITIONS:
            payload = session_json(whole, group["id"], condition, "planner_payload")
            assert list(validator.iter_errors(payload)) == []


def _put(*path: str | int) -> Callable[[Any, Any], None]:
    def put(data: Any, value: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return put


ATTRACTION = ("slot_decision_state", "attraction")


@pytest.mark.parametrize(
    ("put", "value"),
    [
        (_put("condition"), "C6"),
        (_put("precedence"), ["slot_decision_state"]),
        (_put("planner_instructions"), []),
        (_put("extra"), 1),
        (_put("members"), []),
        (_put(*ATTRACTION, "subgroup_assignment"), None),
        (_put(*ATTRACTION, "subgrouping_optional"), True),
        (_put(*ATTRACTION, "subgroup_assignment", "group_a", "members"), []),
        (_put(*ATTRACTION, "vote_summary", "method"), "judge"),
        (_put(*ATTRACTION, "has_conflict"), "yes"),
        (_put("slot_decision_state", "travel_purpose", "subgrouping_optional"), True),
        (_put("slot_decision_state", "lodging", "house_rule", "subgrouping_required"), True),
        (_put("subgroup_signals", "optional_slots"), ["travel_purpose"]),
        (_put("feedback_overrides", "cuisine"), {"resolution_text": "x"}),
        (_put("condition"), "C3"),
    ],
)
def test_what_breaks_the_schema_is_refused(whole: Any, put: Any, value: Any) -> None:
    payload = copy.deepcopy(session_json(whole, "team", "C4", "planner_payload"))
    files.validate_payload(payload)
    put(payload, value)
    with pytest.raises(ProtocolError, match="planner payload"):
        files.validate_payload(payload)


def test_precedence_and_instructions(whole: Any) -> None:
    locked = session_json(whole, "team", "C5", "planner_payload")
    assert locked["precedence"] == ["feedback_overrides", "slot_decision_state", "constraint_state"]
    rules = " ".join(locked["planner_instructions"])
    assert all(word in rules for word in ("Shared Backbone", "Group A", "Group B", "Rejoin"))
    assert "Breakfast/Lunch/Dinner" in rules
    plain = session_json(whole, "team", "C3", "planner_payload")
    assert "Group A" not in " ".join(plain["planner_instructions"])


def test_signals_name_the_split_slots(whole: Any) -> None:
    payload = session_json(whole, "strange", "C5", "planner_payload")
    assert payload["subgroup_signals"] == {
        "required_slots": ["cuisine", "attraction"],
        "optional_slots": ["event"],
    }


def test_the_constraint_state_holds_what_users_said_and_nothing_else(whole: Any) -> None:
    state = session_json(whole, "pair", "C4", "planner_payload")["constraint_state"]
    assert state["cuisine"] == {
        "traveler_1": "I love a diner.",
        "traveler_2": "I love barbecue, no diner.",
    }
    assert state["lodging"]["house_rule"]["traveler_1"] == "I want no smoking."
    alone = session_json(whole, "pair", "C1", "planner_payload")["constraint_state"]
    assert alone["cuisine"] == {"traveler_1": "I love a diner."}


def rows_of(run: Any, condition: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run.folder.text(f"tripcraft/{condition}.csv"))))


def test_tripcraft_has_one_row_a_group(whole: Any) -> None:
    for condition in CONDITIONS:
        rows = rows_of(whole, condition)
        assert len(rows) == len(GROUPS)
        assert list(rows[0]) == [
            *("org", "dest", "days", "visiting_city_number", "date", "people_number"),
            *("local_constraint", "budget", "query", "level", "persona"),
            "reference_information",
        ]
    row = rows_of(whole, "C1")[0]
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


def test_reference_information_is_passed_through(negotiation: Runner, tmp_path: Path) -> None:
    reference = '[{"Description": "Attractions, \\"quoted\\"", "Content": "é\nx"}]'
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["group_id", "org", "dest", "days", "date", "reference_information_1"])
    writer.writerow(["other", "A", "B", "5", "['2024-11-01']", "wrong"])
    writer.writerow(["fam", "Oslo", "Bergen", "5", "['2024-11-02']", reference])
    (tmp_path / "trips.csv").write_text(text.getvalue(), encoding="utf-8")
    trip = {"file": str(tmp_path / "trips.csv"), "transportation": "no flight"}
    run = negotiation(groups=some("fam"), conditions=["C4"], trip=trip)
    (row,) = rows_of(run, "C4")
    assert row["reference_information_1"] == reference
    assert (row["org"], row["dest"], row["days"]) == ("Oslo", "Bergen", "5")
    assert "reference_information" not in row
    assert ast.literal_eval(row["local_constraint"])["transportation"] == "no flight"
    assert row["query"].startswith("Please plan a 5-day trip from Oslo to Bergen")


@pytest.mark.parametrize(
    ("content", "says"),
    [("a,b\n1,2\n", "unknown column `a`"), ("org,dest\n", "holds no row"), (None, "there is no")],
)
def test_a_bad_trip_file_is_refused(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "trips.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    config = validate_settings(STUDY, {"trip": {"file": "trips.csv"}})
    (problem,) = STUDY.check_config(config, tmp_path)
    assert says in problem.message
