"""A run with people in a process of its own, which a test may kill: `STUDY OUT LATE`.

Prints the links. Whenever the file LATE appears, it uses up the time of the seat that it names.
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
    serving = seat.build_seat_host(print_line=lambda line: print(line, flush=True))

    async def use_up_time(desk: SeatManager) -> None:
        while True:
            await asyncio.sleep(0.05)
            with suppress(OSError):
                name = Path(late).read_text()
                for chair in desk:
                    question = desk.current_question(chair)
                    if chair.seat.name == name and question is not None:
                        question.left = 0.0
                        desk.advance_clock()
                        Path(late).unlink()

    @asynccontextmanager
    async def host(desk: SeatManager) -> AsyncIterator[None]:
        async with serving(desk):
            task = asyncio.ensure_future(use_up_time(desk))
            yield
            task.cancel()

    folkmoot.run(study, out=out, seat_host=host, model="synthetic")


if __name__ == "__main__":
    main(*sys.argv[1:])
