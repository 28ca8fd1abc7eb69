"""Read the JSON in replies: a bare JSON value, a fenced code block, or JSON that needs a repair."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import json_repair

# The repair library needs seconds for thousands of open braces and for very long texts.
MAX_UNCLOSED_BRACES, MAX_REPAIRABLE_CHARACTERS = 50, 200_000
# The parse step of a reply that is not valid JSON.
REPAIRED = "repaired"
_WHOLE_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LAST_NUMBER = re.compile(r"(?<=[\s:,\[])[-+]?\d[\d.eE+-]*\Z")


def close_cut_json(reply: str) -> str:
    """Mark or remove the last value of a JSON reply that was cut off.

    Otherwise the truncated value could pass as a complete one.
    """
    # A truncated value must not pass as a complete value. For example, 1 may be the beginning of
    # 15. A truncated text gets "…" at its end. A truncated number is removed.

    # Without its complete strings, a reply that still holds a quotation mark ends inside a string.
    inside_text = '"' in _WHOLE_TEXT.sub("", reply)
    if inside_text and not reply.rstrip().endswith(('"', "}", "]", "`")):
        return reply.rstrip("\\") + "…"
    return _LAST_NUMBER.sub("", reply)


def read_whole_json(reply: str, *, repair: bool) -> object | None:
    """Return the JSON value that a reply consists of, or None if the reply is prose.

    - `repair`: whether to repair a reply that is not valid JSON.
    """
    # Prose that only mentions an object is no JSON. A backtick opens a code fence.
    if reply.lstrip()[:1] not in ("{", "[", "`"):
        return None
    candidates = json_candidates(reply, "{[")
    return next((value for step, value in candidates if repair or step != REPAIRED), None)


def json_candidates(reply: str, openings: str) -> Iterator[tuple[str, object]]:
    """Yield possible readings of a JSON reply, beginning with the strictest reading.

    - `openings`: the characters with which a JSON value can begin, such as "{".

    Each item holds the parse step and the JSON value.
    """
    # Lone surrogates cannot be written to a UTF-8 file.
    reply = reply.encode("utf-8", "replace").decode("utf-8")
    fenced = re.search(r"```(?:json|JSON)?\s*(.*?)```", reply, re.DOTALL)
    for parse_step, text in (("exact", reply), ("fenced", fenced[1] if fenced else None)):
        if text is None:
            continue
        # Python raises ValueError for bad JSON and for integers of thousands of digits. Deep
        # nesting raises RecursionError. Both only mean that this reading fails.
        with suppress(ValueError, RecursionError):
            yield parse_step, _remove_lone_surrogates(json.loads(text))
    # The repair library turns any prose into some value, so it needs an opening character to start
    # at.
    starts = [reply.index(opening) for opening in openings if opening in reply]
    if starts and _is_worth_repairing(reply):
        body = reply[min(starts) :]
        if fenced and any(opening in fenced[1] for opening in openings):
            body = fenced[1]
        with suppress(ValueError, RecursionError):
            yield REPAIRED, _remove_lone_surrogates(json_repair.loads(body))


def _is_worth_repairing(reply: str) -> bool:
    # The repair library is slow for long replies and for many open brackets.
    unclosed = reply.count("{") - reply.count("}") + reply.count("[") - reply.count("]")
    return unclosed <= MAX_UNCLOSED_BRACES and len(reply) <= MAX_REPAIRABLE_CHARACTERS


def _remove_lone_surrogates(value: object) -> object:
    # Escapes such as `\ud800` produce lone surrogates.
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_remove_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {
            str(_remove_lone_surrogates(name)): _remove_lone_surrogates(item)
            for name, item in value.items()
        }
    return value
