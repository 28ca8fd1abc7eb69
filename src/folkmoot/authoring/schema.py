"""JSON Schema (draft 2020-12) of study files, for editors and validators.

It refuses what the loader refuses for reasons of shape, and takes the plain words that the loader
takes: a number where text is wanted, `yes`, `no`, `on` and `off` where true or false is wanted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from folkmoot.engine.study.study import Study, registered_studies
from folkmoot.field_notes import ESSENTIAL, UNIT

DIALECT = GenerateJsonSchema.schema_dialect
SWITCH_WORDS = [
    function(word) for word in ("yes", "no", "on", "off") for function in (str.lower, str.title)
]

Node = dict[str, Any]  # a JSON Schema or a part of one


class _StudyFileSchema(GenerateJsonSchema):
    """Pydantic's schema of a configuration, with the words that study files may use for values."""

    def str_schema(self, schema: core_schema.StringSchema) -> Node:
        return {**super().str_schema(schema), "type": ["string", "number"]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> Node:
        return {"anyOf": [super().bool_schema(schema), {"enum": SWITCH_WORDS}]}

    def dict_schema(self, schema: core_schema.DictSchema) -> Node:
        made = super().dict_schema(schema)
        if schema.get("keys_schema", {}).get("type") == "int":
            made["propertyNames"] = {"pattern": "^-?[0-9]+$"}
        return made

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def annotated_schema(config: type[BaseModel]) -> Node:
    """The schema of a configuration class, with the notes that keys and templates are made from."""
    return config.model_json_schema(schema_generator=_StudyFileSchema)


def study_file_schema(study: Study) -> Node:
    """The schema of a study type's files, as `folkmoot schema` writes it."""
    made = annotated_schema(study.config)
    for node in nodes_in(made):
        node.pop(ESSENTIAL, None)
        if unit := node.pop(UNIT, ""):
            node["description"] = with_unit(node.get("description", ""), unit)
    if (
        study.name in registered_studies()
    ):  # else the file names the Python file that defines the type
        made["properties"]["study"] |= {"enum": [study.name]}
    return {"$schema": DIALECT, **made, "title": f"Folkmoot study file: {study.title}"}


def schema_file_name(study: Study) -> str:
    """The name of the file of a study type's JSON Schema."""
    return f"{study.name}.schema.json"


def schema_text(study: Study) -> str:
    """The content of that file."""
    return json.dumps(study_file_schema(study), indent=2, ensure_ascii=False) + "\n"


def with_unit(description: str, unit: str) -> str:
    """A description and the unit of its values."""
    return f"{description} ({unit})" if unit else description


def nodes_in(value: object) -> Iterator[Node]:
    """All objects inside a schema, the outermost first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for below in value:
            yield from nodes_in(below)


def variants_of(node: Mapping[str, Any], definitions: Mapping[str, Node]) -> Iterator[Node]:
    """The alternatives of a node, references followed and nested alternatives taken apart."""
    if "$ref" in node:
        yield from variants_of(definitions[node["$ref"].rpartition("/")[2]], definitions)
    elif alternatives := node.get("anyOf") or node.get("oneOf"):
        for each in alternatives:
            yield from variants_of(each, definitions)
    else:
        yield dict(node)
