"""Ballots: who votes, scores as ballots, the order of options, and the winners by other rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import folkmoot
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.negotiation import STUDY
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.rules.candidates import is_none
from folkmoot.studies.negotiation.rules.strategies import OPERATORS, VOTE_OPERATORS
from folkmoot.studies.negotiation.rules.vocabulary import new_option_of
from tests.studies.negotiation.conftest import (
    Runner,
    copy_group,
    list_options,
    read_session_file,
    reply_sensibly,
    script_by_group,
    select_groups,
)
from tests.sweeps import sample_daily


def script_scores(scores: dict[str, float], **more: Any) -> Any:
    """Return a script in which members give these scores for cuisine, and 0 to other options."""

    def reply_to(request: ModelRequest, address: str) -> str:
        if not request.schema or request.schema["title"] != "ScoreForm":
            return reply_sensibly(request, address)
        (prompt,) = [m.content for m in request.messages if "Options on the table" in m.content]
        on_table = list_options(prompt)
        given = [{"option": o, "score": scores.get(o, 0)} for o in on_table]
        return json.dumps({"scores": given, "hard_no": [], **more})

    return reply_to


def test_children_are_excluded_where_only_parents_vote(run_negotiation: Runner) -> None:
    run = run_negotiation(groups=select_groups("fam"), conditions=["C4"])
    ballots = run.table("ballots")
    rooms = ballots.filter(topic="room_type")
    assert rooms["excluded"].to_list() == [False, True, True]
    assert rooms["top_choice"].is_null().to_list() == [False, True, True]
    assert not rooms["missing"].any()
    asked = " ".join(run.table("answers")["address"])
    assert "room_type/ballots/traveler_1" in asked and "room_type/ballots/traveler_2" not in asked
    # Where the source has no such rule, they vote.
    purpose = ballots.filter(topic="travel_purpose")
    assert len(purpose) == 3 and not purpose["excluded"].any()
    trail = read_session_file(run, "fam", "C4", "decisions")["lodging"]["room_type"]
    assert trail["ballots"]["state"] == "collected"
    assert trail["vote_summary"]["tie_break"] == "strong_rejections_then_lexicographic"


def test_scores_decide_in_place_of_texts_and_the_source_s_ballots(run_negotiation: Runner) -> None:
    """The texts of members are for diner or barbecue, and all members score the diner higher."""
    run = run_negotiation(
        script_scores({"diner": 3, "barbecue": -1}),
        groups=select_groups("team"),
        conditions=["C4"],
        ballots="scores",
    )
    rows = run.table("scores").filter(topic="cuisine")
    assert set(rows.filter(option="diner")["score"]) == {3}
    assert set(rows.filter(option="barbecue")["score"]) == {-1}
    decided = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    # With the ballots of the source the texts count as well. Two of the four texts reject the
    # diner, so both options have two approvals, and the total score decides.
    assert decided["selected_option"] == "diner"
    assert decided["winner_by_source_ballots"] == "barbecue"
    assert not run.table("ballots")["missing"].any()
    ballots = run.table("ballots").filter(topic="cuisine")
    assert {tuple(sorted(s.split("; "))) for s in ballots["scores"]} == {("barbecue -1", "diner 3")}
    said = read_session_file(run, "team", "C4", "dialogue")["cuisine"]
    spoken = [x["text"] for x in said if x["intent"] == "user_vote_cuisine"]
    assert all("diner 3" in text and text.endswith("hard_no: none") for text in spoken)
    found = {f.key: f for f in run.findings}["score_ballots"]
    assert ("team", "C4", "cuisine", "diner", "barbecue") in found.grid.rows


def test_a_hard_no_and_scores_out_of_bounds(run_negotiation: Runner) -> None:
    scripts = {
        "firm": script_scores({"diner": 4, "barbecue": 4}, hard_no=["diner"]),
        "outside": script_scores({"diner": 9, "barbecue": 1}),
    }
    run = run_negotiation(
        script_by_group(scripts),
        groups=copy_group("team", *scripts),
        conditions=["C4"],
        ballots="scores",
    )
    # A hard no beside scores is a strong rejection.
    rows = run.table("scores").filter(group_id="firm", topic="cuisine", option="diner")
    assert set(rows["score"]) == {-2} and rows["strong_rejection"].all()
    # Scores out of bounds are asked again and never count.
    ballots = run.table("ballots").filter(group_id="outside", topic="cuisine")
    assert ballots["asked_again"].all() and not ballots["missing"].any()
    assert set(ballots["scores"]) == {"barbecue 1"}  # the rest of the reply is kept


def test_the_order_of_options_and_members_is_drawn_and_recorded(run_negotiation: Runner) -> None:
    shown: dict[str, Any] = {}

    def reply_to(request: ModelRequest, address: str) -> str:
        prompt = request.messages[-1].content
        if "Options on the table" in prompt and not address.startswith("preferences/"):
            shown[address] = list_options(prompt)
        return reply_sensibly(request, address)

    conditions = ["C3", "C4"]
    run = run_negotiation(
        reply_to, groups=select_groups("team"), conditions=conditions, random_seed=5
    )
    rows = run.table("decisions").filter(condition="C4").to_dicts()
    for row in rows:
        order = row["options_shown"].split("; ")
        told = shown[f"negotiation/team-C4/{row['topic']}/ask0"]
        assert [o for o in order if o in told] == told
        # C3 shows the same order, so that conditions do not differ in it.
        assert shown[f"negotiation/team-C3/{row['topic']}/ask0"] == told
    assert any(o != sorted(o) for o in (r["options_shown"].split("; ") for r in rows))
    assert len({r["members_shown"] for r in rows}) > 2
    for row in run.table("ballots").filter(condition="C4", topic="cuisine").to_dicts():
        told = shown[f"negotiation/team-C4/cuisine/ballots/{row['member_id']}/ask0"]
        assert row["options_shown"].split("; ") == told
    other = run_negotiation(groups=select_groups("team"), conditions=["C4"], random_seed=6).table(
        "decisions"
    )
    assert other["options_shown"].to_list() != [row["options_shown"] for row in rows]


def test_the_same_ballots_under_every_operator(full_run: Any) -> None:
    rows = full_run.table("counterfactuals")
    assert set(rows["condition"]) == {"C4"} and set(rows["operator"]) == OPERATORS
    assert len(rows) == 5 * 8 * len(OPERATORS)
    decided = full_run.table("decisions").filter(condition="C4")
    keys = ["group_id", "topic"]
    in_force = rows.filter("in_force").join(decided, on=keys)
    assert len(in_force) == len(decided)
    assert in_force["selected_option"].eq_missing(in_force["selected_option_right"]).all()
    assert rows.filter("in_force")["same_winner"].all() and not rows["same_winner"].all()
    # Ballots of the team on cuisine: each option has two scores of 4, and two members reject diner.
    team = rows.filter(group_id="team", topic="cuisine")
    found = {r["operator"]: r for r in team.to_dicts()}
    assert found["approval_vote_plus_coverage"]["in_force"]
    assert found["least_misery"]["selected_option"] == "barbecue"
    assert found["least_misery"]["margin"] == 2
    finding = {f.key: f for f in full_run.findings}["counterfactuals"]
    assert {row[0] for row in finding.grid.rows} == VOTE_OPERATORS
    only_c5 = full_run.table("counterfactuals").filter(pl.col("condition") == "C5")
    assert only_c5.is_empty()


@pytest.mark.parametrize(
    ("ballots", "wish"),
    sample_daily(
        product(("source", "scores"), ("Hm.", "I leave that to the rest of you.", "")),
        (("source", ""), ("scores", "Hm.")),
        part="mutations",
    ),
)
def test_all_findings_are_computed_without_recognised_options(
    run_negotiation: Runner, ballots: str, wish: str
) -> None:
    """No member names an option, and the mediator's replies and the ballots are empty."""
    empty: dict[str, Any] = {
        "has_conflict": True,
        "conflict_description": "",
        "resolution_strategy": "",
        "resolution_explanation": "",
        "decision": [],
        "scores": [],
        "top_choice": "",
        "resolved": False,
    }

    def reply_to(request: ModelRequest, address: str) -> Any:
        if address.startswith("preferences/"):
            return wish or Completion("", finish="refusal")
        return json.dumps(empty) if request.schema else "no idea"

    people = [{"role": "partner", "persona": f"a traveller number {n}."} for n in range(2)]
    group = [{"id": "p", "type": "spouses", "members": people}]
    run = run_negotiation(reply_to, groups=group, ballots=ballots)
    assert run.table("decisions")["selected_option"].is_null().all()
    keys = {finding.key for finding in run.findings}
    assert {"satisfaction", "decisions", "process"} <= keys or run.folder.unusable_reason


@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_all_findings_are_computed_for_random_replies(data: Any) -> None:
    """Preferences, statements and ballots are drawn at random from valid and invalid words."""
    words = st.sampled_from(["diner", "no diner", "Hm.", "a trip to the moon", "", "barbecue"])
    some_words = st.lists(words, max_size=3)

    def reply_to(request: ModelRequest, address: str) -> str:
        if address.startswith("preferences/"):
            return data.draw(words) or "Hm."
        share = st.fixed_dictionaries({"option": words, "members": some_words, "when": words})
        reply = {
            "has_conflict": data.draw(st.booleans()),
            "conflict_description": data.draw(words),
            "resolution_explanation": data.draw(words),
            "decision": data.draw(st.lists(share, max_size=3)),
            "dropped": data.draw(some_words),
            "top_choice": data.draw(words),
            "acceptable": data.draw(some_words),
            "hard_no": data.draw(some_words),
            "resolved": data.draw(st.booleans()),
            "final_revised_decision": data.draw(words),
        }
        return json.dumps(reply) if request.schema else "yes"

    people = [{"role": r, "persona": f"a {r}."} for r in ("parent", "child")]
    with TemporaryDirectory() as folder:
        run = folkmoot.run(
            STUDY,
            {
                "groups": [{"id": "p", "type": "family", "members": people}],
                "conditions": ["C3", "C5"],
                "coding": "off",
            },
            out=Path(folder) / "run",
            provider=ScriptedProvider(reply_to),
            model="scripted/test",
            concurrency=1,
        )
        assert run.findings


# --- closed vocabularies -----------------------------------------------------------------------

NO_OPTION = [
    *("whatever the others want", "A", "undecided", "no preference", "anything but diner"),
    *("all except diner", "barbecue or diner", "TBD", "a compromise", "diner (no barbecue)"),
    *("Anna and Ben", "the diner", "not barbecue", "option 1", "either", "dinner"),
    *("diner?", "~~diner~~"),
    *("❌ diner", "✗ diner", "≠ diner", "!diner", "-diner", "diner 👎", "diner…"),
]


def script_ballots(member: str, *ballots: dict[str, Any]) -> Any:
    """Return a script in which one member casts these ballots on cuisine, one per request."""

    def reply_to(request: ModelRequest, address: str) -> str:
        if f"/cuisine/ballots/{member}/ask" not in address:
            return reply_sensibly(request, address)
        number = min(int(address[-1]), len(ballots) - 1)
        return json.dumps({"top_choice": "diner"} | ballots[number])

    return reply_to


def read_ballot(run: Any, member: str = "traveler_1") -> dict[str, Any]:
    (row,) = run.table("ballots").filter(topic="cuisine", member_id=member).to_dicts()
    return dict(row)


def run_with_ballots(
    run_negotiation: Runner, ballots_by_group: Mapping[str, Any], **settings: Any
) -> Any:
    """Run a group of two colleagues for each entry. The first one casts its ballot on cuisine.

    Args:
        ballots_by_group: the ballot that is cast in the group of this id, or a list of ballots, one
            for each request.
    """
    scripts = {
        group_id: script_ballots(
            "traveler_1", *(ballots if isinstance(ballots, list) else [ballots])
        )
        for group_id, ballots in ballots_by_group.items()
    }
    groups = copy_group("team", *scripts, size=2)
    return run_negotiation(script_by_group(scripts), groups=groups, conditions=["C4"], **settings)


def read_cuisine_ballots(run: Any) -> dict[str, dict[str, Any]]:
    """Return the first member's ballot on cuisine, by group."""
    rows = run.table("ballots").filter(topic="cuisine", member_id="traveler_1")
    return {row["group_id"]: row for row in rows.to_dicts()}


# An alternative, a choice of two, no choice, another word, one that was cut off, and one that is
# crossed out. The nightly tests check the rest.
DAILY = (
    *("anything but diner", "barbecue or diner", "undecided", "dinner", "diner?", "~~diner~~"),
    *("diner…", "❌ diner"),
)
NIGHTLY = tuple(entry for entry in NO_OPTION if entry not in DAILY)


@pytest.mark.parametrize(
    "entries", sample_daily([[*DAILY], [*NIGHTLY]], [[*DAILY]], part="mutations")
)
def test_an_unlisted_option_leads_to_one_reask_and_is_then_missing(
    run_negotiation: Runner, entries: list[str]
) -> None:
    entry_by_group = {f"group{number}": entry for number, entry in enumerate(entries)}
    ballots = {
        group_id: {"top_choice": entry, "acceptable": [entry, "barbecue"]}
        for group_id, entry in entry_by_group.items()
    }
    run = run_with_ballots(run_negotiation, ballots)
    cast_ballots = read_cuisine_ballots(run)
    answers = run.table("answers")["scope"]
    for group_id, entry in entry_by_group.items():
        scope = f"negotiation/{group_id}-C4/cuisine/ballots/traveler_1"
        assert (answers == scope).sum() == 2, entry
        row = cast_ballots[group_id]
        assert (row["top_choice"], row["acceptable"], row["missing"]) == (None, "barbecue", False)
        assert row["unmatched"] == f"{entry}; {entry}" and row["asked_again"]
        scored = run.table("scores").filter(topic="cuisine", group_id=group_id)
        assert set(scored["option"]) == {"barbecue", "diner"}, entry


def test_the_second_request_names_what_matched_nothing_and_its_reply_counts(
    run_negotiation: Runner,
) -> None:
    seen: list[str] = []
    ballot = {"top_choice": "undecided", "acceptable": ["barbecue"]}
    script = script_ballots("traveler_1", ballot, {"top_choice": "Barbecues."})

    def reply_to(request: ModelRequest, address: str) -> str:
        if address.endswith("/cuisine/ballots/traveler_1/ask1"):
            seen.append(request.messages[-1].content)
        return str(script(request, address))

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C4"])
    (again,) = seen
    assert "“undecided” is none of the options on the table." in again
    assert read_ballot(run)["top_choice"] == "barbecue" and read_ballot(run)["unmatched"] is None


def test_a_new_option_enters_by_its_field_alone(run_negotiation: Runner) -> None:
    """Each group casts one of these ballots."""
    ballots = {
        "new": {"top_choice": "none_of_these", "new_option": "Tapas bar"},
        "both": {"top_choice": "diner", "new_option": "tapas bar"},
        "listed": {"top_choice": "none_of_these", "new_option": "Diners"},
        "taken_up": {"top_choice": "none_of_these", "new_option": "anything but diner"},
        "empty": {"top_choice": "none_of_these", "new_option": "none_of_these"},
        "cut_off": {"new_option": "a quiet pla…"},
        "true": {"top_choice": "none_of_these", "new_option": True, "acceptable": ["barbecue"]},
    }
    run = run_with_ballots(run_negotiation, ballots)
    row = read_cuisine_ballots(run)
    assert row["new"]["top_choice"] == "tapas bar" and not row["new"]["asked_again"]
    scored = run.table("scores").filter(topic="cuisine", group_id="new")
    assert "tapas bar" in set(scored["option"])
    # With a listed first choice, the new option is one more acceptable option.
    assert (row["both"]["top_choice"], row["both"]["acceptable"]) == ("diner", "tapas bar")
    # A listed option is not a new one.
    assert row["listed"]["top_choice"] == "diner"
    # A phrase that contains only listed options leads to a re-ask. "none_of_these" names no option.
    assert (row["taken_up"]["top_choice"], row["taken_up"]["asked_again"]) == (None, True)
    assert (row["empty"]["top_choice"], row["empty"]["asked_again"]) == (None, False)
    assert (row["true"]["top_choice"], row["true"]["acceptable"]) == (None, "barbecue")
    # What was cut off is not put on the table.
    assert row["cut_off"]["unmatched"] == "a quiet pla…"
    for group_id in ("cut_off", "true"):
        scored = run.table("scores").filter(topic="cuisine", group_id=group_id)
        assert set(scored["option"]) == {"barbecue", "diner"}, group_id


def test_ways_out_of_a_ballot_are_no_votes(run_negotiation: Runner) -> None:
    ballots: dict[str, dict[str, Any]] = {
        "declined": {"declined": True},
        "declined_with_choice": {"declined": True, "top_choice": "barbecue"},
        "declined_as_choice": {"top_choice": "declined"},
        "none_of_these": {"top_choice": "none_of_these"},
    }
    run = run_with_ballots(run_negotiation, ballots, ballots="source")
    for group_id, row in read_cuisine_ballots(run).items():
        reason = "none_of_these" if group_id == "none_of_these" else "declined"
        assert row["missing"] and row["reason"] == reason and row["top_choice"] is None
        assert not row["asked_again"]
        trail = read_session_file(run, group_id, "C4", "decisions")["cuisine"]
        assert trail["ballots"]["state"] == "partial"


def test_the_schemas_have_a_way_out(run_negotiation: Runner) -> None:
    seen: dict[str, Any] = {}

    def reply_to(request: ModelRequest, address: str) -> str:
        if request.schema:
            seen[request.schema["title"]] = request.schema
        return reply_sensibly(request, address)

    run_negotiation(reply_to, groups=select_groups("team"), conditions=["C5"])
    for title in ("BallotForm", "OwnScores", "FeedbackReply", "GuidedSynthesis"):
        assert next(iter(seen[title]["properties"])) == "declined"
    top = seen["BallotForm"]["properties"]["top_choice"]["enum"]
    assert {"none_of_these", "declined"} <= set(top)
    score = seen["OwnScores"]["$defs"]["Score"]["properties"]["score"]
    assert {"type": "null"} in score["anyOf"]
    resolved = seen["FeedbackReply"]["properties"]["resolved"]
    assert {"type": "null"} in resolved["anyOf"]
    assert (
        "none_of_these" in seen["GuidedSynthesis"]["$defs"]["Share"]["properties"]["option"]["enum"]
    )


def test_other_rejections_on_a_ballot_are_kept_verbatim(run_negotiation: Runner) -> None:
    assert not any(map(is_none, ("No to all of it.", "No, never.", "No meat.", "Nothing raw")))
    assert not any(map(is_none, ("There is no point.", "Rien de cru", "No more museums")))
    ballot = {"hard_no": ["barbecue"], "objection": "Nothing with peanuts, I mean it."}
    run = run_negotiation(
        script_ballots("traveler_1", ballot), groups=select_groups("team"), conditions=["C4"]
    )
    row = read_ballot(run)
    assert (row["hard_no"], row["objection"]) == ("barbecue", "Nothing with peanuts, I mean it.")
    file = read_session_file(run, "team", "C4", "decisions")["cuisine"]["ballots"]["cast"][0]
    assert file["hard_no"] == ["barbecue", "Nothing with peanuts, I mean it."]
    said = read_session_file(run, "team", "C4", "dialogue")["cuisine"]
    (vote,) = [x["text"] for x in said if x["speaker"] == "Colleague 1" and "vote" in x["intent"]]
    assert vote.endswith("hard_no: barbecue, Nothing with peanuts, I mean it.")


WORDS_FOR_NOTHING = (
    *("None", "N/A", "No.", "no objections", "****", "-"),
    "I have no other objections at all.",
    *("keine", "Aucune objection.", "I don't have any objections.", "None that I can think of."),
)


def test_words_for_none_are_no_objection(run_negotiation: Runner) -> None:
    ballots = {
        f"group{number}": {"hard_no": [words], "objection": words}
        for number, words in enumerate(WORDS_FOR_NOTHING)
    }
    cast_ballots = read_cuisine_ballots(run_with_ballots(run_negotiation, ballots))
    assert len(cast_ballots) == len(WORDS_FOR_NOTHING)
    for group_id, row in cast_ballots.items():
        found = row["hard_no"], row["objection"], row["missing"]
        assert found == ("", None, False), ballots[group_id]


def test_false_in_a_field_for_words_is_no_option_and_no_objection(run_negotiation: Runner) -> None:
    ballots = {
        f"group{number}": {"new_option": stated, "hard_no": stated, "objection": stated}
        for number, stated in enumerate((False, "false"))
    }
    run = run_with_ballots(run_negotiation, ballots)
    for group_id, row in read_cuisine_ballots(run).items():
        stated = ballots[group_id]["objection"]
        assert (row["top_choice"], row["acceptable"]) == ("diner", ""), stated
        assert (row["hard_no"], row["objection"], row["unmatched"]) == ("", None, None), stated
    options = run.table("scores").filter(topic="cuisine")["option"]
    assert set(options) == {"barbecue", "diner"}


FIRM_OBJECTIONS = (
    *("I can't take part in anything strenuous.", "I won't do that.", "I can't dance."),
    "I can't assess the plan because its price is missing.",
)
REFUSED_NEW_OPTIONS = ("I would rather not say", "cannot say", "No new options, thanks")


def test_a_refusal_is_a_firm_no_in_an_objection_and_nothing_in_a_new_option(
    run_negotiation: Runner,
) -> None:
    firm = {f"firm{number}": words for number, words in enumerate(FIRM_OBJECTIONS)}
    refused = {f"new{number}": words for number, words in enumerate(REFUSED_NEW_OPTIONS)}
    run = run_with_ballots(
        run_negotiation,
        {group_id: {"objection": words} for group_id, words in firm.items()}
        | {group_id: {"new_option": words} for group_id, words in refused.items()},
    )
    rows = read_cuisine_ballots(run)
    for group_id, words in firm.items():
        row = rows[group_id]
        assert (row["objection"], row["unmatched"], row["missing"]) == (words, None, False)
    for group_id, words in refused.items():
        row = rows[group_id]
        found = (row["top_choice"], row["acceptable"], row["asked_again"])
        assert found == ("diner", "", False), words
    scores = run.table("scores").filter(topic="cuisine")
    assert set(scores["option"]) == {"barbecue", "diner"}


@pytest.mark.parametrize("entry", ["AI", "Leave", "Vote"])
def test_an_option_of_one_word_is_new(entry: str) -> None:
    assert new_option_of(entry, ("diner",)) == entry.casefold()


@pytest.mark.parametrize(
    "entry",
    ["Leave blank", "leave it", "No vote", "vote again", "I can't judge this because I am new."],
)
def test_words_about_a_new_option_name_none(entry: str) -> None:
    assert new_option_of(entry, ("diner",)) is None


def test_a_refusal_in_place_of_an_objection_is_no_firm_no(run_negotiation: Runner) -> None:
    refusal = "As an AI I would rather not say."
    nothing_else = {"top_choice": "I would rather not say."}
    ballots: dict[str, dict[str, Any]] = {
        "objection": {**nothing_else, "objection": refusal},
        "hard_no": {**nothing_else, "hard_no": [refusal]},
        "beside": {"top_choice": "diner", "hard_no": ["barbecue"], "objection": refusal},
    }
    rows = read_cuisine_ballots(run_with_ballots(run_negotiation, ballots))
    assert all(row["objection"] is None and row["asked_again"] for row in rows.values())
    assert all(refusal in row["unmatched"] for row in rows.values())
    for group_id in ("objection", "hard_no"):
        assert (rows[group_id]["missing"], rows[group_id]["reason"]) == (True, "unparsed")
    beside = rows["beside"]
    assert (beside["top_choice"], beside["hard_no"], beside["missing"]) == (
        "diner",
        "barbecue",
        False,
    )


def test_two_options_that_fold_to_the_same_are_refused() -> None:
    for pair in (["sushi", "Sushis"], ["Diner", "diners"], ["café", "CAFE"], ["tennis", "Tennis "]):
        with pytest.raises(ValueError, match="duplicate option"):
            NegotiationConfig.model_validate({"options": {"cuisine": [*pair, "barbecue"]}})
    NegotiationConfig.model_validate({"options": {"cuisine": ["pub", "brew pub", "pub food"]}})
