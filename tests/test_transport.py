"""HTTP with real servers and networks: TLS, proxies, connections that close."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from folkmoot import transport
from folkmoot.errors import FatalModelError, InputError, RefusedError, TransientError
from folkmoot.models.request import ProviderSettings
from folkmoot.models.wire.http_client import HttpClient, error_from_response
from folkmoot.transport import (
    Failure,
    HttpConnections,
    HttpRequest,
    TransferError,
    download_file,
    proxy_for,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
MB = 1_000_000
Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]


@pytest.fixture(autouse=True)
def _without_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_PROBE_SECONDS", 0.5)
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


class ServerLog:
    """The connections and requests of a test server."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.url = ""
        self.connection_closed = asyncio.Event()  # set when the client closes a connection


@asynccontextmanager
async def serve_http(
    handle_request: Handler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ServerLog]:
    """Serve HTTP. `handle_request` gets head and body, and returns whether to keep the
    connection open."""
    server_log = ServerLog()
    tasks: set[asyncio.Task[None] | None] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_log.connections += 1
        tasks.add(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length")
                    ),
                    0,
                )
                request = head + await reader.readexactly(length)
                server_log.requests.append(request)
                if not await handle_request(request, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            server_log.connection_closed.set()
        finally:
            writer.close()

    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    server_log.url = f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}"
    async with server:
        yield server_log
        server.close()
        for task in tasks:
            if task is not None:
                task.cancel()


def reply_with(*pieces: bytes, keep_open: bool = True) -> Handler:
    async def handle_request(_: bytes, writer: asyncio.StreamWriter) -> bool:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return keep_open

    return handle_request


reply_hi = reply_with(OK)


async def wait_until_closed(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has closed its connection."""
    reader: asyncio.StreamReader = writer._reader  # type: ignore[attr-defined]
    while await reader.read(1 << 16):
        pass


@asynccontextmanager
async def open_connections(
    timeout: float = 30, limit: int = 8 * MB, **headers: str
) -> AsyncIterator[HttpConnections]:
    connections = HttpConnections(headers, timeout, limit, set())
    try:
        yield connections
    finally:
        await connections.close()


@asynccontextmanager
async def open_client(
    url: str, reached_hosts: set[str] | None = None, key: str | None = None, **settings: float
) -> AsyncIterator[HttpClient]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    all_settings = {"timeout": 30.0, **settings}
    client = HttpClient(
        url,
        headers,
        ProviderSettings(
            url,
            key,
            reached_hosts=set() if reached_hosts is None else reached_hosts,
            **all_settings,
        ),  # type: ignore[arg-type]
    )
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
def certificate_authority() -> trustme.CA:
    return trustme.CA()


def make_server_tls_context(certificate_authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate_authority.issue_cert("localhost").configure_cert(context)
    return context


def find_free_port() -> int:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        return int(bound_socket.getsockname()[1])


# Requests and answers.


async def test_connections_are_reused_and_opened_as_needed() -> None:
    async with serve_http(reply_hi) as server_log, open_connections() as connections:
        for _ in range(20):
            assert await connections.send_request(HttpRequest("POST", server_log.url, b"x")) == (
                200,
                {"content-length": "2"},
                b"hi",
            )
        assert server_log.connections == 1
        answers = await asyncio.gather(
            *(
                connections.send_request(HttpRequest("POST", server_log.url, b"y" * n))
                for n in range(300)
            )
        )
        assert {answer[2] for answer in answers} == {b"hi"}
        assert len(server_log.requests) == 320 and server_log.connections <= 301
        assert sorted(
            len(request.split(b"\r\n\r\n", 1)[1]) for request in server_log.requests[20:]
        ) == [*range(300)]


@pytest.mark.parametrize("abruptly", [False, True])
async def test_a_request_is_never_resent_silently(abruptly: bool) -> None:
    """A server that drops the connection after it has processed a request may have billed it."""
    last = False

    async def handle_request(_: bytes, writer: asyncio.StreamWriter) -> bool:
        if last and abruptly:
            writer.transport.abort()
        return not last and await reply_hi(_, writer)

    async with serve_http(handle_request) as server_log, open_connections() as connections:
        await connections.send_request(HttpRequest("POST", server_log.url, b"first"))
        last = True
        with pytest.raises(TransferError) as caught:
            await connections.send_request(HttpRequest("POST", server_log.url, b"second"))
        assert caught.value.failure is Failure.BROKEN and caught.value.may_be_processed
        assert len(server_log.requests) == 2
        last = False
        assert (await connections.send_request(HttpRequest("POST", server_log.url, b"third")))[
            0
        ] == 200


async def test_a_cancelled_request_closes_its_connection_and_no_other() -> None:
    arrived = asyncio.Event()

    async def handle_request(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if request.endswith(b"slow"):
            arrived.set()
            await wait_until_closed(writer)
            server_log.connection_closed.set()
            return False
        return await reply_hi(request, writer)

    async with serve_http(handle_request) as server_log, open_connections() as connections:
        slow_requests = [
            asyncio.ensure_future(
                connections.send_request(HttpRequest("POST", server_log.url, b"slow"))
            )
            for _ in range(5)
        ]
        await arrived.wait()
        for request_task in slow_requests:
            request_task.cancel()
        results = await asyncio.gather(*slow_requests, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert (await connections.send_request(HttpRequest("POST", server_log.url, b"quick")))[
            2
        ] == b"hi"
        await server_log.connection_closed.wait()


async def test_responses_in_all_encodings_are_read() -> None:
    body = gzip.compress(b"word " * 1000)
    handle_request = reply_with(
        b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n",
        b"HTTP/1.1 429 Slow down\r\nX-RateLimit-Limit-Requests:  5 \r\n",
        b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n",
    )
    async with serve_http(handle_request) as server_log, open_connections() as connections:
        status, headers, body = await connections.send_request(
            HttpRequest("POST", server_log.url, b"")
        )
    assert (status, body) == (429, b"word " * 1000)
    assert headers["x-ratelimit-limit-requests"] == "5" and "retry-after" not in headers


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly so much",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nno packet",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"",
    ],
)
async def test_a_truncated_or_invalid_response_is_an_error(answer: bytes) -> None:
    async with (
        serve_http(reply_with(answer, keep_open=False)) as server_log,
        open_connections() as connections,
    ):
        with pytest.raises(TransferError) as caught:
            await connections.send_request(HttpRequest("POST", server_log.url, b""))
        assert caught.value.failure is Failure.BROKEN


async def test_a_silent_server_times_out() -> None:
    async def handle_request(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nso far")
        await wait_until_closed(writer)
        return False

    async with (
        serve_http(handle_request) as server_log,
        open_client(server_log.url, timeout=0.2) as client,
    ):
        with pytest.raises(TransientError, match=r"no response within 0\.2 s"):
            await client.post_json("/chat", {})


# Keys and addresses.


async def test_keys_are_not_sent_to_the_target_of_a_redirect() -> None:
    """A redirect is reported and not followed."""
    async with serve_http(reply_hi) as target_log:
        redirect = f"HTTP/1.1 307 Moved\r\nLocation: {target_log.url}\r\nContent-Length: 0\r\n\r\n"
        async with (
            serve_http(reply_with(redirect.encode())) as server_log,
            open_client(server_log.url, key="secret") as client,
        ):
            response = await client.post_json("/chat", {})
    assert target_log.requests == []
    assert b"\r\nAuthorization: Bearer secret\r\n" in server_log.requests[0]
    error = error_from_response(*response)
    assert isinstance(error, FatalModelError) and target_log.url in str(error)


@pytest.mark.parametrize("key", ["s\nX-Other: é", "s\r", "a\x00b"])
async def test_a_line_break_in_a_key_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="line break") as caught:
        async with open_client("http://127.0.0.1:1", key=key):
            raise AssertionError("the key was taken")
    assert "X-Other" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("http://[::1", "ftp://127.0.0.1/x", "nonsense", "http://", "https:///v1"),
        *("http://127.0.0.1:99999/v1", "127.0.0.1:80/v1", "/v1", "http://127.0.0.1:port/"),
    ],
)
async def test_an_invalid_base_url_is_reported(url: str) -> None:
    async with open_client(url) as client:
        with pytest.raises(FatalModelError, match="is not a base URL"):
            await client.post_json("/chat", {})


async def test_a_password_in_the_url_is_sent_and_not_reported() -> None:
    response = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
    async with serve_http(reply_with(response, keep_open=False)) as server_log:
        url = server_log.url.replace("//", "//ann:hidden-one@") + "/v1?api-key=hidden-two"
        async with open_client(url, reached_hosts={server_log.url}) as client:
            await client.post_json("/chat", {})
    assert b"\r\nAuthorization: Basic " in server_log.requests[0]
    assert server_log.requests[0].startswith(b"POST /v1/chat?api-key=hidden-two ")
    async with open_client(url) as client:
        with pytest.raises(FatalModelError, match="127") as caught:
            await client.post_json("/chat", {})
    assert "hidden" not in str(caught.value)


# Proxies.


async def test_the_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_http(reply_hi) as proxy_log:
        monkeypatch.setenv(
            "HTTP_PROXY", "http://127.0.0.1:1"
        )  # the lower-case variable takes precedence
        monkeypatch.setenv("http_proxy", proxy_log.url)
        monkeypatch.setenv("no_proxy", "here.invalid")
        async with open_client("http://there.invalid/v1") as client:
            assert (await client.post_json("/chat", {}))[2] == b"hi"
        assert proxy_log.requests[0].startswith(b"POST http://there.invalid/v1/chat ")
        for unproxied_url in ("http://here.invalid/v1", "http://x.here.invalid:80/v1"):
            async with open_client(unproxied_url) as client:
                with pytest.raises(FatalModelError, match=r"here\.invalid"):
                    await client.post_json("/chat", {})
        assert len(proxy_log.requests) == 1


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"])
async def test_https_uses_a_tunnel_through_the_proxy(
    variable: str,
    certificate_authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proxy gets the host name but neither the key nor the question."""
    certificate_file = tmp_path / "authority.pem"
    certificate_authority.cert_pem.write_to_path(str(certificate_file))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate_file))
    async with serve_http(reply_hi, make_server_tls_context(certificate_authority)) as server_log:
        port = int(server_log.url.rpartition(":")[2])

        async def tunnel(_: bytes, writer: asyncio.StreamWriter) -> bool:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            client_reader: asyncio.StreamReader = writer._reader  # type: ignore[attr-defined]

            async def forward_bytes(
                source: asyncio.StreamReader, target: asyncio.StreamWriter
            ) -> None:
                while data := await source.read(1 << 16):
                    forwarded_bytes.append(data)
                    target.write(data)

            tasks = [
                forward_bytes(client_reader, server_writer),
                forward_bytes(server_reader, writer),
            ]
            await asyncio.wait(
                [asyncio.ensure_future(task) for task in tasks], return_when=asyncio.FIRST_COMPLETED
            )
            server_writer.close()
            return False

        forwarded_bytes: list[bytes] = []
        async with serve_http(tunnel) as proxy_log:
            monkeypatch.setenv(variable, proxy_log.url.removeprefix("http://"))
            async with open_client(server_log.url, key="secret") as client:
                assert (await client.post_json("/chat", {"ask": "what"}))[2] == b"hi"
    assert proxy_log.requests[0].startswith(f"CONNECT localhost:{port} ".encode())
    assert b"secret" not in b"".join([*proxy_log.requests, *forwarded_bytes])
    assert b"secret" in server_log.requests[0]


async def test_unusable_proxies_are_reported_without_their_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unused_address = f"127.0.0.1:{find_free_port()}"
    for proxy, message in (
        (f"http://ann:hidden@{unused_address}", f"proxy {unused_address}"),
        ("http://ann:hidden@nowhere.invalid:1", "proxy nowhere.invalid:1"),
        ("socks5://ann:hidden@127.0.0.1:1", "proxy 127.0.0.1:1"),
    ):
        monkeypatch.setenv("ALL_PROXY", proxy)
        for scheme in ("http", "https"):
            async with open_client(f"{scheme}://there.invalid/v1") as client:
                with pytest.raises(FatalModelError, match=message) as caught:
                    await client.post_json("/chat", {})
            assert "hidden" not in str(caught.value)
    reply_407 = reply_with(
        b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n", keep_open=False
    )
    async with serve_http(reply_407) as server_log:
        monkeypatch.setenv("ALL_PROXY", server_log.url)
        async with open_client("https://there.invalid/v1") as client:
            with pytest.raises(FatalModelError, match=r"proxy .* answered 407"):
                await client.post_json("/chat", {})


def test_a_key_for_plain_http_is_not_sent_through_a_remote_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    local_url = "http://10.0.0.5/v1"
    with pytest.raises(InputError, match=r"unencrypted.*proxy\.example\.org"):
        HttpClient(local_url, {}, ProviderSettings(local_url, "secret"))
    HttpClient(local_url, {}, ProviderSettings(local_url))
    monkeypatch.setenv("no_proxy", "10.0.0.5")
    HttpClient(local_url, {}, ProviderSettings(local_url, "secret"))
    assert proxy_for(local_url) is None


# Certificates.


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_certificates_are_accepted_from_system_or_configured_authorities(
    variable: str,
    certificate_authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate_file = tmp_path / "authority.pem"
    certificate_authority.cert_pem.write_to_path(str(certificate_file))
    async with serve_http(reply_hi, make_server_tls_context(certificate_authority)) as server_log:
        host = server_log.url.removeprefix("https://")
        async with open_client(server_log.url, key="secret") as client:
            with pytest.raises(FatalModelError, match=f"certificate of {host} is not accepted"):
                await client.post_json("/chat", {})
        assert server_log.requests == []
        monkeypatch.setenv(variable, str(certificate_file))
        async with open_client(server_log.url, key="secret") as client:
            assert (await client.post_json("/chat", {}))[2] == b"hi"
        address_url = server_log.url.replace("localhost", "127.0.0.1")
        async with open_client(address_url, key="secret") as client:
            with pytest.raises(FatalModelError, match=r"127\.0\.0\.1.*not accepted"):
                await client.post_json("/chat", {})
        assert len(server_log.requests) == 1
        for unusable_file in (tmp_path / "missing.pem", tmp_path / "empty.pem"):
            (tmp_path / "empty.pem").write_text("no certificate")
            monkeypatch.setenv(variable, str(unusable_file))
            async with open_client(server_log.url) as client:
                with pytest.raises(
                    FatalModelError, match=rf"{variable} names .*{unusable_file.name}"
                ):
                    await client.post_json("/chat", {})


# Mistakes in an address, and servers that go away.


async def test_an_unreachable_address_is_reported_at_once() -> None:
    port = find_free_port()
    for url, message in (
        (f"http://127.0.0.1:{port}/v1", f"127.0.0.1:{port}: Connection refused"),
        (f"https://127.0.0.1:{port}/v1", f"127.0.0.1:{port}: Connection refused"),
        (f"http://localhost:{port}/v1", f"localhost:{port}: .*refused"),
        ("http://nowhere.invalid/v1", "nowhere.invalid: this host name is not known"),
        ("https://nowhere.invalid/v1", "nowhere.invalid: this host name is not known"),
    ):
        async with open_client(url) as client:
            with pytest.raises(FatalModelError, match=message):
                await client.post_json("/chat", {})


async def test_an_outage_of_a_known_server_is_transient() -> None:
    """An error that is fatal at first contact is transient for clients that share the hosts."""
    reached_hosts: set[str] = set()
    async with (
        serve_http(reply_hi) as server_log,
        open_client(server_log.url, reached_hosts) as client,
    ):
        await client.post_json("/chat", {})
    for _ in range(2):
        async with open_client(server_log.url, reached_hosts) as client:
            with pytest.raises(TransientError, match="connection failed") as caught:
                await client.post_json("/chat", {})
            # The request was never sent, so nothing is billed.
            assert not caught.value.may_be_billed
    async with open_client(server_log.url) as client:
        with pytest.raises(FatalModelError):
            await client.post_json("/chat", {})


async def test_unknown_names_and_bad_certificates_of_known_servers_are_transient(
    certificate_authority: trustme.CA,
) -> None:
    async with (
        serve_http(reply_hi, make_server_tls_context(certificate_authority)) as server_log,
        open_client(server_log.url, {server_log.url}) as second_client,
    ):
        with pytest.raises(TransientError, match="certificate") as caught:
            await second_client.post_json("/chat", {})
        assert not caught.value.may_be_billed
    async with open_client("http://nowhere.invalid/v1", {"http://nowhere.invalid"}) as client:
        with pytest.raises(TransientError, match="not known"):
            await client.post_json("/chat", {})


async def close_connection(_: bytes, __: asyncio.StreamWriter) -> bool:
    return False


async def test_plain_http_to_a_tls_port_is_reported(certificate_authority: trustme.CA) -> None:
    async with (
        serve_http(reply_hi, make_server_tls_context(certificate_authority)) as server_log,
        open_client(server_log.url.replace("https", "http")) as client,
    ):
        with pytest.raises(FatalModelError, match=r"localhost:\d+ speaks TLS: write https://"):
            await client.post_json("/chat", {})
    assert server_log.requests == []


async def test_a_400_response_to_plain_http_on_a_tls_port_is_reported(
    certificate_authority: trustme.CA,
) -> None:
    """Like nginx and Go: TLS and an error response to plain HTTP on one port."""
    tls = make_server_tls_context(certificate_authority)

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first_byte = await reader.read(1)
        if first_byte == b"\x16":  # a TLS handshake: forwarded to the TLS server
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", tls_port)
            server_writer.write(first_byte)

            async def forward_bytes(
                source: asyncio.StreamReader, target: asyncio.StreamWriter
            ) -> None:
                while data := await source.read(1 << 16):
                    target.write(data)
                target.close()

            await asyncio.gather(
                forward_bytes(reader, server_writer), forward_bytes(server_reader, writer)
            )
            return
        message = b"The plain HTTP request was sent to HTTPS port"
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (45, message))
        writer.close()

    async with serve_http(reply_hi, tls) as server_log:
        tls_port = int(server_log.url.rpartition(":")[2])
        server = await asyncio.start_server(handle_connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with open_client(f"http://127.0.0.1:{port}/v1") as client:
            with pytest.raises(FatalModelError, match=f"127.0.0.1:{port} speaks TLS"):
                await client.post_json("/chat", {})
        server.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_https_to_a_plain_http_port_is_reported(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may read a handshake as an incomplete request and wait for the rest."""
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.3)

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(4) == b"HEAD":
            writer.write(b"HTTP/1.1 405 No\r\n\r\n")
        elif waits:
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with open_client(f"https://127.0.0.1:{port}/v1") as client:
        with pytest.raises(FatalModelError, match=f"127.0.0.1:{port} speaks plain HTTP"):
            await client.post_json("/chat", {})
    server.close()


async def test_a_dropped_first_connection_is_transient() -> None:
    """The server was reached, so the failure may be temporary."""
    async with serve_http(close_connection) as server_log, open_client(server_log.url) as client:
        with pytest.raises(TransientError, match="closed the connection"):
            await client.post_json("/chat", {})


async def test_a_plain_400_response_is_returned() -> None:
    reply_400 = reply_with(b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno")
    async with serve_http(reply_400) as server_log, open_client(server_log.url) as client:
        assert (await client.post_json("/chat", {}))[0] == 400


# Limits.


async def test_a_long_response_is_aborted_and_not_kept_in_memory() -> None:
    sent_pieces = 0
    piece = b"x" * MB

    async def handle_request(_: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent_pieces
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n")
        for _ in range(300):
            writer.write(piece)
            await writer.drain()
            sent_pieces += 1
        return True

    async with (
        serve_http(handle_request) as server_log,
        open_connections(limit=8 * MB) as connections,
    ):
        tracemalloc.start()
        with pytest.raises(TransferError, match="longer than 8 MB") as caught:
            await connections.send_request(HttpRequest("POST", server_log.url, b""))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await server_log.connection_closed.wait()
    assert caught.value.failure is Failure.TOO_LARGE
    assert peak_bytes < 20 * MB and sent_pieces < 100


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_the_size_limit_counts_decompressed_bytes(encoding: str) -> None:
    wbits = {"gzip": 31, "deflate": 15}[encoding]
    compressor = zlib.compressobj(9, wbits=wbits)
    bomb = b"".join(compressor.compress(bytes(MB)) for _ in range(200)) + compressor.flush()
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n"
    async with (
        serve_http(reply_with(head.encode() + bomb)) as server_log,
        open_connections(limit=4 * MB) as connections,
    ):
        tracemalloc.start()
        with pytest.raises(TransferError, match="longer than 4 MB"):
            await connections.send_request(HttpRequest("POST", server_log.url, b""))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(bomb) < MB and peak_bytes < 20 * MB


async def test_a_response_of_exactly_the_limit_is_read() -> None:
    def reply_of_size(n: int) -> Handler:
        return reply_with(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n)

    for n in (99_999, 100_000):
        async with (
            serve_http(reply_of_size(n)) as server_log,
            open_client(server_log.url, max_reply_bytes=100_000) as client,
        ):
            assert len((await client.post_json("/chat", {}))[2]) == n
    async with (
        serve_http(reply_of_size(100_001)) as server_log,
        open_client(server_log.url, max_reply_bytes=100_000) as client,
    ):
        with pytest.raises(RefusedError, match=r"longer than 0\.1 MB") as caught:
            await client.post_json("/chat", {})
    assert caught.value.reason == "too_large"


# Downloads.


async def test_a_download_follows_redirects_and_raises_disk_errors() -> None:
    async def handle_request(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if request.startswith(b"GET /old"):
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000)
        return True

    pieces: list[bytes] = []
    progress_calls: list[tuple[int, int | None]] = []
    async with serve_http(handle_request) as server_log:
        await download_file(
            f"{server_log.url}/old",
            pieces.append,
            silence=30,
            progress=lambda done_bytes, total_bytes: progress_calls.append(
                (done_bytes, total_bytes)
            ),
        )
        assert b"".join(pieces) == b"x" * 400_000 and progress_calls[-1] == (400_000, 400_000)

        def fail_to_write(_: bytes) -> None:
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space left"):
            await download_file(f"{server_log.url}/new", fail_to_write, silence=30)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", Failure.BROKEN),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nx", Failure.BROKEN),
    ],
)
async def test_a_failed_download_raises_its_cause(answer: bytes, failure: Failure) -> None:
    async with serve_http(reply_with(answer, keep_open=False)) as server_log:
        with pytest.raises(TransferError) as caught:
            await download_file(server_log.url, lambda _: None, silence=30)
    assert caught.value.failure is failure


async def test_a_silent_download_times_out() -> None:
    async def handle_request(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nx")
        await wait_until_closed(writer)
        return False

    async with serve_http(handle_request) as server_log:
        with pytest.raises(TransferError) as caught:
            await download_file(server_log.url, lambda _: None, silence=0.2)
    assert caught.value.failure is Failure.TIMED_OUT
