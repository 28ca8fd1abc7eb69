"""The one fork: items side by side, results and rows in input order, drained before it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from folkmoot.engine.context import Rows, RunContext
from folkmoot.engine.gateway import Gateway

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
    sets: Sequence[Hashable] = (),
) -> list[R]:
    """`fn(index, item, its rows)` for all items; results in input order.

    When one fails no new calls begin, those in flight are awaited and journaled, and the error of
    the first item (in input order) is raised. `stage` names the fork for the progress, or is empty.
    `sets` says for each item to which set it belongs: a budget buys whole sets.
    """
    results: list[Any] = [None] * len(items)
    failures: dict[int, BaseException] = {}
    slots: list[Rows] = [[] for _ in items]
    rows.append(slots)

    async def worker(pending: Iterator[int]) -> None:
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

    async def side_by_side(indices: Sequence[int]) -> None:
        pending = iter(indices)
        workers: list[asyncio.Future[None]] = []
        try:
            for begun in range(1, min(len(indices), LIVE_ITEMS) + 1):
                workers.append(asyncio.ensure_future(worker(pending)))
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

    if sets and run.gateway.budget.active:
        await _set_by_set(run.gateway, sets, side_by_side)
    else:
        await side_by_side(range(len(items)))
    return results


async def _set_by_set(
    gateway: Gateway,
    sets: Sequence[Hashable],
    side_by_side: Callable[[Sequence[int]], Awaitable[None]],
) -> None:
    """Sets in order: the first alone, to learn what one takes, then as many at once as half of
    what is left of the budget pays for. So a budget that ends in the middle ends in one set."""
    members: dict[Hashable, list[int]] = {}
    for index, of in enumerate(sets):
        members.setdefault(of, []).append(index)
    waiting, at_once = list(members.values()), 1
    dearest = [0.0, 0.0]
    while waiting:
        now, waiting = waiting[:at_once], waiting[at_once:]
        before = gateway.taken()
        await side_by_side([index for of in now for index in of])
        took = ((b - a) / len(now) for a, b in zip(before, gateway.taken(), strict=True))
        dearest = [max(pair) for pair in zip(dearest, took, strict=True)]
        at_once = max(1, gateway.budget.affords(*dearest) // 2)
