"""Grids that are stopped, killed or out of quota lose no paid call and repeat none."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Serve
from tests.faults.lab import (
    CommandLine,
    count_journaled_requests,
    has_resume_command,
    read_table_bytes,
    write_panel_study,
)
from tests.faults.test_kills import Process, interrupt, kill
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

CELLS = 4
TOTAL_CALLS = CELLS * 4 * 3
GRID = ("--repeats", "2", "--grid", "temperature=0,1")


def write_study(folder: Path) -> Path:
    return write_panel_study(folder, "people: 4\nturns: 3\n")


def list_cells(grid: Path) -> list[Path]:
    return sorted((grid / "cells").iterdir())


def count_grid_requests(grid: Path) -> Counter[str]:
    """Count the requests in the journals of all cells by digest."""
    return sum(map(count_journaled_requests, list_cells(grid)), Counter())


@pytest.fixture(scope="module")
def undisturbed_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the tables of each cell of a grid without faults."""
    folder = tmp_path_factory.mktemp("grid")
    with ServerThread(FaultPlan()) as server:
        CommandLine(server.openai).run("run", write_study(folder), "--out", folder / "g", *GRID)
    return {cell.name: read_table_bytes(cell) for cell in list_cells(folder / "g")}


def run_grid_until(
    command_line: CommandLine, server: ServerThread, out: Path, act: Callable[[Process], None]
) -> tuple[int, str]:
    """Run a grid and call `act` after 20 replies. Return exit code and output."""
    return command_line.run_until(
        lambda: len(server.model.log) >= 20,
        act,
        "run",
        write_study(out.parent),
        "--out",
        out,
        *GRID,
    )


def assert_resume_completes(
    command_line: CommandLine,
    server: ServerThread,
    out: Path,
    undisturbed_tables: dict[str, object],
) -> None:
    """Resume the grid. All tables must be equal to those of a grid without faults."""
    command_line.run("run", write_study(out.parent), "--out", out, "--resume")
    assert {cell.name: read_table_bytes(cell) for cell in list_cells(out)} == undisturbed_tables


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_waits_for_the_replies_of_all_cells(
    number: signal.Signals, tmp_path: Path, serve: Serve, undisturbed_tables: dict[str, object]
) -> None:
    server = serve(FaultPlan(hold_after=20))
    command_line, out = CommandLine(server.openai), tmp_path / "g"
    code, printed = run_grid_until(command_line, server, out, interrupt(server, number))
    assert code == 130 and has_resume_command(printed), printed
    assert 20 <= len(server.model.log) < TOTAL_CALLS
    assert count_grid_requests(out) == Counter(server.model.log)  # every paid reply is in a journal
    assert_resume_completes(command_line, server, out, undisturbed_tables)
    assert len(server.model.log) == TOTAL_CALLS  # no call was repeated


def test_killed_grid_repeats_only_calls_that_its_journals_lack(
    tmp_path: Path, serve: Serve, undisturbed_tables: dict[str, object]
) -> None:
    server = serve(FaultPlan(hold_after=20))
    command_line, out = CommandLine(server.openai), tmp_path / "g"
    run_grid_until(command_line, server, out, kill)
    server.model.plan = FaultPlan()
    server.wait_until_quiet()
    journaled, before = count_grid_requests(out), len(server.model.log)
    assert_resume_completes(command_line, server, out, undisturbed_tables)
    assert Counter(server.model.log[before:]) == count_grid_requests(out) - journaled


def test_exhausted_quota_in_one_cell_pauses_all_cells(
    tmp_path: Path, serve: Serve, undisturbed_tables: dict[str, object]
) -> None:
    server = serve(FaultPlan(quota_after=20))
    command_line, out = CommandLine(server.openai), tmp_path / "g"
    printed = command_line.run("run", write_study(tmp_path), "--out", out, *GRID, expect=75)
    assert "quota" in printed.lower() and has_resume_command(printed), printed
    assert "The tables hold" not in printed and "cells that have finished" in printed
    assert count_grid_requests(out).total() == 20
    server.model.plan = FaultPlan()
    assert_resume_completes(command_line, server, out, undisturbed_tables)
    assert len(server.model.log) == TOTAL_CALLS
