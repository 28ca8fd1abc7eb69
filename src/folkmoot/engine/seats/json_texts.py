"""Read and change the texts in JSON data, such as replies and JSON files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue


def change_json(
    text: str, change: Callable[[JsonValue], JsonValue], otherwise: Callable[[str], str]
) -> str:
    """Apply `change` to the data of a JSON text, and return the new JSON text.

    `otherwise`: applied to the text if it is not JSON.
    """
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return otherwise(text)
    changed = change(value)
    # Unchanged data keeps its spelling, so that the file keeps its hash.
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def find_texts(value: object) -> Iterator[str]:
    """Yield all texts in JSON data, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from find_texts(part)


def find_keys(value: object) -> Iterator[str]:
    """Yield all keys in JSON data."""
    if isinstance(value, dict):
        yield from value
    if isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from find_keys(part)


def change_texts(
    value: JsonValue, change: Callable[[str], str], change_key: Callable[[str], str] = str
) -> JsonValue:
    """Return JSON data with `change` applied to each text, and `change_key` to each key."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [change_texts(part, change, change_key) for part in value]
    if isinstance(value, dict):
        return {
            change_key(key): change_texts(part, change, change_key) for key, part in value.items()
        }
    return value


def find_offered(schema: object) -> Iterator[str]:
    """Yield the options in a JSON schema."""
    if isinstance(schema, Mapping):
        for key, part in schema.items():
            yield from map(str, part) if key == "enum" else find_offered(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from find_offered(part)
