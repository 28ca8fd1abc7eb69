"""Encode and decode JSON for requests and the journal."""
# orjson is thirty times as fast as the standard library. The standard library is used for values
# that orjson rejects: lone surrogates (half an emoji at the end of a reply) and integers beyond 64
# bits. `storage.json_files` writes the JSON files that humans read.

from __future__ import annotations

import json
from typing import Any

import orjson

# A JSON schema, or a part of one.
Schema = dict[str, Any]


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
