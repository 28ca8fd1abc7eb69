"""The HTTP server of the reader and of the seats, which a stranger cannot exhaust.

A connection is *trusted* once a request with a valid token has come over it. All others are
limited in time and in number: when there are too many, the oldest of the address with the most is
closed. An honest visitor sends a whole request at once, so it is a half-sent one that is closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass

import h11
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

if sys.platform != "win32":
    import resource

LOGGER = logging.getLogger("folkmoot.pages")
BACKLOG = 1024  # visitors who wait in the system: a class that opens its links at once
ACCEPT_RETRY_SECONDS = 1.0
MAX_FILES = 8192  # that we ask the system for, where it gives that many
CONNECTION = "folkmoot.connection"  # its key in the state of a request


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long a visitor may take, and how many connections may be open.

    `answer_seconds` limits how long a visitor without a token takes to read the answer. The number
    for one address leaves room for a class of 100 behind one router, of whom each browser opens
    some connections that it does not use yet. No limit counts more than half of the files that the
    process may open: the run needs the others.
    """

    head_seconds: float = 15.0
    body_seconds: float = 60.0
    answer_seconds: float = 60.0
    max_untrusted_per_address: int = 256
    max_untrusted: int = 512
    max_open: int = 4096


class PageConnection(H11Protocol):
    """One connection: each part of a request has a time limit."""

    def __init__(self, server: PageServer) -> None:
        state = {**server.lifespan.state, CONNECTION: self}
        super().__init__(server.config, server.server_state, state)
        self.trusted = False
        self.address = ""
        self._pool = server.pool
        limits = server.pool.limits
        self._seconds = {
            "head": limits.head_seconds,
            "body": limits.body_seconds,
            "answer": limits.answer_seconds,
        }
        self._part = ""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a whole request has come and is being answered."""
        return self._part == "answer"

    def trust(self) -> None:
        """Note that a request with a valid token has come."""
        self.trusted = True
        self._pool.release_connection(self)
        if self.is_answering:
            self._stop_timer()

    def drop_connection(self) -> None:
        """Close without a word."""
        self._stop_timer()
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = group_of(self.client[0] if self.client else "")
        self._enter_part("head")
        self._pool.add_connection(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._pool.discard_connection(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.ProtocolError:  # the answer to what cannot be read had begun already
            self.drop_connection()
        else:
            self._enter_part(self._awaited_part())

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state is not h11.IDLE:  # another answer is under way on this connection
            self.drop_connection()
            return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        if self.conn.their_state is not h11.SEND_BODY:  # else its time limit goes on
            self._enter_part("")  # the limit of uvicorn holds until the next request begins
        super().on_response_complete()
        if self._awaited_part() != "head":
            self._enter_part(self._awaited_part())

    def _awaited_part(self) -> str:
        """The part of a request that comes next."""
        states: dict[object, str] = {h11.IDLE: "head", h11.SEND_BODY: "body"}
        return states.get(self.conn.their_state, "answer")

    def _enter_part(self, part: str) -> None:
        if part == self._part:
            return
        self._stop_timer()
        self._part = part
        if part and not (part == "answer" and self.trusted):
            self._timer = self.loop.call_later(self._seconds[part], self.drop_connection)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ConnectionPool:
    """The open connections of a server, and by address those that are not trusted."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        files = allow_files(MAX_FILES)
        self._max_open = min(limits.max_open, files // 2)
        self._max_untrusted = min(limits.max_untrusted, self._max_open // 2)
        self._open: set[PageConnection] = set()
        self._untrusted: dict[str, dict[PageConnection, None]] = {}
        self._closed = asyncio.Event()

    def add_connection(self, connection: PageConnection) -> None:
        """Count a new connection; close another one where that is one too many."""
        self._open.add(connection)
        same = self._untrusted.setdefault(connection.address, {})
        same[connection] = None
        if len(same) > self.limits.max_untrusted_per_address:
            self._close_oldest(connection.address)
        elif sum(map(len, self._untrusted.values())) > self._max_untrusted:
            self._close_oldest(
                max(self._untrusted, key=lambda address: len(self._untrusted[address]))
            )

    def release_connection(self, connection: PageConnection) -> None:
        """Count a connection no longer among those that are not trusted."""
        same = self._untrusted.get(connection.address, {})
        same.pop(connection, None)
        if not same:
            self._untrusted.pop(connection.address, None)

    def discard_connection(self, connection: PageConnection) -> None:
        """Forget a connection that is closed."""
        self.release_connection(connection)
        self._open.discard(connection)
        self._closed.set()

    async def wait_for_room(self) -> None:
        """Wait until one more connection may be open."""
        while len(self._open) >= self._max_open:
            self._closed.clear()
            await self._closed.wait()

    def _close_oldest(self, address: str) -> None:
        """Close the oldest connection of an address, if possible one that sent no whole request."""
        same = self._untrusted[address]
        oldest = next(
            (page_connection for page_connection in same if not page_connection.is_answering),
            next(iter(same)),
        )
        self.release_connection(oldest)
        oldest.drop_connection()


class PageServer(uvicorn.Server):
    """Serves an app at a socket. It accepts one connection at a time, so that those who connect
    take no time from those who are connected, and it writes no line for each mistake of a visitor.
    """

    def __init__(self, app: ASGIApp, limits: ConnectionLimits | None = None) -> None:
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, log_level="error",
            access_log=False, server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        super().__init__(config)
        self.pool = ConnectionPool(limits or ConnectionLimits())
        self._accepting: list[asyncio.Task[None]] = []
        self._is_shortage_told = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = []  # uvicorn's own, which accept in loops that we cannot bound
        for listening in sockets or ():
            listening.setblocking(False)
            self._accepting.append(asyncio.ensure_future(self._accept_connections(listening)))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept_connections(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.pool.wait_for_room()
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no file is left: the next visitors wait in the system
                self._tell_shortage(error)
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            try:
                await loop.connect_accepted_socket(lambda: PageConnection(self), accepted)
            except OSError:
                accepted.close()
            await asyncio.sleep(0)  # `sock_accept` does not wait where somebody waits already

    def _tell_shortage(self, error: OSError) -> None:
        if not self._is_shortage_told:
            self._is_shortage_told = True
            LOGGER.error("New visitors of the pages have to wait: %s", error)


def trust_connection(scope: Scope) -> None:
    """Note that the request of an ASGI scope holds a valid token."""
    connection = scope.get("state", {}).get(CONNECTION)
    if isinstance(connection, PageConnection):
        connection.trust()


def group_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or a network of IPv6, of which a visitor has
    all addresses."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


def allow_files(wanted: int) -> int:
    """Raise the number of files that this process may open, where it is lower and can be raised;
    the number that holds now."""
    if sys.platform == "win32":  # it has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return soft
