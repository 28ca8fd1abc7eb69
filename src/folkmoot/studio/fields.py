"""Make the web form of a study file from a configuration class, and read a submitted form."""
# The fields come from the annotated JSON Schema of the class. The name of a field is its path in
# the file, written as JSON. An empty field means that the key is not set.

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from folkmoot.authoring.keys import UNSET
from folkmoot.authoring.schema import (
    SWITCH_WORDS,
    Node,
    annotated_schema,
    nodes_in,
    variants_of,
)
from folkmoot.authoring.template import write_value
from folkmoot.engine.settings.yaml_tree import BOOLEAN_WORDS, KeyPath, format_path, parse_yaml
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError, Problem
from folkmoot.field_notes import ESSENTIAL, LABEL, UNIT
from folkmoot.hints import capitalise, number_text
from folkmoot.studio.labels import FormWords, value_words

Kind = Literal["text", "number", "choice", "switch", "yaml", "rows", "mapping", "group"]
CONTAINERS = ("rows", "mapping", "group")
# Number of characters above which a text gets a field of several lines.
LONG_TEXT = 60


@dataclass(frozen=True, slots=True)
class StudyField:
    """One field of the web form. It edits one key of the study file."""

    # The path of the key in the file.
    path: KeyPath
    kind: Kind
    help: str = ""
    unit: str = ""
    # The text in the file.
    value: str = ""
    # The meaning of an empty field.
    default: str = ""
    choices: tuple[str, ...] = ()
    # The bounds of a number, as text (`low`, `high`).
    low: str = ""
    high: str = ""
    is_whole: bool = False
    is_required: bool = False
    is_essential: bool = False
    is_set: bool = False
    # The fields of a group, the rows of a list, or the entries of a mapping.
    inner: tuple[StudyField, ...] = ()
    # The value of an added row.
    new_row: Any = None
    # The value that turns a field for a single value into rows. UNSET if this is not possible or
    # already done.
    rows_instead: Any = UNSET
    # The allowed keys of a mapping, or empty if any text is allowed.
    key_choices: tuple[str, ...] = ()
    # `path` with the positions of mapping entries instead of their keys. So it stays the same if
    # the human renames a key on the page. Empty if it equals `path`.
    place: KeyPath = ()
    # The words that replace the key as the label.
    title: str = ""
    # The following attributes are used only for workbooks. The field is a sheet.
    is_sheet: bool = False
    # A row is opened by a click.
    is_folded: bool = False
    # Rows cannot be added.
    is_fixed: bool = False
    # Columns can be added.
    has_columns: bool = False

    @property
    def can_become_rows(self) -> bool:
        """True if the researcher can enter a list of rows in place of one value."""
        return self.rows_instead is not UNSET

    @property
    def key_name(self) -> str:
        """The `name` attribute of the HTML input for renaming the field's key."""
        return f"key {self.name}"

    @property
    def name(self) -> str:
        """The name of the field in the HTML form."""
        return json.dumps(self.place or self.path)

    @property
    def id(self) -> str:
        """The id of the field's HTML element."""
        return "f-" + "-".join(_id_part(part) for part in self.place or self.path)

    @property
    def label(self) -> str:
        """The words before the field."""
        # The title of the field, its key, or the number of a row from 1.
        last = self.path[-1]
        if self.title:
            return self.title
        return f"{last + 1}" if isinstance(last, int) else last.replace("_", " ") or "new"

    @property
    def heading(self) -> str:
        """The label with its first letter in upper case."""
        return capitalise(self.label)

    @property
    def summary(self) -> str:
        """The text of a folded row."""
        # It is made of the first texts of the row's fields.
        texts = [
            value_words(field.value) if field.kind == "choice" else field.value.replace("\n", " ")
            for field in self.inner
            if field.value
        ]
        return " · ".join(text[:LONG_TEXT] for text in texts[:4])

    @property
    def is_long(self) -> bool:
        """True if the text needs an input of several lines."""
        return self.kind == "yaml" or "\n" in self.value or len(self.value) > LONG_TEXT

    @property
    def is_essential_inside(self) -> bool:
        """True if this field or a field inside it is essential."""
        has_essential_field = self.kind == "group" and any(
            field.is_essential_inside for field in self.inner
        )
        return self.is_essential or self.is_required or has_essential_field


@dataclass(frozen=True, slots=True)
class FormSection:
    """A group of fields under a title."""

    # The first section has no title.

    title: str
    fields: tuple[StudyField, ...]


def make_form(study: Study, values: Mapping[str, object]) -> tuple[FormSection, ...]:
    """Return the web form of a study file, filled with `values`."""
    # Essential fields come first.
    schema = annotated_schema(study.config)
    definitions = schema.get("$defs", {})
    fields = [
        field
        for field in _fields_of_group(schema, definitions, values, (), ())
        if field.path != ("study",)
    ]
    values_offered = {
        value
        for node in nodes_in(schema)
        for value in _closed_values(node)
        if isinstance(value, str)
    }.union(BOOLEAN_WORDS)
    fields = name_by_labels(fields, FormWords(values=values_offered))
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
    """Yield all fields, each group before its inner fields."""
    for field in fields:
        yield field
        yield from walk_fields(field.inner)


def input_names(sections: Sequence[FormSection]) -> set[str]:
    """Return the names of all inputs of a form."""
    top = [field for section in sections for field in section.fields]
    fields = list(walk_fields(top))
    names = {field.name for field in fields if field.kind not in CONTAINERS}
    rows = [row for field in fields if field.kind == "mapping" for row in field.inner]
    return names | {row.key_name for row in rows}


def label_words(fields: Sequence[StudyField]) -> dict[str, str]:
    """Return the labels of fields by the last key of their path."""
    return {field.path[-1]: field.heading for field in fields if isinstance(field.path[-1], str)}


def form_words(sections: Sequence[FormSection]) -> FormWords:
    """Return the words of a form for the keys and values that messages name."""
    top = [field for section in sections for field in section.fields]
    fields = list(walk_fields(top))
    values = {value for field in fields for value in field.choices}
    # A key such as `name` occurs in several groups. One at the top of the file comes first.
    return FormWords(label_words(fields), values).add_labels(label_words(top))


def name_by_labels(fields: Sequence[StudyField], words: FormWords) -> list[StudyField]:
    """Return the fields with help texts that name other fields by their labels.

    - `words`: the words for the keys around the fields.
    """
    # A key in the help of a field is one beside the field, or one around its group.
    words = words.add_labels(label_words(fields))
    return [
        replace(
            field,
            help=capitalise(words.rewrite(field.help, _values_of(field))),
            inner=tuple(name_by_labels(field.inner, words)),
        )
        for field in fields
    ]


def _values_of(field: StudyField) -> tuple[str, ...]:
    switch = ("true", "false") if field.kind == "switch" else ()
    return (*field.choices, *field.key_choices, *switch)


def label_trails(fields: Sequence[StudyField], before: str = "") -> dict[str, str]:
    """Return a map from field id to the labels that lead to the field.

    Example of such labels: `Topic › Options › 3`.
    `before`: the labels that lead to the group of `fields`, or "".
    """
    # The page names a field with a problem by its labels, because labels such as "Name" occur
    # several times in a form.
    trails: dict[str, str] = {}
    for field in fields:
        trails[field.id] = f"{before}{field.heading}"
        trails |= label_trails(field.inner, f"{before}{field.heading} › ")
    return trails


def read_form(
    sections: Sequence[FormSection], values: Mapping[str, object], sent: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the study file's values after a form was submitted, and the problems of the fields."""
    # Keys without a field in the form keep their values.
    changed = copy.deepcopy(dict(values))
    problems: list[Problem] = []
    for section in sections:
        for field in section.fields:
            _read_into(field, changed, sent, problems)
    return changed, problems


def change_rows(
    sections: Sequence[FormSection], values: dict[str, Any], action: str
) -> dict[str, Any]:
    """Return the values after the researcher has added, removed or moved a row.

    `action`: what to do, such as `add PATH` or `remove PATH`.
    """
    # `action` is `add PATH`, `remove PATH`, `up PATH`, or `rows PATH`, which replaces a single
    # value by rows. An unknown path changes nothing.
    verb, _, name = action.partition(" ")
    fields = {field.name: field for section in sections for field in walk_fields(section.fields)}
    field = fields.get(name)
    if field is None:
        return values
    values = copy.deepcopy(values)
    parent = fields.get(json.dumps((field.place or field.path)[:-1]))
    last: Any = field.path[-1]
    if verb == "add" and field.kind == "rows":
        rows = _rows_at(values, field, list)
        rows.append(copy.deepcopy(field.new_row))
    elif verb == "add" and field.kind == "mapping":
        entries = _rows_at(values, field, dict)
        unused_keys = (key for key in field.key_choices if key not in entries)
        # An entry without a key waits until the researcher has named it.
        entries.setdefault(next(unused_keys, ""), copy.deepcopy(field.new_row))
    elif verb == "rows" and field.can_become_rows:
        _container_of(values, field)[last] = copy.deepcopy(field.rows_instead)
    elif parent is not None and parent.kind == "mapping" and verb == "remove":
        _rows_at(values, parent, dict).pop(last, None)
        _unset_if_empty(values, parent)
    elif parent is not None and parent.kind == "rows":
        rows = _rows_at(values, parent, list)
        if verb == "remove":
            rows.pop(last)
            _unset_if_empty(values, parent)
        elif verb == "up" and last > 0:
            rows[last - 1], rows[last] = rows[last], rows[last - 1]
    return values


def place_problems(
    sections: Sequence[FormSection], problems: Sequence[Problem]
) -> tuple[dict[str, list[Problem]], list[Problem]]:
    """Return a map from field id to problems, and a list of all other problems."""
    fields = [field for section in sections for field in walk_fields(section.fields)]
    keys = {format_path(field.path): field.id for field in fields}
    files = {
        Path(field.value).name: field for field in fields if field.kind == "text" and field.value
    }
    placed: dict[str, list[Problem]] = {}
    rest = []
    for problem in problems:
        # A problem in a file belongs to the field that names the file. Its key may be a column.
        named_by = files.get(Path(problem.file).name)
        if named_by is not None:
            placed.setdefault(named_by.id, []).append(_with_place_in_file(problem, named_by))
            continue
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


def _with_place_in_file(problem: Problem, field: StudyField) -> Problem:
    # A field shows the message only.
    line = f"line {problem.where}" if problem.where.isdecimal() else problem.where
    key = problem.key if problem.key != format_path(field.path) else ""
    return replace(problem, message=": ".join(filter(None, (line, key, problem.message))))


def _fields_of_group(
    node: Mapping[str, Any],
    definitions: Mapping[str, Node],
    values: object,
    path: KeyPath,
    place: KeyPath,
) -> tuple[StudyField, ...]:
    required = node.get("required", ())
    group_values = values if isinstance(values, Mapping) else {}
    return tuple(
        _field(
            field_node,
            definitions,
            group_values.get(name, UNSET),
            (*path, name),
            (*place, name),
            name in required,
        )
        for name, field_node in node.get("properties", {}).items()
    )


def _field(
    node: Node,
    definitions: Mapping[str, Node],
    value: Any,
    path: KeyPath,
    place: KeyPath,
    is_required: bool = False,
) -> StudyField:
    default = node.get("default")
    is_set = value is not UNSET
    shown_value = value if is_set else default
    variants = [
        variant
        for variant in variants_of(node, definitions)
        if variant.get("type") != "null" and variant != SWITCH_WORDS
    ]
    # A key may accept several types. The form shows the field of the variant that fits the value.
    chosen = next((variant for variant in variants if _accepts(variant, shown_value)), None)
    # The value of a new row is an empty text, whatever the type of the row is.
    if chosen is None and shown_value in (None, "") and variants:
        chosen = variants[0]
    kind, inner, new_row = _kind_of(chosen, variants, definitions, shown_value, path, place)
    bounds = chosen or {}
    names = next(variants_of(bounds.get("propertyNames", {}), definitions))
    return StudyField(
        path,
        kind,
        node.get("description", ""),
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
        _rows_instead(kind, variants, definitions),
        tuple(map(str, names.get("enum", ()))) if kind == "mapping" else (),
        place,
        node.get(LABEL, ""),
    )


def _accepts(node: Node, value: Any) -> bool:
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
    place: KeyPath,
) -> tuple[Kind, tuple[StudyField, ...], Any]:
    # Shapes that the form has no field for, such as unions of types, are edited as YAML.
    if variants == [{"type": "boolean"}]:
        return "switch", (), None
    if variants and all(_is_closed(variant) for variant in variants):
        return "choice", (), None
    if chosen is None:
        return "yaml", (), None
    kinds = chosen.get("type")
    if kinds == "object" or (isinstance(kinds, list) and isinstance(shown_value, dict)):
        return _kind_of_object(chosen, definitions, shown_value, path, place)
    if kinds != "array" and any(_is_closed(variant) for variant in variants):
        return "yaml", (), None
    if kinds in ("integer", "number"):
        return ("number" if len(variants) == 1 else "yaml"), (), None
    if kinds == "string" or isinstance(kinds, list):
        return "text", (), None
    if kinds == "array" and isinstance(chosen.get("items"), dict):
        items = list(variants_of(chosen["items"], definitions))
        new_row = _new_value(items)
        rows = shown_value if isinstance(shown_value, list) else []
        inner = tuple(
            _field(chosen["items"], definitions, row, (*path, i), (*place, i))
            for i, row in enumerate(rows)
        )
        if all(field.kind in ("text", "number", "choice", "group") for field in inner):
            return "rows", inner, new_row
    return "yaml", (), None


def _kind_of_object(
    node: Node, definitions: Mapping[str, Node], shown_value: Any, path: KeyPath, place: KeyPath
) -> tuple[Kind, tuple[StudyField, ...], Any]:
    # Returns kind, inner fields, and value of a new entry. An object with fixed keys is a group. If
    # the researcher chooses the keys, it is a mapping.
    value_node = node.get("additionalProperties")
    if isinstance(value_node, dict):
        entries = shown_value if isinstance(shown_value, Mapping) else {}
        own_nodes = node.get("properties", {})
        inner = tuple(
            _field(own_nodes.get(key, value_node), definitions, value, (*path, key), (*place, i))
            for i, (key, value) in enumerate(entries.items())
        )
        return "mapping", inner, _new_value(list(variants_of(value_node, definitions)))
    if "properties" in node:
        return "group", _fields_of_group(node, definitions, shown_value, path, place), None
    return "yaml", (), None


def _new_value(variants: Sequence[Node]) -> Any:
    kinds = [variant.get("type") for variant in variants]
    if any("string" in (kind or ()) or kind in ("integer", "number") for kind in kinds):
        return ""
    if any(_is_closed(variant) for variant in variants):
        return ""
    return [""] if kinds == ["array"] else {}


def _rows_instead(kind: Kind, variants: Sequence[Node], definitions: Mapping[str, Node]) -> Any:
    # Returns UNSET if the key accepts no list, or if the form already shows rows.
    if kind in CONTAINERS:
        return UNSET
    for variant in variants:
        items = variant.get("items")
        if variant.get("type") == "array" and isinstance(items, dict):
            return [_new_value(list(variants_of(items, definitions)))]
    return UNSET


def _is_closed(node: Node) -> bool:
    return "enum" in node or "const" in node or node == {"type": "boolean"}


def _id_part(part: str | int) -> str:
    # A key of a mapping may hold any character. An id that htmx looks up must not.
    return re.sub(r"[^0-9A-Za-z_-]", lambda match: f"_{ord(match[0]):x}_", str(part))


def _choices(variants: Sequence[Node]) -> tuple[str, ...]:
    return tuple(
        "true" if value is True else "false" if value is False else str(value)
        for variant in variants
        for value in _closed_values(variant)
    )


def _closed_values(node: Node) -> Sequence[Any]:
    if node == {"type": "boolean"}:
        return (True, False)
    values: list[Any] = node.get("enum", [node["const"]] if "const" in node else [])
    return values


def _number_text(value: object) -> str:
    return number_text(value) if isinstance(value, (int, float)) else ""


def _as_text(value: Any, kind: Kind) -> str:
    if value is None or value is UNSET or kind in CONTAINERS:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind in ("switch", "choice") and str(value).lower() in BOOLEAN_WORDS:
        return "true" if BOOLEAN_WORDS[str(value).lower()] else "false"
    return value if isinstance(value, str) else write_value(value)


_Rows = TypeVar("_Rows", list[Any], dict[str, Any])


def _rows_at(values: dict[str, Any], field: StudyField, kind: type[_Rows]) -> _Rows:
    # If the field is not set, it is set to the rows shown.
    container = _container_of(values, field)
    last: Any = field.path[-1]
    present = container.get(last) if isinstance(container, dict) else container[last]
    if not isinstance(present, kind):
        present = container[last] = _shown_value(field)
    rows: _Rows = present
    return rows


def _unset_if_empty(values: dict[str, Any], field: StudyField) -> None:
    # Groups that become empty are removed too. The form then shows the default of the key.
    path: list[Any] = list(field.path)
    while not field.is_required:
        container: Any = values
        for part in path[:-1]:
            container = container[part]
        # A row of a list stays, because it belongs to the researcher's rows.
        if isinstance(container, list) or container.get(path[-1]):
            return
        container.pop(path.pop(), None)
        if not path:
            return


def _container_of(values: dict[str, Any], field: StudyField) -> Any:
    container: Any = values
    for part in field.path[:-1]:
        container = (
            container.setdefault(part, {}) if isinstance(container, dict) else container[part]
        )
    return container


def _shown_value(field: StudyField) -> Any:
    if field.kind == "rows":
        return [_shown_value(row) for row in field.inner]
    if field.kind == "mapping":
        return {str(entry.path[-1]): _shown_value(entry) for entry in field.inner}
    if field.kind == "group":
        return {str(below.path[-1]): _shown_value(below) for below in field.inner if below.is_set}
    text = field.value or field.default
    return _read_value(field, text, []) if text else text


def _read_into(
    field: StudyField,
    container: Any,
    sent: Mapping[str, str],
    problems: list[Problem],
    *,
    is_entry: bool = False,
) -> None:
    # `container` is the mapping or list that holds the field. With `is_entry`, the field is an
    # entry of a mapping, which is kept if its value is empty.
    last: Any = field.path[-1]
    in_list = isinstance(last, int)
    present = container[last] if in_list else container.get(last, UNSET)
    if field.kind in CONTAINERS:
        _read_inner(field, container, present, sent, problems, is_entry=is_entry)
        return
    if field.name not in sent:
        return
    text = sent[field.name].strip("\n") if field.is_long else sent[field.name].strip()
    if text == field.value.strip("\n" if field.is_long else None):
        # A text equal to the one shown is no change. The file may write the same value in another
        # way, and that way is kept.
        return
    if not text and not in_list and not is_entry:
        container.pop(last, None)
        return
    container[last] = _read_value(field, text, problems)


def _read_inner(
    field: StudyField,
    container: Any,
    present: Any,
    sent: Mapping[str, str],
    problems: list[Problem],
    *,
    is_entry: bool,
) -> None:
    last: Any = field.path[-1]
    # The form shows default rows for a list or mapping that is not set. They are written only if
    # one was changed.
    if field.kind in ("rows", "mapping") and not isinstance(present, (list, dict)):
        if not any(_is_changed(row, sent) for row in walk_fields(field.inner)):
            return
        present = _shown_value(field)
    was_there = isinstance(present, (list, dict))
    inner: Any = present if was_there else {}
    is_mapping = field.kind == "mapping"
    for row in field.inner:
        _read_into(row, inner, sent, problems, is_entry=is_mapping)
    if is_mapping:
        inner = _rename_entries(field, inner, sent, problems)
    if was_there or inner:
        container[last] = inner
    # A group without any value is removed, because an empty mapping would not be the default. An
    # entry of a mapping stays, as a row of a list does: the page still shows it.
    is_row = is_entry or isinstance(last, int)
    if not inner and field.kind == "group" and not is_row and was_there:
        container.pop(last, None)


def _is_changed(field: StudyField, sent: Mapping[str, str]) -> bool:
    return (field.name in sent and sent[field.name] != field.value) or sent.get(
        field.key_name, field.path[-1]
    ) != field.path[-1]


def _rename_entries(
    field: StudyField, entries: dict[str, Any], sent: Mapping[str, str], problems: list[Problem]
) -> dict[str, Any]:
    new_keys = {
        str(entry.path[-1]): sent.get(entry.key_name, str(entry.path[-1])).strip()
        for entry in field.inner
    }
    names = {key: new_keys.get(key, key) for key in entries}
    # One of two equal keys would be lost, so the old key stays. It may be the new name of a third
    # row, which then keeps its old key too.
    while doubled := [
        key for key, name in names.items() if name != key and list(names.values()).count(name) > 1
    ]:
        for key in doubled:
            message = f"there are two rows named {names[key]!r}: give each another name"
            problems.append(Problem(message, key=format_path((*field.path, key))))
            names[key] = key
    return {names[key]: value for key, value in entries.items()}


def _read_value(field: StudyField, text: str, problems: list[Problem]) -> Any:
    if field.kind == "switch" or (field.kind == "choice" and "true" in field.choices):
        return BOOLEAN_WORDS.get(text.lower(), text)
    if field.kind == "number":
        return _read_number(text)
    if field.kind == "yaml":
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


def _read_number(text: str) -> Any:
    # Anything else than a finite number stays as it was typed, so that the page shows it again with
    # the problem. As YAML, `#5` would be empty, and `{{ x }}` a mapping.
    try:
        value = parse_yaml(text, "").value
    except InputError:
        return text
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else text
