"""JSON answers that are valid according to a schema.

Numbers, booleans and choices agree with the opinions of the simulated person. Text fields get
sentences about the study's topic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from folkmoot.conversation.answer_types import DECLINED, WAYS_OUT
from folkmoot.conversation.schema_alternatives import read_alternatives
from folkmoot.respondent.mind.mind import SimulatedRespondent

# A recursive schema would never end. Below this depth values are empty.
_MAX_DEPTH = 12
Schema = Mapping[str, Any]


def fill_schema(mind: SimulatedRespondent, given: object, *, known: bool = False) -> object:
    """Return an object that is valid according to the schema of the request.

    - `given`: the fields that a function of the study type computed. Invalid fields are replaced.
    - `known`: True if a function of the study type gave this answer.
    """
    # Without such a function, a speaker without opinions (such as a moderator) does not really
    # answer the question, and `mark_unread` records that.
    schema = mind.schema or {"type": "object", "properties": {"answer": {"type": "string"}}}
    if not mind.person and not known:
        mind.mark_unread()
    return _Filler(schema, mind).fill_schema(schema, "", given)


class _Filler:
    def __init__(self, root: Schema, mind: SimulatedRespondent) -> None:
        self._defs: Schema = root.get("$defs") or root.get("definitions") or {}
        self._mind = mind
        self._parts = tuple(_parts_of(root))

    def fill_schema(self, schema: Schema, name: str, given: object, depth: int = 0) -> object:
        # `given` is a value that the study type's functions computed, or None. `name` is the path
        # of field names to the value. The person's opinion depends on these names.
        schema = self._resolve_schema(schema)
        if "const" in schema:
            return schema["const"]
        kind = type_of(schema)
        if depth > _MAX_DEPTH:
            return {"object": {}, "array": [], "string": "", "boolean": False}.get(kind, 0)
        if kind == "object":
            return self._fill_object(
                schema, name, given if isinstance(given, Mapping) else {}, depth
            )
        if kind == "array":
            return self._fill_array(schema, name, given, depth)
        if given is not None and fits_schema(given, schema, kind):
            return given
        return self._fill_scalar(schema, kind, name)

    def _resolve_schema(self, schema: Schema) -> Schema:
        # The first alternative that holds answers. `nullable` says whether null is a way out.
        alternatives, ways_out = read_alternatives(schema, self._defs)
        first = alternatives[0] if alternatives else {}
        return {**first, "nullable": True} if None in ways_out else first

    def _fill_object(
        self, schema: Schema, name: str, given: Mapping[str, object], depth: int
    ) -> object:
        fields: Schema = schema.get("properties") or {}
        values = {
            key: None
            if key in given
            and given[key] is None
            and self._resolve_schema(field_schema).get("nullable")
            else self.fill_schema(field_schema, f"{name} {key}", given.get(key), depth + 1)
            for key, field_schema in fields.items()
        }
        extra_schema = schema.get("additionalProperties")
        if isinstance(extra_schema, Mapping):
            # An object without fixed keys gets one entry per option.
            entries = given or dict.fromkeys(self._mind.options)
            fields = {**dict.fromkeys(entries, extra_schema), **fields}
            extra_entries = {key: entry for key, entry in entries.items() if key not in values}
            values |= {
                key: self.fill_schema(extra_schema, f"{name} {key}", value, depth + 1)
                for key, value in extra_entries.items()
            }
        return values if given else values | self._distribute_total(values, fields)

    def _distribute_total(self, values: Mapping[str, Any], fields: Schema) -> dict[str, object]:
        # Scaled to the sum that the answer type requires. {} if it requires no sum, or if the
        # bounds of the fields do not allow it.
        total = self._mind.reading.total
        kinds = {
            key: type_of(field)
            for key, field in fields.items()
            if type_of(field) in {"integer", "number"}
        }
        minimum_of = {key: max(0.0, number_limits(fields[key], kinds[key])[0]) for key in kinds}
        shared_keys = [
            key for key in kinds if total and number_limits(fields[key], kinds[key])[1] >= total
        ]
        if (
            total is None
            or len(shared_keys) < 2
            or sum(minimum_of[key] for key in shared_keys) > total
        ):
            return {}
        step = 1.0 if "integer" in kinds.values() else 0.01
        remainder, weights = (
            total - sum(minimum_of[key] for key in shared_keys),
            sum(values[key] + step for key in shared_keys),
        )
        shares = {
            key: minimum_of[key] + remainder * (values[key] + step) / weights for key in shared_keys
        }
        shared = {key: math.floor(share / step) * step for key, share in shares.items()}
        # Largest remainders: the steps lost by rounding down go to the fields that lost most.
        steps_left = round((total - sum(shared.values())) / step)
        for key in sorted(shared_keys, key=lambda key: shared[key] - shares[key])[:steps_left]:
            shared[key] += step
        return {
            key: round(value) if kinds[key] == "integer" else round(value, 2)
            for key, value in shared.items()
        }

    def _fill_array(self, schema: Schema, name: str, given: object, depth: int) -> list[object]:
        low = max(int(schema.get("minItems", 0)), 0)
        high = int(schema.get("maxItems", 1000))
        if schema.get("prefixItems"):
            item_schemas = list(schema["prefixItems"])
        else:
            count = len(given) if isinstance(given, list) else max(low, min(2, high))
            item_schemas = [schema.get("items") or {"type": "string"}] * max(low, min(count, high))
        entries = (
            [*given, *[None] * len(item_schemas)]
            if isinstance(given, list)
            else [None] * len(item_schemas)
        )
        return [
            self.fill_schema(item_schema, f"{name} {n}" if n else name, entry, depth + 1)
            for n, (item_schema, entry) in enumerate(zip(item_schemas, entries, strict=False))
        ]

    def _fill_scalar(self, schema: Schema, kind: str, name: str) -> object:
        mind = self._mind
        about, part = self._field_question(schema, name)
        if schema.get("enum"):
            return self._choose_enumerated(list(schema["enum"]), about, part)
        if kind == "boolean":
            return name.split()[-1:] != [DECLINED] and mind.draw_judgement(about, part) > 0
        if kind in {"integer", "number"}:
            rating = mind.draw_judgement(about, part)
            return number_within(schema, kind, rating)
        if kind == "null":
            return None
        return fit_text(mind.compose_reasons(count=1), schema)

    def _field_question(self, schema: Schema, name: str) -> tuple[str, str]:
        # The two texts from which the person's opinion is drawn: the question and the words of the
        # field. If the form has only one such field, the first text holds both and the second is
        # "".
        about = self._mind.reading.about
        words = f"{name} {schema.get('description', '')}".replace("_", " ")
        return (about, words) if len(self._parts) > 1 else (f"{words} {about}", "")

    def _choose_enumerated(self, values: list[object], about: str, part: str) -> object:
        mind = self._mind
        # The respondent always holds an opinion: it takes a way out only if nothing else is left.
        values = [value for value in values if value not in WAYS_OUT] or values
        texts = tuple(str(value) for value in values)
        if set(texts) <= set(mind.options):
            return values[texts.index(mind.choose_option(texts, about))]
        if rated_text := mind.choose_on_scale(texts, about, part):
            return values[texts.index(rated_text)]
        ratings = [mind.draw_rating(about, text, part) for text in texts]
        return values[ratings.index(max(ratings))]


def _parts_of(schema: Schema) -> Iterator[str]:
    # The names of the numeric and categorical fields, also of nested ones.
    for key, subschema in schema.items():
        if isinstance(subschema, Mapping):
            if key == "properties":
                plain_types = ("string", "object", "array")
                asked_fields = {
                    key: field_schema for key, field_schema in subschema.items() if key != DECLINED
                }
                yield from (
                    key
                    for key, field_schema in asked_fields.items()
                    if field_schema.get("enum") or type_of(field_schema) not in plain_types
                )
            yield from _parts_of(subschema)


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((key for key in kind if key != "null"), "null")
    if kind is None:
        if "properties" in schema:
            return "object"
        if "items" in schema:
            return "array"
        values = schema.get("enum") or ["text"]
        return {bool: "boolean", int: "integer", float: "number"}.get(type(values[0]), "string")
    return str(kind)


def fits_schema(value: Any, schema: Schema, kind: str) -> bool:
    """Return whether a text, number or boolean is valid according to the schema."""
    if schema.get("enum"):
        return value in schema["enum"]
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in {"integer", "number"}:
        has_type = isinstance(value, int) if kind == "integer" else isinstance(value, (int, float))
        low, high = number_limits(schema, kind)
        return has_type and not isinstance(value, bool) and low <= value <= high
    if not isinstance(value, str) or kind != "string":
        return False
    if schema.get("pattern") and not re.search(schema["pattern"], value):
        return False
    return int(schema.get("minLength", 0)) <= len(value) <= int(schema.get("maxLength", 10**9))


def number_limits(schema: Schema, kind: str) -> tuple[float, float]:
    """Return the lower and the upper bound that the schema sets for a number.

    A missing bound is infinite.
    """
    step = 1 if kind == "integer" else 1e-6
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    low = float("-inf") if low is None else low + step * ("minimum" not in schema)
    high = float("inf") if high is None else high - step * ("maximum" not in schema)
    return low, high


def number_within(schema: Schema, kind: str, rating: float) -> int | float:
    """Convert a rating from −1 to 1 into a number within the bounds of the schema."""
    # A bound that the schema lacks is replaced by a default.
    low, high = number_limits(schema, kind)
    # Without a lower bound, use 0 if the upper bound is positive, or otherwise the upper bound
    # minus 100. Without an upper bound, use the lower bound plus 100.
    if low == float("-inf"):
        low = 0.0 if high > 0 else high - 100
    if high == float("inf"):
        high = low + 100
    value = low + (high - low) * (rating + 1) / 2
    return round(value) if kind == "integer" else round(value, 4)


def fit_text(text: str, schema: Schema) -> str:
    text = text[: int(schema.get("maxLength", 10**9))]
    return text + "." * max(0, int(schema.get("minLength", 0)) - len(text))
