"""Strangers hold connections open: the pages still work for the others, and nothing is logged."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.view.connections import ConnectionLimits, address_group, trust_connection
from folkmoot.view.seat import create_seat_app
from folkmoot.view.site import MAX_FORM_BYTES, Guard, create_app
from tests.servers.pages import PageServer
from tests.sweeps import sample_daily
from tests.view.asking import enqueue_text_question, serve_seats
from tests.waiting import wait_until

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
WHOLE_REQUEST = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF_BODY = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nquestion="
CHUNKED = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
STRANGER_COUNT = 400


@contextmanager
def open_strangers(
    port: int, request_bytes: bytes, count: int = STRANGER_COUNT
) -> Iterator[list[socket.socket]]:
    """Open `count` connections that send `sent` and nothing more."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            stranger.sendall(request_bytes)
            sockets.append(stranger)
        yield sockets


def is_closed(stranger: socket.socket) -> bool:
    """Return whether the server has closed a connection."""
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def wait_until_closed(stranger: socket.socket) -> None:
    """Read until the server closes the connection."""
    stranger.settimeout(60)
    try:
        while stranger.recv(4096):
            pass
    except ConnectionError:
        pass


async def answer_at_once(request: Request) -> Response:
    if request.query_params.get("token") == "valid":
        trust_connection(request.scope)
    if "body" in request.query_params:
        await request.body()
    return PlainTextResponse("here")


async def answer_late(request: Request) -> Response:
    if request.query_params.get("token") == "valid":
        trust_connection(request.scope)
        await asyncio.to_thread(request.app.state.go_on.wait, 60)
    else:
        await request.body()
        await request.receive()  # until the connection ends
    return PlainTextResponse("late")


def create_small_app() -> Starlette:
    routes = [Route("/", answer_at_once, methods=["GET", "POST"]), Route("/never", answer_late)]
    app = create_app(routes, Guard(methods=frozenset({"GET", "POST"}), links_hold_tokens=True))
    app.state.go_on = threading.Event()
    return app


@pytest.mark.parametrize("request_bytes", [b"", HALF_HEAD, HALF_BODY % b"/?body"])
def test_half_sent_requests_of_one_address_are_limited_in_number(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits()
    with (
        PageServer(create_small_app()) as server,
        open_strangers(server.port, request_bytes) as sockets,
    ):
        # From the same address, while the connections are open.
        assert server.get("/").status == 200
        excess_count = STRANGER_COUNT - limits.max_untrusted_per_address
        wait_until(lambda: sum(map(is_closed, sockets)) >= excess_count)
        assert server.get("/").status == 200
        assert all(map(is_closed, sockets[:excess_count]))  # the oldest ones
        assert not any(map(is_closed, sockets[excess_count + 2 :]))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("request_bytes", "limits"),
    sample_daily(
        [
            (HALF_HEAD, ConnectionLimits(head_seconds=0.1)),
            (HALF_BODY % b"/?body&token=valid", ConnectionLimits(body_seconds=0.1)),
            (WHOLE_REQUEST % b"/never", ConnectionLimits(answer_seconds=0.1)),
            (b"", ConnectionLimits(head_seconds=0.1)),
            (HALF_BODY % b"/?body", ConnectionLimits(body_seconds=0.1)),
            (HALF_BODY % b"/", ConnectionLimits(body_seconds=0.1)),  # answered before it came
            (CHUNKED + b"5\r\nquest", ConnectionLimits(body_seconds=0.1)),
            (
                b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF_HEAD,
                ConnectionLimits(head_seconds=0.1),
            ),
        ],
        daily=3,
        part="pages",
    ),
)
def test_each_part_of_a_request_has_a_time_limit(
    request_bytes: bytes, limits: ConnectionLimits, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        PageServer(create_small_app(), limits) as server,
        open_strangers(server.port, request_bytes, 1) as sockets,
    ):
        wait_until_closed(sockets[0])
        assert server.get("/").status == 200
    assert [record for record in caplog.records if record.name != "asyncio"] == []


def test_slow_bytes_do_not_extend_the_time_limit() -> None:
    """A header that is sent byte by byte has the time limit of one header."""
    limits = ConnectionLimits(head_seconds=0.3)
    with (
        PageServer(create_small_app(), limits) as server,
        open_strangers(server.port, HALF_HEAD, 1) as (stranger,),
    ):

        def is_ended() -> bool:
            try:
                stranger.send(b"x")
            except ConnectionError:
                return True
            return is_closed(stranger)

        wait_until(is_ended)


def test_a_visitor_with_a_token_may_wait_for_an_answer() -> None:
    app = create_small_app()
    limits = ConnectionLimits(answer_seconds=2.0, max_untrusted_per_address=9)
    request_bytes = (
        b"GET /never?token=valid HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    with (
        PageServer(app, limits) as server,
        open_strangers(server.port, request_bytes, 1) as (waiting,),
        open_strangers(server.port, HALF_HEAD, 20),
        open_strangers(server.port, WHOLE_REQUEST % b"/never", 1) as (untrusted,),
    ):
        # Wait for the end of its time limit. The first connection may wait longer, by its token.
        wait_until_closed(untrusted)
        assert not is_closed(waiting)
        app.state.go_on.set()
        waiting.settimeout(60)
        answer = b"".join(iter(lambda: waiting.recv(4096), b""))
        assert answer.endswith(b"late")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01 not HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"5\r\nhello\r\nzz\r\n" * 3,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        WHOLE_REQUEST % b"/" * 50 + b"\x00\r\n\r\n",
        b'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: \xff="\\777; a[b]=c\x7f\r\n\r\n',
    ],
)
def test_invalid_requests_of_visitors_are_not_logged(
    tmp_path: Path, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    seat_manager = SeatManager([Seat("p_1")], SeatSettings(), tmp_path)
    pages = create_seat_app(
        seat_manager, Guard(methods=frozenset({"GET", "HEAD", "POST"}), links_hold_tokens=True)
    )
    with PageServer(pages) as server:
        for _ in range(20):
            with open_strangers(server.port, request_bytes, 1) as (mistaken,):
                mistaken.shutdown(socket.SHUT_WR)
                wait_until_closed(mistaken)
        (seat_state,) = seat_manager
        response = server.get(f"/seat/{seat_state.token}")
        assert response.status == 200 and "server" not in response.headers
    assert caplog.records == []


async def test_a_hundred_seats_behind_one_address_work_beside_strangers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half-sent requests of each kind come from the address of the seats, more than the limit.
    Each human arrives, gets a question, answers it, and sees the last page."""
    seats = [Seat(f"p_{n}") for n in range(100)]
    async with serve_seats(tmp_path, SeatSettings(), *seats) as (seat_manager, links):
        port = urlsplit(links["p_0"]).port or 0
        partial_requests = (HALF_HEAD, HALF_BODY % b"/seat/x/answer", HALF_BODY % b"/seat/x/agree")
        with ExitStack() as stack:
            for request_bytes in partial_requests:
                # In a thread, so that the server can accept connections meanwhile.
                await asyncio.to_thread(
                    stack.enter_context, open_strangers(port, request_bytes, 150)
                )

            async def take_seat(name: str) -> None:
                seat_state = next(state for state in seat_manager if state.seat.name == name)
                async with aiohttp.ClientSession() as visitor:
                    async with visitor.post(f"{links[name]}/agree") as reply:
                        assert reply.status == 200
                    question = enqueue_text_question(seat_manager, seat_state, "Well?")
                    form = {"question": question.id, "a": "Calm streets."}
                    sending = asyncio.ensure_future(
                        visitor.post(f"{links[name]}/answer", data=form, allow_redirects=False)
                    )
                    assert (await question.reply).text == "Calm streets."
                    seat_manager.withdraw_question(question, stored=True)
                    async with await sending as reply:
                        assert reply.status == 303
                    async with visitor.get(f"{links[name]}/news") as reply:
                        assert (await reply.json())["shows"] == ""

            await asyncio.gather(*(take_seat(place.name) for place in seats))
    assert caplog.records == []


def test_a_form_that_is_too_long_or_without_length_is_not_read(tmp_path: Path) -> None:
    seat_manager = SeatManager([Seat("p_1")], SeatSettings(), tmp_path)
    pages = create_seat_app(
        seat_manager, Guard(methods=frozenset({"GET", "HEAD", "POST"}), links_hold_tokens=True)
    )
    with PageServer(pages) as server:
        for length in (str(MAX_FORM_BYTES + 1), "9" * 30, "-1"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.putrequest("POST", "/seat/x/answer")
            connection.putheader("Content-Length", length)
            connection.endheaders()
            assert connection.getresponse().status in (400, 413)
            connection.close()


def test_the_viewer_works_with_few_open_files(tmp_path: Path) -> None:
    """The process may open 128 files, and strangers hold 300 connections open."""
    limit_command = ("sh", "-c", 'ulimit -n 128 && exec "$@"', "sh")
    command = (
        *limit_command,
        sys.executable,
        "-m",
        "folkmoot",
        "view",
        str(tmp_path),
        "--port",
        "0",
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = urlsplit(server.stdout.readline().split()[-1]).port or 0
        with open_strangers(port, HALF_HEAD, 300):
            for _ in range(3):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/")
                assert connection.getresponse().status == 200
                connection.close()
        server.terminate()
        _, error_output = server.communicate(timeout=60)
    assert len(error_output) < 1000


def test_addresses_of_one_network_count_as_one_visitor() -> None:
    assert (
        address_group("2001:db8::1")
        == address_group("2001:db8::ffff:2")
        != address_group("2001:db8:0:1::1")
    )
    assert (
        address_group("::ffff:10.0.0.1") == address_group("10.0.0.1") != address_group("10.0.0.2")
    )
    assert address_group("fe80::1%eth0") == address_group("fe80::2%eth0")
