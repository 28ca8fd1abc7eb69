"""The limits that bound memory change no result. test_every_study compares the tables of runs that
keep their rows on disk."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import folkmoot
from benchmarks.measure import ROOT, peak_mb, used_by
from benchmarks.scale import pilot
from folkmoot import child_process
from folkmoot.child_process import run_in_child
from folkmoot.engine.session import computations
from folkmoot.engine.session import run_context as context
from folkmoot.errors import FolkmootError
from folkmoot.measures.clusters import cluster_option
from folkmoot.storage import table_buffer as recording
from tests.contract.runs import Crash, SerialRun, digest, make_respondent, play


def test_rows_of_a_process_that_was_killed_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Crash):
        play(
            "cross_pollination",
            tmp_path,
            provider=make_respondent("cross_pollination", die_after=9),
        )
    left = tmp_path / recording.ROWS
    left.write_bytes(b"half a row")
    run: folkmoot.Run = play(
        "cross_pollination", tmp_path, provider=make_respondent("cross_pollination")
    )
    assert run.table("answers").height > 9 and not left.exists()


def test_a_large_run_clusters_in_processes_of_their_own_with_the_same_result(
    serial_run: SerialRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, begun = "cross_pollination", []

    def noted(fn: Callable[..., object], args: Sequence[object], *, folder: Path) -> object:
        begun.append(fn)
        return (
            run_in_child(fn, args, folder=folder) if len(begun) == 1 else fn(*args)
        )  # one shows it

    monkeypatch.setattr(computations, "run_in_child", noted)
    whole = serial_run(study)
    assert not begun
    monkeypatch.setattr(context, "LARGE_FORK_ITEMS", 3)
    large = play(study, tmp_path / "b" / "run", provider=make_respondent(study))
    assert {*begun} == {cluster_option} and digest(large) == digest(whole)


def test_errors_of_a_child_process_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FolkmootError, match=r"sqrt: ValueError: .*math domain error"):
        run_in_child(math.sqrt, (-1.0,), folder=tmp_path)
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr(child_process.sys, "executable", str(killed))
    with pytest.raises(FolkmootError, match=r"status -9; .* memory"):
        run_in_child(math.sqrt, (1.0,), folder=tmp_path)


def test_memory_of_a_child_process_is_measured_without_that_of_its_parent() -> None:
    taken = bytearray(b"x" * 400_000_000)
    assert peak_mb() > 400
    assert used_by("--version").peak_mb < 200
    own = "from benchmarks.measure import peak_mb; print(peak_mb())"
    assert float(subprocess.check_output([sys.executable, "-c", own], cwd=ROOT)) < 200
    del taken


@pytest.mark.nightly(part="scale")
def test_memory_grows_by_little_for_each_participant(tmp_path: Path) -> None:
    """A report of the findings included, in which participants take most."""
    few, many = (pilot(n, str(tmp_path / str(n)))[0].peak_mb for n in (5_000, 10_000))
    assert 1024 * (many - few) / 5_000 < 20  # KB
