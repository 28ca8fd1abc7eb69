"""Base URLs: paths below them, keys inside them, and whether what is sent there is encrypted.

Used by the catalog, the wire formats, and whoever sends a key.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from folkmoot.errors import InputError, Problem

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
_SECRET_NAME = re.compile(
    r"key|token|secret|password|signature|^sig$|auth|credential|cookie", re.IGNORECASE
)
UNENCRYPTED_MESSAGE = (
    "write https://, reach the server through a tunnel to localhost, or, if it needs no key, "
    "unset it"
)


def join_url(base: str, path: str) -> str:
    """A path below a base URL; both may have a query. Raises ValueError for an invalid URL."""
    parts = urlsplit(base)
    path, _, more = path.partition("?")
    query = "&".join(filter(None, (parts.query, more)))
    return urlunsplit((*parts[:2], parts.path.rstrip("/") + path, query, ""))


def ensure_version(base: str, version: str) -> str:
    """The base URL with a version at its end (`/v1`, `/v1beta`): its own, else this one."""
    try:
        if re.search(r"/v\d+\w*$", urlsplit(base).path.rstrip("/")):
            return base
        return join_url(base, version)
    except ValueError:
        return base  # an invalid URL is reported when it is used


def require_encryption(key: str | None, base_url: str | None, model: str = "") -> None:
    """Raise InputError if a key would travel unencrypted to a host that is neither this machine
    nor on a private network. A password or key within the URL counts as well.
    """
    base_url = base_url or ""
    host = find_unencrypted_host(base_url)
    if host is not None and (key or find_secrets(base_url)):
        whose = f" for {model}" if model else ""
        raise InputError(
            Problem(
                f"the key{whose} would travel unencrypted (http://) to {host}, "
                "which is neither this machine nor known to be on a private network",
                hint=UNENCRYPTED_MESSAGE,
            )
        )


def find_unencrypted_host(base_url: str) -> str | None:
    """The host to which this URL sends everything unencrypted over networks of others, if so.

    Private are: this machine, addresses of private networks, and names without a dot (or under
    .local, .internal, .home.arpa) whose addresses are all private.
    """
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
    except ValueError:
        return None  # an invalid URL is reported when it is used
    if parts.scheme.lower() != "http" or not host:
        return None
    return None if _is_private(host.rstrip(".")) else host


def is_this_machine(base_url: str) -> bool:
    """Whether a URL leads to this machine."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name in a URL or a header is a secret."""
    return bool(_SECRET_NAME.search(name))


def find_secrets(url: str) -> list[str]:
    """Passwords and keys in a URL: before the host, or in its query."""
    try:
        parts = urlsplit(url)
        found = [
            parts.password,
            *(value for name, value in parse_qsl(parts.query) if is_secret_name(name)),
        ]
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
