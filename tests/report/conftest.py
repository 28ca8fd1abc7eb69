"""Finished runs with their reports, made once per test session. Tests only read them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study.study import registered_studies
from folkmoot.report.document.html import write_report
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.contract.small import small_study


@pytest.fixture(scope="session", params=sorted(registered_studies()))
def finished_run(
    request: pytest.FixtureRequest,
    shared_folder: SharedFolder,
    run_of_small_study: Callable[[str], Path],
) -> RunFolder:
    """The small run of each study type, with its report."""

    def make_report(folder: Path) -> None:
        shutil.copytree(run_of_small_study(request.param), folder / "run")
        write_report(RunFolder(folder / "run"))

    return RunFolder(shared_folder(f"reported/{request.param}", make_report) / "run")


@pytest.fixture
def finished_page(finished_run: RunFolder) -> str:
    """The report of a small run of each study type."""
    return (finished_run.path / "report.html").read_text("utf-8")


@pytest.fixture(scope="session")
def pilot_run(shared_folder: SharedFolder) -> RunFolder:
    """A run of 60 participants, with its report as a page and as a PDF."""

    def make_report(folder: Path) -> None:
        run = folkmoot.run(
            small_study("cross_pollination", folder),
            model="synthetic",
            out=folder / "run",
            overrides=("participants_per_condition=10",),
        )
        write_report(run.folder)
        write_report(run.folder, pdf=True)

    return RunFolder(shared_folder("reported/pilot", make_report) / "run")
