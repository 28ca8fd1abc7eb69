"""Rating scales among listed answers: agree–disagree, yes–no, numbers."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from folkmoot.respondent.mind import Mind

_AGREE = re.compile(r"\b(?:agree|yes|support|favou?r|approve|likely|satisfied|accept|true)\b", re.I)
_DISAGREE = re.compile(
    r"\b(?:disagree|no|not|oppose|against|disapprove|unlikely|dissatisfied|reject|false)\b", re.I
)
_STRONG = re.compile(r"\b(?:strongly|very|completely|extremely|definitely)\b", re.I)
_WEAK = re.compile(r"\b(?:somewhat|slightly|rather|a little|partly|probably)\b", re.I)


@lru_cache(maxsize=1024)
def scale_of(options: tuple[str, ...]) -> tuple[float, ...]:
    """Places of answers on a rating scale (low to high), or empty where they form none."""
    numbers = [re.match(r"^\s*(-?\d+(?:\.\d+)?)\b", o) for o in options]
    if len(options) > 2 and all(numbers):
        return tuple(float(n[1]) for n in numbers if n)
    said = [o.replace("_", " ") for o in options]
    if not any(_DISAGREE.search(o) for o in said) or any(len(o) > 60 for o in said):
        return ()
    places = []
    for option in said:
        sign = -1.0 if _DISAGREE.search(option) else 1.0 if _AGREE.search(option) else 0.0
        size = 3.0 if _STRONG.search(option) else 1.0 if _WEAK.search(option) else 2.0
        places.append(sign * size)
    return tuple(places) if len(set(places)) == len(places) and max(places) > 0 else ()


def on_scale(mind: Mind, options: tuple[str, ...], about: str) -> str:
    """The answer nearest to the person's leaning on a question, with the noise of one asking;
    empty where the answers form no scale."""
    scale = scale_of(options)
    if not scale:
        return ""
    low, high = min(scale), max(scale)
    target = low + (high - low) * (mind.judgement(about) + 1) / 2
    knobs = mind.knobs
    if 1 <= knobs.position <= len(scale) and knobs.position_bias > 0:
        away = scale[knobs.position - 1] - target
        target += math.copysign(min((high - low) * 0.25 * knobs.position_bias, abs(away)), away)
    return options[min(range(len(scale)), key=lambda k: abs(scale[k] - target))]
