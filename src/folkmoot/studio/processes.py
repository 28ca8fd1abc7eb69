"""Start the command line for checks and runs, and store entered API keys."""
# A run is a separate process in its own session, so it continues when the studio ends. The messages
# and arguments of the run are written to files. A later studio can then resume the run. API keys
# are passed only in the environment, because other users can read the arguments of a process.

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
from itertools import count, pairwise
from pathlib import Path
from threading import Lock
from typing import Any

from filelock import FileLock, Timeout

from folkmoot.engine.session.folder_access import HOLDER_FILE, LOCK_FILE, is_held
from folkmoot.errors import EXIT_PAUSED, InputError
from folkmoot.files import write_bytes
from folkmoot.hints import number_text
from folkmoot.models.api_keys import load_environment, redact_keys
from folkmoot.models.catalog import KNOWN_MODELS, resolve_model
from folkmoot.storage.run_folder import RunFolder

# Folder below `outputs` with the arguments and the messages of runs.
RECORDS = ".studio"
# A page shows the end of the messages only. A long run writes many.
MAX_MESSAGE_BYTES = 20_000
# The links for humans are at the beginning, and may be far above the last messages.
MAX_LINK_BYTES = 100_000
# The lines with the links for humans, which a run prints when its pages are ready.
_LINK = re.compile(r"^(One link for all|All seats, for you alone|Seat .+): (https?://\S+)$", re.M)
# Terminal escape sequences, which progress displays write.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(slots=True)
class Keys:
    """The API keys that the researcher entered, each under the name of an environment variable."""

    # They are only in memory.

    entered: dict[str, str] = field(default_factory=dict, repr=False)

    def variables(self) -> list[str]:
        """Return the names of the environment variables for the API keys of all known models."""
        specs = map(resolve_model, KNOWN_MODELS)
        names = {spec.key_env[0] for spec in specs if spec.key_env}
        return sorted(names | set(self.entered))

    def state(self, variable: str, folder: Path) -> str:
        """Return `entered`, `set` or `missing` for the API key in this environment variable."""
        # A key is `set` if it is in the environment of this process or in `.env`.
        if variable in self.entered:
            return "entered"
        return "set" if load_environment(folder).get(variable) else "missing"

    def environ(self) -> dict[str, str]:
        """Return the environment variables of this process together with the entered keys."""
        return {**os.environ, **self.entered}

    def scrub(self, text: str) -> str:
        """Return a text with all entered keys removed."""
        return redact_keys(text, self.entered.values())


@dataclass(frozen=True, slots=True)
class ProcessMessages:
    """The output of a command and its exit code.

    The exit code is None while the command runs.
    """

    text: str
    exit_code: int | None
    # Names and addresses of the pages for humans in the run.
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CheckOutput:
    """The result of `folkmoot check --json`."""

    result: dict[str, Any]
    # What the check printed, if it ended without a result.
    messages: str = ""


class Processes:
    """The `folkmoot` processes that the studio starts in a folder, and their state."""

    def __init__(self, folder: Path, outputs: Path, keys: Keys) -> None:
        self.folder = folder
        self.keys = keys
        self._outputs = outputs
        self._records = outputs / RECORDS
        # Requests are answered by several threads.
        self._starting = Lock()
        # By the name of the run, see `_name_of`.
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._checks: dict[str, asyncio.subprocess.Process] = {}

    async def check(self, path: Path) -> CheckOutput:
        """Run `folkmoot check` on a study file and return its result."""
        # An earlier check of the same file that is still running is killed, because its result is
        # outdated.
        name = str(path)
        if (
            earlier_check := self._checks.pop(name, None)
        ) is not None and earlier_check.returncode is None:
            earlier_check.kill()
        process = await asyncio.create_subprocess_exec(
            # A name below the working directory keeps the folder of the studio out of messages.
            *_command("check", os.path.relpath(path, self.folder), "--json"),
            cwd=self.folder,
            env={**self.keys.environ(), "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._checks[name] = process
        output, messages = await process.communicate()
        # A later check of the same file may have replaced this one while it ran.
        if self._checks.get(name) is process:
            del self._checks[name]
        try:
            return CheckOutput(json.loads(self._clean(output)))
        except ValueError:
            # An error in the code of a study author ends the command before it prints a result.
            return CheckOutput({}, self._clean(messages))

    def start_new(self, stem: str, words: Sequence[str]) -> Path:
        """Start a run in a new folder and return the folder.

        The folder is `outputs/STEM`, `outputs/STEM_2` and so on. If a process with these arguments
        has not created its folder yet, no further one is started: a button was pressed twice.
        """
        with self._starting:
            for n in count(1):
                run = self._outputs / (stem if n == 1 else f"{stem}_{n}")
                if run.exists():
                    continue
                if not self._is_started(run):
                    self._start(run, words)
                    return run
                if self.started_with(run) == list(words):
                    return run
        raise AssertionError

    def _is_started(self, run: Path) -> bool:
        process = self._started.get(self._name_of(run))
        return process is not None and process.poll() is None

    def _start(self, run: Path, words: Sequence[str]) -> None:
        # Starts `folkmoot run` with the arguments `words` and the run folder `run`.
        # The process continues if the studio ends.
        self._record(run, "json").parent.mkdir(parents=True, exist_ok=True)
        # The arguments are written before the start, so that a later studio can resume the run even
        # if this one ends now.
        write_bytes(self._record(run, "json"), json.dumps(list(words)).encode())
        arguments = ["run", *words, "--out", str(run)]
        with self._record(run, "log").open("wb") as messages:
            self._started[self._name_of(run)] = subprocess.Popen(
                _command(*arguments),
                cwd=self.folder,
                env={**self.keys.environ(), "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def resume(self, run: Path, study_file: Path, budget: str) -> None:
        """Resume a run with its original arguments and the given budget."""
        # An empty budget keeps the one before. A page that was not updated may resume a run that
        # is in progress. A second process would only replace the messages of the first.
        with self._starting:
            if not self._is_started(run) and not is_held(run):
                self._start(run, self._resume_words(run, study_file, budget))

    def _resume_words(self, run: Path, study_file: Path, budget: str) -> list[str]:
        arguments = self.started_with(run) or [str(study_file)]
        arguments = [word for word in arguments if word != "--resume"]
        # Without the option, the command resumes a run without its limit.
        budget = budget or self.budget_of(run)
        if "--budget" in arguments:
            position = arguments.index("--budget")
            del arguments[position : position + 2]
        return [*arguments, "--resume", *(["--budget", budget] if budget else [])]

    def budget_of(self, run: Path) -> str:
        """Return the budget of a run in US dollars, or "" if it has none.

        Raises StorageError if the study file of the run cannot be read.
        """
        # The run may have been started or resumed at the command line. Its folder has the budget
        # of the last start, and the record only that of the last start by a studio.
        budget = RunFolder(run).config.get("budget_usd")
        if isinstance(budget, (int, float)) and not isinstance(budget, bool):
            return number_text(budget)
        arguments = self.started_with(run)
        return dict(pairwise(arguments)).get("--budget", "")

    def started_with(self, run: Path) -> list[str]:
        """Return the arguments with which the studio started a run.

        The list is empty for runs that the studio did not start.
        """
        try:
            words = json.loads(self._record(run, "json").read_bytes())
        except (OSError, ValueError):
            return []
        return words if isinstance(words, list) else []

    def messages_of(self, run: Path) -> ProcessMessages:
        """Return the messages and the exit code of a run that the studio started."""
        try:
            output = self._record(run, "log").read_bytes()
        except OSError:
            output = b""
        started = self._started.get(self._name_of(run))
        # A run of an earlier studio is not a child of this process. Whether it runs shows in the
        # lock of its folder.
        code = started.poll() if started is not None else None if is_held(run) else EXIT_PAUSED
        beginning, end = output[:MAX_LINK_BYTES], output[-MAX_MESSAGE_BYTES:]
        links = tuple((match[1], match[2]) for match in _LINK.finditer(self._clean(beginning)))
        return ProcessMessages(self._clean(end), code, links)

    def pause(self, run: Path) -> None:
        """Stop a run as Ctrl-C does, so that it can be resumed.

        A run that is not in progress stays as it is. Raises InputError if it is on another machine.
        """
        # Running calls are completed. A run may end while its page still shows the button.
        try:
            holder = json.loads((run / HOLDER_FILE).read_bytes())
            pid, host = int(holder["pid"]), holder["host"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if host != socket.gethostname():
            raise InputError(f"{run.name} runs on {host}: press Ctrl-C there")
        # A killed run leaves its process number behind, and another process may have that number
        # now. Only a process that holds the lock of the folder is the run.
        try:
            with FileLock(run / LOCK_FILE, timeout=0):
                return
        except Timeout:
            os.kill(pid, signal.SIGINT)

    def _record(self, run: Path, suffix: str) -> Path:
        return self._records / f"{self._name_of(run)}.{suffix}"

    def _name_of(self, run: Path) -> str:
        # Cells of two grids may have folders of the same name.
        is_below = run.is_relative_to(self._outputs)
        return run.relative_to(self._outputs).as_posix() if is_below else run.name

    def _clean(self, output: bytes) -> str:
        return self.keys.scrub(_ESCAPES.sub("", output.decode("utf-8", "replace"))).strip()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "folkmoot", *words]


def run_words(study: str, settings: Mapping[str, str]) -> list[str]:
    """Return the arguments of `folkmoot run` for a study file."""
    # Empty settings are left out.
    set_options = [(name, value) for name, value in settings.items() if value]
    return [study, *(word for pair in set_options for word in pair)]
