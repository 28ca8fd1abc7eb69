"""The form of a study file: make its fields from a configuration class, and read a submitted form.

The fields come from the annotated JSON Schema of the class. The name of a field is its path in the
file, written as JSON. An empty field means that the key is not set.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from folkmoot.authoring.keys import UNSET
from folkmoot.authoring.schema import SWITCH_WORDS, Node, annotated_schema, variants_of
from folkmoot.authoring.template import write_value
from folkmoot.engine.settings.yaml_tree import KeyPath, format_path, parse_yaml
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError, Problem
from folkmoot.field_notes import ESSENTIAL, UNIT

Kind = Literal["text", "number", "choice", "switch", "yaml", "rows", "group"]
# Number of characters above which a text gets a field of several lines.
LONG_TEXT = 60
# YAML 1.1 spells booleans in several ways, and a study file may use any of them.
SWITCHES = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}


@dataclass(frozen=True, slots=True)
class StudyField:
    """One field of the form, for one key of the study file.

    `value` is the text in the file. `default` describes the meaning of an empty field. `inner`
    holds the fields of a group, or one field per row of a list. `new_row` is the value of an added
    row. `low` and `high` are the bounds of a number, as text.
    """

    path: KeyPath
    kind: Kind
    help: str = ""
    unit: str = ""
    value: str = ""
    default: str = ""
    choices: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    is_whole: bool = False
    is_required: bool = False
    is_essential: bool = False
    is_set: bool = False
    inner: tuple[StudyField, ...] = ()
    new_row: Any = None

    @property
    def name(self) -> str:
        """The name of the field in the HTML form."""
        return json.dumps(self.path)

    @property
    def id(self) -> str:
        """The id of the field's HTML element."""
        return "f-" + "-".join(str(part) for part in self.path)

    @property
    def label(self) -> str:
        """The key with spaces for underscores, or the number of a row, counted from 1."""
        last = self.path[-1]
        return f"{last + 1}" if isinstance(last, int) else last.replace("_", " ")

    @property
    def is_long(self) -> bool:
        """True if the text needs an input of several lines."""
        return self.kind == "yaml" or "\n" in self.value or len(self.value) > LONG_TEXT

    @property
    def is_essential_inside(self) -> bool:
        """True if the field, or a field inside it, belongs to the first section of the form."""
        has_essential_field = self.kind == "group" and any(
            field.is_essential_inside for field in self.inner
        )
        return self.is_essential or self.is_required or has_essential_field


@dataclass(frozen=True, slots=True)
class FormSection:
    """A group of fields under a title. The first section has no title."""

    title: str
    fields: tuple[StudyField, ...]


def make_form(study: Study, values: Mapping[str, object]) -> tuple[FormSection, ...]:
    """Return the form of a study file with these values. Essential fields come first."""
    schema = annotated_schema(study.config)
    definitions = schema.get("$defs", {})
    fields = [
        field
        for field in _fields_of_group(schema, definitions, values, ())
        if field.path != ("study",)
    ]
    sections = study.config.SECTIONS
    shared = {name for names in sections.values() for name in names}
    essential = (field for field in fields if field.is_essential_inside)
    # The essential keys of the study type come before those that all study types share.
    first = tuple(sorted(essential, key=lambda field: field.path[0] in shared))
    rest = [field for field in fields if field not in first]
    parts = {
        "": first,
        "Further settings": tuple(field for field in rest if field.path[0] not in shared),
    }
    parts |= {
        title: tuple(field for field in rest if field.path[0] in names)
        for title, names in sections.items()
    }
    return tuple(
        FormSection(title, section_fields)
        for title, section_fields in parts.items()
        if section_fields
    )


def walk_fields(fields: Sequence[StudyField]) -> Iterator[StudyField]:
    """Yield all fields. A group comes before its inner fields."""
    for field in fields:
        yield field
        yield from walk_fields(field.inner)


def read_form(
    sections: Sequence[FormSection], values: Mapping[str, object], sent: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of the study file after a form was submitted, and problems of its fields.

    Fields that the form does not contain keep their values.
    """
    changed = copy.deepcopy(dict(values))
    problems: list[Problem] = []
    for section in sections:
        for field in section.fields:
            _read_into(field, changed, sent, problems)
    return changed, problems


def change_rows(
    sections: Sequence[FormSection], values: dict[str, Any], action: str
) -> dict[str, Any]:
    """Return the values after adding, removing or moving a row of a list.

    `action` is `add PATH`, `remove PATH` or `up PATH`. An unknown path changes nothing.
    """
    verb, _, name = action.partition(" ")
    fields = {field.name: field for section in sections for field in walk_fields(section.fields)}
    field = fields.get(name)
    if field is None:
        return values
    values = copy.deepcopy(values)
    if verb == "add" and field.kind == "rows":
        rows = _rows_at(values, field)
        rows.append(copy.deepcopy(field.new_row))
    elif isinstance(field.path[-1], int):
        parent = fields[json.dumps(field.path[:-1])]
        rows, position = _rows_at(values, parent), field.path[-1]
        if verb == "remove":
            rows.pop(position)
        elif verb == "up" and position > 0:
            rows[position - 1], rows[position] = rows[position], rows[position - 1]
    return values


def place_problems(
    sections: Sequence[FormSection], problems: Sequence[Problem]
) -> tuple[dict[str, list[Problem]], list[Problem]]:
    """Return problems by the id of their field, and the problems that belong to no field."""
    keys = {
        format_path(field.path): field.id
        for section in sections
        for field in walk_fields(section.fields)
    }
    placed: dict[str, list[Problem]] = {}
    rest = []
    for problem in problems:
        matching_keys = [
            key
            for key in keys
            if problem.key == key or problem.key.startswith((f"{key}.", f"{key}["))
        ]
        if matching_keys:
            # The longest key is the innermost field that contains the place of the problem.
            placed.setdefault(keys[max(matching_keys, key=len)], []).append(problem)
        else:
            rest.append(problem)
    return placed, rest


def _fields_of_group(
    node: Mapping[str, Any], definitions: Mapping[str, Node], values: object, path: KeyPath
) -> tuple[StudyField, ...]:
    required = node.get("required", ())
    group_values = values if isinstance(values, Mapping) else {}
    return tuple(
        _field(
            field_node, definitions, group_values.get(name, UNSET), (*path, name), name in required
        )
        for name, field_node in node.get("properties", {}).items()
    )


def _field(
    node: Node, definitions: Mapping[str, Node], value: Any, path: KeyPath, is_required: bool
) -> StudyField:
    default = node.get("default")
    is_set = value is not UNSET
    shown_value = value if is_set else default
    variants = [
        variant
        for variant in variants_of(node, definitions)
        if variant.get("type") != "null" and variant.get("enum") != SWITCH_WORDS
    ]
    # A key may accept several types. The form shows the field of the variant that fits the value.
    chosen = next((variant for variant in variants if _accepts(variant, shown_value)), None)
    if chosen is None and shown_value is None and variants:
        chosen = variants[0]
    kind, inner, new_row = _kind_of(chosen, variants, definitions, shown_value, path)
    bounds = chosen or {}
    description = node.get("description", "")
    return StudyField(
        path,
        kind,
        description[:1].upper() + description[1:],
        node.get(UNIT, ""),
        _as_text(value, kind) if is_set else "",
        _as_text(default, kind) if not is_required else "",
        _choices(variants),
        _number_text(bounds.get("minimum", bounds.get("exclusiveMinimum"))),
        _number_text(bounds.get("maximum", bounds.get("exclusiveMaximum"))),
        bounds.get("type") == "integer",
        is_required,
        bool(node.get(ESSENTIAL)),
        is_set,
        inner,
        new_row,
    )


def _accepts(node: Node, value: Any) -> bool:
    """Return whether a value has the type of a variant."""
    if value is None or value is UNSET:
        return False
    if "enum" in node or "const" in node:
        return value in node.get("enum", [node.get("const")])
    kinds = node.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    # `bool` is tested first, because it is a subclass of `int`.
    if isinstance(value, bool) or (isinstance(value, str) and kinds == ["boolean"]):
        return "boolean" in kinds
    types_of: dict[type, tuple[str, ...]] = {
        str: ("string",), int: ("integer", "number"), float: ("number",),
        list: ("array",), dict: ("object",),
    }  # fmt: skip
    return any(kind in kinds for kind in types_of.get(type(value), ()))


def _kind_of(
    chosen: Node | None,
    variants: Sequence[Node],
    definitions: Mapping[str, Node],
    shown_value: Any,
    path: KeyPath,
) -> tuple[Kind, tuple[StudyField, ...], Any]:
    # Shapes that the form has no field for, such as unions of types, are edited as YAML.
    if variants and all("enum" in variant or "const" in variant for variant in variants):
        return "choice", (), None
    if any("enum" in variant or "const" in variant for variant in variants) or chosen is None:
        return "yaml", (), None
    kinds = chosen.get("type")
    if kinds == "boolean":
        return ("switch" if len(variants) == 1 else "yaml"), (), None
    if kinds in ("integer", "number"):
        return ("number" if len(variants) == 1 else "yaml"), (), None
    if kinds == "string" or isinstance(kinds, list):
        return "text", (), None
    if kinds == "object" and "properties" in chosen:
        return "group", _fields_of_group(chosen, definitions, shown_value, path), None
    if kinds == "array" and isinstance(chosen.get("items"), dict):
        items = list(variants_of(chosen["items"], definitions))
        new_row: Any = {} if any("properties" in item for item in items) else ""
        rows = shown_value if isinstance(shown_value, list) else []
        inner = tuple(
            _field(chosen["items"], definitions, row, (*path, i), False)
            for i, row in enumerate(rows)
        )
        if all(field.kind in ("text", "number", "choice", "group") for field in inner):
            return "rows", inner, new_row
    return "yaml", (), None


def _choices(variants: Sequence[Node]) -> tuple[str, ...]:
    return tuple(
        str(value)
        for variant in variants
        for value in variant.get("enum", [variant["const"]] if "const" in variant else [])
    )


def _number_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else ""


def _as_text(value: Any, kind: Kind) -> str:
    if value is None or value is UNSET or kind in ("rows", "group"):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "switch" and str(value).lower() in SWITCHES:
        return "true" if SWITCHES[str(value).lower()] else "false"
    return value if isinstance(value, str) else write_value(value)


def _rows_at(values: dict[str, Any], field: StudyField) -> list[Any]:
    """Return the list in `values` that belongs to a field.

    If its key is not set, create the list from the rows that the form shows.
    """
    container: Any = values
    for part in field.path[:-1]:
        container = (
            container.setdefault(part, {}) if isinstance(container, dict) else container[part]
        )
    last = field.path[-1]
    present = container.get(last) if isinstance(container, dict) else container[last]
    if not isinstance(present, list):
        present = [row.value or row.default for row in field.inner if row.kind != "group"]
        container[last] = present
    return present


def _read_into(
    field: StudyField, container: Any, sent: Mapping[str, str], problems: list[Problem]
) -> None:
    """Write the submitted value of a field into `container`, its group or list."""
    last: Any = field.path[-1]
    in_list = isinstance(last, int)
    present = container[last] if in_list else container.get(last, UNSET)
    if field.kind in ("group", "rows"):
        _read_inner(field, container, present, sent, problems)
        return
    if field.name not in sent:
        return
    text = sent[field.name].strip("\n") if field.is_long else sent[field.name].strip()
    if text == field.value.strip("\n" if field.is_long else None):
        # A text equal to the one shown is no change. The file may write the same value in another
        # way, and that way is kept.
        return
    if not text and not in_list:
        container.pop(last, None)
        return
    container[last] = _read_value(field, text, problems)


def _read_inner(
    field: StudyField,
    container: Any,
    present: Any,
    sent: Mapping[str, str],
    problems: list[Problem],
) -> None:
    last: Any = field.path[-1]
    # The form shows default rows for a list that is not set. They are written only if one was
    # changed.
    if field.kind == "rows" and not isinstance(present, (list, dict)):
        row_values = [below.value for below in field.inner]
        if any(
            field.name in sent and sent[field.name] != field.value
            for field in walk_fields(field.inner)
        ):
            container[last] = row_values
            for row in field.inner:
                _read_into(row, container[last], sent, problems)
        return
    was_there = isinstance(present, (list, dict))
    inner: Any = present if was_there else {}
    for row in field.inner:
        _read_into(row, inner, sent, problems)
    if was_there or inner:
        container[last] = inner
    # A group without any value is removed, because an empty mapping would not be the default.
    if not inner and field.kind == "group" and not isinstance(last, int) and was_there:
        container.pop(last, None)


def _read_value(field: StudyField, text: str, problems: list[Problem]) -> Any:
    if field.kind == "switch":
        return SWITCHES.get(text.lower(), text)
    if field.kind in ("number", "yaml"):
        try:
            return parse_yaml(text, "").value
        except InputError as error:
            # Keep the unreadable text, so that the page shows it again with the problem.
            problems += [Problem(problem.message, key=format_path(field.path), hint=problem.hint)
                         for problem in error.problems]  # fmt: skip
            return text
    if field.is_long and "\n" in text:
        return text + "\n"
    return text
