"""Compute the planted change rates of a population from the respondent's model, without texts.

Tests compare the estimates of the whole pipeline with these rates. Latent values, formulas and
noise are the same. The doses are those of a correct pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from folkmoot.respondent.mind.knobs import RespondentSettings
from folkmoot.respondent.mind.lexicon import MIXTURES, Counts
from folkmoot.respondent.mind.mind import apply_persuasion
from folkmoot.respondent.mind.persona import PersonaTraits, persona_from_text
from folkmoot.respondent.mind.reading import ExposureDose


@dataclass(frozen=True, slots=True)
class Exposure:
    """The exposure of a participant between two votes.

    `read`: distinct argument words for each option that the participant does not hold. `argued`:
    words for one of these options in a dialogue. `turns`: answered turns of this dialogue.
    `interviewed`: the participant gave their own reasons before.
    """

    read: int = 0
    argued: int = 0
    turns: int = 0
    interviewed: bool = False


def compute_true_rates(
    personas: Sequence[str],
    options: Sequence[str],
    exposure: Exposure,
    *,
    seed: int,
    settings: Mapping[str, object] | None = None,
    against: Mapping[str, Mapping[str, int]] | None = None,
) -> list[float]:
    """Return the probability for each participant that the second vote differs from the first.

    `personas` are descriptions as `Speaker.persona` has them. `against`: option held → option
    argued for → number of people. Each person meets one option, with these numbers as weights, or
    equal weights for an option that no person holds. Left out, each person meets all options but
    the one held. Arguments for an option come from the camps of those who hold it.
    """
    knobs = RespondentSettings.from_mapping(settings or {})
    people = [persona_from_text(text, seed) for text in personas]
    crowd = _reasons_by_option(people, options, knobs)
    rates = []
    for who in people:
        first = _first_utilities(who, options, knobs)
        stays = 0.0
        # The opposing view is chosen after the first vote. So each first vote that was possible
        # has its own opposing views, and not the one of the vote that was cast.
        for at, p in enumerate(_choice_shares(first, knobs)):
            rivals = [o for o in options if o != options[at]]
            for argued, weight in _list_argued(options[at], rivals, against):
                words = dict.fromkeys(rivals, exposure.read)
                words |= {o: max(exposure.read, exposure.argued) for o in argued}
                dose = ExposureDose(
                    {o: _split_words(crowd[o], n) for o, n in words.items() if n},
                    dict.fromkeys(argued, exposure.turns),
                    exposure.interviewed,
                )
                after = _choice_shares(apply_persuasion(first, options, dose, who, knobs), knobs)
                stays += p * weight * after[at]
        rates.append(1.0 - stays)
    return rates


def _list_argued(
    held: str, rivals: Sequence[str], against: Mapping[str, Mapping[str, int]] | None
) -> list[tuple[list[str], float]]:
    """Return the options argued for to people who hold an option, each case with its share."""
    if against is None:
        return [([*rivals], 1.0)]
    counts = against.get(held) or dict.fromkeys(rivals, 1)
    # A faulty run may argue for the option held, which has no effect.
    return [([o] if o in rivals else [], n / sum(counts.values())) for o, n in counts.items()]


def _first_utilities(
    who: PersonaTraits, options: Sequence[str], knobs: RespondentSettings
) -> list[float]:
    return [who.option_taste(o, 1 - 0.8 * knobs.shrinking_variance) for o in options]


def _choice_shares(utilities: Sequence[float], knobs: RespondentSettings) -> list[float]:
    """Return choice probabilities: the argmax of u + β[place] + σ·Gumbel is a softmax of u/σ."""
    shown = list(utilities)
    if 1 <= knobs.position <= len(shown):
        shown[knobs.position - 1] += knobs.position_bias
    scale = max(knobs.noise, 1e-9)
    top = max(shown)
    weights = [math.exp((x - top) / scale) for x in shown]
    return [w / sum(weights) for w in weights]


def _reasons_by_option(
    people: Sequence[PersonaTraits], options: Sequence[str], knobs: RespondentSettings
) -> dict[str, list[float]]:
    """Return the mean camp shares of the reasons of those who hold each option."""
    sums = {o: [1e-9] * 3 for o in options}
    for who in people:
        for option, p in zip(
            options, _choice_shares(_first_utilities(who, options, knobs), knobs), strict=True
        ):
            for camp in range(3):
                sums[option][camp] += p * MIXTURES[who.camp][camp]
    return {o: [x / sum(mix) for x in mix] for o, mix in sums.items()}


def _split_words(mix: Sequence[float], count: int) -> Counts:
    a, b = round(mix[0] * count), round(mix[1] * count)
    return a, b, count - a - b
