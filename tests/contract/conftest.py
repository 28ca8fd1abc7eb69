"""Runs of the small studies with which the tests of this folder compare other runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from tests.conftest import SharedFolder
from tests.contract.runs import SerialRun, make_respondent, play


@pytest.fixture(scope="session")
def serial_run(
    shared_folder: SharedFolder,
) -> SerialRun:
    """Return a function that runs the small study of a type once, one call after another.

    The embedded respondent answers. Tests only read the run.
    """

    def run_of(study: str) -> folkmoot.Run:
        def make(folder: Path) -> None:
            play(study, folder / "run", concurrency=1, provider=make_respondent(study))

        return folkmoot.load(shared_folder(f"serial/{study}", make) / "run")

    return run_of
