"""Tables: one type per column, the same bytes each time, described by the codebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from folkmoot.errors import ProtocolError
from folkmoot.storage.tables import build_codebook, units_of, write_table
from tests.frames import rows_to_frame

ROWS = [
    {"id": "p_1", "age": 30, "score": 1, "ok": True, "note": None},
    {"id": "p_2", "age": None, "score": 2.5, "ok": False, "tags": ["a", "b"]},
    {"id": "p_3", "score": float("nan"), "share": np.float32(0.5), "count": np.int64(7)},
]


def test_columns_are_in_order_of_first_mention() -> None:
    data = rows_to_frame(ROWS)
    assert data.columns == ["id", "age", "score", "ok", "note", "tags", "share", "count"]
    assert data.schema["age"] == pl.Int64
    assert data.schema["score"] == pl.Float64
    assert data.schema["ok"] == pl.Boolean
    assert data.schema["note"] == pl.String
    assert data["score"].to_list() == [1.0, 2.5, None]
    assert data["tags"].to_list() == [None, '["a", "b"]', None]
    assert data["count"].to_list() == [None, None, 7]
    assert rows_to_frame([]).shape == (0, 0)


def test_text_drawn_by_numpy_is_text() -> None:
    arm = np.random.default_rng(1).choice(["shown", "not shown"])
    assert rows_to_frame([{"arm": arm}, {"arm": "shown"}]).schema["arm"] == pl.String


def test_column_with_text_and_numbers_is_an_error_of_the_study() -> None:
    with pytest.raises(ProtocolError, match="table votes, column value: int and str"):
        rows_to_frame([{"value": 1}, {"value": "one"}], "votes")


def test_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / name, "t", rows_to_frame(ROWS))
    for file in ("t.parquet", "t.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert pl.read_parquet(tmp_path / "a" / "t.parquet").equals(rows_to_frame(ROWS))
    assert (tmp_path / "a" / "t.csv").read_text().splitlines()[1].startswith("p_1,30,1.0,true,,")


def test_text_with_commas_quotes_and_line_breaks_survives_csv(tmp_path: Path) -> None:
    text = 'a, "b"\nc; é —'
    write_table(tmp_path, "t", rows_to_frame([{"text": text}]))
    assert pl.read_csv(tmp_path / "t.csv")["text"].to_list() == [text]


def test_codebook_contains_type_meaning_missing_and_levels() -> None:
    rows = [{"address": f"a/{k}", "n": k, "arm": "acp" if k % 3 else "simple"} for k in range(30)]
    rows.append({"address": "a/30"})
    book = build_codebook(
        {"votes": rows_to_frame(rows).lazy()},
        {"n": "how many", "arm": "wrong", "votes": {"arm": "arm of the design"}},
    )["votes"]
    assert book["rows"] == 31
    assert book["columns"]["n"] == {
        "type": "integer",
        "meaning": "how many",
        "missing": 1,
        "min": 0,
        "max": 29,
    }
    assert book["columns"]["arm"] == {
        "type": "text",
        "meaning": "arm of the design",
        "missing": 1,
        "levels": {"acp": 20, "simple": 10},
    }
    assert book["columns"]["address"]["distinct"] == 31
    assert "position of the call" in book["columns"]["address"]["meaning"]


@pytest.mark.parametrize("name", ["count", "value", "len", "distinct", ""])
@pytest.mark.parametrize("rows", [3, 6_000], ids=["in memory", "by queries"])
def test_column_may_have_any_name_and_no_value(name: str, rows: int) -> None:
    table = pl.DataFrame({name: ["a", None, "b"] * (rows // 3), "none": [None] * rows})
    for frame in (table, table.lazy()):
        columns = build_codebook({"t": frame})["t"]["columns"]
        levels = {"a": rows // 3, "b": rows // 3}
        assert (columns[name]["missing"], columns[name]["levels"]) == (rows // 3, levels)
        assert columns["none"]["missing"] == rows and "levels" not in columns["none"]
        assert build_codebook({"t": frame.clear()})["t"]["rows"] == 0


@pytest.mark.parametrize("name", ["min", "max", "value"])
def test_column_of_numbers_may_have_any_name(name: str) -> None:
    table = pl.DataFrame({name: [*range(6_000)]})
    for frame in (table, table.lazy()):
        column = build_codebook({"t": frame})["t"]["columns"][name]
        assert (column["min"], column["max"]) == (0, 5_999)


def test_a_participant_without_a_group_is_no_member_of_a_group_with_the_same_name() -> None:
    table = pl.DataFrame({"participant_id": ["1", "2", "3"], "group": ["3", "3", None]})
    assert units_of(table).of.n_unique() == 2


def test_the_unit_of_a_table_with_the_column_id_is_the_participant() -> None:
    assert units_of(pl.DataFrame({"id": ["a", "a", "b"]})).name == "participant"
    rows = units_of(pl.DataFrame({"id": ["a", None, "b"]}))
    assert rows.name == "row" and rows.of.n_unique() == 3
