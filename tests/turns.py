"""Delays counted in turns of the event loop. The order is the same on every machine."""

from __future__ import annotations

import asyncio


async def yield_to_loop(count: int) -> None:
    """Yield to the event loop `count` times. The task with the lowest count continues first."""
    for _ in range(count):
        await asyncio.sleep(0)
