"""What the wire formats do alike: ask, learn what a model takes, ask again, read the reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from folkmoot.models.request import Json, Reply, Request
from folkmoot.models.wire.batches import Batches
from folkmoot.models.wire.capabilities import Capabilities, Learnt
from folkmoot.models.wire.http_client import Wire
from folkmoot.transport import Answer

CONCESSIONS = 6  # times that one request is sent again because the model took less than was asked


class ChatWire(ABC):
    """One server that speaks a wire format. Remembers what each of its models takes.

    `batches` is the vendor's batch interface at this server.
    """

    batches: Batches

    def __init__(self, wire: Wire, learnt: Learnt) -> None:
        self._wire = wire
        self._learnt = learnt

    @property
    def notes(self) -> list[str]:
        """What has been learnt about the models, in words."""
        return self._learnt.notes

    @abstractmethod
    def path(self, request: Request) -> str:
        """Where a request is posted, below the base URL."""

    @abstractmethod
    def encode(self, request: Request, known: Capabilities) -> Json:
        """The body of a request to a model of these capabilities."""

    @abstractmethod
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply in an answer. Raises the ModelError that fits."""

    def asked(self, request: Request, *, batched: bool = False) -> tuple[Capabilities, Json]:
        """What the model is known to take by now, and the body of the request that fits; `batched`
        for one that may wait for hours, in which a cache that is paid for would be forgotten."""
        known = self._learnt.of(request)
        paid = batched and self.batches.cache_costs
        return known, self.encode(request, replace(known, cache=False) if paid else known)

    def settled(self, request: Request, used: Capabilities, answer: Answer) -> Reply | None:
        """The reply to a request that was encoded for `used`; None where the answer says that the
        model takes less, so that the request should go again. Raises the ModelError that fits."""
        if self._learnt.learn(request, used, answer[2], answer[0]):
            return None
        return self._wire.read(self.decode, answer)

    async def complete(self, request: Request, *, address: str) -> Reply:
        for _ in range(CONCESSIONS):
            used, body = self.asked(request)
            answer = await self._wire.post(self.path(request), body)
            reply = self.settled(request, used, answer)
            if reply is not None:
                return reply
        return self._wire.read(self.decode, answer)

    async def close(self) -> None:
        await self._wire.close()
