"""The OpenAI wire format (chat completions and embeddings).

OpenAI uses this format, and so does every server with a compatible API, such as vLLM or Ollama.
"""

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
from folkmoot.models.urls import OPENAI_BASE_URL
from folkmoot.models.wire.batches import OpenAIBatchApi
from folkmoot.models.wire.capabilities import (
    JSON_MODE,
    PROMPT,
    REASONING_HEADROOM_TOKENS,
    SCHEMA,
    Capabilities,
    CapabilityCache,
    adapt_messages,
    close_schema,
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
from folkmoot.randomness import digest

STRUCTURED_OUTPUT_MODES = (SCHEMA, JSON_MODE, PROMPT)

# Models of OpenAI. They accept a key that routes requests with the same beginning to the same cache
# (https://platform.openai.com/docs/guides/prompt-caching). Other servers may reject the parameter.
_PROMPT_CACHE_MODELS = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt-|o\d)")
# Reasoning models of OpenAI. The chat variants ("gpt-5-chat") do not reason.
_REASONING_MODELS = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])(?!.*chat)")


def default_capabilities(model: str) -> Capabilities:
    """Return the capabilities that a model is assumed to have until it has been called."""
    # Reasoning models reject a temperature and need `max_completion_tokens`.
    is_reasoning = bool(_REASONING_MODELS.search(model))
    return Capabilities(
        accepts_temperature=not is_reasoning, uses_max_completion_tokens=is_reasoning
    )


def encode_request(request: ModelRequest, capabilities: Capabilities | None = None) -> JsonObject:
    """Return the JSON body of a chat completion."""
    # `request.model` is the API model ID.
    capabilities = capabilities or default_capabilities(request.model)
    body: JsonObject = {
        "model": request.model,
        "messages": _encode_messages(adapt_messages(request, capabilities), request.images),
    }
    if (
        capabilities.accepts_cache_control
        and _PROMPT_CACHE_MODELS.search(request.model)
        and request.messages
    ):
        body["prompt_cache_key"] = digest(*request.messages[0]).hex()
    if request.temperature is not None and capabilities.accepts_temperature:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        if _REASONING_MODELS.search(request.model):
            body["max_completion_tokens"] = request.max_tokens + REASONING_HEADROOM_TOKENS
        else:
            key = (
                "max_completion_tokens" if capabilities.uses_max_completion_tokens else "max_tokens"
            )
            body[key] = request.max_tokens
    if request.schema is not None and capabilities.structured_output_mode == SCHEMA:
        schema, strict = close_schema(request.schema)
        name = re.sub(r"\W+", "_", str(request.schema.get("title", "answer")))[:60]
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": name,
                # OpenAI rejects a strict schema that is not closed, and accepts any schema if it is
                # not strict.
                "schema": schema if strict else request.schema,
                "strict": strict,
            },
        }
    elif request.schema is not None and capabilities.structured_output_mode == JSON_MODE:
        body["response_format"] = {"type": "json_object"}
    return body


def _encode_messages(messages: Sequence[Message], images: tuple[str, ...]) -> list[JsonObject]:
    if not images:
        return [message.to_json() for message in messages]
    return [
        {"role": message.role, "content": _encode_content(parts)}
        for message, parts in split_messages(messages, images)
    ]


def _encode_content(parts: Sequence[MessagePart]) -> str | list[JsonObject]:
    # Some compatible servers accept only texts as content, so lists are used for images alone.
    if not any(part.image for part in parts):
        return "".join(part.text for part in parts)
    return [
        {"type": "image_url", "image_url": {"url": part.image.url}}
        if part.image
        else {"type": "text", "text": part.text}
        for part in parts
    ]


def decode_reply(status: int, headers: Mapping[str, str], body: bytes) -> Completion:
    """Return the reply in a response. Raises a ModelError for an error status."""
    if status >= 300:
        raise error_from_response(status, headers, body)
    data = read_json(body)
    if data.get("error"):
        usage, has_reply = _parse_usage(data.get("usage")), bool(data.get("choices"))
        raise error_in_success_response(data["error"], headers, has_reply=has_reply, usage=usage)
    try:
        choice = data["choices"][0]
        # OpenRouter reports failures during generation inside the choice.
        if choice.get("error"):
            usage = _parse_usage(data.get("usage"))
            raise error_in_success_response(choice["error"], headers, has_reply=True, usage=usage)
        finish = normalise_finish_reason(choice.get("finish_reason"))
        message = choice["message"]
        text = _join_content(message.get("content"))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise unreadable_reply_error("a reply without a message") from None
    if message.get("refusal"):
        text, finish = str(message["refusal"]), "refused:refused"
    return Completion(
        text,
        _parse_usage(data.get("usage"), text),
        str(data.get("model") or ""),
        str(data.get("id") or headers.get("x-request-id", "")),
        finish,
        rate_limit_hints=parse_rate_limit_headers(headers),
    )


def decode_embeddings(
    status: int, headers: Mapping[str, str], body: bytes, expected: int
) -> tuple[FloatArray, Usage]:
    """Return the embeddings, shape (expected, d), and the reported token counts.

    Raises a ModelError for an error status.
    """
    if status >= 300:
        raise error_from_response(status, headers, body)
    data = read_json(body)

    def embedding_rows() -> list[object]:
        # The API allows any order of rows and states the index of each.
        return [row["embedding"] for row in sorted(data["data"], key=lambda row: int(row["index"]))]

    return parse_vectors(embedding_rows, expected), Usage(
        _parse_usage(data.get("usage")).input_tokens, 0
    )


class OpenAIProvider(ChatProvider):
    """A provider that calls one server in the OpenAI wire format."""

    def __init__(self, settings: ProviderSettings) -> None:
        key = settings.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        wire = HttpClient(settings.base_url or OPENAI_BASE_URL, headers, settings)
        super().__init__(wire, CapabilityCache(default_capabilities, STRUCTURED_OUTPUT_MODES))
        self.batches = OpenAIBatchApi(wire)

    def path(self, request: ModelRequest) -> str:
        return "/chat/completions"

    def encode_request(self, request: ModelRequest, capabilities: Capabilities) -> JsonObject:
        return encode_request(request, capabilities)

    def decode_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Completion:
        return decode_reply(status, headers, body)

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        async def embed_batch(batch: Sequence[str]) -> tuple[FloatArray, Usage]:
            request_body = {"model": model, "input": list(batch), "encoding_format": "float"}
            response = await self._wire.post_json("/embeddings", request_body)
            decode = functools.partial(decode_embeddings, expected=len(batch))
            return self._wire.read(decode, response)

        return await embed_in_batches(texts, embed_batch)

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        _, body = self.prepare_request(request)
        limit: int | None = body.get("max_completion_tokens", body.get("max_tokens"))
        return limit


def provider(settings: ProviderSettings) -> OpenAIProvider:
    """Return the provider for the OpenAI wire format."""
    return OpenAIProvider(settings)


def _join_content(content: object) -> str:
    if isinstance(content, list):
        content = "".join(map(part_text, content))
    if isinstance(content, Mapping):
        content = part_text(content)
    return strip_reasoning("" if content is None else str(content))


def _parse_usage(data: object, text: str = "") -> Usage:
    if not isinstance(data, dict):
        return Usage()
    details = data.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    # Prompts and texts are never of 0 tokens. A server that reports 0 has not counted.
    input_tokens = parse_token_count(data.get("prompt_tokens")) or None
    output_tokens = (
        None if input_tokens is None else parse_token_count(data.get("completion_tokens"))
    )
    total_tokens = parse_token_count(data.get("total_tokens"))
    if input_tokens is not None and output_tokens is not None and total_tokens is not None:
        # xAI and Gemini bill reasoning tokens as output, and count them in the total alone.
        output_tokens = max(output_tokens, total_tokens - input_tokens)
    output_tokens = output_tokens or (None if text else output_tokens)
    cached, written = (
        parse_token_count(details.get(name)) for name in ("cached_tokens", "cache_write_tokens")
    )
    # Moonshot and DeepSeek state cached tokens beside the other counts.
    for name in ("cached_tokens", "prompt_cache_hit_tokens"):
        cached = parse_token_count(data.get(name)) if cached is None else cached
    return Usage(input_tokens, output_tokens, cached, written)
