"""Workbooks of our own are read in the process of the tests: a process for each takes a quarter of
a second. Tests of files from elsewhere, and all tests of other folders, read as users do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from folkmoot import spreadsheet_cells
from folkmoot.child_process import Limits

AS_USERS_DO = ("test_workbook_security", "test_workbook_bombs")


def call_here(
    fn: Callable[..., object],
    args: Sequence[object],
    *,
    limits: Limits,
    blocked_modules: Sequence[str] = (),
) -> object:
    """Call a function in this process, in place of a child process."""
    return fn(*args)


@pytest.fixture(autouse=True)
def read_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.module.__name__.rpartition(".")[2] not in AS_USERS_DO:
        monkeypatch.setattr(spreadsheet_cells, "run_in_child", call_here)
