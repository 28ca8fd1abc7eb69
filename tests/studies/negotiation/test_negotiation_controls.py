"""Controls of a negotiation."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.replacing import UNCHANGED
from folkmoot.kit.controls.tables import SAME_LENGTH, ControlRow
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.earlier_controls import plan_controls_without

STUDY = """
study: negotiation
conditions: [C3, C5]
group_types: [spouses]
groups_per_type: 2
max_feedback_rounds: 1
random_seed: 6
"""
CONTROLS = {"negative": False, "retest": False, "same_length": True}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Run a negotiation in which one group gives no feedback on one topic."""
    study = tmp_path / "study.yaml"
    study.write_text(STUDY, "utf-8")
    run = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    exposure = run.read_table("exposure").filter(condition="C5", decision="feedback")
    assert exposure["address"].n_unique() < 16
    return run


def test_stated_preferences_are_no_treatment_whether_or_not_feedback_was_given(
    run: RunFolder,
) -> None:
    controls = run_controls(run, CONTROLS, RunOptions())
    rows = controls.read_table(ControlRow.table).filter(control=SAME_LENGTH)
    mediator = rows.filter(condition="C3", role="moderator")
    assert mediator.height and {*mediator["missing"]} == {UNCHANGED}
    preferences = run.read_table("utterances").filter(phase="preference")["text"].to_list()
    with (
        JournalReader(run.path / JOURNAL) as designed,
        JournalReader(controls.path / JOURNAL) as new,
    ):
        for row in rows.filter(rows["address"] != "").iter_rows(named=True):
            made, changed = designed.entry_at(row["decision_address"]), new.entry_at(row["address"])
            if made is None or changed is None:
                continue
            before, after = (str(entry.request["messages"]) for entry in (made, changed))
            assert all(text in after for text in preferences if text in before)
    assert [verification.differences for _, verification in verify_controls(run)] == [[]]


def test_controls_of_an_earlier_version_are_verified_with_the_texts_that_they_replaced(
    run: RunFolder,
) -> None:
    with plan_controls_without("alike_by_design"):
        rows = run_controls(run, CONTROLS, RunOptions()).read_table(ControlRow.table)
    replaced = rows.filter(control=SAME_LENGTH, condition="C3", role="moderator")
    assert replaced["missing"].null_count()
    assert [verification.differences for _, verification in verify_controls(run)] == [[]]
