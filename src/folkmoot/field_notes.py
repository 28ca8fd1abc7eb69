"""Notes that pydantic has no place for, such as the unit of a configuration field."""
# The notes become part of the JSON Schema of a study file. `folkmoot.authoring` makes tables of
# keys and templates from the schema.

from __future__ import annotations

from typing import Annotated

from pydantic import JsonValue, WithJsonSchema

UNIT = "x-unit"
ESSENTIAL = "x-essential"
LABEL = "x-label"

# Text that is not a number, for unions with a number. The schema of study files otherwise accepts
# numbers where text is expected.
Word = Annotated[str, WithJsonSchema({"type": "string"})]


def field_notes(
    *, unit: str = "", essential: bool = False, label: str = ""
) -> dict[str, JsonValue]:
    """Return the notes on a configuration field. Pass them as `Field(json_schema_extra=…)`.

    - `unit`: the unit of the values.
    - `essential`: True if every newly created study file should contain the field.
    - `label`: the title of the field in a form.
    """
    notes: dict[str, JsonValue] = {}
    if unit:
        notes[UNIT] = unit
    if essential:
        notes[ESSENTIAL] = True
    if label:
        notes[LABEL] = label
    return notes
