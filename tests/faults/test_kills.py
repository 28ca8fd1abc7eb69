"""Processes that are killed: nothing that was paid for is lost, nothing is asked twice."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from folkmoot.engine.journal import Journal
from folkmoot.randomness import generator
from tests.faults.conftest import Serve
from tests.faults.lab import CommandLine, journaled, panel, pilot, resume_line, tables
from tests.servers.thread import ServerThread


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()


def kill_again_and_again(
    server: ServerThread, line: CommandLine, study: Path, out: Path, moments: list[int]
) -> None:
    """Run, killed whenever the server has answered so many requests, then run to the end.

    After each start the server may only have been asked for what the journal does not hold.
    """
    model = server.model
    for moment in [*moments, None]:
        args = ["run", study, "--out", out] + (["--resume"] if out.exists() else [])
        # What was on its way when a process was killed is still answered, and belongs to it.
        server.wait_until_quiet()
        known, before = journaled(out), len(model.log)
        if moment is None:
            line.run(*args)
        else:
            line.run_until(lambda m=moment: len(model.log) >= m, kill, *args)
        asked = Counter(model.log[before:])
        wanted = journaled(out) if moment is None else None
        if wanted is not None:
            assert asked == wanted - known
        assert not any(known[d] + asked[d] > model.log.count(d) for d in asked)


def test_twenty_kills_of_one_run(
    tmp_path: Path, serve: Serve, cache: Path, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(latency=0.02)
    moments = sorted(int(m) for m in generator(7, ["kills"]).integers(1, 190, size=20))
    line = CommandLine(server.openai, cache)
    kill_again_and_again(server, line, panel(tmp_path), tmp_path / "run", moments)
    assert tables(tmp_path / "run") == undisturbed_panel


@pytest.mark.nightly
@pytest.mark.parametrize("moment", [int(m) for m in generator(8, ["k"]).integers(1, 168, size=20)])
def test_a_kill_of_the_pilot_at_any_moment(
    moment: int, tmp_path: Path, serve: Serve, cache: Path, undisturbed_pilot: dict[str, bytes]
) -> None:
    server = serve(latency=0.02, answers="respondent")
    line = CommandLine(server.openai, cache)
    kill_again_and_again(server, line, pilot(tmp_path), tmp_path / "run", [moment])
    assert tables(tmp_path / "run") == undisturbed_pilot
    assert tables(tmp_path / "run") == undisturbed_pilot


def test_ctrl_c_awaits_what_is_in_flight(
    tmp_path: Path, serve: Serve, cache: Path, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(latency=0.1)
    line, study, out = CommandLine(server.openai, cache), panel(tmp_path), tmp_path / "run"

    def answered(count: int) -> Callable[[], bool]:
        return lambda: len(server.model.log) >= count

    code, printed = line.run_until(
        answered(50), lambda p: p.send_signal(signal.SIGINT), "run", study, "--out", out
    )
    assert code == 130 and resume_line(printed), printed
    assert journaled(out) == Counter(server.model.log)  # every paid reply was kept
    line.run("run", study, "--out", out, "--resume")
    assert tables(out) == undisturbed_panel
    assert max(Counter(server.model.log).values()) == 1


def test_a_killed_run_whose_journal_is_lost_or_changed_is_refused(
    tmp_path: Path, serve: Serve, cache: Path
) -> None:
    server = serve()
    line, study, out = CommandLine(server.openai, cache), panel(tmp_path), tmp_path / "run"
    line.run_until(lambda: sum(journaled(out).values()) >= 20, kill, "run", study, "--out", out)
    assert not (out / "manifest.json").exists()
    server.wait_until_quiet()
    asked = server.model.counts["received"]
    with Journal(out / "journal.sqlite"):  # closing it leaves one file and no more
        pass
    kept = (out / "journal.sqlite").read_bytes()
    with closing(sqlite3.connect(out / "journal.sqlite")) as db, db:
        (where,) = db.execute("SELECT min(address) FROM entries").fetchone()
        db.execute("UPDATE entries SET reply = 'never said' WHERE address = ?", (where,))
    said = line.run("run", study, "--out", out, "--resume", expect=2)
    assert f"the entries at {where} were changed" in said
    (out / "journal.sqlite").write_bytes(b"")
    for _ in ("empty", "gone"):
        said = line.run("run", study, "--out", out, "--resume", expect=2)
        assert "journal.sqlite is missing or empty" in said
        (out / "journal.sqlite").unlink(missing_ok=True)
    assert server.model.counts["received"] == asked
    (out / "journal.sqlite").write_bytes(kept)
    plan = (out / "plan.json").read_bytes()
    (out / "plan.json").unlink()
    said = line.run("run", study, "--out", out, "--resume", expect=2)
    assert "plan.json is missing" in said
    (out / "plan.json").write_bytes(plan)
    line.run("run", study, "--out", out, "--resume")
