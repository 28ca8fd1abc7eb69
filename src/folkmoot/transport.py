"""HTTP by aiohttp: many posts at a time over kept connections, and the download of one file.

http_client.py posts through it and persona_hub.py downloads. Knows of no models. Limits, proxies
(as the environment names them), certificates (the system's, and those that the environment names)
and the words for each failure are settled here.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import aiohttp
import truststore

HttpResponse = tuple[int, Mapping[str, str], bytes]  # status, headers by lower-case name, body

CONNECT_SECONDS = 20
_PROBE_SECONDS = 3
_DNS_SECONDS = 300
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class Failure(Enum):
    """Why no complete answer came, as far as the next step depends on it."""

    BAD_ADDRESS = "the URL, the proxy or a file of certificates is not usable; nothing was sent"
    UNREACHABLE = "no server that never answered before could be reached at this address"
    TIMED_OUT = "no whole answer came in time"
    TOO_LARGE = "the answer is longer than the limit; the rest was not read"
    BROKEN = "the connection failed, as it may to any server at times"


class TransferError(Exception):
    """No whole answer came; `failure` says why, the message names the host and holds no secret.

    `answer_began`: the server had sent a status of success before the transfer failed.
    """

    def __init__(self, failure: Failure, message: str, *, answer_began: bool = False) -> None:
        super().__init__(message)
        self.failure = failure
        self.answer_began = answer_began


class HttpRequest(NamedTuple):
    """One request. `seconds` and `limit` (bytes) replace those of the connections for what takes
    longer or is longer than a reply."""

    method: str
    url: str
    body: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    seconds: float | None = None
    limit: int | None = None


class HttpConnections:
    """Connections to one server, opened when needed and kept. Of one event loop."""

    def __init__(
        self, headers: Mapping[str, str], timeout: float, limit: int, reached_hosts: set[str]
    ) -> None:
        """`timeout`: seconds for a whole exchange. `limit`: longest body in bytes, unpacked.
        `headers` go with every request. `reached_hosts` holds all servers that ever answered: one
        that never did has a wrong address, one that did will come back.
        """
        self._headers = headers
        self._timeout = timeout
        self._limit = limit
        self._reached = reached_hosts
        self._session: aiohttp.ClientSession | None = None

    async def send_request(self, exchange: HttpRequest, proxy: str | None = None) -> HttpResponse:
        """Send a request, once; redirections are answers too. Raises TransferError."""
        url = exchange.url
        server = _server_address(url)
        reached = server in self._reached
        try:
            answer = await self._exchange_once(exchange, proxy)
        except TransferError as error:
            if reached and error.failure is Failure.UNREACHABLE:
                raise TransferError(Failure.BROKEN, str(error)) from None
            known = reached or error.answer_began
            if known or error.failure not in (Failure.BROKEN, Failure.TIMED_OUT):
                raise
            wrong = None if proxy else await _detect_scheme_mismatch(url)
            raise TransferError(Failure.UNREACHABLE, wrong) if wrong else error from None
        if not reached:
            # "The plain HTTP request was sent to HTTPS port", says a server that can tell.
            if (
                answer[0] == 400
                and b"HTTPS" in answer[2]
                and (wrong := await _detect_scheme_mismatch(url))
            ):
                raise TransferError(Failure.UNREACHABLE, wrong)
            self._reached.add(server)
        return answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange_once(self, exchange: HttpRequest, proxy: str | None) -> HttpResponse:
        url, limit = exchange.url, exchange.limit or self._limit
        if self._session is None:
            secure = url.lower().startswith("https:")
            self._session = _client_session(secure=secure)
        answer_began = False
        try:
            # aiohttp repeats no POST, whatever becomes of a kept connection. The headers go with
            # the request: those of a session are told to the proxy as well, the key among them.
            async with self._session.request(
                exchange.method,
                url,
                data=exchange.body,
                headers={**self._headers, **exchange.headers},
                proxy=proxy,
                allow_redirects=False,
                timeout=_client_timeout(exchange.seconds or self._timeout),
            ) as response:
                answer_began = response.ok
                whole = await _read_body(response, limit)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return response.status, headers, whole
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failed = _classify_error(error, url, proxy)
            failed.answer_began = answer_began
            raise failed from None


async def download_file(
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
    proxy = proxy_for(url)
    done = 0
    headers = {"Accept-Encoding": "identity"}
    async with _client_session(secure=True, silence=silence) as session:
        try:
            response = await session.get(url, headers=headers, proxy=proxy, raise_for_status=True)
            pieces = response.content
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _classify_error(error, url, proxy) from None
        while True:
            try:
                piece = await pieces.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise _classify_error(error, url, proxy) from None
            if not piece:
                break
            done += len(piece)
            write(piece)
            if progress is not None:
                progress(done, response.content_length)


def proxy_for(url: str) -> str | None:
    """The proxy that the environment (else the system) names for this address, if any.

    HTTP_PROXY or HTTPS_PROXY, else ALL_PROXY, in either case; none for hosts of NO_PROXY.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None  # an invalid URL is reported when it is used
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or urllib.request.proxy_bypass(_host_and_port(parts)):
        return None
    return found if "://" in found else f"http://{found}"


def _client_timeout(total: float | None, silence: float | None = None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total, sock_connect=CONNECT_SECONDS, sock_read=silence)


def _client_session(*, secure: bool, silence: float | None = None) -> aiohttp.ClientSession:
    """A session without cookies, with as many connections as are needed."""
    context = _ssl_context() if secure else True
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=_DNS_SECONDS, ssl=context),
        headers={"User-Agent": "folkmoot"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=_client_timeout(None, silence),
    )


def _ssl_context() -> ssl.SSLContext:
    """The certificates of the system, and those that the environment names."""
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for variable in _CA_VARIABLES:
        named = os.environ.get(variable)
        if not named:
            continue
        where = "capath" if Path(named).is_dir() else "cafile"
        try:
            context.load_verify_locations(**{where: named})
        except OSError as error:
            why = error.strerror or error
            raise TransferError(
                Failure.BAD_ADDRESS, f"{variable} names {named}, which holds no certificates: {why}"
            ) from None
    return context


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body, unpacked; hardly more of it than the limit is ever in memory."""
    pieces: list[bytes] = []
    left = limit
    while piece := await response.content.readany():
        left -= len(piece)
        if left < 0:
            response.close()
            megabytes = f"{limit / 1e6:g} MB"
            raise TransferError(Failure.TOO_LARGE, f"the answer is longer than {megabytes}")
        pieces.append(piece)
    return b"".join(pieces)


async def _detect_scheme_mismatch(url: str) -> str | None:
    """In words, if the server speaks TLS where http:// is written, or plain HTTP for https://."""
    parts = urlsplit(url)
    secure = parts.scheme.lower() == "https"
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(
                parts.hostname,
                parts.port or (443 if secure else 80),
                ssl=None if secure else unchecked,
            )
            try:
                if not secure:  # and yet TLS was agreed
                    return f"{_host_and_port(parts)} speaks TLS: write https:// in its base URL"
                writer.write(b"HEAD / HTTP/1.0\r\n\r\n")
                if await reader.read(5) == b"HTTP/":
                    return (
                        f"{_host_and_port(parts)} speaks plain HTTP: write http:// in its base URL"
                    )
            finally:
                writer.close()
    except (OSError, ValueError):  # a TimeoutError is an OSError
        pass
    return None


def _classify_error(error: Exception, url: str, proxy: str | None) -> TransferError:
    """Which failure an error of aiohttp is."""
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        return TransferError(Failure.BAD_ADDRESS, "not an http:// or https:// URL")
    server = _host_and_port(urlsplit(url))
    host = f"the proxy {_host_and_port(urlsplit(proxy))}" if proxy else server
    match error:
        case aiohttp.ClientConnectorCertificateError():
            known = getattr(error.certificate_error, "verify_message", "")
            return TransferError(
                Failure.UNREACHABLE,
                f"the TLS certificate of {server} is not accepted "
                f"({known or error.certificate_error}); if it is your own, set SSL_CERT_FILE to "
                "the certificate of its authority",
            )
        case aiohttp.ClientConnectorDNSError():
            return TransferError(Failure.UNREACHABLE, f"{host}: this host name is not known")
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return TransferError(Failure.BROKEN, f"{server}: no TLS connection")
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            why = os.strerror(number) if number else str(error.os_error)
            return TransferError(Failure.UNREACHABLE, f"{host}: {why}")
        case aiohttp.ConnectionTimeoutError():
            why = f"{host}: no connection within {CONNECT_SECONDS} s"
            return TransferError(Failure.BROKEN, why)
        case TimeoutError():
            return TransferError(Failure.TIMED_OUT, f"{host}: no answer in time")
        case aiohttp.ClientHttpProxyError():
            passing = error.status == 429 or error.status >= 500
            failure = Failure.BROKEN if passing else Failure.UNREACHABLE
            return TransferError(failure, f"{host} answered {error.status} {error.message}")
        case aiohttp.ClientResponseError():
            return TransferError(Failure.BROKEN, f"{host}: HTTP {error.status} {error.message}")
        case aiohttp.ServerDisconnectedError():
            return TransferError(Failure.BROKEN, f"{host} closed the connection")
        case aiohttp.ClientPayloadError():
            return TransferError(Failure.BROKEN, f"{host} sent an answer that was cut short")
        case aiohttp.ClientError() | OSError():
            return TransferError(Failure.BROKEN, f"{host}: {error}")
    return TransferError(Failure.BAD_ADDRESS, f"{host} cannot be used: {error}")


def _server_address(url: str) -> str:
    """Scheme, host and port: what may be reached or not."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{_host_and_port(parts)}".lower()


def _host_and_port(parts: SplitResult) -> str:
    """host:port, without a password before it."""
    return parts.netloc.rpartition("@")[2]
