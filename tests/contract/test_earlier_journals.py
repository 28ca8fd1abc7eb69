"""Journals of an earlier version are replayed by this one: resumed without a lost call, verified.

`journals_before_renaming/` holds a small run of each study, made on 26 November 2026 by the last
commit before all functions, classes and modules were renamed. `whole` is a finished run. `paused`
is the same run, paused by a budget at half of its calls. The prompts of that commit lie beside the
study file, so that a better prompt of today does not change the test. A workbook has no prompts of
its own, so those runs are resumed with changes accepted: no request that was sent may differ.

A failure means that a user cannot go on with a run that was started before an update. Find out
which address, fingerprint or table changed. If the change is wanted, say so in the changelog.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.report.document.deviations import list_deviations
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily

ARCHIVES = Path(__file__).parent / "journals_before_renaming"
# Study type → (table, column) that this version computes otherwise on purpose. Earlier versions
# stated constraints for the planner that were the opposite of some decisions.
CHANGED = {"negotiation": ("trips", "local_constraint")}
STUDIES = ["cross_pollination", "focus_group", "negotiation", "town_hall", "workbook"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    for study in STUDIES:
        with tarfile.open(ARCHIVES / f"{study}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def describe_entries(run: Path) -> dict[str, str]:
    """Address → what the journal holds there, for all calls of a run."""
    with JournalReader(run / "journal.sqlite") as journal:
        return {entry.address: repr(entry) for entry in journal.read_entries()}


@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=("town_hall",), part="kills"))
def test_a_run_that_an_earlier_version_paused_is_resumed(study: str, folder: Path) -> None:
    paused, whole = folder / study / "paused", folder / study / "whole"
    paid, all_calls = describe_entries(paused), describe_entries(whole).keys()
    assert 20 < len(paid) < len(all_calls)
    (file,) = (folder / study).glob("*.xlsx" if study == "workbook" else "*.yaml")
    overrides = ("budget_calls=100000",)
    accept_changes = study == "workbook"
    folkmoot.run(
        file,
        model="synthetic",
        out=paused,
        overrides=overrides,
        if_exists="resume",
        accept_changes=accept_changes,
    )
    # Nothing that was paid for is asked again, and nothing else is asked than before.
    resumed = describe_entries(paused)
    assert resumed.keys() == all_calls
    assert {address: resumed[address] for address in paid} == paid
    changed_table, changed_column = CHANGED.get(study, ("", ""))
    for table in sorted((whole / "tables").glob("*.csv")):
        resumed_table = paused / "tables" / table.name
        if table.stem == changed_table:
            cells, earlier_cells = (
                pl.read_csv(path, infer_schema=False) for path in (resumed_table, table)
            )
            assert cells.columns == earlier_cells.columns
            assert cells.drop(changed_column).equals(earlier_cells.drop(changed_column))
        else:
            assert resumed_table.read_bytes() == table.read_bytes(), table.name


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("cross_pollination", "workbook"), part="kills")
)
def test_a_run_that_an_earlier_version_finished_is_verified(study: str, folder: Path) -> None:
    found = verify_run(RunFolder(folder / study / "whole"))
    assert found.differences == []
    # Files for readers may be worded otherwise today. The tables and the calls are the same.
    if study in CHANGED:
        table, column = CHANGED[study]
        differing = [
            sentence.partition(" differs in ")[0]
            for sentence in found.not_compared
            if sentence.startswith("tables/") and ".parquet: " in sentence
        ]
        assert differing == [f"tables/{table}.parquet: column {column}"]
    else:
        assert not any("gives other results" in sentence for sentence in found.not_compared)
        assert any(sentence.startswith("Only the wording differs") for sentence in found.notes)
    # A setting that a later version added, with its default, is no other design.
    assert not any("sealed part “design”" in sentence for sentence in found.not_compared)
    assert found.tables > 10 and found.entries > 60


def test_a_cell_that_was_changed_in_an_earlier_run_is_found(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVES / "town_hall.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    whole = tmp_path / "town_hall" / "whole"
    plan = json.loads((whole / "plan.json").read_text("utf-8"))
    plan["sealed"]["claims"]["data"][0]["direction"] = "greater"
    (whole / "plan.json").write_text(json.dumps(plan), "utf-8")
    found = verify_run(RunFolder(whole))
    said = " ".join([*found.differences, *found.not_compared])
    assert "the sealed part “claims” differs" in said


@pytest.mark.parametrize("study", STUDIES)
def test_the_report_of_an_earlier_run_lists_no_deviation(study: str, folder: Path) -> None:
    run = RunFolder(folder / study / "whole")
    assert list_deviations(run, find_study_of_run(run)) == []
