"""Serve the pages of the seats in the process of the run."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

from folkmoot.engine.run.execution import SeatHost
from folkmoot.engine.seats.seat_manager import (
    SeatManager,
)
from folkmoot.errors import InputError, Problem
from folkmoot.view.connections import BACKLOG, PageServer
from folkmoot.view.seat.pages import create_seat_app
from folkmoot.view.site import (
    LOOPBACK,
    Guard,
    own_names,
)

TICK_SECONDS = 1.0
# The pages stay available for this long at the end, so that participants see the last one.
LINGER_SECONDS = 60.0


def build_seat_host(
    *,
    address: str = LOOPBACK,
    port: int | None = None,
    public_url: str = "",
    print_line: Callable[[str], object] = print,
    linger_seconds: float = LINGER_SECONDS,
    count_questions: Callable[[], int | None] | None = None,
) -> SeatHost:
    """Return a server for the web pages on which humans answer.

    Pass the server as `RunOptions.seat_host`.

    - `public_url`: the address at which participants reach the server through a proxy.
    - `print_line`: called with each link.
    - `linger_seconds`: how long the pages remain after the run.
    - `count_questions`: returns the largest number of questions to a participant, or None.
    """
    # The pages end earlier if all connected participants have seen the last page. `count_questions`
    # is called in a thread.

    @asynccontextmanager
    async def serve_seats(seat_manager: SeatManager) -> AsyncIterator[None]:
        listening = _open_socket(address, port if port is not None else seat_manager.port)
        seat_manager.port = listening.getsockname()[1]
        # The links must stay valid after a resume, so the port is saved before they are shown.
        seat_manager.save_state()
        shown_address = f"[{address}]" if ":" in address else address
        base = public_url.rstrip("/") or f"http://{shown_address}:{seat_manager.port}"
        seat_manager.address = base
        guard = Guard(
            hosts=own_names(urlsplit(base).hostname or ""),
            methods=frozenset({"GET", "HEAD", "POST"}),
            links_hold_tokens=True,
        )
        pages = create_seat_app(seat_manager, guard)
        server = _Server(pages)
        if seat_manager.lobby is not None:
            print_line(f"One link for all: {seat_manager.address}/enter/{seat_manager.lobby.token}")
        for seat_state in seat_manager if seat_manager.lobby is None else ():
            print_line(f"Seat {seat_state.seat.name}: {base}/seat/{seat_state.token}")
        print_line(f"All seats, for you alone: {base}/seats/{seat_manager.token}")
        tasks = [
            asyncio.ensure_future(server.serve(sockets=[listening])),
            asyncio.ensure_future(_run_clock(seat_manager)),
        ]
        if count_questions is not None:
            tasks.append(asyncio.ensure_future(_expect(seat_manager, count_questions)))
        try:
            yield
            # This changes the pages of all seats to the last one.
            seat_manager.finish()
            await _wait_until_end_is_shown(seat_manager, linger_seconds)
        finally:
            for task in tasks[1:]:
                task.cancel()
            server.should_exit = True
            await asyncio.gather(*tasks, return_exceptions=True)

    return serve_seats


class _Server(PageServer):
    # The run handles Ctrl-C.
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _open_socket(address: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port or 0))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        address_text = f"{address}:{port or 0}"
        hint = "close what listens there, or choose another with --port (the links then change)"
        raise InputError(
            Problem(f"cannot listen at {address_text}: {error.strerror}", hint=hint)
        ) from None
    listening.setblocking(False)
    return listening


async def _expect(seat_manager: SeatManager, count_questions: Callable[[], int | None]) -> None:
    seat_manager.expected_questions = await asyncio.to_thread(count_questions)


async def _run_clock(seat_manager: SeatManager) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        seat_manager.advance_clock()


async def _wait_until_end_is_shown(seat_manager: SeatManager, seconds: float) -> None:
    async def wait_until_shown() -> None:
        while not seat_manager.researcher_left and not all(
            seat_state.end_shown for seat_state in seat_manager if seat_state.is_connected
        ):
            await asyncio.sleep(0.05)

    with suppress(TimeoutError):
        await asyncio.wait_for(wait_until_shown(), seconds)
        # The last page may still be on its way to the browser.
        await asyncio.sleep(0.2)
