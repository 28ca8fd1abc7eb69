"""What the embedded respondent should know of this study: its options are what opinions are about.

Of what is asked about a vote it knows the ranking and the confidence: by what the person thinks of
each option after all that was read. The shared part does the rest."""

from __future__ import annotations

import math

from folkmoot.respondent import RespondentPart, SimulatedRespondent
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig


def _topic_options(config: CrossPollinationConfig) -> tuple[str, ...]:
    return config.topic.options


def _answer_ranking(mind: SimulatedRespondent) -> dict[str, object]:
    liking = dict(zip(mind.options, mind.option_utilities(), strict=True))
    return {"ranking": sorted(liking, key=lambda option: -liking[option])}


def _answer_confidence(mind: SimulatedRespondent) -> int:
    best, second, *_ = sorted(mind.option_utilities(), reverse=True)
    return round(100 / (1 + math.exp(second - best)))


PART = RespondentPart(
    option_names=_topic_options,
    answers={"Ranking": _answer_ranking, "participant number": _answer_confidence},
)
