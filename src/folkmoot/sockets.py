"""Sockets of another library watched in an event loop: which of them can be read or written.

Used by curl_loop.py, whose library opens, uses and closes them by itself.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable
from typing import Protocol

Ready = Callable[[int, bool, bool], object]  # socket, can be read, can be written


class Watch(Protocol):
    """Calls whoever made it when a socket is as it was wanted, until nothing is wanted of it."""

    def want(self, socket: int, read: bool, write: bool) -> None:
        """From now on this is wanted of a socket; neither: it may be closed."""

    def close(self) -> None:
        """Watch nothing any more."""


def watch(ready: Ready) -> Watch:
    """A watch in the running loop."""
    loop = asyncio.get_running_loop()
    if sys.platform == "linux":
        return EpollWatch(loop, ready)
    return LoopWatch(loop, ready)


class LoopWatch:
    """By the loop's own readers and writers: everywhere, but a loop makes much of each change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._reading: set[int] = set()
        self._writing: set[int] = set()

    def want(self, socket: int, read: bool, write: bool) -> None:
        if read:
            self._loop.add_reader(socket, self._ready, socket, True, False)
            self._reading.add(socket)
        elif socket in self._reading:
            self._loop.remove_reader(socket)
            self._reading.remove(socket)
        if write:
            self._loop.add_writer(socket, self._ready, socket, False, True)
            self._writing.add(socket)
        elif socket in self._writing:
            self._loop.remove_writer(socket)
            self._writing.remove(socket)

    def close(self) -> None:
        for socket in self._reading | self._writing:
            self.want(socket, False, False)


if sys.platform == "linux":
    _ERRORS_TOO = ~select.EPOLLOUT  # an error, or that the other end has left, is learnt by reading
    _EVENTS = {
        (True, False): select.EPOLLIN | select.EPOLLONESHOT,
        (False, True): select.EPOLLOUT | select.EPOLLONESHOT,
        (True, True): select.EPOLLIN | select.EPOLLOUT | select.EPOLLONESHOT,
    }

    class EpollWatch:
        """By an epoll of its own, of which the loop watches one descriptor.

        A socket stays registered between requests, but says something once only (EPOLLONESHOT)
        and is silent until the next time it is wanted: one system call a request and not seven. The
        kernel forgets a socket that is closed, so that one opened under its number is a new one.
        """

        def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
            self._loop = loop
            self._ready = ready
            self._wanted: dict[int, int] = {}
            self._epoll = select.epoll()
            loop.add_reader(self._epoll.fileno(), self._look)

        def want(self, socket: int, read: bool, write: bool) -> None:
            events = _EVENTS.get((read, write))
            if events is None:
                self._wanted.pop(socket, None)
            else:
                self._wanted[socket] = events
                self._arm(socket, events)

        def close(self) -> None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._wanted.clear()

        def _arm(self, socket: int, events: int) -> None:
            try:
                self._epoll.modify(socket, events)
            except FileNotFoundError:
                self._epoll.register(socket, events)

        def _look(self) -> None:
            for socket, found in self._epoll.poll(0):
                if socket not in self._wanted:
                    continue
                self._ready(socket, bool(found & _ERRORS_TOO), bool(found & select.EPOLLOUT))
                if (events := self._wanted.get(socket)) is not None:
                    self._arm(socket, events)
