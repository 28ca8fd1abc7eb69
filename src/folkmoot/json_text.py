"""Encode and decode JSON for requests and the journal."""
# orjson is thirty times as fast as the standard library. The standard library is used for values
# that orjson rejects: lone surrogates (half an emoji at the end of a reply) and integers beyond 64
# bits. `storage.json_files` writes the JSON files that humans read.

from __future__ import annotations

import json
from typing import Any, TypeVar

import orjson

# A JSON schema, or a part of one.
Schema = dict[str, Any]
T = TypeVar("T")


def replace_lone_surrogates(value: T) -> T:
    """Return a JSON value in which each lone surrogate is a `?`, since UTF-8 cannot encode it.

    A lone surrogate is half an emoji, as at the end of a cut reply or in the escape `\\ud800`.
    """
    replaced: Any = value
    if isinstance(value, str):
        replaced = value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    elif isinstance(value, list):
        replaced = [replace_lone_surrogates(item) for item in value]
    elif isinstance(value, dict):
        replaced = {
            replace_lone_surrogates(name): replace_lone_surrogates(item)
            for name, item in value.items()
        }
    return replaced  # type: ignore[no-any-return]


def encode_json(value: object) -> bytes:
    """Return the value as compact JSON in UTF-8."""
    # A lone surrogate becomes `?`, which any server can decode.
    try:
        # Copy the result, because orjson reserves at least 4 KB for each one.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "replace"
        )


def decode_json(text: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises ValueError for invalid JSON. Raises RecursionError for JSON that is nested too deeply.
    """
    # Integers beyond 64 bits become floats.
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)
