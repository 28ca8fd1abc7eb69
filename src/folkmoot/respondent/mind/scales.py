"""Recognise rating scales in a list of answers: agree–disagree, yes–no, degrees and numbers."""

from __future__ import annotations

import math
import re
from functools import lru_cache

_AGREE = re.compile(r"\b(?:agree|yes|support|favou?r|approve|likely|satisfied|accept|true)\b", re.I)
_DISAGREE = re.compile(
    r"\b(?:disagree|no|not|oppose|against|disapprove|unlikely|dissatisfied|reject|false)\b", re.I
)
_STRONG = re.compile(r"\b(?:strongly|very|completely|extremely|definitely)\b", re.I)
_WEAK = re.compile(r"\b(?:somewhat|slightly|rather|a little|partly|probably)\b", re.I)
_UNSURE = re.compile(
    r"^\W*(?:(?:I )?(?:do not|don['’]t|cannot|can['’]t) (?:know|say|tell)|not sure|unsure|undecided"
    r"|no (?:opinion|answer)|prefer not)\b",
    re.IGNORECASE,
)
# Degrees of quantity or frequency, in ascending groups. The first words of an answer decide its
# degree.
_DEGREES = re.compile(
    r"^\W*(?:(not at all|never|none|nothing)"
    r"|(hardly|barely|rarely|seldom|very (?:little|few|low)|not (?:very|much|really|so|often))"
    r"|((?:a )?little|slightly|a bit|a few|low)"
    r"|(some(?:what|times)?|moderate(?:ly)?|partly|medium)"
    r"|(fairly|quite|rather|mostly|often|a lot|much|high)"
    r"|(very|extremely|a great deal|always|completely|fully|entirely|totally|all))\b",
    re.IGNORECASE,
)


def is_unsure(option: str) -> bool:
    """Return True if an answer on a scale means "no opinion"."""
    return bool(_UNSURE.search(option))


@lru_cache(maxsize=1024)
def scale_of(options: tuple[str, ...]) -> tuple[float, ...]:
    """Return the position of each answer on a rating scale, as a number.

    Returns () if the answers form no scale.
    """
    # An answer such as "I do not know" gets the middle of the scale. If a real answer is in the
    # middle, "I do not know" gets infinity, so that it is never chosen.
    labels = [option.replace("_", " ") for option in options if not is_unsure(option)]
    places = _scale_numbers(labels) or _for_and_against(labels) or _scale_degrees(labels)
    if not places or len(labels) == len(options):
        return places
    middle = (min(places) + max(places)) / 2
    numbers, unsure_place = iter(places), math.inf if middle in places else middle
    return tuple(unsure_place if is_unsure(option) else next(numbers) for option in options)


def _scale_numbers(labels: list[str]) -> tuple[float, ...]:
    numbers = [re.match(r"^\s*(-?\d+(?:\.\d+)?)\b", option) for option in labels]
    return (
        tuple(float(number[1]) for number in numbers if number)
        if len(labels) > 2 and all(numbers)
        else ()
    )


def _for_and_against(labels: list[str]) -> tuple[float, ...]:
    # In an answer above 60 characters a word such as "not" need not mark a pole of the scale.
    if not any(_DISAGREE.search(option) for option in labels) or any(
        len(option) > 60 for option in labels
    ):
        return ()
    places = []
    for option in labels:
        sign = -1.0 if _DISAGREE.search(option) else 1.0 if _AGREE.search(option) else 0.0
        strength = 3.0 if _STRONG.search(option) else 1.0 if _WEAK.search(option) else 2.0
        places.append(sign * strength)
    return tuple(places) if len(set(places)) == len(places) and max(places) > 0 else ()


def _scale_degrees(labels: list[str]) -> tuple[float, ...]:
    matches = [_DEGREES.search(option) for option in labels]
    degrees = [match.lastindex or 0 for match in matches if match]
    if len(labels) < 3 or len(set(degrees)) < len(labels):
        return ()
    return tuple(float(sorted(degrees).index(degree)) for degree in degrees)
