"""The Gemini wire format: generateContent and batchEmbedContents. An entry point of the gateway."""

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
from folkmoot.models.urls import with_version
from folkmoot.models.wire.batches import GeminiBatches
from folkmoot.models.wire.capabilities import (
    JSON_MODE,
    PROMPT,
    REASONING_HEADROOM,
    SCHEMA,
    Capabilities,
    Learnt,
    inlined_schema,
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

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
BATCH = 50  # replies of 100 long embeddings would exceed max_reply_mb
MODES = (SCHEMA, JSON_MODE, PROMPT)

_THINKS = re.compile(r"gemini-(?:2\.5|[3-9])")


def encode(request: Request, capabilities: Capabilities | None = None) -> Json:
    """The JSON body; the model's name goes into the path."""
    capabilities = capabilities or Capabilities()
    messages = placed(messages_of(request, capabilities), request.images)
    system = "\n\n".join(p.text for m, parts in messages if m.role == "system" for p in parts)
    body: Json = {"contents": [_content(*m) for m in messages if m[0].role != "system"]}
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    config: Json = {}
    if request.temperature is not None and capabilities.temperature:
        config["temperature"] = request.temperature
    if request.max_tokens is not None:
        thoughts = REASONING_HEADROOM if _THINKS.search(request.model) else 0
        config["maxOutputTokens"] = request.max_tokens + thoughts
    if request.schema is not None and capabilities.mode != PROMPT:
        config["responseMimeType"] = "application/json"
        if capabilities.mode == SCHEMA:
            config["responseJsonSchema"] = inlined_schema(request.schema)
    if config:
        body["generationConfig"] = config
    return body


def decode(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """The reply in an answer. Raises the ModelError that fits."""
    if status >= 300:
        raise failure(status, headers, body)
    data = read_json(body)
    if data.get("error"):
        raise upstream_error(data["error"], headers)
    usage = _usage(data.get("usageMetadata"))
    served = str(data.get("modelVersion") or "")
    request_id = str(data.get("responseId") or "")
    feedback = data.get("promptFeedback")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        return Reply("", usage, served, request_id, "refused:filtered")
    try:
        candidate = data["candidates"][0]
        finish = ending(candidate.get("finishReason"))
        parts = (candidate.get("content") or {}).get("parts") or []
        text = "".join(text_of(p) for p in parts if not p.get("thought"))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise unreadable("a reply without candidates") from None
    hints = rate_hints(headers)
    return Reply(without_thoughts(text), usage, served, request_id, finish, hints=hints)


def decode_embeddings(
    status: int, headers: Mapping[str, str], body: bytes, expected: int
) -> FloatArray:
    """Embeddings (expected, d) in the order of the texts. Raises the ModelError that fits."""
    if status >= 300:
        raise failure(status, headers, body)
    data = read_json(body)
    return vectors_of(lambda: [row["values"] for row in data["embeddings"]], expected)


class Gemini(ChatWire):
    """One server that speaks the Gemini format. The key goes into a header, never into the URL."""

    def __init__(self, settings: ProviderSettings) -> None:
        base = with_version(settings.base_url or BASE_URL, "/v1beta")
        headers = {"x-goog-api-key": settings.api_key} if settings.api_key else {}
        wire = Wire(base, headers, settings)
        super().__init__(wire, Learnt(lambda _: Capabilities(), MODES))
        self.batches = GeminiBatches(wire)

    def path(self, request: Request) -> str:
        return f"/models/{request.model}:generateContent"

    def encode(self, request: Request, known: Capabilities) -> Json:
        return encode(request, known)

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return decode(status, headers, body)

    def longest_reply(self, request: Request) -> int | None:
        """Most tokens that a reply can be billed, thoughts included; None: no limit is sent."""
        _, body = self.asked(request)
        limit: int | None = body.get("generationConfig", {}).get("maxOutputTokens")
        return limit

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        parts: list[FloatArray] = []
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            asked = [
                {"model": f"models/{model}", "content": {"parts": [{"text": text}]}}
                for text in batch
            ]
            answer = await self._wire.post(
                f"/models/{model}:batchEmbedContents", {"requests": asked}
            )
            read = functools.partial(decode_embeddings, expected=len(batch))
            parts.append(self._wire.read(read, answer))
        return np.concatenate(parts) if parts else np.zeros((0, 0), dtype=np.float32), Usage()


def provider(settings: ProviderSettings) -> Gemini:
    """Entry point `gemini`."""
    return Gemini(settings)


def _content(message: Message, parts: Sequence[Part]) -> Json:
    role = "model" if message.role == "assistant" else "user"
    return {"role": role, "parts": [_part(part) for part in parts]}


def _part(part: Part) -> Json:
    if part.image is None:
        return {"text": part.text}
    if part.image.data is not None:
        kind, data = part.image.data
        return {"inlineData": {"mimeType": kind, "data": data}}
    mime = {"mimeType": part.image.mime} if part.image.mime else {}
    return {"fileData": {"fileUri": part.image.url, **mime}}


def _usage(data: object) -> Usage:
    """Tokens; thoughts are paid as output."""
    if not isinstance(data, dict):
        return Usage()
    said = counted(data.get("candidatesTokenCount"))
    thought = counted(data.get("thoughtsTokenCount"))
    if thought is not None:  # nothing but thoughts: then the other count is left out
        said = (said or 0) + thought
    asked = counted(data.get("promptTokenCount")) or None
    cached = counted(data.get("cachedContentTokenCount"))
    if asked is not None and cached is not None and cached > asked:
        cached = None  # a discount on what was never sent
    return Usage(asked, said, cached)
