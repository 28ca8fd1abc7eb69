"""Answers of the model server. They depend only on the request."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from folkmoot.models.catalog import open_provider, resolve_model
from folkmoot.models.request import Message, ModelRequest, Provider, ProviderSettings


def calculate_digest(body: Any) -> str:
    """Return a short digest of a request body; equal bodies have equal digests."""
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()


def create_embedding(text: str, dimensions: int = 8) -> list[float]:
    """Return an artificial embedding made of the bytes of a hash."""
    raw = hashlib.blake2b(text.encode(), digest_size=dimensions).digest()
    return [byte / 255.0 - 0.5 for byte in raw]


class HashAnswers:
    """Answer `reply-<hash>`, or with the smallest object that fits the schema."""

    async def answer(self, messages: list[dict[str, str]], schema: Any, digest: str) -> str:
        if schema is not None:
            return json.dumps(create_example(schema, schema.get("$defs", {})))
        return f"reply-{digest}"


class RespondentAnswers:
    """Answer like the embedded respondent. Equal requests get the stored first answer."""

    def __init__(self, seed: int = 0) -> None:
        spec = resolve_model("synthetic")
        self._provider: Provider = open_provider(spec, ProviderSettings(seed=seed))
        self._stored_answers: dict[str, str] = {}

    async def answer(self, messages: list[dict[str, str]], schema: Any, digest: str) -> str:
        if digest not in self._stored_answers:
            self._stored_answers[digest] = await self._think(messages, schema, digest)
        return self._stored_answers[digest]

    async def _think(self, messages: list[dict[str, str]], schema: Any, digest: str) -> str:
        sent_messages = tuple(Message(message["role"], message["content"]) for message in messages)  # type: ignore[arg-type]
        request = ModelRequest("synthetic", sent_messages, schema=schema)
        return (await self._provider.complete_request(request, address=digest)).text


def create_example(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Return the smallest value that fits a JSON schema as written by pydantic."""
    if "$ref" in schema:
        return create_example(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return create_example(schema[key][0], definitions)
    json_type = schema.get("type")
    if json_type == "object":
        properties = schema.get("properties", {})
        return {
            name: create_example(property_schema, definitions)
            for name, property_schema in properties.items()
        }
    if json_type == "array":
        return [create_example(schema["items"], definitions)] * int(schema.get("minItems", 0))
    if json_type == "integer":
        return int(schema.get("minimum", 1))
    if json_type == "number":
        return float(schema.get("minimum", 1.0))
    return {"boolean": True, "null": None}.get(str(json_type), "some text")
