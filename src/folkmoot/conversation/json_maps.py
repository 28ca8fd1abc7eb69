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
    parse_json,
)
from folkmoot.conversation.json_replies import UnreadableValue
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
            parsed = _read_entry(part, entries_by_key.get(key, []), salvage=salvage)
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

    def parse_reply(
        self, reply: str, *, numbers_as_text: bool = False
    ) -> ParsedAnswer[MapEntries[M]] | ParseFailure | Missing:
        # Not `super()`: a dataclass with slots replaces the class that it knows.
        parsed = JsonObject.parse_reply(self, reply, numbers_as_text=numbers_as_text)
        if not isinstance(parsed, ParseFailure):
            return parsed
        # A list of entries that name their keys, without an object around it.
        as_list = parse_json(reply, list, self.read, parsed.problem, self.schema)
        return as_list if isinstance(as_list, ParsedAnswer) else parsed

    def _entries_by_key(self, value: object) -> dict[str, list[object]]:
        keys = tuple(self.parts)
        entries: list[tuple[object, object]] = []
        if isinstance(value, list):
            entries = self._entries_of_list(value)
        elif isinstance(value, Mapping):
            entries = list(value.items())
            if len(entries) == 1 and not self.match_key(entries[0][0], keys):
                inner = entries[0][1]
                if isinstance(inner, Mapping):
                    entries = list(inner.items())
                elif isinstance(inner, list):
                    entries = self._entries_of_list(inner)
        # A reply may hold several entries for one key, such as `A01` and `Resident 1`.
        entries_by_key: dict[str, list[object]] = {}
        for name, entry in entries:
            if key := self.match_key(name, keys):
                entries_by_key.setdefault(key, []).append(entry)
        return entries_by_key

    def _entries_of_list(self, items: list[object]) -> list[tuple[object, object]]:
        objects = [item for item in items if isinstance(item, Mapping)]
        return [(self._entry_name(entry), entry) for entry in objects]

    def _entry_name(self, entry: Mapping[str, object]) -> object:
        return next(
            (entry[name_field] for name_field in self.name_fields if name_field in entry), None
        )


def _read_entry(
    part: Json[M], entries: Sequence[object], *, salvage: bool
) -> ParsedAnswer[M] | ParseFailure | Missing:
    # Reads the entries that a reply gives for one key. Of two different answers it is unknown which
    # one is meant, and a model may have mislabelled one of them. Equal answers are one.
    if unreadable := [entry for entry in entries if isinstance(entry, UnreadableValue)]:
        return ParseFailure(f"{unreadable[0].problem}.")
    if not entries or not all(isinstance(entry, Mapping) for entry in entries):
        return ParseFailure("It is missing.")
    first, *others = (part.read(entry, salvage=salvage) for entry in entries)
    if all(isinstance(parsed, ParseFailure) for parsed in (first, *others)):
        return first
    if any(_answer_of(parsed) != _answer_of(first) for parsed in others):
        return ParseFailure("It is given twice, with different answers.")
    return first


def _answer_of(parsed: ParsedAnswer[M] | ParseFailure | Missing) -> object:
    return parsed.value if isinstance(parsed, ParsedAnswer) else parsed
