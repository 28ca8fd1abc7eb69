"""Run a study with humans in a separate process, which a test may kill: `STUDY OUT LATE`.

Prints the links. When the file LATE appears, the time of the seat named in it is used up.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import folkmoot
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.view import seat


def main(study: str, out: str, late: str) -> None:
    serve_seats = seat.build_seat_host(print_line=lambda line: print(line, flush=True))

    async def use_up_time(seat_manager: SeatManager) -> None:
        while True:
            await asyncio.sleep(0.05)
            with suppress(OSError):
                name = Path(late).read_text()
                for seat_state in seat_manager:
                    question = seat_manager.current_question(seat_state)
                    if seat_state.seat.name == name and question is not None:
                        question.left = 0.0
                        seat_manager.advance_clock()
                        Path(late).unlink()

    @asynccontextmanager
    async def host(seat_manager: SeatManager) -> AsyncIterator[None]:
        async with serve_seats(seat_manager):
            task = asyncio.ensure_future(use_up_time(seat_manager))
            yield
            task.cancel()

    folkmoot.run(study, out=out, seat_host=host, model="synthetic")


if __name__ == "__main__":
    main(*sys.argv[1:])
