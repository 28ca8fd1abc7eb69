"""Controls of decisions that participants make apart from the treatment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.run.execution import RunOptions
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.tables import AS_DESIGNED, ControlRow
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.earlier_controls import plan_controls_without
from tests.kit.test_controls import PILOT, read_records, write_one_group

CONTROLS = {"negative": [{"id": "pet", "text": "A cat or a dog?", "options": ["cat", "dog"]}]}


@pytest.fixture
def focus_group(shared_folder: SharedFolder, tmp_path: Path) -> RunFolder:
    """Copy the run of one focus group whose participants are interviewed alone, too."""

    def run_study(folder: Path) -> None:
        study = write_one_group(folder, "control: alone")
        folkmoot.run(study, model="synthetic", out=folder / "run")

    shared = shared_folder("controls/decisions_apart", run_study)
    return RunFolder(shutil.copytree(shared / "run", tmp_path / "run"))


def test_the_decision_after_the_discussion_is_final_beside_interviews_alone(
    focus_group: RunFolder,
) -> None:
    run = focus_group
    controls = run_controls(run, {**CONTROLS, "order": True, "same_length": True}, RunOptions())
    rows = controls.read_table(ControlRow.table)
    times = rows.select("moment", "decision_address").unique().rows()
    assert {(moment, address.split("/")[3]) for moment, address in times} == {
        ("first", "before"),
        ("final", "after"),
        ("alone", "alone"),
    }
    findings = {finding.key: finding for finding in control_findings(run)}
    effects = read_records(findings["where_the_effect_comes_from"])
    compared = {
        (str(row["contrast"]).partition(": ")[2], row["decision"])
        for row in effects
        if row["version"] == "as designed"
    }
    assert compared >= {
        ("final against first decision", "intent after against intent before"),
        ("final against alone decision", "intent after against intent alone"),
    }
    drift = {str(row["contrast"]) for row in read_records(findings["user_drift"])}
    assert any(contrast.endswith(": final against alone decision") for contrast in drift)
    assert [verification.differences for _, verification in verify_controls(run)] == [[]]


def test_the_final_vote_is_final_beside_a_delayed_one(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    settings = PILOT.replace("20", "2") + "delayed_vote: true\n"
    study.write_text(settings, "utf-8")
    run = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    rows = run_controls(run, CONTROLS, RunOptions()).read_table(ControlRow.table)
    votes = rows.filter(control=AS_DESIGNED, condition="acp").select("moment", "question").unique()
    assert dict(votes.rows()) == {
        "first": "first vote",
        "final": "final vote",
        "delayed": "third vote",
    }


def test_controls_of_an_earlier_version_keep_the_interview_as_the_final_decision(
    focus_group: RunFolder,
) -> None:
    run = focus_group
    with plan_controls_without("decisions_apart"):
        rows = run_controls(run, CONTROLS, RunOptions()).read_table(ControlRow.table)
    final = rows.filter(moment="final")["decision_address"].to_list()
    assert final and all("/alone/" in address for address in final)
    assert [verification.differences for _, verification in verify_controls(run)] == [[]]
