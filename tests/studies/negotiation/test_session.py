"""Runs with a scripted mediator: fixed decisions, votes, splits, feedback, failures."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from folkmoot.models.request import Completion, ModelRequest
from folkmoot.studies.negotiation.rules.strategies import SLOTS
from tests.studies.negotiation.conftest import (
    CALM,
    GROUPS,
    Runner,
    copy_group,
    read_session_file,
    reply_sensibly,
    script_by_group,
    select_groups,
)
from tests.sweeps import sample_daily


def test_every_group_has_its_files_under_every_condition(full_run: Any) -> None:
    run = full_run
    for group in GROUPS:
        for condition in ("C1", "C2", "C3", "C4", "C5"):
            dialogue = read_session_file(run, group["id"], condition, "dialogue")
            assert list(dialogue) == list(SLOTS)
            decisions = read_session_file(run, group["id"], condition, "decisions")
            assert set(decisions["lodging"]) == {"room_type", "house_rule"}
    table = run.table("decisions")
    assert len(table) == len(GROUPS) * 5 * 8
    order = table.filter((pl.col("group_id") == "fam") & (pl.col("condition") == "C4"))
    assert order["slot"].unique(maintain_order=True).to_list() == list(SLOTS)


def test_preferences_are_the_same_under_all_conditions_and_one_members_under_c1(
    full_run: Any,
) -> None:
    run = full_run
    said: dict[str, list[str]] = {}
    for condition in ("C1", "C2", "C3", "C4", "C5"):
        lines = read_session_file(run, "fam", condition, "dialogue")["cuisine"]
        stated = [
            (x["speaker"], x["text"]) for x in lines if x["intent"].startswith("user_provide")
        ]
        said[condition] = [f"{who}: {text}" for who, text in stated]
    assert said["C1"] == [f"Parent 1: {CALM['cuisine']}"]
    assert len(said["C2"]) == 3
    assert said["C2"] == said["C3"] == said["C4"] == said["C5"]


def test_preferences_are_asked_once_for_all_conditions(run_negotiation: Runner) -> None:
    seen: list[str] = []

    def reply_to(request: ModelRequest, address: str) -> str:
        if address.startswith("preferences/"):
            seen.append(address)
            return "I love barbecue."
        return reply_sensibly(request, address)

    people = [{"role": "partner", "persona": f"a traveller number {n}."} for n in range(2)]
    run = run_negotiation(reply_to, groups=[{"id": "p", "type": "spouses", "members": people}])
    assert len(seen) == len(set(seen)) == 2 * 8
    assert len(run.table("preferences")) == 16


def test_a_trip_of_one_day_is_called_so(run_negotiation: Runner) -> None:
    told: list[str] = []

    def reply_to(request: ModelRequest, address: str) -> str:
        told.extend(m.content for m in request.messages)
        return reply_sensibly(request, address)

    run_negotiation(reply_to, groups=select_groups("fam"), days=1, confirm=True)
    assert any("trip of 1 day." in said for said in told)
    assert not any("1 days" in said for said in told)


def test_a_refusal_is_no_preference(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str | Completion:
        if not address.startswith("preferences/"):
            return reply_sensibly(request, address)
        if "/traveler_2/" in address:
            return Completion("I love sushi but cannot answer.", finish="refusal")
        return "I love barbecue."

    people = [{"role": "partner", "persona": f"a traveller number {n}."} for n in range(2)]
    run = run_negotiation(
        reply_to, groups=[{"id": "p", "type": "spouses", "members": people}], conditions=["C4"]
    )
    rows = run.table("preferences").filter(pl.col("member_id") == "traveler_2")
    assert rows["text"].is_null().all() and set(rows["missing"]) == {"refused"}
    state = read_session_file(run, "p", "C4", "planner_payload")["constraint_state"]
    assert state["cuisine"] == {"traveler_1": "I love barbecue."}
    assert "sushi" not in json.dumps(read_session_file(run, "p", "C4", "dialogue"))


def test_the_label_is_clamped_and_kept(full_run: Any) -> None:
    run = full_run
    rows = run.table("decisions").filter(pl.col("condition").is_in(["C4", "C5"]))
    assert rows["proposed_strategy"].unique().to_list() == ["policy"]
    assert (rows["resolution_strategy"] == rows["strategy_id"]).all()
    assert run.table("measures").filter(pl.col("condition") == "C4")["drift_rate"].mean() == 1.0


def test_every_locked_system_turn_follows_the_contract(full_run: Any) -> None:
    run = full_run
    rows = run.table("utterances").filter(
        pl.col("condition").is_in(["C4", "C5"]) & (pl.col("speaker_id") == "system")
    )
    assert len(rows) > 100
    parts = ("Conflict", "Strategy", "Decision", "Reason", "Next step")
    for text in rows["text"]:
        said = [line.split(": ", 1) for line in text.split("\n")]
        assert tuple(part for part, _ in said) == parts
        assert all(words.strip() for _, words in said)
    assert set(rows["intent"].str.split("_").list.slice(0, 2).list.join("_")) == {
        "sys_synthesize",
        "sys_request",
        "sys_vote",
        "sys_feedback",
    }


def test_intents_and_speakers_are_as_the_source_names_them(full_run: Any) -> None:
    lines = read_session_file(full_run, "old", "C5", "dialogue")["cuisine"]
    assert {x["speaker"] for x in lines} == {
        "System",
        "Grandparent 1",
        "Grandparent 2",
        "Young Adult 1",
        "Young Adult 2",
    }
    assert list(dict.fromkeys(x["intent"] for x in lines)) == [
        "user_provide_cuisine",
        "sys_synthesize_cuisine",
        "user_respond_cuisine",
        "sys_request_vote_cuisine",
        "user_vote_cuisine",
        "sys_vote_result_cuisine",
        "sys_feedback_cuisine",
        "user_feedback_cuisine",
    ]


def test_votes_are_held_exactly_where_they_are_due(full_run: Any, run_negotiation: Runner) -> None:
    rows = full_run.table("decisions").filter(pl.col("ballots") == "collected")
    held = {(r["group_type"], r["topic"]) for r in rows.to_dicts()}
    assert held == {
        ("family", "travel_purpose"),
        ("family", "room_type"),
        ("elder_young", "traveler_type"),
        ("elder_young", "cuisine"),
        ("colleagues", "travel_purpose"),
        ("colleagues", "cuisine"),
        ("colleagues", "room_type"),
        ("spouses", "spending_preference"),
        ("spouses", "cuisine"),
        ("spouses", "event"),
        ("spouses", "room_type"),
    }
    assert set(rows["condition"]) == {"C4", "C5"}
    calm = run_negotiation(
        lambda r, a: reply_sensibly(r, a, has_conflict=False),
        groups=select_groups("pair"),
        conditions=["C4"],
    )
    assert set(calm.table("decisions")["ballots"]) == {"not_held"}


def test_splits_are_derived_from_strategy_slot_and_conflict_alone(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        return reply_sensibly(
            request, address, resolution_explanation="Split the group into subgroups!"
        )

    run = run_negotiation(
        reply_to,
        groups=select_groups(*(group["id"] for group in GROUPS), size=2),
        conditions=["C3", "C4"],
    )
    rows = run.table("decisions").to_dicts()
    required = {(r["group_type"], r["topic"]) for r in rows if r["subgrouping_required"]}
    optional = {(r["group_type"], r["topic"]) for r in rows if r["subgrouping_optional"]}
    assert required == {
        ("elder_young", "attraction"),
        ("colleagues", "attraction"),
        ("strangers", "cuisine"),
        ("strangers", "attraction"),
    }
    # elder_young/travel_purpose has the strategy but not the slot.
    assert optional == {("colleagues", "event"), ("strangers", "event")}
    assert {r["condition"] for r in rows if r["subgrouping_required"]} == {"C4"}
    calm = run_negotiation(
        lambda r, a: reply_sensibly(r, a, has_conflict=False),
        groups=select_groups("strange", size=2),
        conditions=["C5"],
    ).table("decisions")
    assert not calm["subgrouping_required"].any() and not calm["subgrouping_optional"].any()


def test_a_split_slot_has_a_summary_without_ballots(full_run: Any) -> None:
    slot = read_session_file(full_run, "team", "C4", "planner_payload")["slot_decision_state"]
    attraction = slot["attraction"]
    assert attraction["vote_summary"]["ballots"] == "not_held"
    top = [o["option"] for o in attraction["vote_summary"]["option_details"]][:2]
    split = attraction["subgroup_assignment"]
    assert [split["group_a"]["anchor"], split["group_b"]["anchor"]] == top
    placed = [m["user_id"] for g in ("group_a", "group_b") for m in split[g]["members"]]
    assert sorted(placed) == [f"traveler_{n}" for n in range(1, 5)]


def test_feedback_ends_early_and_only_under_c5(full_run: Any, run_negotiation: Runner) -> None:
    assert set(full_run.table("feedback")["condition"]) == {"C5"}
    rows = full_run.table("decisions").filter(pl.col("condition") == "C5")
    assert set(rows["feedback_rounds"]) == {2}
    pair: Any = {"groups": select_groups("pair"), "conditions": ["C5"]}
    scripts: dict[str, Any] = {
        "quick": lambda r, a: reply_sensibly(r, a, resolved=True),
        "never": lambda r, a: reply_sensibly(r, a, resolved=False),
    }
    resolved = run_negotiation(
        script_by_group(scripts),
        max_feedback_rounds=3,
        groups=copy_group("pair", *scripts),
        conditions=["C5"],
    ).table("feedback")
    assert resolved.filter(group_id="quick")["round"].max() == 1
    assert resolved.filter(group_id="never")["round"].max() == 3
    assert run_negotiation(max_feedback_rounds=0, **pair).table("feedback").is_empty()
    off = run_negotiation(enable_feedback=False, **pair)
    assert off.table("feedback").is_empty()
    assert set(off.table("decisions")["feedback_rounds"]) == {0}


def test_the_revised_decision_supersedes(run_negotiation: Runner) -> None:
    text = "Diner for dinner, barbecue for Day 2 lunch"
    stated = [
        {"option": "diner", "members": ["Colleague 1", "Colleague 3"], "when": "dinner"},
        {"option": "barbecue", "members": ["everyone"], "when": "Day 2 lunch"},
    ]

    def reply_to(request: ModelRequest, address: str) -> str:
        if "/cuisine/feedback/" not in address:
            return reply_sensibly(request, address)
        return reply_sensibly(request, address, final_revised_decision=text, decision=stated)

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C4", "C5"])
    state = read_session_file(run, "team", "C5", "planner_payload")
    cuisine = state["slot_decision_state"]["cuisine"]
    rendered = "Diner for Colleague 1 and Colleague 3 (dinner); barbecue for everyone (Day 2 lunch)"
    assert (cuisine["source"], cuisine["resolution_text"]) == ("feedback", rendered)
    assert {p["option"] for p in cuisine["portions"]} == {"diner", "barbecue"}
    assert state["feedback_overrides"]["cuisine"]["resolution_text"] == rendered
    before = read_session_file(run, "team", "C4", "planner_payload")
    assert before["feedback_overrides"] == {}
    assert before["slot_decision_state"]["cuisine"]["source"] == "vote"


UNDECIDED_TOPICS = ("attraction", "cuisine")


@pytest.mark.parametrize("wish_count", [0, 1])
def test_a_conflict_without_options_assigns_no_subgroups(
    run_negotiation: Runner, wish_count: int
) -> None:
    """The mediator sees a conflict, although at most one member names an option."""

    def reply_to(request: ModelRequest, address: str) -> str:
        is_undecided = any(f"/{topic}/" in address for topic in UNDECIDED_TOPICS)
        if request.schema is None or not is_undecided:
            return reply_sensibly(request, address)
        if "conflict_description" in request.schema["properties"]:
            return json.dumps(
                {
                    "has_conflict": True,
                    "conflict_description": "They cannot agree",
                    "resolution_strategy": "split",
                    "resolution_explanation": "We will see",
                    "decision": [],
                    "dropped": [],
                    "dialogue": [],
                }
            )
        return reply_sensibly(request, address)

    groups = [
        group
        | {
            "members": [
                member
                | {
                    "preferences": member["preferences"]
                    | {
                        topic: member["preferences"][topic] if n < wish_count else "I do not mind."
                        for topic in UNDECIDED_TOPICS
                    }
                }
                for n, member in enumerate(group["members"])
            ]
        }
        for group in select_groups(*(group["id"] for group in GROUPS), size=2)
    ]
    run = run_negotiation(reply_to, groups=groups, conditions=["C4"])
    for group in GROUPS:
        payload = read_session_file(run, group["id"], "C4", "planner_payload")
        attraction = payload["slot_decision_state"]["attraction"]
        is_decided = attraction["undecided"] is None
        assert (attraction["portions"] is not None) == is_decided
        assert is_decided == bool(wish_count)
        is_required = attraction["subgrouping_required"]
        assert (attraction["subgroup_assignment"] is not None) == (is_required and is_decided)


def test_feedback_cannot_bring_back_what_a_hard_constraint_struck_out(
    run_negotiation: Runner,
) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        if "/spending_preference/feedback/" not in address:
            return reply_sensibly(request, address)
        luxury = [{"option": "luxury", "members": ["everyone"], "when": ""}]
        return reply_sensibly(
            request, address, final_revised_decision="Luxury it is", decision=luxury
        )

    run = run_negotiation(reply_to, groups=select_groups("fam"), conditions=["C5"])
    trail = read_session_file(run, "fam", "C5", "decisions")["spending_preference"]
    assert trail["operator_decision"]["removed"] == [{"option": "luxury", "by": ["traveler_1"]}]
    assert trail["selected_option"] == "economical"
    assert trail["resolution_text"] == "Economical for everyone"
    assert trail["feedback"][0]["refused_options"] == ["luxury"]
    assert trail["feedback"][0]["refused_because"] == "struck"


def test_the_question_goes_to_members_who_are_left_out(full_run: Any) -> None:
    rows = full_run.table("feedback").filter(
        (pl.col("group_id") == "fam") & (pl.col("topic") == "spending_preference")
    )
    # "Economical for everyone" shares no word with the children's or the second's "luxury".
    assert rows["target"].to_list() == ["traveler_2", "traveler_2"]
    assert rows["targeted"].all()


def test_missing_ballots_are_recorded_and_texts_decide_in_their_place(
    run_negotiation: Runner,
) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        if "/all-C4/" in address and request.schema and request.schema["title"] == "BallotForm":
            return "I would rather not say."
        if "/one-C4/" in address and "/ballots/traveler_2/" in address:
            return "no"
        return reply_sensibly(request, address)

    groups = copy_group("team", "all", "one")
    run = run_negotiation(reply_to, groups=groups, conditions=["C4"])
    payload = read_session_file(run, "all", "C4", "planner_payload")
    vote_summary = payload["slot_decision_state"]["cuisine"]["vote_summary"]
    assert vote_summary["ballots"] == "missing"
    assert vote_summary["selected_option"] == "barbecue"
    assert run.table("ballots").filter(group_id="all")["missing"].all()
    trail = read_session_file(run, "one", "C4", "decisions")["cuisine"]
    assert trail["ballots"]["state"] == "partial"
    members = [ballot["member"] for ballot in trail["ballots"]["cast"]]
    assert members == ["Colleague 1", "Colleague 3", "Colleague 4"]


def test_null_and_a_single_option_in_a_ballot_are_lists(run_negotiation: Runner) -> None:
    stated = {"traveler_1": None, "traveler_2": [], "traveler_3": "Diner"}

    def reply_to(request: ModelRequest, address: str) -> str:
        if "/cuisine/ballots/" not in address:
            return reply_sensibly(request, address)
        ballot = json.loads(reply_sensibly(request, address))
        value = stated.get(address.split("/")[4], [])
        return json.dumps({**ballot, "acceptable": value, "hard_no": value})

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C4"])
    ballots = run.table("ballots").filter(topic="cuisine")
    assert ballots.height == 4 and not ballots["missing"].any()
    assert (ballots["top_choice"] != "").all()
    rejected = dict(ballots.select("member_id", "hard_no").rows())
    assert rejected == dict.fromkeys(rejected, "") | {"traveler_3": "diner"}
    assert run.table("answers")["reasks"].sum() == 0


def test_a_null_text_of_the_mediator_is_an_empty_one(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        if request.schema is None:
            return "yes"
        words = ("conflict_description", "updated_resolution_explanation", "final_revised_decision")
        return json.dumps(
            {
                k: None if k in words else v
                for k, v in json.loads(reply_sensibly(request, address)).items()
            }
        )

    run = run_negotiation(reply_to, groups=select_groups("pair"), conditions=["C5"])
    assert not run.table("decisions")["parse_error"].any()
    assert not run.table("feedback")["parse_error"].any()
    assert run.table("answers")["reasks"].sum() == 0


def test_a_json_answer_shows_no_options(full_run: Any) -> None:
    """Names and options in the schema of a JSON answer are not the options of a choice."""
    answers = full_run.table("answers").filter(pl.col("kind") != "choice")
    assert set(answers["kind"]) == {"json"}
    assert answers["options"].is_null().all() and answers["position"].is_null().all()


def test_an_unreadable_synthesis_gives_the_minimal_structure(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        synthesis = request.schema and request.schema["title"].endswith("Synthesis")
        return "Let us all be friends." if synthesis else reply_sensibly(request, address)

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C3", "C4"])
    rows = run.table("decisions")
    assert rows["parse_error"].all()
    trail = read_session_file(run, "team", "C4", "decisions")["cuisine"]
    assert trail["_parse_error"] is True
    # The texts then decide if there is a conflict, and the vote is held as usual.
    assert trail["has_conflict"] and trail["ballots"]["state"] == "collected"
    # No label could be read, so it is unknown if the model drifted.
    assert trail["proposed_strategy"] is trail["drifted"] is None
    assert rows["drifted"].is_null().all()
    assert run.table("measures")["drift_rate"].is_null().all()


def test_a_fenced_or_broken_object_is_still_read(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        if request.schema is None:
            return "yes"
        return f"Here you are:\n```json\n{reply_sensibly(request, address)[:-1]}\n```"

    run = run_negotiation(reply_to, groups=select_groups("pair"))
    assert not run.table("decisions")["parse_error"].any()


def test_lines_of_unknown_speakers_are_dropped_and_counted(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        odd = [{"speaker": "Uncle Bob", "text": "Me too!"}, {"speaker": "PARENT 1", "text": "Yes."}]
        return reply_sensibly(request, address, dialogue=odd)

    run = run_negotiation(reply_to, groups=select_groups("fam"), conditions=["C4"])
    trail = read_session_file(run, "fam", "C4", "decisions")["cuisine"]
    assert trail["dropped_lines"] == 1
    lines = read_session_file(run, "fam", "C4", "dialogue")["cuisine"]
    assert [x["speaker"] for x in lines if x["intent"] == "user_respond_cuisine"] == ["Parent 1"]


def digest_run(run: Any) -> str:
    tables = {
        name: run.table(name).to_dicts()
        for name in run.folder.table_names()
        if name not in ("answers",)
    }
    return json.dumps(
        [tables, run.folder.read_json("comparison.json")], sort_keys=True, default=str
    )


def test_decisions_do_not_depend_on_concurrency_or_latency(run_negotiation: Runner) -> None:
    def slow(address: str) -> float:
        return (sum(map(ord, address)) % 7) / 2000

    # C5 continues from C4, so that every call of C4 is made as well.
    study: dict[str, Any] = {
        "groups": select_groups("fam", "pair"),
        "conditions": ["C1", "C2", "C3", "C5"],
    }
    one = run_negotiation(concurrency=1, confirm=True, **study)
    many = run_negotiation(concurrency=64, confirm=True, latency=slow, **study)
    assert digest_run(one) == digest_run(many)


# Many other tests run C3 or C4 alone.
@pytest.mark.parametrize(
    "conditions", sample_daily([["C1"], ["C5", "C1"], ["C2"], ["C3"]], daily=2, part="sweeps")
)
def test_any_set_of_conditions_runs(run_negotiation: Runner, conditions: list[str]) -> None:
    run = run_negotiation(conditions=conditions, groups=select_groups("pair"))
    assert sorted(set(run.table("decisions")["condition"])) == sorted(conditions)
    assert set(run.folder.read_json("comparison.json")["conditions"]) == set(conditions)
