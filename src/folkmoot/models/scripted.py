"""A scripted model with replies from a function, for tests and for trying out a protocol.

Example: `folkmoot.run("study.yaml", provider=ScriptedProvider(lambda request, address: "yes"))`
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from folkmoot.models.request import Completion, FloatArray, ModelRequest, Provider, Usage
from folkmoot.randomness import digest

ScriptFunction = Callable[[ModelRequest, str], "str | Completion | Awaitable[str | Completion]"]
DIMENSIONS = 64


class ScriptedProvider(Provider):
    """A provider in this process that returns the replies of a function.

    - `fn(request, address)`: returns a text or a Completion, or raises a ModelError.
    - `latency`: the delay of each reply in seconds, or a function from address to delay.
    - `keep_requests`: if True, the attribute `seen` holds the address and the request of each call.

    The attribute `calls` is the number of calls so far.
    """

    # `fn` may be async.

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
        reply: Any = self._fn(request, address)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, Completion):
            return reply
        size = sum(len(message.content) for message in request.messages)
        usage = Usage(size // 4, len(reply) // 4, 0)
        return Completion(reply, usage, "scripted", finish="stop")

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Return an embedding of each text, shape (n, 64), float32."""
        # Hashed word counts: texts with the same words get the same direction.
        self.calls += 1
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().split():
                vectors[row, int.from_bytes(digest(word, size=2), "big") % DIMENSIONS] += 1.0
        return vectors, Usage(sum(map(len, texts)) // 4, 0)
