"""Several servers of one model: each call goes to the one with the least to do.

A server that fails is left alone for a while and then tried again; the run stops for want of a
server only where none of them can be reached. Used where `endpoints:` has a list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from folkmoot.errors import FatalModelError, TransientError
from folkmoot.models.request import Completion, FloatArray, ModelRequest, Provider, Usage

R = TypeVar("R")

MAX_PENALTY_CALLS = (
    1_000  # calls; a dead server fails at once, and would seem to have nothing to do
)


class LoadBalancer:
    """One provider over several. `notes`: what was learnt of any of them."""

    def __init__(self, servers: Sequence[Provider]) -> None:
        self._servers = tuple(servers)
        self._busy = [0] * len(servers)
        self._failed = [0] * len(servers)  # calls in a row
        self._passed = [0] * len(servers)  # over since it failed last

    @property
    def notes(self) -> list[str]:
        return [note for one in self._servers for note in getattr(one, "notes", ())]

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        return await self._call_least_loaded(
            lambda one: one.complete_request(request, address=address)
        )

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        return await self._call_least_loaded(
            lambda one: one.embed_texts(model, texts, address=address)
        )

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        """The bound that is sent along, thoughts included."""
        bound = getattr(self._servers[0], "max_output_tokens", None)
        limit: int | None = request.max_tokens if bound is None else bound(request)
        return limit

    async def close(self) -> None:
        for one in self._servers:
            await one.close()

    async def _call_least_loaded(self, ask: Callable[[Provider], Awaitable[R]]) -> R:
        index = min(range(len(self._servers)), key=self._load_of)
        self._busy[index] += 1
        try:
            result = await ask(self._servers[index])
        except (TransientError, FatalModelError) as error:
            self._failed[index] += 1
            self._passed[index] = 0
            if isinstance(error, TransientError) or all(self._failed):
                raise
            raise TransientError(str(error)) from None  # another server may be better off
        else:
            self._failed[index] = 0
            return result
        finally:
            self._busy[index] -= 1
            self._passed = [passed + 1 for passed in self._passed]

    def _load_of(self, index: int) -> int:
        """Calls under way, and for a server that failed, as many more as it is still left alone."""
        penalty = min(MAX_PENALTY_CALLS, 2 ** min(self._failed[index] + 3, 20))
        left_alone = max(0, penalty - self._passed[index]) if self._failed[index] else 0
        return self._busy[index] + left_alone
