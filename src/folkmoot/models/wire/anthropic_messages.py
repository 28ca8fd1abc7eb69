"""The Anthropic wire format: messages. An entry point of the gateway."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from folkmoot.errors import FatalModelError
from folkmoot.models.images import MessagePart, split_messages
from folkmoot.models.request import (
    Completion,
    FloatArray,
    JsonObject,
    Message,
    ModelRequest,
    ProviderSettings,
    Usage,
    byte_count,
    normalise_finish_reason,
    parse_token_count,
    part_text,
    strip_reasoning,
)
from folkmoot.models.urls import ensure_version
from folkmoot.models.wire.batches import AnthropicBatchApi
from folkmoot.models.wire.capabilities import (
    PROMPT,
    SCHEMA,
    Capabilities,
    CapabilityCache,
    adapt_messages,
    close_schema,
)
from folkmoot.models.wire.chat_provider import ChatProvider
from folkmoot.models.wire.http_client import (
    HttpClient,
    error_from_response,
    error_in_success_response,
    parse_rate_limit_headers,
    read_json,
    unreadable_reply_error,
)

BASE_URL = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
MIN_CACHED_BYTES = 2048  # of a system message; no model keeps fewer tokens than 512
CACHE_LOOKBACK_BLOCKS = 19  # blocks between two marks, so that none is out of reach
MAX_CACHE_BREAKPOINTS = {"cache_control": {"type": "ephemeral"}}
DEFAULT_MAX_TOKENS = 4096  # the format demands a limit
STRUCTURED_OUTPUT_MODES = (SCHEMA, PROMPT)


def encode_request(request: ModelRequest, capabilities: Capabilities | None = None) -> JsonObject:
    """The JSON body; `request.model` is the name on the wire."""
    capabilities = capabilities or Capabilities()
    system, turns = _split_system_prompt(adapt_messages(request, capabilities), request.images)
    body: JsonObject = {
        "model": request.model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": turns,
    }
    if system:
        body["system"] = system
    if request.temperature is not None and capabilities.accepts_temperature:
        body["temperature"] = request.temperature
    if request.schema is not None and capabilities.structured_output_mode == SCHEMA:
        schema, strict = close_schema(request.schema)
        if strict:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            told = adapt_messages(request, replace(capabilities, structured_output_mode=PROMPT))
            body["messages"] = _split_system_prompt(told, request.images)[1]
    if capabilities.accepts_cache_control:
        _add_cache_control(
            body, request.cache_breakpoints if capabilities.system else (), len(system)
        )
    return body


def _add_cache_control(body: JsonObject, cache_breakpoints: Sequence[int], system: int) -> None:
    """Ask Anthropic to keep what a further request will begin with. `cache_breakpoints`: where such
    beginnings end, in characters of the whole text, of which so many are the `system` message's.

    Of nothing else, because to write to the cache costs a quarter more. Each beginning is a block
    of its own, in every request alike. A mark finds what was kept up to the end of one of the
    twenty blocks behind it, so there are two, that far apart; the system message has the other two
    that a request may have. A beginning that is too short is not kept and costs nothing extra.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    if not cache_breakpoints or not all(
        isinstance(turn["content"], str) for turn in body["messages"]
    ):
        return  # images stand between the words
    marked, start, turns = set(cache_breakpoints[::-CACHE_LOOKBACK_BLOCKS][:2]), system, []
    for turn in body["messages"]:
        blocks = _split_at_breakpoints(turn["content"], start, cache_breakpoints, marked)
        whole = len(blocks) == 1 and "cache_control" not in blocks[0]
        turns.append(turn if whole else {**turn, "content": blocks})
        start += len(turn["content"])
    body["messages"] = turns
    if system and byte_count(body["system"]) >= MIN_CACHED_BYTES:
        within = [end for end in cache_breakpoints if end < system]
        body["system"] = _split_at_breakpoints(body["system"], 0, within, {*within[-1:], system})


def _split_at_breakpoints(
    text: str, start: int, begins: Sequence[int], marked: Container[int]
) -> list[JsonObject]:
    """A text that begins at `start`, in a block for each beginning and one for the rest."""
    ends = [end - start for end in begins if start < end < start + len(text)]
    return [
        {
            "type": "text",
            "text": text[a:b],
            **(MAX_CACHE_BREAKPOINTS if start + b in marked else {}),
        }
        for a, b in pairwise([0, *ends, len(text)])
    ]


def decode_reply(status: int, headers: Mapping[str, str], body: bytes) -> Completion:
    """The reply in an answer. Raises the ModelError that fits."""
    if status >= 300:
        raise error_from_response(status, headers, body)
    data = read_json(body)
    if data.get("type") == "error" or data.get("error"):
        raise error_in_success_response(data.get("error"), headers)
    finish = normalise_finish_reason(data.get("stop_reason"))
    try:
        text = "".join(part_text(p) for p in data["content"] if p.get("type") == "text")
    except (KeyError, TypeError, AttributeError):
        raise unreadable_reply_error("a reply without content") from None
    return Completion(
        strip_reasoning(text),
        _parse_usage(data.get("usage"), text),
        str(data.get("model") or ""),
        str(data.get("id") or headers.get("request-id", "")),
        finish,
        rate_limit_hints=parse_rate_limit_headers(headers),
    )


class AnthropicProvider(ChatProvider):
    """One server that speaks the Anthropic format."""

    def __init__(self, settings: ProviderSettings) -> None:
        base = ensure_version(settings.base_url or BASE_URL, "/v1")
        headers = {"anthropic-version": VERSION}
        if settings.api_key:
            headers["x-api-key"] = settings.api_key
        wire = HttpClient(base, headers, settings)
        super().__init__(wire, CapabilityCache(lambda _: Capabilities(), STRUCTURED_OUTPUT_MODES))
        self.batches = AnthropicBatchApi(wire)

    def path(self, request: ModelRequest) -> str:
        return "/messages"

    def encode_request(self, request: ModelRequest, capabilities: Capabilities) -> JsonObject:
        return encode_request(request, capabilities)

    def decode_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> Completion:
        return decode_reply(status, headers, body)

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        """Most tokens that a reply can be billed."""
        return request.max_tokens or DEFAULT_MAX_TOKENS

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        raise FatalModelError(
            "Anthropic has no embeddings; set embedding_model to another provider's model, or "
            "to synthetic"
        )


def provider(settings: ProviderSettings) -> AnthropicProvider:
    """Entry point `anthropic`."""
    return AnthropicProvider(settings)


def _split_system_prompt(
    messages: Sequence[Message], images: tuple[str, ...]
) -> tuple[str, list[JsonObject]]:
    """The system's words, and the messages without them; the first must be the user's."""
    systems = [message for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if turns and turns[0].role == "assistant":
        turns = [Message("user", "(The conversation so far.)"), *turns]
    if not images:
        return "\n\n".join(message.content for message in systems), [
            message.to_json() for message in turns
        ]
    parted = split_messages([*systems, *turns], images)
    system = "\n\n".join(_join_text_parts(parts) for _, parts in parted[: len(systems)])
    return system, [
        {"role": message.role, "content": [_content_block(part) for part in parts]}
        for message, parts in parted[len(systems) :]
    ]


def _join_text_parts(parts: Sequence[MessagePart]) -> str:
    return "".join(part.text for part in parts)


def _content_block(part: MessagePart) -> JsonObject:
    if part.image is None:
        return {"type": "text", "text": part.text}
    if part.image.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.image.url}}
    kind, data = part.image.data
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _parse_usage(data: object, text: str) -> Usage:
    """Tokens; Anthropic counts cached input apart, here it is part of the input."""
    if not isinstance(data, dict):
        return Usage()
    cached = parse_token_count(data.get("cache_read_input_tokens"))
    written = parse_token_count(data.get("cache_creation_input_tokens"))
    plain = parse_token_count(data.get("input_tokens"))
    asked = None if plain is None else plain + (cached or 0) + (written or 0)
    said = parse_token_count(data.get("output_tokens"))
    return Usage(asked or None, said or (None if text else said), cached, written)
