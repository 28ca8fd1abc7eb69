"""Study files that would fill the memory are refused within a memory bound, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounded import run_with_limits
from tests.sweeps import sample_daily

PIECES = ("- a\n", "[],", "- {b: c}\n")


# Daily tests use a lower limit, because reading 100,000 values takes four seconds.
@pytest.mark.parametrize(
    ("piece", "max_values"),
    sample_daily(
        [(PIECES[2], 20_000), *((piece, 100_000) for piece in PIECES)], daily=1, part="mutations"
    ),
)
def test_file_with_too_many_values_is_refused(tmp_path: Path, piece: str, max_values: int) -> None:
    path = tmp_path / "many.yaml"
    start = "options: [" if piece.endswith(",") else "options:\n"
    path.write_text(start + piece * (6_000_000 // len(piece)))
    setup = """
from folkmoot.engine.settings import yaml_tree
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
path, max_values = given
assert yaml_tree.MAX_NODES == 100_000
yaml_tree.MAX_NODES = max_values
"""
    body = """
try:
    load_study_file(path)
except InputError as error:
    print(error)
"""
    error_text = run_with_limits(setup, body, [str(path), max_values])
    assert "many.yaml:" in error_text
    assert f"more than {max_values:,} values up to here" in error_text
