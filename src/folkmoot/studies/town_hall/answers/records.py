"""The base of all answers: which fields have no answer and why, and the order of the fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self, cast, get_origin

from pydantic import (
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
    DECLINED,
    WAYS_OUT,
    ValidationContext,
    json_schema,
    parse_way_out,
    with_ways_out,
)
from folkmoot.conversation.lenient_fields import read_text
from folkmoot.json_text import Schema
from folkmoot.studies.town_hall.answers.repairs import Repairer

MISSING_VALUE, UNKNOWN_VALUE = "missing_value", "unknown_value"
TEMPLATE_SENTENCE = "template_sentence"  # a field that gives the prompt's own sentence back

# Models write the fields of an object in this order, so that they reason before they decide. By
# the title of the object; those not listed are asked for in the order of their type.
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


def _parse_texts(raw: object, info: ValidationInfo) -> object:
    if isinstance(raw, str):
        Repairer.from_info(info).note(str(info.field_name), "wrong_shape", raw, raw)
        raw = [raw]
    return [text for text in map(read_text, raw) if text] if isinstance(raw, Sequence) else raw


Words = Annotated[str, BeforeValidator(read_text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_parse_texts)]


def _is_plain_text(of: FieldInfo) -> bool:
    mended = any(isinstance(m, BeforeValidator) for m in of.metadata)
    return of.annotation is str and not mended


class Record(BaseModel):
    """Base of all answers: unknown fields are ignored, values never change.

    `missing`: field → why it has no answer (a way out, `template_sentence`, `missing_value`).
    """

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)
    # Fields that state a stance, a rating or an agreement → a value that they may hold.
    CLOSED: ClassVar[Mapping[str, object]] = {}

    missing: SkipJsonSchema[Mapping[str, str]] = Field(default_factory=dict, alias="_missing")

    @model_validator(mode="wrap")
    @classmethod
    def _with_missing(
        cls, raw: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Read all fields but those that are missing, which keeps the rest of an answer.

        A field that is not there is null, if it has a validator that repairs or refuses that.
        """
        if not isinstance(raw, Mapping):
            return handler(raw)
        # Whether an answer could be read is ours to say, not the model's.
        said = {
            str(key): value for key, value in raw.items() if str(key).removeprefix("_") not in OURS
        }
        mended = (
            name
            for name, model_field in cls.model_fields.items()
            if model_field.is_required() and not _is_plain_text(model_field)
        )
        reading = ValidationContext.from_info(info)
        missing = cls._find_missing(said, reading.echoed)
        unread = {
            unread_field.rpartition(".")[2]
            for unread_field in reading.unread_fields
            if not _INSIDE_LIST.search(unread_field)
        }
        missing |= {
            name: UNKNOWN_VALUE for name in unread & cls.model_fields.keys() if not said.get(name)
        }
        known = {**dict.fromkeys(mended), **said} | {
            name: cls._placeholder_value(name) for name in missing
        }
        found = handler(known)
        if not missing:
            return found
        empty = {name: cls._empty_value(name) for name in missing}
        return found.model_copy(update=empty | {"missing": {**found.missing, **missing}})

    @classmethod
    def _find_missing(cls, said: Mapping[str, object], echoed: frozenset[str]) -> dict[str, str]:
        """Return the fields without an answer, each with the reason."""
        repeated = {path.rpartition(".")[2] for path in echoed if not _INSIDE_LIST.search(path)}
        missing = {
            model_field: TEMPLATE_SENTENCE
            for model_field in cls.model_fields
            if model_field in repeated and model_field not in said
        }
        for name in cls.CLOSED:
            if (way_out := parse_way_out(said.get(name), WAYS_OUT)) is not None:
                missing[name] = way_out.reason
        return missing

    @classmethod
    def _placeholder_value(cls, name: str) -> object:
        """Return a value that a missing field may hold while the others are read."""
        empty = cls._empty_value(name)
        return cls.CLOSED.get(name, "…" if empty == "" else empty)

    @classmethod
    def _empty_value(cls, name: str) -> object:
        of = cls.model_fields[name].annotation
        return "" if of is str else () if get_origin(of) is tuple else None

    def to_json(self) -> dict[str, object]:
        """The fields under the source's names. A field without an answer is null, with the reason
        under `_missing`; `_parse_error` and `_declined` only where they are true."""
        data = self.model_dump(mode="json", by_alias=True)
        _null_missing(data)
        return data

    def to_prompt(self) -> dict[str, object]:
        """The fields as their owner is shown them again."""
        return cast("dict[str, object]", _without_marks(self.to_json()))


OURS = ("parse_error", DECLINED, "missing")
_INSIDE_LIST = re.compile(r"\.\d+\.")


def _null_missing(data: dict[str, Any]) -> None:
    """Set missing fields to null, in nested records as well, and leave out marks that say no."""
    missing = data.pop("_missing", {})
    for name in missing:
        data[name] = None
    for entry in data.values():
        for nested in entry if isinstance(entry, list) else [entry]:
            if isinstance(nested, dict):
                _null_missing(nested)
    marks = {name: data.pop(name, False) for name in ("_parse_error", "_declined")}
    data.update({name: mark for name, mark in marks.items() if mark})
    if missing:
        data["_missing"] = dict(missing)


def _without_marks(data: Any) -> Any:
    if isinstance(data, dict):
        return {
            key: _without_marks(value) for key, value in data.items() if not key.startswith("_")
        }
    return [_without_marks(value) for value in data] if isinstance(data, list) else data


class Minimal(Record):
    """An answer that may stand for one that was declined or could not be read."""

    parse_error: SkipJsonSchema[bool] = Field(False, alias="_parse_error")
    declined: SkipJsonSchema[bool] = Field(False, alias="_declined")

    @property
    def unanswered(self) -> bool:
        """There is no answer: it could not be read, or was declined."""
        return self.parse_error or self.declined

    @classmethod
    def minimal_answer(cls) -> Self:
        """Return the minimal structure that replaces an answer that could not be read."""
        return cls._empty_answer(parse_error=True)

    @classmethod
    def refused_answer(cls) -> Self:
        """Return the minimal structure that replaces an answer that was declined."""
        return cls._empty_answer(declined=True)

    @classmethod
    def _empty_answer(cls, **why: bool) -> Self:
        empty: dict[str, Any] = {name: cls._empty_value(name) for name in cls.model_fields}
        marks = {"parse_error": False, "declined": False, "missing": {}}
        return cast(Self, cls.model_construct(**(empty | marks | why)))


@lru_cache(maxsize=4096)
def asked_schema(
    model: type[BaseModel],
    options: tuple[tuple[str, tuple[str, ...]], ...] = (),
    without: tuple[str, ...] = (),
) -> Schema:
    """Return the schema of a model with its fields in `ASKED_ORDER`. Not to be changed."""
    allowed = {path: with_ways_out(texts) for path, texts in options}
    return cast("Schema", _in_asked_order(json_schema(model, allowed, without)))


def _in_asked_order(node: Any) -> Any:
    if isinstance(node, list):
        return [_in_asked_order(name) for name in node]
    if not isinstance(node, dict):
        return node
    ordered = {name: _in_asked_order(n) for name, n in node.items()}
    order = ASKED_ORDER.get(str(node.get("title")), ())
    if isinstance(fields := ordered.get("properties"), dict) and order:
        ordered["properties"] = {name: fields[name] for name in order if name in fields} | fields
    return ordered
