"""What the wire formats do alike: ask, learn what a model takes, ask again, read the reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from folkmoot.models.request import Completion, JsonObject, ModelRequest
from folkmoot.models.wire.batches import BatchApi
from folkmoot.models.wire.capabilities import Capabilities, CapabilityCache
from folkmoot.models.wire.http_client import HttpClient
from folkmoot.transport import HttpResponse

MAX_CAPABILITY_RETRIES = (
    6  # times that one request is sent again because the model took less than was asked
)


class ChatProvider(ABC):
    """One server that speaks a wire format. Remembers what each of its models takes.

    `batches` is the vendor's batch interface at this server.
    """

    batches: BatchApi

    def __init__(self, wire: HttpClient, capability_cache: CapabilityCache) -> None:
        self._wire = wire
        self._learnt = capability_cache

    @property
    def notes(self) -> list[str]:
        """What has been learnt about the models, in words."""
        return self._learnt.notes

    @abstractmethod
    def path(self, request: ModelRequest) -> str:
        """Where a request is posted, below the base URL."""

    @abstractmethod
    def encode_request(self, request: ModelRequest, capabilities: Capabilities) -> JsonObject:
        """The body of a request to a model of these capabilities."""

    @abstractmethod
    def decode_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Completion:
        """The reply in an answer. Raises the ModelError that fits."""

    def prepare_request(
        self, request: ModelRequest, *, batched: bool = False
    ) -> tuple[Capabilities, JsonObject]:
        """What the model is known to take by now, and the body of the request that fits; `batched`
        for one that may wait for hours, in which a cache that is paid for would be forgotten."""
        known = self._learnt.get(request)
        paid = batched and self.batches.bills_cache_writes
        return known, self.encode_request(
            request, replace(known, accepts_cache_control=False) if paid else known
        )

    def decode_or_relearn(
        self, request: ModelRequest, capabilities: Capabilities, response: HttpResponse
    ) -> Completion | None:
        """The reply to a request that was encoded for `capabilities`; None where the answer says
        that the model takes less, so that the request should go again. Raises the ModelError that
        fits."""
        if self._learnt.update_from_error(request, capabilities, response[2], response[0]):
            return None
        return self._wire.read(self.decode_reply, response)

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        for _ in range(MAX_CAPABILITY_RETRIES):
            used, body = self.prepare_request(request)
            answer = await self._wire.post_json(self.path(request), body)
            reply = self.decode_or_relearn(request, used, answer)
            if reply is not None:
                return reply
        return self._wire.read(self.decode_reply, answer)

    async def close(self) -> None:
        await self._wire.close()
