"""Read fields of JSON replies in which values have an unexpected form.

The JSON answer types use `repair_fields`, and validators of studies use the other functions.
"""

# `repair_fields` repairs a value that a pydantic model rejects, field by field. It matches options
# in another spelling, reads numbers in words, converts booleans and texts, and makes lists from
# strings. An unreadable list entry or optional field is dropped. Each change is recorded as a
# repair. Values are never moved into their bounds, and no value is invented.

from __future__ import annotations

import copy
import math
import re
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from folkmoot.conversation.json_replies import CUT_MARK, UnreadableValue
from folkmoot.conversation.reply_forms import ABOUT, fold_digits, normalise_text, strip_accents

# The arguments are: path, kind of repair, original value, replacement.
Note = Callable[[str, str, object, object], None]
_Path = tuple[str | int, ...]
# A marker for "no other reading", because None is a valid reading of a nullable field.
_UNREAD: Any = object()
# The kind of the repair that records a dropped value.
UNREADABLE = "unreadable"

_MARKS = ".'\"“”!,* "
_BOOLEAN_WORDS = {"true": True, "yes": True, "false": False, "no": False}
# Words that models write in place of null, also where they must state something.
_NULL_WORDS = ("none", "null", "n a", "undefined")
# Words that also begin a text such as "nothing new to add". The foreign words mean "none" or
# "nothing".
_NOTHING_WORDS = (
    *("none", "nothing", "nil"),
    *("aucun", "aucune", "geen", "kein", "keine", "nada", "nessun", "nessuna", "nessuno"),
    *("nichts", "niente", "niets", "ningun", "ninguna", "ninguno", "rien"),
)
# Words that models write in place of null or of an empty list. "No" is missing: in place of a
# stance it is one.
NONE_WORDS = frozenset(
    (
        *_NULL_WORDS,
        *_NOTHING_WORDS,
        *("na", "nobody", "no one", "neither", "no stance", "unknown", "unspecified"),
        *("not applicable", "not available", "not specified", "not stated"),
    )
)
_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_BY_WORD = {word: number for number, word in enumerate(_UNITS)}
_NUMBER_BY_WORD |= {word: 20 + 10 * number for number, word in enumerate(_TENS)}
_NUMBER_BY_WORD |= {
    f"{ten}-{_UNITS[unit]}": _NUMBER_BY_WORD[ten] + unit for ten in _TENS for unit in range(1, 10)
}
_NUMBER_BY_WORD["hundred"] = _NUMBER_BY_WORD["one hundred"] = 100
# Numbers such as `4`, `4.0`, `.5`, `4/5` and `7 out of 10`. At most 15 digits are read, so that the
# float is exact.
_NUMBER = re.compile(
    r"([-+]?(?:\d{1,15}(?:\.\d{1,15})?|\.\d{1,15}))(?:\s*(?:/|out of)\s*(\d{1,9})(?:\.0+)?)?"
)
# A number as Python writes it, such as `1_000`. In a reply it may mean two numbers.
_WITH_UNDERSCORE = re.compile(r"[\s\d.eE+-]*\d_[\s\d_.eE+-]*")
# A number of percent, such as `85%` and `85 per cent`.
_PERCENTAGE = re.compile(r"([-+]?\d{1,15}(?:\.\d{1,15})?)\s*(?:%|percent|per cent)")
# A text option in pydantic's list of allowed values.
_QUOTED = r"'((?:[^'\\]|\\.)*)'"
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")


def fold_option(raw: object) -> str:
    """Return a text in lower case, without punctuation around it and with `_` between words."""
    if not isinstance(raw, str):
        return ""
    return re.sub(r"[\s-]+", "_", raw.strip().strip(_MARKS).casefold())


def match_folded(raw: object, options: Sequence[str]) -> str | None:
    """Return the option that equals a text apart from case and punctuation.

    Returns None unless exactly one option equals the text.
    """
    if raw in options:
        return str(raw)
    folded = fold_option(raw)
    matching = [option for option in options if folded and fold_option(option) == folded]
    return matching[0] if len(matching) == 1 else None


def read_percentage(text: str, minimum: object, maximum: object) -> float | None:
    """Return the value of a text such as `85%` on a scale from 0 to 100 or from 0 to 1.

    Returns None for other texts, and on any other scale. `minimum` and `maximum`: the lowest and
    the highest value of the scale.
    """
    # On any other scale a percentage may be a share of the scale or a value on it. `0.85%` may mean
    # 85 %.
    match = _PERCENTAGE.fullmatch(text)
    if match is None or minimum != 0 or maximum not in (1, 100):
        return None
    percent = float(match[1])
    return None if 0 < abs(percent) < 1 else percent * float(maximum) / 100


def read_number(raw: object, maximum: object = None, minimum: object = None) -> float | None:
    """Return the number in a text such as `seven`, or `4` in `4/5` if the scale ends at 5.

    Returns None for other texts. `maximum` and `minimum`: the highest and the lowest value of the
    scale in the question, if they are known.
    """
    # A position on another or an unknown scale is rejected, and so is a number that was cut off.

    # In Python, True is an int. A model that wrote `true` gave no number.
    if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        return None
    if not isinstance(raw, str):
        # An integer of hundreds of digits is no float.
        try:
            return float(raw)
        except OverflowError:
            return None
    # A dot at the beginning is a decimal point.
    if raw.rstrip().endswith(CUT_MARK):
        return None
    text = normalise_text(raw).rstrip(_MARKS).lstrip(_MARKS.replace(".", ""))
    text = re.sub(rf"\A{ABOUT}", "", fold_digits(text))
    if match := _NUMBER.fullmatch(text):
        return float(match[1]) if match[2] in (None, str(maximum)) else None
    if (percentage := read_percentage(text, minimum, maximum)) is not None:
        return percentage
    sign, words = (-1, text[6:]) if text.startswith("minus ") else (1, text)
    number = _NUMBER_BY_WORD.get(re.sub(r"(?<=ty) ", "-", words))
    return None if number is None else float(sign * number)


def read_switch(raw: object) -> bool | None:
    """Return True for a value such as `yes`, and False for a value such as `no`.

    Returns None for other values.
    """
    if isinstance(raw, bool):
        return raw
    return _BOOLEAN_WORDS.get(fold_option(raw))


# The names under which models write that they decline.
_DECLINING_NAMES = ("declined", "decline", "declines")


def is_declined(fields: Mapping[str, object], except_names: Container[str] = ()) -> bool:
    """Return whether the field `declined` of a JSON reply is true, also if it is called `decline`.

    - `except_names`: names of other fields, such as the decision to decline an offer.

    Raises `ValueError` if the field holds anything else: it may be the reason of a refusal.
    """
    for name, stated in fields.items():
        if fold_option(name) not in _DECLINING_NAMES or name in except_names:
            continue
        is_blank = stated is None or (isinstance(stated, str) and not stated.strip())
        # In JSON, 1 and 0 mean true and false.
        switch = stated == 1 if stated in (0, 1) else read_switch(stated)
        if switch is None and not is_blank:
            raise ValueError("declined must be true or false")
        if switch:
            return True
    return False


def require_text(text: str) -> str:
    """Return a text that a reply must state.

    Raises ValueError for a text such as `N/A`, `-` or `…`, which means that there is none.
    """
    if _words_in(text) in _NULL_WORDS or not fold_option(text).strip("…_–—"):
        raise ValueError("the text is empty")
    return text


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# Texts that state that there is no entry, such as "none", "N/A" and "I have nothing to add". The
# pattern matches a whole text, because "No comment from the council" states something. "No point",
# "No question", "Neither proposal" and "I have nobody" state something as well.
_FURTHER = (
    r"(?:new|more|else|further|additional|other|own|particular|specific|firm|in particular|"
    r"andere[nrs]?|autres?|mas|neue[nrs]?|nieuwe|nouveaux?|nouvelles?|nuev[ao]s?|nuov[aeio]|"
    r"otr[ao]s?|altr[aeio]|verdere?|weiter(?:e[nrs]?)?)"
)
_ENTRY = (
    r"(?:(?:argument|comment|concern|item|objection|opinion|proposal|remark)s?|points|questions"
    r"|(?<!no )(?<!any )(?:point|question)|firm no|angaben?|bedenken|bezwaren|commentaires?"
    r"|comentarios?|einwande?|fragen|kommentare?|obiezion[ei]|objecion(?:es)?|opmerkingen|punkte"
    r"|punt[io]|puntos|vragen)"
)
_SAYS_NONE = re.compile(
    r"(?:(?:no|nope|none|nothing) )?"
    rf"(?:{'|'.join(sorted(NONE_WORDS))}|(?:"
    r"(?:(?:i|we) (?:have|see|make|raise) |(?:i|we)'ve (?:got )?|there (?:is|are) |there's )?"
    rf"(?:no|nope|{'|'.join(_NOTHING_WORDS)})"
    r"|(?:i|we) (?:don't|do not) (?:have|see) (?:any|anything|an?)"
    r"|there (?:is not|isn't|are not|aren't) (?:any|anything))"
    rf"(?: {_FURTHER})*(?: {_ENTRY})?(?: to (?:add|say|raise|mention|report)| comes to mind)?)"
    r"(?: (?:at all|at the moment|at this (?:point|time|stage)|for now|from me|here|now|on my side"
    r"|(?:in )?this (?:round|time)|so far|thanks|thank you|today|yet|given|identified|noted"
    r"|provided|that i can think of))*"
)


def _words_in(text: str) -> str:
    return " ".join(_WORD.findall(strip_accents(normalise_text(text))))


def names_nothing(text: str) -> bool:
    """Return whether a text is one of the words for "none", or only a dash."""
    words = _words_in(text)
    return words in NONE_WORDS if words else not fold_option(text).strip("_–—")


def says_none(text: str) -> bool:
    """Return whether a text only states that there is no entry, such as `None` and `no new points`.

    A text without a letter or a digit, such as `-`, states this as well.
    """
    words = _words_in(text)
    return not words or _SAYS_NONE.fullmatch(words) is not None


def require_entry(text: str) -> str:
    """Return a text that is an entry of a list.

    Raises ValueError for a text such as `no further questions`, which is no entry.
    """
    if says_none(text):
        raise ValueError("the text states that there is no entry")
    return text


def read_text(raw: object) -> str:
    """Return any value as one text."""
    # Entries of a list are joined, and so are the values of an object: its keys are the model's
    # words for the question. None gives an empty string, and so does a boolean: `false` is no
    # text that a speaker could have meant.
    if raw is None or isinstance(raw, bool):
        return ""
    if isinstance(raw, str):
        return raw.strip()
    if isinstance(raw, Mapping):
        raw = list(raw.values())
    if isinstance(raw, (list, tuple)):
        return "; ".join(text for text in map(read_text, raw) if text)
    return str(raw)


def read_list(raw: object) -> list[object]:
    """Return any value as a list."""
    # A text with bullets gives one entry per line. Any other value gives one entry. An empty value
    # gives no entry, and `false` is one.
    if isinstance(raw, list):
        return raw
    if isinstance(raw, str):
        lines = [line for line in raw.splitlines() if line.strip()]
        if len(lines) > 1 and all(map(_BULLET.match, lines)):
            return [_BULLET.sub("", line).strip() for line in lines]
        return [] if names_nothing(raw) else [raw]
    return [] if raw is None or raw is False else [raw]


def find_false_numbers(value: object, raw: object, loc: _Path = ()) -> Iterator[ErrorDetails]:
    """Yield a validation error for each number in a validated value that the reply did not state.

    These are NaN, infinity, and a number that was read from `true`, from `false` or from `1_0`.

    - `raw`: the value before validation.
    - `loc`: where the value is in the reply.
    """
    # Python and pydantic read "NaN", "Infinity", booleans and `1_0` as numbers. They say nothing
    # about the speaker. Defaults of a model are not from a reply.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(raw, bool):
            message = "Input should be a number, not true or false"
            yield ErrorDetails(type="float_type", loc=loc, msg=message, input=raw)
        elif isinstance(raw, str) and _WITH_UNDERSCORE.fullmatch(raw):
            message = "Input should be a number without underscores"
            yield ErrorDetails(type="float_type", loc=loc, msg=message, input=raw)
        elif isinstance(value, float) and not math.isfinite(value):
            message = "Input should be a finite number"
            yield ErrorDetails(type="finite_number", loc=loc, msg=message, input=value)
        return
    inner_values: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        inner_values = (
            (fields[name].alias or name, getattr(value, name))
            for name in fields
            if name in value.model_fields_set
        )
    elif isinstance(value, Mapping):
        inner_values = ((str(name), entry) for name, entry in value.items())
    elif isinstance(value, (list, tuple)):
        inner_values = enumerate(value)
    for name, inner_value in inner_values:
        raw_value = _value_at_path(raw, (name,))
        yield from find_false_numbers(inner_value, raw_value, (*loc, name))


def find_unreadable_values(model: type[BaseModel], value: object) -> list[ErrorDetails]:
    """Return a validation error for each field of a model that has an `UnreadableValue`."""
    # A field that the model does not have says nothing. Validators of the models convert values, so
    # they must not get these.
    errors = []
    # The list grows during the loop: nested values are appended and visited later.
    nested: list[tuple[_Path, object]] = [((), value)]
    for path, inner_value in nested:
        if path and isinstance(inner_value, UnreadableValue) and _is_known(model, path):
            problem = inner_value.problem
            errors.append(ErrorDetails(type=UNREADABLE, loc=path, msg=problem, input=inner_value))
        elif isinstance(inner_value, Mapping):
            nested += [((*path, str(name)), entry) for name, entry in inner_value.items()]
        elif isinstance(inner_value, list):
            nested += [((*path, number), entry) for number, entry in enumerate(inner_value)]
    return errors


def _is_known(model: type[BaseModel], path: _Path) -> bool:
    # True if each step names a field, or is inside a field that holds any names.
    field = None
    for end, step in enumerate(path, start=1):
        if isinstance(step, int):
            continue
        if field is not None and (_holds_names(field) or not _models_in(field.annotation)):
            return True
        field = _field_at(model, path[:end])
        if field is None:
            return False
    return True


def leave_out_unreadable(
    model: type[BaseModel], value: object, note: Note, *, salvage: bool = False
) -> object:
    """Return a value without those fields with an `UnreadableValue` that may be missing.

    These are optional fields, and all fields of list entries and optional objects.

    - `note`: a function that is called with each field that is left out.
    - `salvage`: True to leave out the required fields too.
    """
    # Without a field that it requires, an entry or an optional object is dropped later.
    errors = find_unreadable_values(model, value)
    readable = copy.deepcopy(value) if errors else value
    for error in errors:
        path = error["loc"]
        field = _field_at(model, path)
        # A default such as 0 would count as the speaker's value.
        if field is not None and not (field.is_required() or _has_empty_default(field)):
            continue
        if salvage or any(_may_be_dropped(model, path[:end]) for end in range(1, len(path) + 1)):
            if salvage and field is not None and _may_be_missing(field):
                _set_value_at_path(readable, path, None)
            else:
                _value_at_path(readable, path[:-1]).pop(path[-1])
            note(_format_path(path), UNREADABLE, error["input"], "")
    return readable


def repair_fields(
    model: type[BaseModel],
    value: object,
    errors: Sequence[ErrorDetails],
    note: Note,
    *,
    ways_out: Sequence[str] = (),
    salvage: bool = False,
) -> object:
    """Return a repaired copy of a value that failed validation.

    - `errors`: the validation errors.
    - `note`: a function that is called with each change.
    - `ways_out`: words that are read as null in a nullable field.
    - `salvage`: True to set unreadable required fields to null too.

    Returns None if nothing could be repaired.
    """
    # First, rejected values are converted to the expected types. Only if none can be converted,
    # rejected list entries and fields with an empty default are dropped.

    # The caller records the original as a repair if it stays unreadable, so it must not change.
    repaired = copy.deepcopy(value)
    errors_with_paths = [(detail, _path_in(repaired, detail["loc"])) for detail in errors]
    changed = False
    for detail, path in errors_with_paths:
        if path and not _is_absent(model, detail, path):
            raw = _value_at_path(repaired, path)
            new_value = _repair_value(detail, raw, _field_at(model, path), ways_out)
            if new_value is not _UNREAD:
                _set_value_at_path(repaired, path, new_value)
                note(_format_path(path), "spelling", raw, new_value)
                changed = True
    # Validate again before anything is dropped, because a corrected field may resolve other errors.
    if changed:
        return repaired
    # Go backwards, so that dropping a list entry does not shift the entries still to be dropped.
    for detail, path in reversed(errors_with_paths):
        absent_path = (*path, detail["loc"][-1]) if _is_absent(model, detail, path) else path
        changed |= _drop_unreadable(model, repaired, absent_path, note, salvage=salvage)
    return repaired if changed else None


def _is_absent(model: type[BaseModel], detail: ErrorDetails, path: _Path) -> bool:
    # True if the error concerns a field that the reply left out. A validator may have filled it in,
    # and pydantic then names another reason. The value at `path` is that of the object around it.
    loc = detail["loc"]
    is_shorter = bool(loc) and len(path) < len(loc)
    is_field = is_shorter and _field_at(model, (*path, loc[-1])) is not None
    return detail["type"] == "missing" or is_field


def _repair_value(
    detail: ErrorDetails, raw: object, field: FieldInfo | None, ways_out: Sequence[str]
) -> Any:
    # `_UNREAD` if the value cannot be converted.
    error_type = detail["type"]
    is_choice = error_type in ("literal_error", "enum")
    expected = str(detail.get("ctx", {}).get("expected", ""))
    # pydantic states the allowed options only in the text of its error context, in quotes. An
    # option such as "Nobody" comes before the other meaning of this word.
    if is_choice and (option := match_folded(raw, re.findall(_QUOTED, expected))) is not None:
        return option
    means_nothing = isinstance(raw, str) and (names_nothing(raw) or fold_option(raw) in ways_out)
    if field is not None and _may_be_null(field) and means_nothing:
        return None
    if is_choice:
        numbers = [int(number) for number in re.findall(r"-?\d+", re.sub(_QUOTED, "", expected))]
        stated = read_number(raw, max(numbers, default=None))
        return next((number for number in numbers if number == stated), _UNREAD)
    if error_type.startswith(("int_", "float_")):
        minimum, maximum = (None, None) if field is None else _bounds_of(field)
        number = read_number(raw, maximum, minimum)
        is_integer = error_type.startswith("int_")
        if number is None or (is_integer and not number.is_integer()):
            return _UNREAD
        return int(number) if is_integer else number
    if error_type.startswith("bool_"):
        switch = read_switch(raw)
        return _UNREAD if switch is None else switch
    if error_type in ("list_type", "tuple_type"):
        return read_list(raw)
    if error_type == "string_type":
        if isinstance(raw, bool):
            return _read_boolean_as_text(field, stated=raw)
        return _UNREAD if isinstance(raw, dict) else read_text(raw)
    return _UNREAD


def _read_boolean_as_text(field: FieldInfo | None, *, stated: bool) -> Any:
    # `false` means "there is none" where a text may be left out. Otherwise a boolean is no text.
    if stated or field is None:
        return _UNREAD
    if _may_be_null(field):
        return None
    return "" if _has_empty_default(field) else _UNREAD


def _drop_unreadable(
    model: type[BaseModel], value: Any, path: _Path, note: Note, *, salvage: bool
) -> bool:
    # The optional value may contain the path. Returns whether a value was dropped.
    for end in range(len(path), 0, -1):
        parent_path = path[:end]
        field, raw = _field_at(model, parent_path), _value_at_path(value, parent_path)
        if _may_be_dropped(model, parent_path):
            if raw is _UNREAD:
                continue
            _value_at_path(value, parent_path[:-1]).pop(parent_path[-1])
        elif salvage and field is not None and _may_be_missing(field) and raw is not None:
            _set_value_at_path(value, parent_path, None)
        else:
            continue
        note(_format_path(parent_path), UNREADABLE, "" if raw is _UNREAD else raw, "")
        return True
    return False


def _may_be_dropped(model: type[BaseModel], path: _Path) -> bool:
    field = _field_at(model, path)
    is_entry = isinstance(path[-1], int) or _holds_names(_field_at(model, path[:-1]))
    return is_entry or (field is not None and _has_empty_default(field))


def _has_empty_default(field: FieldInfo) -> bool:
    if field.is_required():
        return False
    default = field.get_default(call_default_factory=True)
    return default is None or (isinstance(default, Sized) and not len(default))


def _may_be_null(field: FieldInfo) -> bool:
    return type(None) in typing.get_args(field.annotation)


def _may_be_missing(field: FieldInfo) -> bool:
    # A field of type `X | SkipJsonSchema[None]` is null only if its value could not be read. A
    # nested object drops its own fields.
    alternatives = typing.get_args(field.annotation)
    is_nested = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in alternatives)
    is_nullable = any(type(None) in (kind, *typing.get_args(kind)[:1]) for kind in alternatives)
    return is_nullable and not (is_nested and not _may_be_null(field))


def _bounds_of(field: FieldInfo) -> tuple[object, object]:
    # The lower and the upper bound of a number, or None. In a union, the bounds belong to one
    # alternative.
    kinds = (field.annotation, *typing.get_args(field.annotation))
    alternatives = [field, *(FieldInfo.from_annotation(kind) for kind in kinds)]
    marks = [mark for each in alternatives for mark in each.metadata]
    lowest = (mark.ge for mark in marks if isinstance(mark, Ge))
    highest = (mark.le for mark in marks if isinstance(mark, Le))
    return next(lowest, None), next(highest, None)


def _holds_names(field: FieldInfo | None) -> bool:
    # True for a mapping, such as one rating per proposal. Its entries count like those of a list.
    if field is None:
        return False
    kinds = (field.annotation, *typing.get_args(field.annotation))
    return any(typing.get_origin(kind) in (dict, Mapping) for kind in kinds)


def _field_at(model: type[BaseModel], path: _Path) -> FieldInfo | None:
    # None for a list entry or an unknown field.
    models, field = [model], None
    for step in path:
        field = None
        if isinstance(step, str):
            matching_fields = (
                model_field
                for inner_model in models
                for name, model_field in inner_model.model_fields.items()
                if step in (name, model_field.alias)
            )
            field = next(matching_fields, None)
            models = [] if field is None else _models_in(field.annotation)
    return field


def _models_in(kind: object) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for argument in typing.get_args(kind) for model in _models_in(argument)]


def _path_in(value: Any, loc: Sequence[str | int]) -> _Path:
    # Locations also contain the names of union alternatives, which are no keys.
    path: list[str | int] = []
    for step in loc:
        inner_value = _value_at_path(value, (step,))
        if inner_value is not _UNREAD:
            path.append(step)
            value = inner_value
    return tuple(path)


def _value_at_path(value: Any, path: _Path) -> Any:
    for step in path:
        is_key = isinstance(value, dict) and step in value
        if not is_key and not (
            isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)
        ):
            return _UNREAD
        value = value[step]
    return value


def _set_value_at_path(value: Any, path: _Path, new: object) -> None:
    _value_at_path(value, path[:-1])[path[-1]] = new


def _format_path(path: _Path) -> str:
    return ".".join(map(str, path)) or "object"
