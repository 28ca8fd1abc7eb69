"""Phrases for the result of a claim, used by findings, hypotheses, grids and comparisons.

No phrase says more than was tested. A test that is not significant does not show equality, so no
phrase says "unchanged", "as large as" or "the same". Only a specification curve says "robust".
Wasserstein and Lazar (2016), doi:10.1080/00031305.2016.1154108, principles 2 and 5."""

from __future__ import annotations

import re
from collections.abc import Mapping

# (verdict, direction) → phrase. `{first}` and `{second}` are the conditions, `{by}` is the margin.
PHRASES: Mapping[tuple[str, str], str] = {
    ("supported", "different"): "a difference is shown",
    ("supported", "greater"): "{first} exceeds {second}{by}: supported",
    ("supported", "less"): "{first} falls below {second}{by}: supported",
    ("supported", "equivalent"): "equivalent: they differ by less than {margin}",
    ("contradicted", "different"): "contradicted: they differ by less than {margin}",
    ("contradicted", "greater"): "{first} exceeds {second}{by}: contradicted",
    ("contradicted", "less"): "{first} falls below {second}{by}: contradicted",
    ("contradicted", "equivalent"): "contradicted: they differ by more than {margin}",
    ("neither shown nor ruled out", "different"): "a difference is neither shown nor ruled out",
    (
        "neither shown nor ruled out",
        "greater",
    ): "{first} exceeds {second}{by}: neither shown nor ruled out",
    (
        "neither shown nor ruled out",
        "less",
    ): "{first} falls below {second}{by}: neither shown nor ruled out",
    ("neither shown nor ruled out", "equivalent"): "equivalence is neither shown nor ruled out",
}
NOT_TESTED = "not tested"
# Verdict of a check of the model → what is said of its figure.
CHECK_PHRASES: Mapping[str, str] = {
    "passed": "inside the margin ({margin})",
    "failed": "outside the margin ({margin})",
    "not known": "not known to be inside the margin ({margin})",
}
# Introduces claims that are not primary in a finding without a primary one.
ESTIMATES = "Exploratory, without a conclusion:"
EXPLORATORY = "Exploratory: estimates with intervals, from which nothing is concluded."
EXPLORATORY_TESTS = (
    "holm p: adjusted for the tests of this table alone by Holm's method. They are exploratory: "
    "nothing is concluded from them, and 95 % intervals are not adjusted."
)

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
