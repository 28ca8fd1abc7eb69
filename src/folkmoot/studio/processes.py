"""The command line, started by the studio: checks, tries, runs. Keys that a person entered.

A run is a process apart, in a session of its own, so that it goes on when the studio ends. Its
messages go into a file, and how it was started into another, so that a later studio can resume it.
Keys are given by the environment alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from folkmoot.engine.session.folder_access import HOLDER_FILE, LOCK_FILE, is_held
from folkmoot.errors import EXIT_PAUSED, InputError
from folkmoot.files import write_bytes
from folkmoot.models.api_keys import load_environment, redact_keys
from folkmoot.models.catalog import KNOWN_MODELS, resolve_model

RECORDS = ".studio"  # below `outputs`: how runs were started, and what they said
MAX_MESSAGE_BYTES = 20_000
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(slots=True)
class Keys:
    """API keys that were entered, by variable; they live as long as this process."""

    entered: dict[str, str] = field(default_factory=dict, repr=False)

    def variables(self) -> list[str]:
        """The variables in which keys of known models are looked for."""
        specs = map(resolve_model, KNOWN_MODELS)
        names = {spec.key_env[0] for spec in specs if spec.key_env}
        return sorted(names | set(self.entered))

    def state(self, variable: str, folder: Path) -> str:
        """`entered`, `set` (in the environment or `.env`) or `missing`."""
        if variable in self.entered:
            return "entered"
        return "set" if load_environment(folder).get(variable) else "missing"

    def environ(self) -> dict[str, str]:
        """The environment of a process that may use the keys."""
        return {**os.environ, **self.entered}

    def scrub(self, text: str) -> str:
        """A text without keys."""
        return redact_keys(text, self.entered.values())


@dataclass(frozen=True, slots=True)
class Told:
    """What a command said and how it ended; `exit_code` is None while it goes on."""

    text: str
    exit_code: int | None


class Processes:
    """Starts `folkmoot` in a folder, and finds out what became of it."""

    def __init__(self, folder: Path, outputs: Path, keys: Keys) -> None:
        self.folder = folder
        self.keys = keys
        self._records = outputs / RECORDS
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._checks: dict[str, asyncio.subprocess.Process] = {}

    async def check(self, path: Path) -> Told:
        """What `folkmoot check` says of a study file. An earlier check of it that goes on ends."""
        name = str(path)
        if (earlier := self._checks.pop(name, None)) is not None and earlier.returncode is None:
            earlier.kill()
        process = await asyncio.create_subprocess_exec(
            *_command("check", name),
            cwd=self.folder,
            env={**self.keys.environ(), "COLUMNS": "110", "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._checks[name] = process
        said, _ = await process.communicate()
        if self._checks.get(name) is process:
            del self._checks[name]
        return Told(self._clean(said), process.returncode)

    def start(self, run: Path, words: Sequence[str]) -> None:
        """Start `folkmoot run` with these words and this run folder, in a process that survives."""
        self._records.mkdir(parents=True, exist_ok=True)
        write_bytes(self._record(run, "json"), json.dumps(list(words)).encode())
        arguments = ["run", *words, "--out", str(run)]
        with self._record(run, "log").open("wb") as messages:
            self._started[run.name] = subprocess.Popen(
                _command(*arguments),
                cwd=self.folder,
                env={**self.keys.environ(), "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def resume(self, run: Path, study_file: Path, budget: str) -> None:
        """Resume a run as it was started, with another budget if one is given."""
        words = self.started_with(run) or [str(study_file)]
        words = [word for word in words if word != "--resume"]
        if budget and "--budget" in words:
            at = words.index("--budget")
            del words[at : at + 2]
        self.start(run, [*words, "--resume", *(["--budget", budget] if budget else [])])

    def started_with(self, run: Path) -> list[str]:
        """The words that a run was started with here; empty for others."""
        try:
            found = json.loads(self._record(run, "json").read_bytes())
        except (OSError, ValueError):
            return []
        return found if isinstance(found, list) else []

    def messages_of(self, run: Path) -> Told:
        """What a run that was started here has said on the way."""
        try:
            said = self._record(run, "log").read_bytes()[-MAX_MESSAGE_BYTES:]
        except OSError:
            said = b""
        started = self._started.get(run.name)
        code = started.poll() if started is not None else None if is_held(run) else EXIT_PAUSED
        return Told(self._clean(said), code)

    def pause(self, run: Path) -> None:
        """Tell a run to stop as Ctrl-C does: calls in flight are kept, and it can be resumed."""
        try:
            holder = json.loads((run / HOLDER_FILE).read_bytes())
            pid, host = int(holder["pid"]), holder["host"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{run.name} is not running") from None
        if host != socket.gethostname():
            raise InputError(f"{run.name} runs on {host}: press Ctrl-C there")
        try:  # a killed run leaves its number, which another process may have by now
            with FileLock(run / LOCK_FILE, timeout=0):
                raise InputError(f"{run.name} is not running")
        except Timeout:
            os.kill(pid, signal.SIGINT)

    def _record(self, run: Path, suffix: str) -> Path:
        return self._records / f"{run.name}.{suffix}"

    def _clean(self, said: bytes) -> str:
        return self.keys.scrub(_ESCAPES.sub("", said.decode("utf-8", "replace"))).strip()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "folkmoot", *words]


def run_words(study: str, settings: Mapping[str, str]) -> list[str]:
    """The words of `folkmoot run` for a study file; settings that are empty are left out."""
    given = [(name, value) for name, value in settings.items() if value]
    return [study, *(word for pair in given for word in pair)]
