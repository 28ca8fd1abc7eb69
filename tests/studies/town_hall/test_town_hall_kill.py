"""`kill -9` in the middle of a run and `--resume`: the same tables, no answer asked for twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "town_hall.yaml"
FLAGS = ["--model", "synthetic", "--set", "sets=1", "--set", "levels=[1, 2-2, 4]"]


def command(folder: Path, *more: str) -> list[str]:
    program = [sys.executable, "-c", "from folkmoot.cli import main; main()"]
    return [*program, "run", str(EXAMPLE), *FLAGS, "--out", str(folder), *more]


def entries(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder}/journal.sqlite?mode=ro", uri=True) as journal:
            return int(journal.execute("SELECT count(*) FROM entries").fetchone()[0])
    except sqlite3.Error:
        return 0


def kill_after(folder: Path, calls: int, *more: str) -> None:
    running = subprocess.Popen(
        command(folder, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while running.poll() is None and entries(folder) < calls:
        time.sleep(0.02)
    if running.poll() is None:
        os.kill(running.pid, signal.SIGKILL)
    running.wait()


@pytest.mark.nightly
def test_killed_and_resumed_is_the_same_run(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(whole), check=True, capture_output=True)
    kill_after(broken, 60)
    kill_after(broken, 300, "--resume")
    assert not (broken / "tables").exists()
    subprocess.run(command(broken, "--resume"), check=True, capture_output=True)
    assert entries(broken) == entries(whole)
    tables = sorted(p.name for p in (whole / "tables").iterdir())
    assert tables == sorted(p.name for p in (broken / "tables").iterdir())
    for name in [*(f"tables/{t}" for t in tables), "levels.json", "quality.json"]:
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    for file in sorted(whole.glob("set01_*/*.json")):
        same = broken / file.relative_to(whole)
        assert file.read_bytes() == same.read_bytes(), same
