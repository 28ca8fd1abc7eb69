"""Members' own scores, satisfaction computed from them, and undecided slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import polars as pl
import pytest

from folkmoot.models.request import ModelRequest
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.measured_claims import read_measure
from folkmoot.report.comparison.samples import load_samples
from folkmoot.studies.negotiation.measures import repeated_statements, satisfaction_of_members
from folkmoot.studies.negotiation.rules.operators import Portion
from tests.studies.negotiation.conftest import (
    Runner,
    copy_group,
    get_question,
    list_options,
    make_new_share,
    make_share,
    read_session_file,
    reply_sensibly,
    script_by_group,
    select_groups,
)

CONDITIONS = ["C1", "C2", "C3", "C4", "C5"]


def asks_for_own_scores(request: ModelRequest) -> bool:
    return bool(request.schema) and request.schema["title"] == "OwnScores"  # type: ignore[index]


def script_own_scores(scores: dict[str, Any], reply_to: Any = reply_sensibly, **more: Any) -> Any:
    """Return a script in which members give these scores in private, and 0 to other options."""

    def reply(request: ModelRequest, address: str) -> str:
        if not asks_for_own_scores(request):
            return str(reply_to(request, address))
        listed = [
            {"option": o, "score": scores.get(o, 0)} for o in list_options(get_question(request))
        ]
        return json.dumps({"reason": "My secret reason.", "scores": listed, "hard_no": [], **more})

    return reply


def test_own_scores_are_asked_once_and_no_prompt_shows_them(run_negotiation: Runner) -> None:
    others: list[str] = []
    seen: list[str] = []

    def reply_to(request: ModelRequest, address: str) -> str:
        words = "\n".join(m.content for m in request.messages)
        (seen if asks_for_own_scores(request) else others).append(words)
        return str(script_own_scores({"diner": 3})(request, address))

    run = run_negotiation(reply_to, groups=select_groups("pair"))
    rows = run.table("own_scores")
    asked = [a for a in run.table("answers")["address"] if a.startswith("own_scores/")]
    assert len(asked) == len(set(asked)) == 2 * 8
    assert set(rows["entered"]) == {"before"} and set(rows["reason"]) == {"My secret reason."}
    assert not any("secret" in words for words in others)
    # No prompt for scores shows the wishes of other members.
    assert not any("I love a diner" in s and "I love barbecue" in s for s in seen)


def test_satisfaction_is_computed_from_them_under_all_conditions(run_negotiation: Runner) -> None:
    """Each member's text is for one option, but all members score every option with 3."""
    every = dict.fromkeys(
        ("diner", "barbecue", "museums", "nature parks", "theatre", "sports", "luxury"), 3
    )
    run = run_negotiation(script_own_scores(every), groups=select_groups("team", size=2))
    rows = run.table("satisfaction").filter(pl.col("topic").is_in(["cuisine", "attraction"]))
    assert set(rows["satisfaction"]) == {3.0} and set(rows["condition"]) == set(CONDITIONS)
    # The vote still follows the rules of the source.
    voted = run.table("scores").filter(condition="C4", topic="cuisine")
    assert voted["score"].n_unique() > 2


def test_a_firm_no_is_the_lowest_score(run_negotiation: Runner) -> None:
    run = run_negotiation(
        script_own_scores({"diner": 4, "barbecue": 4}, hard_no=["barbecue"], objection="no garlic"),
        groups=select_groups("team", size=2),
        conditions=["C3"],
    )
    own = run.table("own_scores").filter(topic="cuisine", option="barbecue")
    assert own["firm_no"].all() and set(own["objection"]) == {"no garlic"}
    assert set(run.table("satisfaction").filter(topic="cuisine")["satisfaction"]) == {-4.0}


def test_options_at_once_count_by_the_best_unless_one_is_rejected() -> None:
    scores = {"a": {"x": 3.0, "y": -2.0}, "b": {"x": 1.0, "y": -4.0}}
    both = [Portion("x", ("a", "b")), Portion("y", ("a", "b"))]
    assert satisfaction_of_members(scores, both, -4) == {"a": 3.0, "b": -4.0}
    # If the times are left open, it is unknown whether they are the same.
    apart = [Portion("x", ("a",), "time left open"), Portion("y", ("a",), "time left open")]
    assert satisfaction_of_members(scores, apart, -4) == {"a": 0.5}
    # The satisfaction is unknown if one option has no score.
    assert satisfaction_of_members(scores, [*both, Portion("z", ("a",))], -4) == {"b": -4.0}


def run_with_scores(run_negotiation: Runner, scores_by_group: Mapping[str, Any]) -> Any:
    """Run C3 with a group of two colleagues for each entry. Members give the scores of the entry in
    private."""
    scripts = {group_id: script_own_scores(scores) for group_id, scores in scores_by_group.items()}
    groups = copy_group("team", *scripts, size=2)
    return run_negotiation(script_by_group(scripts), groups=groups, conditions=["C3"])


def test_a_score_that_a_member_cannot_state_is_missing_without_a_reask(
    run_negotiation: Runner,
) -> None:
    ways = {"null": None, "value": "cannot_say", "words": "cannot say"}
    run = run_with_scores(run_negotiation, {name: {"barbecue": way} for name, way in ways.items()})
    assert not [a for a in run.table("answers")["address"] if a.endswith("ask1")]
    for name in ways:
        own = run.table("own_scores").filter(group_id=name, option="barbecue")
        assert own["score"].is_null().all() and set(own["missing"]) == {"cannot_say"}, name
        rows = run.table("satisfaction").filter(group_id=name, topic="cuisine")
        # All of them get barbecue.
        assert rows["satisfaction"].is_null().all(), name
        assert set(rows["unknown"]) == {"unknown_option"}, name


def test_an_unreadable_score_is_unparsed_and_not_the_way_out_of_the_member(
    run_negotiation: Runner,
) -> None:
    cases = {
        f"group{number}": case
        for number, case in enumerate(product(("high", "2-3", True, 9), (3, None)))
    }
    run = run_with_scores(
        run_negotiation,
        {name: {"barbecue": score, "diner": other} for name, (score, other) in cases.items()},
    )
    for name, (score, other) in cases.items():
        rows = run.table("own_scores").filter(group_id=name, topic="cuisine")
        reasons = dict(rows.select("option", "missing").unique().iter_rows())
        expected = {"barbecue": "unparsed", "diner": "cannot_say" if other is None else None}
        assert expected.items() <= reasons.items(), (score, other)


def test_scores_that_contradict_each_other_or_are_incomplete_go_back_once(
    run_negotiation: Runner,
) -> None:
    """An option with two different scores, and one without any, have no score."""
    stated = {
        "numbers": [("diner", 2), ("diner", 2), ("barbecue", 3), ("barbecue", -4)],
        "null": [("diner", 2), ("diner", 2), ("barbecue", 3), ("barbecue", None)],
        "left_out": [("diner", 2), ("whatever", 1)],
    }
    asked: dict[str, list[str]] = {group_id: [] for group_id in stated}

    def script_scores(group_id: str) -> Any:
        def reply_to(request: ModelRequest, address: str) -> str:
            if not asks_for_own_scores(request) or "/traveler_1/cuisine/" not in address:
                return reply_sensibly(request, address)
            asked[group_id].append(request.messages[-1].content)
            scores = [{"option": option, "score": score} for option, score in stated[group_id]]
            return json.dumps({"reason": "", "scores": scores, "hard_no": []})

        return reply_to

    run = run_negotiation(
        script_by_group({group_id: script_scores(group_id) for group_id in stated}),
        groups=copy_group("pair", *stated),
        conditions=["C3"],
    )
    again = "“barbecue” is none of the options to which you gave only one score."
    for group_id, questions in asked.items():
        assert len(questions) == 2, group_id
        assert (again in questions[1]) == (group_id != "left_out"), group_id
        own = run.table("own_scores").filter(
            group_id=group_id, topic="cuisine", member_id="traveler_1"
        )
        missing = dict(own.select("option", "missing").rows())
        assert dict(own.select("option", "score").rows()) == {"barbecue": None, "diner": 2}
        if group_id != "left_out":
            assert missing == {"barbecue": "unparsed", "diner": None}, group_id


def test_a_score_that_is_declined_does_not_count(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        if not asks_for_own_scores(request):
            return reply_sensibly(request, address)
        options = list_options(get_question(request))
        scores = [{"option": o, "score": 3, "declined": o == "barbecue"} for o in options]
        return json.dumps({"reason": "", "scores": scores, "hard_no": []})

    run = run_negotiation(reply_to, groups=select_groups("pair"), conditions=["C3"])
    own = run.table("own_scores").filter(topic="cuisine")
    assert set(own.select("option", "score").rows()) == {("barbecue", None), ("diner", 3)}


def test_scores_of_a_member_who_declines_are_missing(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        if asks_for_own_scores(request) and "/traveler_2/" in address:
            return '{"declined": true}'
        return reply_sensibly(request, address)

    run = run_negotiation(reply_to, groups=select_groups("team", size=2), conditions=["C3"])
    own = run.table("own_scores").filter(member_id="traveler_2")
    assert set(own["missing"]) == {"declined"} and own["score"].is_null().all()
    rows = run.table("satisfaction").filter(member_id="traveler_2")
    assert set(rows["unknown"]) == {"not_scored"}


@pytest.mark.parametrize("condition", ["C3", "C4", "C5"])
def test_an_option_that_comes_up_later_is_scored_when_it_enters(
    run_negotiation: Runner, condition: str
) -> None:
    def mediating(request: ModelRequest, address: str) -> str:
        if "/cuisine/ballots/traveler_1/" in address:
            ballot = json.loads(reply_sensibly(request, address))
            ballot |= {"top_choice": "none_of_these", "new_option": "Tapas"}
            return json.dumps(ballot)
        if condition != "C4" and "/cuisine/" in address and request.schema:
            return reply_sensibly(request, address, decision=[make_new_share("tapas")])
        return reply_sensibly(request, address)

    team = select_groups("team", size=2)
    run = run_negotiation(
        script_own_scores({"tapas": 2}, mediating), groups=team, conditions=[condition]
    )
    own = run.table("own_scores").filter(option="tapas")
    assert len(own) == 2 and set(own["entered"]) == {condition} and set(own["score"]) == {2}
    row = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    if condition != "C4":
        assert row["selected_option"] == "tapas"
        content = run.table("satisfaction").filter(topic="cuisine")
        assert content["satisfaction"].to_list() == [2.0] * 2


# --- undecided ---------------------------------------------------------------------------------


def decide_only(*topics: str) -> Any:
    """Return a script of a C3 mediator that decides only these slots."""

    def reply_to(request: ModelRequest, address: str) -> str:
        if "-C3/" in address and not any(f"/{topic}/" in address for topic in topics):
            return reply_sensibly(request, address, decision=[])
        return reply_sensibly(request, address)

    return reply_to


def mean_of_c3(run: Any, measure: str = "satisfaction", **group: str) -> float:
    (value,) = run.table("measures").filter(condition="C3", **group)[measure]
    return float(value)


def test_deciding_only_uncontested_slots_lowers_satisfaction(run_negotiation: Runner) -> None:
    every: dict[str, Any] = {"groups": select_groups("team", size=2), "conditions": ["C3"]}
    whole = run_negotiation(**every)
    some_slots = run_negotiation(decide_only("event"), **every)
    assert mean_of_c3(some_slots) < mean_of_c3(whole)
    undecided = some_slots.table("measures")["undecided_share"].to_list()
    assert undecided == [7 / 8]
    (event,) = (
        some_slots.table("satisfaction").filter(topic="event").select(pl.col("satisfaction").mean())
    )
    assert mean_of_c3(some_slots) == pytest.approx((event.item() + 7 * -4) / 8)
    assert mean_of_c3(some_slots, "satisfaction_decided") == pytest.approx(event.item())
    assert mean_of_c3(some_slots, "satisfaction_if_lowest") == mean_of_c3(some_slots)
    assert mean_of_c3(some_slots, "satisfaction_if_highest") == pytest.approx(
        (event.item() + 7 * 4) / 8
    )
    says = {f.key: f for f in some_slots.findings}["satisfaction"].says
    assert "Slots left open count as −4 (C3: 14 of 16 member scores)." in says


def test_a_slot_left_open_is_null_with_its_cause_everywhere(run_negotiation: Runner) -> None:
    run = run_negotiation(decide_only("event"), groups=select_groups("pair"), conditions=["C3"])
    row = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    assert (row["undecided"], row["selected_option"], row["resolution_text"]) == (
        *("left_open", None, None),
    )
    payload = read_session_file(run, "pair", "C3", "planner_payload")["slot_decision_state"][
        "cuisine"
    ]
    trail = read_session_file(run, "pair", "C3", "decisions")["cuisine"]
    for kept in (payload, trail):
        assert kept["undecided"] == "left_open"
        assert kept["portions"] is kept["resolution_text"] is kept["selected_option"] is None
    assert set(run.table("satisfaction").filter(topic="cuisine")["unknown"]) == {"left_open"}
    assert "Food:" not in run.folder.text("tripcraft/C3.csv")


def test_what_cannot_be_read_is_missing_and_not_lowest(run_negotiation: Runner) -> None:
    nonsense = [make_share("whatever the others want"), make_share("TBD")]

    def script_decision(reply: str | None) -> Any:
        def reply_to(request: ModelRequest, address: str) -> str:
            if "-C3/cuisine/ask" not in address:
                return reply_sensibly(request, address)
            return reply or reply_sensibly(request, address, decision=nonsense)

        return reply_to

    cases = {
        "prose": ("Let us all be friends.", "unreadable"),
        "refusal": ('{"declined": true}', "declined"),
        "nonsense": (None, "unreadable"),
    }
    run = run_negotiation(
        script_by_group({name: script_decision(reply) for name, (reply, _) in cases.items()}),
        groups=copy_group("team", *cases, size=2),
        conditions=["C3"],
    )
    for name, (_, cause) in cases.items():
        (row,) = run.table("decisions").filter(group_id=name, topic="cuisine").to_dicts()
        assert row["undecided"] == cause, name
        rows = run.table("satisfaction").filter(group_id=name)
        assert set(rows.filter(topic="cuisine")["unknown"]) == {cause}, name
        others = rows.filter(pl.col("topic") != "cuisine")["satisfaction"].mean()
        mean = mean_of_c3(run, group_id=name)
        assert mean == pytest.approx(others), name
        assert (
            mean_of_c3(run, "satisfaction_if_lowest", group_id=name)
            < mean
            < mean_of_c3(run, "satisfaction_if_highest", group_id=name)
        ), name


def test_a_member_whom_a_decision_gives_nothing_counts_as_left_open(
    run_negotiation: Runner,
) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        stated = [make_share("barbecue", "Colleague 2", "Colleague 4")]
        here = "-C3/cuisine/ask" in address
        return reply_sensibly(request, address, **({"decision": stated} if here else {}))

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C3"])
    rows = run.table("satisfaction").filter(topic="cuisine")
    unknown = dict(rows.select("member_id", "unknown").rows())
    assert unknown == {
        **dict.fromkeys(("traveler_1", "traveler_3"), "left_open"),
        **dict.fromkeys(("traveler_2", "traveler_4"), None),
    }


def test_the_agreement_of_text_scoring_is_printed(run_negotiation: Runner, full_run: Any) -> None:
    """The scripted members score as the text parser does, and then with the opposite sign."""
    found = {f.key: f for f in full_run.findings}["text_scoring"]
    rows = {row[0]: row[1:] for row in found.grid.rows}
    assert rows["first choice"][0] == rows["first choice"][1] > 0

    def turned(request: ModelRequest, address: str) -> str:
        reply = reply_sensibly(request, address)
        if not asks_for_own_scores(request):
            return reply
        data = json.loads(reply)
        for score in data["scores"]:
            score["score"] *= -1
        return json.dumps(data)

    other = run_negotiation(turned, groups=select_groups("team", size=2), conditions=["C3"])
    found = {f.key: f for f in other.findings}["text_scoring"]
    assert {row[0]: row[1] for row in found.grid.rows}["for or against an option"] == 0


def test_compare_reads_a_measure_from_the_table_that_the_report_reads(
    run_negotiation: Runner,
) -> None:
    """`own_scores` has a column of that name, too, but without conditions."""
    hypothesis = {"measure": "score", "contrast": ["C4", "C1"], "direction": "greater"}
    runs = [
        run_negotiation(
            groups=select_groups("pair", "team", size=2),
            conditions=["C1", "C4"],
            hypotheses=[hypothesis],
            random_seed=seed,
        ).folder
        for seed in (1, 2)
    ]
    for sample in load_samples(runs):
        (result,) = (r for r in sample.results if r.claim.measure == "score")
        measured = read_measure(sample, result.claim)
        assert measured is not None and {"C1", "C4"} <= {*measured.arms}
        for arm, mean in zip(("C4", "C1"), result.means, strict=True):
            assert measured.arms[arm]["value"].mean() == pytest.approx(mean)
    compared = {finding.key: finding for finding in compare_runs(runs)}["compare_claims"]
    assert "everybody" not in str(compared.grid)


def test_a_retest_has_no_preference_of_the_researcher_and_each_ballot_once(
    run_negotiation: Runner,
) -> None:
    (told,) = select_groups("pair")
    driver = {"role": "partner", "persona": "A tram driver who likes quiet evenings."}
    groups = [told, told | {"id": "asked", "members": [driver, driver]}]
    ballots = []
    for conditions in (["C4"], ["C4", "C5"], ["C5"]):
        run = run_negotiation(script_own_scores({"diner": 3}), groups=groups, conditions=conditions)
        repeats = repeated_statements(run.folder)
        scores, choices = (
            [pair for pair in repeats if isinstance(pair.first, kind)] for kind in (float, str)
        )
        assert {pair.unit[0] for pair in scores} == {"asked"}
        ballots.append([(pair.unit, pair.question, pair.first, pair.last) for pair in choices])
    assert ballots[0] and ballots[0] == ballots[1] == ballots[2]
