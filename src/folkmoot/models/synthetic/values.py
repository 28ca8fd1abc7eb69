"""Numbers from the respondent: bounds read from the prompt, a value with a person behind it."""

from __future__ import annotations

import re

from folkmoot.models.synthetic.choosing import question_key
from folkmoot.models.synthetic.draws import normal
from folkmoot.models.synthetic.games import asks_for_a_gift, gift
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.reading import Reading

_N = r"(-?\d[\d,]*(?:\.\d+)?)"
_RANGE = re.compile(
    rf"(?:between|from|range(?: of)?|scale of|within)\s*[\[(]?\s*[$€£]?{_N}\s*"
    rf"(?:%|points?|tokens?)?\s*(?:and|to|through|[-–—,])\s*[$€£]?{_N}|[\[(]\s*{_N}\s*,\s*{_N}\s*[\])]"
    rf"|\b{_N}\s*(?:to|–|—|-)\s*{_N}\b",
    re.IGNORECASE,
)
_AT_LEAST = re.compile(rf"(?:at least|minimum(?: of)?|no less than)\s*[$€£]?{_N}", re.IGNORECASE)
_AT_MOST = re.compile(
    rf"(?:at most|maximum(?: of)?|up to|no more than)\s*[$€£]?{_N}", re.IGNORECASE
)
_FLOAT = re.compile(r"\bfloat|decimal|fraction|real number", re.IGNORECASE)
_SPECULATION = re.compile(r"speculat", re.IGNORECASE)


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def bounds(text: str) -> tuple[float, float, bool]:
    """(low, high, whole) as the last bounds in a text give them; 0 to 100 where it gives none."""
    low, high = 0.0, 100.0
    ranges = [tuple(g for g in m.groups() if g) for m in _RANGE.finditer(text)]
    if ranges:
        first, second = ranges[-1][:2]
        low, high = sorted((_value(first), _value(second)))
        whole = not (_FLOAT.search(text) or "." in first + second)
        return low, high, whole
    at_least, at_most = _AT_LEAST.findall(text), _AT_MOST.findall(text)
    if at_least:
        low = _value(at_least[-1])
    if at_most:
        high = _value(at_most[-1])
    return (low, high, not _FLOAT.search(text)) if low <= high else (low, low + 100, True)


def number_within(
    who: Persona, about: str, low: float, high: float, knobs: Knobs, seed: int, address: str
) -> float:
    """A value in [low, high]: the persona's leaning on the question, warmth, and some noise."""
    lean = (1 - knobs.shrinking_variance) * who.lean(about) + 0.2 * who.warmth
    lean += knobs.acquiescence + 0.5 * knobs.sycophancy
    noise = normal(seed, address, "number")
    lean += (0.12 + 2.0 * knobs.instability) * noise
    share = 0.5 + 0.42 * max(-1.15, min(1.15, lean))
    return low + (high - low) * max(0.0, min(1.0, share))


def number_reply(who: Persona, reading: Reading, knobs: Knobs, seed: int, address: str) -> str:
    """The number alone, as text, within the bounds that the prompt or its reminder states."""
    if _SPECULATION.search(reading.prompt[-600:]):
        share = 0.35 + 0.15 * normal(seed, address, "speculation") - 0.15 * who.warmth
        return str(round(100 * max(0.0, min(1.0, share))))
    low, high, whole = bounds(reading.reminder or reading.prompt)
    if reading.reminder and (low, high) == (0.0, 100.0):
        low, high, whole = bounds(reading.prompt)
    if asks_for_a_gift(reading):
        value = gift(who, reading, low, high, knobs, seed, address)
    else:
        about = question_key(reading.prompt[-400:])
        value = number_within(who, about, low, high, knobs, seed, address)
    if whole:
        return str(int(min(high, max(low, round(value)))))
    return f"{value:.2f}".rstrip("0").rstrip(".")
