"""Base URLs: join paths, find keys inside URLs, and check that keys are sent encrypted."""

from __future__ import annotations

import ipaddress
import re
import socket
from functools import lru_cache
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from folkmoot.errors import InputError, Problem

# Where the vendors of the three wire formats serve their own models.
OPENAI_BASE_URL = "https://api.openai.com/v1"
ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1"
GEMINI_BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
# This machine and private networks (RFC 1918, RFC 3927, RFC 4193, RFC 4291).
_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("127.0.0.0/8", "::1/128", "0.0.0.0/32", "::/128"),
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
        *("fe80::/10", "fc00::/7"),
    )
)
# These domains are reserved for local use, so an outsider cannot register one.
_LOCAL_NAMES = (".local", ".internal", ".home.arpa")
_SECRET_NAME = re.compile(
    r"key|token|secret|password|signature|^sig$|auth|credential|cookie", re.IGNORECASE
)
UNENCRYPTED_MESSAGE = (
    "use https://, connect to the server through a tunnel to localhost, or unset the key if the "
    "server needs none"
)


@lru_cache(256)
def join_url(base: str, path: str) -> str:
    """Return the URL of a path below a base URL. Raises ValueError for an invalid URL."""
    # Both the base URL and the path may have a query.
    parts = urlsplit(base)
    path, _, further_query = path.partition("?")
    query = "&".join(filter(None, (parts.query, further_query)))
    return urlunsplit((*parts[:2], parts.path.rstrip("/") + path, query, ""))


def ensure_version(base: str, version: str) -> str:
    """Return a base URL that ends with a version such as `/v1` or `/v1beta`.

    - `version`: added only if the URL does not end with a version.
    """
    try:
        if re.search(r"/v\d+\w*$", urlsplit(base).path.rstrip("/")):
            return base
        return join_url(base, version)
    except ValueError:
        # An invalid URL is reported when it is used.
        return base


def require_encryption(key: str | None, base_url: str | None, model: str = "") -> None:
    """Raise InputError if a key would be sent unencrypted over a public network."""
    # A password or key inside the URL counts as a key. This machine and private networks are
    # exempt.
    base_url = base_url or ""
    host = find_unencrypted_host(base_url)
    if host is not None and (key or find_secrets(base_url)):
        model_text = f" for {model}" if model else ""
        raise InputError(
            Problem(
                f"the key{model_text} would be sent unencrypted (http://) to {host}, "
                "which is neither this machine nor known to be on a private network",
                hint=UNENCRYPTED_MESSAGE,
            )
        )


def find_unencrypted_host(base_url: str) -> str | None:
    """Return the host of a URL, if requests to the host cross public networks unencrypted.

    Returns None if requests are encrypted or stay on a private network.
    """
    # This machine, addresses of private networks and local names are not public. A local name
    # resolves only to private addresses. It has no dot, or ends in `.local` or a similar suffix.
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
    except ValueError:
        # An invalid URL is reported when it is used.
        return None
    if parts.scheme.lower() != "http" or not host:
        return None
    return None if _is_private(host.rstrip(".")) else host


def is_this_machine(base_url: str) -> bool:
    """Return True if a URL leads to this machine."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_secret_name(name: str) -> bool:
    """Return True if a URL parameter or header with this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def find_secrets(url: str) -> list[str]:
    """Return the passwords and keys in a URL."""
    # From its user information and its query.
    try:
        parts = urlsplit(url)
        secrets = [
            parts.password,
            *(value for name, value in parse_qsl(parts.query) if is_secret_name(name)),
        ]
    except ValueError:
        return []
    return [secret for secret in secrets if secret]


def _is_private(host: str) -> bool:
    try:
        return _is_private_address(host)
    except ValueError:
        # The host is a name and not an address.
        pass
    if host == "localhost" or host.endswith(".localhost"):
        return True
    # Anyone can register a name with a dot and point it to a private address for a while.
    if "." in host and not host.endswith(_LOCAL_NAMES):
        return False
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(_is_private_address(str(address[4][0])) for address in addresses)


def _is_private_address(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    # `::ffff:10.0.0.1` is an IPv4 address in IPv6 notation. Compare it as IPv4.
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return any(address in network for network in _PRIVATE)
