"""Every long test belongs to exactly one part of `make nightly`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import PARTS, find_part_problem

ROOT = Path(__file__).parents[1]
MARK = pytest.mark.nightly


def test_a_nightly_test_needs_exactly_one_part() -> None:
    """`tests/conftest.py` checks this for each collected test, in every run."""
    assert not find_part_problem([])
    for part in PARTS:
        assert not find_part_problem([MARK(part=part).mark])
    for marks in ([MARK], [MARK(part="night")], [MARK(part="kills"), MARK(part="scale")]):
        assert "truths, seeds" in find_part_problem([mark.mark for mark in marks])


class CollectionRecorder:
    """A plugin that records the selected tests."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = {item.name for item in session.items}


def test_the_makefile_has_all_parts_and_each_selects_its_tests(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    makefile_parts = re.search(r"^PARTS *:= (.+)$", makefile, re.MULTILINE)
    assert makefile_parts is not None and makefile_parts[1].split() == [*PARTS, "properties"]
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

    def collect_names(expression: str) -> set[str]:
        recorder = CollectionRecorder()
        options = ("--collect-only", "-q", "-p", "no:cacheprovider", "--import-mode=importlib")
        # It would look through all objects of this process five times.
        options += ("-p", "no:unraisableexception")
        pytest.main(
            [*options, f"--rootdir={tmp_path}", "-m", expression, str(tmp_path)], [recorder]
        )
        return recorder.names

    for part in (next(iter(PARTS)), "kills"):
        assert collect_names(selection[1].replace("$$part", part)) == {f"test_{part}"}
    assert collect_names("not nightly") == {"test_short"}
