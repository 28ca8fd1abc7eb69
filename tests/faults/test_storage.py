"""Failing disks and folders give a clear error, and existing files stay valid."""

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
    has_resume_command,
    read_all_bytes,
    read_table_bytes,
    write_panel_study,
    write_pilot_study,
)
from tests.servers.faults import FaultPlan


@contextmanager
def limit_file_size(max_bytes: int) -> Iterator[None]:
    """Limit the size of files, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def obey_permissions() -> None:
    """Drop the capability CAP_DAC_OVERRIDE, with which root may write everywhere."""
    if os.geteuid() == 0:
        drop_from_bounding_set, dac_override = 24, 1  # linux/prctl.h, linux/capability.h
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(drop_from_bounding_set, dac_override, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def test_full_disk_is_reported_and_the_run_can_be_resumed(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve()
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )

    with limit_file_size(80_000):
        printed = command_line.run("run", study, "--out", out, expect=2)
    assert "disk" in printed and "Traceback" not in printed and has_resume_command(printed)
    assert "Paid so far" in printed and "possibly paid" in printed
    command_line.run("run", study, "--out", out, "--resume")
    assert read_table_bytes(out) == undisturbed_panel


def test_full_disk_in_the_dry_run_gives_no_resume_advice(tmp_path: Path, serve: Serve) -> None:
    command_line = CommandLine(serve().openai)
    study = write_pilot_study(tmp_path)
    with limit_file_size(50_000):
        printed = command_line.run("check", study, expect=2)
    assert "the disk is full" in printed and "TMPDIR" in printed
    assert "--resume" not in printed and "Traceback" not in printed


def test_full_disk_ends_the_journal_writer_without_a_traceback(tmp_path: Path) -> None:
    class FullDisk:
        def execute(self, *_: object) -> None:
            raise StorageError("the disk is full")

    # Here the thread `journal` ended with a traceback before.
    checkpoint_wal(cast("sqlite3.Connection", FullDisk()))


def test_unwritable_folder_is_reported(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    command_line, study = CommandLine(server.openai), write_panel_study(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    printed = command_line.run("run", study, "--out", tmp_path / "file" / "run", expect=2)
    assert "file" in printed and "Traceback" not in printed
    assert server.model.counts["received"] == 0


@pytest.mark.skipif(
    os.geteuid() == 0 and sys.platform != "linux", reason="root may write everywhere"
)
def test_read_only_folder_is_reported(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    command_line, study = CommandLine(server.openai), write_panel_study(tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    printed = command_line.run_in_process(
        "run", study, "--out", locked / "run", expect=2, preexec_fn=obey_permissions
    )
    assert "locked" in printed and "Traceback" not in printed
    assert server.model.counts["received"] == 0


@pytest.mark.parametrize("name", ["run.log", "log.jsonl"])
def test_folder_in_place_of_a_log_is_reported(tmp_path: Path, serve: Serve, name: str) -> None:
    command_line, study, out = (
        CommandLine(serve().openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    command_line.run("run", study, "--out", out)
    (out / name).unlink()
    (out / name).mkdir()
    output = command_line.run("run", study, "--out", out, "--resume", expect=2)
    assert f"{name}: a folder is where a file is needed" in output
    (out / name).rmdir()
    command_line.run("run", study, "--out", out, "--resume")


def test_folder_has_one_writer(tmp_path: Path, serve: Serve) -> None:
    server = serve(FaultPlan(hold_after=40))
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    second_outputs: list[str] = []

    def start_second_process(first: subprocess.Popen[str]) -> None:
        second = command_line.run("run", study, "--out", out, "--resume", expect=2)
        assert str(first.pid) in second, second
        second_outputs.append(second)
        server.model.plan = FaultPlan()  # only now can the first process end

    code, printed = command_line.run_until(
        lambda: server.model.counts["answered"] > 20,
        start_second_process,
        "run",
        study,
        "--out",
        out,
    )
    assert code == 0 and second_outputs, printed
    existing = command_line.run("run", study, "--out", out, expect=2)
    assert "--resume" in existing  # the run is not overwritten
    assert (
        KEY.encode() not in read_all_bytes(tmp_path)
        and KEY not in existing + printed + second_outputs[0]
    )


def test_key_on_the_command_line_is_never_written(tmp_path: Path, serve: Serve) -> None:
    secret = "typed-key-which-looks-like-nothing"
    server = serve(FaultPlan(key=secret))
    command_line, study = CommandLine(server.openai), write_panel_study(tmp_path)
    printed = command_line.run("run", study, "--out", tmp_path / "run", "--key", secret)
    assert "environment" in printed and secret not in printed
    assert secret.encode() not in read_all_bytes(tmp_path)
