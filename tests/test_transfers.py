"""HTTP as servers and networks really behave: TLS, redirections, connections that close."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from folkmoot import curl_loop, sockets, transfers
from folkmoot.curl_loop import TransferError
from folkmoot.errors import FatalModelError
from folkmoot.models.http import Wire, failure
from folkmoot.transfers import Connections, download

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
Exchange = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]


@pytest.fixture(autouse=True, params=["as everywhere", "as here"])
def _sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this by the loop's own watching too, which is all that other systems have."""
    if request.param == "as everywhere":

        def by_the_loop(ready: sockets.Ready) -> sockets.Watch:
            return sockets.LoopWatch(asyncio.get_running_loop(), ready)

        monkeypatch.setattr(curl_loop, "watch", by_the_loop)


class Served:
    """What a server saw."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.url = ""


@asynccontextmanager
async def serving(exchange: Exchange, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    """A server that hands each request (head and body) to `exchange`; it says whether to go on."""
    served = Served()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
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
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    served.url = f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}"
    async with server:
        yield served
        server.close()


async def says_hi(_: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(OK)
    return True


@asynccontextmanager
async def connected(url: str, timeout: float = 10, **headers: str) -> AsyncIterator[Connections]:
    connections = Connections(url, headers, timeout)
    yield connections
    await connections.close()


async def test_connections_are_kept_and_as_many_as_are_needed() -> None:
    async with serving(says_hi) as served, connected(served.url) as connections:
        for _ in range(20):
            assert await connections.post(served.url, b"x") == (200, {"content-length": "2"}, b"hi")
        assert served.connections == 1
        answers = await asyncio.gather(
            *(connections.post(served.url, b"y" * n) for n in range(300))
        )
        assert {a[2] for a in answers} == {b"hi"}
        assert len(served.requests) == 320 and served.connections <= 300
        assert sorted(len(r.split(b"\r\n\r\n", 1)[1]) for r in served.requests[20:]) == [
            *range(300)
        ]


async def test_a_request_is_never_sent_twice_behind_ones_back() -> None:
    """A server that works on a request and then drops the connection may have been paid for it."""
    last = False

    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        if last:
            return False
        return await says_hi(_, writer)

    async with serving(exchange) as served, connected(served.url) as connections:
        await connections.post(served.url, b"first")
        last = True
        with pytest.raises(TransferError, match="closed the connection"):
            await connections.post(served.url, b"second")
        assert len(served.requests) == 2
        last = False
        assert (await connections.post(served.url, b"third"))[0] == 200


async def test_who_is_cancelled_disturbs_nobody() -> None:
    async def exchange(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if request.endswith(b"slow"):
            await asyncio.sleep(30)
        return await says_hi(request, writer)

    async with serving(exchange) as served, connected(served.url) as connections:
        slow = [asyncio.ensure_future(connections.post(served.url, b"slow")) for _ in range(5)]
        await asyncio.sleep(0.05)
        for each in slow[:4]:
            each.cancel()
        assert (await connections.post(served.url, b"quick"))[2] == b"hi"
        assert all(isinstance(e, asyncio.CancelledError) for e in await _ended(slow[:4]))
    assert slow[4].cancelled() or isinstance((await _ended(slow[4:]))[0], asyncio.CancelledError)


async def _ended(tasks: list[asyncio.Future[transfers.Answer]]) -> list[object]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_answers_in_every_dress_are_read() -> None:
    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        body = gzip.compress(b"word " * 1000)
        writer.write(b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Slow down\r\nX-RateLimit-Limit-Requests:  5 \r\n")
        writer.write(b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        return True

    async with serving(exchange) as served, connected(served.url) as connections:
        status, headers, body = await connections.post(served.url, b"")
    assert (status, body) == (429, b"word " * 1000)
    assert headers["x-ratelimit-limit-requests"] == "5" and "retry-after" not in headers


async def test_a_cut_answer_is_no_answer() -> None:
    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly so much")
        return False

    async with serving(exchange) as served, connected(served.url) as connections:
        with pytest.raises(TransferError):
            await connections.post(served.url, b"")


async def test_keys_go_only_where_they_are_meant_to_go() -> None:
    """A redirection is said and not followed; a line feed in a key begins no other header."""
    async with serving(says_hi) as other:

        async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
            writer.write(
                f"HTTP/1.1 307 Moved\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()
            )
            return True

        async with serving(exchange) as served:
            wire = Wire(served.url, {"Authorization": "Bearer s\nX-Other: é"}, 10, "s")
            answer = await wire.post("/chat", {})
            await wire.close()
    assert other.requests == []
    head = served.requests[0].decode()
    assert "\r\nAuthorization: Bearer s X-Other: é\r\n" in head and "\r\nX-Other" not in head
    error = failure(*answer)
    assert isinstance(error, FatalModelError) and other.url in str(error)


@pytest.mark.parametrize("url", ["http://[::1", "ftp://127.0.0.1/x", "http://a b/"])
async def test_what_is_no_address_is_said_to_be_none(url: str) -> None:
    wire = Wire(url, {}, 10, None)
    with pytest.raises(FatalModelError, match="is no base URL"):
        await wire.post("/chat", {})
    await wire.close()


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says_hi) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "here.invalid")
        async with connected("http://there.invalid") as connections:
            assert (await connections.post("http://there.invalid/v1", b""))[0] == 200
        assert proxy.requests[0].startswith(b"POST http://there.invalid/v1 ")
        async with connected("http://here.invalid") as connections:
            with pytest.raises(TransferError, match=r"here\.invalid"):
                await connections.post("http://here.invalid/v1", b"")


async def test_servers_are_trusted_as_python_trusts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    async with serving(says_hi, context) as served:
        async with connected(served.url) as connections:
            with pytest.raises(TransferError, match="certificate"):
                await connections.post(served.url, b"secret")
        assert served.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        transfers._certificates.cache_clear()
        try:
            async with connected(served.url) as connections:
                assert (await connections.post(served.url, b"secret"))[2] == b"hi"
        finally:
            transfers._certificates.cache_clear()


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
        await download(
            f"{served.url}/old",
            pieces.append,
            silence=5,
            progress=lambda done, total: seen.append((done, total)),
        )
        assert b"".join(pieces) == b"x" * 400_000 and seen[-1] == (400_000, 400_000)

        def full(_: bytes) -> None:
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space left"):
            await download(f"{served.url}/new", full, silence=5)


async def test_a_download_that_falls_silent_is_given_up() -> None:
    async def exchange(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nx")
        await asyncio.sleep(30)
        return False

    async with serving(exchange) as served:
        with pytest.raises(TransferError) as caught:
            await download(served.url, lambda _: None, silence=1)
    assert caught.value.timed_out
