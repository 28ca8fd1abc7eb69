"""API keys: read from the environment or the nearest `.env`, and removed from all written texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from dotenv import dotenv_values

from folkmoot.errors import InputError, Problem

REDACTED_KEY = "[key removed]"
# A shorter value would be replaced inside ordinary words.
MIN_KEY_CHARACTERS = 8
# Local servers accept any key, such as "x" or "1". A value this short protects nothing, and nearly
# every text contains it.
_MIN_SECRET_CHARACTERS = 4
_KEY_NAME = re.compile(r"(?:API_?KEY|TOKEN|SECRET)$|^(?:GOOGLE|OPENAI|ANTHROPIC|MOONSHOT|EXAONE)$")
# The shapes of vendors' keys, for keys that reached a text by another way than the environment.
_KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|flp|gsk|hf|xai|tgp)[-_][A-Za-z0-9_\-]{16,}|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|(?<=Bearer )[A-Za-z0-9._\-]{8,}|(?<=[?&]key=)[^&\s\"']+"
)


class NeedsKey(Protocol):
    """The attributes of a model that decide which API key it needs."""

    @property
    def name(self) -> str: ...

    @property
    def key_env(self) -> tuple[str, ...]: ...

    @property
    def key_needed(self) -> bool: ...


def load_environment(start: Path | None = None) -> dict[str, str]:
    """Return the variables of the environment and of the nearest `.env` file.

    - `start`: the folder where the search for `.env` begins. Default: the working directory.

    Raises InputError if the file cannot be read.
    """
    # A variable of the environment has priority over the file. `os.environ` is not changed.
    file_values: dict[str, str] = {}
    folder = (start or Path.cwd()).absolute()
    for parent in (folder, *folder.parents):
        file = parent / ".env"
        if file.is_file():
            # A key may contain a dollar sign, so nothing is interpolated.
            try:
                values = dotenv_values(file, interpolate=False)
            except UnicodeDecodeError:
                # PowerShell writes UTF-16 when the output of a command is sent to a file.
                raise InputError(Problem("is not UTF-8", str(file), hint="save it as UTF-8")) from (
                    None
                )
            except OSError as error:
                raise InputError(Problem(f"cannot be read: {error.strerror}", str(file))) from None
            file_values = {name: value for name, value in values.items() if value}
            break
    return {**file_values, **{name: value for name, value in os.environ.items() if value}}


def find_key(spec: NeedsKey, environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """Return the name and value of the first environment variable with a key for this model.

    Returns None if no such variable is set.
    """
    environ = load_environment() if environ is None else environ
    for variable in spec.key_env:
        value = environ.get(variable, "").strip()
        if value:
            return variable, value
    return None


def resolve_key(
    spec: NeedsKey, explicit: str | None, environ: Mapping[str, str] | None = None
) -> str | None:
    """Return the API key for a model: `explicit`, or the key in the environment or `.env`.

    Returns None for a model that needs no key. Raises InputError if a required key is missing.
    """
    if explicit:
        return explicit.strip()
    variable_and_key = find_key(spec, environ)
    if variable_and_key is not None:
        return variable_and_key[1]
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
    """Return a text in which API keys are replaced by a placeholder.

    - `secrets`: more texts to replace. A short one is replaced as a whole word only.
    """
    return key_redactor(secrets)(text)


def key_redactor(secrets: Iterable[str | None]) -> Callable[[str], str]:
    """Return a function that does to each text what `redact_keys` does to one."""
    # Keys are also the values of key variables in the environment, and texts that are shaped like
    # keys.
    secret_values = {
        secret for secret in secrets if secret and len(secret) >= _MIN_SECRET_CHARACTERS
    }
    secret_values.update(
        value
        for name, value in os.environ.items()
        if _KEY_NAME.search(name) and len(value) >= MIN_KEY_CHARACTERS
    )
    # Error pages of proxies show keys as they stand in a URL.
    secret_values.update([quote(secret, safe="") for secret in secret_values])
    # Longest first, because one secret may be the beginning of another.
    longest_first = sorted(secret_values, key=len, reverse=True)

    def redact(text: str) -> str:
        for secret in longest_first:
            if len(secret) >= MIN_KEY_CHARACTERS:
                text = text.replace(secret, REDACTED_KEY)
            else:
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED_KEY, text)
        return _KEY_SHAPES.sub(REDACTED_KEY, text)

    return redact
