"""API keys: found in the environment or the nearest `.env`, kept out of everything written, and
never sent where a stranger could read them.

Used by the runner (to make providers), by `folkmoot models`, by the wire, and by whoever logs an
error.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from dotenv import dotenv_values

from folkmoot.errors import InputError, Problem

HIDDEN = "[key removed]"
_KEY_NAME = re.compile(r"(?:API_?KEY|TOKEN|SECRET)$|^(?:GOOGLE|OPENAI|ANTHROPIC|MOONSHOT|EXAONE)$")
# What keys look like, for those that reached a text by another way than the environment.
_KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|flp|gsk|hf|xai|tgp)[-_][A-Za-z0-9_\-]{16,}|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|(?<=Bearer )[A-Za-z0-9._\-]{8,}|(?<=[?&]key=)[^&\s\"']+"
)

# This machine and private networks (RFC 1918, RFC 3927, RFC 4193, RFC 4291).
_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("127.0.0.0/8", "::1/128", "0.0.0.0/32", "::/128"),
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
        *("fe80::/10", "fc00::/7"),
    )
)
_LOCAL_NAMES = (".local", ".internal", ".home.arpa")  # reserved: no stranger can register one
_SECRET_NAME = re.compile(r"key|token|secret|password|signature|^sig$", re.IGNORECASE)
UNENCRYPTED = (
    "write https://, reach the server by a tunnel to localhost, or, if it needs no key, unset it"
)


class NeedsKey(Protocol):
    """What of a model's description matters here."""

    @property
    def name(self) -> str: ...

    @property
    def key_env(self) -> tuple[str, ...]: ...

    @property
    def key_needed(self) -> bool: ...


def environment(start: Path | None = None) -> dict[str, str]:
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
    environ = environment() if environ is None else environ
    for variable in spec.key_env:
        value = environ.get(variable, "").strip()
        if value:
            return variable, value
    return None


def key_for(
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
            mend=f"put {spec.key_env[0]}=… into the environment or a file named .env; "
            "--model synthetic needs no key",
        )
    )


def refuse_unencrypted(key: str | None, base_url: str | None, model: str = "") -> None:
    """Raise InputError if a key would travel unencrypted to a host that is neither this machine
    nor on a private network. A password or key within the URL counts as well.
    """
    base_url = base_url or ""
    host = unencrypted_host(base_url)
    if host is not None and (key or secrets_in(base_url)):
        whose = f" for {model}" if model else ""
        raise InputError(
            Problem(
                f"the key{whose} would go unencrypted (http://) to {host}, "
                "which is neither this machine nor known to be on a private network",
                mend=UNENCRYPTED,
            )
        )


def unencrypted_host(base_url: str) -> str | None:
    """The host to which this URL sends everything unencrypted over networks of others, if so.

    Private are: this machine, addresses of private networks, and names without a dot (or under
    .local, .internal, .home.arpa) whose addresses are all private.
    """
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
    except ValueError:
        return None  # no address at all: said when it is used
    if parts.scheme.lower() != "http" or not host:
        return None
    return None if _is_private(host.rstrip(".")) else host


def is_this_machine(base_url: str) -> bool:
    """Whether a URL leads nowhere else than to this machine."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secrets_in(url: str) -> list[str]:
    """Passwords and keys that stand in a URL: before the host, or in its query."""
    try:
        parts = urlsplit(url)
        found = [parts.password, *(v for n, v in parse_qsl(parts.query) if _SECRET_NAME.search(n))]
    except ValueError:
        return []
    return [secret for secret in found if secret]


def _is_private(host: str) -> bool:
    try:
        return _is_private_address(host)
    except ValueError:
        pass  # a name
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if "." in host and not host.endswith(_LOCAL_NAMES):
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(_is_private_address(str(address[4][0])) for address in found)


def _is_private_address(text: str) -> bool:
    """Raises ValueError for what is not an IP address."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return any(address in network for network in _PRIVATE)


def scrub(text: str, secrets: Iterable[str | None] = ()) -> str:
    """The text without keys: those given, those of the environment, and what looks like one."""
    known = {s for s in secrets if s}
    known.update(v for n, v in os.environ.items() if _KEY_NAME.search(n) and len(v) >= 8)
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _KEY_SHAPES.sub(HIDDEN, text)
