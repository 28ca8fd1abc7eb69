"""CSV as people save it, and the data that ships with the code."""

from __future__ import annotations

import pytest

from folkmoot.errors import InputError
from folkmoot.files import read_csv


def test_a_csv_has_its_lines_stripped_cells_and_no_blank_rows() -> None:
    text = 'id , note\na, x \n\n,\nb,"two\nlines"\nc\n'
    assert read_csv(text, "t.csv") == (
        ("id", "note"),
        [
            (2, {"id": "a", "note": "x"}),
            (6, {"id": "b", "note": "two\nlines"}),
            (7, {"id": "c", "note": ""}),
        ],
    )


def test_an_empty_csv_has_neither_columns_nor_rows() -> None:
    assert read_csv("", "t.csv") == ((), [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id;note\na;x\n", "t.csv:1: its columns are separated by semicolons; save it with commas"),
        ("id\tnote\na\tx\n", "t.csv:1: its columns are separated by tabs"),
        ("id,note,id\na,x,b\n", "t.csv:1: two columns are called id; leave one out"),
        ("id,note\na,x\nb,one, and two\n", "t.csv:3: more cells than there are columns"),
    ],
)
def test_nothing_of_a_csv_is_left_out_unsaid(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_csv(text, "t.csv")
    assert said in str(caught.value)


def test_commas_at_the_end_of_lines_are_no_cells() -> None:
    assert read_csv("id,note,,\na,x,,,\n", "t.csv").rows == [(2, {"id": "a", "note": "x", "": ""})]
