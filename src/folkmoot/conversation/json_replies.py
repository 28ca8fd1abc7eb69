"""The values that a reply in JSON may mean: as it is, from a fenced block, or repaired."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import json_repair

MOST_UNCLOSED, LONGEST_REPAIRED = 50, 200_000
_WHOLE_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LAST_NUMBER = re.compile(r"(?<=[\s:,\[])[-+]?\d[\d.eE+-]*\Z")


def broken_off(reply: str) -> str:
    """A reply in JSON that the token limit cut, so marked that the beginning of a value does not
    count as the value: of 1 it may have been 15, and "yes" may have gone on. A text that was cut
    ends in "…"; a number is left out."""
    inside_text = '"' in _WHOLE_TEXT.sub("", reply)
    if inside_text and not reply.rstrip().endswith(('"', "}", "]", "`")):
        return reply.rstrip("\\") + "…"
    return _LAST_NUMBER.sub("", reply)


def json_candidates(reply: str, openings: str) -> list[tuple[str, object]]:
    """Readings of the reply as JSON, strictest first."""
    reply = reply.encode("utf-8", "replace").decode("utf-8")  # no file can hold lone surrogates
    found: list[tuple[str, object]] = []
    fenced = re.search(r"```(?:json|JSON)?\s*(.*?)```", reply, re.DOTALL)
    for parse_step, text in (("exact", reply), ("fenced", fenced[1] if fenced else None)):
        if text is None:
            continue
        # ValueError also for integers of thousands of digits.
        with suppress(ValueError, RecursionError):
            found.append((parse_step, _sound(json.loads(text))))
    starts = [reply.index(c) for c in openings if c in reply]
    if starts and _repairable(reply):
        body = reply[min(starts) :]
        if fenced and any(c in fenced[1] for c in openings):
            body = fenced[1]
        with suppress(ValueError, RecursionError):
            found.append(("repaired", _sound(json_repair.loads(body))))
    return found


def _repairable(reply: str) -> bool:
    """Whether repair is worth its time: thousands of open braces take seconds for nothing."""
    unclosed = reply.count("{") - reply.count("}") + reply.count("[") - reply.count("]")
    return unclosed <= MOST_UNCLOSED and len(reply) <= LONGEST_REPAIRED


def _sound(value: object) -> object:
    """The value without lone surrogates, which may come in as escapes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_sound(v) for v in value]
    if isinstance(value, dict):
        return {str(_sound(k)): _sound(v) for k, v in value.items()}
    return value
