"""The servers of models: the addresses under `endpoints:` in a study file.

An address is a base URL, a mapping of `url`, `headers` and `query`, or a list of such addresses.
"""

# Addresses never contain secrets. `${NAME}` is replaced by a value from the environment or `.env`
# when a server is opened. No copy of the settings contains the value.

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.models.api_keys import redact_keys
from folkmoot.models.urls import find_secrets, is_secret_name, join_url

# Maps a model or vendor to its address, as written in the study file.
Endpoints = Mapping[str, object]

_VARIABLE = re.compile(r"\$\{(\w+)\}")
# The characters of a header name (RFC 9110).
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PAIRS = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number"]}}
_SERVER_KEYS = {
    "url": {"type": "string", "pattern": r"\S", "description": "base URL of the server"},
    "headers": {**_PAIRS, "description": "headers of every request: name → text, or ${VARIABLE}"},
    "query": {**_PAIRS, "description": "query of every request: name → text, or ${VARIABLE}"},
}
_KEYS = tuple(_SERVER_KEYS)
_ONE_SERVER = (
    {"type": "string", "pattern": r"\S"},
    {
        "type": "object",
        "properties": _SERVER_KEYS,
        "required": ["url"],
        "additionalProperties": False,
    },
)
# The JSON Schema of an address. Study files embed it, so that editors can check the key.
ADDRESS_SCHEMA: dict[str, Any] = {
    "anyOf": [*_ONE_SERVER, {"type": "array", "items": {"anyOf": [*_ONE_SERVER]}, "minItems": 1}]
}
_SECRET_HINT = (
    "which would be written into the run folder; put it into the environment or .env and write "
    "${NAME} in its place"
)
# In characters. A shorter value (a region, a version) is no secret. Redacting it would damage
# ordinary words.
MIN_SECRET_CHARACTERS = 6


class Server(NamedTuple):
    """One server of a model, as the study file describes it."""

    # Variables such as `${NAME}` in the values are not yet replaced.

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()

    @property
    def variable_names(self) -> tuple[str, ...]:
        """The names of the environment variables in headers and query, each once."""
        texts = (text for _, text in (*self.headers, *self.query))
        return tuple(dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)))


class ResolvedServer(NamedTuple):
    """A server from the study file, with the values of environment variables filled in."""

    url: str
    headers: Mapping[str, str]
    # These values, to be hidden in messages.
    secrets: tuple[str, ...]


def parse_servers(address: object) -> tuple[Server, ...]:
    """Return the servers of an address. Raises ValueError for an invalid address."""
    if isinstance(address, (list, tuple)):
        if not address:
            raise ValueError("the list of servers is empty")
        return tuple(server for item in address for server in parse_servers(item))
    if isinstance(address, str):
        return (_parse_server({"url": address}),)
    if isinstance(address, Mapping):
        return (_parse_server(address),)
    raise ValueError(
        "must be a base URL, a mapping with the keys url, headers and query, or a list of these"
    )


def list_base_urls(endpoints: Endpoints) -> Iterator[str]:
    """Yield all base URLs under `endpoints:`."""
    for address in endpoints.values():
        yield from (server.url for server in parse_servers(address))


def resolve_server(server: Server, environ: Mapping[str, str]) -> ResolvedServer:
    """Return a server with the values of its environment variables filled in.

    Raises InputError for a variable that is not set.
    """
    missing = [name for name in server.variable_names if not environ.get(name)]
    if missing:
        raise InputError(
            Problem(
                f"the server {server.url} needs {' and '.join(missing)}, which is not set",
                key="endpoints",
                hint=f"put {missing[0]}=… into the environment or a file named .env",
            )
        )

    def substitute(text: str) -> str:
        return _VARIABLE.sub(lambda match: environ[match[1]].strip(), text)

    headers = {name: substitute(text) for name, text in server.headers}
    query = "&".join(f"{quote(name)}={quote(substitute(text))}" for name, text in server.query)
    values = [environ[name].strip() for name in server.variable_names]
    secret_values = [value for value in values if len(value) >= MIN_SECRET_CHARACTERS]
    url = join_url(server.url, f"?{query}") if query else server.url
    # Errors may quote the URL, where the values are percent-encoded. So both spellings are secrets.
    return ResolvedServer(
        url, headers, tuple(dict.fromkeys((*secret_values, *map(quote, secret_values))))
    )


def _parse_server(address: Mapping[str, object]) -> Server:
    for key in address:
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}. {did_you_mean(str(key), _KEYS)}".rstrip())
    url = address.get("url")
    if not isinstance(url, str) or not url.strip():
        raise ValueError("url is missing")
    if find_secrets(url):
        raise ValueError(
            f"the URL holds a key or a password, {_SECRET_HINT}, under headers or query"
        )
    parts = [_parse_pairs(name, address.get(name) or {}) for name in ("headers", "query")]
    for name, _ in parts[0]:
        if not _HEADER.fullmatch(name):
            raise ValueError(f"headers: {name!r} is not a valid header name")
    return Server(url.strip().rstrip("/"), *parts)


def _parse_pairs(part: str, raw_pairs: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw_pairs, Mapping):
        raise ValueError(f"{part} must be a mapping from names to texts")
    pairs = tuple((str(name), str(text)) for name, text in raw_pairs.items())
    for name, text in pairs:
        if _contains_secret(name, text):
            raise ValueError(f"{part}: {name} holds a key, {_SECRET_HINT}")
    return pairs


def _contains_secret(name: str, text: str) -> bool:
    # Under a name such as `api_key`, every plain value counts as a secret. Under any other name,
    # only a text that is shaped like a key counts.
    remaining = _VARIABLE.sub("", text)
    # The words "Bearer" and "Basic" alone are no secret: `Bearer ${TOKEN}` is correct.
    is_secret = is_secret_name(name) and bool(
        re.sub(r"^(?:bearer|basic)\b", "", remaining.strip(), flags=re.I)
    )
    return is_secret or redact_keys(remaining) != remaining
