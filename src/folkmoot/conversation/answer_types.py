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
    `cannot_say`. `raw` keeps the last reply, for the record; it is never scored.
    """

    reason: str
    detail: str = ""
    raw: str = ""

    def __bool__(self) -> bool:
        return False


class Parsed(NamedTuple, Generic[T_co]):
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
    return Missing(name, raw=reply) if name in ways_out else None


LONGEST_WAY_OUT = 40  # characters; a longer reply says more than its way out


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a reply could not be read, in words for the model that is asked again."""

    problem: str


CHOICE, NUMBER = "choice", "number"  # kinds of closed answers


class Answer(ABC, Generic[T_co]):
    """An answer type: reads replies, and may carry a JSON schema for the request.

    A subclass defines `kind` and `parse`, and whatever else is not as here.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """`text`, `choice`, `number`, `json`, or the word of a study; a column of `answers`."""

    @abstractmethod
    def parse(self, reply: str) -> Parsed[T_co] | Unreadable | Missing:
        """Read a reply. `Missing`: the speaker took a way out, and is not asked again."""

    def problem_in(self, reply: str) -> str:
        """Why the answer of a person cannot be taken, in words; empty where it can. Nothing is
        mended or left out: a person can correct what they wrote."""
        read = self.parse(reply)
        return read.problem if isinstance(read, Unreadable) else ""

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
    def unclear(self) -> str:
        """Why nobody can answer, in words; else empty."""
        return ""

    @property
    def form(self) -> str:
        """The kind as pages and the embedded respondent know it."""
        return self.kind

    @property
    def listed_options(self) -> tuple[str, ...]:
        """The options that the answer is one of, in the order shown."""
        return ()

    @property
    def offered(self) -> tuple[str, ...]:
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
    def signal(self) -> str:
        """What ends the conversation if it is said instead of an answer; else empty."""
        return ""

    @property
    def total(self) -> float | None:
        """What the numbers of the answer add up to, for the embedded respondent."""
        return None

    @property
    def fallback(self) -> T_co | None:
        """The value that stands for an answer which could not be read; None: it is missing."""
        return None

    @property
    def clarification(self) -> ClarifyingAnswer[T_co] | None:
        """The second and last question after a reply that could not be read, if there is one."""
        return None

    def salvage(self, _reply: str) -> Parsed[T_co] | None:
        """What is kept of the last reply where no reply could be read as a whole; None: nothing."""
        return None

    def mentioned(self, _reply: str) -> frozenset[object] | None:
        """Return the values that a reply names anywhere; None if the answer type cannot tell."""
        return None


class ClarifyingAnswer(Answer[T_co]):
    """An answer type with a question to go with it, asked after a reply that was unreadable."""

    __slots__ = ()

    @property
    @abstractmethod
    def prompt(self) -> str:
        """The question for a speaker after their reply."""


@dataclass(frozen=True, slots=True)
class Text(Answer[str]):
    """Free text. Only an empty reply is unreadable.

    `offered`: the option whose view the text is to give, where it is not the speaker's own.
    `signal`: what ends the conversation if it is said instead.
    """

    kind: str = "text"
    offered: tuple[str, ...] = ()
    signal: str = ""

    @property
    def is_read(self) -> bool:
        return False

    def parse(self, reply: str) -> Parsed[str] | Unreadable:
        text = reply.strip()
        return Parsed(text, "exact") if text else Unreadable("The reply was empty.")


class Repair(NamedTuple):
    """One thing put right while an answer was read; `became` is empty where it was dropped."""

    field: str
    kind: str
    was: str
    became: str = ""

    @property
    def dropped(self) -> bool:
        return not self.became


@dataclass(slots=True)
class Reading:
    """What the validators of an answer's model may know, and where they note what they put right.

    A validator gets it by `Reading.of(info)`. `about` is what the answer type was given. `echoed`:
    dotted paths of fields that were dropped because they held the prompt template's own sentence.
    `unread`: those of fields and entries that were left out because nobody could read them.
    """

    about: Any = None
    repairs: list[Repair] = field(default_factory=list)
    echoed: frozenset[str] = frozenset()

    @property
    def unread(self) -> frozenset[str]:
        return frozenset(repair.field for repair in self.repairs if repair.kind == UNREADABLE)

    @classmethod
    def of(cls, info: ValidationInfo) -> Reading:
        """The reading that a validator runs in; an empty one where a model is made in Python."""
        return info.context if isinstance(info.context, Reading) else cls()

    def repaired(self, where: str, kind: str, was: object, became: object = "") -> None:
        """Note a repair; without `became` it says that the value was dropped."""
        self.repairs.append(Repair(where, kind, str(was)[:80], str(became)[:80]))


ALL_FIELDS = "Reply with only the JSON object, all fields present."
NO_OBJECT = "The reply was not a JSON object."
MOST_MENDINGS = 8  # times that a reply is validated, each time with more of it put right


@dataclass(frozen=True, slots=True)
class Json(Answer[M]):
    """A JSON object validated by a pydantic model.

    Ladder: direct → fenced block → repair library; in each, fields are read leniently
    (`lenient_fields`). Then ask again; then what can be read of the last reply; then `Missing`, or
    `fallback` (the protocol's documented minimal structure, which carries `_parse_error`).

    `about`: what the model's validators need to know, such as the names at the table (`Reading`).
    `options`: the texts that a field may hold, for the schema alone (`{"votes.choice": […]}`, dots
    lead into nested models and lists); a validator decides about other spellings.
    `without`: fields left out of the schema. `schema`: one in place of the model's.
    `may_decline`: the schema begins with a field `declined`; a reply that sets it is `Missing`,
    whatever its other fields hold and whatever `fallback` is.
    A field that gives its description back has no value (`answer_format`).
    `total`: what the numbers of the object must add up to, for the embedded respondent; a validator
    of the model checks it.
    """

    model: type[M]
    fallback: M | None = None
    about: object = None
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    schema: Schema | None = None
    kind: str = "json"
    may_decline: bool = False
    total: float | None = None

    def __post_init__(self) -> None:
        schema = self.schema
        if schema is None:
            schema = schema_of(self.model, self.options, self.without)
        if self.may_decline:
            schema = declinable_schema(schema)
        object.__setattr__(self, "schema", schema)

    def parse(self, reply: str) -> Parsed[M] | Unreadable | Missing:
        return _read_json(reply, dict, self.read, NO_OBJECT)

    def problem_in(self, reply: str) -> str:
        def read(value: object) -> Parsed[M] | Unreadable | Missing:
            return self.read(value, mend=False)

        found = _read_json(reply, dict, read, NO_OBJECT)
        return found.problem if isinstance(found, Unreadable) else ""

    def salvage(self, reply: str) -> Parsed[M] | None:
        def read(value: object) -> Parsed[M] | Unreadable | Missing:
            return self.read(value, salvage=True)

        found = _read_json(reply, dict, read, NO_OBJECT)
        return found if isinstance(found, Parsed) else None

    def read(
        self, value: object, *, salvage: bool = False, mend: bool = True
    ) -> Parsed[M] | Unreadable | Missing:
        """Read what is JSON already: a part of a larger reply. `salvage`: keep what can be read.
        Without `mend` a value that does not fit is refused."""
        if self.may_decline and isinstance(value, dict):
            if is_declined(value.get(DECLINED)):
                return Missing(DECLINED)
            value = {name: entry for name, entry in value.items() if name != DECLINED}
        value, dropped = drop_descriptions(value, self.schema)
        notes = Reading(self.about, echoed=frozenset(d.path for d in dropped))
        for path, sentence in dropped:
            notes.repaired(path, "template_sentence", sentence)
        for _ in range(MOST_MENDINGS):
            reading = replace(notes, repairs=list(notes.repairs))
            try:
                read = self.model.model_validate(value, context=reading)
            except ValidationError as error:
                errors = error.errors()
                if not mend:
                    break
                mended = mend_fields(
                    self.model, value, errors, notes.repaired, ways_out=WAYS_OUT, salvage=salvage
                )
                if mended is None:
                    break
                value = mended
            else:
                return Parsed(read, "exact", tuple(reading.repairs))
        first = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'object'}: {e['msg']}" for e in errors[:3]
        )
        own_words = f" {dropped[0].path} repeats the question: answer it." if dropped else ""
        return Unreadable(f"The JSON did not fit: {first}.{own_words} {ALL_FIELDS}")


@dataclass(frozen=True, slots=True)
class JsonList(Answer[tuple[M, ...]]):
    """A list of JSON objects, each validated by a pydantic model; the value is a tuple.

    Asked for as `{"items": […]}` (`name`), since endpoints want an object; a bare list is read too.
    An item that does not fit is dropped, as is one whose `distinct(item)` came before, or one
    beyond `most`; each is a `Repair`. With fewer than `fewest` left, or none of several, the reply
    is unreadable. `fallback`, `about`, `options` and `without` are as in `Json`, of one item.
    """

    model: type[M]
    fewest: int = 0
    most: int | None = None
    name: str = "items"
    distinct: Callable[[M], object] | None = None
    fallback: tuple[M, ...] | None = None
    about: object = None
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    kind: str = "json"

    @property
    def schema(self) -> Schema:
        item = dict(schema_of(self.model, self.options, self.without))
        definitions = item.pop("$defs", {})
        items = {"type": "array", "items": item, "minItems": self.fewest}
        if self.most is not None:
            items["maxItems"] = self.most
        schema = object_schema(f"{item['title']}List", {self.name: items})
        return schema | ({"$defs": definitions} if definitions else {})

    def parse(self, reply: str) -> Parsed[tuple[M, ...]] | Unreadable | Missing:
        return _read_json(reply, (list, dict), self.read, "The reply was not a list in JSON.")

    def read(self, value: object) -> Parsed[tuple[M, ...]] | Unreadable:
        """Read what is JSON already: a list, or an object that holds it."""
        notes = Reading()
        one = Json(self.model, about=self.about, options=self.options, without=self.without)
        kept: list[M] = []
        seen: list[object] = []
        problem = ""
        items = self._items(value, notes)
        for number, item in enumerate(items):
            read = one.read(item)
            where = f"{self.name}.{number}"
            if not isinstance(read, Parsed):
                why = read.problem if isinstance(read, Unreadable) else read.reason
                problem = problem or f" ({where}: {why.removesuffix(ALL_FIELDS).strip()})"
                notes.repaired(where, UNREADABLE, item)
                continue
            what = read.value if self.distinct is None else self.distinct(read.value)
            if self.distinct is not None and what in seen:
                notes.repaired(where, "repeated", what)
            elif len(kept) == self.most:
                notes.repaired(where, "too_many", what)
            else:
                kept.append(read.value)
                seen.append(what)
                notes.repairs.extend(read.repairs)
        if len(kept) < self.fewest or (items and not kept):
            return Unreadable(
                f"{len(kept)} of at least {max(self.fewest, 1)} items could be read{problem}. "
                f'Reply with only a JSON object whose "{self.name}" is a list of objects, '
                "all their fields present."
            )
        return Parsed(tuple(kept), "exact", tuple(notes.repairs))

    def _items(self, value: Any, notes: Reading) -> list[Any]:
        if isinstance(value, list):
            return value
        lists = [v for v in value.values() if isinstance(v, list)]
        found = value.get(self.name, lists[0] if len(value) == len(lists) == 1 else value)
        if isinstance(found, list):
            return found
        notes.repaired(self.name, "wrong_shape", "object", "list")
        return [found]


class Entries(NamedTuple, Generic[T_co]):
    """The entries of one reply by key; `unread` says why others are not there.

    `declined`: keys of entries that decline to answer. They are not asked again.
    """

    values: dict[str, T_co]
    unread: dict[str, str]
    declined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonMap(Answer["Entries[M]"]):
    """One JSON object with an entry for each key, such as each resident. What can be read is taken.

    A reply that was cut off gives the keys that it had come to; the caller asks again for the rest.
    Only a reply with no readable entry is unreadable. `find(said, keys)` gives the key that is
    meant, or ""; entries may stand one level deeper, or in a list that names them in a field of
    `named_in`.
    """

    parts: Mapping[str, Json[M]]
    find: Callable[[Any, Sequence[str]], str] = lambda said, keys: said if said in keys else ""
    named_in: tuple[str, ...] = ("id",)
    title: str = "Entries"
    kind: str = "json"

    @property
    def schema(self) -> Schema:
        return object_schema(self.title, {k: part.schema or {} for k, part in self.parts.items()})

    def parse(self, reply: str) -> Parsed[Entries[M]] | Unreadable | Missing:
        return _read_json(reply, dict, self.read, NO_OBJECT)

    def read(self, value: Any) -> Parsed[Entries[M]] | Unreadable:
        """Read what is JSON already: a part of a larger reply."""
        said = self._by_key(value)
        values: dict[str, M] = {}
        unread: dict[str, str] = {}
        declined: list[str] = []
        repairs: list[Repair] = []
        for key_, part in self.parts.items():
            entry = said.get(key_)
            is_object = isinstance(entry, Mapping)
            read = part.read(entry) if is_object else Unreadable("It is missing.")
            if isinstance(read, Missing):
                declined.append(key_)
            elif isinstance(read, Unreadable):
                unread[key_] = read.problem
            else:
                values[key_] = read.value
                repairs.extend(read.repairs)
        if values or declined or not self.parts:
            return Parsed(Entries(values, unread, tuple(declined)), "exact", tuple(repairs))
        first = next(iter(unread))
        return Unreadable(
            f"No entry could be read ({first}: {unread[first]}) "
            f"Reply with one JSON object whose keys are {', '.join(unread)}."
        )

    def _by_key(self, value: object) -> dict[str, object]:
        keys = tuple(self.parts)
        entries: list[tuple[object, object]] = []
        if isinstance(value, Mapping):
            entries = list(value.items())
            if len(entries) == 1 and not self.find(entries[0][0], keys):
                inner = entries[0][1]
                if isinstance(inner, Mapping):
                    entries = list(inner.items())
                elif isinstance(inner, list):
                    objects = [e for e in inner if isinstance(e, Mapping)]
                    entries = [(self._name(e), e) for e in objects]
        found: dict[str, object] = {}
        for said, entry in entries:
            if key_ := self.find(said, keys):
                found.setdefault(key_, entry)
        return found

    def _name(self, entry: Mapping[str, object]) -> object:
        return next((entry[f] for f in self.named_in if f in entry), None)


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


def schema_of(
    model: type[BaseModel],
    options: Mapping[str, Sequence[str]] | None = None,
    without: tuple[str, ...] = (),
) -> Schema:
    """The JSON schema of a model for an endpoint: `options` and `without` as in `Json`.

    Made once (it costs milliseconds). Not to be changed.
    """
    allowed = tuple((path, tuple(texts)) for path, texts in (options or {}).items())
    return _schema(model, allowed, tuple(without))


@lru_cache(maxsize=4096)
def _schema(
    model: type[BaseModel],
    options: tuple[tuple[str, tuple[str, ...]], ...],
    without: tuple[str, ...],
) -> Schema:
    schema = _with_definitions_by_title(
        model.model_json_schema(schema_generator=_SentSchemaGenerator)
    )
    definitions = schema.get("$defs", {})
    for path, texts in options:
        above, name = _above(schema, definitions, path)
        node = above["properties"][name]
        _entry(node, definitions)["enum"] = list(texts)
    for path in without:
        above, name = _above(schema, definitions, path)
        above["properties"].pop(name, None)
        above["required"] = [n for n in above.get("required", []) if n != name]
    return _pruned(schema)


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

    def rename(node: Any) -> Any:
        if isinstance(node, list):
            return [rename(part) for part in node]
        if not isinstance(node, dict):
            return node
        return {
            key: refs.get(part, part) if key == "$ref" else rename(part)
            for key, part in node.items()
        }

    named = {titles[name]: body for name, body in definitions.items()}
    renamed: Schema = rename(schema | {"$defs": {name: named[name] for name in sorted(named)}})
    return renamed


def _above(schema: Schema, definitions: Schema, path: str) -> tuple[Schema, str]:
    """The object of a schema that has the field at the end of a dotted path, and its name."""
    *above, name = path.split(".")
    for step in above:
        schema = _entry(schema["properties"][step], definitions)
    return schema, name


def _entry(node: Schema, definitions: Schema) -> Schema:
    """What a field of a schema holds: the items of a list, the type that may be null, the ref."""
    while "type" not in node or node["type"] == "array":
        if "$ref" in node:
            node = definitions[node["$ref"].removeprefix("#/$defs/")]
        elif "anyOf" in node:
            node = next(n for n in node["anyOf"] if n.get("type") != "null")
        else:
            node = node["items"]
    return node


def object_schema(title: str, parts: Mapping[str, Schema]) -> Schema:
    """An object whose parts have schemas of their own; equal parts are written once."""
    definitions: Schema = {}
    properties: Schema = {}
    bodies = {name: {k: v for k, v in part.items() if k != "$defs"} for name, part in parts.items()}
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


def _pruned(schema: Schema) -> Schema:
    """The schema without definitions that nothing refers to."""
    definitions = schema.pop("$defs", {})
    used: set[str] = set()
    waiting = _refs(schema)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting |= _refs(definitions[name])
    kept = {name: body for name, body in definitions.items() if name in used}
    return schema | ({"$defs": kept} if kept else {})


def _refs(node: object) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_refs, node))
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"].removeprefix("#/$defs/")} if isinstance(node.get("$ref"), str) else set()
    return own.union(*map(_refs, node.values()))


def _read_json(
    reply: str,
    shape: type | tuple[type, ...],
    read: Callable[[object], Parsed[T] | Unreadable | Missing],
    problem: str,
) -> Parsed[T] | Unreadable | Missing:
    """The first reading of the reply as JSON that `read` takes, with its parse step."""
    unread = Unreadable(f"{problem} {ALL_FIELDS}")
    for parse_step, candidate in json_candidates(reply, "{" if shape is dict else "{["):
        if isinstance(candidate, shape):
            found = read(candidate)
            if isinstance(found, Parsed):
                return found._replace(parse_step=parse_step)
            if isinstance(found, Missing):
                return found
            unread = found
    return unread
