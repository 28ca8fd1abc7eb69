"""Grids that are stopped, killed or out of quota: nothing paid for is lost, nothing asked twice."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Serve
from tests.faults.lab import CommandLine, journaled, panel, resume_line, tables
from tests.faults.test_kills import Process, interrupt, kill
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

CELLS = 4
ASKED = CELLS * 4 * 3
GRID = ("--repeats", "2", "--grid", "temperature=0,1")


def study(folder: Path) -> Path:
    return panel(folder, "people: 4\nturns: 3\n")


def cells(grid: Path) -> list[Path]:
    return sorted((grid / "cells").iterdir())


def kept(grid: Path) -> Counter[str]:
    """What the journals of all cells hold, by the digest of the request."""
    return sum(map(journaled, cells(grid)), Counter())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The tables of each cell when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("grid")
    with ServerThread(FaultPlan()) as server:
        CommandLine(server.openai).run("run", study(folder), "--out", folder / "g", *GRID)
    return {cell.name: tables(cell) for cell in cells(folder / "g")}


def stopped(
    line: CommandLine, server: ServerThread, out: Path, act: Callable[[Process], None]
) -> tuple[int, str]:
    """A grid to which something happens when some of its replies are there."""
    return line.run_until(
        lambda: len(server.model.log) >= 20, act, "run", study(out.parent), "--out", out, *GRID
    )


def goes_on(
    line: CommandLine, server: ServerThread, out: Path, undisturbed: dict[str, object]
) -> None:
    """The resume line finishes every cell, and all tables are those of a grid left in peace."""
    line.run("run", study(out.parent), "--out", out, "--resume")
    assert {cell.name: tables(cell) for cell in cells(out)} == undisturbed


@pytest.mark.parametrize(
    "number", sample_daily([signal.SIGTERM, signal.SIGINT], daily=1, part="kills")
)
def test_a_signal_awaits_the_replies_of_all_cells(
    number: signal.Signals, tmp_path: Path, serve: Serve, undisturbed: dict[str, object]
) -> None:
    server = serve(FaultPlan(hold_after=20))
    command_line, out = CommandLine(server.openai), tmp_path / "g"
    code, printed = stopped(command_line, server, out, interrupt(server, number))
    assert code == 130 and resume_line(printed), printed
    assert 20 <= len(server.model.log) < ASKED
    assert kept(out) == Counter(server.model.log)  # every paid reply was kept
    goes_on(command_line, server, out, undisturbed)
    assert len(server.model.log) == ASKED  # nothing was asked twice


def test_a_killed_grid_asks_only_for_what_its_journals_lack(
    tmp_path: Path, serve: Serve, undisturbed: dict[str, object]
) -> None:
    server = serve(FaultPlan(hold_after=20))
    command_line, out = CommandLine(server.openai), tmp_path / "g"
    stopped(command_line, server, out, kill)
    server.model.plan = FaultPlan()
    server.wait_until_quiet()
    known, before = kept(out), len(server.model.log)
    goes_on(command_line, server, out, undisturbed)
    assert Counter(server.model.log[before:]) == kept(out) - known


def test_a_quota_that_ends_in_one_cell_pauses_them_all(
    tmp_path: Path, serve: Serve, undisturbed: dict[str, object]
) -> None:
    server = serve(FaultPlan(quota_after=20))
    command_line, out = CommandLine(server.openai), tmp_path / "g"
    printed = command_line.run("run", study(tmp_path), "--out", out, *GRID, expect=75)
    assert "quota" in printed.lower() and resume_line(printed), printed
    assert "The tables hold" not in printed and "cells that have finished" in printed
    assert kept(out).total() == 20
    server.model.plan = FaultPlan()
    goes_on(command_line, server, out, undisturbed)
    assert len(server.model.log) == ASKED
