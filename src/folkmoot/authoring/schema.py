"""The JSON Schema (draft 2020-12) of study files, for editors and validators."""
# The schema rejects wrong keys and wrong types of values, as the loader does. Like the loader, it
# accepts a number for a text, and words such as `yes` and `OFF` for a boolean.

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from folkmoot.engine.settings.yaml_tree import BOOLEAN_WORDS
from folkmoot.engine.study.study import Study, registered_studies
from folkmoot.field_notes import ESSENTIAL, LABEL, UNIT

DIALECT = GenerateJsonSchema.schema_dialect

# A JSON Schema or a part of one.
Node = dict[str, Any]


def _in_any_case(word: str) -> str:
    # Regular expressions of JSON Schema have no flag to ignore case.
    return "".join(f"[{letter.upper()}{letter}]" for letter in word)


# Texts that the loader reads as a boolean. Every boolean of a study file accepts them.
SWITCH_WORDS: Node = {
    "type": "string",
    "pattern": f"^({'|'.join(map(_in_any_case, BOOLEAN_WORDS))})$",
}


class _StudyFileSchema(GenerateJsonSchema):
    # Study files may write a number for a text, and words such as `yes` for a boolean.
    def str_schema(self, schema: core_schema.StringSchema) -> Node:
        return {**super().str_schema(schema), "type": ["string", "number"]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> Node:
        return {"anyOf": [super().bool_schema(schema), dict(SWITCH_WORDS)]}

    def dict_schema(self, schema: core_schema.DictSchema) -> Node:
        generated = super().dict_schema(schema)
        # JSON has only texts as keys, so integer keys become a pattern.
        if schema.get("keys_schema", {}).get("type") == "int":
            generated["propertyNames"] = {"pattern": "^-?[0-9]+$"}
        return generated

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def annotated_schema(config: type[BaseModel]) -> Node:
    """Return the schema of a configuration class, with the unit and title of each field."""
    return config.model_json_schema(schema_generator=_StudyFileSchema)


def study_file_schema(study: Study) -> Node:
    """Return the schema of a study type's files, as `folkmoot schema` writes it."""
    generated = annotated_schema(study.config)
    for node in nodes_in(generated):
        # The notes are no keywords of JSON Schema, and strict validators reject them.
        node.pop(ESSENTIAL, None)
        node.pop(LABEL, None)
        if unit := node.pop(UNIT, ""):
            node["description"] = with_unit(node.get("description", ""), unit)
    # For a type that is not registered, the key `study` names the Python file that defines it.
    if study.name in registered_studies():
        generated["properties"]["study"] |= {"enum": [study.name]}
    return {"$schema": DIALECT, **generated, "title": f"Folkmoot study file: {study.title}"}


def schema_file_name(study: Study) -> str:
    """Return the name of the file with the JSON Schema of a study type."""
    return f"{study.name}.schema.json"


def schema_text(study: Study) -> str:
    """Return the content of the file with the JSON Schema of a study type."""
    return json.dumps(study_file_schema(study), indent=2, ensure_ascii=False) + "\n"


def with_unit(description: str, unit: str) -> str:
    """Return a description followed by its unit."""
    # An empty unit adds nothing.
    return f"{description} ({unit})" if unit else description


def nodes_in(value: object) -> Iterator[Node]:
    """Yield all JSON objects inside a schema, the outermost first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from nodes_in(item)


def variants_of(node: Mapping[str, Any], definitions: Mapping[str, Node]) -> Iterator[Node]:
    """Yield the alternatives, such as text or null, that a part of a JSON Schema allows."""
    # References are resolved and unions are flattened.
    if "$ref" in node:
        yield from variants_of(definitions[node["$ref"].rpartition("/")[2]], definitions)
    elif alternatives := node.get("anyOf") or node.get("oneOf"):
        for alternative in alternatives:
            yield from variants_of(alternative, definitions)
    else:
        yield dict(node)
