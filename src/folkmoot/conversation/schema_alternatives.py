"""Read what a part of a JSON schema allows: the forms of an answer, and the ways out of it."""

# Forms for humans, controls and the embedded respondent read the schema of a request in this way. A
# field of the type `int | Literal["cannot_say"] | None` is a number for all of them.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.conversation.answer_types import WAYS_OUT
from folkmoot.json_text import Schema

_JOINING_KEYS = ("$ref", "anyOf", "oneOf", "allOf")
# A schema may refer to itself without end.
_MAX_DEPTH = 12


def single_alternative(
    node: Mapping[str, Any], definitions: Mapping[str, Any]
) -> tuple[Schema, tuple[Any, ...]]:
    """Return the only alternative of a part of a schema, and the values of its ways out.

    If several alternatives hold answers, the result is the part itself without ways out.
    """
    alternatives, ways_out = read_alternatives(node, definitions)
    return (alternatives[0], ways_out) if len(alternatives) == 1 else (dict(node), ())


def read_alternatives(
    node: Mapping[str, Any], definitions: Mapping[str, Any]
) -> tuple[list[Schema], tuple[Any, ...]]:
    """Return the alternatives that a part of a schema allows, and the values of its ways out.

    - `definitions`: the `$defs` of the schema.

    A way out is an alternative that holds no answer: null, or words such as `declined`. If no
    alternative holds answers, all of them are returned as alternatives.
    """
    # References are followed and unions are flattened. Each alternative has the description and the
    # other keys that the node states beside its union.
    alternatives = _flatten(node, definitions)
    ways_out = [_only_ways_out(alternative) for alternative in alternatives]
    answers = [
        alternative for alternative, ways in zip(alternatives, ways_out, strict=True) if not ways
    ]
    if not answers:
        return alternatives, ()
    return answers, tuple(way for ways in ways_out for way in ways)


def is_way_out(value: object) -> bool:
    """Return whether a value of an answer is null or a word such as `declined`."""
    return value is None or (isinstance(value, str) and value in WAYS_OUT)


def _flatten(
    node: Mapping[str, Any], definitions: Mapping[str, Any], depth: int = 0
) -> list[Schema]:
    if node.keys().isdisjoint(_JOINING_KEYS):
        return [dict(node)]
    own = {key: value for key, value in node.items() if key not in _JOINING_KEYS}
    inner = node.get("anyOf") or node.get("oneOf")
    if isinstance(node.get("$ref"), str):
        inner = [definitions.get(node["$ref"].rpartition("/")[2], {})]
    # Earlier versions of pydantic wrap a reference in `allOf` to state keys beside it.
    elif len(node.get("allOf", ())) == 1:
        inner = node["allOf"]
    if not isinstance(inner, list) or depth == _MAX_DEPTH:
        return [own]
    return [
        {**alternative, **own}
        for part in inner
        if isinstance(part, Mapping)
        for alternative in _flatten(part, definitions, depth + 1)
    ]


def _only_ways_out(node: Schema) -> tuple[Any, ...]:
    # The values that a node allows if none of them is an answer, otherwise empty.
    if node.get("type") == "null":
        return (None,)
    values = node.get("enum") or ([node["const"]] if "const" in node else [])
    return tuple(values) if all(map(is_way_out, values)) else ()
