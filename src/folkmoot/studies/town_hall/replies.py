"""How replies are read: JSON that is mended while it is validated, for one resident or for many in
one reply, and the JSON schemas that go with the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from folkmoot.conversation.answers import Json, Parsed, Unreadable
from folkmoot.studies.town_hall.mending import Mend, Mender, resolve

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Unfit(ValueError):
    """Why an object is not an answer, in words for the model that is asked again."""


class AnyObject(BaseModel):
    """Any JSON object: how far the ladder gets before the parts are looked at."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Mended(Generic[T]):
    """A value and what was mended to get it."""

    value: T
    mends: tuple[Mend, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A JSON object, read by `read` (which raises Unfit or ValidationError).

    The schema goes with the request.
    """

    schema: dict[str, Any]
    read: Callable[[Mapping[str, Any]], Mended[T]]
    kind: str = "json"

    def parse(self, reply: str) -> Parsed[Mended[T]] | Unreadable:
        found = Json(AnyObject).parse(reply)
        if isinstance(found, Unreadable):
            return found
        try:
            return Parsed(self.read(found.value.model_extra or {}), found.rung)
        except ValueError as why:
            return Unreadable(_told(why))


def model_answer(model: type[M], mender: Callable[[], Mender], *leave_out: str) -> Answer[M]:
    """An answer of a pydantic type, mended; `leave_out` are fields that are not asked for."""

    def read(raw: Mapping[str, Any]) -> Mended[M]:
        mending = mender()
        value = model.model_validate(raw, context=mending)
        return Mended(value, tuple(mending.mends))

    return Answer(schema_of(model, *leave_out), read)


def for_each(answers: Mapping[str, Answer[T]]) -> Answer[dict[str, T]]:
    """One object with an entry for each resident. Any part of it that can be read is taken.

    A reply that was cut off gives those residents that it had come to; the caller asks again for
    the rest. Only a reply with nobody in it is unreadable.
    """

    def read(raw: Mapping[str, Any]) -> Mended[dict[str, T]]:
        entries = _by_resident(raw, tuple(answers))
        values: dict[str, T] = {}
        unread: dict[str, str] = {}
        mends: list[Mend] = []
        for resident, answer in answers.items():
            try:
                if not isinstance(entry := entries.get(resident), Mapping):
                    raise Unfit("It is missing.")
                got = answer.read(entry)
            except ValueError as why:
                unread[resident] = _told(why)
                continue
            values[resident] = got.value
            mends += got.mends
        if unread and not values:
            first = next(iter(unread))
            raise Unfit(
                f"No resident's part could be read ({first}: {unread[first]}) "
                f"Reply with one JSON object whose keys are {', '.join(unread)}."
            )
        return Mended(values, tuple(mends))

    return Answer(_keyed({i: a.schema for i, a in answers.items()}), read)


def _by_resident(raw: Mapping[str, Any], ids: tuple[str, ...]) -> dict[str, Any]:
    """Entries by resident, also when they stand one level deeper or in a list with ids in it."""
    if len(raw) == 1 and not resolve(next(iter(raw)), ids):
        inner = next(iter(raw.values()))
        if isinstance(inner, Mapping):
            raw = inner
        elif isinstance(inner, list):
            entries = [e for e in inner if isinstance(e, Mapping)]
            named = [e.get("resident", e.get("id", e.get("agent_id"))) for e in entries]
            raw = {resolve(n, ids): e for n, e in zip(named, entries, strict=True)}
    found: dict[str, Any] = {}
    for key, entry in raw.items():
        resident = resolve(key, ids)
        if resident:
            found.setdefault(resident, entry)
    return found


def _told(why: ValueError) -> str:
    """The first things that do not fit, in words for the model."""
    if not isinstance(why, ValidationError):
        return str(why)
    first = "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'object'}: "
        f"{'Field required' if e['input'] is None else e['msg']}"
        for e in why.errors()[:3]
    )
    return f"The JSON did not fit: {first}. Reply with only the JSON object, all fields present."


@lru_cache(maxsize=64)
def schema_of(model: type[BaseModel], *leave_out: str) -> dict[str, Any]:
    """The JSON schema of a type without some of its fields, free of unused definitions.

    Made once: pydantic takes longer over it than over reading the answer. Nobody may change it.
    """
    schema = model.model_json_schema()
    for name in leave_out:
        schema["properties"].pop(name, None)
    schema["required"] = [n for n in schema.get("required", []) if n not in leave_out]
    definitions = schema.pop("$defs", {})
    used = {n: d for n, d in definitions.items() if f"#/$defs/{n}'" in str((schema, definitions))}
    return schema | ({"$defs": used} if used else {})


def object_schema(title: str, parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An object whose parts have schemas of their own; definitions are moved to the top."""
    definitions: dict[str, Any] = {}
    for part in parts.values():
        definitions.update(part.get("$defs", {}))
    out: dict[str, Any] = {
        "title": title,
        "type": "object",
        "properties": {name: _body(part) for name, part in parts.items()},
        "required": list(parts),
    }
    return out | ({"$defs": definitions} if definitions else {})


def _keyed(schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An object with one key per resident; equal parts are written once, as a definition."""
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for resident, schema in schemas.items():
        name, body = str(schema["title"]).replace(" ", ""), _body(schema)
        definitions.update(schema.get("$defs", {}))
        same = definitions.setdefault(name, body) == body
        properties[resident] = {"$ref": f"#/$defs/{name}"} if same else body
    return object_schema("Residents", properties) | {"$defs": definitions}


def _body(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k != "$defs"}
