"""Killed processes lose no paid call and repeat none."""

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
from tests.faults.lab import (
    CommandLine,
    count_journaled_requests,
    has_resume_command,
    read_table_bytes,
    write_panel_study,
    write_pilot_study,
)
from tests.servers.batches import BatchPlan
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until

Process = subprocess.Popen[str]


def kill(process: Process) -> None:
    process.kill()


def build_run_arguments(study: Path, out: Path) -> list[object]:
    return ["run", study, "--out", out]


def interrupt(server: ServerThread, number: signal.Signals) -> Callable[[Process], None]:
    """Send a signal while the server holds its answers, and release the answers only then."""

    def act(process: Process) -> None:
        process.send_signal(number)
        server.model.plan = FaultPlan()

    return act


def kill_repeatedly(
    server: ServerThread, command_line: CommandLine, study: Path, out: Path, moments: list[int]
) -> None:
    """Kill the run whenever the server has answered `moments` requests, then run to the end.

    After each start, the run may only request what the journal does not contain.
    """
    model = server.model
    for moment in [*moments, None]:
        args = ["run", study, "--out", out] + (["--resume"] if out.exists() else [])
        # Requests in flight at the kill are still answered, and count for the killed process.
        server.wait_until_quiet()
        journaled, before = count_journaled_requests(out), len(model.log)
        if moment is None:
            command_line.run(*args)
        else:
            command_line.run_until(
                lambda answer_count=moment: len(model.log) >= answer_count, kill, *args
            )
        request_counts = Counter(model.log[before:])
        journaled_at_end = count_journaled_requests(out) if moment is None else None
        if journaled_at_end is not None:
            assert request_counts == journaled_at_end - journaled
        assert not any(
            journaled[request_digest] + request_counts[request_digest]
            > model.log.count(request_digest)
            for request_digest in request_counts
        )


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly(part="kills"))])
def test_run_with_many_kills_gives_the_same_results(
    kills: int, tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(latency=0.02)
    moments = sorted(int(m) for m in generator(7, ["kills"]).integers(1, 190, size=kills))
    command_line = CommandLine(server.openai)
    kill_repeatedly(server, command_line, write_panel_study(tmp_path), tmp_path / "run", moments)
    assert read_table_bytes(tmp_path / "run") == undisturbed_panel


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("moment", [int(m) for m in generator(8, ["k"]).integers(1, 168, size=20)])
def test_pilot_killed_at_any_moment_gives_the_same_results(
    moment: int, tmp_path: Path, serve: Serve, undisturbed_pilot: dict[str, bytes]
) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    kill_repeatedly(server, command_line, write_pilot_study(tmp_path), tmp_path / "run", [moment])
    assert read_table_bytes(tmp_path / "run") == undisturbed_pilot
    assert read_table_bytes(tmp_path / "run") == undisturbed_pilot


@pytest.mark.parametrize(
    "number",
    # Daily, SIGHUP comes from a terminal that is closed, below, and SIGTERM in test_grids.
    sample_daily([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], daily=1, part="kills"),
)
def test_signals_wait_for_calls_in_flight(
    number: signal.Signals, tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(hold_after=50))
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    code, printed = command_line.run_until(
        lambda: len(server.model.log) >= 50,
        interrupt(server, number),
        *build_run_arguments(study, out),
    )
    assert code == 130 and has_resume_command(printed), printed
    # Every paid reply is in the journal.
    assert count_journaled_requests(out) == Counter(server.model.log)
    command_line.run("run", study, "--out", out, "--resume")
    assert read_table_bytes(out) == undisturbed_panel
    assert max(Counter(server.model.log).values()) == 1


@pytest.mark.nightly(part="kills")
def test_killed_run_with_a_lost_or_changed_journal_is_refused(tmp_path: Path, serve: Serve) -> None:
    server = serve(FaultPlan(hold_after=40))
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    command_line.run_until(
        lambda: sum(count_journaled_requests(out).values()) >= 20, kill, "run", study, "--out", out
    )
    assert not (out / "manifest.json").exists()
    server.model.plan = FaultPlan()
    server.wait_until_quiet()
    received_count = server.model.counts["received"]
    # Move the write-ahead log into the database file.
    with closing(sqlite3.connect(out / "journal.sqlite")) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    journal_bytes = (out / "journal.sqlite").read_bytes()
    # With a reader open, the change is only in the write-ahead log.
    onlooker = sqlite3.connect(f"{(out / 'journal.sqlite').as_uri()}?mode=ro", uri=True)
    onlooker.execute("SELECT count(*) FROM entries").fetchone()
    with closing(onlooker), closing(sqlite3.connect(out / "journal.sqlite")) as db, db:
        (where,) = db.execute("SELECT min(address) FROM entries").fetchone()
        db.execute("UPDATE entries SET reply = 'never said' WHERE address = ?", (where,))
    assert (out / "journal.sqlite-wal").stat().st_size
    output = command_line.run("run", study, "--out", out, "--resume", expect=2)
    assert f"{where}: changed since" in output
    # A refusal keeps the log. It would be applied to the restored file, so it is deleted first.
    assert "without journal.sqlite-wal" in " ".join(output.split())
    for beside in out.glob("journal.sqlite-*"):
        beside.unlink()
    (out / "journal.sqlite").write_bytes(b"")
    for _ in ("empty", "gone"):
        output = command_line.run("run", study, "--out", out, "--resume", expect=2)
        assert "journal.sqlite is missing or empty" in output
        (out / "journal.sqlite").unlink(missing_ok=True)
    assert server.model.counts["received"] == received_count
    (out / "journal.sqlite").write_bytes(journal_bytes)
    plan = (out / "plan.json").read_bytes()
    (out / "plan.json").unlink()
    output = command_line.run("run", study, "--out", out, "--resume", expect=2)
    assert "plan.json is missing" in output
    (out / "plan.json").write_bytes(plan)
    command_line.run("run", study, "--out", out, "--resume")


HANGING_STUDY = """
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


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("how", ["waits", "swallows", "computes", "blocks"])
def test_second_ctrl_c_ends_any_study(how: str, tmp_path: Path, serve: Serve) -> None:
    server = serve()
    (tmp_path / "hangs.py").write_text(HANGING_STUDY)
    study = tmp_path / "hangs.yaml"
    study.write_text(f"study: ./hangs.py\nmodel: openai/test-model\nhow: {how}\n")
    command_line = CommandLine(server.openai)
    process = command_line.start("run", study, "--trust", "--out", tmp_path / "run")
    assert process.stdout is not None
    while process.stdout.readline() != "hanging\n":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    # The first signal is handled between two steps, and there is none, so send it again.
    if how == "blocks":
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    else:
        while "stopping" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and has_resume_command(printed), printed
    assert sum(count_journaled_requests(tmp_path / "run").values()) == 1


def test_second_ctrl_c_does_not_wait_for_replies(tmp_path: Path, serve: Serve) -> None:
    server = serve(FaultPlan(stall=1.0))  # no reply arrives
    command_line = CommandLine(server.openai)
    process = command_line.start("run", write_panel_study(tmp_path), "--out", tmp_path / "run")
    wait_until(lambda: server.model.counts["received"] >= 8 or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "stopping" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and has_resume_command(printed), printed
    # The last message names the abandoned replies.
    last_words = printed[printed.rindex("Interrupted.") :]
    abandoned = re.search(r"possibly paid .*\(at most (\d+) calls of", last_words)
    # Calls that were recorded in advance, but never sent, do not count.
    in_flight = server.model.counts["received"] - server.model.counts["answered"]
    assert abandoned is not None and int(abandoned[1]) == in_flight == 8
    assert "All answers so far are saved" not in printed
    manifest = RunFolder(tmp_path / "run").manifest
    assert (manifest["outcome"], manifest["processes"]) == ("interrupted", 1)
    assert manifest["possibly_paid"]["calls"] == in_flight


@pytest.mark.nightly(part="kills")
def test_batch_calls_of_a_killed_run_are_reported_until_they_are_answered(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line, batch_api = CommandLine(server.openai), server.model.batches
    study = write_pilot_study(
        tmp_path, "conditions: [acp]\nbatch: true\nbatch_poll_seconds: 0.01\n"
    )
    command = build_run_arguments(study, tmp_path / "run")
    batch_api.plan = BatchPlan(hold=True)
    # The first look at a batch comes after its id is in the journal.
    command_line.run_until(
        lambda: bool(batch_api.jobs) and batch_api.jobs[0].looks > 0, kill, *command
    )
    open_calls = f"{len(batch_api.jobs[0].items)} calls in batches without an answer may be billed"
    output = command_line.run("verify", tmp_path / "run", expect=4)
    assert f"Paid $0 (0 calls); {open_calls}" in output
    batch_api.plan = BatchPlan(expire=frozenset({1}))
    command_line.run(*command, "--resume")
    assert "in batches" not in command_line.run("verify", tmp_path / "run")


@pytest.mark.nightly(part="kills")
def test_closed_terminal_loses_no_reply(tmp_path: Path, serve: Serve) -> None:
    """The other end of a real terminal closes, so the process gets SIGHUP and EIO."""
    server = serve(FaultPlan(hold_after=50))
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    ours, theirs = os.openpty()

    def take_the_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        add_default_signals(
            Path(sys.executable).with_name("folkmoot"), *build_run_arguments(study, out)
        ),
        env=command_line.env,
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
    assert count_journaled_requests(out) == Counter(server.model.log)
    assert json.loads((out / "manifest.json").read_text())["outcome"] == "interrupted"
