"""The keys of a study file as data: default, values, description, and nested keys.

The templates, and the tables of keys in `docs/`, are made from this data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from folkmoot.authoring.schema import (
    SWITCH_WORDS,
    Node,
    annotated_schema,
    variants_of,
    with_unit,
)
from folkmoot.field_notes import ESSENTIAL, UNIT
from folkmoot.hints import number_text

# The key has no default or no example. None is a valid default, so it cannot mark this.
UNSET: Any = object()
# How nested keys are reached: directly, in each entry of a list, or under each name of a mapping.
Nesting = Literal["group", "list", "names"]
_SEPARATORS: Mapping[Nesting, str] = {"group": ".", "list": "[].", "names": ".*."}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a study file."""

    name: str
    # `default` and `example` are UNSET if the key has none.
    default: Any
    example: Any
    values: str
    description: str
    # True if a new study file sets the key.
    essential: bool
    nesting: Nesting = "group"
    # The nested keys of a group, of each list entry, or of each named group.
    inner: tuple[Key, ...] = ()

    @property
    def required(self) -> bool:
        """True if a study file must contain the key."""
        return self.default is UNSET


def keys_of(config: type[BaseModel]) -> tuple[Key, ...]:
    """Return the keys of a configuration class in the order of its fields."""
    schema = annotated_schema(config)
    return _keys_in(schema, schema.get("$defs", {}))


def walk_keys(keys: tuple[Key, ...], parent_path: str = "") -> Iterator[tuple[str, Key]]:
    """Yield all keys with their dotted paths, such as `topic.options`."""
    # A group comes before the keys inside it. Further examples are `stimuli[].name` and
    # `guide.*.probes`.
    for key in keys:
        path = f"{parent_path}{key.name}"
        yield path, key
        yield from walk_keys(key.inner, path + _SEPARATORS[key.nesting])


def _keys_in(node: Mapping[str, Any], definitions: Mapping[str, Node]) -> tuple[Key, ...]:
    required = node.get("required", ())
    return tuple(
        _build_key(name, child, definitions, required=name in required)
        for name, child in node.get("properties", {}).items()
    )


def _build_key(name: str, node: Node, definitions: Mapping[str, Node], *, required: bool) -> Key:
    variants = list(variants_of(node, definitions))
    examples = node.get("examples") or [UNSET]
    nesting, inner = _nested_keys(variants, definitions)
    return Key(
        name,
        UNSET if required else _default_value(node, nesting, inner),
        examples[0],
        _describe_values(variants, definitions),
        with_unit(node.get("description", ""), node.get(UNIT, "")),
        bool(node.get(ESSENTIAL)),
        nesting,
        inner,
    )


def _default_value(node: Node, nesting: Nesting, inner: tuple[Key, ...]) -> Any:
    # pydantic's schema omits a default that a factory creates. The result is then an empty list, or
    # the defaults of the nested keys.
    if "default" in node:
        return node["default"]
    if nesting == "list" or node.get("type") == "array":
        return []
    inner = inner if nesting == "group" else ()
    return {key.name: key.default for key in inner if not key.required}


def _nested_keys(
    variants: list[Node], definitions: Mapping[str, Node]
) -> tuple[Nesting, tuple[Key, ...]]:
    for node in variants:
        if "properties" in node:
            return "group", _keys_in(node, definitions)
        containers: tuple[tuple[Nesting, Any], ...] = (
            ("list", node.get("items")),
            ("names", node.get("additionalProperties")),
        )
        for nesting, child in containers:
            if isinstance(child, dict):
                for variant in variants_of(child, definitions):
                    if "properties" in variant:
                        return nesting, _keys_in(variant, definitions)
    return "group", ()


def _describe_values(variants: list[Node], definitions: Mapping[str, Node]) -> str:
    # Words such as `yes` are accepted for every boolean, so they are not listed.
    descriptions = [
        _describe_type(variant, definitions) for variant in variants if variant != SWITCH_WORDS
    ]
    return " or ".join(dict.fromkeys(description for description in descriptions if description))


def _describe_type(node: Node, definitions: Mapping[str, Node]) -> str:
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    kind = node.get("type")
    if kind == "null":
        return ""
    if kind == "boolean":
        return "`true`, `false`"
    if kind in ("integer", "number"):
        noun = "whole number" if kind == "integer" else "number"
        return " ".join(filter(None, (noun, _describe_bounds(node))))
    if kind == "array":
        return _describe_list(node, definitions)
    return "group of keys" if kind == "object" else "text"


def _describe_list(node: Node, definitions: Mapping[str, Node]) -> str:
    entries = [variants_of(item, definitions) for item in node.get("prefixItems", [])]
    entries = entries or [variants_of(node["items"], definitions)] if "items" in node else entries
    inner = dict.fromkeys(_describe_values(list(entry), definitions) for entry in entries)
    plurals = {"text": "texts", "number": "numbers", "group of keys": "groups of keys"}
    min_items = node.get("minItems", 0)
    count = f"{min_items} or more " if min_items > 1 else ""
    if min_items and min_items == node.get("maxItems"):
        count = f"{min_items} "
    return f"list of {count}{' or '.join(plurals.get(kind, kind) for kind in inner)}"


def _describe_bounds(node: Node) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"from {number_text(low)} to {number_text(high)}"
    parts = [
        f"{words} {number_text(limit)}"
        for words, limit in (
            ("of at least", low),
            ("above", above),
            ("of at most" if above is None else "and at most", high),
            ("below", below),
        )
        if limit is not None
    ]
    return " ".join(parts)
