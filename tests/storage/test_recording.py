"""Recording: rows arrive in any order and are returned by key order, from memory or disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.errors import ProtocolError, StorageError
from folkmoot.storage import table_buffer as module
from folkmoot.storage.table_buffer import (
    RowFile,
    RowOrder,
    TableBuffer,
    read_recordings,
)
from folkmoot.storage.tables import write_table
from tests.frames import rows_to_frame


def build_varied_rows(count: int) -> list[dict[str, object]]:
    """Build rows with columns that start empty and columns that only some rows have."""
    return [
        {"n": i, "half": i / 2 if i > 1000 else None}
        | ({"who": f"p_{i}"} if i % 3 else {"said": ["a", i], "sure": None if i < 2500 else True})
        for i in range(count)
    ]


def build_expected_rows(
    rows: list[dict[str, object]], columns: list[str]
) -> list[dict[str, object]]:
    return [
        {**dict.fromkeys(columns), **row}
        | ({"said": f'["a", {row["n"]}]'} if "said" in row else {})
        for row in rows
    ]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("is_spooled", [False, True])
def test_recording_contains_its_rows_for_any_order_of_arrival(
    is_reversed: bool, is_spooled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS_IN_MEMORY", 100)
    monkeypatch.setattr(module, "FRAME_ROWS", 1000)
    rows, place = build_varied_rows(2700), RowOrder()
    rows_with_keys = [(row, place.next_key()) for row in rows]
    file = RowFile(tmp_path)
    recording = TableBuffer("t", file if is_spooled else None)
    for row, key in reversed(rows_with_keys) if is_reversed else rows_with_keys:
        recording.add_row(row, key)
    assert (file.path.is_file() == is_spooled and len(recording.waiting) < 100) or not is_spooled
    data = recording.to_frame().lazy().collect()
    assert data.columns == list(dict.fromkeys(column for row in rows for column in row))
    kinds = {"n": pl.Int64(), "half": pl.Float64(), "who": pl.String(), "said": pl.String()}
    assert data.dtypes == [kinds.get(column, pl.Boolean()) for column in data.columns]
    assert data.to_dicts() == build_expected_rows(rows, data.columns)
    file.remove_file()
    assert list(tmp_path.iterdir()) == []


def test_table_of_many_groups_has_the_bytes_of_a_single_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is written group by group, with types that only later groups determine."""
    monkeypatch.setattr(module, "MAX_ROWS_IN_MEMORY", 100)
    monkeypatch.setattr(module, "FRAME_ROWS", 500)
    rows = [
        {"n": i, "late": None if i < 1200 else i / 4, "=text": f"=SUM({i})"} for i in range(1300)
    ]
    recording = TableBuffer("t", RowFile(tmp_path))
    for row in rows:
        recording.add_row(row)
    table = recording.to_frame()
    assert isinstance(table, pl.LazyFrame)
    write_table(tmp_path / "groups", "t", table)
    write_table(tmp_path / "whole", "t", rows_to_frame(rows))
    csv = (tmp_path / "groups" / "t.csv").read_bytes()
    assert csv == (tmp_path / "whole" / "t.csv").read_bytes() and b"'=SUM(0)" in csv
    assert pl.read_parquet(tmp_path / "groups" / "t.parquet").equals(rows_to_frame(rows))


@given(st.lists(st.lists(st.integers(0, 70_000), max_size=5), max_size=30, unique_by=tuple))
def test_keys_sort_like_places(paths: list[list[int]]) -> None:
    def key(path: list[int]) -> bytes:
        place = RowOrder()
        for number in path:
            place = RowOrder(place.key_of(number))
        return place.key

    assert sorted(paths) == sorted(paths, key=key)


def test_cells_spooled_to_disk_are_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS_IN_MEMORY", 2)
    rows = [
        {"text": "é\n\x00 ☃", "whole": -(2**63), "part": 0.1, "yes": True},
        {"text": None, "whole": 2**63 - 1, "part": 1.0, "yes": None},
        {"text": "", "whole": None, "part": float("nan"), "yes": False},
    ]
    file = RowFile(tmp_path)
    recording = TableBuffer("t", file)
    for row in rows:
        recording.add_row(row)
    rows[2]["part"] = None
    assert recording.to_frame().lazy().collect().to_dicts() == rows
    file.remove_file()


def test_declared_types_are_used_for_undetermined_columns() -> None:
    recording = TableBuffer("t", None, {"empty": "bool", "whole": "float", "part": "int"})
    recording.add_row({"empty": None, "whole": 1, "part": 0.5})
    schema = recording.to_frame().collect_schema()
    assert list(schema.dtypes()) == [pl.Boolean(), pl.Float64(), pl.Float64()]
    nothing = TableBuffer("t", None, {"empty": "bool"}).to_frame().lazy().collect()
    assert nothing.schema == {"empty": pl.Boolean()} and nothing.height == 0


@pytest.mark.parametrize("kind", ["bool", "int", "float"])
def test_text_in_a_column_of_another_declared_kind_is_refused_with_its_value(kind: str) -> None:
    recording = TableBuffer("votes", None, {"who": "text", "warmth": kind})
    recording.add_row({"who": "ann", "warmth": None})
    with pytest.raises(ProtocolError, match=f"table votes, column warmth: '4' .* declares {kind};"):
        recording.add_row({"who": "ben", "warmth": "4"})


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), np.float32("inf")])
def test_infinite_cell_is_refused(value: float) -> None:
    with pytest.raises(ProtocolError, match="table t, column part: a cell cannot be infinite"):
        TableBuffer("t").add_row({"part": value})


def test_recorded_row_is_not_affected_by_later_changes() -> None:
    recording, tags = TableBuffer(), ["a"]
    row: dict[str, object] = {"tags": tags, "n": 1}
    recording.add_row(row)
    tags.append("b")
    row["n"] = 2
    assert recording.to_frame().lazy().collect().to_dicts() == [{"tags": '["a"]', "n": 1}]


def test_kinds_that_differ_only_after_many_rows_are_reported() -> None:
    recording = TableBuffer("votes")
    for i in range(1000):
        recording.add_row({"value": i})
    recording.add_row({"value": "one"})
    with pytest.raises(ProtocolError, match="table votes, column value: int and str"):
        recording.to_frame()


def test_full_disk_for_rows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS_IN_MEMORY", 1)
    with pytest.raises(StorageError, match=r"\.rows\.db.*--resume"):
        TableBuffer("t", RowFile(tmp_path / "missing")).add_row({"a": 1})


def test_another_process_reads_the_rows_so_far(tmp_path: Path) -> None:
    file = RowFile(tmp_path)
    votes = TableBuffer("votes", file, {"share": "float"})
    texts, place = TableBuffer("texts", file), RowOrder()
    keys = [place.next_key() for _ in range(4)]
    for number in (3, 1):
        votes.add_row({"n": number, "share": 1}, keys[number])
    texts.add_row({"text": "a"})
    assert read_recordings(tmp_path) == {}
    file.write_rows([votes, texts])
    votes.add_row({"n": 2, "share": 2, "late": True}, keys[2])  # not written yet
    tables = read_recordings(tmp_path)
    assert list(tables) == ["texts", "votes"]
    so_far = tables["votes"].to_frame().lazy().collect()
    assert so_far.to_dicts() == [{"n": 1, "share": 1.0}, {"n": 3, "share": 1.0}]
    file.write_rows([votes, texts])
    # An earlier result keeps its rows, and a row between them is not added.
    assert tables["votes"].to_frame().lazy().collect().equals(so_far)
    votes_before = read_recordings(tmp_path)["votes"].to_frame().lazy().collect()
    assert (
        votes_before.equals(votes.to_frame().lazy().collect())
        and votes_before["late"].to_list()[1] is True
    )
    file.remove_file()
    assert read_recordings(tmp_path) == {} and list(tmp_path.iterdir()) == []


def test_unreadable_rows_are_named(tmp_path: Path) -> None:
    RowFile(tmp_path).path.write_bytes(b"not a database, " * 100)
    with pytest.raises(StorageError, match=r"\.rows\.db: cannot be read"):
        read_recordings(tmp_path)


def test_newly_created_file_holds_no_tables(tmp_path: Path) -> None:
    path = RowFile(tmp_path).path
    path.touch()
    assert read_recordings(tmp_path) == {}
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        assert read_recordings(tmp_path) == {}
