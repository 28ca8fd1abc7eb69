"""Runs that the tests of this folder compare others with, made once for a session."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from tests.conftest import SharedFolder
from tests.contract.runs import SerialRun, play, respondent


@pytest.fixture(scope="session")
def serial_run(
    shared_folder: SharedFolder,
) -> SerialRun:
    """The small study of a type in one go, one call after another, answered by `respondent`. A test
    reads it only."""

    def run_of(study: str) -> folkmoot.Run:
        def make(folder: Path) -> None:
            play(study, folder / "run", concurrency=1, provider=respondent(study))

        return folkmoot.load(shared_folder(f"serial/{study}", make) / "run")

    return run_of
