"""The Gemini wire format (generateContent and batchEmbedContents)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from folkmoot.models.images import MessagePart, split_messages
from folkmoot.models.request import (
    Completion,
    FloatArray,
    JsonObject,
    Message,
    ModelRequest,
    ProviderSettings,
    Usage,
    normalise_finish_reason,
    parse_token_count,
    part_text,
    strip_reasoning,
)
from folkmoot.models.urls import GEMINI_BASE_URL, ensure_version
from folkmoot.models.wire.batches import GeminiBatchApi
from folkmoot.models.wire.capabilities import (
    JSON_MODE,
    PROMPT,
    REASONING_HEADROOM_TOKENS,
    SCHEMA,
    Capabilities,
    CapabilityCache,
    adapt_messages,
    inline_schema,
)
from folkmoot.models.wire.chat_provider import ChatProvider, embed_in_batches
from folkmoot.models.wire.http_client import (
    HttpClient,
    error_from_response,
    error_in_success_response,
    parse_rate_limit_headers,
    parse_vectors,
    read_json,
    unreadable_reply_error,
)

STRUCTURED_OUTPUT_MODES = (SCHEMA, JSON_MODE, PROMPT)

# These models count reasoning tokens toward the output limit.
_THINKING_MODELS = re.compile(r"gemini-(?:2\.5|[3-9])")


def encode_request(request: ModelRequest, capabilities: Capabilities | None = None) -> JsonObject:
    """Return the JSON body of a request."""
    # The API model ID is part of the path.
    capabilities = capabilities or Capabilities()
    messages = split_messages(adapt_messages(request, capabilities), request.images)
    system = "\n\n".join(
        part.text for message, parts in messages if message.role == "system" for part in parts
    )
    body: JsonObject = {
        "contents": [
            _encode_message(*message) for message in messages if message[0].role != "system"
        ]
    }
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    config: JsonObject = {}
    if request.temperature is not None and capabilities.accepts_temperature:
        config["temperature"] = request.temperature
    if request.max_tokens is not None:
        thoughts = REASONING_HEADROOM_TOKENS if _THINKING_MODELS.search(request.model) else 0
        config["maxOutputTokens"] = request.max_tokens + thoughts
    if request.schema is not None and capabilities.structured_output_mode != PROMPT:
        config["responseMimeType"] = "application/json"
        if capabilities.structured_output_mode == SCHEMA:
            # Gemini does not resolve all references, so the schema is sent without any.
            config["responseJsonSchema"] = inline_schema(request.schema)
    if config:
        body["generationConfig"] = config
    return body


def decode_reply(status: int, headers: Mapping[str, str], body: bytes) -> Completion:
    """Return the reply in a response. Raises a ModelError for an error status."""
    if status >= 300:
        raise error_from_response(status, headers, body)
    data = read_json(body)
    if data.get("error"):
        usage, has_reply = _parse_usage(data.get("usageMetadata")), bool(data.get("candidates"))
        raise error_in_success_response(data["error"], headers, has_reply=has_reply, usage=usage)
    model_served = str(data.get("modelVersion") or "")
    request_id = str(data.get("responseId") or "")
    feedback = data.get("promptFeedback")
    # A blocked prompt has no candidates. It is a refusal and not a broken reply.
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        usage = _parse_usage(data.get("usageMetadata"))
        return Completion("", usage, model_served, request_id, "refused:filtered")
    try:
        candidate = data["candidates"][0]
        finish = normalise_finish_reason(candidate.get("finishReason"))
        parts = (candidate.get("content") or {}).get("parts") or []
        text = "".join(part_text(part) for part in parts if not part.get("thought"))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise unreadable_reply_error("a reply without candidates") from None
    hints = parse_rate_limit_headers(headers)
    usage = _parse_usage(data.get("usageMetadata"), text)
    return Completion(
        strip_reasoning(text), usage, model_served, request_id, finish, rate_limit_hints=hints
    )


def decode_embeddings(
    status: int, headers: Mapping[str, str], body: bytes, expected: int
) -> tuple[FloatArray, Usage]:
    """Return embeddings, shape (expected, d), in the order of the texts, and the token counts.

    Raises a ModelError for an error status.
    """
    if status >= 300:
        raise error_from_response(status, headers, body)
    data = read_json(body)
    vectors = parse_vectors(lambda: [row["values"] for row in data["embeddings"]], expected)
    # Older versions of the API state no token counts of embeddings.
    return vectors, Usage(_parse_usage(data.get("usageMetadata")).input_tokens, 0)


class GeminiProvider(ChatProvider):
    """A provider that calls one server in the Gemini wire format."""

    # The key is sent in a header and never in the URL, because URLs are logged.

    def __init__(self, settings: ProviderSettings) -> None:
        base = ensure_version(settings.base_url or GEMINI_BASE_URL, "/v1beta")
        headers = {"x-goog-api-key": settings.api_key} if settings.api_key else {}
        wire = HttpClient(base, headers, settings)
        super().__init__(wire, CapabilityCache(lambda _: Capabilities(), STRUCTURED_OUTPUT_MODES))
        self.batches = GeminiBatchApi(wire)

    def path(self, request: ModelRequest) -> str:
        return f"/models/{request.model}:generateContent"

    def encode_request(self, request: ModelRequest, capabilities: Capabilities) -> JsonObject:
        return encode_request(request, capabilities)

    def decode_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Completion:
        return decode_reply(status, headers, body)

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        _, body = self.prepare_request(request)
        limit: int | None = body.get("generationConfig", {}).get("maxOutputTokens")
        return limit

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        async def embed_batch(batch: Sequence[str]) -> tuple[FloatArray, Usage]:
            requests = [
                {"model": f"models/{model}", "content": {"parts": [{"text": text}]}}
                for text in batch
            ]
            response = await self._wire.post_json(
                f"/models/{model}:batchEmbedContents", {"requests": requests}
            )
            decode = functools.partial(decode_embeddings, expected=len(batch))
            return self._wire.read(decode, response)

        return await embed_in_batches(texts, embed_batch)


def provider(settings: ProviderSettings) -> GeminiProvider:
    """Return the provider for the Gemini wire format."""
    return GeminiProvider(settings)


def _encode_message(message: Message, parts: Sequence[MessagePart]) -> JsonObject:
    role = "model" if message.role == "assistant" else "user"
    return {"role": role, "parts": [_encode_part(part) for part in parts]}


def _encode_part(part: MessagePart) -> JsonObject:
    if part.image is None:
        return {"text": part.text}
    if part.image.data is not None:
        media_type, data = part.image.data
        return {"inlineData": {"mimeType": media_type, "data": data}}
    type_field = {"mimeType": part.image.media_type} if part.image.media_type else {}
    return {"fileData": {"fileUri": part.image.url, **type_field}}


def _parse_usage(data: object, text: str = "") -> Usage:
    # Reasoning tokens are billed as output.
    if not isinstance(data, dict):
        return Usage()
    output_tokens = parse_token_count(data.get("candidatesTokenCount"))
    reasoning_tokens = parse_token_count(data.get("thoughtsTokenCount"))
    # If the reply consists of reasoning only, Gemini omits the count of its text.
    if reasoning_tokens is not None:
        output_tokens = (output_tokens or 0) + reasoning_tokens
    input_tokens = parse_token_count(data.get("promptTokenCount")) or None
    total_tokens = parse_token_count(data.get("totalTokenCount"))
    # Gemini omits counts of 0, as for a blocked prompt or an empty reply. The total shows them.
    if input_tokens is not None and total_tokens is not None and total_tokens >= input_tokens:
        output_tokens = max(output_tokens or 0, total_tokens - input_tokens)
    output_tokens = output_tokens or (None if text else output_tokens)
    return Usage(
        input_tokens, output_tokens, parse_token_count(data.get("cachedContentTokenCount"))
    )
