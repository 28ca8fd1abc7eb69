"""CSV from spreadsheet programs, and YAML from untrusted sources."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.errors import InputError
from folkmoot.files import MAX_YAML_DEPTH, read_csv, read_yaml
from tests.json_values import json_values


def test_csv_cells_are_stripped_and_blank_rows_skipped() -> None:
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
    ("text", "message"),
    [
        ("id;note\na;x\n", "t.csv:1: its columns are separated by semicolons; save it with commas"),
        ("id\tnote\na\tx\n", "t.csv:1: its columns are separated by tabs"),
        ("id,note,id\na,x,b\n", "t.csv:1: two columns are called id; leave one out"),
        ("id,note\na,x\nb,one, and two\n", "t.csv:3: more cells than there are columns"),
    ],
)
def test_a_malformed_csv_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_csv(text, "t.csv")
    assert message in str(caught.value)


def test_trailing_commas_of_csv_lines_are_ignored() -> None:
    assert read_csv("id,note,,\na,x,,,\n", "t.csv").rows == [(2, {"id": "a", "note": "x", "": ""})]


@given(json_values(st.integers()))
def test_yaml_is_read_like_by_the_reference_parser(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: 2024-13-45",
        "!!python/object/apply:os.getcwd []",
        "? [a]\n: b",
        "[" * (MAX_YAML_DEPTH + 1) + "]" * (MAX_YAML_DEPTH + 1),
        # At this depth libyaml would crash the process.
        "[" * 200_000,
        "- " * 200_000,
    ],
)
def test_hostile_yaml_is_refused_with_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_yaml(text)


def test_the_deepest_yaml_that_is_allowed_is_read() -> None:
    assert read_yaml("[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH)
