"""Ctrl-C ends a command quietly with exit code 130, wherever it falls."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.default_signals import add_default_signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")

# The process interrupts itself when it begins to import a module, or at its end.
PROGRAM = """
import atexit, os, signal, sys

place = sys.argv.pop(1)

def interrupt():
    print("Ctrl-C", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGINT)

class Importer:
    def find_spec(self, name, path=None, target=None):
        global place
        if name == place:
            place = ""
            interrupt()

if place == "the end":
    atexit.register(interrupt)
sys.meta_path.insert(0, Importer())
from folkmoot.cli import main
main()
"""


def run_interrupted(place: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = add_default_signals(sys.executable, "-c", PROGRAM, place, *words)
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "place",
    [
        "folkmoot.cli.app",
        "typer",
        "rich.console",
        "folkmoot.cli.models",
        "folkmoot.models.catalog",
        "pydantic_core._pydantic_core",
        "the end",
    ],
)
def test_ctrl_c_ends_a_command_quietly(place: str) -> None:
    ended = run_interrupted(place, "models")
    said = ended.stderr.replace("Ctrl-C", "", 1)
    assert "Ctrl-C" in ended.stderr and said.strip() in ("", "Interrupted.")
    assert ended.returncode == 130
    # At the end, the output is complete.
    assert ("openai/" in ended.stdout) == (place == "the end")


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """A shell without job control ignores Ctrl-C in the jobs that it starts in the background."""
    ignore = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    execute = f"{ignore}os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", execute, "-c", PROGRAM, "typer", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "Ctrl-C\n")
    assert ended.stdout.startswith("folkmoot ")
