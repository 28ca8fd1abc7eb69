"""Findings with and without answers that their speakers did not state clearly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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


def build_vote_row(
    participant_id: str, stage: str, how: str = "exact", agrees: str = "same"
) -> dict[str, object]:
    """Build a row of `answers` for one vote."""
    return {
        "address": f"{stage}/{participant_id}/ask0",
        "stage": stage,
        "scope": f"{stage}/{participant_id}",
        "speaker_id": participant_id,
        "role": "participant",
        "kind": "choice",
        "parse_step": "clarified" if how == "clarified" else "exact",
        "reasks": int(how == "clarified"),
        "missing": None,
        "words": 1,
        "said": PARKS,
        "how": how,
        "agrees": agrees,
    }


def compute_pilot_findings(folder: Path, how: str, agrees: str) -> dict[str, Finding]:
    """Compute the findings of a run in which half of the adversarial arm changes by such votes."""
    pilot_builder = Pilot(folder / "run")
    for arm, changes in (("simple_voting", 4), ("acp", 40)):
        for number in range(80):
            is_changed = number < changes
            participant_id = pilot_builder.add(arm, PARKS if number % 2 else JOBS, None)
            first_choice = str(pilot_builder.rows[-1]["initial_choice"])
            last = (JOBS if first_choice == PARKS else PARKS) if is_changed else first_choice
            pilot_builder.rows[-1].update(final_choice=last, position_changed=is_changed)
            loose = is_changed and arm == "acp"
            stage = "adversarial_dialogue" if arm == "acp" else "second_vote"
            pilot_builder.answers += [
                build_vote_row(participant_id, "initial_vote"),
                build_vote_row(participant_id, stage, how, agrees)
                if loose
                else build_vote_row(participant_id, stage),
            ]
    pilot_builder.answers = [row for row in pilot_builder.answers if "how" in row]
    return {finding.key: finding for finding in compute_findings(STUDY, pilot_builder.run())}


@pytest.mark.parametrize(
    ("how", "agrees"),
    [("clarified", "same"), ("clarified", "other"), ("stated", "several"), ("exact", "other")],
)
def test_headline_says_that_its_conclusion_depends_on_unclear_votes(
    tmp_path: Path, how: str, agrees: str
) -> None:
    findings = compute_pilot_findings(tmp_path, how, agrees)
    statement = findings["change_differences"].says
    assert "Adversarial (ACP) − Simple voting +45 points" in statement
    assert (
        "The conclusion differs with exact and stated answers only (280 of 320 answers)"
        in statement
    )
    compared = findings[STRICT_ANSWERS_KEY]
    assert compared.headline and "Differences between conditions" in compared.says
    rows = {row[0]: row for row in compared.grid.rows}
    assert "acp" not in str(rows["Who changed their choice"][2])
    assert "Adversarial (ACP): 0 of 40 changed" in str(rows["Who changed their choice"][2])
    assert "Adversarial (ACP): 40 of 80 changed" in str(rows["Who changed their choice"][1])
    contradict = 40 if agrees in CONTRADICTING else 0
    assert f"{contradict} answers contradict their first reply" in findings[CLOSED_ANSWERS_KEY].says


@pytest.mark.parametrize("how", STRICT_HOW)
def test_clear_votes_change_nothing(tmp_path: Path, how: str) -> None:
    findings = compute_pilot_findings(tmp_path, how, "same")
    assert "conclusion differs" not in findings["change_differences"].says
    assert STRICT_ANSWERS_KEY not in findings
    assert (
        "320 of 320 closed answers (100 %) are exact or stated" in findings[CLOSED_ANSWERS_KEY].says
    )


def test_conclusion_without_unclear_votes_is_reported_as_unchanged(tmp_path: Path) -> None:
    pilot_builder = Pilot(tmp_path / "run")
    for arm, changes in (("simple_voting", 4), ("acp", 60)):
        for number in range(80):
            participant_id = pilot_builder.add(arm, PARKS, JOBS if number < changes else PARKS)
            stage = "adversarial_dialogue" if arm == "acp" else "second_vote"
            how = "clarified" if number == 79 else "exact"
            pilot_builder.answers += [
                build_vote_row(participant_id, "initial_vote"),
                build_vote_row(participant_id, stage, how),
            ]
    pilot_builder.answers = [row for row in pilot_builder.answers if "how" in row]
    findings = {finding.key: finding for finding in compute_findings(STUDY, pilot_builder.run())}
    assert (
        "no conclusion differs" in findings[STRICT_ANSWERS_KEY].says
        and not findings[STRICT_ANSWERS_KEY].headline
    )
    assert {row[-1] for row in findings[STRICT_ANSWERS_KEY].grid.rows} == {"holds"}


def test_run_of_an_earlier_version_reports_that_it_cannot_be_computed(tmp_path: Path) -> None:
    pilot_builder = Pilot(tmp_path / "run")
    pilot_builder.add_participants("simple_voting", {(PARKS, PARKS): 20})
    findings = {finding.key: finding for finding in compute_findings(STUDY, pilot_builder.run())}
    assert findings[CLOSED_ANSWERS_KEY].says.startswith("Cannot be computed")
    assert STRICT_ANSWERS_KEY not in findings


def run_with_clarified_answers(study: str, folder: Path) -> RunFolder:
    """Run a small study in which half of the closed answers need a further request."""
    path, out = small_study(study, folder), folder / "run"
    changes = ["respondent={off_list: 0.5}"]
    if study == "negotiation":
        changes += ["conditions=[C3, C4, C5]", "group_types=[strangers]"]
    return folkmoot.run(path, model="synthetic", out=out, overrides=tuple(changes)).folder


# The table and column of each vote.
VOTES = {
    "cross_pollination": [("participants", "initial_choice"), ("participants", "final_choice")],
    "focus_group": [("intents", "answer")],
    "negotiation": [("confirmations", "confirmed")],
    "workbook": [("responses", "value")],
}


@pytest.mark.parametrize("study", sample_daily(VOTES, daily=("negotiation",), part="sweeps"))
def test_every_excluded_vote_is_blank_and_no_other(study: str, tmp_path: Path) -> None:
    run = run_with_clarified_answers(study, tmp_path)
    kinds = ["workbook"] if study == "workbook" else ["choice"]
    clarified_answers = run.read_table("answers").filter(
        pl.col("kind").is_in(kinds), pl.col("role") == "participant", pl.col("missing").is_null()
    )
    left_out = clarified_answers.filter(~pl.col("how").is_in(STRICT_HOW))
    assert 0 < left_out.height < clarified_answers.height
    strict = find_study(study).strict_tables
    assert strict is not None
    tables = {name: table.collect() for name, table in strict(run, left_out).items()}
    blank = sum(
        tables[table][column].null_count() - run.read_table(table)[column].null_count()
        for table, column in VOTES[study]
    )
    if study == "negotiation":  # C5 keeps the text of C4 that it does not change
        assert left_out.height <= blank <= 2 * left_out.height
        own_confirmations = run.read_table("confirmations").filter(
            pl.col("condition").is_in(["C3", "C4"])
        )
        blanked = tables["confirmations"].filter(pl.col("condition").is_in(["C3", "C4"]))
        of_these = left_out.filter(~pl.col("address").str.contains("-C5/"))
        assert (
            blanked["confirmed"].null_count() - own_confirmations["confirmed"].null_count()
            == of_these.height
        )
    else:
        assert blank == left_out.height
    # A second exclusion removes nothing further.
    nothing = strict(run, left_out.clear())
    assert all(table.collect().equals(run.read_table(name)) for name, table in nothing.items())
    keys = {finding.key for finding in compute_findings(find_study(study), run)}
    assert {CLOSED_ANSWERS_KEY, STRICT_ANSWERS_KEY} <= keys


def test_town_hall_has_no_closed_answers(
    run_of_small_study: Callable[[str], Path],
) -> None:
    finished_run = folkmoot.load(run_of_small_study("town_hall"))
    (closed_answers_finding,) = [
        finding for finding in finished_run.findings if finding.key == CLOSED_ANSWERS_KEY
    ]
    assert closed_answers_finding.says.startswith("Not applicable")
    assert STRICT_ANSWERS_KEY not in {finding.key for finding in finished_run.findings}


def build_finding(low: float, high: float, p: float = 0.5, conclusion: str = "") -> Finding:
    chart = IntervalChart((("a − b", (low + high) / 2, low, high),), reference_line=0.0)
    grid = ResultTable.from_records([{"of": "a", "p": p}])
    return Finding("f", "F", "", grid, chart, unit="person", units=50, conclusion=conclusion)


@pytest.mark.parametrize(
    ("strict", "expected_text"),
    [
        (build_finding(0.1, 0.3), []),
        (build_finding(-0.1, 0.3), ["a − b is unclear and not above 0"]),
        (build_finding(-0.3, -0.1), ["a − b is below 0 and not above 0"]),
        # The chart draws an estimate without an interval as a point.
        (build_finding(0.3, 0.3), ["a − b is unclear and not above 0"]),
        (build_finding(0.1, 0.3, p=0.01), ["a: p is below .05"]),
        (build_finding(0.1, 0.3, conclusion="C wins"), ["C wins instead of nothing"]),
        (None, ["cannot be computed"]),
    ],
)
def test_conclusions_are_compared_by_direction_test_and_wording(
    strict: Finding | None, expected_text: list[str]
) -> None:
    assert list(compare_conclusions(build_finding(0.05, 0.25), strict)) == expected_text


def test_an_estimate_without_an_interval_is_no_conclusion(tmp_path: Path) -> None:
    pilot_builder = Pilot(tmp_path / "run")
    for arm in ("simple_voting", "acp"):
        for number in range(6):
            participant_id = pilot_builder.add(arm, PARKS, JOBS if number < 3 else PARKS)
            stage = "adversarial_dialogue" if arm == "acp" else "second_vote"
            how = "clarified" if arm == "acp" and number > 2 else "exact"
            pilot_builder.answers += [
                build_vote_row(participant_id, "initial_vote"),
                build_vote_row(participant_id, stage, how),
            ]
    pilot_builder.answers = [row for row in pilot_builder.answers if "how" in row]
    findings = {finding.key: finding for finding in compute_findings(STUDY, pilot_builder.run())}
    rows = {row[0]: row for row in findings[STRICT_ANSWERS_KEY].grid.rows}
    _, before, after, conclusion = map(str, rows["Differences between conditions"])
    assert "neither shown nor ruled out" in before
    assert "+50 points (no interval): not tested" in after
    assert "above 0" not in conclusion and "cannot be tested" in conclusion


def test_an_estimate_without_an_interval_lies_outside_no_interval() -> None:
    all_answers, strict = (
        replace(finding, chart=replace(finding.chart, reference_line=None))
        for finding in (build_finding(0.1, 0.3), build_finding(0.9, 0.9))
        if isinstance(finding.chart, IntervalChart)
    )
    assert [*compare_conclusions(all_answers, strict)] == []


def test_findings_of_a_run_in_which_all_people_decline_use_no_closed_answers(
    tmp_path: Path,
) -> None:
    pilot_builder = Pilot(tmp_path / "run")
    for arm in ("simple_voting", "acp"):
        participant_id = pilot_builder.add(arm, None, None)
        row = build_vote_row(participant_id, "initial_vote") | {"missing": "declined"}
        pilot_builder.answers.append(row | {"how": "clarified", "agrees": "none"})
    findings = {finding.key: finding for finding in compute_findings(STUDY, pilot_builder.run())}
    says = findings[CLOSED_ANSWERS_KEY].says
    assert says.startswith("0 of 2 closed answers (0 %) are exact or stated.")
    assert says.endswith("The findings use no closed answers.")
