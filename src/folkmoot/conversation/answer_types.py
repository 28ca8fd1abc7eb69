"""Answers: a reply parsed to a type, or `Missing` with its reason, never blank text.

Each answer type tries ever more forgiving readings and says which one succeeded (the parse step).
When none does, it says what was wrong, so that the engine can ask again.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, ValidationInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from folkmoot.conversation.answer_format import describe_format, drop_descriptions
from folkmoot.conversation.json_replies import json_candidates
from folkmoot.conversation.lenient_fields import UNREADABLE, mend_fields
from folkmoot.json_text import Schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no answer. `reason`: refused, unparsed, empty, too_long, filtered, ….

    The speaker can give a reason too, as one of the ways out `none_of_these`, `declined` and
    `cannot_say`. `last_reply` keeps the last reply, for the record; it is never scored.
    """

    reason: str
    detail: str = ""
    last_reply: str = ""

    def __bool__(self) -> bool:
        return False


class ParsedAnswer(NamedTuple, Generic[T_co]):
    """A value, the parse step at which it was read, and what was put right in it."""

    value: T_co
    parse_step: str
    repairs: tuple[Repair, ...] = ()


# Ways out of a closed answer. A speaker who takes one has answered, but chose no option.
NONE_OF_THESE, DECLINED, CANNOT_SAY = "none_of_these", "declined", "cannot_say"
WAYS_OUT = (NONE_OF_THESE, DECLINED, CANNOT_SAY)
WAYS_OUT_OF_OPTIONS = (NONE_OF_THESE, DECLINED)  # those that are offered beside a list of options


def with_ways_out(options: Sequence[str]) -> tuple[str, ...]:
    """Return the options of an enumeration with the ways out that they do not hold yet."""
    return (*options, *(way for way in WAYS_OUT_OF_OPTIONS if way not in options))


def parse_way_out(reply: object, ways_out: Sequence[str] = WAYS_OUT_OF_OPTIONS) -> Missing | None:
    """Return the way out that a value or a whole reply is, or None.

    Case, quotes and closing marks are ignored, as is the spelling with spaces.
    """
    if not isinstance(reply, str) or len(reply) > LONGEST_WAY_OUT:
        return None
    name = "_".join(re.findall(r"[^\W_]+", reply.casefold()))
    return Missing(name, last_reply=reply) if name in ways_out else None


LONGEST_WAY_OUT = 40  # characters; a longer reply says more than its way out


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """Why a reply could not be read, in words for the model that is asked again."""

    problem: str


CHOICE, NUMBER = "choice", "number"  # kinds of closed answers


class AnswerType(ABC, Generic[T_co]):
    """An answer type: reads replies, and may carry a JSON schema for the request.

    A subclass defines `kind` and `parse_reply`, and whatever else is not as here.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """`text`, `choice`, `number`, `json`, or the word of a study; a column of `answers`."""

    @abstractmethod
    def parse_reply(self, reply: str) -> ParsedAnswer[T_co] | ParseFailure | Missing:
        """Read a reply. `Missing`: the speaker took a way out, and is not asked again."""

    def problem_in(self, reply: str) -> str:
        """Why the answer of a person cannot be taken, in words; empty where it can. Nothing is
        mended or left out: a person can correct what they wrote."""
        read = self.parse_reply(reply)
        return read.problem if isinstance(read, ParseFailure) else ""

    @property
    def schema(self) -> Schema | None:
        """The JSON schema of the reply; None for a reply that is not JSON."""
        return None

    def describe_format(self, options: Mapping[str, Sequence[str]] | None = None) -> str:
        """Return the keys of a reply in JSON with what each holds, for a prompt; else empty.

        `options`: see `answer_format.describe_format`.
        """
        return describe_format(self.schema, options) if self.schema else ""

    @property
    def configuration_error(self) -> str:
        """Why nobody can answer, in words; else empty."""
        return ""

    @property
    def form_kind(self) -> str:
        """The kind as pages and the embedded respondent know it."""
        return self.kind

    @property
    def listed_options(self) -> tuple[str, ...]:
        """The options that the answer is one of, in the order shown."""
        return ()

    @property
    def offered_values(self) -> tuple[str, ...]:
        """What pages and the embedded respondent choose from: options, or bounds of a number."""
        return self.listed_options

    @property
    def is_closed(self) -> bool:
        """Whether the answer is one of the options or a number."""
        return self.kind in (CHOICE, NUMBER)

    @property
    def is_short(self) -> bool:
        """Whether the beginning of an answer may be another answer, should it be cut."""
        return self.is_closed

    @property
    def is_read(self) -> bool:
        """Whether a value is read out of the reply; free text is taken as it is."""
        return True

    @property
    def end_signal(self) -> str:
        """What ends the conversation if it is said instead of an answer; else empty."""
        return ""

    @property
    def total(self) -> float | None:
        """What the numbers of the answer add up to, for the embedded respondent."""
        return None

    @property
    def fallback_value(self) -> T_co | None:
        """The value that stands for an answer which could not be read; None: it is missing."""
        return None

    @property
    def clarifying_answer(self) -> ClarifyingAnswer[T_co] | None:
        """The second and last question after a reply that could not be read, if there is one."""
        return None

    def salvage_reply(self, _reply: str) -> ParsedAnswer[T_co] | None:
        """What is kept of the last reply where no reply could be read as a whole; None: nothing."""
        return None

    def find_mentioned_values(self, _reply: str) -> frozenset[object] | None:
        """Return the values that a reply names anywhere; None if the answer type cannot tell."""
        return None


class ClarifyingAnswer(AnswerType[T_co]):
    """An answer type with a question to go with it, asked after a reply that was unreadable."""

    __slots__ = ()

    @property
    @abstractmethod
    def prompt(self) -> str:
        """The question for a speaker after their reply."""


@dataclass(frozen=True, slots=True)
class Text(AnswerType[str]):
    """Free text. Only an empty reply is unreadable.

    `offered_values`: the option whose view the text is to give, where it is not the speaker's own.
    `end_signal`: what ends the conversation if it is said instead.
    """

    kind: str = "text"
    offered_values: tuple[str, ...] = ()
    end_signal: str = ""

    @property
    def is_read(self) -> bool:
        return False

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure:
        text = reply.strip()
        return ParsedAnswer(text, "exact") if text else ParseFailure("The reply was empty.")


class Repair(NamedTuple):
    """One thing put right while an answer was read; `replacement` is empty where it was dropped."""

    field: str
    kind: str
    original: str
    replacement: str = ""

    @property
    def is_dropped(self) -> bool:
        return not self.replacement


@dataclass(slots=True)
class ValidationContext:
    """What the validators of an answer's model may know, and where they note what they put right.

    A validator gets it by `ValidationContext.from_info(info)`. `context` is what the answer type
    was given. `echoed`: dotted paths of fields that were dropped because they held the prompt
    template's own sentence. `unread_fields`: those of fields and entries that were left out because
    nobody could read them.
    """

    context: Any = None
    repairs: list[Repair] = field(default_factory=list)
    echoed: frozenset[str] = frozenset()

    @property
    def unread_fields(self) -> frozenset[str]:
        return frozenset(repair.field for repair in self.repairs if repair.kind == UNREADABLE)

    @classmethod
    def from_info(cls, info: ValidationInfo) -> ValidationContext:
        """The reading that a validator runs in; an empty one where a model is made in Python."""
        return info.context if isinstance(info.context, ValidationContext) else cls()

    def add_repair(self, field: str, kind: str, original: object, replacement: object = "") -> None:
        """Note a repair; without `replacement` it says that the value was dropped."""
        self.repairs.append(Repair(field, kind, str(original)[:80], str(replacement)[:80]))


ALL_FIELDS_INSTRUCTION = "Reply with only the JSON object, all fields present."
NO_OBJECT = "The reply was not a JSON object."
MOST_MENDINGS = 8  # times that a reply is validated, each time with more of it put right


@dataclass(frozen=True, slots=True)
class Json(AnswerType[M]):
    """A JSON object validated by a pydantic model.

    Ladder: direct → fenced block → repair library; in each, fields are read leniently
    (`lenient_fields`). Then ask again; then what can be read of the last reply; then `Missing`, or
    `fallback_value` (the protocol's documented minimal structure, which carries `_parse_error`).

    `validation_context`: what the model's validators need to know, such as the names at the table
    (`ValidationContext`). `options`: the texts that a field may hold, for the schema alone
    (`{"votes.choice": […]}`, dots lead into nested models and lists); a validator decides about
    other spellings. `excluded_fields`: fields left out of the schema. `schema`: one in place of the
    model's. `may_decline`: the schema begins with a field `declined`; a reply that sets it is
    `Missing`, whatever its other fields hold and whatever `fallback_value` is.
    A field that gives its description back has no value (`answer_format`).
    `total`: what the numbers of the object must add up to, for the embedded respondent; a validator
    of the model checks it.
    """

    model: type[M]
    fallback_value: M | None = None
    validation_context: object = None
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    excluded_fields: tuple[str, ...] = ()
    schema: Schema | None = None
    kind: str = "json"
    may_decline: bool = False
    total: float | None = None

    def __post_init__(self) -> None:
        schema = self.schema
        if schema is None:
            schema = json_schema(self.model, self.options, self.excluded_fields)
        if self.may_decline:
            schema = declinable_schema(schema)
        object.__setattr__(self, "schema", schema)

    def parse_reply(self, reply: str) -> ParsedAnswer[M] | ParseFailure | Missing:
        return _parse_json(reply, dict, self.read, NO_OBJECT)

    def problem_in(self, reply: str) -> str:
        def parse_without_repair(value: object) -> ParsedAnswer[M] | ParseFailure | Missing:
            return self.read(value, mend=False)

        found = _parse_json(reply, dict, parse_without_repair, NO_OBJECT)
        return found.problem if isinstance(found, ParseFailure) else ""

    def salvage_reply(self, reply: str) -> ParsedAnswer[M] | None:
        def parse_for_salvage(value: object) -> ParsedAnswer[M] | ParseFailure | Missing:
            return self.read(value, salvage=True)

        found = _parse_json(reply, dict, parse_for_salvage, NO_OBJECT)
        return found if isinstance(found, ParsedAnswer) else None

    def read(
        self, value: object, *, salvage: bool = False, mend: bool = True
    ) -> ParsedAnswer[M] | ParseFailure | Missing:
        """Read what is JSON already: a part of a larger reply. `salvage`: keep what can be read.
        Without `mend` a value that does not fit is refused."""
        if self.may_decline and isinstance(value, dict):
            if is_declined(value.get(DECLINED)):
                return Missing(DECLINED)
            value = {name: entry for name, entry in value.items() if name != DECLINED}
        value, dropped = drop_descriptions(value, self.schema)
        notes = ValidationContext(
            self.validation_context,
            echoed=frozenset(dropped_description.path for dropped_description in dropped),
        )
        for path, sentence in dropped:
            notes.add_repair(path, "template_sentence", sentence)
        for _ in range(MOST_MENDINGS):
            reading = replace(notes, repairs=list(notes.repairs))
            try:
                read = self.model.model_validate(value, context=reading)
            except ValidationError as error:
                errors = error.errors()
                if not mend:
                    break
                mended = mend_fields(
                    self.model, value, errors, notes.add_repair, ways_out=WAYS_OUT, salvage=salvage
                )
                if mended is None:
                    break
                value = mended
            else:
                return ParsedAnswer(read, "exact", tuple(reading.repairs))
        first = "; ".join(
            f"{'.'.join(map(str, error['loc'])) or 'object'}: {error['msg']}"
            for error in errors[:3]
        )
        own_words = f" {dropped[0].path} repeats the question: answer it." if dropped else ""
        return ParseFailure(f"The JSON did not fit: {first}.{own_words} {ALL_FIELDS_INSTRUCTION}")


@dataclass(frozen=True, slots=True)
class JsonList(AnswerType[tuple[M, ...]]):
    """A list of JSON objects, each validated by a pydantic model; the value is a tuple.

    Asked for as `{"items": […]}` (`name`), since endpoints want an object; a bare list is read too.
    An item that does not fit is dropped, as is one whose `unique_key(item)` came before, or one
    beyond `max_items`; each is a `Repair`. With fewer than `min_items` left, or none of several,
    the reply is unreadable. `fallback_value`, `validation_context`, `options` and `excluded_fields`
    are as in `Json`, of one item.
    """

    model: type[M]
    min_items: int = 0
    max_items: int | None = None
    name: str = "items"
    unique_key: Callable[[M], object] | None = None
    fallback_value: tuple[M, ...] | None = None
    validation_context: object = None
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    excluded_fields: tuple[str, ...] = ()
    kind: str = "json"

    @property
    def schema(self) -> Schema:
        item = dict(json_schema(self.model, self.options, self.excluded_fields))
        definitions = item.pop("$defs", {})
        items = {"type": "array", "items": item, "minItems": self.min_items}
        if self.max_items is not None:
            items["maxItems"] = self.max_items
        schema = object_schema(f"{item['title']}List", {self.name: items})
        return schema | ({"$defs": definitions} if definitions else {})

    def parse_reply(self, reply: str) -> ParsedAnswer[tuple[M, ...]] | ParseFailure | Missing:
        return _parse_json(reply, (list, dict), self.read, "The reply was not a list in JSON.")

    def read(self, value: object) -> ParsedAnswer[tuple[M, ...]] | ParseFailure:
        """Read what is JSON already: a list, or an object that holds it."""
        notes = ValidationContext()
        one = Json(
            self.model,
            validation_context=self.validation_context,
            options=self.options,
            excluded_fields=self.excluded_fields,
        )
        kept: list[M] = []
        seen: list[object] = []
        problem = ""
        items = self._parse_items(value, notes)
        for number, item in enumerate(items):
            read = one.read(item)
            where = f"{self.name}.{number}"
            if not isinstance(read, ParsedAnswer):
                why = read.problem if isinstance(read, ParseFailure) else read.reason
                problem = (
                    problem or f" ({where}: {why.removesuffix(ALL_FIELDS_INSTRUCTION).strip()})"
                )
                notes.add_repair(where, UNREADABLE, item)
                continue
            what = read.value if self.unique_key is None else self.unique_key(read.value)
            if self.unique_key is not None and what in seen:
                notes.add_repair(where, "repeated", what)
            elif len(kept) == self.max_items:
                notes.add_repair(where, "too_many", what)
            else:
                kept.append(read.value)
                seen.append(what)
                notes.repairs.extend(read.repairs)
        if len(kept) < self.min_items or (items and not kept):
            return ParseFailure(
                f"{len(kept)} of at least {max(self.min_items, 1)} items could be read{problem}. "
                f'Reply with only a JSON object whose "{self.name}" is a list of objects, '
                "all their fields present."
            )
        return ParsedAnswer(tuple(kept), "exact", tuple(notes.repairs))

    def _parse_items(self, value: Any, notes: ValidationContext) -> list[Any]:
        if isinstance(value, list):
            return value
        lists = [value for value in value.values() if isinstance(value, list)]
        found = value.get(self.name, lists[0] if len(value) == len(lists) == 1 else value)
        if isinstance(found, list):
            return found
        notes.add_repair(self.name, "wrong_shape", "object", "list")
        return [found]


class MapEntries(NamedTuple, Generic[T_co]):
    """The entries of one reply by key; `problems` says why others are not there.

    `declined`: keys of entries that decline to answer. They are not asked again.
    """

    values: dict[str, T_co]
    problems: dict[str, str]
    declined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonMap(AnswerType["MapEntries[M]"]):
    """One JSON object with an entry for each key, such as each resident. What can be read is taken.

    A reply that was cut off gives the keys that it had come to; the caller asks again for the rest.
    Only a reply with no readable entry is unreadable. `match_key(said, keys)` gives the key that is
    meant, or ""; entries may stand one level deeper, or in a list that names them in a field of
    `name_fields`.
    """

    parts: Mapping[str, Json[M]]
    match_key: Callable[[Any, Sequence[str]], str] = lambda said, keys: said if said in keys else ""
    name_fields: tuple[str, ...] = ("id",)
    title: str = "Entries"
    kind: str = "json"

    @property
    def schema(self) -> Schema:
        return object_schema(
            self.title, {key: part.schema or {} for key, part in self.parts.items()}
        )

    def parse_reply(self, reply: str) -> ParsedAnswer[MapEntries[M]] | ParseFailure | Missing:
        return _parse_json(reply, dict, self.read, NO_OBJECT)

    def read(self, value: Any) -> ParsedAnswer[MapEntries[M]] | ParseFailure:
        """Read what is JSON already: a part of a larger reply."""
        said = self._entries_by_key(value)
        values: dict[str, M] = {}
        unread: dict[str, str] = {}
        declined: list[str] = []
        repairs: list[Repair] = []
        for key_, part in self.parts.items():
            entry = said.get(key_)
            is_object = isinstance(entry, Mapping)
            read = part.read(entry) if is_object else ParseFailure("It is missing.")
            if isinstance(read, Missing):
                declined.append(key_)
            elif isinstance(read, ParseFailure):
                unread[key_] = read.problem
            else:
                values[key_] = read.value
                repairs.extend(read.repairs)
        if values or declined or not self.parts:
            return ParsedAnswer(
                MapEntries(values, unread, tuple(declined)), "exact", tuple(repairs)
            )
        first = next(iter(unread))
        return ParseFailure(
            f"No entry could be read ({first}: {unread[first]}) "
            f"Reply with one JSON object whose keys are {', '.join(unread)}."
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
                    entries = [(self._entry_name(e), e) for e in objects]
        found: dict[str, object] = {}
        for said, entry in entries:
            if key_ := self.match_key(said, keys):
                found.setdefault(key_, entry)
        return found

    def _entry_name(self, entry: Mapping[str, object]) -> object:
        return next(
            (entry[name_field] for name_field in self.name_fields if name_field in entry), None
        )


def pin_schema(title: str, description: str = "", config: ConfigDict | None = None) -> ConfigDict:
    """Fix the title and the description under which an answer model is sent to models.

    Use it as the `model_config` of the model; `config` holds further settings of pydantic's. The
    schema is part of a request and of its fingerprint. With an explicit title, renaming the class
    or editing its docstring does not change the requests of paused runs.
    """
    extra: dict[str, JsonValue] = {"description": description} if description else {}
    return {**(config or {}), "title": title, "json_schema_extra": extra}


def is_declined(value: object) -> bool:
    """Return whether the field `declined` of a JSON reply says yes."""
    return value is True or (isinstance(value, str) and value.strip().casefold() in ("true", "yes"))


def declinable_schema(schema: Schema) -> Schema:
    """Return the schema of an object with the field `declined` before all others."""
    declined = {
        "type": "boolean",
        "description": "true to decline to answer; the other fields do not count then",
    }
    return schema | {"properties": {DECLINED: declined, **schema.get("properties", {})}}


def json_schema(
    model: type[BaseModel],
    options: Mapping[str, Sequence[str]] | None = None,
    excluded_fields: tuple[str, ...] = (),
) -> Schema:
    """The JSON schema of a model for an endpoint: `options` and `excluded_fields` as in `Json`.

    Made once (it costs milliseconds). Not to be changed.
    """
    allowed = tuple((path, tuple(texts)) for path, texts in (options or {}).items())
    return _build_schema(model, allowed, tuple(excluded_fields))


@lru_cache(maxsize=4096)
def _build_schema(
    model: type[BaseModel],
    options: tuple[tuple[str, tuple[str, ...]], ...],
    without: tuple[str, ...],
) -> Schema:
    schema = _with_definitions_by_title(
        model.model_json_schema(schema_generator=_SentSchemaGenerator)
    )
    definitions = schema.get("$defs", {})
    for path, texts in options:
        above, name = _find_parent_object(schema, definitions, path)
        node = above["properties"][name]
        _unwrap_field_schema(node, definitions)["enum"] = list(texts)
    for path in without:
        above, name = _find_parent_object(schema, definitions, path)
        above["properties"].pop(name, None)
        above["required"] = [n for n in above.get("required", []) if n != name]
    return _remove_unused_definitions(schema)


class _SentSchemaGenerator(GenerateJsonSchema):
    """Generate the schema of an answer model as it is sent to an endpoint.

    The schema is part of the request and of its fingerprint. So a model with a title in its
    `model_config` is sent under this title, described by its `json_schema_extra` alone: its class
    can be renamed and its docstring edited. Without a title, class name and docstring are sent.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        sent = super().model_schema(schema)
        config = schema["cls"].model_config
        extra = config.get("json_schema_extra")
        if config.get("title") and not (isinstance(extra, dict) and "description" in extra):
            sent.pop("description", None)
        return sent


def _with_definitions_by_title(schema: Schema) -> Schema:
    """Name the definitions of a schema by their titles, where pydantic names them by classes."""
    definitions = schema.get("$defs", {})
    titles = {name: str(body.get("title", name)) for name, body in definitions.items()}
    if list(titles) == list(titles.values()) or len(set(titles.values())) < len(titles):
        return schema
    refs = {f"#/$defs/{name}": f"#/$defs/{title}" for name, title in titles.items()}

    def rename_references(node: Any) -> Any:
        if isinstance(node, list):
            return [rename_references(part) for part in node]
        if not isinstance(node, dict):
            return node
        return {
            key: refs.get(part, part) if key == "$ref" else rename_references(part)
            for key, part in node.items()
        }

    named = {titles[name]: body for name, body in definitions.items()}
    renamed: Schema = rename_references(
        schema | {"$defs": {name: named[name] for name in sorted(named)}}
    )
    return renamed


def _find_parent_object(schema: Schema, definitions: Schema, path: str) -> tuple[Schema, str]:
    """The object of a schema that has the field at the end of a dotted path, and its name."""
    *above, name = path.split(".")
    for step in above:
        schema = _unwrap_field_schema(schema["properties"][step], definitions)
    return schema, name


def _unwrap_field_schema(node: Schema, definitions: Schema) -> Schema:
    """What a field of a schema holds: the items of a list, the type that may be null, the ref."""
    while "type" not in node or node["type"] == "array":
        if "$ref" in node:
            node = definitions[node["$ref"].removeprefix("#/$defs/")]
        elif "anyOf" in node:
            node = next(name for name in node["anyOf"] if name.get("type") != "null")
        else:
            node = node["items"]
    return node


def object_schema(title: str, parts: Mapping[str, Schema]) -> Schema:
    """An object whose parts have schemas of their own; equal parts are written once."""
    definitions: Schema = {}
    properties: Schema = {}
    bodies = {
        name: {key: value for key, value in part.items() if key != "$defs"}
        for name, part in parts.items()
    }
    for name, body in bodies.items():
        definitions.update(parts[name].get("$defs", {}))
        shared = str(body.get("title", "Part")).replace(" ", "")
        if sum(other == body for other in bodies.values()) == 1:
            properties[name] = body
        elif definitions.setdefault(shared, body) == body:
            properties[name] = {"$ref": f"#/$defs/{shared}"}
        else:
            properties[name] = body
    schema = {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(parts),
    }
    return schema | ({"$defs": definitions} if definitions else {})


def _remove_unused_definitions(schema: Schema) -> Schema:
    """The schema without definitions that nothing refers to."""
    definitions = schema.pop("$defs", {})
    used: set[str] = set()
    waiting = _referenced_definitions(schema)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting |= _referenced_definitions(definitions[name])
    kept = {name: body for name, body in definitions.items() if name in used}
    return schema | ({"$defs": kept} if kept else {})


def _referenced_definitions(node: object) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_referenced_definitions, node))
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"].removeprefix("#/$defs/")} if isinstance(node.get("$ref"), str) else set()
    return own.union(*map(_referenced_definitions, node.values()))


def _parse_json(
    reply: str,
    opening_characters: type | tuple[type, ...],
    read: Callable[[object], ParsedAnswer[T] | ParseFailure | Missing],
    problem: str,
) -> ParsedAnswer[T] | ParseFailure | Missing:
    """The first reading of the reply as JSON that `read` takes, with its parse step."""
    unread = ParseFailure(f"{problem} {ALL_FIELDS_INSTRUCTION}")
    for parse_step, candidate in json_candidates(
        reply, "{" if opening_characters is dict else "{["
    ):
        if isinstance(candidate, opening_characters):
            found = read(candidate)
            if isinstance(found, ParsedAnswer):
                return found._replace(parse_step=parse_step)
            if isinstance(found, Missing):
                return found
            unread = found
    return unread
