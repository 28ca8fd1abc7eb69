"""Run the items of `Scope.map` at the same time, or in blocks under a budget."""

# `run_fork` passes the items to an executor. `run_locally` is the executor of a run without
# workers. Workers and dry runs use it as well, for the items that they run.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.session.run_context import ForkExecutor, ForkItem, ForkLike, RunContext

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

# Items to start before the event loop may serve its sockets. If 1,200 items started at once, all
# would build their prompts before the first request left the machine.
ITEMS_STARTED_PER_YIELD = 32


async def run_fork(
    run: RunContext,
    fork: ForkLike[I, R],
    fork_items: Sequence[ForkItem[I]],
    executor: ForkExecutor,
    stage: str,
    blocks: Sequence[Hashable],
) -> list[R]:
    """Run all items of a `Scope.map` call with `executor` and return their results in input order.

    - `stage`: the name in progress reports, or empty for no reports.
    - `blocks`: the block of each item.

    Raises the error of the first failed item.
    """
    # If an item fails, no new calls start, and calls in flight are journaled. A budget pays for
    # whole blocks.
    results: dict[int, R] = {}
    failures: dict[int, BaseException] = {}
    # The numbers of the items that `executor` has received.
    handed_out: set[int] = set()

    async def run_concurrently(indices: Sequence[int]) -> bool:
        handed_out.update(indices)
        # The calls of items on a cluster are in flight there.
        is_local = executor is run_locally
        with contextlib.nullcontext() if is_local else run.gateway.count_as_work():
            failures.update(
                await executor(run, fork, [fork_items[i] for i in indices], results, stage)
            )
        return not failures and run.halt_cause is None

    if blocks and run.gateway.budget.active:
        await _run_block_by_block(run.gateway, blocks, run_concurrently)
    else:
        await run_concurrently(range(len(fork_items)))
    if failures or run.halt_cause is not None:
        # Only the local executor says which items it has not started. A worker may have recorded
        # rows of an item that it did not finish.
        started = {*results, *failures, *(() if executor is run_locally else handed_out)}
        rest = [fork_item for fork_item in fork_items if fork_item.number not in started]
        await _replay_rest(run, fork, rest, results, failures, stage)
        if failures or len(results) < len(fork_items) or not run.replays_while_pausing:
            raise run.primary_error(failures)
    return [results[fork_item.number] for fork_item in fork_items]


async def _replay_rest(
    run: RunContext,
    fork: ForkLike[I, R],
    fork_items: Sequence[ForkItem[I]],
    results: dict[int, R],
    failures: dict[int, BaseException],
    stage: str,
) -> None:
    # A resume that pauses must not lose the rows that an earlier process has recorded. So it also
    # replays the items for which the journal has calls. New calls are stopped already: each item
    # ends where the journal ends.
    if not run.replays_while_pausing:
        return
    for fork_item in fork_items:
        if not run.journal.has_entries_in_scope("/".join((*fork.path, fork_item.key))):
            continue
        try:
            results[fork_item.number] = await fork.start_item(run, fork_item)
        except Exception as error:
            failures[fork_item.number] = error
        else:
            run.report_item_done(stage)


async def run_locally(
    run: RunContext,
    fork: ForkLike[I, R],
    fork_items: Sequence[ForkItem[I]],
    results: dict[int, R],
    stage: str,
) -> dict[int, BaseException]:
    """Run items concurrently in this process.

    `results`: the dictionary to fill, a map from item number to result.

    Returns a map from item number to error, for the failed items.
    """
    # This is a `ForkExecutor`.
    failures: dict[int, BaseException] = {}

    async def run_pending_items(pending: Iterator[ForkItem[I]]) -> None:
        for fork_item in pending:
            if failures or run.halt_cause is not None:
                return
            try:
                results[fork_item.number] = await fork.start_item(run, fork_item)
            except BaseException as error:
                # A cancelled worker has to end at once. If it only noted the error, `run_locally`
                # would wait for the calls of the other workers, which may never be answered.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                failures[fork_item.number] = error
                run.stop_new_calls(error)
                return
            run.report_item_done(stage)

    pending = iter(fork_items)
    workers: list[asyncio.Future[None]] = []
    try:
        worker_count = min(len(fork_items), run.gateway.max_waiting_calls, fork.at_once)
        for started_count in range(1, worker_count + 1):
            workers.append(asyncio.ensure_future(run_pending_items(pending)))
            if started_count % ITEMS_STARTED_PER_YIELD == 0:
                await asyncio.sleep(0)
        for worker in workers:
            await worker
    except asyncio.CancelledError:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return failures


async def _run_block_by_block(
    gateway: Gateway,
    blocks: Sequence[Hashable],
    run_concurrently: Callable[[Sequence[int]], Awaitable[bool]],
) -> None:
    # A budget that runs out leaves at most one block incomplete. The first block runs alone to
    # measure its cost. Then as many blocks run at once as half of the remaining budget covers.
    # `run_concurrently` returns False if the run stops.
    indices_by_block: dict[Hashable, list[int]] = {}
    for index, block in enumerate(blocks):
        indices_by_block.setdefault(block, []).append(index)
    waiting_blocks, at_once = list(indices_by_block.values()), 1
    max_use_per_block = [0.0, 0.0]
    while waiting_blocks:
        current_blocks, waiting_blocks = waiting_blocks[:at_once], waiting_blocks[at_once:]
        before = gateway.total_use()
        if not await run_concurrently(
            [index for block_indices in current_blocks for index in block_indices]
        ):
            return
        use_per_block = (
            (use_after - use_before) / len(current_blocks)
            for use_before, use_after in zip(before, gateway.total_use(), strict=True)
        )
        max_use_per_block = [
            max(pair) for pair in zip(max_use_per_block, use_per_block, strict=True)
        ]
        at_once = max(1, gateway.budget.repeats_affordable(*max_use_per_block) // 2)
