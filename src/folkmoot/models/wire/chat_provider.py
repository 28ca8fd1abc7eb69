"""The common base of the wire formats: encode and send a request, and decode the reply."""

# If the reply shows that the model lacks a capability, the provider records this and sends an
# adapted request.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from folkmoot.errors import ModelError
from folkmoot.models.request import (
    Completion,
    FloatArray,
    JsonObject,
    ModelRequest,
    Provider,
    Usage,
)
from folkmoot.models.wire.batches import BatchApi
from folkmoot.models.wire.capabilities import Capabilities, CapabilityCache
from folkmoot.models.wire.http_client import HttpClient
from folkmoot.transport import HttpResponse

# A response reveals one missing capability at a time, so several attempts may be needed. The bound
# stops the loop at a server that rejects every form of a request.
MAX_CAPABILITY_RETRIES = 6
# With 100 long embeddings, a response would exceed `max_reply_mb`.
MAX_TEXTS_PER_REQUEST = 50


async def embed_in_batches(
    texts: Sequence[str],
    embed_batch: Callable[[Sequence[str]], Awaitable[tuple[FloatArray, Usage]]],
) -> tuple[FloatArray, Usage]:
    """Return the embeddings of texts, shape (n, d), and the tokens of all requests.

    - `embed_batch`: sends one request. The tokens are None if one of the replies states none.

    If a request fails, the results of the earlier requests are the `partial_result` of the error.
    """
    results: list[tuple[FloatArray, Usage]] = []
    for start in range(0, len(texts), MAX_TEXTS_PER_REQUEST):
        try:
            results.append(await embed_batch(texts[start : start + MAX_TEXTS_PER_REQUEST]))
        except ModelError as error:
            # The vendor has billed the earlier requests. A retry must not send them again.
            error.partial_result = join_embeddings(results) if results else None
            raise
    return join_embeddings(results)


def join_embeddings(results: Sequence[tuple[FloatArray, Usage]]) -> tuple[FloatArray, Usage]:
    """Return the embeddings of several requests as one array, and the sum of their tokens."""
    vectors = [vectors for vectors, _ in results]
    tokens: int | None = 0
    for _, usage in results:
        input_tokens = usage.input_tokens
        tokens = None if tokens is None or input_tokens is None else tokens + input_tokens
    all_vectors = np.concatenate(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)
    return all_vectors, Usage(tokens, 0)


class ChatProvider(Provider):
    """The base class of providers that call one server in a wire format."""

    # The vendor's batch API at this server.
    batches: BatchApi

    def __init__(self, wire: HttpClient, capability_cache: CapabilityCache) -> None:
        self._wire = wire
        self._capability_cache = capability_cache

    @property
    def notes(self) -> Sequence[str]:
        return self._capability_cache.notes

    @abstractmethod
    def path(self, request: ModelRequest) -> str:
        """Return the path below the base URL to which a request is posted."""

    @abstractmethod
    def encode_request(self, request: ModelRequest, capabilities: Capabilities) -> JsonObject:
        """Return the body of a request for a model that has `capabilities`."""

    @abstractmethod
    def decode_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Completion:
        """Return the reply in a response. Raises a ModelError for an error status."""

    def prepare_request(
        self, request: ModelRequest, *, batched: bool = False
    ) -> tuple[Capabilities, JsonObject]:
        """Return the known capabilities of the model, and a request body that fits them.

        - `batched`: True if the request is part of a batch.
        """
        # With `batched`, the body asks for no prompt cache if the vendor charges extra for cache
        # writes. The cache may expire before the batch is processed.
        capabilities = self._capability_cache.get(request)
        bills_writes = batched and self.batches.bills_cache_writes
        return capabilities, self.encode_request(
            request,
            replace(capabilities, accepts_cache_control=False) if bills_writes else capabilities,
        )

    def decode_or_relearn(
        self, request: ModelRequest, capabilities: Capabilities, response: HttpResponse
    ) -> Completion | None:
        """Return the reply in a response.

        Returns None if the model lacks a capability and the request should be sent again. Raises a
        ModelError for any other error status.
        """
        if self._capability_cache.update_from_error(
            request, capabilities, response[2], response[0]
        ):
            return None
        return self._decode_and_redact(response)

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        for _ in range(MAX_CAPABILITY_RETRIES):
            capabilities, body = self.prepare_request(request)
            response = await self._wire.post_json(self.path(request), body)
            reply = self.decode_or_relearn(request, capabilities, response)
            if reply is not None:
                return reply
        return self._decode_and_redact(response)

    def _decode_and_redact(self, response: HttpResponse) -> Completion:
        return self._wire.redact_reply(self._wire.read(self.decode_reply, response))

    async def close(self) -> None:
        await self._wire.close()
