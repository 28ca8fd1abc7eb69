"""Study files that would fill the memory: refused within it, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounded import bounded
from tests.sweeps import sample_daily

PIECES = ("- a\n", "[],", "- {b: c}\n")


@pytest.mark.parametrize("piece", sample_daily(PIECES, daily=PIECES[2:], part="mutations"))
def test_a_file_of_too_many_values_is_refused(tmp_path: Path, piece: str) -> None:
    path = tmp_path / "many.yaml"
    start = "options: [" if piece.endswith(",") else "options:\n"
    path.write_text(start + piece * (6_000_000 // len(piece)))
    setup = """
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
"""
    body = """
try:
    load_study_file(given)
except InputError as error:
    print(error)
"""
    said = bounded(setup, body, str(path))
    assert "many.yaml:" in said
    assert "more than 100,000 values up to here" in said
