"""Every long test belongs to exactly one part of `make nightly`."""

from __future__ import annotations

import re
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
        assert "truths, seeds" in problem_of_nightly([mark.mark for mark in marks])


class Collected:
    """A plugin that notes which tests a selection leaves."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = {item.name for item in session.items}


def test_the_parts_of_the_makefile_are_these_and_each_selects_its_own(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = re.search(r"^PARTS *:= (.+)$", makefile, re.MULTILINE)
    assert named is not None and named[1].split() == [*PARTS, "properties"]
    selection = re.search(r"-m \"(nightly\(part='\$\$part'\))\"", makefile)
    assert selection is not None
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = nightly(part): long\n")
    (tmp_path / "test_long.py").write_text(
        "import pytest\n\ndef test_short():\n    pass\n"
        + "".join(
            f'\n@pytest.mark.nightly(part="{part}")\ndef test_{part}():\n    pass\n'
            for part in PARTS
        )
    )

    def collected(chosen: str) -> set[str]:
        found = Collected()
        quiet = ("--collect-only", "-q", "-p", "no:cacheprovider", "--import-mode=importlib")
        # It would look through all objects of this process five times.
        quiet += ("-p", "no:unraisableexception")
        pytest.main([*quiet, f"--rootdir={tmp_path}", "-m", chosen, str(tmp_path)], [found])
        return found.names

    for part in (next(iter(PARTS)), "kills"):
        assert collected(selection[1].replace("$$part", part)) == {f"test_{part}"}
    assert collected("not nightly") == {"test_short"}
