"""HTTP by libcurl: many posts at a time over kept connections, and the download of one file.

models/http.py posts through it and persona_hub.py downloads. Knows of no models. Time-outs,
proxies (as the environment names them) and certificates (as Python finds them) are settled here.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import urllib.request
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pycurl

from folkmoot.curl_loop import TransferError, Transfers

R = TypeVar("R")
Answer = tuple[int, Mapping[str, str], bytes]  # status, headers by lower-case name, body

CONNECT_SECONDS = 20
_CHUNK = 1 << 17


class Connections:
    """Connections to one server, opened when needed and kept. Of one event loop."""

    def __init__(self, base_url: str, headers: Mapping[str, str], timeout: float) -> None:
        """`timeout`: seconds for a whole exchange. `headers` go with every request."""
        # A line feed in a key that was pasted must not begin another header.
        self._headers = [
            f"{name}: {' '.join(value.split())}".encode() for name, value in headers.items()
        ]
        self._headers.append(b"Expect:")  # no asking beforehand whether a long body is welcome
        self._timeout = max(1, round(timeout * 1000))
        self._proxy = _proxy_for(base_url)
        self._transfers: Transfers | None = None
        self._idle: list[_Post] = []

    async def post(self, url: str, body: bytes) -> Answer:
        """Post a body, once; redirections are answers too. Raises TransferError."""
        if self._transfers is None:
            self._transfers = Transfers()
        post = self._idle.pop() if self._idle else self._new()
        post.begin(url, body)
        await self._transfers.perform(post.curl)
        answer = post.answer()
        self._idle.append(post)  # not when it failed or was cancelled
        return answer

    async def close(self) -> None:
        if self._transfers is not None:
            self._transfers.close()
            self._transfers = None
            self._idle.clear()

    def _new(self) -> _Post:
        post = _Post(self._proxy)
        post.curl.setopt(pycurl.HTTPHEADER, self._headers)
        post.curl.setopt(pycurl.TIMEOUT_MS, self._timeout)
        return post


class _Post:
    """One request at a time. Made once and used again: most options stay as they are."""

    __slots__ = ("_body", "_head", "_url", "curl")

    def __init__(self, proxy: str) -> None:
        self._url = ""
        self._head: list[bytes] = []
        self._body: list[bytes] = []
        self.curl = _curl(proxy)
        self.curl.setopt(pycurl.POST, 1)
        self.curl.setopt(pycurl.HEADERFUNCTION, self._head.append)
        self.curl.setopt(pycurl.WRITEFUNCTION, self._body.append)

    def begin(self, url: str, body: bytes) -> None:
        if url != self._url:
            self.curl.setopt(pycurl.URL, url.encode())
            self._url = url
        # Read once and not to be rewound: libcurl would send again, unseen and uncounted, what a
        # server may have worked on before it closed the connection. POSTFIELDS would let it.
        self.curl.setopt(pycurl.POSTFIELDSIZE, len(body))
        self.curl.setopt(pycurl.READFUNCTION, BytesIO(body).read)
        self._head.clear()
        self._body.clear()

    def answer(self) -> Answer:
        headers: dict[str, str] = {}
        for line in b"".join(self._head).decode("latin-1").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                headers[name.lower()] = value.strip()
            elif line.startswith("HTTP/"):  # before it: an interim answer, or a proxy's own
                headers.clear()
        return self.curl.getinfo(pycurl.RESPONSE_CODE), headers, b"".join(self._body)


async def download(
    url: str,
    write: Callable[[bytes], object],
    *,
    silence: float,
    progress: Callable[[int, int | None], object] | None = None,
) -> None:
    """Hand the file at `url` to `write`, piece by piece; redirections are followed.

    `progress(bytes so far, bytes in all or None)` is called after each piece. `silence`: seconds
    without a byte before it gives up. Raises TransferError, also when fewer bytes come than were
    announced; what `write` raises comes out as it is.
    """
    curl = _curl(_proxy_for(url))
    curl.setopt(pycurl.URL, url.encode())
    curl.setopt(pycurl.FOLLOWLOCATION, 1)
    curl.setopt(pycurl.FAILONERROR, 1)
    curl.setopt(pycurl.LOW_SPEED_LIMIT, 1)
    curl.setopt(pycurl.LOW_SPEED_TIME, max(1, round(silence)))
    broken: list[Exception] = []

    def safely(call: Callable[[], object]) -> int:
        try:
            call()
        except Exception as error:  # libcurl would print it and say something of its own
            broken.append(error)
            return -1
        return 0

    def take(piece: bytes) -> int:
        return safely(lambda: write(piece)) or len(piece)

    def tell(total: int, done: int, *_: int) -> int:
        return safely(lambda: progress(done, total or None)) if progress and done else 0

    curl.setopt(pycurl.WRITEFUNCTION, take)
    curl.setopt(pycurl.NOPROGRESS, 0)
    curl.setopt(pycurl.XFERINFOFUNCTION, tell)
    transfers = Transfers()
    try:
        await transfers.perform(curl)
    except TransferError:
        if broken:
            raise broken[0] from None
        raise
    finally:
        transfers.close()


def run_async(main: Coroutine[Any, Any, R]) -> R:
    """Run to the end on a loop that libcurl's sockets can be watched in: uvloop where it is."""
    if sys.platform == "win32":
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop
    else:
        from uvloop import new_event_loop as new_loop  # not there on Windows

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def _proxy_for(url: str) -> str:
    """The proxy that the environment names for this address; empty for none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""  # what is no address is said when it is used
    proxies = urllib.request.getproxies()
    if not proxies or urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    return proxies.get(parts.scheme, "")


def _curl(proxy: str) -> pycurl.Curl:
    curl = pycurl.Curl()
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
    curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    curl.setopt(pycurl.ACCEPT_ENCODING, "gzip, deflate")
    curl.setopt(pycurl.USERAGENT, "folkmoot")
    curl.setopt(pycurl.CONNECTTIMEOUT, CONNECT_SECONDS)
    curl.setopt(pycurl.BUFFERSIZE, _CHUNK)
    curl.setopt(pycurl.PROXY, proxy)
    _trust(curl)
    return curl


def _trust(curl: pycurl.Curl) -> None:
    """Check servers against the certificates that Python itself would use."""
    if sys.platform in ("win32", "darwin"):
        curl.setopt(pycurl.SSL_OPTIONS, pycurl.SSLOPT_NATIVE_CA)
    file, folder = _certificates()
    if file:
        curl.setopt(pycurl.CAINFO, file)
    if folder:
        curl.setopt(pycurl.CAPATH, folder)


@lru_cache(maxsize=1)
def _certificates() -> tuple[str | None, str | None]:
    """File and folder of the certificates to trust, SSL_CERT_FILE and SSL_CERT_DIR first."""
    found = ssl.get_default_verify_paths()
    return found.cafile, found.capath
