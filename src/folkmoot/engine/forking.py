"""The one fork: items side by side, results and rows in input order, drained before it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from folkmoot.engine.context import Rows, RunContext

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

LIVE_ITEMS = 4096  # items of one fork under way at once; calls are bounded by the limiter
# Items begun before the loop may look at its sockets: 1,200 begun at once would all write their
# prompts before the first request leaves the machine.
BEGUN_AT_ONCE = 32


async def fan_out(
    run: RunContext,
    rows: Rows,
    items: Sequence[I],
    fn: Callable[[int, I, Rows], Awaitable[R]],
    stage: str,
) -> list[R]:
    """`fn(index, item, its rows)` for all items; results in input order.

    When one fails no new calls begin, those in flight are awaited and journaled, and the error of
    the first item (in input order) is raised. `stage` names the fork for the progress, or is empty.
    """
    results: list[Any] = [None] * len(items)
    failures: dict[int, BaseException] = {}
    slots: list[Rows] = [[] for _ in items]
    rows.append(slots)
    pending = iter(range(len(items)))

    async def worker() -> None:
        for i in pending:
            if failures or run.halted is not None:
                return
            try:
                results[i] = await fn(i, items[i], slots[i])
            except BaseException as error:
                failures[i] = error
                run.halt(error)
                return
            run.item_done(stage)

    workers: list[asyncio.Future[None]] = []
    try:
        for begun in range(1, min(len(items), LIVE_ITEMS) + 1):
            workers.append(asyncio.ensure_future(worker()))
            if begun % BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)
        for each in workers:
            await each
    except asyncio.CancelledError:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    if failures or run.halted is not None:
        raise run.first_cause(failures)
    return results
