"""Fixtures of the fault tests: model servers and the tables of runs without faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.lab import CommandLine, read_table_bytes, write_panel_study, write_pilot_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

Serve = Callable[..., ServerThread]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start model servers and end them with the test."""
    running: list[ServerThread] = []

    def start(plan: FaultPlan | None = None, **options: object) -> ServerThread:
        running.append(ServerThread(plan or FaultPlan(), **options))  # type: ignore[arg-type]
        return running[-1]

    yield start
    for server in running:
        server.__exit__()


@pytest.fixture(scope="session")
def undisturbed_panel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the tables of the panel study in a run without faults."""
    folder = tmp_path_factory.mktemp("panel")
    with ServerThread(FaultPlan()) as server:
        CommandLine(server.openai).run("run", write_panel_study(folder), "--out", folder / "run")
    return read_table_bytes(folder / "run")


@pytest.fixture(scope="session")
def undisturbed_pilot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the tables of the small pilot in a run without faults."""
    folder = tmp_path_factory.mktemp("pilot")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        CommandLine(server.openai).run("run", write_pilot_study(folder), "--out", folder / "run")
    return read_table_bytes(folder / "run")
