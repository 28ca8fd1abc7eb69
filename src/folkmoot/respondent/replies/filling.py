"""JSON by its schema: every numeric and categorical field has a stable opinion behind it, every
text is about the study's own topic."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from folkmoot.conversation.answer_types import DECLINED, WAYS_OUT
from folkmoot.respondent.mind.mind import Mind

_MAX_DEPTH = 12
Schema = Mapping[str, Any]


def filled(mind: Mind, given: object, *, known: bool = False) -> object:
    """An object that validates against the schema asked for: what is given, where it fits, and the
    rest by form. `known`: a study's own part has spoken, so that the answer counts as read."""
    schema = mind.schema or {"type": "object", "properties": {"answer": {"type": "string"}}}
    if not mind.person and not known:
        mind.unread()
    return _Filler(schema, mind).fill(schema, "", given)


class _Filler:
    def __init__(self, root: Schema, mind: Mind) -> None:
        self._defs: Schema = root.get("$defs") or root.get("definitions") or {}
        self._mind = mind
        self._parts = tuple(_parts_of(root))

    def fill(self, schema: Schema, name: str, given: object, depth: int = 0) -> object:
        """A value for a schema; `name` says what it is about (the names of its fields)."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        kind = type_of(schema)
        if depth > _MAX_DEPTH:
            return {"object": {}, "array": [], "string": "", "boolean": False}.get(kind, 0)
        if kind == "object":
            return self._object(schema, name, given if isinstance(given, Mapping) else {}, depth)
        if kind == "array":
            return self._array(schema, name, given, depth)
        if given is not None and fits(given, schema, kind):
            return given
        return self._plain(schema, kind, name)

    def _resolved(self, schema: Schema) -> Schema:
        """The schema behind a reference; of alternatives the first that is not null."""
        for _ in range(_MAX_DEPTH):
            own = {k: v for k, v in schema.items() if k not in {"$ref", "allOf", "anyOf", "oneOf"}}
            if "$ref" in schema:
                schema = {**self._defs.get(schema["$ref"].rsplit("/", 1)[-1], {}), **own}
            elif schema.get("allOf"):
                schema = {**schema["allOf"][0], **own}
            elif choices := schema.get("anyOf") or schema.get("oneOf"):
                real = [c for c in choices if c.get("type") != "null"] or list(choices)
                schema = {**real[0], **own, "nullable": len(real) < len(choices)}
            else:
                break
        return schema

    def _object(self, schema: Schema, name: str, given: Mapping[str, object], depth: int) -> object:
        fields: Schema = schema.get("properties") or {}
        out = {
            key: None
            if key in given and given[key] is None and self._resolved(inner).get("nullable")
            else self.fill(inner, f"{name} {key}", given.get(key), depth + 1)
            for key, inner in fields.items()
        }
        free = schema.get("additionalProperties")
        if isinstance(free, Mapping):
            entries = given or dict.fromkeys(self._mind.options)
            fields = {**dict.fromkeys(entries, free), **fields}
            rest = {k: v for k, v in entries.items() if k not in out}
            out |= {k: self.fill(free, f"{name} {k}", v, depth + 1) for k, v in rest.items()}
        return out if given else out | self._shared_out(out, fields)

    def _shared_out(self, out: Mapping[str, Any], fields: Schema) -> dict[str, object]:
        """The numbers of an object in proportion, if the study says what they add up to."""
        whole = self._mind.reading.total
        kinds = {k: type_of(s) for k, s in fields.items() if type_of(s) in {"integer", "number"}}
        least = {k: max(0.0, limits(fields[k], kinds[k])[0]) for k in kinds}
        some = [k for k in kinds if whole and limits(fields[k], kinds[k])[1] >= whole]
        if whole is None or len(some) < 2 or sum(least[k] for k in some) > whole:
            return {}
        step = 1.0 if "integer" in kinds.values() else 0.01
        over, weights = whole - sum(least[k] for k in some), sum(out[k] + step for k in some)
        shares = {k: least[k] + over * (out[k] + step) / weights for k in some}
        shared = {k: math.floor(share / step) * step for k, share in shares.items()}
        left = round((whole - sum(shared.values())) / step)
        for k in sorted(some, key=lambda k: shared[k] - shares[k])[:left]:
            shared[k] += step
        return {k: round(v) if kinds[k] == "integer" else round(v, 2) for k, v in shared.items()}

    def _array(self, schema: Schema, name: str, given: object, depth: int) -> list[object]:
        low = max(int(schema.get("minItems", 0)), 0)
        high = int(schema.get("maxItems", 1000))
        if schema.get("prefixItems"):
            inners = list(schema["prefixItems"])
        else:
            count = len(given) if isinstance(given, list) else max(low, min(2, high))
            inners = [schema.get("items") or {"type": "string"}] * max(low, min(count, high))
        entries = (
            [*given, *[None] * len(inners)] if isinstance(given, list) else [None] * len(inners)
        )
        return [
            self.fill(inner, f"{name} {n}" if n else name, entry, depth + 1)
            for n, (inner, entry) in enumerate(zip(inners, entries, strict=False))
        ]

    def _plain(self, schema: Schema, kind: str, name: str) -> object:
        """A valid value from the person's opinions: the question and the field's name decide."""
        mind = self._mind
        about, part = self._asked(schema, name)
        if schema.get("enum"):
            return self._of_enumeration(list(schema["enum"]), about, part)
        if kind == "boolean":
            return name.split()[-1:] != [DECLINED] and mind.judgement(about, part) > 0
        if kind in {"integer", "number"}:
            rating = mind.judgement(about, part)
            return number_within(schema, kind, rating)
        if kind == "null":
            return None
        return fit_text(mind.say(n=1), schema)

    def _asked(self, schema: Schema, name: str) -> tuple[str, str]:
        """What a field asks, and on which part of it: of one field the matter that is asked about
        and the field's own words; of several the same matter and the part that the field names."""
        about = self._mind.reading.about
        words = f"{name} {schema.get('description', '')}".replace("_", " ")
        return (about, words) if len(self._parts) > 1 else (f"{words} {about}", "")

    def _of_enumeration(self, values: list[object], about: str, part: str) -> object:
        mind = self._mind
        # The respondent always holds an opinion: it takes a way out only if nothing else is left.
        values = [v for v in values if v not in WAYS_OUT] or values
        texts = tuple(str(v) for v in values)
        if set(texts) <= set(mind.options):
            return values[texts.index(mind.choose(texts, about))]
        if rated := mind.placed(texts, about, part):
            return values[texts.index(rated)]
        score = [mind.rating(about, t, part) for t in texts]
        return values[score.index(max(score))]


def _parts_of(schema: Schema) -> Iterator[str]:
    """The fields of a schema, on any level, that are answered by a number or a category."""
    for key, inner in schema.items():
        if isinstance(inner, Mapping):
            if key == "properties":
                plain = ("string", "object", "array")
                asked = {k: s for k, s in inner.items() if k != DECLINED}
                yield from (k for k, s in asked.items() if s.get("enum") or type_of(s) not in plain)
            yield from _parts_of(inner)


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind is None:
        if "properties" in schema:
            return "object"
        if "items" in schema:
            return "array"
        values = schema.get("enum") or ["text"]
        return {bool: "boolean", int: "integer", float: "number"}.get(type(values[0]), "string")
    return str(kind)


def fits(value: Any, schema: Schema, kind: str) -> bool:
    """Whether a plain value validates against its schema."""
    if schema.get("enum"):
        return value in schema["enum"]
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in {"integer", "number"}:
        right = isinstance(value, int) if kind == "integer" else isinstance(value, (int, float))
        low, high = limits(schema, kind)
        return right and not isinstance(value, bool) and low <= value <= high
    if not isinstance(value, str) or kind != "string":
        return False
    if schema.get("pattern") and not re.search(schema["pattern"], value):
        return False
    return int(schema.get("minLength", 0)) <= len(value) <= int(schema.get("maxLength", 10**9))


def limits(schema: Schema, kind: str) -> tuple[float, float]:
    """The bounds of a number, infinite where the schema has none."""
    step = 1 if kind == "integer" else 1e-6
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    low = float("-inf") if low is None else low + step * ("minimum" not in schema)
    high = float("inf") if high is None else high - step * ("maximum" not in schema)
    return low, high


def number_within(schema: Schema, kind: str, rating: float) -> int | float:
    """A leaning in −1 … 1 as a number within the schema's bounds; a missing one is 100 away."""
    low, high = limits(schema, kind)
    if low == float("-inf"):
        low = 0.0 if high > 0 else high - 100
    if high == float("inf"):
        high = low + 100
    value = low + (high - low) * (rating + 1) / 2
    return round(value) if kind == "integer" else round(value, 4)


def fit_text(text: str, schema: Schema) -> str:
    text = text[: int(schema.get("maxLength", 10**9))]
    return text + "." * max(0, int(schema.get("minLength", 0)) - len(text))
