"""Phrases that no text of a finding may contain."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Phrases that a finding of one run must not contain, because no test of one run can show them.
FORBIDDEN: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "no change": r"\bno change\b|\bunchanged\b|\bdid not change\b",
        "no effect": r"\b(?:has|have|had|was|is|are|were) no (?:effect|difference)\b",
        "no collapse": r"\bno collapse\b",
        "as many as": r"\bas many as\b",
        "robust": r"\brobust",
        "valid": r"\bvalid(?:ates|ated|ity)\b|\bis valid\b|\bare valid\b",
        "proof": r"\bprov(?:es|ed|en)\b",
        "significance": r"\bsignifican(?:t|ce)\b",
        "per cent of a difference": r"[+−]\d+(?:\.\d+)? %",
    }.items()
}


def find_forbidden(text: str) -> list[str]:
    """Return the names of the forbidden phrases in a text."""
    return [name for name, pattern in FORBIDDEN.items() if pattern.search(text)]
