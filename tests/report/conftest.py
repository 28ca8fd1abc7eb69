"""One small finished run of each study type that the report tests share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study.study import registered_studies
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import small_study


@pytest.fixture(scope="session", params=sorted(registered_studies()))
def finished(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    small_run: Callable[[str], Path],
) -> RunFolder:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    shutil.copytree(small_run(request.param), folder)
    return RunFolder(folder)


@pytest.fixture(scope="session")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder: Path = tmp_path_factory.mktemp("pilot")
    source = small_study("cross_pollination", folder)
    return folkmoot.run(
        source,
        model="synthetic",
        out=folder / "run",
        overrides=("participants_per_condition=25",),
    ).folder
