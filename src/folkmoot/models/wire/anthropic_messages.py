"""The Anthropic wire format: messages. An entry point of the gateway."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from folkmoot.errors import FatalModelError
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
from folkmoot.models.urls import with_version
from folkmoot.models.wire.batches import AnthropicBatches
from folkmoot.models.wire.capabilities import (
    PROMPT,
    SCHEMA,
    Capabilities,
    Learnt,
    closed_schema,
    messages_of,
)
from folkmoot.models.wire.chat_provider import ChatWire
from folkmoot.models.wire.http_client import (
    Wire,
    failure,
    rate_hints,
    read_json,
    unreadable,
    upstream_error,
)

BASE_URL = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
CACHED_BYTES = 2048  # of a system message; no model keeps fewer tokens than 512
LOOKED_BACK = 19  # blocks between two marks, so that none is out of reach
KEPT = {"cache_control": {"type": "ephemeral"}}
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
        _keep(body, request.begins if capabilities.system else (), len(system))
    return body


def _keep(body: Json, begins: Sequence[int], system: int) -> None:
    """Ask Anthropic to keep what a further request will begin with. `begins`: where such beginnings
    end, in characters of the whole text, of which so many are the `system` message's.

    Of nothing else, because to write to the cache costs a quarter more. Each beginning is a block
    of its own, in every request alike. A mark finds what was kept up to the end of one of the
    twenty blocks behind it, so there are two, that far apart; the system message has the other two
    that a request may have. A beginning that is too short is not kept and costs nothing extra.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    if not begins or not all(isinstance(turn["content"], str) for turn in body["messages"]):
        return  # images stand between the words
    marked, start, turns = set(begins[::-LOOKED_BACK][:2]), system, []
    for turn in body["messages"]:
        blocks = _blocks(turn["content"], start, begins, marked)
        whole = len(blocks) == 1 and "cache_control" not in blocks[0]
        turns.append(turn if whole else {**turn, "content": blocks})
        start += len(turn["content"])
    body["messages"] = turns
    if system and byte_count(body["system"]) >= CACHED_BYTES:
        within = [end for end in begins if end < system]
        body["system"] = _blocks(body["system"], 0, within, {*within[-1:], system})


def _blocks(text: str, start: int, begins: Sequence[int], marked: Container[int]) -> list[Json]:
    """A text that begins at `start`, in a block for each beginning and one for the rest."""
    ends = [end - start for end in begins if start < end < start + len(text)]
    return [
        {"type": "text", "text": text[a:b], **(KEPT if start + b in marked else {})}
        for a, b in pairwise([0, *ends, len(text)])
    ]


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
        raise unreadable("a reply without content") from None
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
