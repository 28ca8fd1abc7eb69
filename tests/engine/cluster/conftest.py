"""A small local Ray cluster with an API key in its workers, started once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import folkmoot
from tests.engine.cluster.runs import KEY, run_two_stages, write_study_file
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Start Ray like `--executor ray`. Skip the test without Ray (`make cluster` installs it)."""
    pytest.importorskip("ray")
    from folkmoot.engine.cluster.head import connect_to_ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.delenv("RAY_ADDRESS", raising=False)
        with connect_to_ray("ray", 4):
            patch.undo()
            yield
    os.environ.pop("RAY_AUTH_MODE", None)  # Ray sets it for its child processes


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def local_run(tmp_path: Path, key: None) -> folkmoot.Run:
    """Run the study in one process."""
    with ServerThread(FaultPlan()) as server:
        study = write_study_file(tmp_path / "alone", server.openai, concurrency=8)
        return run_two_stages(study, tmp_path / "alone" / "run")
