"""Comparison of a run with its sealed plan: no text if they agree, and a list of deviations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.report.document.deviations import changes_since_run, list_deviations
from folkmoot.report.document.trust import build_trust_section
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import small_study


def test_a_run_that_followed_its_plan_has_no_deviations(finished_run: RunFolder) -> None:
    study = find_study_of_run(finished_run)
    sealed = {name: part["data"] for name, part in finished_run.plan["sealed"].items()}
    planned = study.expected_rows(sealed)
    assert planned and all(rows_of_table.rows for rows_of_table in planned)
    assert list_deviations(finished_run, study) == []
    assert changes_since_run(finished_run, study) == []


@pytest.fixture
def copied_run(pilot_run: RunFolder, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pilot_run.path, tmp_path / "run"))


def describe_deviations(folder: Path) -> str:
    """Return all deviations of a run from its plan as one text."""
    run = RunFolder(folder)
    return " ".join(list_deviations(run, find_study_of_run(run)))


def reseal(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the sealed data of the plan of a run."""
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    change({name: part["data"] for name, part in plan["sealed"].items()})
    (folder / "plan.json").write_text(json.dumps(plan), "utf-8")


def test_changed_conditions_are_reported(copied_run: Path) -> None:
    assignment = json.loads((copied_run / "plan.json").read_text("utf-8"))["sealed"]["assignment"][
        "data"
    ]
    other = "acp" if assignment["p_0001"] != "acp" else "simple_voting"
    reseal(copied_run, lambda sealed: sealed["assignment"].update(p_0001=other))
    assert (
        f"1 participant with a different condition than planned: p_0001 ({other} planned, "
        f"{assignment['p_0001']} recorded)" in describe_deviations(copied_run)
    )


def test_missing_added_and_unfinished_participants_are_reported(copied_run: Path) -> None:
    reseal(copied_run, lambda sealed: sealed["assignment"].pop("p_0002"))
    reseal(copied_run, lambda sealed: sealed["assignment"].update(p_9999="acp"))
    path = copied_run / "tables" / "participants.parquet"
    broken = pl.when(pl.col("participant_id") == "p_0003").then(pl.lit("failed"))
    pl.read_parquet(path).with_columns(status=broken.otherwise("status")).write_parquet(path)
    text = describe_deviations(copied_run)
    assert "No record of 1 planned participant: p_9999" in text
    assert "Not in the plan: 1 participant (p_0002)" in text
    assert "60 were planned and 58 finished; 1 participant did not: p_0003" in text


def test_changed_files_settings_and_seed_are_reported(copied_run: Path) -> None:
    (copied_run / "tables" / "participants.csv").write_text("participant_id\n", "utf-8")
    (copied_run / "tables" / "clusters.csv").unlink()
    study = (copied_run / "study.yaml").read_text("utf-8")
    (copied_run / "study.yaml").write_text(
        study.replace("max_socratic_exchanges: 5", "max_socratic_exchanges: 2"), "utf-8"
    )
    manifest = json.loads((copied_run / "manifest.json").read_text("utf-8"))
    (copied_run / "manifest.json").write_text(json.dumps({**manifest, "seed": 7}), "utf-8")
    text = describe_deviations(copied_run)
    assert "tables/participants.csv was changed after the run" in text
    assert "tables/clusters.csv is missing" in text
    assert "study.yaml has max socratic exchanges: 2; the sealed plan has 5" in text
    assert "seed 7; the sealed plan has 42" in text


def test_changed_prompts_are_reported(pilot_run: RunFolder, tmp_path: Path) -> None:
    study = find_study_of_run(pilot_run)
    assert study.prompts is not None
    prompts_folder = Path(shutil.copytree(study.prompts, tmp_path / "prompts"))
    (prompts_folder / "second_vote.md").write_text("Vote.", "utf-8")
    (note,) = changes_since_run(pilot_run, replace(study, prompts=prompts_folder))
    assert "changed since this run: second_vote" in note


def test_a_changed_hypothesis_is_reported_by_its_index(
    tmp_path: Path,
) -> None:
    path = small_study("cross_pollination", tmp_path)
    hypothesis = "{measure: position_changed, contrast: [acp, simple_voting], direction: less}"
    path.write_text(path.read_text("utf-8") + f"\nhypotheses:\n- {hypothesis}\n", "utf-8")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    study = run.path / "study.yaml"
    study.write_text(study.read_text("utf-8").replace("direction: less", "direction: greater"))
    text = describe_deviations(run.path)
    assert "study.yaml has hypotheses[1].direction: greater; the sealed plan has less." in text
    rows = build_trust_section(RunFolder(run.path), find_study_of_run(run)).versions.rows
    assert ("study.yaml.hypotheses[1].direction", "less", "greater") in rows
