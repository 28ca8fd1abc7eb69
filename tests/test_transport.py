"""HTTP as servers and networks really behave: TLS, proxies, connections that close."""

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
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_PROBE_SECONDS", 0.5)
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


class Served:
    """What a server saw."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.url = ""
        self.left = asyncio.Event()  # a connection was closed by the other end


@asynccontextmanager
async def serving(exchange: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    """A server that hands each request (head and body) to `exchange`; it says whether to go on."""
    served = Served()
    tasks: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
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
                served.requests.append(request)
                if not await exchange(request, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            served.left.set()
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    served.url = f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}"
    async with server:
        yield served
        server.close()
        for task in tasks:
            if task is not None:
                task.cancel()


def answering(*pieces: bytes, go_on: bool = True) -> Handler:
    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return go_on

    return exchange


says_hi = answering(OK)


async def gone(writer: asyncio.StreamWriter) -> None:
    """Wait until the other end has closed its connection."""
    reader: asyncio.StreamReader = writer._reader  # type: ignore[attr-defined]
    while await reader.read(1 << 16):
        pass


@asynccontextmanager
async def connected(
    timeout: float = 30, limit: int = 8 * MB, **headers: str
) -> AsyncIterator[HttpConnections]:
    connections = HttpConnections(headers, timeout, limit, set())
    try:
        yield connections
    finally:
        await connections.close()


@asynccontextmanager
async def wired(
    url: str, reached: set[str] | None = None, key: str | None = None, **settings: float
) -> AsyncIterator[HttpClient]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    chosen = {"timeout": 30.0, **settings}
    wire = HttpClient(
        url,
        headers,
        ProviderSettings(url, key, reached_hosts=set() if reached is None else reached, **chosen),  # type: ignore[arg-type]
    )
    try:
        yield wire
    finally:
        await wire.close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def tls_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# Requests and answers.


async def test_connections_are_kept_and_as_many_as_are_needed() -> None:
    async with serving(says_hi) as served, connected() as connections:
        for _ in range(20):
            assert await connections.send_request(HttpRequest("POST", served.url, b"x")) == (
                200,
                {"content-length": "2"},
                b"hi",
            )
        assert served.connections == 1
        answers = await asyncio.gather(
            *(
                connections.send_request(HttpRequest("POST", served.url, b"y" * n))
                for n in range(300)
            )
        )
        assert {a[2] for a in answers} == {b"hi"}
        assert len(served.requests) == 320 and served.connections <= 301
        assert sorted(len(r.split(b"\r\n\r\n", 1)[1]) for r in served.requests[20:]) == [
            *range(300)
        ]


@pytest.mark.parametrize("abruptly", [False, True])
async def test_a_request_is_never_sent_twice_behind_ones_back(abruptly: bool) -> None:
    """A server that works on a request and then drops the connection may have been paid for it."""
    last = False

    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        if last and abruptly:
            writer.transport.abort()
        return not last and await says_hi(_, writer)

    async with serving(exchange) as served, connected() as connections:
        await connections.send_request(HttpRequest("POST", served.url, b"first"))
        last = True
        with pytest.raises(TransferError) as caught:
            await connections.send_request(HttpRequest("POST", served.url, b"second"))
        assert caught.value.failure is Failure.BROKEN
        assert len(served.requests) == 2
        last = False
        assert (await connections.send_request(HttpRequest("POST", served.url, b"third")))[0] == 200


async def test_who_is_cancelled_disturbs_nobody_and_leaves() -> None:
    arrived = asyncio.Event()

    async def exchange(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if request.endswith(b"slow"):
            arrived.set()
            await gone(writer)
            served.left.set()
            return False
        return await says_hi(request, writer)

    async with serving(exchange) as served, connected() as connections:
        slow = [
            asyncio.ensure_future(
                connections.send_request(HttpRequest("POST", served.url, b"slow"))
            )
            for _ in range(5)
        ]
        await arrived.wait()
        for each in slow:
            each.cancel()
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert all(isinstance(e, asyncio.CancelledError) for e in ended)
        assert (await connections.send_request(HttpRequest("POST", served.url, b"quick")))[
            2
        ] == b"hi"
        await served.left.wait()


async def test_answers_in_every_dress_are_read() -> None:
    body = gzip.compress(b"word " * 1000)
    exchange = answering(
        b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n",
        b"HTTP/1.1 429 Slow down\r\nX-RateLimit-Limit-Requests:  5 \r\n",
        b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n",
    )
    async with serving(exchange) as served, connected() as connections:
        status, headers, body = await connections.send_request(HttpRequest("POST", served.url, b""))
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
async def test_a_cut_or_broken_answer_is_no_answer(answer: bytes) -> None:
    async with serving(answering(answer, go_on=False)) as served, connected() as connections:
        with pytest.raises(TransferError) as caught:
            await connections.send_request(HttpRequest("POST", served.url, b""))
        assert caught.value.failure is Failure.BROKEN


async def test_silence_is_given_up() -> None:
    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nso far")
        await gone(writer)
        return False

    async with serving(exchange) as served, wired(served.url, timeout=0.2) as wire:
        with pytest.raises(TransientError, match=r"no response within 0\.2 s"):
            await wire.post_json("/chat", {})


# Keys and addresses.


async def test_keys_go_only_where_they_are_meant_to_go() -> None:
    """A redirection is said and not followed."""
    async with serving(says_hi) as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n"
        async with (
            serving(answering(moved.encode())) as served,
            wired(served.url, key="secret") as wire,
        ):
            answer = await wire.post_json("/chat", {})
    assert other.requests == []
    assert b"\r\nAuthorization: Bearer secret\r\n" in served.requests[0]
    error = error_from_response(*answer)
    assert isinstance(error, FatalModelError) and other.url in str(error)


@pytest.mark.parametrize("key", ["s\nX-Other: é", "s\r", "a\x00b"])
async def test_a_line_feed_in_a_key_begins_no_other_header(key: str) -> None:
    with pytest.raises(InputError, match="line break") as caught:
        async with wired("http://127.0.0.1:1", key=key):
            raise AssertionError("the key was taken")
    assert "X-Other" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("http://[::1", "ftp://127.0.0.1/x", "nonsense", "http://", "https:///v1"),
        *("http://127.0.0.1:99999/v1", "127.0.0.1:80/v1", "/v1", "http://127.0.0.1:port/"),
    ],
)
async def test_what_is_no_address_is_said_to_be_none(url: str) -> None:
    async with wired(url) as wire:
        with pytest.raises(FatalModelError, match="is not a base URL"):
            await wire.post_json("/chat", {})


async def test_a_password_in_the_url_is_sent_and_never_told() -> None:
    moved = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(moved, go_on=False)) as served:
        url = served.url.replace("//", "//ann:hidden-one@") + "/v1?api-key=hidden-two"
        async with wired(url, reached={served.url}) as wire:
            await wire.post_json("/chat", {})
    assert b"\r\nAuthorization: Basic " in served.requests[0]
    assert served.requests[0].startswith(b"POST /v1/chat?api-key=hidden-two ")
    async with wired(url) as wire:
        with pytest.raises(FatalModelError, match="127") as caught:
            await wire.post_json("/chat", {})
    assert "hidden" not in str(caught.value)


# Proxies.


async def test_the_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says_hi) as proxy:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # loses against the small one
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "here.invalid")
        async with wired("http://there.invalid/v1") as wire:
            assert (await wire.post_json("/chat", {}))[2] == b"hi"
        assert proxy.requests[0].startswith(b"POST http://there.invalid/v1/chat ")
        for direct in ("http://here.invalid/v1", "http://x.here.invalid:80/v1"):
            async with wired(direct) as wire:
                with pytest.raises(FatalModelError, match=r"here\.invalid"):
                    await wire.post_json("/chat", {})
        assert len(proxy.requests) == 1


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"])
async def test_https_goes_through_a_tunnel(
    variable: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is told the host, and sees neither the key nor the question."""
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with serving(says_hi, tls_of(authority)) as served:
        port = int(served.url.rpartition(":")[2])

        async def tunnel(_: bytes, writer: asyncio.StreamWriter) -> bool:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            near_reader: asyncio.StreamReader = writer._reader  # type: ignore[attr-defined]

            async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                while data := await source.read(1 << 16):
                    seen.append(data)
                    target.write(data)

            tasks = [carry(near_reader, far_writer), carry(far_reader, writer)]
            await asyncio.wait(
                [asyncio.ensure_future(t) for t in tasks], return_when=asyncio.FIRST_COMPLETED
            )
            far_writer.close()
            return False

        seen: list[bytes] = []
        async with serving(tunnel) as proxy:
            monkeypatch.setenv(variable, proxy.url.removeprefix("http://"))
            async with wired(served.url, key="secret") as wire:
                assert (await wire.post_json("/chat", {"ask": "what"}))[2] == b"hi"
    assert proxy.requests[0].startswith(f"CONNECT localhost:{port} ".encode())
    assert b"secret" not in b"".join([*proxy.requests, *seen])
    assert b"secret" in served.requests[0]


async def test_proxies_that_cannot_be_used_are_named_without_their_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for proxy, said in (
        (f"http://ann:hidden@{nobody}", f"proxy {nobody}"),
        ("http://ann:hidden@nowhere.invalid:1", "proxy nowhere.invalid:1"),
        ("socks5://ann:hidden@127.0.0.1:1", "proxy 127.0.0.1:1"),
    ):
        monkeypatch.setenv("ALL_PROXY", proxy)
        for scheme in ("http", "https"):
            async with wired(f"{scheme}://there.invalid/v1") as wire:
                with pytest.raises(FatalModelError, match=said) as caught:
                    await wire.post_json("/chat", {})
            assert "hidden" not in str(caught.value)
    refused = answering(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n", go_on=False)
    async with serving(refused) as served:
        monkeypatch.setenv("ALL_PROXY", served.url)
        async with wired("https://there.invalid/v1") as wire:
            with pytest.raises(FatalModelError, match=r"proxy .* answered 407"):
                await wire.post_json("/chat", {})


def test_a_key_for_plain_http_goes_through_no_proxy_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    near = "http://10.0.0.5/v1"
    with pytest.raises(InputError, match=r"unencrypted.*proxy\.example\.org"):
        HttpClient(near, {}, ProviderSettings(near, "secret"))
    HttpClient(near, {}, ProviderSettings(near))
    monkeypatch.setenv("no_proxy", "10.0.0.5")
    HttpClient(near, {}, ProviderSettings(near, "secret"))
    assert proxy_for(near) is None


# Certificates.


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_servers_are_trusted_by_the_system_or_by_a_named_authority(
    variable: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    async with serving(says_hi, tls_of(authority)) as served:
        place = served.url.removeprefix("https://")
        async with wired(served.url, key="secret") as wire:
            with pytest.raises(FatalModelError, match=f"certificate of {place} is not accepted"):
                await wire.post_json("/chat", {})
        assert served.requests == []
        monkeypatch.setenv(variable, str(file))
        async with wired(served.url, key="secret") as wire:
            assert (await wire.post_json("/chat", {}))[2] == b"hi"
        by_address = served.url.replace("localhost", "127.0.0.1")
        async with wired(by_address, key="secret") as wire:
            with pytest.raises(FatalModelError, match=r"127\.0\.0\.1.*not accepted"):
                await wire.post_json("/chat", {})
        assert len(served.requests) == 1
        for missing in (tmp_path / "missing.pem", tmp_path / "empty.pem"):
            (tmp_path / "empty.pem").write_text("no certificate")
            monkeypatch.setenv(variable, str(missing))
            async with wired(served.url) as wire:
                with pytest.raises(FatalModelError, match=rf"{variable} names .*{missing.name}"):
                    await wire.post_json("/chat", {})


# Mistakes in an address, and servers that go away.


async def test_an_address_where_nobody_is_ends_at_once_and_is_named() -> None:
    port = free_port()
    for url, said in (
        (f"http://127.0.0.1:{port}/v1", f"127.0.0.1:{port}: Connection refused"),
        (f"https://127.0.0.1:{port}/v1", f"127.0.0.1:{port}: Connection refused"),
        (f"http://localhost:{port}/v1", f"localhost:{port}: .*refused"),
        ("http://nowhere.invalid/v1", "nowhere.invalid: this host name is not known"),
        ("https://nowhere.invalid/v1", "nowhere.invalid: this host name is not known"),
    ):
        async with wired(url) as wire:
            with pytest.raises(FatalModelError, match=said):
                await wire.post_json("/chat", {})


async def test_a_server_that_answered_before_is_waited_for() -> None:
    """What would be a mistake at first is an outage now, for all who share the knowledge."""
    reached: set[str] = set()
    async with serving(says_hi) as served, wired(served.url, reached) as wire:
        await wire.post_json("/chat", {})
    for _ in range(2):
        async with wired(served.url, reached) as wire:
            with pytest.raises(TransientError, match="connection failed"):
                await wire.post_json("/chat", {})
    async with wired(served.url) as wire:
        with pytest.raises(FatalModelError):
            await wire.post_json("/chat", {})


async def test_an_outage_may_also_be_a_name_or_a_certificate(authority: trustme.CA) -> None:
    async with (
        serving(says_hi, tls_of(authority)) as served,
        wired(served.url, {served.url}) as again,
    ):
        with pytest.raises(TransientError, match="certificate"):
            await again.post_json("/chat", {})
    async with wired("http://nowhere.invalid/v1", {"http://nowhere.invalid"}) as wire:
        with pytest.raises(TransientError, match="not known"):
            await wire.post_json("/chat", {})


async def closing(_: bytes, __: asyncio.StreamWriter) -> bool:
    return False


async def test_plain_http_to_a_tls_port_is_said(authority: trustme.CA) -> None:
    async with (
        serving(says_hi, tls_of(authority)) as served,
        wired(served.url.replace("https", "http")) as wire,
    ):
        with pytest.raises(FatalModelError, match=r"localhost:\d+ speaks TLS: write https://"):
            await wire.post_json("/chat", {})
    assert served.requests == []


async def test_a_server_that_tells_plain_http_from_tls_by_a_400_is_understood(
    authority: trustme.CA,
) -> None:
    """As nginx and Go do: TLS and an answer to plain HTTP on one port."""
    tls = tls_of(authority)

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        if first == b"\x16":  # a TLS handshake: carried to the real one
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", real)
            far_writer.write(first)

            async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                while data := await source.read(1 << 16):
                    target.write(data)
                target.close()

            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
            return
        words = b"The plain HTTP request was sent to HTTPS port"
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (45, words))
        writer.close()

    async with serving(says_hi, tls) as served:
        real = int(served.url.rpartition(":")[2])
        server = await asyncio.start_server(both, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with wired(f"http://127.0.0.1:{port}/v1") as wire:
            with pytest.raises(FatalModelError, match=f"127.0.0.1:{port} speaks TLS"):
                await wire.post_json("/chat", {})
        server.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_https_to_a_plain_port_is_said(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes a handshake for a request without an end waits for more of it."""
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.3)

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(4) == b"HEAD":
            writer.write(b"HTTP/1.1 405 No\r\n\r\n")
        elif waits:
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with wired(f"https://127.0.0.1:{port}/v1") as wire:
        with pytest.raises(FatalModelError, match=f"127.0.0.1:{port} speaks plain HTTP"):
            await wire.post_json("/chat", {})
    server.close()


async def test_a_server_that_drops_its_very_first_connection_is_tried_again() -> None:
    """It was reached: that may be an accident."""
    async with serving(closing) as served, wired(served.url) as wire:
        with pytest.raises(TransientError, match="closed the connection"):
            await wire.post_json("/chat", {})


async def test_a_plain_400_is_an_answer() -> None:
    bad = answering(b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno")
    async with serving(bad) as served, wired(served.url) as wire:
        assert (await wire.post_json("/chat", {}))[0] == 400


# Limits.


async def test_a_long_answer_is_cut_off_and_takes_no_memory() -> None:
    sent = 0
    piece = b"x" * MB

    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n")
        for _ in range(300):
            writer.write(piece)
            await writer.drain()
            sent += 1
        return True

    async with serving(exchange) as served, connected(limit=8 * MB) as connections:
        tracemalloc.start()
        with pytest.raises(TransferError, match="longer than 8 MB") as caught:
            await connections.send_request(HttpRequest("POST", served.url, b""))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await served.left.wait()
    assert caught.value.failure is Failure.TOO_LARGE
    assert peak < 20 * MB and sent < 100


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
async def test_a_bomb_is_counted_unpacked(packing: str) -> None:
    wbits = {"gzip": 31, "deflate": 15}[packing]
    packer = zlib.compressobj(9, wbits=wbits)
    bomb = b"".join(packer.compress(bytes(MB)) for _ in range(200)) + packer.flush()
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {packing}\r\nContent-Length: {len(bomb)}\r\n\r\n"
    async with (
        serving(answering(head.encode() + bomb)) as served,
        connected(limit=4 * MB) as connections,
    ):
        tracemalloc.start()
        with pytest.raises(TransferError, match="longer than 4 MB"):
            await connections.send_request(HttpRequest("POST", served.url, b""))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(bomb) < MB and peak < 20 * MB


async def test_an_answer_of_just_the_limit_is_read() -> None:
    def of(n: int) -> Handler:
        return answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n)

    for n in (99_999, 100_000):
        async with serving(of(n)) as served, wired(served.url, max_reply_bytes=100_000) as wire:
            assert len((await wire.post_json("/chat", {}))[2]) == n
    async with serving(of(100_001)) as served, wired(served.url, max_reply_bytes=100_000) as wire:
        with pytest.raises(RefusedError, match=r"longer than 0\.1 MB") as caught:
            await wire.post_json("/chat", {})
    assert caught.value.reason == "too_large"


# Downloads.


async def test_a_download_follows_and_says_what_the_disk_says() -> None:
    async def exchange(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if request.startswith(b"GET /old"):
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000)
        return True

    pieces: list[bytes] = []
    seen: list[tuple[int, int | None]] = []
    async with serving(exchange) as served:
        await download_file(
            f"{served.url}/old",
            pieces.append,
            silence=30,
            progress=lambda done, total: seen.append((done, total)),
        )
        assert b"".join(pieces) == b"x" * 400_000 and seen[-1] == (400_000, 400_000)

        def full(_: bytes) -> None:
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space left"):
            await download_file(f"{served.url}/new", full, silence=30)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", Failure.BROKEN),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nx", Failure.BROKEN),
    ],
)
async def test_a_download_that_fails_says_so(answer: bytes, failure: Failure) -> None:
    async with serving(answering(answer, go_on=False)) as served:
        with pytest.raises(TransferError) as caught:
            await download_file(served.url, lambda _: None, silence=30)
    assert caught.value.failure is failure


async def test_a_download_that_falls_silent_is_given_up() -> None:
    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nx")
        await gone(writer)
        return False

    async with serving(exchange) as served:
        with pytest.raises(TransferError) as caught:
            await download_file(served.url, lambda _: None, silence=0.2)
    assert caught.value.failure is Failure.TIMED_OUT
