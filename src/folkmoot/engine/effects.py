"""The effects of a scope that are no questions: embeddings, and computations that are dear.

Used by `session.py` alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, cast

import numpy as np

from folkmoot.engine.context import RunContext
from folkmoot.engine.journal import Entry
from folkmoot.errors import ProtocolError
from folkmoot.models.request import FloatArray
from folkmoot.one_thread import one_thread
from folkmoot.randomness import digest

EMBED_BATCH = 100


async def embedded(
    run: RunContext, address: str, texts: Iterable[str] | AsyncIterable[str], patience: int
) -> FloatArray:
    """Embeddings (n, d) of texts, rows of length one, by batches at addresses of their own.

    Of texts that come one after the other a batch is asked for as soon as it is full.
    """
    # Batches are addressed by their number, so they may as well be under way at once.
    asked: list[asyncio.Future[FloatArray]] = []
    batch: list[str] = []
    parts: list[FloatArray] = []
    try:
        async for text in texts if isinstance(texts, AsyncIterable) else _one_by_one(texts):
            batch.append(text)
            if len(batch) == EMBED_BATCH:
                call = run.embed(f"{address}.b{len(asked)}", batch, patience)
                asked.append(asyncio.ensure_future(call))
                batch = []
        if batch:
            parts.append(await run.embed(f"{address}.b{len(asked)}", batch, patience))
        parts[:0] = [await each for each in asked]
    except BaseException:
        await asyncio.gather(*asked, return_exceptions=True)
        raise
    if not parts:
        return np.zeros((0, 0), dtype=np.float32)
    vectors = np.concatenate(parts).astype(np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return cast("FloatArray", vectors / np.where(norms == 0, 1, norms))


async def _one_by_one(texts: Iterable[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def computed(
    run: RunContext,
    address: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    version: int,
    brief: bool,
) -> Any:
    """`fn(*args)` as its own JSON round trip: from the journal, or done (in a thread, unless it is
    brief) and journaled."""
    name = f"{fn.__module__}.{fn.__qualname__}"
    fingerprint = digest(name, version, *(_digest_of(a) for a in args))
    asked = {"function": name, "version": version}
    entry = run.journal.lookup(address, fingerprint, lambda: asked)
    if entry is None:
        run.check_halted()
        run.plan.write()
        if brief:
            result = _single_threaded(fn, args)
        else:
            # One after another: side by side they would fight for the interpreter, with each other
            # and with the loop.
            async with run.computing:
                result = await asyncio.to_thread(_single_threaded, fn, args)
        try:
            reply = json.dumps(result)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"compute(): what {name} gives is not JSON: {error}") from error
        entry = Entry(address, "compute", fingerprint, asked, reply)
        run.journal.put(entry)
    return json.loads(entry.reply)


def _digest_of(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return digest(str(value.dtype), str(value.shape), np.ascontiguousarray(value).tobytes())
    return digest(json.dumps(value, sort_keys=True, ensure_ascii=False))


def _single_threaded(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with one_thread():
        return fn(*args)
