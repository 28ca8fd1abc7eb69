"""Disks and folders that fail: a clear error, and what was written stays good."""

from __future__ import annotations

import ctypes
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from folkmoot.engine.journal.journal_file import checkpoint_wal
from folkmoot.errors import StorageError
from tests.faults.conftest import Serve
from tests.faults.lab import (
    KEY,
    CommandLine,
    panel,
    pilot,
    resume_line,
    tables,
    texts_of,
)
from tests.servers.faults import FaultPlan


@contextmanager
def full_disk(max_bytes: int) -> Iterator[None]:
    """No file can grow beyond this size, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def obey_permissions() -> None:
    """Drop what lets root write everywhere (CAP_DAC_OVERRIDE) from what this process may gain."""
    if os.geteuid() == 0:
        drop_from_bounding_set, dac_override = 24, 1  # linux/prctl.h, linux/capability.h
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(drop_from_bounding_set, dac_override, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def test_a_full_disk_is_said_and_resume_goes_on(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve()
    command_line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"

    with full_disk(80_000):
        printed = command_line.run("run", study, "--out", out, expect=2)
    assert "disk" in printed and "Traceback" not in printed and resume_line(printed)
    command_line.run("run", study, "--out", out, "--resume")
    assert tables(out) == undisturbed_panel


def test_a_full_disk_in_the_dry_run_gives_no_advice_to_resume(tmp_path: Path, serve: Serve) -> None:
    command_line = CommandLine(serve().openai)
    study = pilot(tmp_path)
    with full_disk(50_000):
        printed = command_line.run("check", study, expect=2)
    assert "the disk is full" in printed and "TMPDIR" in printed
    assert "--resume" not in printed and "Traceback" not in printed


def test_a_full_disk_ends_the_writer_of_a_journal_without_a_traceback(tmp_path: Path) -> None:
    class FullDisk:
        def execute(self, *_: object) -> None:
            raise StorageError("the disk is full")

    # The moment at which the thread `journal` ended with a traceback.
    checkpoint_wal(cast("sqlite3.Connection", FullDisk()))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    command_line, study = CommandLine(server.openai), panel(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    printed = command_line.run("run", study, "--out", tmp_path / "file" / "run", expect=2)
    assert "file" in printed and "Traceback" not in printed
    assert server.model.counts["received"] == 0


@pytest.mark.skipif(
    os.geteuid() == 0 and sys.platform != "linux", reason="root may write everywhere"
)
def test_a_read_only_folder_is_said(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    command_line, study = CommandLine(server.openai), panel(tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    printed = command_line.run_in_process(
        "run", study, "--out", locked / "run", expect=2, preexec_fn=obey_permissions
    )
    assert "locked" in printed and "Traceback" not in printed
    assert server.model.counts["received"] == 0


@pytest.mark.parametrize("name", ["run.log", "log.jsonl"])
def test_a_folder_in_place_of_a_log_is_said(tmp_path: Path, serve: Serve, name: str) -> None:
    command_line, study, out = CommandLine(serve().openai), panel(tmp_path), tmp_path / "run"
    command_line.run("run", study, "--out", out)
    (out / name).unlink()
    (out / name).mkdir()
    output = command_line.run("run", study, "--out", out, "--resume", expect=2)
    assert f"{name}: a folder is where a file is needed" in output
    (out / name).rmdir()
    command_line.run("run", study, "--out", out, "--resume")


def test_a_folder_has_one_writer(tmp_path: Path, serve: Serve) -> None:
    server = serve(FaultPlan(hold_after=40))
    command_line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    seen: list[str] = []

    def intrude(first: subprocess.Popen[str]) -> None:
        second = command_line.run("run", study, "--out", out, "--resume", expect=2)
        assert str(first.pid) in second, second
        seen.append(second)
        server.model.plan = FaultPlan()  # only now can the first one end

    code, printed = command_line.run_until(
        lambda: server.model.counts["answered"] > 20, intrude, "run", study, "--out", out
    )
    assert code == 0 and seen, printed
    existing = command_line.run("run", study, "--out", out, expect=2)
    assert "--resume" in existing  # never overwritten
    assert KEY.encode() not in texts_of(tmp_path) and KEY not in existing + printed + seen[0]


def test_a_key_on_the_command_line_is_written_nowhere(tmp_path: Path, serve: Serve) -> None:
    secret = "typed-key-which-looks-like-nothing"
    server = serve(FaultPlan(key=secret))
    command_line, study = CommandLine(server.openai), panel(tmp_path)
    printed = command_line.run("run", study, "--out", tmp_path / "run", "--key", secret)
    assert "environment" in printed and secret not in printed
    assert secret.encode() not in texts_of(tmp_path)
