"""Build the JSON schemas of answers in the form that is sent to an endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from folkmoot.json_text import Schema


def json_schema(
    model: type[BaseModel],
    options: Mapping[str, Sequence[str]] | None = None,
    excluded_fields: tuple[str, ...] = (),
) -> Schema:
    """Return the JSON schema of a model, to be sent to an endpoint.

    - `options`: the allowed texts of each field.
    - `excluded_fields`: the fields that are left out.

    Callers must not change the returned schema. Raises TypeError if `model` is no pydantic class.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        given = model.__name__ if isinstance(model, type) else repr(model)[:60]
        raise TypeError(f"Json(Model) needs a subclass of BaseModel, and {given} is none")
    # The schema is cached because building it takes milliseconds.
    allowed = tuple((path, tuple(texts)) for path, texts in (options or {}).items())
    return _build_schema(model, allowed, tuple(excluded_fields))


@lru_cache(maxsize=4096)
def _build_schema(
    model: type[BaseModel],
    options: tuple[tuple[str, tuple[str, ...]], ...],
    excluded_fields: tuple[str, ...],
) -> Schema:
    schema = _with_definitions_by_title(
        model.model_json_schema(schema_generator=_SentSchemaGenerator)
    )
    definitions = schema.get("$defs", {})
    for path, texts in options:
        parent, name = _find_parent_object(schema, definitions, path)
        node = parent["properties"][name]
        resolve_node(node, definitions)["enum"] = list(texts)
    for path in excluded_fields:
        parent, name = _find_parent_object(schema, definitions, path)
        parent["properties"].pop(name, None)
        parent["required"] = [
            required_name for required_name in parent.get("required", []) if required_name != name
        ]
    return _remove_unused_definitions(schema)


class _SentSchemaGenerator(GenerateJsonSchema):
    # Leaves out the docstrings of models with a fixed title in `model_config` (see
    # `answer_types.pin_schema`).

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        sent_schema = super().model_schema(schema)
        config = schema["cls"].model_config
        extra = config.get("json_schema_extra")
        if config.get("title") and not (isinstance(extra, dict) and "description" in extra):
            sent_schema.pop("description", None)
        return sent_schema


def _with_definitions_by_title(schema: Schema) -> Schema:
    definitions = schema.get("$defs", {})
    titles = {name: str(body.get("title", name)) for name, body in definitions.items()}
    # Two models may share a title. Renaming would merge their definitions, so keep the class names.
    if list(titles) == list(titles.values()) or len(set(titles.values())) < len(titles):
        return schema
    refs = {f"#/$defs/{name}": f"#/$defs/{title}" for name, title in titles.items()}

    def rename_references(node: Any) -> Any:
        if isinstance(node, list):
            return [rename_references(part) for part in node]
        if not isinstance(node, dict):
            return node
        return {
            key: refs.get(part, part) if key == "$ref" else rename_references(part)
            for key, part in node.items()
        }

    bodies_by_title = {titles[name]: body for name, body in definitions.items()}
    # Sort the definitions, so that the sent schema does not depend on class names.
    renamed: Schema = rename_references(
        schema | {"$defs": {name: bodies_by_title[name] for name in sorted(bodies_by_title)}}
    )
    return renamed


def _find_parent_object(schema: Schema, definitions: Schema, path: str) -> tuple[Schema, str]:
    # Returns the object schema around the field, and the field's name. `path` is dotted.
    *parent_names, name = path.split(".")
    for parent_name in parent_names:
        schema = resolve_node(schema["properties"][parent_name], definitions)
    return schema, name


def resolve_node(node: Schema, definitions: Schema) -> Schema:
    """Return the schema of the values that a part of a schema allows.

    It is the target of a reference, the item of a list, or the alternative of a nullable field that
    is not null.
    """
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


def object_schema(title: str, parts: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object.

    `parts`: the schema of each property.
    """
    # Properties with equal schemas refer to one shared definition.
    definitions: Schema = {}
    properties: Schema = {}
    bodies = {
        name: {key: value for key, value in part.items() if key != "$defs"}
        for name, part in parts.items()
    }
    for name, body in bodies.items():
        definitions.update(parts[name].get("$defs", {}))
        shared_name = str(body.get("title", "Part")).replace(" ", "")
        if sum(other == body for other in bodies.values()) == 1:
            properties[name] = body
        # Another schema may already be defined under this title. It is then written out in place.
        elif definitions.setdefault(shared_name, body) == body:
            properties[name] = {"$ref": f"#/$defs/{shared_name}"}
        else:
            properties[name] = body
    schema = {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(parts),
    }
    return schema | ({"$defs": definitions} if definitions else {})


def _remove_unused_definitions(schema: Schema) -> Schema:
    definitions = schema.pop("$defs", {})
    used: set[str] = set()
    waiting = _referenced_definitions(schema)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting |= _referenced_definitions(definitions[name])
    used_definitions = {name: body for name, body in definitions.items() if name in used}
    return schema | ({"$defs": used_definitions} if used_definitions else {})


def _referenced_definitions(node: object) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_referenced_definitions, node))
    if not isinstance(node, dict):
        return set()
    own_reference = (
        {node["$ref"].removeprefix("#/$defs/")} if isinstance(node.get("$ref"), str) else set()
    )
    return own_reference.union(*map(_referenced_definitions, node.values()))
