"""What the embedded respondent should know of this study: its options are what opinions are about.

Of what is asked about a vote it knows the ranking and the confidence: by what the person thinks of
each option after all that was read. The shared part does the rest."""

from __future__ import annotations

import math

from folkmoot.respondent import Mind, Part
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig


def _options(config: CrossPollinationConfig) -> tuple[str, ...]:
    return config.topic.options


def _ranking(mind: Mind) -> dict[str, object]:
    liking = dict(zip(mind.options, mind.utilities(), strict=True))
    return {"ranking": sorted(liking, key=lambda option: -liking[option])}


def _confidence(mind: Mind) -> int:
    best, second, *_ = sorted(mind.utilities(), reverse=True)
    return round(100 / (1 + math.exp(second - best)))


PART = Part(names=_options, answers={"Ranking": _ranking, "participant number": _confidence})
