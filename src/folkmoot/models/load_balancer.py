"""A provider that sends each call to the least busy of several servers of one model.

This provider is used if an address under `endpoints:` is a list.
"""

# A server that fails is skipped for a number of calls and then tried again. The run stops only if
# no server can be reached.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from folkmoot.errors import FatalModelError, TransientError
from folkmoot.models.request import Completion, FloatArray, ModelRequest, Provider, Usage

R = TypeVar("R")

# A dead server fails at once and so looks idle. Without a penalty it would attract every call.
# After this number of other calls it is tried again.
MAX_PENALTY_CALLS = 1_000


class LoadBalancer(Provider):
    """A provider that distributes calls over several servers."""

    def __init__(self, servers: Sequence[Provider]) -> None:
        self._servers = tuple(servers)
        self._busy = [0] * len(servers)
        # Consecutive failed calls of each server.
        self._failed = [0] * len(servers)
        # Calls of all servers that ended since the last failure of each server.
        self._passed = [0] * len(servers)

    @property
    def notes(self) -> Sequence[str]:
        return [note for server in self._servers for note in server.notes]

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        return await self._call_least_loaded(
            lambda server: server.complete_request(request, address=address)
        )

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        return await self._call_least_loaded(
            lambda server: server.embed_texts(model, texts, address=address)
        )

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        return self._servers[0].max_output_tokens(request)

    async def close(self) -> None:
        for server in self._servers:
            await server.close()

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
            # The error is fatal for this server only. As a transient error the gateway retries it,
            # and the retry goes to another server.
            transient = TransientError(str(error), may_be_billed=error.may_be_billed)
            transient.partial_result = error.partial_result
            raise transient from None
        else:
            self._failed[index] = 0
            return result
        finally:
            self._busy[index] -= 1
            self._passed = [passed + 1 for passed in self._passed]

    def _load_of(self, index: int) -> int:
        # The running calls, plus the number of calls for which the server is still skipped after a
        # failure. The latter is 16 after the first failure, and doubles with each further failure.
        penalty = min(MAX_PENALTY_CALLS, 2 ** min(self._failed[index] + 3, 20))
        remaining_penalty = max(0, penalty - self._passed[index]) if self._failed[index] else 0
        return self._busy[index] + remaining_penalty
