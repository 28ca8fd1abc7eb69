"""Exports of the same data in several formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from folkmoot.engine.session.folder_access import lock_folder
from folkmoot.errors import InputError, RunExistsError, StorageError
from folkmoot.report.export import FORMATS, export_run
from folkmoot.storage.json_files import write_json
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import write_table


def test_csv_parquet_and_json_have_the_same_rows(pilot_run: RunFolder, tmp_path: Path) -> None:
    for kind in ("csv", "parquet", "json"):
        export_run(pilot_run, kind, tmp_path / kind)
        assert (tmp_path / kind / "codebook.json").exists()
    table = pilot_run.read_table("participants")
    assert pl.read_parquet(tmp_path / "parquet" / "participants.parquet").equals(table)
    assert pl.read_csv(tmp_path / "csv" / "participants.csv").height == table.height
    rows = json.loads((tmp_path / "json" / "participants.json").read_text("utf-8"))
    assert rows == table.to_dicts()


def test_brackets_in_the_name_of_a_run_are_no_pattern(pilot_run: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(pilot_run.path, tmp_path / "run [2]"))
    export_run(run, "csv", tmp_path / "csv")
    exported = pl.read_csv(tmp_path / "csv" / "participants.csv")
    assert exported.height == run.read_table("participants").height


def test_every_format_has_the_exact_texts(pilot_run: RunFolder, tmp_path: Path) -> None:
    """Only the CSV files of the run folder have an apostrophe before a formula."""
    copied = shutil.copytree(pilot_run.path, tmp_path / "run")
    run, options = RunFolder(copied), ("-1 nothing", "=SUM(1)")
    votes = run.read_table("participants")
    first, second = votes["initial_choice"].unique(maintain_order=True).to_list()[:2]
    renamed = pl.col("initial_choice").replace({first: options[0], second: options[1]})
    # A table of an earlier version, which called a column otherwise, keeps its names.
    answers = run.read_table("answers").rename({"parse_step": "rung"})
    for name, table in {"participants": votes.with_columns(renamed), "answers": answers}.items():
        write_table(copied / "tables", name, table)
    assert "'=SUM(1)" in (copied / "tables" / "participants.csv").read_text("utf-8")
    for kind in ("csv", "parquet", "json"):
        export_run(run, kind, tmp_path / kind)
    expected = votes.with_columns(renamed)["initial_choice"].to_list()
    exported = pl.read_csv(tmp_path / "csv" / "participants.csv")
    assert exported["initial_choice"].to_list() == expected and {*options} <= {*expected}
    assert pl.read_csv(tmp_path / "csv" / "answers.csv").columns == answers.columns
    of_parquet = pl.read_parquet(tmp_path / "parquet" / "participants.parquet")
    assert of_parquet["initial_choice"].to_list() == expected
    rows = json.loads((tmp_path / "json" / "participants.json").read_text("utf-8"))
    assert [row["initial_choice"] for row in rows] == expected
    # Without a formula, the exported file is that of the run folder.
    for table in ("codebooks", "first_votes", "exposure"):
        recorded = copied / "tables" / f"{table}.csv"
        assert (tmp_path / "csv" / f"{table}.csv").read_bytes() == recorded.read_bytes()


def test_every_export_of_a_synthetic_run_is_marked(pilot_run: RunFolder, tmp_path: Path) -> None:
    for kind in FORMATS:
        export_run(pilot_run, kind, tmp_path / kind)
        text = (tmp_path / kind / "README.txt").read_text("utf-8")
        assert text.startswith("SYNTHETIC") and "no evidence about people" in text
        assert pilot_run.id in text and pilot_run.manifest["models"][0]["served"][0] in text


def test_an_export_does_not_overwrite_files(pilot_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(RunExistsError):
        export_run(pilot_run, "csv", tmp_path)
    with pytest.raises(InputError, match="unknown format"):
        export_run(pilot_run, "xls", tmp_path / "new")


def test_an_export_with_a_damaged_codebook_writes_nothing(
    pilot_run: RunFolder, tmp_path: Path
) -> None:
    copied = shutil.copytree(pilot_run.path, tmp_path / "run")
    (codebook,) = copied.rglob("codebook.json")
    codebook.write_text("{")
    with pytest.raises(StorageError, match=r"codebook\.json"):
        export_run(RunFolder(copied), "csv", tmp_path / "csv")
    assert not (tmp_path / "csv").exists()


def test_an_export_is_not_disturbed_by_a_command_that_locks_the_run(tmp_path: Path) -> None:
    """Exports and reports take no lock, so controls can begin while a file is written."""

    def generate_rows() -> Iterator[dict[str, int]]:
        yield {"row": 1}
        with lock_folder(tmp_path):
            pass
        yield {"row": 2}

    target = tmp_path / "export-json" / "answers.json"
    write_json(target, generate_rows())
    assert json.loads(target.read_text("utf-8")) == [{"row": 1}, {"row": 2}]
