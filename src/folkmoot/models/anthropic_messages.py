"""The Anthropic wire format: messages. An entry point of the gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from folkmoot.errors import FatalModelError, TransientError
from folkmoot.models.batches import AnthropicBatches
from folkmoot.models.chat import ChatWire
from folkmoot.models.http import Wire, failure, rate_hints, read_json, upstream_error
from folkmoot.models.images import Part, placed
from folkmoot.models.request import (
    FloatArray,
    Json,
    Message,
    ProviderSettings,
    Reply,
    Request,
    Usage,
    byte_count,
    counted,
    ending,
    text_of,
    without_thoughts,
)
from folkmoot.models.structured import (
    PROMPT,
    SCHEMA,
    Capabilities,
    Learnt,
    closed_schema,
    messages_of,
)
from folkmoot.models.urls import with_version

BASE_URL = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
CACHED_BYTES = 4096  # of a system message that is long enough to be kept by itself
DEFAULT_MAX_TOKENS = 4096  # the format demands a limit
MODES = (SCHEMA, PROMPT)


def encode(request: Request, capabilities: Capabilities | None = None) -> Json:
    """The JSON body; `request.model` is the name on the wire."""
    capabilities = capabilities or Capabilities()
    system, turns = _split(messages_of(request, capabilities), request.images)
    body: Json = {
        "model": request.model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": turns,
    }
    if system:
        body["system"] = system
    if request.temperature is not None and capabilities.temperature:
        body["temperature"] = request.temperature
    if request.schema is not None and capabilities.mode == SCHEMA:
        schema, strict = closed_schema(request.schema)
        if strict:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            told = messages_of(request, replace(capabilities, mode=PROMPT))
            body["messages"] = _split(told, request.images)[1]
    if capabilities.cache:
        _mark_for_cache(body)
    return body


def _mark_for_cache(body: Json) -> None:
    """Ask Anthropic to cache what a further turn will send again.

    Only after the model has spoken: writing to the cache costs a quarter more, which a single
    question never earns back. A beginning of fewer than about 1,024 tokens is never cached and
    costs nothing extra. Source: https://docs.claude.com/en/docs/build-with-claude/prompt-caching
    """
    turns = body["messages"]
    if not any(turn["role"] == "assistant" for turn in turns):
        return
    last = turns[-1]
    blocks = last["content"]
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    kept = {"cache_control": {"type": "ephemeral"}}
    body["messages"] = [*turns[:-1], {**last, "content": [*blocks[:-1], {**blocks[-1], **kept}]}]
    if byte_count(body.get("system", "")) >= CACHED_BYTES:
        body["system"] = [{"type": "text", "text": body["system"], **kept}]


def decode(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """The reply in an answer. Raises the ModelError that fits."""
    if status >= 300:
        raise failure(status, headers, body)
    data = read_json(body)
    if data.get("type") == "error" or data.get("error"):
        raise upstream_error(data.get("error"), headers)
    finish = ending(data.get("stop_reason"))
    try:
        text = "".join(text_of(p) for p in data["content"] if p.get("type") == "text")
    except (KeyError, TypeError, AttributeError):
        raise TransientError("the server sent a reply without content") from None
    return Reply(
        without_thoughts(text),
        _usage(data.get("usage"), text),
        str(data.get("model") or ""),
        str(data.get("id") or headers.get("request-id", "")),
        finish,
        hints=rate_hints(headers),
    )


class AnthropicMessages(ChatWire):
    """One server that speaks the Anthropic format."""

    def __init__(self, settings: ProviderSettings) -> None:
        base = with_version(settings.base_url or BASE_URL, "/v1")
        headers = {"anthropic-version": VERSION}
        if settings.api_key:
            headers["x-api-key"] = settings.api_key
        wire = Wire(base, headers, settings)
        super().__init__(wire, Learnt(lambda _: Capabilities(), MODES))
        self.batches = AnthropicBatches(wire)

    def path(self, request: Request) -> str:
        return "/messages"

    def encode(self, request: Request, known: Capabilities) -> Json:
        return encode(request, known)

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return decode(status, headers, body)

    def longest_reply(self, request: Request) -> int | None:
        """Most tokens that a reply can be billed."""
        return request.max_tokens or DEFAULT_MAX_TOKENS

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        raise FatalModelError(
            "Anthropic has no embeddings; set embedding_model to another provider's model, or "
            "to synthetic"
        )


def provider(settings: ProviderSettings) -> AnthropicMessages:
    """Entry point `anthropic`."""
    return AnthropicMessages(settings)


def _split(messages: Sequence[Message], images: tuple[str, ...]) -> tuple[str, list[Json]]:
    """The system's words, and the messages without them; the first must be the user's."""
    systems = [m for m in messages if m.role == "system"]
    turns = [m for m in messages if m.role != "system"]
    if turns and turns[0].role == "assistant":
        turns = [Message("user", "(The conversation so far.)"), *turns]
    if not images:
        return "\n\n".join(m.content for m in systems), [m.to_json() for m in turns]
    parted = placed([*systems, *turns], images)
    system = "\n\n".join(_words(parts) for _, parts in parted[: len(systems)])
    return system, [
        {"role": m.role, "content": [_block(part) for part in parts]}
        for m, parts in parted[len(systems) :]
    ]


def _words(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts)


def _block(part: Part) -> Json:
    if part.image is None:
        return {"type": "text", "text": part.text}
    if part.image.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.image.url}}
    kind, data = part.image.data
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _usage(data: object, text: str) -> Usage:
    """Tokens; Anthropic counts cached input apart, here it is part of the input."""
    if not isinstance(data, dict):
        return Usage()
    cached = counted(data.get("cache_read_input_tokens"))
    written = counted(data.get("cache_creation_input_tokens"))
    plain = counted(data.get("input_tokens"))
    asked = None if plain is None else plain + (cached or 0) + (written or 0)
    said = counted(data.get("output_tokens"))
    return Usage(asked or None, said or (None if text else said), cached, written)
