"""The scripted model: answers are what a function says. For tests and for trying a protocol out.

folkmoot.run("study.yaml", provider=Scripted(lambda request, address: "yes"))
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from folkmoot.models.request import Completion, FloatArray, ModelRequest, Usage
from folkmoot.randomness import digest

ScriptFunction = Callable[[ModelRequest, str], "str | Completion | Awaitable[str | Completion]"]
DIMENSIONS = 64


class ScriptedProvider:
    """A provider in this process: `fn(request, address)` gives a text, a Completion, or raises a
    ModelError; it may be async.

    `latency` is seconds before each answer, or a function of the address that gives them. `calls`
    counts how often it was asked, `seen` keeps (address, request) of each call when
    `keep_requests` is set.
    """

    def __init__(
        self,
        fn: ScriptFunction,
        *,
        latency: float | Callable[[str], float] = 0.0,
        keep_requests: bool = False,
    ) -> None:
        self.calls = 0
        self.seen: list[tuple[str, ModelRequest]] = []
        self._fn = fn
        self._latency = latency
        self._keep = keep_requests

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        self.calls += 1
        if self._keep:
            self.seen.append((address, request))
        latency = self._latency(address) if callable(self._latency) else self._latency
        if latency:
            await asyncio.sleep(latency)
        said: Any = self._fn(request, address)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Completion):
            return said
        size = sum(len(message.content) for message in request.messages)
        usage = Usage(size // 4, len(said) // 4, 0)
        return Completion(said, usage, "scripted", finish="stop")

    async def embed_texts(
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
