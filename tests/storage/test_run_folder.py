"""Run folders: complete, unfinished, or invalid."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from folkmoot.errors import StorageError
from folkmoot.storage.json_files import write_json
from folkmoot.storage.run_folder import RowStream, RunFolder
from folkmoot.storage.tables import write_table
from tests.frames import rows_to_frame


@pytest.fixture
def run_folder_path(tmp_path: Path) -> Path:
    path = tmp_path / "pilot_001"
    write_table(path / "tables", "votes", rows_to_frame([{"id": "p_1"}]))
    write_table(path / "tables", "answers", rows_to_frame([{"id": "p_1"}]))
    write_json(path / "manifest.json", {"study": "mine", "outcome": "done", "synthetic": True})
    write_json(path / "plan.json", {"sealed": {}})
    write_json(path / "summary.json", {"total": 3})
    (path / "study.yaml").write_text("study: mine\noption: 'no'\n")
    (path / "notes.md").write_text("é")
    return path


def test_every_file_of_a_finished_run_is_readable(run_folder_path: Path) -> None:
    run = RunFolder(run_folder_path)
    assert (run.id, run.study, run.is_finished, run.is_synthetic) == (
        "pilot_001",
        "mine",
        True,
        True,
    )
    assert run.table_names() == ["answers", "votes"]
    assert run.read_table("votes")["id"].to_list() == ["p_1"]
    assert run.read_json("summary.json") == {"total": 3}
    assert run.text("notes.md") == "é"
    assert run.config["option"] == "no"
    assert run.has_file("summary.json")
    assert not run.has_table("nothing")


def test_unfinished_run_says_so(run_folder_path: Path) -> None:
    (run_folder_path / "manifest.json").unlink()
    run = RunFolder(run_folder_path)
    assert not run.is_finished
    assert run.study == "mine"
    with pytest.raises(StorageError, match="no table nothing; tables: answers, votes"):
        run.read_table("nothing")


def test_invalid_run_folder_is_refused(tmp_path: Path, run_folder_path: Path) -> None:
    with pytest.raises(StorageError, match="no such run folder"):
        RunFolder(tmp_path / "gone")
    with pytest.raises(StorageError, match="not a run folder"):
        RunFolder(tmp_path)
    (run_folder_path / "tables" / "votes.parquet").write_bytes(b"broken")
    with pytest.raises(StorageError, match=r"votes\.parquet: cannot be read"):
        RunFolder(run_folder_path).read_table("votes")
    with pytest.raises(StorageError, match=r"other\.json: no such file"):
        RunFolder(run_folder_path).read_json("other.json")


def test_columns_of_an_earlier_version_get_their_current_names(run_folder_path: Path) -> None:
    write_table(
        run_folder_path / "tables", "answers", rows_to_frame([{"id": "p_1", "rung": "exact"}])
    )
    write_json(
        run_folder_path / "manifest.json", {"study": "mine", "answers": {"rungs": {"exact": 1.0}}}
    )
    run = RunFolder(run_folder_path)
    assert run.read_table("answers")["parse_step"].to_list() == ["exact"]
    assert run.manifest["answers"] == {"parse_steps": {"exact": 1.0}}


def test_large_table_is_read_in_parts_any_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("folkmoot.storage.run_folder.ROWS_PER_BATCH", 7)
    (tmp_path / "plan.json").write_text("{}")
    rows = [{"n": n, "half": n / 2, "text": f"said {n}"} for n in range(50)]
    write_table(tmp_path / "tables", "votes", rows_to_frame(rows))
    run = RunFolder(tmp_path)
    assert list(run.rows("votes", "text", "n")) == [(row["text"], row["n"]) for row in rows]
    streamed = RowStream(run.scan_table("votes"))
    assert len(streamed) == 50 and list(streamed) == list(streamed) == rows
    with pytest.raises(StorageError, match=r"no table ballots; tables: votes"):
        run.scan_table("ballots")


def test_small_table_that_would_fill_the_memory_is_refused(run_folder_path: Path) -> None:
    rows = pl.select(pl.repeat(1, 4_000_000, dtype=pl.Int8).alias("n"))
    wide_rows = rows.select(*(pl.col("n").alias(f"n{k}") for k in range(4)))
    path = run_folder_path / "tables" / "votes.parquet"
    wide_rows.write_parquet(path, compression="zstd")
    assert path.stat().st_size < 100_000
    for read_function in (
        RunFolder(run_folder_path).read_table,
        RunFolder(run_folder_path).scan_table,
    ):
        with pytest.raises(StorageError, match="4,000,000 rows in"):
            read_function("votes")
    wide_rows.head(1_000_000).write_parquet(path)
    assert RunFolder(run_folder_path).read_table("votes").height == 1_000_000
