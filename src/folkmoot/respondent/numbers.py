"""Numbers that stand in a text, in figures or spelt out, and the bounds that two of them state."""

from __future__ import annotations

import re

_FROM_NOUGHT = """
nought one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen
"""
_BY_TENS = "twenty thirty forty fifty sixty seventy eighty ninety hundred"
_SPELT = {word: n for n, word in enumerate(_FROM_NOUGHT.split())}
_SPELT |= {word: 10 * n for n, word in enumerate(_BY_TENS.split(), 2)}
_SPELT |= {"zero": 0, "thousand": 1000}
_WORD = "|".join(_SPELT)
_IN_WORDS = re.compile(
    r"\b(?:(?:an?\s+)?(hundred|thousand)"
    rf"|({_WORD})(?:[-\s]+(hundred|thousand)|(?<=ty)[-\s]+({_WORD}))?)\b",
    re.IGNORECASE,
)
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
# How long a text may be is no bound of what is asked.
_NO_LENGTH = r"(?!\s*(?:sentence|word|line|paragraph|character)s?\b)"
# Two numbers with at most two short words or marks between them.
_PAIR = re.compile(
    rf"({_NUMBER})\s*[%€$£]?(?:\s*(?:[-–—,.…]{{1,3}}|[^\W\d]{{1,8}})){{1,2}}\s*[€$£]?\s*({_NUMBER})"
    rf"(?![\d.,]*\d){_NO_LENGTH}"
)
# Words such as "one" stand for other things too ("one of the two").
_SPELT_PAIR = re.compile(
    rf"({_NUMBER})\s*(?:[-–—]|\b(?:(?:up\s+)?to|and|through|until|till)\b)\s*({_NUMBER})"
    rf"(?![\d.,]*\d){_NO_LENGTH}"
)
_ANY = re.compile(_NUMBER)
Bounds = tuple[float, float, bool]


def in_figures(text: str) -> str:
    """The text with its English number words as figures."""

    def figure(found: re.Match[str]) -> str:
        alone, first, times, more = (_SPELT.get((g or "").lower()) for g in found.groups())
        if first is None:
            return str(alone)
        return str(first * (times or 1) + (more or 0))

    return _IN_WORDS.sub(figure, text)


_SHARE = r"(?:share(?!\s+of)|distribute|allocate|divide|split|spread)"
_TOTAL = re.compile(
    rf"\b(?:add(?:s|ing)?|sum(?:s|ming)?)\s+(?:up\s+)?to\s+(?:exactly\s+)?({_NUMBER})"
    rf"|\btotal(?:s|ling)?\s+(?:(?:is|of|to|must be|should be)\s+)?(?:exactly\s+)?({_NUMBER})"
    rf"|\b{_SHARE}\b[^.?!\n]{{0,30}}?({_NUMBER})"
    rf"|({_NUMBER})\b[^?!\n]{{0,60}}?\b{_SHARE}\b",
    re.IGNORECASE,
)


def total(text: str) -> float | None:
    """What a text wants several numbers to add up to; None where it says nothing of that."""
    found = _TOTAL.search(in_figures(text))
    return value(next(filter(None, found.groups()))) if found else None


def value(text: str) -> float:
    return float(text.replace(",", ""))


def numbers(text: str) -> set[float]:
    """All numbers of a text, in figures or spelt out."""
    return {value(n) for n in _ANY.findall(in_figures(text.replace("−", "-")))}


def stated(text: str) -> Bounds | None:
    """(low, high, whole): the last bounds that a text states; None where it states none."""
    text = text.replace("−", "-")
    for pairs in (_PAIR.findall(text), _SPELT_PAIR.findall(in_figures(text))):
        for low, high in reversed(pairs):
            if value(low) < value(high):
                return value(low), value(high), "." not in low + high
    return None
