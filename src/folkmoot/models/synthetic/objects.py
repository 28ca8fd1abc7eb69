"""JSON by its schema: the reply object that a JSON schema asks for, filled from the prompt.

Walks any JSON schema (pydantic's with $defs, enums, bounds). What each field means is taken from
its name and its neighbours; `skills` holds that knowledge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from folkmoot.models.request import Request
from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.mind import Mind, Minds, Situation
from folkmoot.models.synthetic.reading import Reading
from folkmoot.models.synthetic.skills import UNKNOWN, Skills

_MAX_DEPTH = 12
# Parts that somebody can only write once all have spoken.
_LATE = frozenset({"reflection", "reflect"})
Schema = Mapping[str, Any]


def json_reply(
    request: Request,
    reading: Reading,
    who: Persona,
    meet: Callable[..., Persona],
    knobs: Knobs,
    seed: int,
    address: str,
) -> str:
    """The JSON text of an object that validates against the request's schema."""
    schema = request.schema or schema_of_example(reading.prompt)
    minds = Minds(Situation(reading, meet, knobs, seed, address), who)
    filler = Filler(schema, minds)
    return json.dumps(filler.fill(schema, "", {}), ensure_ascii=False)


class Filler:
    """Fills one schema. Siblings filled before are seen by those after (`around`)."""

    def __init__(self, root: Schema, minds: Minds) -> None:
        self._defs: Mapping[str, Any] = root.get("$defs") or root.get("definitions") or {}
        self._minds = minds
        self._take(minds.main)

    def _take(self, mind: Mind) -> None:
        """From here on the values are this person's."""
        self._skills = Skills(mind)
        self._draws = mind.draws

    def fill(self, schema: Schema, name: str, around: dict[str, Any], depth: int = 0) -> Any:
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        kind = _type(schema)
        if depth > _MAX_DEPTH:
            return {"object": {}, "array": [], "string": "", "boolean": False}.get(kind, 0)
        if kind == "object":
            return self._object(schema, name, around, depth)
        if kind == "array":
            return self._array(schema, name, around, depth)
        value = self._skills.value(name, schema, around)
        if value is UNKNOWN or not _fits(value, schema, kind):
            value = self._plain(schema, kind, name, around)
        return value

    def _resolve(self, schema: Schema) -> Schema:
        """The schema behind a reference; of alternatives the first that is not null."""
        for _ in range(_MAX_DEPTH):
            if "$ref" in schema:
                schema = {**self._defs.get(schema["$ref"].rsplit("/", 1)[-1], {}), **_own(schema)}
            elif schema.get("allOf"):
                schema = {**schema["allOf"][0], **_own(schema)}
            elif schema.get("anyOf") or schema.get("oneOf"):
                choices = schema.get("anyOf") or schema.get("oneOf") or []
                real = [c for c in choices if c.get("type") != "null"] or list(choices)
                nullable = len(real) < len(choices)
                schema = {**real[0], **_own(schema), **({"nullable": True} if nullable else {})}
            else:
                break
        return schema

    def _object(self, schema: Schema, name: str, around: dict[str, Any], depth: int) -> Any:
        fields: Mapping[str, Any] = schema.get("properties") or {}
        if not fields:
            return self._mapping(schema, name, around, depth)
        people = {key: mind for key in fields if (mind := self._minds.of(key)) is not None}
        if people and len(people) == len(fields):
            return self._parts(fields, people, depth)
        out: dict[str, Any] = {}
        seen = {**around, "#in": name}
        entry = self._skills.object_entry(name)
        if entry is not None:
            if not entry and schema.get("nullable"):
                return None
            seen["#entry"] = entry
        for key in self._skills.order(fields):
            value = self.fill(fields[key], key, {**seen, **out}, depth + 1)
            out[key] = value
        return {key: out[key] for key in fields}

    def _parts(
        self, fields: Mapping[str, Any], people: Mapping[str, Mind], depth: int
    ) -> dict[str, Any]:
        """The part of each of several people, each from their own mind, in two passes."""
        schemas = {key: self._resolve(fields[key]) for key in people}
        out: dict[str, Any] = {key: {} for key in people}
        for late in (False, True):
            for key, mind in people.items():
                self._take(mind)
                for part, schema in (schemas[key].get("properties") or {}).items():
                    if (part in _LATE) == late:
                        out[key][part] = self.fill(schema, part, dict(out[key]), depth + 1)
            for key, mind in people.items():
                spoken = {k: said for k, p in out.items() if k != key and (said := _spoken(p))}
                mind.heard = {**mind.heard, **spoken}
        return out

    def _mapping(self, schema: Schema, name: str, around: dict[str, Any], depth: int) -> Any:
        """A free mapping: one entry per member or item that the prompt names."""
        inner = schema.get("additionalProperties")
        if not isinstance(inner, Mapping):
            return {}
        keys = self._skills.mapping_keys(name)
        return {k: self.fill(inner, name, {**around, "#key": k}, depth + 1) for k in keys}

    def _array(self, schema: Schema, name: str, around: dict[str, Any], depth: int) -> list[Any]:
        inner = self._resolve(schema.get("items") or {"type": "string"})
        if schema.get("prefixItems"):
            return [self.fill(s, name, around, depth + 1) for s in schema["prefixItems"]]
        fields = tuple(inner.get("properties") or ())
        low = int(schema.get("minItems", 0))
        high = int(schema.get("maxItems", 1000))
        known = self._skills.elements(name, fields, inner, around)
        if known is not None and _type(inner) not in {"object", "array"}:
            values = [v for v in known if _fits(v, inner, _type(inner))][:high]
            while len(values) < low:
                values.append(self._plain(inner, _type(inner), name, around))
            return values
        entries = known if known is not None else [{} for _ in range(self._draws.between(1, 2))]
        entries = list(entries)[:high] + [{} for _ in range(max(0, low - len(entries)))]
        out = []
        for at, entry in enumerate(entries):
            about = entry if isinstance(entry, dict) else {}
            seen = {**around, "#entry": about, "#at": at}
            out.append(self.fill(inner, name, seen, depth + 1))
        return out

    def _plain(self, schema: Schema, kind: str, name: str, around: dict[str, Any]) -> Any:
        """A valid value with nothing known but the type and its bounds."""
        if schema.get("enum"):
            return self._draws.pick(list(schema["enum"]))
        if kind == "boolean":
            return self._draws.chance(0.5)
        if kind in {"integer", "number"}:
            return _number(schema, kind, self._draws)
        if kind == "null":
            return None
        text = self._skills.sentence(name, around)
        return _fit_text(text, schema)


def _spoken(part: Mapping[str, Any]) -> str:
    speaking = part.get("speaking", part)
    return str(speaking.get("full_statement") or "") if isinstance(speaking, Mapping) else ""


def _own(schema: Schema) -> dict[str, Any]:
    """A schema's own keywords beside a reference or alternatives."""
    return {k: v for k, v in schema.items() if k not in {"$ref", "allOf", "anyOf", "oneOf"}}


def _type(schema: Schema) -> str:
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


def _fits(value: Any, schema: Schema, kind: str) -> bool:
    if value is None:
        return bool(schema.get("nullable")) or kind == "null"
    if schema.get("enum"):
        return value in schema["enum"]
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in {"integer", "number"}:
        right = isinstance(value, int) if kind == "integer" else isinstance(value, (int, float))
        low, high = _limits(schema, kind)
        return right and not isinstance(value, bool) and low <= value <= high
    if kind == "string":
        if not isinstance(value, str):
            return False
        if schema.get("pattern") and not re.search(schema["pattern"], value):
            return False
        return int(schema.get("minLength", 0)) <= len(value) <= int(schema.get("maxLength", 10**9))
    return kind in {"object", "array"} and isinstance(value, (dict, list))


def _limits(schema: Schema, kind: str) -> tuple[float, float]:
    step = 1 if kind == "integer" else 1e-6
    low = schema.get("minimum", schema.get("exclusiveMinimum", None))
    high = schema.get("maximum", schema.get("exclusiveMaximum", None))
    low = float("-inf") if low is None else low + step * ("minimum" not in schema)
    high = float("inf") if high is None else high - step * ("maximum" not in schema)
    return low, high


def _number(schema: Schema, kind: str, draws: Draws) -> int | float:
    low, high = _limits(schema, kind)
    if low == float("-inf"):
        low = 0.0 if high > 0 else high - 10
    if high == float("inf"):
        high = low + 10
    middle = low + (high - low) * min(1.0, max(0.0, draws.normal(0.5, 0.18)))
    if kind == "integer":
        return int(min(high, max(low, round(middle))))
    return round(middle, 2) if low <= round(middle, 2) <= high else middle


def _fit_text(text: str, schema: Schema) -> str:
    if schema.get("pattern") and not re.search(schema["pattern"], text):
        found = re.search(r"[\"“]([^\"”]+)[\"”]", str(schema.get("description", "")))
        text = found[1] if found else text
    text = text[: int(schema.get("maxLength", 10**9))]
    return text + "." * max(0, int(schema.get("minLength", 0)) - len(text))


def schema_of_example(prompt: str) -> dict[str, Any]:
    """A schema guessed from the JSON example or the list of keys that a prompt shows."""
    at = prompt.find("{")
    if at >= 0:
        try:
            example, _ = json.JSONDecoder().raw_decode(prompt[at:])
            return _guess(example)
        except (json.JSONDecodeError, RecursionError):
            pass
    keys = re.findall(r"^\s*[-*]?\s*[\"'`](\w+)[\"'`]\s*:", prompt, re.MULTILINE)
    keys = keys or re.findall(r"[\"'`](\w+)[\"'`]\s*:", prompt) or ["answer"]
    return {"type": "object", "properties": {k: {"type": "string"} for k in dict.fromkeys(keys)}}


def _guess(example: Any) -> dict[str, Any]:
    if isinstance(example, dict):
        return {"type": "object", "properties": {k: _guess(v) for k, v in example.items()}}
    if isinstance(example, list):
        return {"type": "array", "items": _guess(example[0]) if example else {"type": "string"}}
    if isinstance(example, bool):
        return {"type": "boolean"}
    if isinstance(example, int):
        return {"type": "integer"}
    if isinstance(example, float):
        return {"type": "number"}
    return {"type": "string"}
