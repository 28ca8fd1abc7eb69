"""Processes that are killed: nothing that was paid for is lost, nothing is asked twice."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from folkmoot.randomness import generator
from folkmoot.storage.run_folder import RunFolder
from tests.default_signals import add_default_signals
from tests.faults.conftest import Serve
from tests.faults.lab import CommandLine, journaled, panel, pilot, resume_line, tables
from tests.servers.batches import BatchPlan
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until

Process = subprocess.Popen[str]


def kill(process: Process) -> None:
    process.kill()


def run_it(study: Path, out: Path) -> list[object]:
    return ["run", study, "--out", out]


def interrupt(server: ServerThread, number: signal.Signals) -> Callable[[Process], None]:
    """Send a signal while the server holds its answers; only then do they come."""

    def act(process: Process) -> None:
        process.send_signal(number)
        server.model.plan = FaultPlan()

    return act


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


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly(part="kills"))])
def test_many_kills_of_one_run(
    kills: int, tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(latency=0.02)
    moments = sorted(int(m) for m in generator(7, ["kills"]).integers(1, 190, size=kills))
    line = CommandLine(server.openai)
    kill_again_and_again(server, line, panel(tmp_path), tmp_path / "run", moments)
    assert tables(tmp_path / "run") == undisturbed_panel


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("moment", [int(m) for m in generator(8, ["k"]).integers(1, 168, size=20)])
def test_a_kill_of_the_pilot_at_any_moment(
    moment: int, tmp_path: Path, serve: Serve, undisturbed_pilot: dict[str, bytes]
) -> None:
    server = serve(latency=0.02, answers="respondent")
    line = CommandLine(server.openai)
    kill_again_and_again(server, line, pilot(tmp_path), tmp_path / "run", [moment])
    assert tables(tmp_path / "run") == undisturbed_pilot
    assert tables(tmp_path / "run") == undisturbed_pilot


def test_ctrl_c_awaits_what_is_in_flight(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(hold_after=50))
    line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    code, printed = line.run_until(
        lambda: len(server.model.log) >= 50, interrupt(server, signal.SIGINT), *run_it(study, out)
    )
    assert code == 130 and resume_line(printed), printed
    assert journaled(out) == Counter(server.model.log)  # every paid reply was kept
    line.run("run", study, "--out", out, "--resume")
    assert tables(out) == undisturbed_panel
    assert max(Counter(server.model.log).values()) == 1


def test_a_killed_run_whose_journal_is_lost_or_changed_is_refused(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(FaultPlan(hold_after=40))
    line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    line.run_until(lambda: sum(journaled(out).values()) >= 20, kill, "run", study, "--out", out)
    assert not (out / "manifest.json").exists()
    server.model.plan = FaultPlan()
    server.wait_until_quiet()
    asked = server.model.counts["received"]
    with closing(sqlite3.connect(out / "journal.sqlite")) as db:  # all of it in one file
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    kept = (out / "journal.sqlite").read_bytes()
    # As it may be while somebody looks on: what was changed stands in the write-ahead log alone.
    onlooker = sqlite3.connect(f"{(out / 'journal.sqlite').as_uri()}?mode=ro", uri=True)
    onlooker.execute("SELECT count(*) FROM entries").fetchone()
    with closing(onlooker), closing(sqlite3.connect(out / "journal.sqlite")) as db, db:
        (where,) = db.execute("SELECT min(address) FROM entries").fetchone()
        db.execute("UPDATE entries SET reply = 'never said' WHERE address = ?", (where,))
    assert (out / "journal.sqlite-wal").stat().st_size
    said = line.run("run", study, "--out", out, "--resume", expect=2)
    assert f"{where}: changed since" in said
    # A refusal leaves the log in place. It would be read into what is put back, so it goes first.
    assert "without journal.sqlite-wal" in " ".join(said.split())
    for beside in out.glob("journal.sqlite-*"):
        beside.unlink()
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


HANGS = """
import asyncio, sys, time
from folkmoot import Scope, Session, Speaker, Study, StudyConfig


class Config(StudyConfig):
    how: str = "waits"


def for_ever() -> None:
    print("hanging", flush=True)
    while True:
        time.sleep(1)


async def protocol(session: Session) -> None:
    await session.ask(Speaker("p"), "Well?")
    if session.config.how == "computes":
        await session.child("a").compute(for_ever)
    elif session.config.how == "blocks":
        for_ever()
    while True:
        try:
            print("hanging", flush=True)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if session.config.how == "waits":
                raise


STUDY = Study(name="hangs", title="It hangs", config=Config, protocol=protocol)
"""


@pytest.mark.parametrize(
    "how",
    sample_daily(
        ["waits", "swallows", "computes", "blocks"], daily=["swallows", "blocks"], part="kills"
    ),
)
def test_a_second_ctrl_c_ends_whatever_the_study_does(
    how: str, tmp_path: Path, serve: Serve
) -> None:
    server = serve()
    (tmp_path / "hangs.py").write_text(HANGS)
    study = tmp_path / "hangs.yaml"
    study.write_text(f"study: ./hangs.py\nmodel: openai/test-model\nhow: {how}\n")
    line = CommandLine(server.openai)
    process = line.start("run", study, "--trust", "--out", tmp_path / "run")
    assert process.stdout is not None
    while process.stdout.readline() != "hanging\n":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    if how == "blocks":  # the first is heard between two steps, and there is none: press again
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    else:
        while "stopping" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and resume_line(printed), printed
    assert sum(journaled(tmp_path / "run").values()) == 1


def test_a_second_ctrl_c_does_not_wait_for_replies(tmp_path: Path, serve: Serve) -> None:
    server = serve(FaultPlan(stall=1.0))  # no reply ever comes
    line = CommandLine(server.openai)
    process = line.start("run", panel(tmp_path), "--out", tmp_path / "run")
    wait_until(lambda: server.model.counts["received"] >= 8 or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "stopping" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and resume_line(printed), printed
    # The last words name the replies that were abandoned.
    last_words = printed[printed.rindex("Interrupted.") :]
    abandoned = re.search(r"possibly paid .*\(at most (\d+) calls of", last_words)
    # Calls that were recorded in advance, but never sent, do not count.
    in_flight = server.model.counts["received"] - server.model.counts["answered"]
    assert abandoned is not None and int(abandoned[1]) == in_flight == 8
    assert "All answers so far are saved" not in printed
    manifest = RunFolder(tmp_path / "run").manifest
    assert (manifest["outcome"], manifest["processes"]) == ("interrupted", 1)
    assert manifest["possibly_paid"]["calls"] == in_flight


def test_calls_in_the_batch_of_a_killed_run_are_told_until_they_are_answered(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    line, desk = CommandLine(server.openai), server.model.batches
    study = pilot(tmp_path, "conditions: [acp]\nbatch: true\nbatch_poll_seconds: 0.01\n")
    command = run_it(study, tmp_path / "run")
    desk.plan = BatchPlan(hold=True)
    # The first look at a batch comes after its id is in the journal.
    line.run_until(lambda: bool(desk.jobs) and desk.jobs[0].looks > 0, kill, *command)
    open_calls = f"{len(desk.jobs[0].items)} calls in batches without an answer may be billed"
    said = line.run("verify", tmp_path / "run", expect=4)
    assert f"Paid $0 (0 calls); {open_calls}" in said
    desk.plan = BatchPlan(expire=frozenset({1}))
    line.run(*command, "--resume")
    assert "in batches" not in line.run("verify", tmp_path / "run")


@pytest.mark.parametrize(
    "number",
    # Daily, SIGHUP comes from a terminal that is closed, below, and SIGTERM in test_grids.
    sample_daily([signal.SIGTERM, signal.SIGHUP], daily=0, part="kills"),
)
def test_a_hang_up_awaits_what_is_in_flight(
    number: signal.Signals, tmp_path: Path, serve: Serve
) -> None:
    server = serve(FaultPlan(hold_after=50))
    line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    code, printed = line.run_until(
        lambda: len(server.model.log) >= 50, interrupt(server, number), *run_it(study, out)
    )
    assert code == 130 and resume_line(printed), printed
    assert journaled(out) == Counter(server.model.log)


def test_a_terminal_that_is_closed_loses_no_reply(tmp_path: Path, serve: Serve) -> None:
    """The real thing: the other end of the terminal goes, and the process gets SIGHUP and EIO."""
    server = serve(FaultPlan(hold_after=50))
    line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    ours, theirs = os.openpty()

    def take_the_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        add_default_signals(Path(sys.executable).with_name("folkmoot"), *run_it(study, out)),
        env=line.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_the_terminal,  # noqa: PLW1509
    )
    os.close(theirs)
    while len(server.model.log) < 50:
        assert process.poll() is None
        if select.select([ours], [], [], 0.01)[0]:
            os.read(ours, 10_000)
    os.close(ours)
    server.model.plan = FaultPlan()
    assert process.wait(timeout=120) == 130
    assert journaled(out) == Counter(server.model.log)
    assert json.loads((out / "manifest.json").read_text())["outcome"] == "interrupted"
