"""What the model server answers: always a function of the request alone."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from folkmoot.models.catalog import open_provider, resolve_model
from folkmoot.models.request import Message, ModelRequest, Provider, ProviderSettings


def digest_of(body: Any) -> str:
    """A short name of a request body, the same for the same body."""
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()


def vector(text: str, dimensions: int = 8) -> list[float]:
    """A made-up embedding: bytes of a hash."""
    raw = hashlib.blake2b(text.encode(), digest_size=dimensions).digest()
    return [b / 255.0 - 0.5 for b in raw]


class HashAnswers:
    """Answers `reply-<hash>`, or the smallest object that fits the schema."""

    async def answer(self, messages: list[dict[str, str]], schema: Any, digest: str) -> str:
        if schema is not None:
            return json.dumps(example(schema, schema.get("$defs", {})))
        return f"reply-{digest}"


class RespondentAnswers:
    """Answers as the embedded respondent would, each request thought over once."""

    def __init__(self, seed: int = 0) -> None:
        spec = resolve_model("synthetic")
        self._provider: Provider = open_provider(spec, ProviderSettings(seed=seed))
        self._known: dict[str, str] = {}

    async def answer(self, messages: list[dict[str, str]], schema: Any, digest: str) -> str:
        if digest not in self._known:
            self._known[digest] = await self._think(messages, schema, digest)
        return self._known[digest]

    async def _think(self, messages: list[dict[str, str]], schema: Any, digest: str) -> str:
        said = tuple(Message(m["role"], m["content"]) for m in messages)  # type: ignore[arg-type]
        request = ModelRequest("synthetic", said, schema=schema)
        return (await self._provider.complete_request(request, address=digest)).text


def example(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """The smallest value that fits a JSON schema of the kind that pydantic writes."""
    if "$ref" in schema:
        return example(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example(schema[key][0], definitions)
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: example(part, definitions) for name, part in properties.items()}
    if kind == "array":
        return [example(schema["items"], definitions)] * int(schema.get("minItems", 0))
    if kind == "integer":
        return int(schema.get("minimum", 1))
    if kind == "number":
        return float(schema.get("minimum", 1.0))
    return {"boolean": True, "null": None}.get(str(kind), "some text")
