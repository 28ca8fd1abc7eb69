"""The base classes of all answers, which handle missing fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self, cast, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from folkmoot.conversation.answer_types import (
    CANNOT_SAY,
    DECLINED,
    WAYS_OUT,
    ValidationContext,
    parse_way_out,
    with_ways_out,
)
from folkmoot.conversation.json_schemas import json_schema
from folkmoot.conversation.lenient_fields import (
    read_list,
    read_text,
    require_entry,
    require_text,
    says_none,
)
from folkmoot.conversation.reply_forms import is_only_refusal
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.json_text import Schema
from folkmoot.studies.town_hall.answers.repairs import AskContext, Repairer

MISSING_VALUE, UNKNOWN_VALUE = "missing_value", "unknown_value"
# The reason why a value is missing that could not be read.
UNREAD = "unparsed"
# The reason of a field in which the model copied a sentence of the prompt's answer format.
TEMPLATE_SENTENCE = "template_sentence"

# Models write the fields of an object in the order of its schema. Reasons come before decisions
# here, so that a model reasons first. Keys are schema titles. Schemas that are not listed keep the
# order of their class.
ASKED_ORDER: Mapping[str, tuple[str, ...]] = {
    "Thinking": ("reactions", "key_concerns", "overall_stance", "strategic_notes"),
    "Reaction": (
        *("target_agent", "target_summary", "reason", "my_feeling", "agree_level"),
        "want_to_respond",
    ),
    "Reference": ("target_agent", "content", "interaction_type"),
    "Compelling": ("opinion_summary", "why_compelling", "agent_id"),
    "Disagreed": ("opinion_summary", "why_disagree", "agent_id"),
    "StanceEvolution": ("previous_stance", "change_reason", "current_stance", "change_type"),
    "PlannedItem": ("reasoning", "proposal", "originating_residents"),
}


def _parse_words(raw: object, info: ValidationInfo) -> str:
    if isinstance(raw, bool):
        Repairer.from_info(info).note(str(info.field_name), "wrong_shape", raw)
    return read_text(raw)


def _parse_texts(raw: object, info: ValidationInfo) -> object:
    entries = [raw] if isinstance(raw, str) else raw
    if not isinstance(entries, Sequence):
        return raw
    texts: list[object] = []
    for entry in entries:
        # A text with bullets is a list. A word for "none" is dropped with a note later.
        lines = (isinstance(entry, str) and read_list(entry)) or [entry]
        if isinstance(raw, str) or len(lines) > 1:
            Repairer.from_info(info).note(str(info.field_name), "wrong_shape", entry, entry)
        texts += lines
    return [text for text in (_parse_words(entry, info) for entry in texts) if text]


def _keep_stated_texts(texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    # Words for "none" and a refusal to answer are no entries.
    repairer, name = Repairer.from_info(info), str(info.field_name)
    kept = []
    for text in texts:
        if says_none(text):
            repairer.note(name, "wrong_shape", text)
        elif parse_way_out(text, WAYS_OUT) is not None or is_only_refusal(text):
            repairer.note(name, UNKNOWN_VALUE, text)
        else:
            kept.append(text)
    return tuple(kept)


def _states_something(entry: object) -> bool:
    # Some models write an entry that says "none" in place of an empty list.
    values = entry.values() if isinstance(entry, Mapping) else (entry,)
    return any(
        not says_none(value) if isinstance(value, str) else read_list(value) for value in values
    )


Words = Annotated[str, BeforeValidator(_parse_words)]
Texts = Annotated[
    tuple[str, ...], BeforeValidator(_parse_texts), AfterValidator(_keep_stated_texts)
]
# A text that the whole hall hears or votes on.
StatedText = Annotated[str, AfterValidator(require_text)]
# The same in a list, where words such as "nothing" mean that there are no more entries.
StatedEntry = Annotated[str, AfterValidator(require_entry)]


def _is_plain_text(model_field: FieldInfo) -> bool:
    is_repaired = any(isinstance(marker, BeforeValidator) for marker in model_field.metadata)
    return model_field.annotation is str and not is_repaired


class Record(BaseModel):
    """Base class of all answers. Instances are frozen. Unknown fields are ignored.

    `missing` maps the name of each missing field to the reason why it is missing: `declined`,
    `cannot_say`, `template_sentence`, `missing_value`, `unknown_value` and others.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)
    # Closed field (a stance, a rating, an agreement) → a valid value that holds its place while the
    # other fields are validated.
    CLOSED: ClassVar[Mapping[str, object]] = {}
    # Fields of `CLOSED` in which null means "cannot say".
    MAY_BE_NULL: ClassVar[tuple[str, ...]] = ()
    # Fields without which the rest of the last reply counts, if it states anything else.
    MAY_LACK: ClassVar[tuple[str, ...]] = ()

    missing: SkipJsonSchema[Mapping[str, str]] = Field(default_factory=dict, alias="_missing")

    @model_validator(mode="wrap")
    @classmethod
    def _with_missing(
        cls, raw: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        # A placeholder fills each missing field during validation, so that it spoils no other
        # field.
        if not isinstance(raw, Mapping):
            return handler(raw)
        # These fields record how an answer was read. A model must not set them, so they are
        # removed.
        given = {
            str(key): value
            for key, value in raw.items()
            if str(key).removeprefix("_") not in RESERVED_FIELDS
        }
        validated_fields = (
            name
            for name, model_field in cls.model_fields.items()
            if model_field.is_required() and not _is_plain_text(model_field)
        )
        reading = ValidationContext.from_info(info)
        missing = cls._find_missing(given, reading.echoed)
        missing |= cls._find_lacking(given, missing, Repairer.from_info(info))
        unread = {
            unread_field.rpartition(".")[2]
            for unread_field in reading.unread_fields
            if not _INSIDE_LIST.search(unread_field)
        }
        missing |= {
            name: UNKNOWN_VALUE for name in unread & cls.model_fields.keys() if not given.get(name)
        }
        complete = {**dict.fromkeys(validated_fields), **given} | {
            name: cls._placeholder_value(name) for name in missing
        }
        record = handler(complete)
        missing = record._find_unstated_lists(given, Repairer.from_info(info)) | missing
        if not missing:
            return record
        empty = {name: cls._empty_value(name) for name in missing}
        return record.model_copy(update=empty | {"missing": {**record.missing, **missing}})

    @classmethod
    def _find_missing(cls, raw: Mapping[str, object], echoed: frozenset[str]) -> dict[str, str]:
        # Field → reason, for each field without an answer.
        repeated = {path.rpartition(".")[2] for path in echoed if not _INSIDE_LIST.search(path)}
        missing = {
            name: TEMPLATE_SENTENCE
            for name in cls.model_fields
            if name in repeated and name not in raw
        }
        for name in cls.CLOSED:
            if (way_out := parse_way_out(raw.get(name), WAYS_OUT)) is not None:
                missing[name] = way_out.reason
            elif name in cls.MAY_BE_NULL and name in raw and raw[name] is None:
                missing[name] = CANNOT_SAY
        return missing

    @classmethod
    def _find_lacking(
        cls, given: Mapping[str, object], missing: Mapping[str, str], repairer: Repairer
    ) -> dict[str, str]:
        # Field → reason, for each field of `MAY_LACK` that the last reply left out or gave as null.
        # The validators read all other values, except a text in place of an object.
        if not repairer.reading.salvage:
            return {}
        is_stated = any(given.get(name) for name in cls.model_fields if name not in cls.MAY_LACK)
        lacking = {}
        for name in cls.MAY_LACK if is_stated else ():
            stated = given.get(name)
            if isinstance(stated, Mapping):
                has_value = any(stated.values())
            else:
                is_object = isinstance(cls._placeholder_value(name), Record)
                has_value = bool(stated) and not is_object
            if not has_value and name not in missing:
                lacking[name] = UNKNOWN_VALUE if stated else MISSING_VALUE
                repairer.note(name, lacking[name], stated)
        return lacking

    def _lists_to_state(self, _asked: AskContext) -> tuple[str, ...]:
        # The lists whose emptiness is a finding, so that only the speaker may state it.
        return ()

    def _find_unstated_lists(
        self, given: Mapping[str, object], repairer: Repairer
    ) -> dict[str, str]:
        # List → reason, for each empty list that the speaker did not state to be empty. It was
        # left out, or none of its entries could be read.
        missing: dict[str, str] = {}
        for name in self._lists_to_state(repairer.asked) if repairer.reading.context else ():
            stated = given.get(name)
            if getattr(self, name) or name in repairer.reading.echoed:
                continue
            if stated is None:
                repairer.note(name, MISSING_VALUE, stated)
                missing[name] = MISSING_VALUE
            elif any(map(_states_something, read_list(stated))) and repairer.has_dropped_unread(
                name
            ):
                missing[name] = UNKNOWN_VALUE
        return missing

    @classmethod
    def _placeholder_value(cls, name: str) -> object:
        # Empty text would be invalid in many fields.
        empty = cls._empty_value(name)
        return cls.CLOSED.get(name, "…" if empty == "" else empty)

    @classmethod
    def _empty_value(cls, name: str) -> object:
        annotation = cls.model_fields[name].annotation
        return "" if annotation is str else () if get_origin(annotation) is tuple else None

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON data, with the field names of the source study.

        A field without an answer is null.
        """
        # `_missing` holds the reasons. The flags `_parse_error`, `_declined` and `_dropped` are
        # present only if they are true.
        data = self.model_dump(mode="json", by_alias=True)
        _null_missing(data)
        return data

    def to_prompt(self) -> dict[str, object]:
        """Return the fields as later prompts show them to the speaker who gave the answer."""
        return cast("dict[str, object]", _without_flags(self.to_json()))


# The aliases of the flags that say why there is no answer.
FLAGS = ("_parse_error", "_declined", "_dropped")
# Fields that the code fills in and a reply must not set.
RESERVED_FIELDS = ("parse_error", DECLINED, DROPPED, "missing")
# The path of a field in an entry of a list, such as `reactions.0.reason`. Such a field belongs to
# the entry and is missing there, not in the outer record.
_INSIDE_LIST = re.compile(r"\.\d+\.")


def _null_missing(data: dict[str, Any]) -> None:
    # The flags move to the end and are kept only if true.
    missing = data.pop("_missing", {})
    for name in missing:
        data[name] = None
    for entry in data.values():
        for nested in entry if isinstance(entry, list) else [entry]:
            if isinstance(nested, dict):
                _null_missing(nested)
    flags = {name: data.pop(name, False) for name in FLAGS}
    data.update({name: value for name, value in flags.items() if value})
    if missing:
        data["_missing"] = dict(missing)


def _without_flags(data: Any) -> Any:
    if isinstance(data, dict):
        return {
            key: _without_flags(value) for key, value in data.items() if not key.startswith("_")
        }
    return [_without_flags(value) for value in data] if isinstance(data, list) else data


class Minimal(Record):
    """Base class of answer types that have an empty answer.

    The empty answer is used if the speaker declined, the reply could not be read, or a fork left
    the reply out.
    """

    parse_error: SkipJsonSchema[bool] = Field(False, alias="_parse_error")
    declined: SkipJsonSchema[bool] = Field(False, alias="_declined")
    dropped: SkipJsonSchema[bool] = Field(False, alias="_dropped")

    @property
    def unanswered(self) -> bool:
        """True if there is no answer."""
        return self.missing_reason is not None

    @property
    def missing_reason(self) -> str | None:
        """The reason why there is no answer, or None if there is one."""
        if self.declined:
            return DECLINED
        if self.dropped:
            return DROPPED
        return UNREAD if self.parse_error else None

    @classmethod
    def replacements(cls) -> dict[str, Self]:
        """Return the empty answer for each reason why there is no answer."""
        return {
            UNREAD: cls.minimal_answer(),
            DECLINED: cls.refused_answer(),
            DROPPED: cls.dropped_answer(),
        }

    @classmethod
    def minimal_answer(cls) -> Self:
        """Return the empty answer that replaces an unreadable answer."""
        return cls._empty_answer(parse_error=True)

    @classmethod
    def refused_answer(cls) -> Self:
        """Return the empty answer that replaces a declined answer."""
        return cls._empty_answer(declined=True)

    @classmethod
    def dropped_answer(cls) -> Self:
        """Return the empty answer that replaces an answer that a fork left out."""
        return cls._empty_answer(dropped=True)

    @classmethod
    def _empty_answer(cls, **flag: bool) -> Self:
        empty: dict[str, Any] = {name: cls._empty_value(name) for name in cls.model_fields}
        flags = {"parse_error": False, "declined": False, "dropped": False, "missing": {}}
        # Skip validation, because an empty answer would not pass the strict types.
        return cast(Self, cls.model_construct(**(empty | flags | flag)))


@lru_cache(maxsize=4096)
def asked_schema(
    model: type[BaseModel],
    options: tuple[tuple[str, tuple[str, ...]], ...] = (),
    excluded_fields: tuple[str, ...] = (),
) -> Schema:
    """Return the JSON schema of an answer type. Callers must not change the returned schema.

    - `options`: pairs. Each pair holds the path of a field and the options of that field in order.
    - `excluded_fields`: the names of fields to leave out.
    """
    # The result is cached and shared. Ways out, such as "declined", are added to the options.
    # The arguments are tuples so that they can be keys of the cache. All residents of a set share
    # them.
    allowed = {path: with_ways_out(texts) for path, texts in options}
    return cast("Schema", _in_asked_order(json_schema(model, allowed, excluded_fields)))


def _in_asked_order(node: Any) -> Any:
    if isinstance(node, list):
        return [_in_asked_order(item) for item in node]
    if not isinstance(node, dict):
        return node
    ordered = {name: _in_asked_order(value) for name, value in node.items()}
    order = ASKED_ORDER.get(str(node.get("title")), ())
    if isinstance(fields := ordered.get("properties"), dict) and order:
        ordered["properties"] = {name: fields[name] for name in order if name in fields} | fields
    return ordered
