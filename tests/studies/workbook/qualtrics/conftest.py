"""Surveys of our own are read in the process of the tests; hostile ones, as users read them."""

from __future__ import annotations

import pytest

from folkmoot.studies.workbook.spreadsheet.qualtrics import importing
from tests.studies.workbook.conftest import call_here


@pytest.fixture(autouse=True)
def read_surveys_in_this_process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not request.module.__name__.endswith("test_hostile_surveys"):
        monkeypatch.setattr(importing, "run_in_child", call_here)
