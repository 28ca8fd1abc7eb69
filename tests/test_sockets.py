"""Sockets are watched alike by the loop itself and by an epoll of one's own."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

import pytest

from folkmoot import sockets
from folkmoot.sockets import LoopWatch, Ready, Watch

Make = Callable[[Ready], Watch]


def by_the_loop(ready: Ready) -> Watch:
    return LoopWatch(asyncio.get_running_loop(), ready)


both = pytest.mark.parametrize("make", [by_the_loop, sockets.watch])


class Seen:
    """What a watch said; reads what there is, up to `most` bytes a time."""

    def __init__(self, most: int = 100) -> None:
        self.calls: list[tuple[bytes, bool]] = []
        self.sockets: dict[int, socket.socket] = {}
        self.most = most

    def __call__(self, number: int, read: bool, write: bool) -> None:
        data = self.sockets[number].recv(self.most) if read else b""
        self.calls.append((data, write))

    def pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.sockets[ours.fileno()] = ours
        return ours, theirs


async def turns(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0.005)


@both
async def test_what_is_wanted_is_told_until_it_is_not_wanted(make: Make) -> None:
    seen = Seen(most=2)
    watch = make(seen)
    ours, theirs = seen.pair()
    with ours, theirs:
        watch.want(ours.fileno(), True, False)
        theirs.send(b"abcd")  # two looks: after the first there is more
        await turns()
        assert seen.calls == [(b"ab", False), (b"cd", False)]
        watch.want(ours.fileno(), False, False)
        theirs.send(b"ef")
        await turns()
        assert len(seen.calls) == 2
        watch.want(ours.fileno(), True, False)
        await turns()
        assert seen.calls[2:] == [(b"ef", False)]
        watch.close()


@both
async def test_writing_and_the_other_end_leaving_are_told(make: Make) -> None:
    seen = Seen()
    watch = make(seen)
    ours, theirs = seen.pair()
    with ours:
        watch.want(ours.fileno(), False, True)
        await turns()
        assert seen.calls and set(seen.calls) == {(b"", True)}
        watch.want(ours.fileno(), True, False)
        seen.calls.clear()
        theirs.close()
        await turns(1)
        assert seen.calls and set(seen.calls) == {(b"", False)}
        watch.close()


@both
async def test_a_socket_under_an_old_number_is_a_new_one(make: Make) -> None:
    """libcurl closes a connection and opens another, which may get the same number."""
    seen = Seen()
    watch = make(seen)
    ours, theirs = seen.pair()
    number = ours.fileno()
    watch.want(number, True, False)
    theirs.send(b"old")
    await turns()
    watch.want(number, False, False)
    ours.close(), theirs.close()
    again, theirs = seen.pair()
    with again, theirs:
        assert again.fileno() == number
        watch.want(number, True, False)
        theirs.send(b"new")
        await turns()
        assert [data for data, _ in seen.calls] == [b"old", b"new"]
        watch.close()


@both
async def test_a_closed_watch_says_nothing(make: Make) -> None:
    seen = Seen()
    watch = make(seen)
    ours, theirs = seen.pair()
    with ours, theirs:
        watch.want(ours.fileno(), True, True)
        watch.close()
        theirs.send(b"x")
        await turns()
        assert seen.calls == []


@pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")
async def test_what_is_not_wanted_does_not_keep_the_loop_busy() -> None:
    seen = Seen()
    ours, theirs = seen.pair()
    looks = 0

    class Counting(sockets.EpollWatch):
        def _look(self) -> None:
            nonlocal looks
            looks += 1
            super()._look()

    counting = Counting(asyncio.get_running_loop(), seen)
    with ours, theirs:
        counting.want(ours.fileno(), True, False)
        counting.want(ours.fileno(), False, False)
        theirs.send(b"nobody reads this")
        await turns(20)
        assert looks <= 2
        counting.close()
