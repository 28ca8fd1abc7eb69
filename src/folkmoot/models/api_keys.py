"""API keys: found in the environment or the nearest `.env`, kept out of everything written.

Used by the runner (to make providers), by `folkmoot models`, by the wire, and wherever errors
are logged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from dotenv import dotenv_values

from folkmoot.errors import InputError, Problem

REDACTED_KEY = "[key removed]"
_KEY_NAME = re.compile(r"(?:API_?KEY|TOKEN|SECRET)$|^(?:GOOGLE|OPENAI|ANTHROPIC|MOONSHOT|EXAONE)$")
# What keys look like, for those that reached a text by another way than the environment.
_KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|flp|gsk|hf|xai|tgp)[-_][A-Za-z0-9_\-]{16,}|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|(?<=Bearer )[A-Za-z0-9._\-]{8,}|(?<=[?&]key=)[^&\s\"']+"
)


class NeedsKey(Protocol):
    """What this module needs to know of a model."""

    @property
    def name(self) -> str: ...

    @property
    def key_env(self) -> tuple[str, ...]: ...

    @property
    def key_needed(self) -> bool: ...


def load_environment(start: Path | None = None) -> dict[str, str]:
    """The environment over the nearest `.env` from `start` (default: here) upwards.

    A variable that is set in the environment wins; nothing is written to `os.environ`.
    """
    found: dict[str, str] = {}
    folder = (start or Path.cwd()).absolute()
    for parent in (folder, *folder.parents):
        file = parent / ".env"
        if file.is_file():
            values = dotenv_values(file, interpolate=False)
            found = {name: value for name, value in values.items() if value}
            break
    return {**found, **{name: value for name, value in os.environ.items() if value}}


def find_key(spec: NeedsKey, environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """(variable, key) of the first variable of this model that is set; None if none is."""
    environ = load_environment() if environ is None else environ
    for variable in spec.key_env:
        value = environ.get(variable, "").strip()
        if value:
            return variable, value
    return None


def resolve_key(
    spec: NeedsKey, explicit: str | None = None, environ: Mapping[str, str] | None = None
) -> str | None:
    """The key to call this model with: `explicit`, else from the environment or `.env`.

    None for a model that needs none (a local server). Raises InputError that names the variable.
    """
    if explicit:
        return explicit.strip()
    found = find_key(spec, environ)
    if found is not None:
        return found[1]
    if not spec.key_needed:
        return None
    raise InputError(
        Problem(
            f"{spec.name} needs an API key, and {' or '.join(spec.key_env)} is not set",
            hint=f"put {spec.key_env[0]}=… into the environment or a file named .env; "
            "--model synthetic needs no key",
        )
    )


def redact_keys(text: str, secrets: Iterable[str | None] = ()) -> str:
    """The text without keys: those given, those of the environment, and what looks like one."""
    known = {secret for secret in secrets if secret}
    known.update(
        value for name, value in os.environ.items() if _KEY_NAME.search(name) and len(value) >= 8
    )
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, REDACTED_KEY)
    return _KEY_SHAPES.sub(REDACTED_KEY, text)
