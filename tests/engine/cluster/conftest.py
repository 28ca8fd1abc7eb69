"""A small cluster of Ray's on this machine, started once, whose workers have a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import folkmoot
from tests.engine.cluster.runs import KEY, play, study_file
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray as `--executor ray` starts it; skipped where it is not installed (`make cluster`)."""
    pytest.importorskip("ray")
    from folkmoot.engine.cluster.head import connect_to_ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.delenv("RAY_ADDRESS", raising=False)
        with connect_to_ray("ray", 4):
            patch.undo()
            yield
    os.environ.pop("RAY_AUTH_MODE", None)  # Ray's own, for the processes that it starts


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def alone(tmp_path: Path, key: None) -> folkmoot.Run:
    """The run in one process."""
    with ServerThread(FaultPlan()) as server:
        study = study_file(tmp_path / "alone", server.openai, concurrency=8)
        return play(study, tmp_path / "alone" / "run")
