"""Notes on the fields of configuration classes that pydantic has no place for.

They become part of the JSON Schema of a study file. `folkmoot.authoring` makes tables of keys and
templates from that schema.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import JsonValue, WithJsonSchema

UNIT = "x-unit"
ESSENTIAL = "x-essential"

# Text that is not a number, for unions with a number. The schema of study files otherwise accepts
# numbers where text is expected.
Word = Annotated[str, WithJsonSchema({"type": "string"})]


def field_notes(*, unit: str = "", essential: bool = False) -> dict[str, JsonValue]:
    """Return the notes of a field, for `Field(json_schema_extra=…)`.

    `unit` is the unit of its values. `essential` means that a new study file sets the field.
    """
    notes: dict[str, JsonValue] = {}
    if unit:
        notes[UNIT] = unit
    if essential:
        notes[ESSENTIAL] = True
    return notes
