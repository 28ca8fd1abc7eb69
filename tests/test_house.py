"""What the house promises of itself and no linter holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import folkmoot

SOURCE = Path(folkmoot.__file__).parent
STUDIES = [p.parent for p in sorted(SOURCE.glob("studies/*/protocol.py"))]
SAME = {
    *("__init__", "config", "exposure_design", "files", "findings", "participants"),
    *("preparation", "protocol", "respondent", "show", "tables"),
}


def test_fewer_than_300_lines_leave_a_type_open() -> None:
    open_ = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\bAny\b", line)
    ]
    assert len(open_) < 300, open_


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_is_a_dozen_files_of_the_same_names_and_a_few_of_its_own(study: Path) -> None:
    files = {p.stem for p in study.glob("*.py")}
    rooms = {p.parent.name for p in study.glob("*/__init__.py")}
    assert files | rooms >= SAME
    assert len(files) <= 15 and len(rooms) <= 1
    for room in rooms:  # says what it is for
        assert (study / room / "__init__.py").read_text("utf-8").startswith('"""')


def test_no_module_has_more_than_700_lines() -> None:
    lines = {p: len(p.read_text("utf-8").splitlines()) for p in SOURCE.rglob("*.py")}
    assert max(lines.values()) <= 700, max(lines, key=lambda p: lines[p])
