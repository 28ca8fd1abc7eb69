"""Create forms for humans from JSON schemas, and convert submitted forms to JSON."""
# A model writes JSON text, and a human fills in one field for each property. Enumerations become
# options, and numbers have bounds. A list of texts is entered with one item per line. A list of
# objects becomes rows, and blank rows are ignored. If no field can show a schema, the human writes
# JSON. A way out is a value by which the human gives no answer: `none_of_these`, `declined`,
# `cannot_say` or null. A choice shows ways out as further buttons. Other fields show a checkbox.

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import jsonschema
from pydantic import JsonValue
from starlette.requests import Request

from folkmoot.conversation.answer_types import CANNOT_SAY, DECLINED, NONE_OF_THESE, FieldForPeople
from folkmoot.conversation.choices import Number
from folkmoot.conversation.reply_forms import fold_digits
from folkmoot.conversation.schema_alternatives import is_way_out, single_alternative
from folkmoot.hints import capitalise, number_text
from folkmoot.view.site import read_sent_number

Kind = Literal[
    "object",
    "rows",
    "choice",
    "several",
    "ranking",
    "number",
    "text",
    "lines",
    "figures",
    "json",
]
Schema = Mapping[str, JsonValue]
# Rows of a list without a maximum length.
MAX_FORM_ROWS = 12
# A schema that contains itself ends at this depth, as JSON.
MAX_DEPTH = 8
# Limits the memory that a submitted form can take.
MAX_FORM_FIELDS = 2_000
NUMBER_TYPES = ("integer", "number")
YES_NO = (("yes", True), ("no", False))
WAY_LABELS = {
    NONE_OF_THESE: "None of these",
    DECLINED: "I prefer not to answer",
    CANNOT_SAY: "I cannot say",
}
# The label for declining a form with several fields.
DECLINES_ALL = "I prefer not to answer any of this"
# The suffix of a field name for its ways out, if they are boxes to tick.
WAY_OUT_SUFFIX = "~out"
# A number as browsers send it.
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form for humans."""

    # The name of the HTML field.
    name: str
    kind: Kind
    label: str
    help: str = ""
    required: bool = False
    # (label, value) pairs.
    options: tuple[tuple[str, JsonValue], ...] = ()
    low: float | None = None
    high: float | None = None
    whole: bool = False
    longest: int | None = None
    shortest: int | None = None
    # The fields of an object, or the rows of a list.
    parts: tuple[FormField, ...] = ()
    # (label, value) pairs for giving no answer, such as `declined`.
    ways_out: tuple[tuple[str, JsonValue], ...] = ()
    # True for an object with the property `declined`, which declines the whole object.
    has_declined: bool = False
    # Properties with values that the human does not enter, such as the option in a row.
    fixed: tuple[tuple[str, JsonValue], ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """The schema's definitions and the wordings for humans, as needed to build each field."""

    # The `$defs` of the schema.
    definitions: Mapping[str, JsonValue]
    # Titles and options for humans, by the dotted path or the name of a field.
    fields_for_people: Mapping[str, FieldForPeople]

    def find_wording(self, name: str) -> FieldForPeople | None:
        """Return the label and the options that a human reads for the field with this HTML name.

        Returns None if `fields_for_people` lacks the field.
        """
        path = [part for part in name.split(".")[1:] if not part.isdigit()]
        wordings = self.fields_for_people
        return wordings.get(".".join(path)) or wordings.get(path[-1] if path else "")


def ways_out(*values: JsonValue) -> tuple[tuple[str, JsonValue], ...]:
    """Return values such as `declined`, each with the label of its button."""
    return tuple((WAY_LABELS[str(value)], value) for value in values)


def form_of(
    schema: Schema, fields_for_people: Mapping[str, FieldForPeople] | None = None
) -> FormField:
    """Build the form for a JSON schema.

    `fields_for_people`: a map from field name to the wording for humans.
    """
    definitions = schema.get("$defs")
    reading = SchemaReading(
        definitions if isinstance(definitions, dict) else {}, fields_for_people or {}
    )
    return _build_field("a", "", schema, reading, True)


def answer_of(form: FormField, sent: Mapping[str, Sequence[str]]) -> JsonValue:
    """Return the JSON value of a submitted form.

    Raises ValueError if a field is invalid.
    """
    answer = _field_value(form, sent)
    if isinstance(answer, _Nothing):
        return {} if form.kind == "object" else None
    return answer


def way_out_of(form: FormField, sent: Mapping[str, Sequence[str]]) -> JsonValue:
    """Return the value, such as `declined`, of the button with which a human declined to answer.

    Returns None if no such button was chosen. Raises ValueError if the form also holds an answer.
    """
    if not (chosen_ways := _ways_taken(form, sent)):
        return None
    if len(chosen_ways) > 1 or (form.kind != "choice" and not is_blank(sent)):
        raise ValueError(
            "You gave an answer and chose not to give one. Please leave one of the two out."
        )
    return chosen_ways[0]


def is_blank(sent: Mapping[str, Sequence[str]]) -> bool:
    """Return True if a submitted form holds no answer."""
    # Checkboxes by which a human declines to answer do not count as an answer.
    return is_untouched(
        {name: texts for name, texts in sent.items() if not name.endswith(WAY_OUT_SUFFIX)}
    )


def is_untouched(sent: Mapping[str, Sequence[str]]) -> bool:
    """Return True if a submitted form holds no answer, and no field says that it has none."""
    fields = (texts for name, texts in sent.items() if name == "a" or name.startswith("a."))
    return not any(text.strip() for texts in fields for text in texts)


def problem_with(value: JsonValue, schema: Schema, form: FormField) -> str:
    """Return why a value does not fit the schema, in words for the participant.

    `form`: the form for the schema, with the labels that the participant reads.
    Returns an empty text if the value fits.
    """
    checker = jsonschema.Draft202012Validator(dict(schema))
    error = next(iter(sorted(checker.iter_errors(value), key=lambda entry: len(entry.path))), None)
    if error is None:
        return ""
    is_missing = error.validator == "required"
    missing_keys = (
        [key for key in error.validator_value if key not in error.instance] if is_missing else []
    )
    path = [part for part in (*error.path, *missing_keys[:1]) if isinstance(part, str)]
    field_path = label_path(form, path)
    problem = _PROBLEMS.get(str(error.validator), "this does not fit").format(error.validator_value)
    return f"{field_path}: {problem}." if field_path else f"{capitalise(problem)}."


_PROBLEMS = {
    "required": "has no answer yet",
    "minLength": "please write at least {} characters",
    "maxLength": "please write at most {} characters",
    "minimum": "please give a number of at least {}",
    "maximum": "please give a number of at most {}",
    "exclusiveMinimum": "please give a number above {}",
    "exclusiveMaximum": "please give a number below {}",
    "multipleOf": "please give a multiple of {}",
    "minItems": "please give at least {}",
    "maxItems": "please give at most {}",
    "uniqueItems": "please give each only once",
    "enum": "please choose one of the options",
    "const": "please choose one of the options",
}


def label_path(form: FormField, keys: Sequence[str]) -> str:
    """Return the labels on the page of a property and of the objects around it.

    `keys`: the keys from the outermost object to the property.
    """
    labels = _labels_by_path(form)
    paths = (".".join(keys[: number + 1]) for number in range(len(keys)))
    return " › ".join(
        labels.get(path) or label_of(key) for path, key in zip(paths, keys, strict=True)
    )


def _labels_by_path(field: FormField) -> dict[str, str]:
    # The rows of a list have the path of the list, which comes first and keeps its label.
    path = ".".join(part for part in field.name.split(".")[1:] if not part.isdigit())
    labels = {path: field.label}
    for part in field.parts:
        labels = {**_labels_by_path(part), **labels}
    return labels


def label_of(key: str) -> str:
    """Return a key as a label, such as "Top choice" for `top_choice`."""
    # Ids such as `V1` are kept.
    return capitalise(key.replace("_", " ").strip())


def _build_field(
    name: str,
    key: str,
    schema: Schema,
    reading: SchemaReading,
    required: bool,
    depth: int = 0,
) -> FormField:
    schema, way_values = single_alternative(schema, reading.definitions)
    label = label_of(key)
    help_text = str(schema.get("description") or "") if key else ""
    wording = reading.find_wording(name) if key else None
    if wording is not None:
        label, help_text = wording.label, ""
        schema, way_values = _with_wording(schema, wording), (*way_values, *wording.ways_out)
    options = _field_options(schema)
    if options:
        way_values = (*(value for _, value in options if is_way_out(value)), *way_values)
        real_options = tuple(option for option in options if not is_way_out(option[1]))
        labelled_ways = _label_ways_out(way_values, DECLINED, required)
        return FormField(
            name, "choice", label, help_text, required, real_options, ways_out=labelled_ways
        )
    labelled_ways = _label_ways_out(way_values, CANNOT_SAY, required)
    kind = schema.get("type")
    if kind == "boolean":
        return FormField(name, "choice", label, help_text, required, YES_NO, ways_out=labelled_ways)
    if kind in NUMBER_TYPES:
        low, high = _number_limit(schema, "minimum"), _number_limit(schema, "maximum")
        is_whole = kind == "integer"
        return FormField(
            name,
            "number",
            label,
            help_text,
            required,
            low=low,
            high=high,
            whole=is_whole,
            ways_out=labelled_ways,
        )
    if kind == "string":
        longest, shortest = _number_limit(schema, "maxLength"), _number_limit(schema, "minLength")
        return FormField(
            name,
            "text",
            label,
            help_text,
            required,
            longest=None if longest is None else int(longest),
            shortest=None if shortest is None else int(shortest),
            ways_out=labelled_ways,
        )
    properties = schema.get("properties")
    if isinstance(properties, dict) and depth < MAX_DEPTH:
        required_keys = schema.get("required")
        required_list = required_keys if isinstance(required_keys, list) else []
        parts = tuple(
            _build_field(
                f"{name}.{key}", key, property_schema, reading, key in required_list, depth + 1
            )
            for key, property_schema in properties.items()
            if isinstance(property_schema, dict) and not _is_declined(key, property_schema)
        )
        has_declined = any(
            _is_declined(key, property_schema) for key, property_schema in properties.items()
        )
        return FormField(
            name, "object", label, help_text, required, parts=parts,
            ways_out=((DECLINES_ALL, DECLINED),) if has_declined else (), has_declined=has_declined,
        )  # fmt: skip
    if kind == "array" and depth < MAX_DEPTH:
        lines_field = FormField(name, "lines", label, help_text, required)
        if wording is not None and wording.kind == "ranking":
            return _ranking_field(lines_field, schema, reading)
        return _list_field(lines_field, schema, reading, depth)
    return FormField(name, "json", label, help_text, required)


def _with_wording(schema: Schema, wording: FieldForPeople) -> Schema:
    if wording.kind == "choice":
        return {"type": "string", "enum": list(wording.options)}
    if wording.kind == "number":
        bounds = zip(("minimum", "maximum"), map(float, wording.options), strict=False)
        return {"type": "number", **dict(bounds)}
    return schema


def _ranking_field(lines_field: FormField, schema: Schema, reading: SchemaReading) -> FormField:
    options = tuple(
        option
        for option in _field_options(_item_schema(schema, reading))
        if not is_way_out(option[1])
    )
    parts = tuple(
        FormField(
            f"{lines_field.name}.{number}",
            "number",
            label,
            required=True,
            low=1,
            high=len(options),
            whole=True,
        )
        for number, (label, _) in enumerate(options)
    )
    return replace(lines_field, kind="ranking", options=options, parts=parts)


def _option_rows(
    lines_field: FormField, items: Schema, reading: SchemaReading, depth: int
) -> FormField | None:
    # A field with one row for each option, in which humans enter numbers, such as ratings. None if
    # the objects of the list have other properties than one option and numbers.
    properties = items["properties"]
    assert isinstance(properties, dict)
    schemas = {
        key: single_alternative(schema, reading.definitions)[0]
        for key, schema in properties.items()
        if isinstance(schema, dict)
    }
    option_keys = [key for key, schema in schemas.items() if _field_options(schema)]
    numbers = [key for key, schema in schemas.items() if schema.get("type") in NUMBER_TYPES]
    if len(option_keys) != 1 or not numbers or len(numbers) + 1 != len(schemas):
        return None
    others = {**items, "properties": {key: properties[key] for key in numbers}}
    parts = (
        _build_field(f"{lines_field.name}.{number}", "", others, reading, False, depth + 1)
        for number, _ in enumerate(_field_options(schemas[option_keys[0]]))
    )
    rows = tuple(
        replace(part, label=label, fixed=((option_keys[0], value),))
        for part, (label, value) in zip(parts, _field_options(schemas[option_keys[0]]), strict=True)
    )
    return replace(lines_field, kind="rows", parts=rows)


def _item_schema(schema: Schema, reading: SchemaReading) -> Schema:
    items = schema.get("items")
    return single_alternative(items if isinstance(items, dict) else {}, reading.definitions)[0]


def _list_field(
    lines_field: FormField, schema: Schema, reading: SchemaReading, depth: int
) -> FormField:
    items = _item_schema(schema, reading)
    name, label, help_text, required = (
        lines_field.name,
        lines_field.label,
        lines_field.help,
        lines_field.required,
    )
    options = _field_options(items)
    if options:
        return FormField(name, "several", label, help_text, required, options)
    if items.get("type") in NUMBER_TYPES:
        return FormField(name, "figures", label, help_text, required)
    if isinstance(items.get("properties"), dict):
        if (option_rows := _option_rows(lines_field, items, reading, depth)) is not None:
            return option_rows
        max_items = _number_limit(schema, "maxItems")
        rows = min(MAX_FORM_ROWS, MAX_FORM_ROWS if max_items is None else int(max_items))
        parts = tuple(
            _build_field(f"{name}.{number}", "", items, reading, False, depth + 1)
            for number in range(rows)
        )
        return FormField(name, "rows", label, help_text, required, parts=parts)
    if items.get("type") == "string":
        return lines_field
    return FormField(name, "json", label, help_text, required)


def _label_ways_out(
    way_values: Sequence[JsonValue], null: str, required: bool
) -> tuple[tuple[str, JsonValue], ...]:
    # `null` is the name of the way out that null means. Null is left out if the field may stay
    # blank (`required` is False). It is also left out if another pair has the same label.
    names_by_value = {way: null if way is None else str(way) for way in way_values}
    return tuple(
        (WAY_LABELS[name], way)
        for way, name in names_by_value.items()
        if way is not None or (required and list(names_by_value.values()).count(name) == 1)
    )


def _is_declined(key: str, schema: JsonValue) -> bool:
    return key == DECLINED and isinstance(schema, dict) and schema.get("type") == "boolean"


def _field_options(schema: Schema) -> tuple[tuple[str, JsonValue], ...]:
    enum_values = schema.get("enum")
    if isinstance(enum_values, list):
        return tuple(
            (WAY_LABELS.get(str(value), str(value).replace("_", " ")), value)
            for value in enum_values
        )
    return ((str(schema["const"]), schema["const"]),) if "const" in schema else ()


def _number_limit(schema: Schema, key: str) -> float | None:
    limit = schema.get(key)
    return float(limit) if isinstance(limit, (int, float)) and not isinstance(limit, bool) else None


class _Nothing:
    """The type of the mark for a blank field. None cannot be the mark, because it is a value."""


NOTHING = _Nothing()


def _ways_taken(field: FormField, sent: Mapping[str, Sequence[str]]) -> list[JsonValue]:
    name = field.name if field.kind == "choice" else field.name + WAY_OUT_SUFFIX
    marks = [text for text in sent.get(name, ()) if text.startswith("~")]
    return [value for number, (_, value) in enumerate(field.ways_out) if f"~{number}" in marks]


def _field_value(field: FormField, sent: Mapping[str, Sequence[str]]) -> JsonValue | _Nothing:
    texts = [text.strip() for text in sent.get(field.name, ())]
    text = texts[0] if texts else ""
    chosen_ways = _ways_taken(field, sent)
    if chosen_ways and not field.has_declined:
        if text and field.kind != "choice":
            raise ValueError(f"{field.label}: please leave out the answer or the box below it.")
        return chosen_ways[0]
    match field.kind:
        case "object":
            return _object_value(field, sent, chosen_ways)
        case "rows":
            rows = (_field_value(form_field, sent) for form_field in field.parts)
            return [row for row in rows if not isinstance(row, _Nothing)]
        case "choice":
            return _picked_option(field, text) if text else NOTHING
        case "ranking":
            return _ranked_options(field, sent)
        case "several":
            return [_picked_option(field, text) for text in texts if text]
        case "number":
            return _parse_number(field, text) if text else NOTHING
        case "lines":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "figures":
            # A comma after a number ends it. A comma within one may be that of 1,5.
            numbers = (word.strip(",") for word in text.split())
            return [_parse_number(field, number) for number in numbers if number]
        case "json":
            return _parse_json(field, text) if text else NOTHING
        case "text":
            return text if text or field.required else NOTHING


def _object_value(
    field: FormField, sent: Mapping[str, Sequence[str]], chosen_ways: Sequence[JsonValue]
) -> JsonValue | _Nothing:
    values_by_key = {
        form_field.name.rpartition(".")[2]: _field_value(form_field, sent)
        for form_field in field.parts
    }
    given_values = {
        key: value for key, value in values_by_key.items() if not isinstance(value, _Nothing)
    }
    is_blank_object = not chosen_ways and all(
        value in ("", [], {}) for value in given_values.values()
    )
    if is_blank_object and not field.required:
        return NOTHING
    given_values = {**dict(field.fixed), **given_values}
    return {DECLINED: bool(chosen_ways), **given_values} if field.has_declined else given_values


def _picked_option(field: FormField, text: str) -> JsonValue:
    # Forms send options by number, because the text on the page may lack hidden characters.
    number = read_sent_number(text)
    if number is not None and number < len(field.options):
        return field.options[number][1]
    raise ValueError(f"{field.label}: please choose one of the options.".removeprefix(": "))


def _ranked_options(
    field: FormField, sent: Mapping[str, Sequence[str]]
) -> list[JsonValue] | _Nothing:
    ranks = [_field_value(part, sent) for part in field.parts]
    if all(isinstance(rank, _Nothing) for rank in ranks):
        return NOTHING
    if sorted(map(str, ranks)) != sorted(map(str, range(1, len(ranks) + 1))):
        raise ValueError(f"{field.label}: please give each number from 1 to {len(ranks)} once.")
    values_by_rank = {
        str(rank): value for rank, (_, value) in zip(ranks, field.options, strict=True)
    }
    return [values_by_rank[str(rank)] for rank in range(1, len(ranks) + 1)]


def _parse_number(field: FormField, text: str) -> int | float:
    digits = fold_digits(text)
    field_prefix = f"{field.label}: " if field.label else ""
    try:
        # Python also reads `1_0` and `nan`, which no human means as a number.
        if not _NUMBER.fullmatch(digits):
            raise ValueError
        # A whole number keeps all its digits, which a float would not.
        value = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
        if not math.isfinite(value):
            raise ValueError
    # Python refuses to convert thousands of digits, and to make a float of them.
    except (ValueError, OverflowError):
        problem = f"please give a number; {text!r} is none."
        # A comma separates decimals for some humans, and thousands for others.
        if "," in digits:
            problem = f"please write {text!r} without a comma, with a point before decimals."
        raise ValueError(field_prefix + problem) from None
    if isinstance(value, int):
        return value
    # Where people write 1.000 for a thousand, it would count as one.
    if Number(field.low, field.high, integer=field.whole).has_ambiguous_separator(digits):
        thousands, decimals = digits.replace(".", ""), number_text(value)
        decimals += "0" * (decimals == digits)
        raise ValueError(f"{field_prefix}please write {text!r} as {thousands} or {decimals}.")
    return int(value) if value.is_integer() else value


def _parse_json(field: FormField, text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        raise ValueError(f"{field.label}: this is not JSON.") from None
    return value


def first_of(sent: Mapping[str, Sequence[str]], name: str) -> str:
    """Return the first value of a submitted field, or an empty text if there is none."""
    return next(iter(sent.get(name, ())), "")


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a submitted form without uploaded files."""
    form = await request.form(max_files=0, max_fields=MAX_FORM_FIELDS)
    texts_by_name: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            texts_by_name.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return texts_by_name
