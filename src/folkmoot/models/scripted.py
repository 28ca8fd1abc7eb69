"""The scripted model: answers are what a function says. For tests and for trying a protocol out.

folkmoot.run("study.yaml", provider=Scripted(lambda request, address: "yes"))
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from folkmoot.models.request import FloatArray, Reply, Request, Usage
from folkmoot.randomness import digest

Answering = Callable[[Request, str], "str | Reply | Awaitable[str | Reply]"]
DIMENSIONS = 64


class Scripted:
    """A provider in this process: `fn(request, address)` gives a text, a Reply, or raises a
    ModelError; it may be async.

    `latency` is seconds before each answer, or a function of the address that gives them. `calls`
    counts how often it was asked, `seen` keeps (address, request) of each call when `keep` is set.
    """

    def __init__(
        self,
        fn: Answering,
        *,
        latency: float | Callable[[str], float] = 0.0,
        keep: bool = False,
    ) -> None:
        self.calls = 0
        self.seen: list[tuple[str, Request]] = []
        self._fn = fn
        self._latency = latency
        self._keep = keep

    async def complete(self, request: Request, *, address: str) -> Reply:
        self.calls += 1
        if self._keep:
            self.seen.append((address, request))
        latency = self._latency(address) if callable(self._latency) else self._latency
        if latency:
            await asyncio.sleep(latency)
        said: Any = self._fn(request, address)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Reply):
            return said
        size = sum(len(m.content) for m in request.messages)
        usage = Usage(size // 4, len(said) // 4, 0)
        return Reply(said, usage, "scripted", finish="stop")

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Hashed bags of words: the same words, the same direction."""
        self.calls += 1
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().split():
                vectors[row, int.from_bytes(digest(word, size=2), "big") % DIMENSIONS] += 1.0
        return vectors, Usage(sum(map(len, texts)) // 4, 0)

    async def close(self) -> None:
        """Nothing to close."""
