"""Single answers wrapped in an object, as workbooks ask for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from folkmoot.models.synthetic.choosing import choose
from folkmoot.models.synthetic.draws import normal
from folkmoot.models.synthetic.games import is_game, talk
from folkmoot.models.synthetic.mind import Mind
from folkmoot.models.synthetic.values import number_reply

_NUMERIC = re.compile(
    r"single number|whole number|\ba number\b|how (?:many|much)\b|number between|integer",
    re.IGNORECASE,
)


def response(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """An option where options are listed, a number where one is wanted, else some words."""
    at = mind.at
    kinds = {schema.get("type"), *(c.get("type") for c in schema.get("anyOf") or ())}
    if mind.reading.options:
        chosen = choose(mind.who, mind.reading, mind.reading.options, at.knobs, at.seed, at.address)
        return _typed(chosen, schema)
    # What the object may hold is described behind the question; judge by the question alone.
    question = re.split(r"\{\s*[\"“]?response", mind.text, maxsplit=1)[0]
    if _NUMERIC.search(question) or kinds <= {"integer", "number"}:
        return _typed(number_reply(mind.who, mind.reading, at.knobs, at.seed, at.address), schema)
    if is_game(mind.reading):
        return talk(mind.reading, mind.tongue, at.knobs)
    return mind.tongue.reason("this")


def choice(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """One option of an enumeration, as it would be chosen from a list."""
    options = tuple(str(o) for o in schema.get("enum") or mind.reading.options)
    at = mind.at
    if not options:
        return mind.tongue.reason("this")
    return choose(mind.who, mind.reading, options, at.knobs, at.seed, at.address)


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if kind not in {"integer", "number"} and not schema.get("numeric"):
        return text
    found = re.search(r"-?\d+(?:\.\d+)?", text)
    if not found:
        return text
    return int(float(found[0])) if kind == "integer" else float(found[0])


def speculation(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """How speculative an answer was, 0 to 100: lower for the sure of themselves."""
    share = 0.35 + 0.15 * normal(mind.at.seed, mind.at.address, "speculation")
    return round(100 * max(0.0, min(1.0, share - 0.15 * mind.who.warmth)))
