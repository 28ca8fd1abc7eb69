"""Invisible characters: they make two labels look alike, reverse the reading direction, move a
terminal's cursor, or break a chart.

A study file, a workbook or an id with one is refused, with its place; people's own texts, and what
is printed or drawn, lose them.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b"
    "\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
    "|\r(?!\n)"
    # The two joiners shape emoji and the letters of some scripts; elsewhere they are only hidden.
    "|[\u200c\u200d](?![\u0600-\u1fff\u2190-\ud7ff\uf900-\ufdff\ufe70-\ufefe\U00010000-\U000dffff])"
    "|(?<![\u0600-\u1fff\u2190-\ud7ff\uf900-\ufe0f\ufe70-\ufefe\U00010000-\U000dffff])[\u200c\u200d]"
)
_BREAKS = re.compile("[\t\r\n]")


def hidden_in(text: str, *, label: bool = False) -> str:
    """The first hidden character in words (`U+202E, right-to-left override`), or "".

    In a label tabs and line breaks count as well, save at its ends.
    """
    if text.isascii() and text.isprintable():
        return ""
    found = _HIDDEN.search(text) or (_BREAKS.search(text.strip()) if label else None)
    if found is None:
        return ""
    name = unicodedata.name(found[0], "").lower()
    return f"U+{ord(found[0]):04X}" + (f", {name}" if name else "")


def without_hidden(text: str) -> str:
    """The text without hidden characters."""
    return _HIDDEN.sub("", text)
