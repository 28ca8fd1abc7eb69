"""Find replies that are out of character, by typical English phrases."""
# The report counts them. They stay in the data, and no other measure depends on the count.

from __future__ import annotations

import re

# The phrases come in three groups: an assistant, the player of a role, and headings of a script.
_SIGNS = re.compile(
    # Words of an assistant.
    r"\b(?:as|I am|I['’]m) an? (?:\w+ )?(?:AI|artificial intelligence|language model|chat ?bot"
    r"|(?:AI|virtual|digital|helpful) assistant)\b"
    r"|\b(?:large )?language model\b|\bmy training data\b|\bmy knowledge cut-?off\b"
    # Words of the player of a role.
    r"|\b(?:in|for) this (?:role[- ]?play|simulation|fictional scenario)\b"
    r"|\b(?:my|the|this) (?:assigned )?persona\b|\b(?:stay(?:ing)?|break(?:ing)?) in character\b"
    # Headings of a script at the start of a line or sentence.
    r"|^[^\w\n]*(?:question|q|phase|round|turn)\s*\d+\s*[:.)\-–]"
    r"|(?<=[.!?] )\W{0,20}(?:question|phase)\s*\d+\s*[:.)\-–]"
    r"|^[^\w\n]*(?:moderator|participant(?: \d+)?|interviewer|assistant|system)\s*:",
    re.IGNORECASE | re.MULTILINE,
)


def is_out_of_character(text: str) -> bool:
    """Return whether a reply sounds like an AI assistant, an actor or a script."""
    return bool(_SIGNS.search(text))
