"""Describe the fields of a JSON answer in a prompt, and match a reply to these fields."""

# `describe_format` renders the schema of an answer type as a list for a prompt (`{{ answer_format
# }}`), so prompt and schema cannot disagree. Small models often repeat a description as their
# answer, as in `"reason": "why, in one sentence"`. Without a check, this description would be
# recorded as the words of a participant. `drop_descriptions` removes such fields from the reply and
# keeps the rest. `match_field_names` finds the fields under names in another spelling.

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from folkmoot.conversation.json_replies import UnreadableValue
from folkmoot.conversation.json_schemas import resolve_node
from folkmoot.conversation.reply_forms import find_numbers, find_options, longest_first
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


_ObjectChange = Callable[[dict[str, object], Schema, str], Iterator[tuple[str, object]]]


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
        inner = resolve_node(field, definitions)
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


def _describe_field(node: Schema, inner: Schema, values: Sequence[object]) -> SourcedText:
    # `inner` is the schema that `resolve_node` returns for `node`. `values` is empty if any value
    # is allowed.
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


# The names that models give to an object around the whole answer, as `fold_field_name` returns
# them. `arguments` and `parameters` come from tool calls, `properties` from the schema. The list is
# closed: an object under another name may be an example, or the answer of another speaker.
WRAPPER_NAMES = frozenset(
    {"answer", "finalanswer", "response", "reply", "result", "output", "value", "json", "data"}
    | {"arguments", "parameters", "properties"}
)


class RenamedField(NamedTuple):
    """A field that a reply gave under a name in another spelling."""

    # The dotted path of the field, with its name in the schema.
    path: str
    # The name in the reply.
    written: str


def fold_field_name(name: object) -> str:
    """Return the name of a field for comparisons: in lower case, letters and digits only."""
    return re.sub("[ _]", "", normalise_words(str(name)))


def unwrap_object(value: object, names: Collection[str]) -> object:
    """Return the object that a reply put under a name such as `answer`, or the value itself.

    - `names`: the names that the object must have one of, as `fold_field_name` returns them.
    """
    if not isinstance(value, dict) or any(fold_field_name(key) in names for key in value):
        return value
    inner_values = [inner for key, inner in value.items() if fold_field_name(key) in WRAPPER_NAMES]
    if len(inner_values) != 1 or not isinstance(inner_values[0], dict):
        return value
    inner = inner_values[0]
    return inner if any(fold_field_name(key) in names for key in inner) else value


def match_field_names(
    value: object, schema: Schema | None
) -> tuple[object, tuple[RenamedField, ...]]:
    """Return a JSON value with the field names of the schema, and the fields that were renamed.

    A name may differ in case, spaces and punctuation. An object around the answer is removed.
    """
    renamed: list[RenamedField] = []
    if not schema:
        return value, ()
    definitions = schema.get("$defs", {})
    fields = resolve_node(schema, definitions).get("properties", {})
    value = unwrap_object(value, {fold_field_name(name) for name in fields})
    change = partial(_rename_fields, renamed)
    return _change_objects(value, schema, definitions, change), tuple(renamed)


def _change_objects(
    value: object, node: Schema, definitions: Schema, change: _ObjectChange, path: str = ""
) -> object:
    # Applies `change` to each object in a JSON value. `change` gets the object, the schemas of its
    # fields and its dotted path, and yields the names and entries of the new object.
    if isinstance(value, list):
        return [
            _change_objects(entry, node, definitions, change, f"{path}.{number}")
            for number, entry in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    fields = resolve_node(node, definitions).get("properties", {})
    return {
        name: _change_objects(
            entry, fields.get(name, {}), definitions, change, f"{path}.{name}".removeprefix(".")
        )
        for name, entry in change(value, fields, path)
    }


def _rename_fields(
    renamed: list[RenamedField], value: dict[str, object], fields: Schema, path: str
) -> Iterator[tuple[str, object]]:
    # A name that fits two fields is not used. Two names that fit one field are not used either. If
    # one of them is the name of the field itself and their values differ, it is unknown which value
    # is meant. Null is no second value of a field that is never null.
    if value.keys() <= fields.keys():
        yield from value.items()
        return
    fields_by_fold = Counter(map(fold_field_name, fields))
    filled = {fold_field_name(name) for name, entry in value.items() if entry is not None}
    never_null = {
        fold_field_name(name) for name, field in fields.items() if not _is_nullable(field)
    }
    value = {
        name: entry
        for name, entry in value.items()
        if entry is not None or fold_field_name(name) not in filled & never_null
    }
    names_by_fold = Counter(map(fold_field_name, value))
    known = {
        fold_field_name(name): name for name in fields if fields_by_fold[fold_field_name(name)] == 1
    }
    for written, entry in value.items():
        fold = fold_field_name(written)
        is_other_spelling = written not in fields and names_by_fold[fold] == 1
        name = known.get(fold, written) if is_other_spelling else written
        values = [entry]
        if written in fields and names_by_fold[fold] > fields_by_fold[fold]:
            values = [other for key, other in value.items() if fold_field_name(key) == fold]
        if name != written:
            renamed.append(RenamedField(f"{path}.{name}".removeprefix("."), str(written)))
        is_clear = all(other == entry for other in values)
        yield name, entry if is_clear else UnreadableValue(values)


def _is_nullable(field: Schema) -> bool:
    # A schema that states no type allows null as well.
    alternatives = field.get("anyOf", [field])
    for branch in alternatives:
        types = branch.get("type", "null")
        if "$ref" not in branch and "null" in ((types,) if isinstance(types, str) else types):
            return True
    return False


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
    definitions = schema.get("$defs", {})
    change = partial(_drop_sentences, dropped, definitions)
    without_descriptions = _change_objects(value, schema, definitions, change)
    # Return the original object if nothing was dropped, so that the caller sees it unchanged.
    return (without_descriptions if dropped else value), tuple(dropped)


def names_other_value(value: object, schema: Schema | None, text: str) -> bool:
    """Return whether the text after a JSON value takes the value back and names another answer.

    A closing remark about another answer ("I would not go to the pub") takes nothing back.
    Only a value with a single closed answer can be compared: one option or one number.
    """
    closed_answers: list[tuple[object, Schema]] = []
    if not schema or not text.strip():
        return False
    definitions = schema.get("$defs", {})

    def collect_from(
        value: dict[str, object], fields: Schema, _path: str
    ) -> Iterator[tuple[str, object]]:
        for name, entry in value.items():
            node = resolve_node(fields.get(name, {}), definitions)
            if "enum" in node or node.get("type") in ("integer", "number"):
                entries = entry if isinstance(entry, list) else [entry]
                closed_answers.extend((answer, node) for answer in entries if answer is not None)
            yield name, entry

    _change_objects(value, schema, definitions, collect_from)
    if len(closed_answers) != 1:
        return False
    ((stated, node),) = closed_answers
    if "enum" in node:
        options = longest_first(list(map(str, node["enum"])))
        named, rest = find_options(text, options)
        is_other = bool(named) and named.isdisjoint(find_options(str(stated), options)[0])
        return is_other and _takes_back(text, rest)
    low, high = node.get("minimum", -math.inf), node.get("maximum", math.inf)
    numbers = {number for number in find_numbers(text) if low <= number <= high}
    is_other = bool(numbers) and numbers.isdisjoint(find_numbers(str(stated)))
    return is_other and _takes_back(text, re.sub(r"\d", "", text))


_TAKING_BACK = re.compile(
    r"\b(?:no[,:]|no wait|wait|hold on|actually|rather(?! than)|correction|sorry|reflection|"
    r"second thoughts?|chang(?:e|ed|ing) my|i mean|i meant|my (?:final|real|true)|now i|i now|"
    r"scratch|ignore|disregard|make (?:that|it)|should (?:be|have been))",
    re.IGNORECASE,
)


def _takes_back(text: str, without_answers: str) -> bool:
    # Another answer alone is a second answer.
    return _TAKING_BACK.search(text) is not None or not re.search(r"\w", without_answers)


def _drop_sentences(
    dropped: list[DroppedDescription],
    definitions: Schema,
    value: dict[str, object],
    fields: Schema,
    path: str,
) -> Iterator[tuple[str, object]]:
    for name, entry in value.items():
        field = fields.get(name, {})
        entries = entry if isinstance(entry, list) else [entry]
        own_entries = [entry for entry in entries if not _is_description(entry, field, definitions)]
        if len(own_entries) == len(entries):
            yield name, entry
            continue
        repeated = "; ".join(str(entry) for entry in entries if entry not in own_entries)
        dropped.append(DroppedDescription(f"{path}.{name}".removeprefix("."), repeated))
        if own_entries:
            yield name, own_entries


def _is_description(text: object, field: Schema, definitions: Schema) -> bool:
    if not field or not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        return False
    # Models change case and punctuation when they repeat a description, so only words are compared.
    words = normalise_words(text)
    if len(words.split()) < MIN_WORDS:
        return False
    # A model may repeat the bare description from the schema or the whole line of the prompt, which
    # contains the description.
    description = normalise_words(str(field.get("description", "")))
    if description not in words:
        return False
    inner = resolve_node(field, definitions)
    line = _describe_field(field, inner, inner.get("enum", ()))
    return words in (description, normalise_words(line))


# Field names, descriptions and short answers repeat in every reply.
@lru_cache(maxsize=4_096)
def normalise_words(text: str) -> str:
    """Return the words of a text in lower case, separated by single spaces."""
    # Without punctuation.
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))
