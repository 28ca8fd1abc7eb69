"""The answer type of one JSON object with an answer for each of several speakers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answer_types import (
    Json,
    JsonObject,
    Missing,
    ParsedAnswer,
    ParseFailure,
    Repair,
)
from folkmoot.conversation.json_schemas import object_schema
from folkmoot.json_text import Schema

T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)


class MapEntries(NamedTuple, Generic[T_co]):
    """The parsed entries of one reply to `JsonMap`. `values` maps each key to an entry."""

    values: dict[str, T_co]
    # Key without an entry → the reason.
    problems: dict[str, str]
    # Keys of entries that the speaker declined. The caller does not ask for these entries again.
    declined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonMap(JsonObject["MapEntries[M]"]):
    """A JSON object with one entry per key, such as one entry per resident.

    - `parts`: a map from key to the answer type of the entry.
    - `match_key`: takes a key in the reply and all keys of `parts`. It returns the key of `parts`
      that is meant, or "".
    - `name_fields`: the fields that name the key of an entry, if the reply is a list.
    """

    # Readable entries are kept, and the caller asks again for the other keys. The reply fails to
    # parse only if no entry is readable.

    parts: Mapping[str, Json[M]]
    match_key: Callable[[Any, Sequence[str]], str] = lambda name, keys: name if name in keys else ""
    name_fields: tuple[str, ...] = ("id",)
    title: str = "Entries"
    kind: str = "json"

    @property
    def schema(self) -> Schema:
        return object_schema(
            self.title, {key: part.schema or {} for key, part in self.parts.items()}
        )

    def read(
        self, value: Any, *, salvage: bool = False
    ) -> ParsedAnswer[MapEntries[M]] | ParseFailure:
        """Return the entries in a JSON value.

        - `salvage`: keep the readable part of an entry that cannot be repaired.
        """
        # The value may be a part of a larger reply.
        entries_by_key = self._entries_by_key(value)
        values: dict[str, M] = {}
        problems: dict[str, str] = {}
        declined: list[str] = []
        repairs: list[Repair] = []
        for key, part in self.parts.items():
            entry = entries_by_key.get(key)
            is_object = isinstance(entry, Mapping)
            parsed = (
                part.read(entry, salvage=salvage) if is_object else ParseFailure("It is missing.")
            )
            if isinstance(parsed, Missing):
                declined.append(key)
            elif isinstance(parsed, ParseFailure):
                problems[key] = parsed.problem
            else:
                values[key] = parsed.value
                repairs.extend(parsed.repairs)
        if values or declined or not self.parts:
            return ParsedAnswer(
                MapEntries(values, problems, tuple(declined)), "exact", tuple(repairs)
            )
        first_key = next(iter(problems))
        return ParseFailure(
            f"No entry could be read ({first_key}: {problems[first_key]}) "
            f"Reply with one JSON object whose keys are {', '.join(problems)}."
        )

    def _entries_by_key(self, value: object) -> dict[str, object]:
        keys = tuple(self.parts)
        entries: list[tuple[object, object]] = []
        if isinstance(value, Mapping):
            entries = list(value.items())
            if len(entries) == 1 and not self.match_key(entries[0][0], keys):
                inner = entries[0][1]
                if isinstance(inner, Mapping):
                    entries = list(inner.items())
                elif isinstance(inner, list):
                    objects = [entry for entry in inner if isinstance(entry, Mapping)]
                    entries = [(self._entry_name(entry), entry) for entry in objects]
        entries_by_key: dict[str, object] = {}
        for name, entry in entries:
            if key := self.match_key(name, keys):
                # If a reply holds a key twice, the first entry counts.
                entries_by_key.setdefault(key, entry)
        return entries_by_key

    def _entry_name(self, entry: Mapping[str, object]) -> object:
        return next(
            (entry[name_field] for name_field in self.name_fields if name_field in entry), None
        )
