"""Measures of decision quality: off by default, asked after the vote, and found as planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Run
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY
from folkmoot.measures.reply_checks import REFUSALS_TITLE
from folkmoot.models.request import ModelRequest
from folkmoot.storage.findings import Finding
from tests.studies.cross_pollination.test_exposure import Talkers
from tests.studies.cross_pollination.test_protocol import (
    JOBS,
    OPTIONS,
    PARKS,
    SAFETY,
    join_messages,
    number,
    read_participants,
    run_scripted,
)

ALL_MEASURES = {"confidence": True, "ranking": True, "restatement": True, "delayed_vote": True}
VOTING_STAGES = ("initial_vote", "cross_pollination", "adversarial_dialogue", "second_vote")


def answer_as_planted(request: ModelRequest, address: str) -> str:
    """Return answers with planted effects: a dialogue adds 30 points of confidence and reverses the
    ranking. The third vote of half of the participants returns to the first."""
    before = address.startswith("initial_vote")
    argued = address.startswith("adversarial_dialogue")
    if "/confidence/" in address:
        return "70" if argued else "40"
    if "/ranking/" in address:
        order = [PARKS, JOBS, SAFETY]
        return json.dumps({"ranking": order[::-1] if argued else order})
    if "/restatement/" in address:
        return f"They of {number(address)} want it because children need somewhere to go."
    if address.startswith("delayed_vote"):
        first, final = request.messages[-1].content.split('"')[1::2][:2]
        return first if "/p_" in address and number(address) % 2 else final
    if before:
        return OPTIONS[number(address) % 3]
    return Talkers().usual(request, address)


def run_measured(folder: Path, **more: Any) -> tuple[Run, Talkers]:
    cast = Talkers(**dict.fromkeys((*VOTING_STAGES, "delayed_vote"), answer_as_planted))
    return run_scripted(folder, cast, revote=True, **more), cast


@pytest.fixture(scope="module")
def without_measures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Talkers]:
    """A run in which the study file asks for no measure. Tests only read it."""
    return run_measured(tmp_path_factory.mktemp("without"))


@pytest.fixture(scope="module")
def with_measures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Talkers]:
    """The same run with all measures. Tests only read it."""
    return run_measured(tmp_path_factory.mktemp("with"), **ALL_MEASURES)


def find_finding(done: Run, key: str) -> Finding:
    return next(f for f in done.findings if f.key == key)


def rows_by_condition(found: Finding) -> dict[str, dict[str, Any]]:
    return {str(row[0]): dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows}


def test_nothing_of_it_is_asked_unless_the_study_file_says_so(
    without_measures: tuple[Run, Talkers],
) -> None:
    done, cast = without_measures
    asked = {part for a in cast.requests for part in a.split("/")}
    assert not asked & {"confidence", "ranking", "restatement", "delayed_vote"}
    keys = {f.key for f in done.findings}
    assert not keys & {"confidence", "rankings", "restated", "delayed_vote"}
    empty = done.table("participants").select(
        *("confidence_before", "confidence_after", "ranking_before", "ranking_after"),
        *("restated_option", "restatement", "delayed_choice"),
    )
    assert set(empty.null_count().row(0)) == {24}


def test_measures_change_no_vote_and_no_other_question(
    without_measures: tuple[Run, Talkers], with_measures: tuple[Run, Talkers]
) -> None:
    plain, without = without_measures
    done, cast = with_measures
    assert all(cast.requests[a] == r for a, r in without.requests.items())
    same = ["participant_id", "initial_choice", "final_choice", "position_changed"]
    assert done.table("participants")[same].equals(plain.table("participants")[same])


def test_confidence_before_and_after_is_found_as_planted(
    with_measures: tuple[Run, Talkers],
) -> None:
    done, cast = with_measures
    rows = rows_by_condition(find_finding(done, "confidence"))
    assert {c: r["change"] for c, r in rows.items()} == {
        "Simple voting": 0,
        "Simple passive": 0,
        "Clarified passive": 0,
        "Adversarial (ACP)": 30,
    }
    assert (rows["Adversarial (ACP)"]["before"], rows["Adversarial (ACP)"]["after"]) == (40, 70)
    # It is asked with the vote in view, and all that the vote had.
    p = read_participants(done, "acp")[0]
    asked = join_messages(
        cast.requests[f"adversarial_dialogue/{p['participant_id']}/confidence/ask0"]
    )
    assert asked.index(p["cross_pollination_content"]) < asked.rindex(p["final_choice"])


def test_rankings_before_and_after_are_found_as_planted(
    with_measures: tuple[Run, Talkers],
) -> None:
    done, _ = with_measures
    rows = rows_by_condition(find_finding(done, "rankings"))
    assert rows["Adversarial (ACP)"]["pairs_share"] == 1  # turned round
    assert rows["Simple passive"]["pairs_share"] == 0
    assert rows["Simple passive"]["top_is_the_vote_share"] == 0  # they vote for JOBS
    assert json.loads(done.table("participants")["ranking_before"][0]) == [PARKS, JOBS, SAFETY]


PROMPT_NUMBERS, CONTRADICTION = "numbers of the prompt", "numbers against the order"
# What participants reply to the question for a ranking, and what is read.
RANKING_REPLIES: tuple[tuple[list[str] | str, tuple[str, ...] | None], ...] = (
    ([f"1. {PARKS}", JOBS.lower(), f" {SAFETY}."], (PARKS, JOBS, SAFETY)),
    # The schema lists the way out beside the options.
    ([PARKS, JOBS, SAFETY, "none_of_these"], (PARKS, JOBS, SAFETY)),
    (PROMPT_NUMBERS, (SAFETY, PARKS, JOBS)),
    (CONTRADICTION, (SAFETY, JOBS, PARKS)),
    ([PARKS, JOBS], None),
    ([PARKS, PARKS, JOBS], None),
    ([PARKS, JOBS, "Libraries"], None),
)


def test_a_ranking_is_read_in_any_spelling_asked_for_again_or_unknown(tmp_path: Path) -> None:
    """Each participant replies in one of these ways."""

    def ranked(request: ModelRequest, address: str) -> str:
        if "/ranking/" not in address:
            return answer_as_planted(request, address)
        reply, order = RANKING_REPLIES[number(address) % len(RANKING_REPLIES)]
        if reply == CONTRADICTION:
            said = [f"3. {PARKS}", f"2. {JOBS}", f"1. {SAFETY}"]
            again = [f"#1 {SAFETY}", f"2) {JOBS}", f"3. {PARKS}"]
            return json.dumps({"ranking": again if address.endswith(".r1") else said})
        if reply == PROMPT_NUMBERS:
            lines = str(request.messages[-1].content).splitlines()
            return json.dumps(
                {"ranking": [next(x for x in lines if x.endswith(f". {o}")) for o in order or ()]}
            )
        return json.dumps({"ranking": reply})

    cast = Talkers(**dict.fromkeys(VOTING_STAGES, ranked))
    done = run_scripted(tmp_path, cast, ranking=True)
    asked_again = {number(address) for address in cast.requests if ".r1" in address}
    found = dict(done.table("participants").select("participant_id", "ranking_before").iter_rows())
    assert len(found) == 24
    for who, ranking in found.items():
        case = number(f"/{who}/")
        reply, order = RANKING_REPLIES[case % len(RANKING_REPLIES)]
        assert (ranking and tuple(json.loads(ranking))) == order, reply
        assert (case in asked_again) == (reply == CONTRADICTION or order is None), reply
    # All participants of the other conditions cast a final vote.
    assert done.table("participants")["final_choice"].null_count() == 6


def test_ways_out_of_a_ranking_are_counted_as_refusals(tmp_path: Path) -> None:
    def unranked(request: ModelRequest, address: str) -> str:
        said = json.dumps({"ranking": ["none_of_these"]})
        return said if "/ranking/" in address else answer_as_planted(request, address)

    done = run_scripted(tmp_path, Talkers(**dict.fromkeys(VOTING_STAGES, unranked)), ranking=True)
    asked = done.table("answers")["scope"].str.ends_with("/ranking").sum()
    checks = {row[0]: row[-1] for row in find_finding(done, RESPONDENT_CHECKS_KEY).grid.rows}
    assert asked > 24 and f"(none_of_these {asked})" in checks[REFUSALS_TITLE]
    assert done.table("participants")["ranking_before"].null_count() == 24
    assert "rankings" not in {finding.key for finding in done.findings}


def test_the_opposing_view_is_restated_and_coded_blind_to_condition(tmp_path: Path) -> None:
    def coder(_request: ModelRequest, address: str) -> str:
        code = "restated" if number(address) % 2 else "partly"
        quote = f"They of {number(address)} want it because children need somewhere to go."
        return json.dumps({"codes": [{"code": code, "quote": quote}]})

    cast = Talkers(coding=coder, **dict.fromkeys(VOTING_STAGES, answer_as_planted))
    done = run_scripted(
        tmp_path, cast, revote=True, restatement=True, models={"coder": "openai/gpt-4o"}
    )
    table = done.table("participants")
    assert table["restatement"].null_count() == 0
    # That of the dialogue where there was one, else the most voted that is not one's own.
    assert all(r["restated_option"] != r["initial_choice"] for r in table.iter_rows(named=True))
    acp = table.filter(condition="acp")
    assert acp["restated_option"].equals(acp["opposition_view"], check_names=False)
    for request in cast.of("coding").values():
        assert not any(arm in join_messages(request) for arm in ("acp", "simple_", "clarified_"))
    rows = rows_by_condition(find_finding(done, "restated"))
    for name, condition in (("Adversarial (ACP)", "acp"), ("Simple passive", "simple_passive")):
        odd = sum(int(who[2:]) % 2 for who in table.filter(condition=condition)["participant_id"])
        assert (rows[name]["restated"], rows[name]["partly"]) == (odd, 6 - odd)


def test_a_later_vote_that_goes_back_is_found_as_planted(
    with_measures: tuple[Run, Talkers],
) -> None:
    done, cast = with_measures
    rows = rows_by_condition(find_finding(done, "delayed_vote"))
    table = done.table("participants")
    for name, condition in (("Simple passive", "simple_passive"), ("Adversarial (ACP)", "acp")):
        own = table.filter(condition=condition)
        back = own.filter(own["position_changed"] & (own["delayed_choice"] != own["final_choice"]))
        assert rows[name]["back_to_first"] == back.height
        assert rows[name]["kept_rate"] == pytest.approx(1 - back.height / 6)
    assert back.height > 0
    # Nothing of what was read or said is in view any more.
    assert set(done.table("exposure").filter(decision="third vote")["texts"]) == {0}
    assert len(cast.of("delayed_vote")) == 24


def test_further_conditions_give_the_effect_of_each_switch(tmp_path: Path) -> None:
    def vote_by_dialogue(request: ModelRequest, address: str) -> str:
        if "ONLY the exact" not in request.messages[-1].content:
            return Talkers().usual(request, address)
        return JOBS if "You just had the following dialogue" in join_messages(request) else PARKS

    stages = ("cross_pollination", "adversarial_dialogue", "second_vote")
    done = run_scripted(
        tmp_path,
        Talkers(initial_vote=lambda *_: PARKS, **dict.fromkeys(stages, vote_by_dialogue)),
        revote=True,
        disagreement_threshold=1.0,
        min_responses_for_threshold=1000,
        opposition_method="predefined",
        opposition_mapping={PARKS: JOBS, JOBS: PARKS, SAFETY: PARKS},
        exposure={"argued": {"dialogue": True}, "asked": {"interview": True}},
    )
    # Only who argued moved: none of it is to be credited to reading or to being interviewed.
    found = {str(row[0]): row[1] for row in find_finding(done, "main_effects").grid.rows}
    assert found["Dialogue"] == pytest.approx(1)
    assert all(value == pytest.approx(0) for name, value in found.items() if name != "Dialogue")
    assert set(found) >= {"Summaries", "Interview"}


def test_without_further_conditions_there_are_no_main_effects(
    without_measures: tuple[Run, Talkers],
) -> None:
    done, _ = without_measures
    assert "main_effects" not in {f.key for f in done.findings}


def test_arguments_move_the_confidence_of_the_embedded_respondent(tmp_path: Path) -> None:
    """Without a movement in the planted data nothing could test the measure."""
    settings = {
        "pilot_id": "sure",
        "topic": {"description": "Where shall the money go?", "options": list(OPTIONS)},
        "participants_per_condition": 10,
        "personas": {"source": "quota"},
        "confidence": True,
    }
    done = folkmoot.run("cross_pollination", settings, model="synthetic", out=tmp_path / "run")
    acp = done.table("participants").filter(condition="acp").drop_nulls("confidence_after")
    assert (acp["confidence_before"] != acp["confidence_after"]).sum() >= 5


# Replies to the questions for confidence and ranking, and the reasons why both are missing.
WAYS_OUT_OF_BOTH: tuple[tuple[str, dict[str, object], tuple[str | None, str]], ...] = (
    ("Cannot say.", {"ranking": ["none_of_these"]}, ("cannot_say", "none_of_these")),
    ("declined", {"declined": True, "ranking": list(OPTIONS)}, ("declined", "declined")),
    ("cannot_say", {"declined": True}, ("cannot_say", "declined")),
    ("80", {"ranking": [PARKS, "declined", JOBS]}, (None, "declined")),
)


def test_confidence_and_ranking_have_ways_out(tmp_path: Path) -> None:
    """Each participant takes one of these ways out."""

    def unsure(request: ModelRequest, address: str) -> str:
        sure, ranked, _ = WAYS_OUT_OF_BOTH[number(address) % len(WAYS_OUT_OF_BOTH)]
        if "/confidence/" in address:
            return sure
        return json.dumps(ranked) if "/ranking/" in address else answer_as_planted(request, address)

    cast = Talkers(**dict.fromkeys(VOTING_STAGES, unsure))
    done = run_scripted(tmp_path, cast, confidence=True, ranking=True)
    for row in done.table("participants").iter_rows(named=True):
        case = number(f"/{row['participant_id']}/") % len(WAYS_OUT_OF_BOTH)
        sure, _, reasons = WAYS_OUT_OF_BOTH[case]
        missing = json.loads(row["missing_answers"] or "{}")
        assert row["ranking_before"] is None and row["status"] == "complete", sure
        assert (missing.get("confidence_before"), missing["ranking_before"]) == reasons, sure
        assert row["confidence_before"] == (80 if reasons[0] is None else None), sure
    asked = [request for address, request in cast.requests.items() if "/ranking/" in address]
    for request in asked:
        schema = request.schema
        assert schema is not None and next(iter(schema["properties"])) == "declined"
        assert {"none_of_these", "declined"} < set(schema["properties"]["ranking"]["items"]["enum"])
        assert "- declined: true to decline" in request.messages[-1].content
    assert not any(".r" in address for address in cast.requests)  # a way out is an answer
