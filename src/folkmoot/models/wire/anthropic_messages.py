"""The Anthropic wire format (Messages API)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from folkmoot.models.images import MessagePart, split_messages
from folkmoot.models.request import (
    Completion,
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
from folkmoot.models.urls import ANTHROPIC_BASE_URL, ensure_version
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

VERSION = "2023-06-01"
# The minimum size of a cached system message. No model caches fewer than 512 tokens.
MIN_CACHED_BYTES = 2048
# The number of content blocks between two cache marks (`cache_control`). Anthropic looks back 20
# blocks, so each mark finds the one before it.
CACHE_LOOKBACK_BLOCKS = 19
CACHE_CONTROL = {"cache_control": {"type": "ephemeral"}}
# The API requires a limit in every request.
DEFAULT_MAX_TOKENS = 4096
# Best first. The API has no mode for JSON without a schema.
STRUCTURED_OUTPUT_MODES = (SCHEMA, PROMPT)


def encode_request(request: ModelRequest, capabilities: Capabilities | None = None) -> JsonObject:
    """Return the JSON body of a request."""
    # `request.model` is the API model ID.
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
        # The API accepts only closed schemas. If a schema cannot be closed, it goes into the
        # prompt.
        schema, strict = close_schema(request.schema)
        if strict:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            messages_with_schema = adapt_messages(
                request, replace(capabilities, structured_output_mode=PROMPT)
            )
            body["messages"] = _split_system_prompt(messages_with_schema, request.images)[1]
    if capabilities.accepts_cache_control:
        _add_cache_control(
            body, request.cache_breakpoints if capabilities.system else (), len(system)
        )
    return body


def _add_cache_control(
    body: JsonObject, cache_breakpoints: Sequence[int], system_length: int
) -> None:
    # `cache_breakpoints`: character offsets into the concatenated text. Anthropic allows four marks
    # and looks for cached text up to 20 blocks before a mark. So two marks are set in the messages,
    # 19 blocks apart, and two in the system message. Source:
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    if not cache_breakpoints or not all(
        isinstance(turn["content"], str) for turn in body["messages"]
    ):
        # With images, contents are lists of blocks, and character offsets do not apply.
        return
    marked_offsets, start, turns = (
        set(cache_breakpoints[::-CACHE_LOOKBACK_BLOCKS][:2]),
        system_length,
        [],
    )
    for turn in body["messages"]:
        blocks = _split_at_breakpoints(turn["content"], start, cache_breakpoints, marked_offsets)
        is_unsplit = len(blocks) == 1 and "cache_control" not in blocks[0]
        turns.append(turn if is_unsplit else {**turn, "content": blocks})
        start += len(turn["content"])
    body["messages"] = turns
    if system_length and byte_count(body["system"]) >= MIN_CACHED_BYTES:
        system_breakpoints = [end for end in cache_breakpoints if end < system_length]
        body["system"] = _split_at_breakpoints(
            body["system"], 0, system_breakpoints, {*system_breakpoints[-1:], system_length}
        )


def _split_at_breakpoints(
    text: str, start: int, cache_breakpoints: Sequence[int], marked_offsets: Container[int]
) -> list[JsonObject]:
    # `start`: the offset of the text in the concatenated text. `marked_offsets`: the ends of blocks
    # that get a cache mark.
    ends = [end - start for end in cache_breakpoints if start < end < start + len(text)]
    return [
        {
            "type": "text",
            "text": text[block_start:block_end],
            **(CACHE_CONTROL if start + block_end in marked_offsets else {}),
        }
        for block_start, block_end in pairwise([0, *ends, len(text)])
    ]


def decode_reply(status: int, headers: Mapping[str, str], body: bytes) -> Completion:
    """Return the reply in a response. Raises a ModelError for an error status."""
    if status >= 300:
        raise error_from_response(status, headers, body)
    data = read_json(body)
    if data.get("type") == "error" or data.get("error"):
        usage, has_reply = _parse_usage(data.get("usage"), ""), bool(data.get("content"))
        raise error_in_success_response(
            data.get("error"), headers, has_reply=has_reply, usage=usage
        )
    finish = normalise_finish_reason(data.get("stop_reason"))
    try:
        text = "".join(part_text(part) for part in data["content"] if part.get("type") == "text")
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
    """A provider that calls one server in the Anthropic wire format."""

    def __init__(self, settings: ProviderSettings) -> None:
        base = ensure_version(settings.base_url or ANTHROPIC_BASE_URL, "/v1")
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
        return request.max_tokens or DEFAULT_MAX_TOKENS


def provider(settings: ProviderSettings) -> AnthropicProvider:
    """Return the provider for the Anthropic wire format."""
    return AnthropicProvider(settings)


def _split_system_prompt(
    messages: Sequence[Message], images: tuple[str, ...]
) -> tuple[str, list[JsonObject]]:
    # The first message must be a user message, so one is added before an assistant message.
    systems = [message for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if turns and turns[0].role == "assistant":
        turns = [Message("user", "(The conversation so far.)"), *turns]
    if not images:
        return "\n\n".join(message.content for message in systems), [
            message.to_json() for message in turns
        ]
    messages_with_parts = split_messages([*systems, *turns], images)
    system = "\n\n".join(
        _join_text_parts(parts) for _, parts in messages_with_parts[: len(systems)]
    )
    return system, [
        {"role": message.role, "content": [_content_block(part) for part in parts]}
        for message, parts in messages_with_parts[len(systems) :]
    ]


def _join_text_parts(parts: Sequence[MessagePart]) -> str:
    return "".join(part.text for part in parts)


def _content_block(part: MessagePart) -> JsonObject:
    if part.image is None:
        return {"type": "text", "text": part.text}
    if part.image.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.image.url}}
    media_type, data = part.image.data
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _parse_usage(data: object, text: str) -> Usage:
    # Anthropic counts cached input separately, and Folkmoot adds it to the input.
    if not isinstance(data, dict):
        return Usage()
    cached = parse_token_count(data.get("cache_read_input_tokens"))
    cache_written = parse_token_count(data.get("cache_creation_input_tokens"))
    uncached = parse_token_count(data.get("input_tokens"))
    input_tokens = None if uncached is None else uncached + (cached or 0) + (cache_written or 0)
    output_tokens = parse_token_count(data.get("output_tokens"))
    # A prompt has tokens, so a 0 means that the server did not count. A count of 0 output tokens is
    # credible only for an empty text.
    return Usage(
        input_tokens or None,
        output_tokens or (None if text else output_tokens),
        cached,
        cache_written,
    )
