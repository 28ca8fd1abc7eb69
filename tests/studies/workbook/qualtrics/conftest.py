"""Valid surveys are read in the process of the tests, and hostile ones in a child process."""

from __future__ import annotations

import pytest

from folkmoot.studies.workbook.spreadsheet.qualtrics import importing
from tests.in_process import call_in_process


@pytest.fixture(autouse=True)
def read_surveys_in_process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not request.module.__name__.endswith("test_hostile_surveys"):
        monkeypatch.setattr(importing, "run_in_child", call_in_process)
