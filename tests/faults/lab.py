"""Helpers of the fault tests: study files, the command line, and the journal of a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import StorageError
from folkmoot.models.request import Message, ModelRequest
from folkmoot.models.wire.openai_chat import encode_request
from tests.default_signals import add_default_signals
from tests.servers.answers import calculate_digest
from tests.waiting import wait_until

KEY = "key-that-must-not-be-found-0451"
MODEL = "openai/test-model"

PANEL = """
from folkmoot import Scope, Session, Speaker, Study, StudyConfig


class Config(StudyConfig):
    people: int = 24
    turns: int = 8


async def protocol(session: Session) -> None:
    async def talk(scope: Scope, n: int) -> None:
        who = Speaker(f"p{n}", system=f"You are person {n}.")
        for turn in range(session.config.turns):
            said = await scope.ask(who, f"Question {turn}?")
            scope.record("said", {"person": n, "turn": turn, "text": said})

    await session.map(range(session.config.people), talk)


STUDY = Study(name="panel", title="A panel", config=Config, protocol=protocol)
"""

PILOT = """
pilot_id: small
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
participants_per_condition: 6
min_responses_for_threshold: 5
max_clarification_exchanges: 3
max_socratic_exchanges: 3
revote: true
option_order: random
personas: {source: quota}
"""

SETTINGS = f"""
model: {MODEL}
concurrency: 8
api_retry_base_seconds: 0.05
quota_wait_seconds: 0.2
"""


def write_panel_study(folder: Path, settings: str = "") -> Path:
    """Write a study of 24 participants with 8 questions each. Return the path of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "panel.py").write_text(PANEL)
    path = folder / "panel.yaml"
    path.write_text(f"study: ./panel.py\n{SETTINGS}{settings}")
    return path


def write_pilot_study(folder: Path, settings: str = "") -> Path:
    """Write a pilot with six participants in each condition. Return the path of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pilot.yaml"
    path.write_text(f"{PILOT}{SETTINGS}{settings}")
    return path


class CommandLine:
    """The command `folkmoot` with one server."""

    def __init__(self, base_url: str, key: str = KEY) -> None:
        self.env = {
            # Allow compiled files, because most of the test time is start-up.
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": key,
            "COLUMNS": "200",
        }

    def start(self, *args: object, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            add_default_signals(Path(sys.executable).with_name("folkmoot"), *args),
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **more,
        )

    def run(self, *args: object, expect: int = 0) -> str:
        """Run a command to its end inside the test process and return the output. Fail if the exit
        code is not `expect`."""
        arguments = [*map(str, args)]
        with pytest.MonkeyPatch.context() as patched:
            # The printed resume command repeats it.
            patched.setattr(sys, "argv", ["folkmoot", *arguments])
            result = CliRunner().invoke(app, arguments, env=self.env)
        assert result.exit_code == expect, f"exit {result.exit_code}\n{result.output}"
        return result.output

    def run_in_process(self, *args: object, expect: int = 0, **more: Any) -> str:
        """Run a command in a new process and return the output. `more`: arguments of `Popen`."""
        process = self.start(*args, **more)
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == expect, f"exit {process.returncode}\n{printed}"
        return printed

    def run_until(
        self,
        moment: Callable[[], bool],
        act: Callable[[subprocess.Popen[str]], None],
        *args: object,
    ) -> tuple[int, str]:
        """Start a command and call `act` once `moment` is true. Return exit code and output."""
        process = self.start(*args)
        wait_until(lambda: process.poll() is not None or moment())
        act(process)
        printed, _ = process.communicate(timeout=120)
        return process.returncode, printed


def read_table_bytes(run: Path) -> dict[str, bytes]:
    """Return the bytes of all files in `tables` by file name."""
    bytes_by_name = {p.name: p.read_bytes() for p in sorted((run / "tables").iterdir())}
    assert bytes_by_name
    return bytes_by_name


def count_journaled_requests(run: Path) -> Counter[str]:
    """Count the requests in the journal by the digest of their HTTP body."""
    try:
        with JournalReader(run / "journal.sqlite") as journal:
            request_counts = Counter(
                _request_digest(entry.request) for entry in journal.read_entries("ask")
            )
            return request_counts + Counter(
                _embed_digest(entry.request) for entry in journal.read_entries("embed")
            )
    except StorageError:  # the journal does not exist yet
        return Counter()


def _request_digest(request: Any) -> str:
    messages = tuple(
        Message(message["role"], message["content"]) for message in request["messages"]
    )
    api_id = request["model"].partition("/")[2]
    request_to_model = ModelRequest(
        api_id, messages, request["temperature"], request["max_tokens"], request.get("schema")
    )
    return calculate_digest(encode_request(request_to_model))


def _embed_digest(request: Any) -> str:
    api_id = request["model"].partition("/")[2]
    return calculate_digest(
        {"model": api_id, "input": request["texts"], "encoding_format": "float"}
    )


def read_all_bytes(folder: Path) -> bytes:
    """Return the bytes of all files of a folder, joined by line breaks."""
    return b"\n".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def has_resume_command(printed: str) -> bool:
    """Return whether the output contains the command that resumes the run."""
    return bool(re.search(r"folkmoot run .*--resume", printed))
