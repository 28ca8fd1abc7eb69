"""How the embedded respondent answers the questions for a ranking and for confidence.

The embedded respondent answers by rules in place of a model. All other questions are answered by
code that all study types share.
"""
# The answers follow from the person's opinions after reading the prompt.

from __future__ import annotations

import math

from folkmoot.respondent import RespondentPart, SimulatedRespondent
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig


def _topic_options(config: CrossPollinationConfig) -> tuple[str, ...]:
    return config.topic.options


def _answer_ranking(mind: SimulatedRespondent) -> dict[str, object]:
    utilities = dict(zip(mind.options, mind.option_utilities(), strict=True))
    return {"ranking": sorted(utilities, key=lambda option: -utilities[option])}


def _answer_confidence(mind: SimulatedRespondent) -> int:
    best, second, *_ = sorted(mind.option_utilities(), reverse=True)
    # The logistic function of the gap between the best two options is the choice probability of a
    # logit model: 50 if both are liked equally.
    return round(100 / (1 + math.exp(second - best)))


PART = RespondentPart(
    option_names=_topic_options,
    answers={"Ranking": _answer_ranking, "participant number": _answer_confidence},
)
