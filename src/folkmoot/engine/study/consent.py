"""Ask the user before a file of another author runs code, loads a model file or sends data away.

Consent is remembered by the file's content, so it is given once and a changed file is asked
about again (docs/decisions/0019). What the caller names in Python is the caller's own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.models.catalog import LOCAL_MODEL, resolve_model
from folkmoot.models.endpoints import list_base_urls
from folkmoot.models.urls import is_this_machine

TRUST_ENV_VARIABLE = "FOLKMOOT_TRUST"  # =1: every file that is run here is one's own


@dataclass(frozen=True, slots=True)
class Consent:
    """How a user agrees: beforehand (`granted`), or when asked with a list of sentences.

    `ask_user` is None if the user cannot be asked; `command_hint` is what to type then. `versions`:
    SHA-256 of code files, by path, that another process of the same run agreed to and executed.
    """

    granted: bool = False
    ask_user: Callable[[Sequence[str]], bool] | None = None
    command_hint: str = "folkmoot.run(…, trust=True)"
    versions: Mapping[str, str] = field(default_factory=dict)

    def require_consent(self, file: Path, requested_actions: Sequence[str], content: bytes) -> None:
        """Return if the user agrees to every wish of the file, now or earlier.

        Each wish completes "this file …". `content` is what the yes holds for. Raises InputError.
        """
        if not requested_actions or os.environ.get(TRUST_ENV_VARIABLE) == "1":
            return
        digest = hashlib.sha256(content).hexdigest()
        if digest in _load_consents():
            return
        sentences = [f"this file {wish}" for wish in requested_actions]
        if self.granted or (
            self.ask_user is not None
            and self.ask_user([f"{file}: {sentence}" for sentence in sentences])
        ):
            _save_consent(digest, file)
            return
        hint = f"if you trust it: {self.command_hint}"
        raise InputError([Problem(sentence, str(file), hint=hint) for sentence in sentences])

    def require_code_execution(self, path: Path, source: bytes) -> None:
        """Return if a Python file with this content may be executed. Raises InputError.

        The caller executes `source` and does not read the file again.
        """
        if not source.strip():  # the usual `__init__.py`
            return
        agreed = self.versions.get(str(path))
        if agreed is None:
            self.require_consent(path, ["is Python code and can do anything you can"], source)
        elif agreed != hashlib.sha256(source).hexdigest():
            raise InputError(f"{path} is not the same as on the machine that started the run")

    def require_network_access(
        self,
        file: Path,
        config: StudyConfig,
        providers: ModelRouter,
        overrides: Sequence[str] = (),
    ) -> None:
        """Return if the study file may send what it sends, and where. Raises InputError."""
        wishes = describe_destinations(config, providers, overrides)
        if wishes:
            self.require_consent(
                file, wishes, "\n".join(wishes).encode() + b"\0" + file.read_bytes()
            )

    def require_model_files(
        self, file: Path, providers: ModelRouter, overrides: Sequence[str] = ()
    ) -> None:
        """Return if the model files that the study file names may be loaded. Raises InputError.

        The yes holds for the content of each model file: it is read by native code, for which a
        forged one can be as good as a program.
        """
        if os.environ.get(TRUST_ENV_VARIABLE) == "1":  # a large file takes long to hash
            return
        for model in model_files(providers, overrides):
            with model.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            self.require_consent(file, [describe_model_loading(model)], b"model file\0" + content)


def describe_destinations(
    config: StudyConfig, providers: ModelRouter, overrides: Sequence[str] = ()
) -> list[str]:
    """What goes to addresses that stand in a file (the study file or `.env`), in sentences.

    Addresses in the environment and in `--set` are the user's own. Nothing leaves the machine for
    a server on it, so that one is only named where a key goes along.
    """
    typed = {_normalise_url(text.partition("=")[2]) for text in overrides}
    named_here = set(map(_normalise_url, list_base_urls(config.endpoints)))
    found = []
    for name, url, variable in providers.list_destinations():
        if not url or _normalise_url(url) in typed:
            continue
        if url == _default_address(name) or (is_this_machine(url) and not variable):
            continue
        what = f"your profiles and the key {variable}" if variable else "your profiles"
        named = _normalise_url(url) in named_here
        where = f"sends {what} to {url}"
        found.append(where if named else f"is run beside a .env that {where}")
    return list(dict.fromkeys(found))


def model_files(providers: ModelRouter, overrides: Sequence[str] = ()) -> list[Path]:
    """Return the model files of this machine that a study file or a sealed plan names.

    `overrides`: what the user typed, `--model` as `model=…`, which is the user's own.
    """
    typed = {text.partition("=")[2].strip(" '\"") for text in overrides}
    named = dict.fromkeys(name for name in providers.list_models() if name not in typed)
    paths = [name.partition(":")[2] for name in named if name.startswith(f"{LOCAL_MODEL}:")]
    found = (Path(path).expanduser() for path in paths if path)
    return [path for path in found if path.is_file()]


def describe_model_loading(model: Path) -> str:
    """Say what loading a model file means, as a sentence that begins with "this file"."""
    return f"loads the model file {model}, which is read by native code"


def _normalise_url(url: str) -> str:
    """An address, whatever its ending."""
    return url.strip(" '\"").rstrip("/").removesuffix("/v1")


def _default_address(name: str) -> str | None:
    """Where this model is asked for without any file's word."""
    try:
        return resolve_model(name, {}, os.environ).base_url
    except InputError:
        return None


def _consent_file() -> Path:
    """The file of everything that was agreed to, where the system keeps such files."""
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Application Support"
    else:
        root = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return root / "folkmoot" / "trusted"


def _load_consents() -> set[str]:
    try:
        return {line.split()[0] for line in _consent_file().read_text("utf-8").splitlines() if line}
    except (OSError, ValueError, RuntimeError, IndexError):
        return set()


def _save_consent(digest: str, file: Path) -> None:
    """Consent that cannot be stored is asked for again."""
    with suppress(OSError, RuntimeError):
        memory = _consent_file()
        memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(memory, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as out:
            out.write(f"{digest} {file.name!r}\n")
