"""C5 continues from C4. A revision replaces the whole decision or is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from folkmoot.models.request import ModelRequest
from tests.studies.negotiation.conftest import (
    Runner,
    copy_group,
    make_new_share,
    make_share,
    read_session_file,
    reply_sensibly,
    script_by_group,
    select_groups,
)


def script_revisions(topic: str, *rounds: dict[str, Any]) -> Any:
    """Return a script of a mediator that revises one decision, with these changes in each round.

    The other decisions are accepted in the first round.
    """

    def reply_to(request: ModelRequest, address: str) -> str:
        for number, changes in enumerate(rounds, start=1):
            if f"/{topic}/feedback/round{number}/" in address:
                return reply_sensibly(request, address, **{"resolved": False} | changes)
        if f"/{topic}/" in address:
            return reply_sensibly(request, address)
        return reply_sensibly(request, address, resolved=True)

    return reply_to


def run_with_revisions(
    run_negotiation: Runner,
    changes: Mapping[str, Any],
    conditions: Sequence[str] = ("C4", "C5"),
    *,
    topic: str = "cuisine",
    group: str = "team",
) -> Any:
    """Run a group once per new id, with these changes in the first round on a topic, or with a list
    of changes, one for each round."""
    scripts = {
        group_id: script_revisions(topic, *(change if isinstance(change, list) else [change]))
        for group_id, change in changes.items()
    }
    groups = copy_group(group, *changes)
    return run_negotiation(script_by_group(scripts), groups=groups, conditions=[*conditions])


def read_slot_state(run: Any, group: str, condition: str = "C5", topic: str = "cuisine") -> Any:
    return read_session_file(run, group, condition, "planner_payload")["slot_decision_state"][topic]


def test_c5_goes_on_from_what_c4_decided(full_run: Any, run_negotiation: Runner) -> None:
    """Both conditions use the same synthesis and ballots, so they differ only in feedback."""
    asked = full_run.table("answers")["address"].to_list()
    assert not [a for a in asked if "-C5/" in a and "/feedback/" not in a and "/confirm/" not in a]
    lines = full_run.table("utterances").filter(pl.col("phase") != "feedback")
    assert set(lines["condition"]) == {"all", "C3", "C4"} and len(lines) > 200
    for group in ("fam", "pair"):
        before, after = (read_session_file(full_run, group, c, "dialogue") for c in ("C4", "C5"))
        for slot, said in before.items():
            talk = [x for x in after[slot] if "_feedback_" not in x["intent"]]
            assert talk == said and len(said) > 3
    for table in ("ballots", "scores"):
        rows = full_run.table(table)
        assert (
            rows.filter(condition="C4")
            .drop("condition")
            .equals(rows.filter(condition="C5").drop("condition"))
        )


def test_c5_alone_holds_what_c4_would(run_negotiation: Runner, full_run: Any) -> None:
    alone = run_negotiation(groups=select_groups("team", "pair"), conditions=["C5"], confirm=True)
    assert set(alone.table("decisions")["condition"]) == {"C5"}
    same = full_run.table("decisions").filter(
        pl.col("group_id").is_in(["team", "pair"]), condition="C5"
    )
    assert len(same) == 16 and alone.table("decisions").equals(same)


def test_without_feedback_c5_is_c4_to_the_letter(run_negotiation: Runner) -> None:
    off: dict[str, Any] = {"enable_feedback": False, "confirm": True}
    run = run_negotiation(groups=select_groups("team"), conditions=["C4", "C5"], **off)
    for name in ("decisions", "satisfaction", "measures", "confirmations", "portions"):
        rows = run.table(name)
        c4, c5 = (rows.filter(condition=c).drop("condition") for c in ("C4", "C5"))
        assert c4.equals(c5) and not c4.is_empty(), name
    assert "-C5/" not in " ".join(run.table("answers")["address"])


def test_a_revision_replaces_the_whole_state(run_negotiation: Runner) -> None:
    """The team votes for barbecue, because the diner has two strong rejections."""
    change = {
        "final_revised_decision": "The calm ones eat at the diner, the others have their barbecue.",
        "decision": [
            make_share("barbecue", "Colleague 2", "Colleague 4"),
            make_share("diner", "Colleague 1", "Colleague 3"),
        ],
        "resolved": True,
    }
    run = run_negotiation(
        script_revisions("cuisine", change), groups=select_groups("team"), conditions=["C4", "C5"]
    )
    c4, c5 = read_slot_state(run, "team", "C4"), read_slot_state(run, "team")
    assert c4["selected_option"] == c4["vote_summary"]["selected_option"] == "barbecue"
    assert c4["coverage_commitment"]["minority_targets"] == {
        "traveler_1": "diner",
        "traveler_3": "diner",
    }
    assert (c5["source"], c5["selected_option"]) == ("feedback", "barbecue")
    assert {(p["option"], *p["members"]) for p in c5["portions"]} == {
        ("barbecue", "traveler_2", "traveler_4"),
        ("diner", "traveler_1", "traveler_3"),
    }
    # Members who get their first choice now need no compensation. The votes do not change.
    assert c5["coverage_commitment"] is None
    assert c5["vote_summary"]["option_details"] == c4["vote_summary"]["option_details"]
    trip = list(csv.DictReader(io.StringIO(run.folder.text("tripcraft/C5.csv"))))[0]
    assert "'cuisine': ['American']" not in trip["local_constraint"]
    assert change["final_revised_decision"] not in trip["query"]
    words = "Barbecue for Colleague 2 and Colleague 4; diner for Colleague 1 and Colleague 3"
    assert c5["resolution_text"] == words and words in trip["query"]
    content = run.table("satisfaction").filter(condition="C5", topic="cuisine")
    assert content["satisfaction"].to_list() == [4, 4, 4, 4]


def test_the_selected_option_the_summary_and_the_persona_line_follow(
    run_negotiation: Runner,
) -> None:
    change = {"final_revised_decision": "Relaxation", "decision": [make_share("relaxation")]}
    run = run_negotiation(
        script_revisions("travel_purpose", change),
        groups=select_groups("team"),
        conditions=["C4", "C5"],
    )
    c4, c5 = (read_slot_state(run, "team", c, "travel_purpose") for c in ("C4", "C5"))
    assert c4["selected_option"] == "adventure"
    assert c5["selected_option"] == c5["vote_summary"]["selected_option"] == "relaxation"
    minority = c5["vote_summary"]["minority_members"]
    assert minority and set(minority) == set(c5["coverage_commitment"]["minority_targets"])
    assert set(minority).isdisjoint(c4["vote_summary"]["minority_members"])
    trip = list(csv.DictReader(io.StringIO(run.folder.text("tripcraft/C5.csv"))))[0]
    assert "Purpose of Travel: Relaxation;" in trip["persona"]


def test_a_firm_no_is_not_overridden(run_negotiation: Runner) -> None:
    """The lively members of the team reject the diner, so a revision may not give it to them."""
    change = {"final_revised_decision": "The diner for all", "decision": [make_share("diner")]}
    run = run_negotiation(
        script_revisions("cuisine", change), groups=select_groups("team"), conditions=["C4", "C5"]
    )
    state = read_slot_state(run, "team")
    assert (state["selected_option"], state["source"]) == ("barbecue", "vote")
    trail = read_session_file(run, "team", "C5", "decisions")["cuisine"]["feedback"][0]
    assert (trail["refused_options"], trail["refused_because"]) == (["diner"], "rejected")
    said = read_session_file(run, "team", "C5", "dialogue")["cuisine"]
    answer = [x["text"] for x in said if x["intent"] == "sys_feedback_cuisine"][1]
    assert "Reason: Diner would go against a firm no, so the decision stays" in answer


def test_a_later_rejection_is_reported_and_counts_from_then_on(run_negotiation: Runner) -> None:
    first = {"decision": [], "hard_no": ["barbecue"], "resolved": True}
    second = {
        "final_revised_decision": "Barbecue on Day 2",
        "decision": [make_share("barbecue", when="Day 2")],
    }
    run = run_negotiation(
        script_revisions("cuisine", first, second), groups=select_groups("team"), conditions=["C5"]
    )
    rounds = read_session_file(run, "team", "C5", "decisions")["cuisine"]["feedback"]
    assert rounds[0]["hard_no"] == ["barbecue"]
    assert rounds[0]["resolved"] is False  # the same reply rejects the option
    row = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    target = rounds[0]["asked"].replace("Colleague ", "traveler_")
    assert row["overridden"] == f"barbecue: {target}"
    details = read_slot_state(run, "team")["vote_summary"]["option_details"]
    votes = next(o for o in details if o["option"] == "barbecue")
    assert votes["strong_rejections"] == [target]
    said = read_session_file(run, "team", "C5", "dialogue")["cuisine"]
    answers = [x["text"] for x in said if x["intent"] == "sys_feedback_cuisine"]
    assert "Kept: barbecue against the firm no of Colleague" in answers[1]


def test_all_that_members_say_to_a_revision_is_kept(run_negotiation: Runner) -> None:
    words = [("Colleague 1", "I see."), ("Colleague 3", "Not for me!"), ("Colleague 1", "Well.")]
    lines = [{"speaker": who, "text": said} for who, said in (*words, ("A waiter", "Ready?"))]
    run = run_negotiation(
        script_revisions("cuisine", {"dialogue": lines}),
        groups=select_groups("team"),
        conditions=["C5"],
    )
    said = run.table("utterances").filter(
        pl.col("intent") == "user_feedback_cuisine", pl.col("round") == 1
    )
    assert said.select("speaker_name", "text").rows() == words
    assert read_session_file(run, "team", "C5", "decisions")["cuisine"]["dropped_lines"] == 1


def test_a_no_to_a_listed_option_counts_in_any_spelling(run_negotiation: Runner) -> None:
    first = {"decision": [], "hard_no": ["Barbecue!"], "resolved": True}
    run = run_negotiation(
        script_revisions("cuisine", first), groups=select_groups("team"), conditions=["C5"]
    )
    assert run.table("feedback").filter(topic="cuisine")["resolved"].to_list()[0] is False
    row = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    assert row["overridden"].startswith("barbecue: traveler_")


def test_other_rejections_lead_to_one_reask_and_are_kept_verbatim(run_negotiation: Runner) -> None:
    said = {"all_but": "anything but barbecue", "no": "no barbecue", "other": "spicy food"}
    changes = {
        group_id: {"decision": [], "hard_no": [words], "resolved": True}
        for group_id, words in said.items()
    }
    run = run_with_revisions(run_negotiation, changes, conditions=["C5"])
    asked = run.table("answers")["address"].to_list()
    for group_id, words in said.items():
        assert f"negotiation/{group_id}-C5/cuisine/feedback/round1/ask1" in asked
        row = run.table("feedback").filter(topic="cuisine", group_id=group_id).to_dicts()[0]
        assert (row["hard_no"], row["objection"]) == (None, words)
        file = read_session_file(run, group_id, "C5", "decisions")["cuisine"]["feedback"][0]
        assert file["hard_no"] == [words]
        # It rejects no option.
        decided = run.table("decisions").filter(topic="cuisine", group_id=group_id)
        assert decided["overridden"].to_list() == [""]


def test_a_firm_no_to_what_only_the_mediator_names_counts(run_negotiation: Runner) -> None:
    karaoke = {
        "final_revised_decision": "Karaoke dinner for all",
        "decision": [make_new_share("karaoke dinner")],
        "hard_no": ["karaoke dinner"],
        "resolved": True,
    }
    later = [{"decision": [], "hard_no": ["karaoke dinner"]}, karaoke | {"hard_no": []}]
    run = run_with_revisions(run_negotiation, {"at_once": karaoke, "later": later}, ["C5"])
    rounds = run.table("feedback").filter(topic="cuisine")
    first = rounds.filter(group_id="at_once").to_dicts()[0]
    assert (first["resolved"], first["refused_because"]) == (False, "rejected")
    assert first["refused_options"] == "karaoke dinner"

    again = rounds.filter(group_id="later")["refused_because"].to_list()
    assert again == [None, "rejected"]


def test_words_that_give_what_the_statement_does_not_are_not_the_decision(
    run_negotiation: Runner,
) -> None:
    change = {
        "final_revised_decision": "Everybody goes to the diner",
        "decision": [
            make_share("barbecue", "Colleague 2", "Colleague 4"),
            make_new_share("sushi", "Colleague 1", "Colleague 3"),
        ],
    }
    run = run_negotiation(
        script_revisions("cuisine", change), groups=select_groups("team"), conditions=["C5"]
    )
    state = read_slot_state(run, "team")
    assert {p["option"] for p in state["portions"]} == {"barbecue", "sushi"}
    assert state["resolution_text"] == (
        "Barbecue for Colleague 2 and Colleague 4; sushi for Colleague 1 and Colleague 3"
    )


def test_an_operator_that_overrides_a_firm_no_says_so(run_negotiation: Runner) -> None:
    """Spouses take turns over the attractions, and the lively one rejects museums."""
    run = run_negotiation(groups=select_groups("pair"), conditions=["C4"])
    row = run.table("decisions").filter(topic="attraction").to_dicts()[0]
    assert row["overridden"] == "museums: traveler_2"
    said = read_session_file(run, "pair", "C4", "dialogue")["attraction"]
    (system,) = [x["text"] for x in said if x["speaker"] == "System"]
    assert "Kept: museums against the firm no of Partner 2." in system


def test_accepting_a_rejected_option_counts_as_acceptance(
    run_negotiation: Runner,
) -> None:
    accepted = script_revisions("attraction", {"resolved": True})
    run = run_negotiation(accepted, groups=select_groups("pair"), conditions=["C5"])
    said = read_session_file(run, "pair", "C5", "dialogue")["attraction"]
    answer = [x["text"] for x in said if x["intent"] == "sys_feedback_attraction"][-1]
    assert "Partner 2 accepts it all the same. Kept: museums against the firm no of" in answer


def test_a_revision_without_shares_for_all_members_is_refused(run_negotiation: Runner) -> None:
    changes: dict[str, dict[str, Any]] = {
        "words_only": {"final_revised_decision": "Let us see on the day"},
        # The other members lose what they had.
        "one_member": {"decision": [make_share("diner", "Colleague 1")]},
        "unknown_member": {"decision": [make_share("barbecue"), make_share("diner", "Uncle Bob")]},
    }
    run = run_with_revisions(run_negotiation, changes)
    for group_id in changes:
        before, after = (read_slot_state(run, group_id, c) for c in ("C4", "C5"))
        assert {k: v for k, v in after.items() if k != "feedback_rounds"} == {
            k: v for k, v in before.items() if k != "feedback_rounds"
        }
        rounds = run.table("feedback").filter(topic="cuisine", group_id=group_id)
        assert rounds["refused_because"].to_list()[0] == "unstated", group_id


def test_a_required_split_is_revised_as_a_split_or_stays(run_negotiation: Runner) -> None:
    together = {
        "final_revised_decision": "All to the zoo",
        "decision": [make_new_share("zoos and aquariums")],
    }
    parted = {
        "final_revised_decision": "Colleague 3 goes along to the parks",
        "decision": [
            make_share("museums", "Colleague 1"),
            make_share("nature parks", "Colleague 2", "Colleague 3", "Colleague 4"),
        ],
    }
    changes = {"together": together, "parted": parted}
    run = run_with_revisions(run_negotiation, changes, ["C5"], topic="attraction")
    state = read_slot_state(run, "together", topic="attraction")
    assert state["source"] == "operator" and state["subgrouping_required"]
    rows = run.table("feedback").filter(group_id="together", topic="attraction")
    assert rows["refused_because"].to_list()[0] == "split"
    state = read_slot_state(run, "parted", topic="attraction")
    split = state["subgroup_assignment"]
    assert split["method"] == "stated_in_feedback"
    assert [m["name"] for m in split["group_a"]["members"]] == ["Colleague 1"]
    assert [(p["option"], p["when"], len(p["members"])) for p in state["portions"]] == [
        ("museums", "Group A", 1),
        ("nature parks", "Group B", 3),
    ]
    assert state["selected_option"] == state["vote_summary"]["selected_option"] == "nature parks"


def test_words_alone_change_nothing(run_negotiation: Runner) -> None:
    """Sentences about decisions are rendered from data, so other words do not change them."""
    texts = ("Barbecue for everyone", "Barbecue for everyone.", "Barbecue, and an early start")
    changes = {
        f"group{number}": {"final_revised_decision": words, "decision": [make_share("barbecue")]}
        for number, words in enumerate(texts)
    }
    run = run_with_revisions(run_negotiation, changes)
    for group_id in changes:
        before, after = (read_slot_state(run, group_id, c) for c in ("C4", "C5"))
        assert {k for k in before if before[k] != after[k]} == {"feedback_rounds"}
        assert after["resolution_text"] == "Barbecue for everyone"
    assert run.table("feedback").filter(topic="cuisine")["change"].is_null().all()


def test_a_revision_that_changes_only_times_or_only_members_is_a_change(
    run_negotiation: Runner,
) -> None:
    times = {
        "final_revised_decision": "Barbecue for everyone",
        "decision": [make_share("barbecue", when="Day 2")],
    }
    members = [
        {"decision": [make_share("barbecue"), make_share("diner", *names, when="Day 2")]}
        for names in (("Colleague 1",), ("Colleague 1", "Colleague 3"))
    ]
    run = run_with_revisions(run_negotiation, {"times": times, "members": members}, ["C5"])
    state = read_slot_state(run, "times")
    assert (state["source"], state["portions"][0]["when"]) == ("feedback", "Day 2")
    assert state["resolution_text"] == "Barbecue for everyone (Day 2)"
    payload = read_session_file(run, "times", "C5", "planner_payload")["feedback_overrides"][
        "cuisine"
    ]
    assert payload["explanation"] == (
        "Now barbecue for everyone (Day 2); no longer barbecue for everyone"
    )
    text = read_slot_state(run, "members")["resolution_text"]
    assert text == "Barbecue for everyone; diner for Colleague 1 and Colleague 3 (Day 2)"


def test_days_swapped_between_the_same_options_are_a_change(run_negotiation: Runner) -> None:
    """The spouses take turns: museums on Day 1 and Day 3, parks on Day 2."""
    c4 = run_negotiation(groups=select_groups("pair"), conditions=["C4"])
    stood = read_session_file(c4, "pair", "C4", "decisions")["attraction"]["portions"]
    swapped = {"Day 1": "Day 2", "Day 2": "Day 1", "Day 3": "Day 3"}
    change = {"decision": [make_share(p["option"], when=swapped[p["when"]]) for p in stood]}
    same = {"decision": [make_share(p["option"], when=p["when"].lower()) for p in reversed(stood)]}
    changes = {"swapped": change, "same": same}
    run = run_with_revisions(run_negotiation, changes, ["C5"], topic="attraction", group="pair")
    rounds = run.table("feedback").filter(topic="attraction")
    first = rounds.filter(group_id="swapped").to_dicts()[0]
    assert first["refused_because"] is None and "Day 2" in first["change"]
    # The same days in another order of entries are no change.
    unchanged = rounds.filter(group_id="same")
    assert unchanged.height and unchanged["change"].is_null().all()


def test_the_mediator_is_shown_the_decision_and_its_rejections(run_negotiation: Runner) -> None:
    prompts: list[str] = []

    def reply_to(request: ModelRequest, address: str) -> str:
        if "/cuisine/feedback/round1/" in address:
            prompts.append(request.messages[-1].content)
        return reply_sensibly(request, address)

    run_negotiation(reply_to, groups=select_groups("team"), conditions=["C5"])
    (prompt,) = prompts
    assert "- barbecue for everyone" in prompt
    assert "Colleague 2 firmly rejects: diner" in prompt


def test_a_second_confirmation_is_asked_only_after_feedback(run_negotiation: Runner) -> None:
    run = run_negotiation(groups=select_groups("team"), conditions=["C4", "C5"], confirm=True)
    asked = [a for a in run.table("answers")["address"] if "/confirm/" in a]
    again = {a.split("/")[2] for a in asked if "-C5/" in a}
    rounds = run.table("decisions").filter(pl.col("feedback_rounds") > 0)
    assert again == set(rounds["topic"]) and len(again) == 8
    words = run.table("confirmations")
    assert set(words["condition"]) == {"C4", "C5"}
