"""Embed texts and run computations for a scope, and store the results in the journal."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from folkmoot.child_process import run_in_child
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.session.run_context import RunContext
from folkmoot.errors import ProtocolError
from folkmoot.files import storage_errors
from folkmoot.models.request import FloatArray
from folkmoot.randomness import digest, limit_to_one_thread

# Texts of one embedding request. A change alters the requests at the journaled addresses, so runs
# made before could not be resumed without --accept-changes.
EMBED_BATCH = 100
# Embeddings above this size are mapped from a temporary file.
MAX_EMBEDDING_BYTES_IN_MEMORY = 4_000_000


async def embed_texts(run: RunContext, address: str, texts: Iterable[str]) -> FloatArray:
    """Return the embeddings of texts.

    The array is float32 with shape (texts, dimensions). Each row has the norm 1.
    """
    # Each batch of `EMBED_BATCH` texts has its own address: `<address>.b0`, `<address>.b1`, …
    text_list = list(texts)
    # The address of a batch is its number, so concurrent batches are journaled like serial ones.
    pending = deque(
        asyncio.ensure_future(
            run.embed_texts(f"{address}.b{number}", text_list[start : start + EMBED_BATCH])
        )
        for number, start in enumerate(range(0, len(text_list), EMBED_BATCH))
    )
    vectors, filled = np.zeros((0, 0), dtype=np.float32), 0
    try:
        while pending:
            await pending[0]
            batch_vectors = pending.popleft().result().astype(np.float32)
            if not filled:
                vectors = _allocate_vectors(run.folder, len(text_list), batch_vectors.shape[1])
            norms = np.linalg.norm(batch_vectors, axis=1, keepdims=True)
            # A zero vector has no direction: it stays as it is.
            vectors[filled : filled + len(batch_vectors)] = batch_vectors / np.where(
                norms == 0, 1, norms
            )
            filled += len(batch_vectors)
    except BaseException as error:
        # Wait for the batches in flight: they are paid for and must reach the journal. A cancelled
        # run abandons them, because they may never be answered.
        for batch in pending if isinstance(error, asyncio.CancelledError) else ():
            batch.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        raise
    return vectors


def _allocate_vectors(folder: Path, rows: int, columns: int) -> FloatArray:
    if rows * columns * 4 <= MAX_EMBEDDING_BYTES_IN_MEMORY:
        return np.zeros((rows, columns), dtype=np.float32)
    with storage_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        mapped = np.memmap(file, dtype=np.float32, mode="w+", shape=(rows, columns))
    # Return a plain array: each row taken from a memmap would be a memmap object of 500 bytes.
    return np.asarray(mapped)


async def run_computation(
    run: RunContext,
    address: str,
    fn: Callable[..., object],
    args: tuple[object, ...],
    version: int,
    name: str | None,
) -> object:
    """Return `fn(*args)` from the journal, or compute it now and journal it.

    - `version`: a number that changes when `fn` gives other results than before.
    - `name`: the name of the computation in the journal, or None for the name of `fn`.

    Raises ProtocolError if the result is not JSON.
    """
    name = name or f"{fn.__module__}.{fn.__qualname__}"
    fingerprint = digest(name, version, *(_hash_argument(arg) for arg in args))
    request_data = {"function": name, "version": version}
    await run.prefetch_entry(address)
    entry = run.journal.lookup_entry(address, fingerprint, lambda: request_data)
    if entry is None:
        run.check_halted()
        run.plan.write_plan()
        # Run one computation at a time: concurrent ones would compete for the interpreter with each
        # other and with the event loop.
        async with run.compute_lock:
            # The code after this computation may ask more questions, and they belong in the same
            # batch.
            with run.gateway.hold_batches():
                result = await asyncio.to_thread(_compute_now, run, fn, args)
        try:
            reply = json.dumps(result)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"compute(): the result of {name} is not JSON: {error}") from error
        entry = JournalEntry(address, "compute", fingerprint, request_data, reply)
        run.journal.append(entry)
    return json.loads(entry.reply)


def _hash_argument(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return digest(str(value.dtype), str(value.shape), np.ascontiguousarray(value).tobytes())
    return digest(json.dumps(value, sort_keys=True, ensure_ascii=False))


# Only functions of this package run in a child process: it may not find a study author's module.
_PACKAGE_PREFIX = "folkmoot."


def _compute_now(run: RunContext, fn: Callable[..., object], args: tuple[object, ...]) -> object:
    # In a large run a child process returns the memory of the computation to the system when it
    # ends.
    if run.is_large and fn.__module__.startswith(_PACKAGE_PREFIX):
        return run_in_child(fn, args, folder=run.folder)
    with limit_to_one_thread():
        return fn(*args)
