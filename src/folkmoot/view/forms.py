"""Forms for people out of JSON schemas, and their answers back into JSON.

A schema that a model fills in as text is filled in here field by field: enumerations as options,
numbers within their bounds, lists of words one a line, lists of objects as rows of which blank ones
count for nothing. What no field can show (a map of any keys) is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import jsonschema
from pydantic import JsonValue

Kind = Literal["object", "rows", "choice", "several", "number", "text", "lines", "figures", "json"]
Schema = Mapping[str, JsonValue]
ROWS = 12  # of a list that has no largest length
DEEPEST = 8  # a schema that contains itself ends here, as JSON
YES_NO = (("yes", True), ("no", False))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form. `name` is its name in the form, `options` (label, value) of a choice;
    of `rows` each part is a row."""

    name: str
    kind: Kind
    label: str
    help: str = ""
    required: bool = False
    options: tuple[tuple[str, JsonValue], ...] = ()
    low: float | None = None
    high: float | None = None
    whole: bool = False
    longest: int | None = None
    shortest: int | None = None
    parts: tuple[Field, ...] = ()


def form_of(schema: Schema) -> Field:
    """The form of a schema."""
    defs = schema.get("$defs")
    return _field("a", "", schema, defs if isinstance(defs, dict) else {}, True)


def answer_of(form: Field, sent: Mapping[str, Sequence[str]]) -> JsonValue:
    """The JSON value that was filled in. Raises ValueError naming the field that makes no sense."""
    found = _value(form, sent)
    return {} if found is None and form.kind == "object" else found


def problem_with(value: JsonValue, schema: Schema) -> str:
    """What a value lacks, in words for the person; empty where it fits the schema."""
    checker = jsonschema.Draft202012Validator(dict(schema))
    error = next(iter(sorted(checker.iter_errors(value), key=lambda e: len(e.path))), None)
    if error is None:
        return ""
    missing = error.validator == "required"
    lacking = [k for k in error.validator_value if k not in error.instance] if missing else []
    path = [p for p in (*error.path, *lacking[:1]) if isinstance(p, str)]
    where = " › ".join(map(label_of, path))
    what = "has no answer yet" if missing else error.message
    return f"{where}: {what}." if where else f"{what}."


def label_of(key: str) -> str:
    """`top_choice` as "Top choice"; ids such as `V1` stay."""
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _field(
    name: str,
    key: str,
    schema: Schema,
    defs: Mapping[str, JsonValue],
    required: bool,
    depth: int = 0,
) -> Field:
    schema = _resolved(schema, defs)
    label = label_of(key)
    about = str(schema.get("description") or "") if key else ""
    options = _options(schema)
    if options:
        return Field(name, "choice", label, about, required, options)
    kind = schema.get("type")
    if kind == "boolean":
        return Field(name, "choice", label, about, required, YES_NO)
    if kind in ("integer", "number"):
        low, high = _figure(schema, "minimum"), _figure(schema, "maximum")
        return Field(
            name, "number", label, about, required, low=low, high=high, whole=kind == "integer"
        )
    if kind == "string":
        longest, shortest = _figure(schema, "maxLength"), _figure(schema, "minLength")
        return Field(
            name,
            "text",
            label,
            about,
            required,
            longest=None if longest is None else int(longest),
            shortest=None if shortest is None else int(shortest),
        )
    properties = schema.get("properties")
    if isinstance(properties, dict) and depth < DEEPEST:
        needed = schema.get("required")
        must = needed if isinstance(needed, list) else []
        parts = tuple(
            _field(f"{name}.{k}", k, s, defs, k in must, depth + 1)
            for k, s in properties.items()
            if isinstance(s, dict)
        )
        return Field(name, "object", label, about, required, parts=parts)
    if kind == "array" and depth < DEEPEST:
        return _list(Field(name, "lines", label, about, required), schema, defs, depth)
    return Field(name, "json", label, about, required)


def _list(plain: Field, schema: Schema, defs: Mapping[str, JsonValue], depth: int) -> Field:
    given = schema.get("items")
    items = _resolved(given if isinstance(given, dict) else {}, defs)
    name, label, about, required = plain.name, plain.label, plain.help, plain.required
    options = _options(items)
    if options:
        return Field(name, "several", label, about, required, options)
    if items.get("type") in ("integer", "number"):
        return Field(name, "figures", label, about, required)
    if isinstance(items.get("properties"), dict):
        most = _figure(schema, "maxItems")
        rows = min(ROWS, ROWS if most is None else int(most))
        parts = tuple(_field(f"{name}.{n}", "", items, defs, False, depth + 1) for n in range(rows))
        return Field(name, "rows", label, about, required, parts=parts)
    if items.get("type") == "string":
        return plain
    return Field(name, "json", label, about, required)


def _resolved(schema: Schema, defs: Mapping[str, JsonValue]) -> Schema:
    """A schema without a reference, and without the `null` of what may be left out."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = defs.get(reference.rpartition("/")[2])
        own = {k: v for k, v in schema.items() if k != "$ref"}
        return _resolved({**found, **own}, defs) if isinstance(found, dict) else own
    either = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(either, list):
        real = [s for s in either if isinstance(s, dict) and s.get("type") != "null"]
        if len(real) == 1:
            return _resolved({**schema, "anyOf": None, "oneOf": None, **real[0]}, defs)
    return schema


def _options(schema: Schema) -> tuple[tuple[str, JsonValue], ...]:
    listed = schema.get("enum")
    if isinstance(listed, list):
        return tuple((str(v).replace("_", " "), v) for v in listed if v is not None)
    return ((str(schema["const"]), schema["const"]),) if "const" in schema else ()


def _figure(schema: Schema, key: str) -> float | None:
    found = schema.get(key)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _value(field: Field, sent: Mapping[str, Sequence[str]]) -> JsonValue:
    """What was filled in; None where nothing was."""
    texts = [t.strip() for t in sent.get(field.name, ())]
    text = texts[0] if texts else ""
    match field.kind:
        case "object":
            found = {p.name.rpartition(".")[2]: _value(p, sent) for p in field.parts}
            own: dict[str, JsonValue] = {k: v for k, v in found.items() if v is not None}
            blank = all(v in ("", [], {}) for v in own.values())
            return None if blank and not field.required else own
        case "rows":
            return [row for p in field.parts if (row := _value(p, sent)) is not None]
        case "choice":
            return _picked(field, text) if text else None
        case "several":
            return [_picked(field, t) for t in texts if t]
        case "number":
            return _number(field, text) if text else None
        case "lines":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "figures":
            return [_number(field, word) for word in text.replace(",", " ").split()]
        case "json":
            return _json(field, text) if text else None
        case "text":
            return text if text or field.required else None


def _picked(field: Field, text: str) -> JsonValue:
    """Options are sent by their number: what a page shows may differ from them in characters that
    cannot be seen."""
    if text.isdigit() and int(text) < len(field.options):
        return field.options[int(text)][1]
    raise ValueError(f"{field.label}: choose one of the options.")


def _number(field: Field, text: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{field.label}: {text!r} is not a number.") from None
    return int(value) if value.is_integer() else value


def _json(field: Field, text: str) -> JsonValue:
    try:
        found: JsonValue = json.loads(text)
    except ValueError:
        raise ValueError(f"{field.label}: this is not JSON.") from None
    return found
