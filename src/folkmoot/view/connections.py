"""The HTTP server of the run viewer and of the seats."""
# The server limits how many connections a visitor without a token can keep open, and for how long.
# A connection is trusted as soon as it has carried a request with a valid token. If there are too
# many untrusted connections, the server takes the address with the most of them and closes the
# oldest connection of this address. Connections with an incomplete request are closed first,
# because browsers send a whole request at once.

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
# Connections that wait in the operating system, enough for a class that opens its links at once.
BACKLOG = 1024
ACCEPT_RETRY_SECONDS = 1.0
# The number of open files to request from the operating system.
MAX_FILES = 8192
# The key of the connection in the state of a request.
CONNECTION = "folkmoot.connection"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The largest numbers of open connections, and the time limit of each step of a request."""

    # Time for a request to arrive (`head_seconds`, `body_seconds`).
    head_seconds: float = 15.0
    body_seconds: float = 60.0
    # Time for a visitor without a token to read the response.
    answer_seconds: float = 60.0
    # A class of 100 behind one router stays below this limit.
    max_untrusted_per_address: int = 256
    max_untrusted: int = 512
    max_open: int = 4096


class PageConnection(H11Protocol):
    """One HTTP connection with time limits."""

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
        """True if a whole request has arrived and its answer is not complete."""
        return self._part == "answer"

    def trust(self) -> None:
        """Mark the connection as trusted, after a request with a valid token."""
        self.trusted = True
        self._pool.release_connection(self)
        if self.is_answering:
            self._stop_timer()

    def drop_connection(self) -> None:
        """Close the connection without sending a response."""
        self._stop_timer()
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = address_group(self.client[0] if self.client else "")
        self._enter_part("head")
        self._pool.add_connection(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._pool.discard_connection(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        # The request is malformed, but its response has already started.
        except h11.ProtocolError:
            self.drop_connection()
        else:
            self._enter_part(self._awaited_part())

    def send_400_response(self, msg: str) -> None:
        # Another response is in progress on this connection.
        if self.conn.our_state is not h11.IDLE:
            self.drop_connection()
            return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        # Until the next request begins, the keep-alive limit of uvicorn holds. If the body of the
        # request is still arriving, its time limit continues.
        if self.conn.their_state is not h11.SEND_BODY:
            self._enter_part("")
        super().on_response_complete()
        if self._awaited_part() != "head":
            self._enter_part(self._awaited_part())

    def _awaited_part(self) -> str:
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
    """The open connections of one server."""

    # Untrusted connections are also grouped by address.

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        files = allow_files(MAX_FILES)
        # The run needs the other half of the files that the process may open.
        self._max_open = min(limits.max_open, files // 2)
        self._max_untrusted = min(limits.max_untrusted, self._max_open // 2)
        self._open: set[PageConnection] = set()
        self._untrusted: dict[str, dict[PageConnection, None]] = {}
        self._closed = asyncio.Event()

    def add_connection(self, connection: PageConnection) -> None:
        """Add a new connection. If there are too many connections, close an old untrusted one."""
        # If the address of the new connection has too many, its oldest one is closed. Otherwise,
        # the address with the most untrusted connections loses its oldest one.
        self._open.add(connection)
        same_address = self._untrusted.setdefault(connection.address, {})
        same_address[connection] = None
        if len(same_address) > self.limits.max_untrusted_per_address:
            self._close_oldest(connection.address)
        elif sum(map(len, self._untrusted.values())) > self._max_untrusted:
            self._close_oldest(
                max(self._untrusted, key=lambda address: len(self._untrusted[address]))
            )

    def release_connection(self, connection: PageConnection) -> None:
        """Stop counting a connection as untrusted."""
        same_address = self._untrusted.get(connection.address, {})
        same_address.pop(connection, None)
        if not same_address:
            self._untrusted.pop(connection.address, None)

    def discard_connection(self, connection: PageConnection) -> None:
        """Remove a closed connection from the pool."""
        self.release_connection(connection)
        self._open.discard(connection)
        self._closed.set()

    async def wait_for_room(self) -> None:
        """Wait until one more connection may be opened."""
        while len(self._open) >= self._max_open:
            self._closed.clear()
            await self._closed.wait()

    def _close_oldest(self, address: str) -> None:
        # Browsers send a whole request at once, so connections with an incomplete request are
        # closed first.
        same_address = self._untrusted[address]
        oldest = next(
            (connection for connection in same_address if not connection.is_answering),
            next(iter(same_address)),
        )
        self.release_connection(oldest)
        oldest.drop_connection()


class PageServer(uvicorn.Server):
    """A uvicorn server for the pages."""

    # The server accepts connections one at a time, so that new visitors do not slow down connected
    # visitors. Invalid requests are not logged.

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
        # uvicorn's accept loops cannot be limited, so this server starts none of them.
        self.servers = []
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
            # The process has no free file descriptor. New visitors wait in the operating system.
            except OSError as error:
                self._tell_shortage(error)
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            try:
                await loop.connect_accepted_socket(lambda: PageConnection(self), accepted)
            except OSError:
                accepted.close()
            # `sock_accept` returns without yielding if a connection already waits. Let other tasks
            # run.
            await asyncio.sleep(0)

    def _tell_shortage(self, error: OSError) -> None:
        if not self._is_shortage_told:
            self._is_shortage_told = True
            LOGGER.error("New visitors of the pages have to wait: %s", error)


def trust_connection(scope: Scope) -> None:
    """Mark the connection of a request as trusted, because the request has a valid token."""
    connection = scope.get("state", {}).get(CONNECTION)
    if isinstance(connection, PageConnection):
        connection.trust()


def address_group(host: str) -> str:
    """Return an IPv4 address unchanged, or the /64 network of an IPv6 address."""
    # A visitor with IPv6 usually has all addresses of a /64 network.
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


def allow_files(max_files: int) -> int:
    """Raise the limit of open files of this process, if possible. Returns the new limit."""
    # Windows has no such limit.
    if sys.platform == "win32":
        return max_files
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return max_files
    if soft_limit < max_files:
        limit = max_files if hard_limit == resource.RLIM_INFINITY else min(max_files, hard_limit)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
            soft_limit = limit
    return soft_limit
