"""Every long test belongs to exactly one part of `make nightly`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PARTS, problem_of_nightly

ROOT = Path(__file__).parents[1]
MARK = pytest.mark.nightly


def test_a_long_test_without_one_part_is_refused() -> None:
    """`tests/conftest.py` asks this of each test that is collected, in every run."""
    assert not problem_of_nightly([])
    for part in PARTS:
        assert not problem_of_nightly([MARK(part=part).mark])
    for marks in ([MARK], [MARK(part="night")], [MARK(part="kills"), MARK(part="scale")]):
        assert "truths, kills" in problem_of_nightly([mark.mark for mark in marks])


def test_the_parts_of_the_makefile_are_these_and_each_selects_its_own() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = re.search(r"^PARTS *:= (.+)$", makefile, re.MULTILINE)
    assert named is not None and named[1].split() == list(PARTS)
    selection = re.search(r"-m \"(nightly\(part='\$\$part'\))\"", makefile)
    assert selection is not None
    files = ["tests/engine/test_batches.py", "tests/measures/test_coverage.py"]

    def collected(chosen: str) -> set[str]:
        words = [sys.executable, "-m", "pytest", "--collect-only", "-m", chosen, *files]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode in (0, 5), done.stderr  # 5: none was selected
        return {line for line in done.stdout.splitlines() if "::" in line}

    of = {part: collected(selection[1].replace("$$part", part)) for part in PARTS}
    assert of["kills"] and of["scale"] and of["truths"] and not of["pages"]
    assert sum(map(len, of.values())) == len(set.union(*of.values()))
    assert set.union(*of.values()) == collected("nightly")
