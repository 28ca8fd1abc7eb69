"""Describe the fields of a JSON answer in a prompt, and drop fields that repeat a description."""

# `describe_format` renders the schema of an answer type as a list for a prompt (`{{ answer_format
# }}`), so prompt and schema cannot disagree. Small models often repeat a description as their
# answer, as in `"reason": "why, in one sentence"`. Without a check, this description would be
# recorded as the words of a participant. `drop_descriptions` removes such fields from the reply and
# keeps the rest.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from folkmoot.json_text import Schema
from folkmoot.provenance import SourcedText, concatenate_texts, join_texts

# A shorter description ("why", "yes") may be an honest answer.
MIN_WORDS = 3
# A text above this length is a real answer. The bound also keeps the comparison cheap for replies
# with very long fields.
MAX_CHARACTERS = 500
INDENT = "  "
TYPE_NAMES = {
    "object": "an object",
    "string": "a text",
    "boolean": "true or false",
    "number": "a number",
    "integer": "a whole number",
}


class DroppedDescription(NamedTuple):
    """A field dropped from a reply, because the model only repeated the field's description."""

    # The dotted path of the field in the reply.
    path: str
    # The repeated description.
    text: str


def describe_format(
    schema: Schema, options: Mapping[str, Sequence[str]] | None = None
) -> SourcedText:
    """Return the keys of a JSON object as a list for a prompt.

    `options`: the values to list for each field, instead of the values in the schema.
    """
    # Nested objects are indented. Each line holds the description, the allowed values and the
    # bounds of a field. Neighbouring keys with the same definition, such as the items of a ballot,
    # share one line. If `options` is given, it replaces the enumerations of all fields.
    lines = _describe_object(schema, schema.get("$defs", {}), "", options)
    return join_texts("\n", lines)


def _describe_object(
    node: Schema, definitions: Schema, indent: str, options: Mapping[str, Sequence[str]] | None
) -> Iterator[SourcedText]:
    for names, field in _group_equal_objects(node["properties"]):
        inner = _resolve(field, definitions)
        # The schema holds its enumerations as plain strings. Only the caller has the options with
        # their sources, so its list replaces the enumeration.
        values = inner.get("enum", ()) if options is None else options.get(names[0], ())
        each_prefix = "each " if len(names) > 1 else ""
        description = _describe_field(field, inner, values)
        start = f"{indent}- {', '.join(names)}: {each_prefix}"
        yield concatenate_texts((start, description), plain=None)
        if "properties" in inner:
            yield from _describe_object(inner, definitions, indent + INDENT, options)


def _group_equal_objects(properties: Schema) -> Iterator[tuple[list[str], Schema]]:
    # Neighbouring fields that share one definition.
    names: list[str] = []
    last_field: Schema = {}
    for name, field in properties.items():
        if names and field == last_field and "$ref" in field:
            names.append(name)
            continue
        if names:
            yield names, last_field
        names, last_field = [name], field
    if names:
        yield names, last_field


def _resolve(node: Schema, definitions: Schema) -> Schema:
    # The schema of the values: the target of a reference, the item of a list, or the alternative of
    # a nullable field that is not null.
    while "properties" not in node:
        # The order matters: a reference says nothing about its target, so it is followed first.
        if "$ref" in node:
            node = definitions[node["$ref"].removeprefix("#/$defs/")]
        elif "anyOf" in node:
            node = next(branch for branch in node["anyOf"] if branch.get("type") != "null")
        elif isinstance(node.get("items"), dict):
            node = node["items"]
        else:
            break
    return node


def _describe_field(node: Schema, inner: Schema, values: Sequence[object]) -> SourcedText:
    # `inner` is the schema that `_resolve` returns for `node`. `values` is empty if any value is
    # allowed.
    is_list = node.get("type") == "array"
    each_prefix = "each " if is_list else ""
    parts: list[str] = [str(node.get("description", ""))]
    if "properties" in inner:
        parts += [f"{each_prefix}an object with these keys:"]
    elif values:
        value_list = join_texts(", ", values, plain=None)
        parts += [concatenate_texts((f"{each_prefix}one of ", value_list), plain=None)]
    # The description of a field usually states its type, so the type is added only without one.
    elif not parts[0]:
        parts += ["" if is_list else _describe_type(node, inner)]
    filled_parts = [part for part in parts if part]
    shape = "a list: " if is_list and filled_parts else "a list" if is_list else ""
    return concatenate_texts((shape, join_texts("; ", filled_parts, plain=None)), plain=None)


def _describe_type(node: Schema, inner: Schema) -> str:
    # For a field without a description.
    type_name = TYPE_NAMES.get(str(inner.get("type")), "a value")
    low, high = inner.get("minimum"), inner.get("maximum")
    bounds = f" from {low} to {high}" if low is not None and high is not None else ""
    may_be_null = any(branch.get("type") == "null" for branch in node.get("anyOf", ()))
    return f"{type_name}{bounds}{' or null' if may_be_null else ''}"


def drop_descriptions(
    value: object, schema: Schema | None
) -> tuple[object, tuple[DroppedDescription, ...]]:
    """Remove each field of a JSON value that only repeats the field's own description.

    Returns the remaining value and the removed fields.
    """
    # In a list, only the entries that repeat the description are dropped. If all entries repeat it,
    # the whole field is dropped.
    dropped: list[DroppedDescription] = []
    if not schema:
        return value, ()
    without_descriptions = _drop_sentences(value, schema, schema.get("$defs", {}), "", dropped)
    # Return the original object if nothing was dropped, so that the caller sees it unchanged.
    return (without_descriptions if dropped else value), tuple(dropped)


def _drop_sentences(
    value: object, node: Schema, definitions: Schema, path: str, dropped: list[DroppedDescription]
) -> object:
    if isinstance(value, list):
        return [
            _drop_sentences(entry, node, definitions, f"{path}.{number}", dropped)
            for number, entry in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    fields = _resolve(node, definitions).get("properties", {})
    kept: dict[object, object] = {}
    for name, entry in value.items():
        entry_path = f"{path}.{name}".removeprefix(".")
        field = fields.get(name, {})
        entries = entry if isinstance(entry, list) else [entry]
        own_entries = [entry for entry in entries if not _is_description(entry, field, definitions)]
        if len(own_entries) < len(entries):
            repeated = "; ".join(str(entry) for entry in entries if entry not in own_entries)
            dropped.append(DroppedDescription(entry_path, repeated))
            if own_entries:
                kept[name] = _drop_sentences(own_entries, field, definitions, entry_path, dropped)
        else:
            kept[name] = _drop_sentences(entry, field, definitions, entry_path, dropped)
    return kept


def _is_description(text: object, field: Schema, definitions: Schema) -> bool:
    if not field or not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        return False
    # Models change case and punctuation when they repeat a description, so only words are compared.
    words = normalise_words(text)
    if len(words.split()) < MIN_WORDS:
        return False
    inner = _resolve(field, definitions)
    # A model may repeat the bare description from the schema or the whole line of the prompt.
    line = _describe_field(field, inner, inner.get("enum", ()))
    descriptions = (str(field.get("description", "")), line)
    return any(words == normalise_words(description) for description in descriptions)


def normalise_words(text: str) -> str:
    """Return the words of a text in lower case, separated by single spaces."""
    # Without punctuation.
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))
