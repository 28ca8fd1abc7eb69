"""Valid workbooks are read in the process of the tests. Tests of hostile files read them in a child
process, as the study does.
"""

from __future__ import annotations

import pytest

MODULES_WITH_CHILD_PROCESSES = ("test_workbook_security", "test_workbook_bombs")


@pytest.fixture(autouse=True)
def read_valid_workbooks_in_process(request: pytest.FixtureRequest) -> None:
    if request.module.__name__.rpartition(".")[2] not in MODULES_WITH_CHILD_PROCESSES:
        request.getfixturevalue("read_workbooks_in_process")
