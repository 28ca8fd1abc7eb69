"""Valid workbooks are read in the process of the tests, because a child process for each takes a
quarter of a second. Tests of hostile files read them in a child process, as the study does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from folkmoot import spreadsheet_cells
from folkmoot.child_process import Limits

MODULES_WITH_CHILD_PROCESSES = ("test_workbook_security", "test_workbook_bombs")


def call_in_process(
    fn: Callable[..., object],
    args: Sequence[object],
    *,
    limits: Limits,
    blocked_modules: Sequence[str] = (),
) -> object:
    """Call a function in this process, in place of a child process."""
    return fn(*args)


@pytest.fixture(autouse=True)
def read_workbooks_in_process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.module.__name__.rpartition(".")[2] not in MODULES_WITH_CHILD_PROCESSES:
        monkeypatch.setattr(spreadsheet_cells, "run_in_child", call_in_process)
