"""Ask the researcher before a study file executes code, loads models or sends data away."""

# Consent is stored with a hash of the file's content. So the researcher is asked once, and again if
# the file changes (docs/decisions/0019). Code that a caller names in Python needs no consent.

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.files import user_state_dir
from folkmoot.models.catalog import LOCAL_MODEL, resolve_model
from folkmoot.models.endpoints import list_base_urls
from folkmoot.models.urls import is_this_machine

# If this environment variable is 1, every file on this machine is trusted.
TRUST_ENV_VARIABLE = "FOLKMOOT_TRUST"


@dataclass(frozen=True, slots=True)
class Consent:
    """The researcher's consent to run a study's code, given beforehand or when asked."""

    # Given beforehand.
    granted: bool = False
    # Receives a list of sentences and returns whether the researcher agrees. None if the researcher
    # cannot be asked.
    ask_user: Callable[[Sequence[str]], bool] | None = None
    # How to agree beforehand.
    command_hint: str = "folkmoot.run(…, trust=True)"
    # Code that another process of the run has already executed: file → SHA-256 of its content. It
    # needs no further consent.
    versions: Mapping[str, str] = field(default_factory=dict)

    def require_consent(self, file: Path, requested_actions: Sequence[str], content: bytes) -> None:
        """Raise InputError unless the researcher agrees to all requested actions of a file.

        Each action completes the sentence "this file …".
        """
        # An earlier agreement counts. The consent holds for `content` only.
        if not requested_actions or os.environ.get(TRUST_ENV_VARIABLE) == "1":
            return
        digest = hashlib.sha256(content).hexdigest()
        if digest in _load_consents():
            return
        sentences = [f"this file {action}" for action in requested_actions]
        if self.granted or (
            self.ask_user is not None
            and self.ask_user([f"{file}: {sentence}" for sentence in sentences])
        ):
            _save_consent(digest, file)
            return
        hint = f"if you trust it: {self.command_hint}"
        raise InputError([Problem(sentence, str(file), hint=hint) for sentence in sentences])

    def require_code_execution(self, path: Path, source: bytes) -> None:
        """Raise InputError unless the researcher allows executing this Python file."""
        # The caller must execute `source` and must not read the file again, because the file could
        # have changed.

        # An empty file does nothing. Most files `__init__.py` are empty.
        if not source.strip():
            return
        agreed_digest = self.versions.get(str(path))
        if agreed_digest is None:
            self.require_consent(
                path, ["is Python code and can do everything that you can do"], source
            )
        elif agreed_digest != hashlib.sha256(source).hexdigest():
            raise InputError(f"{path} differs from the file on the machine that started the run")

    def require_network_access(
        self,
        file: Path,
        config: StudyConfig,
        providers: ModelRouter,
        overrides: Sequence[str] = (),
    ) -> None:
        """Raise InputError unless the researcher allows sending data to other computers.

        The addresses of these computers are those that the study file names.
        """
        requested_actions = describe_destinations(config, providers, overrides)
        # The destinations belong to the content: they may come from a `.env` beside the file.
        if requested_actions:
            self.require_consent(
                file,
                requested_actions,
                "\n".join(requested_actions).encode() + b"\0" + file.read_bytes(),
            )

    def require_model_files(
        self, file: Path, providers: ModelRouter, overrides: Sequence[str]
    ) -> None:
        """Raise InputError unless the researcher allows loading the model files of a study file."""
        # The consent holds for the content of each model file. Native code reads such a file, and a
        # forged file could exploit a flaw of that code.

        # Checked before hashing, which takes long for a large file.
        if os.environ.get(TRUST_ENV_VARIABLE) == "1":
            return
        for model in model_files(providers, overrides):
            with model.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            self.require_consent(file, [describe_model_loading(model)], b"model file\0" + content)


def describe_destinations(
    config: StudyConfig, providers: ModelRouter, overrides: Sequence[str] = ()
) -> list[str]:
    """Return sentences on the data that a study file sends to other computers."""
    # Addresses may also come from `.env`. Those in the environment and in `--set` are left out,
    # because the researcher chose them. A server on this machine is named only if it receives an
    # API key.
    typed_urls = {_normalise_url(text.partition("=")[2]) for text in overrides}
    urls_in_file = set(map(_normalise_url, list_base_urls(config.endpoints)))
    destinations = []
    for name, url, variable in providers.list_destinations():
        if not url or _normalise_url(url) in typed_urls:
            continue
        if url == _default_address(name) or (is_this_machine(url) and not variable):
            continue
        sent_data = f"your profiles and the key {variable}" if variable else "your profiles"
        # An address that is not in the study file comes from `.env`.
        is_in_file = _normalise_url(url) in urls_in_file
        description = f"sends {sent_data} to {url}"
        destinations.append(
            description if is_in_file else f"is run beside a .env that {description}"
        )
    return list(dict.fromkeys(destinations))


def model_files(providers: ModelRouter, overrides: Sequence[str]) -> list[Path]:
    """Return the model files on this machine that a study file names.

    Files in `overrides` are left out.
    """
    # The researcher typed the overrides. They include `--model` in the form `model=…`. A
    # `plan.json` may name model files, too.
    typed_values = {text.partition("=")[2].strip(" '\"") for text in overrides}
    model_names = dict.fromkeys(
        name for name in providers.list_models() if name not in typed_values
    )
    paths = [name.partition(":")[2] for name in model_names if name.startswith(f"{LOCAL_MODEL}:")]
    model_paths = (Path(path).expanduser() for path in paths if path)
    return [path for path in model_paths if path.is_file()]


def describe_model_loading(model: Path) -> str:
    """Describe the loading of a model file, in words that complete the sentence "this file …"."""
    return f"loads the model file {model}, which is read by native code"


def _normalise_url(url: str) -> str:
    return url.strip(" '\"").rstrip("/").removesuffix("/v1")


def _default_address(name: str) -> str | None:
    # None if only the study file defines the model.

    # A model that only the study file defines raises InputError here.
    try:
        return resolve_model(name, {}, os.environ).base_url
    except InputError:
        return None


def _consent_file() -> Path:
    return user_state_dir() / "trusted"


def _load_consents() -> set[str]:
    # Without a readable file, consent is asked for again, which is safe.
    try:
        return {line.split()[0] for line in _consent_file().read_text("utf-8").splitlines() if line}
    except (OSError, ValueError, RuntimeError, IndexError):
        return set()


def _save_consent(digest: str, file: Path) -> None:
    # If storing fails, the researcher is asked again next time.
    with suppress(OSError, RuntimeError):
        consent_file = _consent_file()
        consent_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only its owner may write it, and appending keeps lines of other processes.
        handle = os.open(consent_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as out:
            out.write(f"{digest} {file.name!r}\n")
