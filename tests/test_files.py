"""CSV as people save it, and the data that ships with the code."""

from __future__ import annotations

from folkmoot.files import read_csv


def test_a_csv_has_its_lines_stripped_cells_and_no_blank_rows() -> None:
    text = 'id , note\na, x \n\n,\nb,"two\nlines"\nc\n'
    assert read_csv(text) == (
        ("id", "note"),
        [
            (2, {"id": "a", "note": "x"}),
            (6, {"id": "b", "note": "two\nlines"}),
            (7, {"id": "c", "note": ""}),
        ],
    )


def test_an_empty_csv_has_neither_columns_nor_rows() -> None:
    assert read_csv("") == ((), [])
