"""Findings with and without the answers that their speakers did not plainly give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.study.strict_answers import (
    CLOSED_ANSWERS_KEY,
    CONTRADICTING,
    STRICT_ANSWERS_KEY,
    STRICT_HOW,
    compare_conclusions,
)
from folkmoot.engine.study.study import compute_findings, find_study
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import small_study
from tests.studies.test_cross_pollination_findings import JOBS, PARKS, Pilot
from tests.sweeps import sample_daily

STUDY = find_study("cross_pollination")


def vote(who: str, stage: str, how: str = "exact", agrees: str = "same") -> dict[str, object]:
    """A row of `answers` for one vote."""
    return {
        "address": f"{stage}/{who}/ask0",
        "stage": stage,
        "scope": f"{stage}/{who}",
        "speaker_id": who,
        "role": "participant",
        "kind": "choice",
        "parse_step": "clarified" if how == "clarified" else "exact",
        "reasks": int(how == "clarified"),
        "missing": None,
        "words": 1,
        "how": how,
        "agrees": agrees,
    }


def pilot(folder: Path, how: str, agrees: str) -> dict[str, Finding]:
    """Half of the adversarial arm changes, all of it in votes that were had in this way."""
    made = Pilot(folder / "run")
    for arm, changes in (("simple_voting", 4), ("acp", 40)):
        for number in range(80):
            moved = number < changes
            who = made.add(arm, PARKS if number % 2 else JOBS, None)
            first = str(made.rows[-1]["initial_choice"])
            last = (JOBS if first == PARKS else PARKS) if moved else first
            made.rows[-1].update(final_choice=last, position_changed=moved)
            loose = moved and arm == "acp"
            stage = "adversarial_dialogue" if arm == "acp" else "second_vote"
            made.answers += [
                vote(who, "initial_vote"),
                vote(who, stage, how, agrees) if loose else vote(who, stage),
            ]
    made.answers = [row for row in made.answers if "how" in row]
    return {f.key: f for f in compute_findings(STUDY, made.run())}


@pytest.mark.parametrize(
    ("how", "agrees"),
    [("clarified", "same"), ("clarified", "other"), ("stated", "several"), ("exact", "other")],
)
def test_a_headline_says_that_its_conclusion_rests_on_doubtful_votes(
    tmp_path: Path, how: str, agrees: str
) -> None:
    found = pilot(tmp_path, how, agrees)
    says = found["change_differences"].says
    assert "Adversarial (ACP) − Simple voting +45 points" in says
    assert "The conclusion differs with exact and stated answers only (280 of 320 answers)" in says
    compared = found[STRICT_ANSWERS_KEY]
    assert compared.headline and "Differences between conditions" in compared.says
    rows = {row[0]: row for row in compared.grid.rows}
    assert "acp" not in str(rows["Who changed their choice"][2])
    assert "Adversarial (ACP): 0 of 40 changed" in str(rows["Who changed their choice"][2])
    assert "Adversarial (ACP): 40 of 80 changed" in str(rows["Who changed their choice"][1])
    contradict = 40 if agrees in CONTRADICTING else 0
    assert f"{contradict} answers contradict their first reply" in found[CLOSED_ANSWERS_KEY].says


@pytest.mark.parametrize("how", STRICT_HOW)
def test_plain_votes_change_nothing(tmp_path: Path, how: str) -> None:
    found = pilot(tmp_path, how, "same")
    assert "conclusion differs" not in found["change_differences"].says
    assert STRICT_ANSWERS_KEY not in found
    assert "320 of 320 closed answers (100 %) are exact or stated" in found[CLOSED_ANSWERS_KEY].says


def test_a_conclusion_that_holds_is_said_to_hold(tmp_path: Path) -> None:
    made = Pilot(tmp_path / "run")
    for arm, changes in (("simple_voting", 4), ("acp", 60)):
        for number in range(80):
            who = made.add(arm, PARKS, JOBS if number < changes else PARKS)
            stage = "adversarial_dialogue" if arm == "acp" else "second_vote"
            how = "clarified" if number == 79 else "exact"
            made.answers += [vote(who, "initial_vote"), vote(who, stage, how)]
    made.answers = [row for row in made.answers if "how" in row]
    found = {f.key: f for f in compute_findings(STUDY, made.run())}
    assert (
        "no conclusion differs" in found[STRICT_ANSWERS_KEY].says
        and not found[STRICT_ANSWERS_KEY].headline
    )
    assert {row[-1] for row in found[STRICT_ANSWERS_KEY].grid.rows} == {"holds"}


def test_a_run_of_an_earlier_version_says_that_it_cannot_be_computed(tmp_path: Path) -> None:
    made = Pilot(tmp_path / "run")
    made.add_participants("simple_voting", {(PARKS, PARKS): 20})
    found = {f.key: f for f in compute_findings(STUDY, made.run())}
    assert found[CLOSED_ANSWERS_KEY].says.startswith("Cannot be computed")
    assert STRICT_ANSWERS_KEY not in found


def loosely(study: str, folder: Path) -> RunFolder:
    """A small run in which half of the closed answers need a further request."""
    path, out = small_study(study, folder), folder / "run"
    changes = ["respondent={off_list: 0.5}"]
    if study == "negotiation":
        changes += ["conditions=[C3, C4, C5]", "group_types=[strangers]"]
    return folkmoot.run(path, model="synthetic", out=out, overrides=tuple(changes)).folder


VOTES = {  # table and column of each vote, and how many rows one answer may stand for
    "cross_pollination": [("participants", "initial_choice"), ("participants", "final_choice")],
    "focus_group": [("intents", "answer")],
    "negotiation": [("confirmations", "confirmed")],
    "workbook": [("responses", "value")],
}


@pytest.mark.parametrize("study", sample_daily(VOTES, daily=("negotiation",), part="sweeps"))
def test_every_vote_that_is_left_out_is_blank_and_no_other(study: str, tmp_path: Path) -> None:
    run = loosely(study, tmp_path)
    kinds = ["workbook"] if study == "workbook" else ["choice"]
    asked = run.read_table("answers").filter(
        pl.col("kind").is_in(kinds), pl.col("role") == "participant", pl.col("missing").is_null()
    )
    left_out = asked.filter(~pl.col("how").is_in(STRICT_HOW))
    assert 0 < left_out.height < asked.height
    strict = find_study(study).strict_tables
    assert strict is not None
    tables = {name: table.collect() for name, table in strict(run, left_out).items()}
    blank = sum(
        tables[table][column].null_count() - run.read_table(table)[column].null_count()
        for table, column in VOTES[study]
    )
    if study == "negotiation":  # C5 keeps C4's words on what it does not change
        assert left_out.height <= blank <= 2 * left_out.height
        own = run.read_table("confirmations").filter(pl.col("condition").is_in(["C3", "C4"]))
        blanked = tables["confirmations"].filter(pl.col("condition").is_in(["C3", "C4"]))
        of_these = left_out.filter(~pl.col("address").str.contains("-C5/"))
        assert blanked["confirmed"].null_count() - own["confirmed"].null_count() == of_these.height
    else:
        assert blank == left_out.height
    # What is left out once more is nothing more.
    nothing = strict(run, left_out.clear())
    assert all(table.collect().equals(run.read_table(name)) for name, table in nothing.items())
    keys = {f.key for f in compute_findings(find_study(study), run)}
    assert {CLOSED_ANSWERS_KEY, STRICT_ANSWERS_KEY} <= keys


def test_the_town_hall_has_no_closed_answers_of_its_own(
    run_of_small_study: Callable[[str], Path],
) -> None:
    done = folkmoot.load(run_of_small_study("town_hall"))
    (counted,) = [f for f in done.findings if f.key == CLOSED_ANSWERS_KEY]
    assert counted.says.startswith("Not applicable")
    assert STRICT_ANSWERS_KEY not in {f.key for f in done.findings}


def finding(low: float, high: float, p: float = 0.5, conclusion: str = "") -> Finding:
    chart = IntervalChart((("a − b", (low + high) / 2, low, high),), reference_line=0.0)
    grid = ResultTable.from_records([{"of": "a", "p": p}])
    return Finding("f", "F", "", grid, chart, unit="person", units=50, conclusion=conclusion)


@pytest.mark.parametrize(
    ("strict", "says"),
    [
        (finding(0.1, 0.3), []),
        (finding(-0.1, 0.3), ["a − b is unclear and not above 0"]),
        (finding(-0.3, -0.1), ["a − b is below 0 and not above 0"]),
        (finding(0.1, 0.3, p=0.01), ["a: p is below .05"]),
        (finding(0.1, 0.3, conclusion="C wins"), ["C wins instead of nothing"]),
        (None, ["cannot be computed"]),
    ],
)
def test_conclusions_are_compared_by_side_test_and_word(
    strict: Finding | None, says: list[str]
) -> None:
    assert list(compare_conclusions(finding(0.05, 0.25), strict)) == says
