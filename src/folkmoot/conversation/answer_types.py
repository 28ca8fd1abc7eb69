"""Answer types: read a reply as a value, or return `Missing` with a reason."""

# Each answer type tries parse steps from strict to lenient and reports the step that succeeded. If
# all steps fail, the answer type returns a `ParseFailure` with the problem. The engine puts the
# problem into a re-ask.

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from folkmoot.conversation.answer_format import (
    RenamedField,
    describe_format,
    drop_descriptions,
    match_field_names,
    names_other_value,
)
from folkmoot.conversation.json_replies import (
    UnreadableValue,
    json_candidates,
    read_whole_json,
    refuses_beside_json,
    text_after_json,
)
from folkmoot.conversation.json_schemas import json_schema, object_schema
from folkmoot.conversation.lenient_fields import (
    UNREADABLE,
    find_false_numbers,
    find_unreadable_values,
    fold_option,
    is_declined,
    leave_out_unreadable,
    read_text,
    repair_fields,
)
from folkmoot.conversation.reply_forms import join_lines_of_others, own_words, visible_text
from folkmoot.errors import ProtocolError
from folkmoot.json_text import Schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing answer, and the reason why it is missing."""

    # A code such as `refused`, `unparsed`, `empty`, `too_long` or `filtered`. If the speaker chose
    # to give no answer, the code is `none_of_these`, `declined` or `cannot_say`.
    reason: str
    # The reason in words.
    detail: str = ""

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        """Refuse to be text. `repr()` and `f"{answer!r}"` show a missing answer.

        Raises: ProtocolError.
        """
        # An f-string, a template and `join_texts` call this method. With the text of a dataclass a
        # model would read "Missing(reason='refused', …)" as the words of a speaker.
        raise ProtocolError(
            f"the answer is missing ({self.reason}) and has no text; "
            "before you put an answer into a text, test isinstance(answer, Missing)"
        )


class ParsedAnswer(NamedTuple, Generic[T_co]):
    """An answer, the parse step that read it, and the repairs that the step made."""

    value: T_co
    parse_step: str
    repairs: tuple[Repair, ...] = ()


# Ways out of a closed answer. A speaker who takes one has answered, but chose no option.
NONE_OF_THESE, DECLINED, CANNOT_SAY = "none_of_these", "declined", "cannot_say"
WAYS_OUT = (NONE_OF_THESE, DECLINED, CANNOT_SAY)
# Only these two are offered beside a list of options. `cannot_say` belongs to numbers.
# The way out of each kind of closed answer, beside `declined`.
WAY_OUT_BY_KIND = {"choice": NONE_OF_THESE, "number": CANNOT_SAY}
WAYS_OUT_OF_OPTIONS = (NONE_OF_THESE, DECLINED)


def with_ways_out(options: Sequence[str]) -> tuple[str, ...]:
    """Return the options, followed by `none_of_these` and `declined`."""
    # An option of this name is not repeated.
    return (*options, *(way for way in WAYS_OUT_OF_OPTIONS if way not in options))


def parse_way_out(reply: object, ways_out: Sequence[str] = WAYS_OUT_OF_OPTIONS) -> Missing | None:
    """Return `Missing` if the reply consists only of a word such as `declined`.

    Returns None for any other reply.
    """
    # Case and punctuation are ignored. Words may be separated by spaces or underscores.
    if not isinstance(reply, str) or len(reply) > LONGEST_WAY_OUT:
        return None
    name = "_".join(re.findall(r"[^\W_]+", reply.casefold()))
    return Missing(name) if name in ways_out else None


# In characters. A longer reply contains more than a way out, so it is parsed as an answer.
LONGEST_WAY_OUT = 40


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """The reason why a reply could not be parsed, worded as a message to the speaker."""

    problem: str
    # True if the reply gives nothing although it has words, such as `{"response": ""}`. The engine
    # asks again as after a reply without words.
    is_empty: bool = False


# The kinds of closed answers: the answer is one of the options or a number.
CHOICE, NUMBER = "choice", "number"


class FieldForPeople(NamedTuple):
    """The label and the options with which a human's page shows one field of a JSON answer."""

    # Shown in place of the field's name and description, which are written for models.
    label: str
    # The input that the page shows. If this and `options` are empty, the page derives both from the
    # schema. Set both if a human may choose from less than the schema allows. For `ranking`, the
    # human orders all options of the schema.
    kind: Literal["", "choice", "number", "ranking"] = ""
    # The options to choose from. For the kind `number`: the lowest and the highest value.
    options: tuple[str, ...] = ()
    # The ways out of this field that its schema does not state, such as `none_of_these`.
    ways_out: tuple[str, ...] = ()


class AnswerType(ABC, Generic[T_co]):
    """A parser of replies, with an optional JSON schema for the request.

    Subclasses must define `kind` and `parse_reply`. All other members have a default.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of answer: `text`, `choice`, `number`, `json` or a kind that a study defines."""

    @abstractmethod
    def parse_reply(self, reply: str) -> ParsedAnswer[T_co] | ParseFailure | Missing:
        """Return the answer in a reply, or the problem of the reply.

        Returns `Missing` if the speaker chose to give no answer.
        """
        # The engine then does not ask again.

    def for_human(self) -> Self:
        """Return the answer type that reads the reply of a human."""
        return self

    def problem_in(self, reply: str) -> str:
        """Return the reason why a human's reply cannot be parsed, or an empty string."""
        parsed = self.parse_reply(reply)
        return parsed.problem if isinstance(parsed, ParseFailure) else ""

    @property
    def schema(self) -> Schema | None:
        """The JSON schema of the reply, or None if the reply is not JSON."""
        return None

    def describe_format(self, options: Mapping[str, Sequence[str]] | None = None) -> str:
        """Return the keys of a JSON reply as a list for a prompt.

        `options`: the values to list for each field, instead of the values in the schema.
        """
        return describe_format(self.schema, options) if self.schema else ""

    @property
    def fields_for_people(self) -> Mapping[str, FieldForPeople]:
        """A map from field name to the label and options with which a human's page shows the field.

        Only for JSON replies. A path such as `votes.choice` names a field of a nested object.
        """
        return {}

    @property
    def configuration_error(self) -> str:
        """The reason why the answer type can accept no reply at all, or an empty string."""
        return ""

    @property
    def form_kind(self) -> str:
        """The kind of answer that question pages and the embedded respondent work with."""
        # The default is `kind`.
        return self.kind

    @property
    def listed_options(self) -> tuple[str, ...]:
        """The options of a choice, in the order in which the prompt lists them."""
        return ()

    @property
    def offered_values(self) -> tuple[str, ...]:
        """The options of a choice, or the bounds of a number."""
        return self.listed_options

    @property
    def is_closed(self) -> bool:
        """True if the answer is one of the options or a number."""
        return self.kind in (CHOICE, NUMBER)

    @property
    def is_short(self) -> bool:
        """True if a cut-off answer could pass as a complete one.

        For example, 15 could be cut to 1.
        """
        return self.is_closed

    @property
    def is_read(self) -> bool:
        """True if the answer is parsed from the reply, False if the whole reply is the answer."""
        return True

    @property
    def end_signal(self) -> str:
        """The reply that ends the conversation instead of answering, or an empty string."""
        return ""

    @property
    def total(self) -> float | None:
        """The required sum of the numbers in the answer, or None."""
        # For the embedded respondent.
        return None

    @property
    def fallback_value(self) -> T_co | None:
        """The value to use if no reply could be parsed.

        If the value is None, the answer is missing.
        """
        return None

    @property
    def clarifying_answer(self) -> ClarifyingAnswer[T_co] | None:
        """The answer type of the clarifying question after a reply that could not be parsed.

        None means that the original question is asked again.
        """
        return None

    @property
    def last_reask(self) -> ClarifyingAnswer[T_co] | None:
        """The answer type of the last re-ask.

        None means that the last re-ask repeats the question.
        """
        return None

    def salvage_reply(self, _reply: str) -> ParsedAnswer[T_co] | None:
        """Return the readable part of the last reply, or None."""
        # The engine calls this method after every reply has failed to parse.
        return None

    def with_listed_options(self, _options: Sequence[str]) -> AnswerType[T_co]:
        """Return the answer type with the options in the order of `_options`."""
        # An answer type without listed options stays as it is.
        return self

    def find_mentioned_values(self, _reply: str) -> frozenset[object] | None:
        """Return the values that a reply mentions anywhere.

        Returns None if the answer type cannot find mentioned values.
        """
        return None


class ClarifyingAnswer(AnswerType[T_co]):
    """The answer type of a follow-up question, together with the text of that question.

    The question is asked after a reply that could not be parsed.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def prompt(self) -> str:
        """The follow-up question."""


@dataclass(frozen=True, slots=True)
class Text(AnswerType[str]):
    """An answer in free text.

        Text(end_signal="SATISFIED")

    - `end_signal`: a reply with which the speaker can end the conversation. "" means no such reply.
    - `own_names`, `other_names`: the names of the speaker and of the others in a conversation. The
      answer is then only what the reply says in the speaker's own name.
    - `keeps_all_words`: whether all words are the speaker's own. Later lines under the names of
      others are then joined to the lines before them.
    """

    # A reply without own words fails to parse. A human does not go on in the names of others, and
    # may quote or address them. But others would read a line under a name as words of its bearer.

    kind: str = "text"
    # Holds the option that the speaker is asked to argue for, or nothing.
    offered_values: tuple[str, ...] = ()
    end_signal: str = ""
    own_names: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()
    keeps_all_words: bool = False

    @property
    def is_read(self) -> bool:
        return False

    def for_human(self) -> Text:
        return replace(self, keeps_all_words=True)

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure:
        text = visible_text(reply)
        if text and self.keeps_all_words:
            # Only white space changes, so the reply is the answer.
            joined = join_lines_of_others(text, self.own_names, self.other_names)
            return ParsedAnswer(joined, "exact")
        own_part = own_words(text, self.own_names, self.other_names)
        if not own_part:
            hint = "speaks in the names of others. Reply with your own words only"
            return ParseFailure(f"The reply {hint if text else 'was empty'}.")
        return ParsedAnswer(own_part, "exact" if own_part == text else "own_words")


class Repair(NamedTuple):
    """A value that was corrected or dropped while a reply was parsed."""

    # The dotted path of the value.
    field: str
    # A code such as `spelling` or `unreadable`.
    kind: str
    original: str
    # The corrected value, or empty if the value was dropped.
    replacement: str = ""

    @property
    def is_dropped(self) -> bool:
        return not self.replacement


@dataclass(slots=True)
class ValidationContext:
    """The context that the pydantic validators of an answer model receive.

    In a validator, call `ValidationContext.from_info(info)` to read the context.
    """

    # The `validation_context` of the answer type.
    context: Any = None
    # The repairs made until now.
    repairs: list[Repair] = field(default_factory=list)
    # The dotted paths of fields that repeated a sentence of the prompt.
    echoed: frozenset[str] = frozenset()
    # True if the last reply is read, nothing else can be repaired, and a validator may replace what
    # it cannot read.
    salvage: bool = False

    @property
    def unread_fields(self) -> frozenset[str]:
        """The paths of the fields and list entries that were dropped as unreadable."""
        # The paths are dotted.
        return frozenset(repair.field for repair in self.repairs if repair.kind == UNREADABLE)

    @classmethod
    def from_info(cls, info: ValidationInfo) -> ValidationContext:
        """Return the context that pydantic passed to a validator.

        The context is empty if no reply is being parsed.
        """
        # No reply is being parsed when Python code creates the model.
        return info.context if isinstance(info.context, ValidationContext) else cls()

    def add_repair(self, field: str, kind: str, original: object, replacement: object = "") -> None:
        """Record that a value of the reply was replaced.

        An empty `replacement` means that the value was dropped.
        """
        self.repairs.append(Repair(field, kind, str(original), str(replacement)))

    def add_renamed_fields(self, fields: Sequence[RenamedField]) -> None:
        """Record the fields that a reply gave under a name in another spelling."""
        for path, written in fields:
            self.add_repair(path, "name", written, path.rpartition(".")[2])


# Repairs that drop an entry about another speaker, because its text does not say which one.
UNKNOWN_NAME_REPAIRS = frozenset({"unknown_id", "several_ids"})
ALL_FIELDS_INSTRUCTION = "Reply with only the JSON object, all fields present."
NO_OBJECT = "The reply was not a JSON object."
# Maximum number of validations of one reply. Each repair can uncover errors that pydantic did not
# report before, so one pass is not enough. The bound guarantees an end.
MAX_REPAIR_ROUNDS = 8


def _describe_lost_words(value: object, repairs: Sequence[Repair]) -> str:
    # What a human writes about another speaker would be dropped with the name. Returns the problem,
    # or an empty string. An entry in which all fields are blank has no words to lose.
    for repair in repairs:
        if repair.kind not in UNKNOWN_NAME_REPAIRS:
            continue
        if repair.original:
            return f"{repair.field}: {repair.original!r} does not name exactly one of the others"
        if _has_words_without_name(value, repair.field.rpartition(".")[2]):
            return f"{repair.field}: is blank, so the words beside it would be lost"
    return ""


def _has_words_without_name(value: object, name: str) -> bool:
    if isinstance(value, list):
        return any(_has_words_without_name(entry, name) for entry in value)
    if not isinstance(value, Mapping):
        return False
    if name in value and not read_text(value[name]):
        return any(map(read_text, value.values()))
    return any(_has_words_without_name(entry, name) for entry in value.values())


class JsonObject(AnswerType[T_co]):
    """The base class of answer types for replies that are one JSON object."""

    @abstractmethod
    def read(
        self, value: Any, *, salvage: bool = False
    ) -> ParsedAnswer[T_co] | ParseFailure | Missing:
        """Return the answer in a JSON value, which may be a part of a reply.

        - `salvage`: keep the readable part of a value that cannot be repaired.
        """

    def parse_reply(
        self, reply: str, *, numbers_as_text: bool = False
    ) -> ParsedAnswer[T_co] | ParseFailure | Missing:
        # With `numbers_as_text`, decimal numbers are read as they are written, such as "2.50".
        return parse_json(reply, dict, self.read, NO_OBJECT, self.schema, numbers_as_text)

    def salvage_reply(self, reply: str) -> ParsedAnswer[T_co] | None:
        read = partial(self.read, salvage=True)
        parsed = parse_json(reply, dict, read, NO_OBJECT, self.schema)
        return parsed if isinstance(parsed, ParsedAnswer) else None


@dataclass(frozen=True, slots=True)
class Json(JsonObject[M]):
    """A JSON object that a pydantic model validates.

        Json(Ballot, options={"votes.choice": ["yes", "no"]})

    - `fallback_value`: the value if no reply can be read. By default, the answer is then `Missing`.
    - `validation_context`: data for the model's validators, such as the names of the speakers.
    - `options`: a map from field path to the texts that the schema allows in this field.
    - `excluded_fields`: paths of fields that are left out of the schema.
    - `schema`: a schema that replaces the schema of the model.
    - `may_decline`: whether the reply may set a field `declined`. The answer is then `Missing`.
    - `total`: the required sum of the numbers, which a validator must check.
    - `fields_for_people`: the labels with which a human's page shows the fields.

    A path such as `votes.choice` leads into nested models and lists.
    """

    # The parse steps are: the reply itself, a fenced code block, and the output of a JSON repair
    # library. Each step reads fields leniently (`lenient_fields`). If all steps fail, the engine
    # re-asks. If the last re-ask fails, the readable part of its reply is used, then
    # `fallback_value`. A fallback value is the minimal structure that the protocol documents, and
    # carries `_parse_error`. A validator may accept other spellings than `options`. The embedded
    # respondent uses `total`. In `fields_for_people`, paths omit the positions in lists, and a name
    # alone means all fields of that name. A field that repeats its description counts as empty
    # (`answer_format`).

    model: type[M]
    fallback_value: M | None = None
    validation_context: object = None
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    excluded_fields: tuple[str, ...] = ()
    schema: Schema | None = None
    kind: str = "json"
    may_decline: bool = False
    total: float | None = None
    fields_for_people: Mapping[str, FieldForPeople] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schema = self.schema
        if schema is None:
            schema = json_schema(self.model, self.options, self.excluded_fields)
        if self.may_decline:
            schema = declinable_schema(schema)
        # The dataclass is frozen. Build the schema once here, because each request reads it.
        object.__setattr__(self, "schema", schema)

    def problem_in(self, reply: str) -> str:
        read = partial(self.read, repair=False)
        parsed = parse_json(reply, dict, read, NO_OBJECT, self.schema)
        if isinstance(parsed, ParsedAnswer):
            return _describe_lost_words(read_whole_json(reply, repair=False), parsed.repairs)
        return parsed.problem if isinstance(parsed, ParseFailure) else ""

    def read(
        self, value: Any, *, salvage: bool = False, repair: bool = True
    ) -> ParsedAnswer[M] | ParseFailure | Missing:
        """Return the answer in a JSON value, see `JsonObject.read`.

        - `repair`: repair an invalid value instead of rejecting it.
        """
        if isinstance(value, UnreadableValue):
            return ParseFailure(f"{value.problem}.")
        value, renamed = match_field_names(value, self.schema)
        value, dropped = drop_descriptions(value, self.schema)
        if self.may_decline and isinstance(value, dict):
            # Check this first: a speaker who declines may leave the other fields empty.
            try:
                if is_declined(value, except_names=self.model.model_fields.keys() - {DECLINED}):
                    return Missing(DECLINED)
            except ValueError as error:
                return ParseFailure(f"The JSON did not fit: {error}. {ALL_FIELDS_INSTRUCTION}")
            value = {name: entry for name, entry in value.items() if fold_option(name) != DECLINED}
        notes = ValidationContext(
            self.validation_context,
            echoed=frozenset(description.path for description in dropped),
        )
        notes.add_renamed_fields(renamed)
        for path, sentence in dropped:
            notes.add_repair(path, "template_sentence", sentence)
        value = leave_out_unreadable(self.model, value, notes.add_repair, salvage=salvage)
        for _ in range(MAX_REPAIR_ROUNDS):
            # A failing pass may add repairs too. Each pass gets its own copy of the list, so that a
            # repair is recorded once.
            context = replace(notes, repairs=list(notes.repairs))
            validated = self._validate(value, context)
            if not isinstance(validated, list):
                return ParsedAnswer(validated, "exact", tuple(context.repairs))
            errors = validated
            if not repair:
                break
            repaired = repair_fields(
                self.model, value, errors, notes.add_repair, ways_out=WAYS_OUT, salvage=salvage
            )
            if repaired is not None:
                value = repaired
            elif salvage and not notes.salvage:
                notes.salvage = True
            else:
                break
        first_errors = "; ".join(
            f"{'.'.join(map(str, error['loc'])) or 'object'}: {error['msg']}"
            # State only the first three errors. A further re-ask can state the others.
            for error in errors[:3]
        )
        echo_hint = f" {dropped[0].path} repeats the question: answer it." if dropped else ""
        return ParseFailure(
            f"The JSON did not fit: {first_errors}.{echo_hint} {ALL_FIELDS_INSTRUCTION}"
        )

    def _validate(self, value: object, context: ValidationContext) -> M | list[ErrorDetails]:
        if errors := find_unreadable_values(self.model, value):
            return errors
        try:
            model = self.model.model_validate(value, context=context)
        except ValidationError as error:
            return error.errors()
        return list(find_false_numbers(model, value)) or model


@dataclass(frozen=True, slots=True)
class JsonList(AnswerType[tuple[M, ...]]):
    """A list of JSON objects that a pydantic model validates.

        JsonList(Idea, min_items=1, max_items=3)

    - `name`: the key of the list in the reply.
    - `unique_key`: returns the key of an item. Items that repeat an earlier key are dropped.
    - `min_items`: a reply with fewer valid items fails to parse.
    - `max_items`: the maximum number of items. Items after this number are dropped.

    The answer is a tuple. All other arguments work as in `Json` and apply to one item.
    """

    # The prompt asks for `{"items": […]}` because many endpoints accept only objects. A bare list
    # is parsed too. Each item that is invalid, a repetition or too many is dropped, which is a
    # `Repair`. The reply also fails to parse if it has several items and none is valid.

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
        problem = "The reply was not a list in JSON."
        return parse_json(reply, (list, dict), self.read, problem, self.schema)

    def read(self, value: object) -> ParsedAnswer[tuple[M, ...]] | ParseFailure:
        """Validate a JSON list, or a JSON object that holds the list."""
        notes = ValidationContext()
        value, renamed = match_field_names(value, self.schema)
        notes.add_renamed_fields(renamed)
        item_type = Json(
            self.model,
            validation_context=self.validation_context,
            options=self.options,
            excluded_fields=self.excluded_fields,
        )
        kept_items: list[M] = []
        # A list and not a set, because the values need not be hashable.
        seen_keys: list[object] = []
        problem = ""
        items = self._parse_items(value, notes)
        for number, item in enumerate(items):
            parsed = item_type.read(item)
            item_path = f"{self.name}.{number}"
            if not isinstance(parsed, ParsedAnswer):
                reason = parsed.problem if isinstance(parsed, ParseFailure) else parsed.reason
                problem = (
                    problem
                    or f" ({item_path}: {reason.removesuffix(ALL_FIELDS_INSTRUCTION).strip()})"
                )
                notes.add_repair(item_path, UNREADABLE, item)
                continue
            item_key = parsed.value if self.unique_key is None else self.unique_key(parsed.value)
            if self.unique_key is not None and item_key in seen_keys:
                notes.add_repair(item_path, "repeated", item_key)
            elif len(kept_items) == self.max_items:
                notes.add_repair(item_path, "too_many", item_key)
            else:
                kept_items.append(parsed.value)
                seen_keys.append(item_key)
                notes.repairs.extend(parsed.repairs)
        if len(kept_items) < self.min_items or (items and not kept_items):
            return ParseFailure(
                f"{len(kept_items)} of at least {max(self.min_items, 1)} items could be "
                f"read{problem}. "
                f'Reply with only a JSON object whose "{self.name}" is a list of objects, '
                "all their fields present."
            )
        return ParsedAnswer(tuple(kept_items), "exact", tuple(notes.repairs))

    def _parse_items(self, value: Any, notes: ValidationContext) -> list[Any]:
        if isinstance(value, list):
            return value
        # Models rename the key of the list, so use the only value if it is a list with entries. An
        # empty list may be one of something else, such as {"errors": []}.
        lists = [member for member in value.values() if isinstance(member, list) and member]
        items = value.get(self.name, lists[0] if len(value) == len(lists) == 1 else value)
        if isinstance(items, list):
            return items
        notes.add_repair(self.name, "wrong_shape", "object", "list")
        return [items]


def pin_schema(title: str, description: str = "", config: ConfigDict | None = None) -> ConfigDict:
    """Return a `model_config` with a fixed title and description for the JSON schema.

    `config`: other pydantic settings to include.
    """
    # The schema is part of the fingerprint of a request. With a fixed title and description,
    # renaming the class or editing its docstring does not affect paused runs.
    extra: dict[str, JsonValue] = {"description": description} if description else {}
    return {**(config or {}), "title": title, "json_schema_extra": extra}


def declinable_schema(schema: Schema) -> Schema:
    """Return an object schema with the boolean field `declined` before all other fields."""
    declined = {
        "type": "boolean",
        "description": "true to decline to answer; the other fields do not count then",
    }
    # Models generate fields in order, so a speaker can decline before giving any value.
    return schema | {"properties": {DECLINED: declined, **schema.get("properties", {})}}


def parse_json(
    reply: str,
    opening_characters: type | tuple[type, ...],
    read: Callable[[object], ParsedAnswer[T] | ParseFailure | Missing],
    problem: str,
    schema: Schema | None,
    numbers_as_text: bool = False,
) -> ParsedAnswer[T] | ParseFailure | Missing:
    """Return the first JSON value in a reply that `read` accepts, with its parse step.

    - `problem`: the words of the failure.
    - `numbers_as_text`: read decimal numbers as they are written.
    """
    failure = ParseFailure(f"{problem} {ALL_FIELDS_INSTRUCTION}")
    for parse_step, candidate in json_candidates(
        reply, "{" if opening_characters is dict else "{[", numbers_as_text=numbers_as_text
    ):
        if isinstance(candidate, opening_characters):
            parsed = read(candidate)
            if isinstance(parsed, ParsedAnswer):
                # Beside an exact value there are no words.
                if parse_step != "exact":
                    if refuses_beside_json(reply):
                        return failure
                    named, _ = match_field_names(candidate, schema)
                    if names_other_value(named, schema, text_after_json(reply)):
                        problem = "The reply names another answer after the JSON object."
                        return ParseFailure(f"{problem} {ALL_FIELDS_INSTRUCTION}")
                return parsed._replace(parse_step=parse_step)
            # A speaker who declines has answered. A more lenient reading must not overrule that.
            if isinstance(parsed, Missing):
                return parsed
            failure = parsed
    return failure
