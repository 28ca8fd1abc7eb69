"""Ballots: who casts one, scores in their place, the order that was shown, other rules' winners."""

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
from folkmoot.studies.negotiation.rules.strategies import OPERATORS, VOTE_OPERATORS
from folkmoot.studies.negotiation.rules.vocabulary import is_none
from tests.studies.negotiation.conftest import (
    Runner,
    mediator,
    options_in,
    session_json,
    some,
)
from tests.sweeps import sample_daily


def scoring(scores: dict[str, float], **more: Any) -> Any:
    """Members who give these scores (0 to what is not named) for cuisine."""

    def answering(request: ModelRequest, address: str) -> str:
        if not request.schema or request.schema["title"] != "ScoreForm":
            return mediator(request, address)
        (prompt,) = [m.content for m in request.messages if "Options on the table" in m.content]
        on_table = options_in(prompt)
        given = [{"option": o, "score": scores.get(o, 0)} for o in on_table]
        return json.dumps({"scores": given, "hard_no": [], **more})

    return answering


def test_children_are_excluded_where_only_parents_vote(negotiation: Runner) -> None:
    run = negotiation(groups=some("fam"), conditions=["C4"])
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
    trail = session_json(run, "fam", "C4", "decisions")["lodging"]["room_type"]
    assert trail["ballots"]["state"] == "collected"
    assert trail["vote_summary"]["tie_break"] == "strong_rejections_then_lexicographic"


def test_scores_decide_in_place_of_texts_and_the_source_s_ballots(negotiation: Runner) -> None:
    """Everybody's text is for diner or barbecue; everybody scores the diner higher."""
    run = negotiation(
        scoring({"diner": 3, "barbecue": -1}),
        groups=some("team"),
        conditions=["C4"],
        ballots="scores",
    )
    rows = run.table("scores").filter(topic="cuisine")
    assert set(rows.filter(option="diner")["score"]) == {3}
    assert set(rows.filter(option="barbecue")["score"]) == {-1}
    decided = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    # In the source's form the texts count as well: two of the four turn the diner down in theirs,
    # so that both have two approvals, and the total decides.
    assert decided["selected_option"] == "diner"
    assert decided["winner_by_source_ballots"] == "barbecue"
    ballots = run.table("ballots").filter(topic="cuisine")
    assert {tuple(sorted(s.split("; "))) for s in ballots["scores"]} == {("barbecue -1", "diner 3")}
    said = session_json(run, "team", "C4", "dialogue")["cuisine"]
    spoken = [x["text"] for x in said if x["intent"] == "user_vote_cuisine"]
    assert all("diner 3" in text and text.endswith("hard_no: none") for text in spoken)
    found = {f.key: f for f in run.findings}["score_ballots"]
    assert ("team", "C4", "cuisine", "diner", "barbecue") in found.grid.rows


def test_a_hard_no_beside_scores_is_a_strong_rejection(negotiation: Runner) -> None:
    answering = scoring({"diner": 4, "barbecue": 4}, hard_no=["diner"])
    run = negotiation(answering, groups=some("team"), conditions=["C4"], ballots="scores")
    rows = run.table("scores").filter(topic="cuisine", option="diner")
    assert set(rows["score"]) == {-2} and rows["strong_rejection"].all()


def test_scores_out_of_bounds_are_asked_again_and_never_count(negotiation: Runner) -> None:
    scores = {"diner": 9, "barbecue": 1}
    run = negotiation(scoring(scores), groups=some("team"), conditions=["C4"], ballots="scores")
    ballots = run.table("ballots").filter(topic="cuisine")
    assert ballots["asked_again"].all() and not ballots["missing"].any()
    assert set(ballots["scores"]) == {"barbecue 1"}  # the rest of the reply is kept


def test_the_order_of_options_and_members_is_drawn_and_recorded(negotiation: Runner) -> None:
    shown: dict[str, Any] = {}

    def answering(request: ModelRequest, address: str) -> str:
        prompt = request.messages[-1].content
        if "Options on the table" in prompt and not address.startswith("preferences/"):
            shown[address] = options_in(prompt)
        return mediator(request, address)

    conditions = ["C3", "C4"]
    run = negotiation(answering, groups=some("team"), conditions=conditions, random_seed=5)
    rows = run.table("decisions").filter(condition="C4").to_dicts()
    for row in rows:
        order = row["options_shown"].split("; ")
        told = shown[f"negotiation/team-C4/{row['topic']}/ask0"]
        assert [o for o in order if o in told] == told
        # C3 is shown the same order, so that it makes no difference between conditions.
        assert shown[f"negotiation/team-C3/{row['topic']}/ask0"] == told
    assert any(o != sorted(o) for o in (r["options_shown"].split("; ") for r in rows))
    assert len({r["members_shown"] for r in rows}) > 2
    for row in run.table("ballots").filter(condition="C4", topic="cuisine").to_dicts():
        told = shown[f"negotiation/team-C4/cuisine/ballots/{row['member_id']}/ask0"]
        assert row["options_shown"].split("; ") == told
    other = negotiation(groups=some("team"), conditions=["C4"], random_seed=6).table("decisions")
    assert other["options_shown"].to_list() != [row["options_shown"] for row in rows]


def test_the_same_ballots_under_every_operator(whole: Any) -> None:
    rows = whole.table("counterfactuals")
    assert set(rows["condition"]) == {"C4"} and set(rows["operator"]) == OPERATORS
    assert len(rows) == 5 * 8 * len(OPERATORS)
    decided = whole.table("decisions").filter(condition="C4")
    keys = ["group_id", "topic"]
    in_force = rows.filter("in_force").join(decided, on=keys)
    assert len(in_force) == len(decided)
    assert in_force["selected_option"].eq_missing(in_force["selected_option_right"]).all()
    assert rows.filter("in_force")["same_winner"].all() and not rows["same_winner"].all()
    # Team cuisine, with ballots: two 4s and two refusals each way; the diner is refused twice.
    team = rows.filter(group_id="team", topic="cuisine")
    found = {r["operator"]: r for r in team.to_dicts()}
    assert found["approval_vote_plus_coverage"]["in_force"]
    assert found["least_misery"]["selected_option"] == "barbecue"
    assert found["least_misery"]["margin"] == 2
    finding = {f.key: f for f in whole.findings}["counterfactuals"]
    assert {row[0] for row in finding.grid.rows} == VOTE_OPERATORS
    only_c5 = whole.table("counterfactuals").filter(pl.col("condition") == "C5")
    assert only_c5.is_empty()


@pytest.mark.parametrize(
    ("ballots", "wish"),
    sample_daily(
        product(("source", "scores"), ("Hm.", "I leave that to the rest of you.", "")),
        (("source", ""), ("scores", "Hm.")),
        part="mutations",
    ),
)
def test_with_no_recognised_option_at_all_every_finding_is_had(
    negotiation: Runner, ballots: str, wish: str
) -> None:
    """Nobody names anything, and the mediator and the ballots are empty as well."""
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

    def answering(request: ModelRequest, address: str) -> Any:
        if address.startswith("preferences/"):
            return wish or Completion("", finish="refusal")
        return json.dumps(empty) if request.schema else "no idea"

    people = [{"role": "partner", "persona": f"a traveller number {n}."} for n in range(2)]
    group = [{"id": "p", "type": "spouses", "members": people}]
    run = negotiation(answering, groups=group, ballots=ballots)
    assert run.table("decisions")["selected_option"].is_null().all()
    keys = {finding.key for finding in run.findings}
    assert {"satisfaction", "decisions", "process"} <= keys or run.folder.unusable_reason


@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_whatever_is_said_every_finding_is_had(data: Any) -> None:
    """Preferences, statements and ballots drawn at random from sense and nonsense."""
    words = st.sampled_from(["diner", "no diner", "Hm.", "a trip to the moon", "", "barbecue"])
    some_words = st.lists(words, max_size=3)

    def answering(request: ModelRequest, address: str) -> str:
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
            provider=ScriptedProvider(answering),
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
]


def voting(member: str, *ballots: dict[str, Any]) -> Any:
    """One member casts these ballots on cuisine, one at each request."""

    def answering(request: ModelRequest, address: str) -> str:
        if f"/cuisine/ballots/{member}/ask" not in address:
            return mediator(request, address)
        number = min(int(address[-1]), len(ballots) - 1)
        return json.dumps({"top_choice": "diner"} | ballots[number])

    return answering


def cast(run: Any, member: str = "traveler_1") -> dict[str, Any]:
    (row,) = run.table("ballots").filter(topic="cuisine", member_id=member).to_dicts()
    return dict(row)


def run_with_ballots(
    negotiation: Runner, ballot_by_group: Mapping[str, dict[str, Any]], **settings: Any
) -> Any:
    """Run two colleagues per ballot, of whom the first casts this ballot on cuisine.

    Args:
        ballot_by_group: the ballot that is cast in the group of this id.
    """
    scripts = {
        group_id: voting("traveler_1", ballot) for group_id, ballot in ballot_by_group.items()
    }

    def answering(request: ModelRequest, address: str) -> str:
        script = next((s for id, s in scripts.items() if f"/{id}-C4/" in address), mediator)
        return str(script(request, address))

    (team,) = some("team", size=2)
    groups = [team | {"id": group_id} for group_id in ballot_by_group]
    return negotiation(answering, groups=groups, conditions=["C4"], **settings)


def cuisine_ballots(run: Any) -> dict[str, dict[str, Any]]:
    """The first member's ballot on cuisine, by group."""
    rows = run.table("ballots").filter(topic="cuisine", member_id="traveler_1")
    return {row["group_id"]: row for row in rows.to_dicts()}


# An alternative, a choice of two, nothing, and another word. All others are checked at night.
DAILY = ("anything but diner", "barbecue or diner", "undecided", "dinner", "diner?", "~~diner~~")
AT_NIGHT = tuple(entry for entry in NO_OPTION if entry not in DAILY)


@pytest.mark.parametrize(
    "entries", sample_daily([[*DAILY], [*AT_NIGHT]], [[*DAILY]], part="mutations")
)
def test_what_is_no_listed_option_goes_back_once_and_is_then_missing(
    negotiation: Runner, entries: list[str]
) -> None:
    entry_by_group = {f"group{number}": entry for number, entry in enumerate(entries)}
    ballots = {
        group_id: {"top_choice": entry, "acceptable": [entry, "barbecue"]}
        for group_id, entry in entry_by_group.items()
    }
    run = run_with_ballots(negotiation, ballots)
    cast_ballots = cuisine_ballots(run)
    answers = run.table("answers")["scope"]
    for group_id, entry in entry_by_group.items():
        scope = f"negotiation/{group_id}-C4/cuisine/ballots/traveler_1"
        assert (answers == scope).sum() == 2, entry
        row = cast_ballots[group_id]
        assert (row["top_choice"], row["acceptable"], row["missing"]) == (None, "barbecue", False)
        assert row["unmatched"] == f"{entry}; {entry}" and row["asked_again"]
        scored = run.table("scores").filter(topic="cuisine", group_id=group_id)
        assert set(scored["option"]) == {"barbecue", "diner"}, entry


def test_the_second_reply_counts(negotiation: Runner) -> None:
    ballot = {"top_choice": "undecided", "acceptable": ["undecided", "barbecue"]}
    script = voting("traveler_1", ballot, {"top_choice": "Barbecues."})
    run = negotiation(script, groups=some("team"), conditions=["C4"])
    assert cast(run)["top_choice"] == "barbecue" and cast(run)["unmatched"] is None


def test_the_second_request_names_what_matched_nothing(negotiation: Runner) -> None:
    seen: list[str] = []
    script = voting("traveler_1", {"top_choice": "anything but diner"})

    def answering(request: ModelRequest, address: str) -> str:
        if address.endswith("/cuisine/ballots/traveler_1/ask1"):
            seen.append(request.messages[-1].content)
        return str(script(request, address))

    negotiation(answering, groups=some("team"), conditions=["C4"])
    (again,) = seen
    assert "“anything but diner” is none of the options on the table." in again


def test_a_new_option_enters_by_its_field_alone(negotiation: Runner) -> None:
    """One group casts each of these ballots."""
    ballots = {
        "new": {"top_choice": "none_of_these", "new_option": "Tapas bar"},
        "both": {"top_choice": "diner", "new_option": "tapas bar"},
        "listed": {"top_choice": "none_of_these", "new_option": "Diners"},
        "taken_up": {"top_choice": "none_of_these", "new_option": "anything but diner"},
        "empty": {"top_choice": "none_of_these", "new_option": "none_of_these"},
    }
    run = run_with_ballots(negotiation, ballots)
    row = cuisine_ballots(run)
    assert row["new"]["top_choice"] == "tapas bar" and not row["new"]["asked_again"]
    scored = run.table("scores").filter(topic="cuisine", group_id="new")
    assert "tapas bar" in set(scored["option"])
    # Beside a listed first choice it is one more that would do.
    assert (row["both"]["top_choice"], row["both"]["acceptable"]) == ("diner", "tapas bar")
    # A listed one is no new one.
    assert row["listed"]["top_choice"] == "diner"
    # What only takes up listed ones goes back once; a way out in the field names nothing.
    assert (row["taken_up"]["top_choice"], row["taken_up"]["asked_again"]) == (None, True)
    assert (row["empty"]["top_choice"], row["empty"]["asked_again"]) == (None, False)


def test_ways_out_of_a_ballot_are_no_votes(negotiation: Runner) -> None:
    ballots: dict[str, dict[str, Any]] = {
        "declined": {"declined": True},
        "declined_with_choice": {"declined": True, "top_choice": "barbecue"},
        "declined_as_choice": {"top_choice": "declined"},
        "none_of_these": {"top_choice": "none_of_these"},
    }
    run = run_with_ballots(negotiation, ballots, ballots="source")
    for group_id, row in cuisine_ballots(run).items():
        reason = "none_of_these" if group_id == "none_of_these" else "declined"
        assert row["missing"] and row["reason"] == reason and row["top_choice"] is None
        assert not row["asked_again"]
        trail = session_json(run, group_id, "C4", "decisions")["cuisine"]
        assert trail["ballots"]["state"] == "partial"


def test_the_schemas_have_a_way_out(negotiation: Runner) -> None:
    seen: dict[str, Any] = {}

    def answering(request: ModelRequest, address: str) -> str:
        if request.schema:
            seen[request.schema["title"]] = request.schema
        return mediator(request, address)

    negotiation(answering, groups=some("team"), conditions=["C5"])
    scores = negotiation(
        scoring({"diner": 1}), groups=some("team"), conditions=["C4"], ballots="scores"
    )
    assert not scores.table("ballots")["missing"].any()
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


def test_any_other_firm_no_is_kept_as_it_was_said(negotiation: Runner) -> None:
    assert not any(map(is_none, ("No to all of it.", "No, never.", "No meat.", "Nothing raw")))
    ballot = {"hard_no": ["barbecue"], "objection": "Nothing with peanuts, I mean it."}
    run = negotiation(voting("traveler_1", ballot), groups=some("team"), conditions=["C4"])
    row = cast(run)
    assert (row["hard_no"], row["objection"]) == ("barbecue", "Nothing with peanuts, I mean it.")
    file = session_json(run, "team", "C4", "decisions")["cuisine"]["ballots"]["cast"][0]
    assert file["hard_no"] == ["barbecue", "Nothing with peanuts, I mean it."]
    said = session_json(run, "team", "C4", "dialogue")["cuisine"]
    (vote,) = [x["text"] for x in said if x["speaker"] == "Colleague 1" and "vote" in x["intent"]]
    assert vote.endswith("hard_no: barbecue, Nothing with peanuts, I mean it.")


WORDS_FOR_NOTHING = (
    *("None", "N/A", "No.", "no objections", "****", "-"),
    "I have no other objections at all.",
)


def test_a_word_for_nothing_is_no_objection(negotiation: Runner) -> None:
    ballots = {
        f"group{number}": {"hard_no": [words], "objection": words}
        for number, words in enumerate(WORDS_FOR_NOTHING)
    }
    cast_ballots = cuisine_ballots(run_with_ballots(negotiation, ballots))
    assert len(cast_ballots) == len(WORDS_FOR_NOTHING)
    for group_id, row in cast_ballots.items():
        found = row["hard_no"], row["objection"], row["missing"]
        assert found == ("", None, False), ballots[group_id]


def test_two_options_that_fold_to_the_same_are_refused() -> None:
    for pair in (["sushi", "Sushis"], ["Diner", "diners"], ["café", "CAFE"], ["tennis", "Tennis "]):
        with pytest.raises(ValueError, match="duplicate option"):
            NegotiationConfig.model_validate({"options": {"cuisine": [*pair, "barbecue"]}})
    NegotiationConfig.model_validate({"options": {"cuisine": ["pub", "brew pub", "pub food"]}})
