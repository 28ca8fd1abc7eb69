"""Delays counted in turns of the event loop: the same order on every machine, no clock."""

from __future__ import annotations

import asyncio


async def turns(count: int) -> None:
    """Let the event loop turn so many times. Whoever waits fewer turns goes on first."""
    for _ in range(count):
        await asyncio.sleep(0)
