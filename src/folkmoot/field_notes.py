"""Notes on the fields of configuration classes, beside what pydantic knows of a field.

They are written into the JSON Schema of a study file, from which tables of keys and templates are
made (`folkmoot.authoring`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import JsonValue, WithJsonSchema

UNIT = "x-unit"
ESSENTIAL = "x-essential"

# In JSON Schema: text that is no number, in alternatives to a number.
Word = Annotated[str, WithJsonSchema({"type": "string"})]


def field_notes(*, unit: str = "", essential: bool = False) -> dict[str, JsonValue]:
    """Return the notes of a field, for `Field(json_schema_extra=…)`.

    `unit`: the unit of its values. `essential`: a new study file sets it.
    """
    notes: dict[str, JsonValue] = {}
    if unit:
        notes[UNIT] = unit
    if essential:
        notes[ESSENTIAL] = True
    return notes
