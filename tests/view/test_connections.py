"""Strangers who hold connections open: the pages go on for the others, and nothing is logged."""

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
from tests.view.asking import ask_text, served
from tests.waiting import wait_until

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
WHOLE = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF_BODY = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nquestion="
CHUNKED = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
STRANGERS = 400


@contextmanager
def strangers(port: int, sent: bytes, count: int = STRANGERS) -> Iterator[list[socket.socket]]:
    """As many connections as that, each of which has sent this and sends no more."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            stranger.sendall(sent)
            opened.append(stranger)
        yield opened


def is_closed(stranger: socket.socket) -> bool:
    """Whether the server has closed a connection."""
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def wait_for_the_end(stranger: socket.socket) -> None:
    """Read until the server closes the connection."""
    stranger.settimeout(60)
    try:
        while stranger.recv(4096):
            pass
    except ConnectionError:
        pass


async def plain(request: Request) -> Response:
    if request.query_params.get("token") == "valid":
        trust_connection(request.scope)
    if "body" in request.query_params:
        await request.body()
    return PlainTextResponse("here")


async def never(request: Request) -> Response:
    if request.query_params.get("token") == "valid":
        trust_connection(request.scope)
        await asyncio.to_thread(request.app.state.go_on.wait, 60)
    else:
        await request.body()
        await request.receive()  # until the connection ends
    return PlainTextResponse("late")


def small_app() -> Starlette:
    routes = [Route("/", plain, methods=["GET", "POST"]), Route("/never", never)]
    made = create_app(routes, Guard(methods=frozenset({"GET", "POST"}), links_hold_tokens=True))
    made.state.go_on = threading.Event()
    return made


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY % b"/?body"])
def test_half_sent_requests_of_one_address_are_limited_in_number(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits()
    with PageServer(small_app()) as server, strangers(server.port, sent) as opened:
        assert server.get("/").status == 200  # from the same address, while they are there
        few = STRANGERS - limits.max_untrusted_per_address
        wait_until(lambda: sum(map(is_closed, opened)) >= few)
        assert server.get("/").status == 200
        assert all(map(is_closed, opened[:few]))  # the oldest ones
        assert not any(map(is_closed, opened[few + 2 :]))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"", ConnectionLimits(head_seconds=0.1)),
        (HALF_HEAD, ConnectionLimits(head_seconds=0.1)),
        (HALF_BODY % b"/?body", ConnectionLimits(body_seconds=0.1)),
        (HALF_BODY % b"/?body&token=valid", ConnectionLimits(body_seconds=0.1)),
        (HALF_BODY % b"/", ConnectionLimits(body_seconds=0.1)),  # answered before it came
        (CHUNKED + b"5\r\nquest", ConnectionLimits(body_seconds=0.1)),
        (WHOLE % b"/never", ConnectionLimits(answer_seconds=0.1)),
        (
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF_HEAD,
            ConnectionLimits(head_seconds=0.1),
        ),
    ],
)
def test_each_part_of_a_request_has_its_time(
    sent: bytes, limits: ConnectionLimits, caplog: pytest.LogCaptureFixture
) -> None:
    with PageServer(small_app(), limits) as server, strangers(server.port, sent, 1) as opened:
        wait_for_the_end(opened[0])
        assert server.get("/").status == 200
    assert [r for r in caplog.records if r.name != "asyncio"] == []


def test_bytes_that_drip_win_no_time() -> None:
    """A header that grows by a byte now and then has the time of one header."""
    limits = ConnectionLimits(head_seconds=0.3)
    with PageServer(small_app(), limits) as server, strangers(server.port, HALF_HEAD, 1) as (one,):

        def ended() -> bool:
            try:
                one.send(b"x")
            except ConnectionError:
                return True
            return is_closed(one)

        wait_until(ended)


def test_whoever_has_a_token_may_wait_for_an_answer() -> None:
    made = small_app()
    limits = ConnectionLimits(answer_seconds=2.0, max_untrusted_per_address=9)
    sent = b"GET /never?token=valid HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with (
        PageServer(made, limits) as server,
        strangers(server.port, sent, 1) as (waiting,),
        strangers(server.port, HALF_HEAD, 20),
        strangers(server.port, WHOLE % b"/never", 1) as (other,),
    ):
        wait_for_the_end(other)  # its time is over, and so would that of the first be
        assert not is_closed(waiting)
        made.state.go_on.set()
        waiting.settimeout(60)
        answer = b"".join(iter(lambda: waiting.recv(4096), b""))
        assert answer.endswith(b"late")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 not HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"5\r\nhello\r\nzz\r\n" * 3,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        WHOLE % b"/" * 50 + b"\x00\r\n\r\n",
        b'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: \xff="\\777; a[b]=c\x7f\r\n\r\n',
    ],
)
def test_nothing_is_logged_for_mistakes_of_visitors(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    desk = SeatManager([Seat("p_1")], SeatSettings(), tmp_path)
    pages = create_seat_app(
        desk, Guard(methods=frozenset({"GET", "HEAD", "POST"}), links_hold_tokens=True)
    )
    with PageServer(pages) as server:
        for _ in range(20):
            with strangers(server.port, sent, 1) as (mistaken,):
                mistaken.shutdown(socket.SHUT_WR)
                wait_for_the_end(mistaken)
        (chair,) = desk
        got = server.get(f"/seat/{chair.token}")
        assert got.status == 200 and "server" not in got.headers
    assert caplog.records == []


async def test_a_hundred_seats_behind_one_address_go_on_among_strangers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half-sent requests of each kind from the address of the seats, as many as the limit and
    more; each person comes, is asked, answers, and sees the end."""
    places = [Seat(f"p_{n}") for n in range(100)]
    async with served(tmp_path, SeatSettings(), *places) as (desk, links):
        port = urlsplit(links["p_0"]).port or 0
        bad = (HALF_HEAD, HALF_BODY % b"/seat/x/answer", HALF_BODY % b"/seat/x/agree")
        with ExitStack() as stack:
            for sent in bad:
                # In a thread, so that the server accepts meanwhile.
                await asyncio.to_thread(stack.enter_context, strangers(port, sent, 150))

            async def sit(name: str) -> None:
                chair = next(c for c in desk if c.seat.name == name)
                async with aiohttp.ClientSession() as visitor:
                    async with visitor.post(f"{links[name]}/agree") as reply:
                        assert reply.status == 200
                    question = ask_text(desk, chair, "Well?")
                    form = {"question": question.id, "a": "Calm streets."}
                    sending = asyncio.ensure_future(
                        visitor.post(f"{links[name]}/answer", data=form, allow_redirects=False)
                    )
                    assert (await question.reply).text == "Calm streets."
                    desk.withdraw_question(question, stored=True)
                    async with await sending as reply:
                        assert reply.status == 303
                    async with visitor.get(f"{links[name]}/news") as reply:
                        assert (await reply.json())["shows"] == ""

            await asyncio.gather(*(sit(place.name) for place in places))
    assert caplog.records == []


def test_a_form_that_is_too_long_or_does_not_say_is_not_read(tmp_path: Path) -> None:
    desk = SeatManager([Seat("p_1")], SeatSettings(), tmp_path)
    pages = create_seat_app(
        desk, Guard(methods=frozenset({"GET", "HEAD", "POST"}), links_hold_tokens=True)
    )
    with PageServer(pages) as server:
        for length in (str(MAX_FORM_BYTES + 1), "9" * 30, "-1"):
            asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            asked.putrequest("POST", "/seat/x/answer")
            asked.putheader("Content-Length", length)
            asked.endheaders()
            assert asked.getresponse().status in (400, 413)
            asked.close()


def test_the_reader_goes_on_with_few_files_to_open(tmp_path: Path) -> None:
    """The process may open 128 files, and strangers hold 300 connections."""
    few = ("sh", "-c", 'ulimit -n 128 && exec "$@"', "sh")
    command = (*few, sys.executable, "-m", "folkmoot", "view", str(tmp_path), "--port", "0")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = urlsplit(server.stdout.readline().split()[-1]).port or 0
        with strangers(port, HALF_HEAD, 300):
            for _ in range(3):
                asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                asked.request("GET", "/")
                assert asked.getresponse().status == 200
                asked.close()
        server.terminate()
        _, told = server.communicate(timeout=60)
    assert len(told) < 1000


def test_a_visitor_has_all_addresses_of_a_network() -> None:
    assert (
        address_group("2001:db8::1")
        == address_group("2001:db8::ffff:2")
        != address_group("2001:db8:0:1::1")
    )
    assert (
        address_group("::ffff:10.0.0.1") == address_group("10.0.0.1") != address_group("10.0.0.2")
    )
    assert address_group("fe80::1%eth0") == address_group("fe80::2%eth0")
