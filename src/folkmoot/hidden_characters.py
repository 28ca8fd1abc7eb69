"""Find and remove invisible characters."""
# Such characters make two labels look alike, reverse the reading direction, move a terminal's
# cursor, or break a chart. A study file, a workbook or an id with an invisible character is
# rejected. Invisible characters are removed from texts of humans, and from printed or drawn texts.

from __future__ import annotations

import re
import unicodedata

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b"
    "\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
    "|\r(?!\n)"
    # The two joiners shape emoji and the letters of some scripts. Elsewhere they have no purpose.
    "|[\u200c\u200d](?![\u0600-\u1fff\u2190-\ud7ff\uf900-\ufdff\ufe70-\ufefe\U00010000-\U000dffff])"
    "|(?<![\u0600-\u1fff\u2190-\ud7ff\uf900-\ufe0f\ufe70-\ufefe\U00010000-\U000dffff])[\u200c\u200d]"
)
# Allowed in texts, but not inside a label.
_BREAKS = re.compile("[\t\r\n]")


def hidden_in(text: str, *, label: bool = False) -> str:
    """Return the name of the first hidden character, or an empty text if there is none.

    - `label`: if True, tabs and line breaks inside the text count as hidden too.
    """
    # This quick test decides most texts.
    if text.isascii() and text.isprintable():
        return ""
    match = _HIDDEN.search(text) or (_BREAKS.search(text.strip()) if label else None)
    if match is None:
        return ""
    name = unicodedata.name(match[0], "").lower()
    return f"U+{ord(match[0]):04X}" + (f", {name}" if name else "")


def without_hidden(text: str) -> str:
    """Return the text without hidden characters."""
    return _HIDDEN.sub("", text)
