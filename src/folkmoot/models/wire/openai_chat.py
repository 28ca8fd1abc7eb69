"""The OpenAI wire format: chat completions and embeddings, for OpenAI itself and for every server
that speaks it (Moonshot, Friendli, vLLM, Ollama, …) by base URL. An entry point of the gateway.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from folkmoot.models.images import Part, placed
from folkmoot.models.request import (
    FloatArray,
    Json,
    Message,
    ProviderSettings,
    Reply,
    Request,
    Usage,
    counted,
    ending,
    text_of,
    without_thoughts,
)
from folkmoot.models.wire.batches import OpenAIBatches
from folkmoot.models.wire.capabilities import (
    JSON_MODE,
    PROMPT,
    REASONING_HEADROOM,
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
    vectors_of,
)
from folkmoot.randomness import digest

BASE_URL = "https://api.openai.com/v1"
BATCH = 50  # replies of 100 long embeddings would exceed max_reply_mb
MODES = (SCHEMA, JSON_MODE, PROMPT)

# OpenAI's own models: they take a key by which requests with one beginning meet the same cache
# (https://platform.openai.com/docs/guides/prompt-caching).
_CACHED = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt-|o\d)")
_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])(?!.*chat)")


def first_capabilities(model: str) -> Capabilities:
    """What a model is known to accept before its first call: reasoning models reject a
    temperature and need `max_completion_tokens`."""
    reasoning = bool(_REASONING.search(model))
    return Capabilities(temperature=not reasoning, completion_tokens=reasoning)


def encode(request: Request, capabilities: Capabilities | None = None) -> Json:
    """The JSON body of a chat completion; `request.model` is the name on the wire."""
    capabilities = capabilities or first_capabilities(request.model)
    body: Json = {
        "model": request.model,
        "messages": _messages(messages_of(request, capabilities), request.images),
    }
    if capabilities.cache and _CACHED.search(request.model) and request.messages:
        body["prompt_cache_key"] = digest(*request.messages[0]).hex()
    if request.temperature is not None and capabilities.temperature:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        if _REASONING.search(request.model):
            body["max_completion_tokens"] = request.max_tokens + REASONING_HEADROOM
        else:
            key = "max_completion_tokens" if capabilities.completion_tokens else "max_tokens"
            body[key] = request.max_tokens
    if request.schema is not None and capabilities.mode == SCHEMA:
        schema, strict = closed_schema(request.schema)
        name = re.sub(r"\W+", "_", str(request.schema.get("title", "answer")))[:60]
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": name,
                "schema": schema if strict else request.schema,
                "strict": strict,
            },
        }
    elif request.schema is not None and capabilities.mode == JSON_MODE:
        body["response_format"] = {"type": "json_object"}
    return body


def _messages(messages: Sequence[Message], images: tuple[str, ...]) -> list[Json]:
    if not images:
        return [m.to_json() for m in messages]
    return [{"role": m.role, "content": _content(parts)} for m, parts in placed(messages, images)]


def _content(parts: Sequence[Part]) -> str | list[Json]:
    if not any(part.image for part in parts):
        return "".join(part.text for part in parts)
    return [
        {"type": "image_url", "image_url": {"url": part.image.url}}
        if part.image
        else {"type": "text", "text": part.text}
        for part in parts
    ]


def decode(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """The reply in an answer. Raises the ModelError that fits."""
    if status >= 300:
        raise failure(status, headers, body)
    data = read_json(body)
    if data.get("error"):
        raise upstream_error(data["error"], headers)
    try:
        choice = data["choices"][0]
        if choice.get("error"):
            raise upstream_error(choice["error"], headers, begun=True)
        finish = ending(choice.get("finish_reason"))
        message = choice["message"]
        text = _text(message.get("content"))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise unreadable("a reply without a message") from None
    if message.get("refusal"):
        text, finish = str(message["refusal"]), "refused:refused"
    return Reply(
        text,
        _usage(data.get("usage"), text),
        str(data.get("model") or ""),
        str(data.get("id") or headers.get("x-request-id", "")),
        finish,
        hints=rate_hints(headers),
    )


def decode_embeddings(
    status: int, headers: Mapping[str, str], body: bytes, expected: int
) -> tuple[FloatArray, Usage]:
    """Embeddings (expected, d) in the order of the texts. Raises the ModelError that fits."""
    if status >= 300:
        raise failure(status, headers, body)
    data = read_json(body)

    def rows() -> list[object]:
        return [row["embedding"] for row in sorted(data["data"], key=lambda r: int(r["index"]))]

    return vectors_of(rows, expected), Usage(_usage(data.get("usage")).input_tokens, 0)


class OpenAIChat(ChatWire):
    """One server that speaks the OpenAI format."""

    def __init__(self, settings: ProviderSettings) -> None:
        key = settings.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        wire = Wire(settings.base_url or BASE_URL, headers, settings)
        super().__init__(wire, Learnt(first_capabilities, MODES))
        self.batches = OpenAIBatches(wire)

    def path(self, request: Request) -> str:
        return "/chat/completions"

    def encode(self, request: Request, known: Capabilities) -> Json:
        return encode(request, known)

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return decode(status, headers, body)

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        parts: list[FloatArray] = []
        tokens: int | None = 0
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            asked = {"model": model, "input": batch, "encoding_format": "float"}
            answer = await self._wire.post("/embeddings", asked)
            read = functools.partial(decode_embeddings, expected=len(batch))
            vectors, usage = self._wire.read(read, answer)
            parts.append(vectors)
            said = usage.input_tokens
            tokens = None if tokens is None or said is None else tokens + said
        whole = np.concatenate(parts) if parts else np.zeros((0, 0), dtype=np.float32)
        return whole, Usage(tokens, 0)

    def longest_reply(self, request: Request) -> int | None:
        """Most tokens that a reply can be billed, thoughts included; None: no limit is sent."""
        _, body = self.asked(request)
        limit: int | None = body.get("max_completion_tokens", body.get("max_tokens"))
        return limit


def provider(settings: ProviderSettings) -> OpenAIChat:
    """Entry point `openai`."""
    return OpenAIChat(settings)


def _text(content: object) -> str:
    """The text of a message, in one piece."""
    if isinstance(content, list):
        content = "".join(map(text_of, content))
    if isinstance(content, Mapping):
        content = text_of(content)
    return without_thoughts("" if content is None else str(content))


def _usage(data: object, text: str = "") -> Usage:
    if not isinstance(data, dict):
        return Usage()
    details = data.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    # No prompt is of no tokens, no text either: a server that writes 0 there has not counted.
    asked = counted(data.get("prompt_tokens")) or None
    said = None if asked is None else counted(data.get("completion_tokens"))
    said = said or (None if text else said)
    cached = counted(details.get("cached_tokens"))
    if asked is not None and cached is not None and cached > asked:
        cached = None  # a discount on what was never sent
    return Usage(asked, said, cached, counted(details.get("cache_write_tokens")))
