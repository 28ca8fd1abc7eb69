"""`kill -9` in the middle of a run and `--resume`: the same tables, no answer asked for twice."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "town_hall.yaml"
FLAGS = ["--model", "synthetic", "--set", "sets=1", "--set", "levels=[1, 2-2, 4]"]

# The journal commits in groups, so the process looks at what is committed before it ends itself.
KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
import folkmoot.engine.journal.journal as journal
from folkmoot.cli import main

wanted, put = int(sys.argv.pop(1)), journal.Journal.append

def put_and_die(self, *entry, **how):
    put(self, *entry, **how)
    if len(self) >= wanted:
        os.kill(os.getpid(), signal.SIGKILL)

journal.Journal.append = put_and_die
main()
"""
WHOLE = "from folkmoot.cli import main; main()"


def command(folder: Path, *more: str, killed_after: int = 0) -> list[str]:
    program = ["-c", KILLED, str(killed_after)] if killed_after else ["-c", WHOLE]
    return [sys.executable, *program, "run", str(EXAMPLE), *FLAGS, "--out", str(folder), *more]


def entries(folder: Path) -> int:
    with sqlite3.connect(f"file:{folder}/journal.sqlite?mode=ro", uri=True) as journal:
        return int(journal.execute("SELECT count(*) FROM entries").fetchone()[0])


def kill_after(folder: Path, calls: int, *more: str) -> None:
    ended = subprocess.run(command(folder, *more, killed_after=calls), capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.nightly(part="kills")
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
