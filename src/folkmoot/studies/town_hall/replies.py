"""The answer types of this study: JSON that is mended before it is validated, for one resident or
for many in one reply. Stages use them with `scope.exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from folkmoot.conversation.answers import Json, Parsed, Unreadable
from folkmoot.studies.town_hall.references import Mend
from folkmoot.studies.town_hall.spelling import resolve

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

# Reads one raw object: the value, or why it cannot be had, and what was mended on the way.
Reader = Callable[[Mapping[str, Any]], "Mended[T] | Unreadable"]


class AnyObject(BaseModel):
    """Any JSON object: how far the ladder gets before the parts are looked at."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Mended(Generic[T]):
    """A value and what was mended to get it."""

    value: T
    mends: tuple[Mend, ...] = ()


@dataclass(frozen=True, slots=True)
class One(Generic[T]):
    """One object, read by `reader`. The schema goes with the request."""

    schema: dict[str, Any]
    reader: Reader[T]
    kind: str = "json"

    def parse(self, reply: str) -> Parsed[Mended[T]] | Unreadable:
        found = Json(AnyObject).parse(reply)
        if isinstance(found, Unreadable):
            return found
        read = self.reader(found.value.model_extra or {})
        return read if isinstance(read, Unreadable) else Parsed(read, found.rung)


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Answers of several residents from one reply; `unread` says why others are not there."""

    values: dict[str, Mended[T]]
    unread: dict[str, str]


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """One object with an entry for each resident. Any part of it that can be read is taken.

    A reply that was cut off gives those residents that it had come to; the caller asks again for
    the rest. Only a reply with nobody in it is unreadable.
    """

    readers: Mapping[str, Reader[T]]
    schemas: Mapping[str, dict[str, Any]]
    kind: str = "json"
    schema: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", keyed_schema(self.schemas))

    def parse(self, reply: str) -> Parsed[Batch[T]] | Unreadable:
        found = Json(AnyObject).parse(reply)
        if isinstance(found, Unreadable):
            return found
        batch = read_batch(found.value.model_extra or {}, self.readers)
        return Parsed(batch, found.rung) if batch.values else nobody(batch)


def read_batch(raw: Mapping[str, Any], readers: Mapping[str, Reader[T]]) -> Batch[T]:
    """Each resident's part of an object with an entry for each, as far as it can be read."""
    entries = _by_resident(raw, tuple(readers))
    values: dict[str, Mended[T]] = {}
    unread: dict[str, str] = {}
    for resident, reader in readers.items():
        entry = entries.get(resident)
        read = reader(entry) if isinstance(entry, Mapping) else Unreadable("It is missing.")
        if isinstance(read, Unreadable):
            unread[resident] = read.problem
        else:
            values[resident] = read
    return Batch(values, unread)


def nobody(batch: Batch[Any]) -> Unreadable:
    """What to say to a reply in which no resident's part could be read."""
    first = next(iter(batch.unread))
    return Unreadable(
        f"No resident's part could be read ({first}: {batch.unread[first]}) "
        f"Reply with one JSON object whose keys are {', '.join(batch.unread)}."
    )


def validated(model: type[M], raw: Mapping[str, Any]) -> M | Unreadable:
    """`raw` as the strict type, or the first things that do not fit, in words for the model."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'object'}: {e['msg']}" for e in error.errors()[:3]
        )
        return Unreadable(
            f"The JSON did not fit: {first}. Reply with only the JSON object, all fields present."
        )


@lru_cache(maxsize=64)
def schema_of(model: type[BaseModel], *leave_out: str) -> dict[str, Any]:
    """The JSON schema of a type without some of its fields, free of unused definitions.

    Made once: pydantic takes longer over it than over reading the answer. Nobody may change it.
    """
    schema = model.model_json_schema()
    for name in leave_out:
        schema["properties"].pop(name, None)
    schema["required"] = [n for n in schema.get("required", []) if n not in leave_out]
    return _pruned(schema)


def object_schema(title: str, parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An object whose parts have schemas of their own; definitions are moved to the top."""
    definitions: dict[str, Any] = {}
    properties = {}
    for name, part in parts.items():
        definitions.update(part.get("$defs", {}))
        properties[name] = {k: v for k, v in part.items() if k != "$defs"}
    out: dict[str, Any] = {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(parts),
    }
    return out | ({"$defs": definitions} if definitions else {})


def keyed_schema(schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An object with one key per resident; equal parts are written once, as a definition."""
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for resident, schema in schemas.items():
        name = str(schema.get("title", "Answer")).replace(" ", "")
        definitions.update(schema.get("$defs", {}))
        body = {k: v for k, v in schema.items() if k != "$defs"}
        definitions.setdefault(name, body)
        same = definitions[name] == body
        properties[resident] = {"$ref": f"#/$defs/{name}"} if same else body
    return {
        "title": "Residents",
        "type": "object",
        "properties": properties,
        "required": list(schemas),
        "$defs": definitions,
    }


def _pruned(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", {})
    used: dict[str, Any] = {}
    waiting = _refs(schema)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = definitions[name]
            waiting |= _refs(definitions[name])
    kept = {name: body for name, body in definitions.items() if name in used}
    return schema | ({"$defs": kept} if kept else {})


def _refs(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        own = {schema["$ref"].removeprefix("#/$defs/")} if "$ref" in schema else set()
        return own.union(*(_refs(v) for v in schema.values()))
    if isinstance(schema, list):
        return set().union(*(_refs(v) for v in schema))
    return set()


def _by_resident(raw: Mapping[str, Any], ids: tuple[str, ...]) -> dict[str, Any]:
    """Entries by resident, also when they stand one level deeper or in a list with ids in it."""
    if len(raw) == 1 and not resolve(next(iter(raw)), ids):
        inner = next(iter(raw.values()))
        if isinstance(inner, Mapping):
            raw = inner
        elif isinstance(inner, list):
            raw = {
                str(
                    resolve(entry.get("resident", entry.get("id", entry.get("agent_id"))), ids)
                ): entry
                for entry in inner
                if isinstance(entry, Mapping)
            }
    found: dict[str, Any] = {}
    for key, entry in raw.items():
        resident = resolve(key, ids)
        if resident:
            found.setdefault(resident, entry)
    return found
