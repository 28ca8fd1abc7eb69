"""Files of a run folder: complete or absent, readable, without NaN, and clear disk errors."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot import files
from folkmoot.errors import StorageError
from folkmoot.storage.json_files import (
    format_json,
    iterate_vectors,
    read_json,
    write_json,
    write_text,
)
from tests.json_values import json_values

VALUES = json_values(st.integers())


@given(VALUES)
def test_json_is_read_back_unchanged(value: object) -> None:
    assert json.loads(format_json(value)) == value


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_file_written_in_pieces_has_the_same_layout(value: dict[str, object]) -> None:
    """Nested members are written one at a time, with the same result."""
    assert format_json({"whole": [value]}).count("\n") == format_json(
        {"whole": iter([value])}
    ).count("\n")
    nested_lines = format_json([value]).split("\n")[1:-2]
    assert [line[2:] for line in nested_lines] == format_json(value).split("\n")[:-1]


def test_list_written_item_by_item_is_never_complete_in_memory(tmp_path: Path) -> None:
    alive = 0

    class Item(dict[str, str]):
        def __init__(self, number: int) -> None:
            nonlocal alive
            alive += 1
            assert alive < 4
            super().__init__(id=f"p_{number}", said="☃" * number)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    write_json(
        tmp_path / "a.json", {"head": 1, "people": (Item(n) for n in range(50)), "no": iter("")}
    )
    write_json(
        tmp_path / "b.json",
        {"head": 1, "people": [{"id": f"p_{n}", "said": "☃" * n} for n in range(50)], "no": []},
    )
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_text_of_many_pieces_uses_memory_in_proportion_to_its_length() -> None:
    tracemalloc.start()
    text = format_json({"people": {f"p_{n}": "x" for n in range(3000)}})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(text)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=30))
def test_floats_of_32_bits_are_read_back_unchanged_and_short(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    text = format_json({"v": array})
    assert np.array_equal(np.array(json.loads(text)["v"], dtype=np.float32), array)
    assert json.loads(format_json(array)) == json.loads(text)["v"]
    assert format_json(np.array([0.1], dtype=np.float32)) == "[0.1]\n"
    assert [json.loads(format_json(v)) for v in array] == [float(str(v)) for v in array]


def test_vectors_are_on_one_line_and_keys_keep_their_order() -> None:
    text = format_json({"b": np.array([0.1, 0.25], dtype=np.float32), "a": [{"x": 1}], "c": {}})
    assert text == (
        '{\n  "b": [0.1,0.25],\n  "a": [\n    {\n      "x": 1\n    }\n  ],\n  "c": {}\n}\n'
    )


def test_vectors_are_read_by_name_from_any_layout(tmp_path: Path) -> None:
    vectors = {"p_1": np.array([0.1, -2, 3e-8], np.float32), 'p "2"': np.zeros(3, np.float32)}
    content = {"head": {"p_0": [9]}, "embeddings": vectors, "tail": {"p_3": [1]}}
    write_json(tmp_path / "ours.json", content)
    (tmp_path / "other.json").write_text(json.dumps(json.loads(format_json(content))))
    for name in ("ours.json", "other.json"):
        vectors_by_name = iterate_vectors(tmp_path / name, "embeddings")
        assert list(vectors_by_name) == list(vectors)
        assert all(np.array_equal(vectors_by_name[name], vectors[name]) for name in vectors)
    (tmp_path / "broken.json").write_text('{\n  "embeddings": {\n    "p_1": [0.1,\n')
    with pytest.raises(StorageError, match=r"broken\.json"):
        iterate_vectors(tmp_path / "broken.json", "embeddings")


@pytest.mark.parametrize("invalid_value", [float("nan"), float("inf"), np.float32("nan")])
def test_nan_is_refused_with_its_place(invalid_value: float) -> None:
    with pytest.raises(ValueError, match=r"\$\.a\[1\]"):
        format_json({"a": [1, invalid_value, "x"]})
    with pytest.raises(ValueError, match=r"\$\.a"):
        format_json({"a": np.array([invalid_value])})
    with pytest.raises(ValueError, match=r"\$\.a"):
        format_json({"a": invalid_value})


def test_values_unknown_to_json_are_refused() -> None:
    with pytest.raises(TypeError, match=r"\$\.a: set"):
        format_json({"a": {1}})
    with pytest.raises(TypeError, match="a key must be text"):
        format_json({(1, 2): 3})


def test_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "a.json"
    write_json(target, {"old": True})
    with pytest.raises(ValueError, match="cannot be written"):
        write_json(target, {"new": float("nan")})

    def write_half(file: IO[bytes]) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_with(target, write_half)
    assert read_json(target) == {"old": True}
    assert [path.name for path in target.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("number", "expected_text"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "not writable"),
        (errno.EACCES, "not writable"),
        (errno.EIO, "cannot be written"),
    ],
)
def test_error_of_the_disk_is_reported(tmp_path: Path, number: int, expected_text: str) -> None:
    def fail(_file: IO[bytes]) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StorageError, match=expected_text) as caught:
        files.write_with(tmp_path / "a.txt", fail)
    assert "a.txt" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_file_in_place_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(StorageError, match="folder is needed"):
        write_text(tmp_path / "a" / "b.txt", "x")


def test_invalid_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(StorageError, match=r"a\.json: not valid JSON"):
        read_json(tmp_path / "a.json")


def test_file_with_a_list_has_the_same_layout(tmp_path: Path) -> None:
    for items in ([{"a": [1, {"b": 2}]}, 3, "x"], []):
        write_json(tmp_path / "a.json", iter(items))
        assert (tmp_path / "a.json").read_text("utf-8") == format_json(items)
