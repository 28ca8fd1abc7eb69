"""Phrases for the result of a claim, and for the verdicts of checks and of the validity card.

Findings, hypotheses, grids and comparisons use these phrases.

No phrase says more than was tested. A test that is not significant does not show equality, so no
phrase says "unchanged", "as large as" or "the same". Only a specification curve says "robust".
Wasserstein and Lazar (2016), doi:10.1080/00031305.2016.1154108, principles 2 and 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

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
    (
        "neither shown nor ruled out",
        "equivalent",
    ): "a difference of less than {margin} is neither shown nor ruled out",
}
NOT_TESTED = "not tested"
# In place of a verdict on a claim that is not primary.
NO_CONCLUSION = "no conclusion"
# Verdict of a check of the model → what is said of its figure.
CHECK_PHRASES: Mapping[str, str] = {
    "passed": "inside the margin ({margin})",
    "failed": "outside the margin ({margin})",
    "not known": "not known to be inside the margin ({margin})",
}


class CardPhrases(NamedTuple):
    """The phrases of the validity card on one threat, one phrase for each verdict.

    `passed` and `failed` are whole sentences. `unknown` begins a sentence. If there are too few
    data, `more` ends it. If there are no data, advice on a further control or check ends it.
    """

    passed: str
    failed: str
    unknown: str
    more: str


_MORE_UNITS = "more participants or groups are needed"
# Threat → phrases. The margins are those of the checks and controls that the card quotes.
CARD_PHRASES: Mapping[str, CardPhrases] = {
    "Instructions followed": CardPhrases(
        "Few first replies were unreadable, cut or repetitive, and no check reads what they mean.",
        "Many first replies were unreadable, cut or repetitive, so answers may not mean what they "
        "say.",
        "First replies may fail more often than the margin",
        _MORE_UNITS,
    ),
    "Refusals": CardPhrases(
        "Few answers are missing by refusal in the whole run, though one condition may lose more.",
        "The figures describe only answers that were given, and those who refused may think "
        "otherwise.",
        "Participants may refuse more often than the margin, and those may think otherwise",
        _MORE_UNITS,
    ),
    "Reliability (retest)": CardPhrases(
        "Answers to a question that was asked twice agree within the margin, and what differs is "
        "noise that changes in this report contain as well.",
        "Answers to a question that was asked twice agree too little, so changes in this report "
        "may be noise in part.",
        "Noise may be as large as the changes reported",
        _MORE_UNITS,
    ),
    "User drift": CardPhrases(
        "Answers to questions that the treatment should not change differ between conditions by at "
        "most the margin, and other attributes were not asked.",
        "Answers to questions that the treatment should not change differ between conditions, so "
        "an effect may be one of other people in another condition.",
        "An effect may be one of other people in another condition",
        _MORE_UNITS,
    ),
    "Persona kept": CardPhrases(
        "Participants still give the age of their persona, and no other attribute was asked.",
        "Fewer participants than the margin asks still give the age of their persona, so figures "
        "may describe other people than those who were drawn.",
        "Participants may forget who they are",
        _MORE_UNITS,
    ),
    "Order effect": CardPhrases(
        "The order of options moved answers by at most the margin.",
        "The order of options moved answers, so shares hold for the orders that were shown.",
        "The order of options may have moved answers",
        _MORE_UNITS,
    ),
    "Wording": CardPhrases(
        "The primary claims are robust over the wordings that were tried.",
        "A primary claim is not robust over the wordings that were tried, so no single wording may "
        "be reported alone.",
        "The primary claims may depend on the wording",
        "try more wordings or more participants",
    ),
    "Human benchmark": CardPhrases(
        "People and models differ by at most the margin in each comparison that was made.",
        "People and models differ in a comparison that was made, so these figures are no estimate "
        "of people's.",
        "People may answer otherwise",
        "more people have to answer",
    ),
}
# Introduces claims that are not primary in a finding without a primary one.
ESTIMATES = "Exploratory, without a conclusion:"
EXPLORATORY = "Exploratory: estimates with intervals, from which nothing is concluded."
# Says how far a sealed plan goes: somebody who rewrites it can compute its hashes again.
FIXED_BEFOREHAND = (
    "fixed before the first call according to plan.json, which only a digest published beforehand "
    "can prove"
)
# Introduces the largest or smallest of several figures. Another run may have another one.
OBSERVED = "Observed in this run, not tested:"
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
