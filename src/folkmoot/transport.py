"""HTTP with aiohttp: concurrent requests over open connections, and the download of a file."""
# Size limits, proxies, certificates and the wording of failures are handled here. Proxies and
# certificates are taken from the environment and the system. aiohttp is imported where it is used:
# it reads all certificates of the system during the import, and most commands send no request.

from __future__ import annotations

import asyncio
import os
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

import truststore

if TYPE_CHECKING:
    import aiohttp

# Status, headers by lower-case name, and body.
HttpResponse = tuple[int, Mapping[str, str], bytes]

# Opening a connection that takes longer counts as failed.
CONNECT_SECONDS = 20
_PROBE_SECONDS = 3
_DNS_SECONDS = 300
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class Failure(Enum):
    """The reasons why no complete response was received.

    Callers treat each reason differently.
    """

    BAD_ADDRESS = "the URL, the proxy or a file of certificates is not usable; nothing was sent"
    UNREACHABLE = "no server that never answered before could be reached at this address"
    TIMED_OUT = "no whole answer came in time"
    TOO_LARGE = "the answer is longer than the limit; the rest was not read"
    BROKEN = "the connection failed, as it may to any server at times"


class TransferError(Exception):
    """No complete response was received."""

    # The message names the host and contains no secret. `answer_began` is True if the server had
    # sent a success status before the transfer failed. `may_be_processed` is True if the server may
    # have processed the request: the body was sent, and no error status came back.

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.answer_began = False
        self.may_be_processed = False


class HttpRequest(NamedTuple):
    """One HTTP request."""

    method: str
    url: str
    body: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    # The limits of a large transfer. None means the limits of the connections (`seconds`, `limit`).
    seconds: float | None = None
    limit: int | None = None


class HttpConnections:
    """Connections to one server in one event loop, opened when needed and kept open."""

    def __init__(
        self, headers: Mapping[str, str], timeout: float, limit: int, reached_hosts: set[str]
    ) -> None:
        """Store the settings without opening a connection.

        - `headers`: sent with every request.
        - `timeout`: the maximum time in seconds from sending a request to the end of the response.
        - `limit`: the maximum size of a decompressed response body, in bytes.
        - `reached_hosts`: servers that have answered before.
        """
        # A failure of a server that never answered may be due to a wrong address.
        self._headers = headers
        self._timeout = _client_timeout(timeout)
        self._limit = limit
        self._reached = reached_hosts
        self._session: aiohttp.ClientSession | None = None

    async def send_request(self, request: HttpRequest, proxy: str | None = None) -> HttpResponse:
        """Send a request once and return the response.

        Raises TransferError if the transfer fails.
        """
        # A redirect is returned and not followed.
        url = request.url
        server = _server_address(url)
        was_reached = server in self._reached
        try:
            answer = await self._exchange_once(request, proxy)
        except TransferError as error:
            if was_reached and error.failure is Failure.UNREACHABLE:
                raise TransferError(Failure.BROKEN, str(error)) from None
            is_known = was_reached or error.answer_began
            # The server never answered before. Test whether http:// and https:// were confused,
            # which otherwise looks like a dropped connection.
            if is_known or error.failure not in (Failure.BROKEN, Failure.TIMED_OUT):
                raise
            mismatch = None if proxy else await _detect_scheme_mismatch(url)
            raise TransferError(Failure.UNREACHABLE, mismatch) if mismatch else error from None
        if not was_reached:
            # Some servers answer "The plain HTTP request was sent to HTTPS port".
            if (
                answer[0] == 400
                and b"HTTPS" in answer[2]
                and (mismatch := await _detect_scheme_mismatch(url))
            ):
                raise TransferError(Failure.UNREACHABLE, mismatch)
            self._reached.add(server)
        return answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange_once(self, request: HttpRequest, proxy: str | None) -> HttpResponse:
        import aiohttp

        url, limit = request.url, request.limit or self._limit
        if self._session is None:
            is_secure = url.lower().startswith("https:")
            self._session = _client_session(secure=is_secure)
        upload, status = aiohttp.UploadTracker(), 0
        try:
            # aiohttp never repeats a POST, even if a kept connection fails. The headers belong to
            # the request and not to the session, because aiohttp sends session headers to the proxy
            # too, including the key.
            async with await self._session.request(
                request.method,
                url,
                data=request.body,
                headers={**self._headers, **request.headers},
                proxy=proxy,
                allow_redirects=False,
                timeout=_client_timeout(request.seconds) if request.seconds else self._timeout,
                upload_tracker=upload,
            ) as response:
                status = response.status
                body = await _read_body(response, limit)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return response.status, headers, body
        except (aiohttp.ClientError, OSError, ValueError) as error:
            transfer_error = _classify_error(error, url, proxy)
            transfer_error.answer_began = 0 < status < 400
            transfer_error.may_be_processed = upload.bytes_written > 0 and status < 400
            raise transfer_error from None


async def download_file(
    url: str,
    write: Callable[[bytes], object],
    *,
    silence: float,
    progress: Callable[[int, int | None], object] | None = None,
) -> None:
    """Download the file at `url` and pass the data to `write` in pieces.

    - `silence`: the seconds without data after which the download fails.
    - `progress`: called after each piece with the received and the total bytes.

    Raises TransferError if the file does not arrive whole.
    """
    # The total is None if the server does not announce it. Redirects are followed.
    import aiohttp

    proxy = proxy_for(url)
    received_bytes = 0
    # Without compression, the announced length is that of the file.
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
            received_bytes += len(piece)
            write(piece)
            if progress is not None:
                progress(received_bytes, response.content_length)


def proxy_for(url: str) -> str | None:
    """Return the proxy for an address. Returns None if there is none."""
    # HTTP_PROXY or HTTPS_PROXY have priority over ALL_PROXY, in upper or lower case. Hosts in
    # NO_PROXY get no proxy.
    try:
        parts = urlsplit(url)
    except ValueError:
        # An invalid URL is reported when it is used.
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(_host_and_port(parts)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _client_timeout(total: float | None, silence: float | None = None) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total, sock_connect=CONNECT_SECONDS, sock_read=silence)


def _client_session(*, secure: bool, silence: float | None = None) -> aiohttp.ClientSession:
    # `silence`: the seconds without data after which a transfer fails.
    import aiohttp

    context = _ssl_context() if secure else True
    return aiohttp.ClientSession(
        # The rate limiter of the engine limits the calls, so the connector does not.
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=_DNS_SECONDS, ssl=context),
        headers={"User-Agent": "folkmoot"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=_client_timeout(None, silence),
    )


def _ssl_context() -> ssl.SSLContext:
    # The certificates are those of the system and of environment variables.
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for variable in _CA_VARIABLES:
        path = os.environ.get(variable)
        if not path:
            continue
        parameter = "capath" if Path(path).is_dir() else "cafile"
        try:
            context.load_verify_locations(**{parameter: path})
        except OSError as error:
            reason = error.strerror or error
            raise TransferError(
                Failure.BAD_ADDRESS,
                f"{variable} names {path}, which holds no certificates: {reason}",
            ) from None
    return context


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    pieces: list[bytes] = []
    remaining = limit
    while not response.content.at_eof():
        piece = await response.content.readany()
        remaining -= len(piece)
        if remaining < 0:
            # Stop reading at once, so that a huge body never fills the memory.
            response.close()
            megabytes = f"{limit / 1e6:g} MB"
            raise TransferError(Failure.TOO_LARGE, f"the answer is longer than {megabytes}")
        pieces.append(piece)
    return b"".join(pieces)


async def _detect_scheme_mismatch(url: str) -> str | None:
    # A server may expect https:// for an http:// address or vice versa.
    parts = urlsplit(url)
    is_secure = parts.scheme.lower() == "https"
    unverified_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The test only asks whether the server speaks TLS. It sends no data, so the certificate is not
    # checked.
    unverified_context.check_hostname, unverified_context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(
                parts.hostname,
                parts.port or (443 if is_secure else 80),
                ssl=None if is_secure else unverified_context,
            )
            try:
                # The address is http://, but the TLS handshake succeeded.
                if not is_secure:
                    return f"{_host_and_port(parts)} speaks TLS: write https:// in its base URL"
                writer.write(b"HEAD / HTTP/1.0\r\n\r\n")
                if await reader.read(5) == b"HTTP/":
                    return (
                        f"{_host_and_port(parts)} speaks plain HTTP: write http:// in its base URL"
                    )
            finally:
                writer.close()
    except (OSError, ValueError):
        # The test found nothing (a TimeoutError is an OSError). The first failure is reported.
        pass
    return None


def _classify_error(error: Exception, url: str, proxy: str | None) -> TransferError:
    import aiohttp

    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        return TransferError(Failure.BAD_ADDRESS, "not an http:// or https:// URL")
    server = _host_and_port(urlsplit(url))
    host = f"the proxy {_host_and_port(urlsplit(proxy))}" if proxy else server
    # The order matters: the classes are nested, and the first match decides.
    match error:
        case aiohttp.ClientConnectorCertificateError():
            verify_message = getattr(error.certificate_error, "verify_message", "")
            return TransferError(
                Failure.UNREACHABLE,
                f"the TLS certificate of {server} is not accepted "
                f"({verify_message or error.certificate_error}); if it is your own, set "
                "SSL_CERT_FILE to "
                "the certificate of its authority",
            )
        case aiohttp.ClientConnectorDNSError():
            return TransferError(Failure.UNREACHABLE, f"{host}: this host name is not known")
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return TransferError(Failure.BROKEN, f"{server}: no TLS connection")
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            reason = os.strerror(number) if number else str(error.os_error)
            return TransferError(Failure.UNREACHABLE, f"{host}: {reason}")
        case aiohttp.ConnectionTimeoutError():
            reason = f"{host}: no connection within {CONNECT_SECONDS} s"
            return TransferError(Failure.BROKEN, reason)
        case TimeoutError():
            return TransferError(Failure.TIMED_OUT, f"{host}: no answer in time")
        case aiohttp.ClientHttpProxyError():
            is_transient = error.status == 429 or error.status >= 500
            failure = Failure.BROKEN if is_transient else Failure.UNREACHABLE
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


@lru_cache(256)
def _server_address(url: str) -> str:
    # The key under which a server is remembered.
    parts = urlsplit(url)
    return f"{parts.scheme}://{_host_and_port(parts)}".lower()


def _host_and_port(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]
