"""The values that a reply in JSON may mean: as it is, from a fenced block, or repaired."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import json_repair

MAX_UNCLOSED_BRACES, MAX_REPAIRABLE_CHARACTERS = 50, 200_000
_WHOLE_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LAST_NUMBER = re.compile(r"(?<=[\s:,\[])[-+]?\d[\d.eE+-]*\Z")


def close_cut_json(reply: str) -> str:
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
            found.append((parse_step, _remove_lone_surrogates(json.loads(text))))
    starts = [reply.index(opening) for opening in openings if opening in reply]
    if starts and _is_worth_repairing(reply):
        body = reply[min(starts) :]
        if fenced and any(opening in fenced[1] for opening in openings):
            body = fenced[1]
        with suppress(ValueError, RecursionError):
            found.append(("repaired", _remove_lone_surrogates(json_repair.loads(body))))
    return found


def _is_worth_repairing(reply: str) -> bool:
    """Whether repair is worth its time: thousands of open braces take seconds for nothing."""
    unclosed = reply.count("{") - reply.count("}") + reply.count("[") - reply.count("]")
    return unclosed <= MAX_UNCLOSED_BRACES and len(reply) <= MAX_REPAIRABLE_CHARACTERS


def _remove_lone_surrogates(value: object) -> object:
    """The value without lone surrogates, which may come in as escapes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_remove_lone_surrogates(value) for value in value]
    if isinstance(value, dict):
        return {
            str(_remove_lone_surrogates(key)): _remove_lone_surrogates(value)
            for key, value in value.items()
        }
    return value
