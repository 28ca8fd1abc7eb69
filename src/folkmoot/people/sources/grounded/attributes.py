"""Draw the traits, buying behaviour, voice and opinion of a participant.

The draws depend on the demographics of the participant.
"""
# Weights and published figures are in `us.yaml`. How traits affect the way of talking is assumed.

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from folkmoot.people.sources.grounded.character import load_wordings
from folkmoot.people.sources.grounded.joint import us_figures as figures
from folkmoot.people.sources.grounded.population import Circumstances, Figures, Fixed
from folkmoot.people.sources.grounded.profile import (
    TRAITS,
    ConsumerProfile,
    Opinion,
    Traits,
    Vals,
    VoiceProfile,
)

T = TypeVar("T")

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
# The limits of a valence between these labels.
LIMITS = (-0.6, -0.2, 0.2, 0.6)
_NORMAL = NormalDist()
_TYPES: dict[str, tuple[Vals, Vals]] = {
    "ideals": ("thinker", "believer"),
    "achievement": ("achiever", "striver"),
    "self-expression": ("experiencer", "maker"),
}
# Standard deviation of the noise in the way of talking, compared with 1 for a trait (assumed).
_TALK_NOISE = 0.5


# --- traits: OCEAN scores with published correlations and differences of age and sex -----------


def draw_traits(rng: np.random.Generator, age: int, sex: str, fixed: Fixed) -> Traits:
    """Return five trait scores for a participant of this age and sex.

    - `fixed`: known scores by trait. They replace drawn scores.
    """
    # The other scores are drawn as if none were fixed.
    terms = figures()["ocean"]
    residual = residual_factor() @ rng.standard_normal(len(TRAITS))
    scores: dict[str, int] = {}
    for trait, trait_residual in zip(TRAITS, residual, strict=True):
        z_score = expected_z_score(trait, age, sex, terms) + float(trait_residual)
        drawn = round(min(100.0, max(0.0, terms["mean"] + terms["sd"] * z_score)))
        scores[trait] = int(fixed.get(trait, drawn))
    return Traits(**scores)


def expected_z_score(trait: str, age: int, sex: str, terms: Fixed) -> float:
    """Return the mean score of a trait among people of this age and sex, in standard deviations.

    - `terms`: the published statistics on all traits.
    """
    # There are no figures for nonbinary people ("X"), so they get the mean of women and men.
    if sex == "X":
        return (
            expected_z_score(trait, age, "F", terms) + expected_z_score(trait, age, "M", terms)
        ) / 2
    half = terms["women_minus_men"][trait] / 2
    slope = terms["per_decade"][sex][trait] * (age - terms["pivot_age"]) / 10
    return float((half if sex == "F" else -half) + slope)


@lru_cache(maxsize=1)
def residual_factor() -> NDArray[np.float64]:
    """Return the matrix that gives independent random draws the correlations of trait scores.

    The matrix has the shape (5, 5). Drawn scores then correlate as published.
    """
    # Age and sex already explain a part of the published correlations. This part is subtracted.
    remaining = published_correlations() - _by_age_and_sex()
    return np.asarray(np.linalg.cholesky(remaining), dtype=np.float64)


def _by_age_and_sex() -> NDArray[np.float64]:
    # The covariances, shape (5, 5), of the expected trait scores over all ages and sexes.
    data = figures()
    terms = data["ocean"]
    cells: list[list[float]] = []
    weights: list[float] = []
    for band, people in data["age"]["bands"].items():
        low, high = map(int, band.split("-"))
        women = data["sex"]["women"][band] / 100
        for age in range(low, high + 1):
            for sex, share in (("F", women), ("M", 1 - women)):
                cells.append([expected_z_score(trait, age, sex, terms) for trait in TRAITS])
                weights.append(people * share / (high - low + 1))
    return np.cov(np.array(cells).T, aweights=np.array(weights), ddof=0)


def published_correlations() -> NDArray[np.float64]:
    """Return the published correlations of the five traits, shape (5, 5)."""
    pairs = figures()["ocean"]["correlations"]
    matrix = np.eye(len(TRAITS))
    for pair, correlation in pairs.items():
        i, j = (TRAITS.index(trait) for trait in pair.split("-"))
        matrix[i, j] = matrix[j, i] = correlation
    return matrix


# --- buying: VALS type, price sensitivity, loyalty, engagement, channels, adoption ----------------


def scores_of(circumstances: Circumstances, traits: Traits) -> dict[str, float]:
    """Return a participant's demographics and traits as a map from name to standardised score."""
    return {
        **circumstances.standardised_scores(),
        **{trait: traits.standard_score(trait) for trait in TRAITS},
    }


def weighted_sum(weights: Mapping[str, float], scores: Mapping[str, float]) -> float:
    return math.fsum(weight * scores[name] for name, weight in weights.items())


def draw_vals(rng: np.random.Generator, scores: Mapping[str, float], data: Figures) -> Vals:
    """Return the consumer segment of a participant with the standardised scores `scores`."""
    # Participants with the most resources are innovators, and those with the fewest survivors. For
    # the others, motivation and resources decide together.
    terms = data["vals"]
    spread = math.sqrt(math.fsum(weight * weight for weight in terms["resources"].values()))
    rank = _NORMAL.cdf(weighted_sum(terms["resources"], scores) / (1.12 * spread))
    motivation_strengths = {
        name: weighted_sum(weights, scores) + terms["motivation_noise"] * rng.standard_normal()
        for name, weights in terms["motivation"].items()
    }
    if rank > 1 - terms["innovators"]:
        return "innovator"
    if rank < terms["survivors"]:
        return "survivor"
    middle = (terms["survivors"] + 1 - terms["innovators"]) / 2
    high, low = _TYPES[max(motivation_strengths, key=lambda name: motivation_strengths[name])]
    return high if rank > middle else low


def draw_consumer(
    rng: np.random.Generator,
    scores: Mapping[str, float],
    age: int,
    data: Figures,
    fixed: Fixed,
) -> ConsumerProfile:
    """Return the buying behaviour of a participant.

    - `scores`: a map from the name of an attribute to the participant's standardised score.
    - `fixed`: known values. They replace drawn values.
    """
    drawn = {
        name: _draw_score(weighted_sum(weights, scores), weights, rng)
        for name, weights in data["consumer"]["weights"].items()
    }
    drawn.update({name: int(fixed[name]) for name in drawn if name in fixed})
    return ConsumerProfile(
        **drawn,
        channels=_draw_shopping_channels(rng, age, scores),
        adoption=fixed.get("adoption") or _draw_adoption_stage(rng, scores, data),
    )


def _draw_score(value: float, weights: Mapping[str, float], rng: np.random.Generator) -> int:
    noise = math.sqrt(max(0.05, 1 - math.fsum(weight * weight for weight in weights.values())))
    z = value + noise * rng.standard_normal()
    return round(min(100.0, max(0.0, 50 + 20 * z)))


def _draw_adoption_stage(
    rng: np.random.Generator, scores: Mapping[str, float], data: Figures
) -> Any:
    # The size of each stage is its published share.
    terms = data["adoption"]
    spread = math.sqrt(
        math.fsum(weight * weight for weight in terms["weights"].values()) + terms["noise"] ** 2
    )
    z = (weighted_sum(terms["weights"], scores) + terms["noise"] * rng.standard_normal()) / spread
    above = 1 - _NORMAL.cdf(z)
    for stage, share in terms["shares"].items():
        above -= share
        if above < 0:
            return stage
    return list(terms["shares"])[-1]


def _draw_shopping_channels(
    rng: np.random.Generator, age: int, scores: Mapping[str, float]
) -> tuple[str, ...]:
    # Assumed: younger participants prefer online channels.
    preferences = {
        "online marketplaces": 1.2 - 0.02 * (age - 40),
        "a phone app": 0.9 - 0.03 * (age - 40),
        "big-box stores": 0.9 - 0.15 * scores["income"],
        "the neighborhood grocery": 0.7 + 0.01 * (age - 40),
        "discount stores": 0.6 - 0.45 * scores["income"],
        "specialty shops": 0.4 + 0.3 * scores["income"] + 0.15 * scores["openness"],
        "catalogs and mail": -0.3 + 0.02 * (age - 40),
    }
    drawn = {name: value + 0.5 * rng.standard_normal() for name, value in preferences.items()}
    ranked = sorted(drawn, key=lambda name: -drawn[name])
    return tuple(ranked[: 2 + int(rng.random() < 0.4)])


# --- voice ----------------------------------------------------------------------------------------


def draw_voice(
    rng: np.random.Generator, scores: Mapping[str, float], traits: Traits
) -> VoiceProfile:
    """Return the participant's way of talking, with two habits of speech."""
    extraversion, agreeableness, openness = (
        scores["extraversion"],
        scores["agreeableness"],
        scores["openness"],
    )
    education = scores["education"]
    return VoiceProfile(
        verbosity=_three_step_value(extraversion, rng, ("brief", "moderate", "talkative")),
        formality=_three_step_value(
            0.6 * education + 0.3 * scores["age"], rng, ("casual", "neutral", "formal")
        ),
        directness=_three_step_value(
            -agreeableness + 0.2 * extraversion, rng, ("indirect", "balanced", "blunt")
        ),
        vocabulary=_three_step_value(
            0.8 * education + 0.3 * openness, rng, ("plain", "everyday", "educated")
        ),
        habits=_draw_speech_habits(rng, traits),
    )


def _three_step_value(value: float, rng: np.random.Generator, names: tuple[T, T, T]) -> T:
    z = value + _TALK_NOISE * rng.standard_normal()
    return names[0] if z < -0.6 else names[2] if z > 0.6 else names[1]


def _draw_speech_habits(rng: np.random.Generator, traits: Traits) -> tuple[str, ...]:
    # The second habit may be a general one, which belongs to no trait.
    most_extreme_first = sorted(
        TRAITS, key=lambda trait_name: -abs(getattr(traits, trait_name) - 50)
    )
    habits_by_trait = load_wordings()["habits"]

    def habit_of(trait: str) -> list[str]:
        return list(habits_by_trait[f"{trait}_{'high' if getattr(traits, trait) >= 50 else 'low'}"])

    first = habit_of(most_extreme_first[0])
    second = habit_of(most_extreme_first[1]) if rng.random() < 0.6 else list(habits_by_trait["any"])
    return first[int(rng.integers(len(first)))], second[int(rng.integers(len(second)))]


# --- the opinion of a concept before anybody has spoken -------------------------------------------


def valence_label(valence: float) -> str:
    """Return the label of a first opinion.

    - `valence`: the opinion as a number from −1 (against) to 1 (in favour).
    """
    return LABELS[sum(valence >= limit for limit in LIMITS)]


def draw_opinion(
    rng: np.random.Generator,
    scores: Mapping[str, float],
    consumer: ConsumerProfile,
    data: Figures,
    fixed: Fixed,
    appeal: float,
) -> Opinion:
    """Return the first opinion of a participant about a concept.

    - `fixed`: a known valence or sentence, in place of a drawn one.
    - `appeal`: how attractive the concept is. This number is added to a drawn valence.
    """
    terms = data["opinion"]
    inputs = {
        "openness": scores["openness"],
        "price_sensitivity": (consumer.price_sensitivity - 50) / 20,
        "engagement": (consumer.engagement - 50) / 20,
    }
    parts = {name: weight * inputs[name] for name, weight in terms["weights"].items()}
    drawn = appeal + math.fsum(parts.values()) + terms["noise"] * rng.standard_normal()
    valence = round(float(fixed.get("valence", min(1.0, max(-1.0, drawn)))), 2)
    # Draw even if the sentence is fixed, so that later draws stay the same.
    pick = rng.random()
    if "opinion" in fixed:
        return Opinion(valence=valence, sentence=str(fixed["opinion"]))
    return Opinion(valence=valence, sentence=valence_sentence(valence, parts, pick))


def valence_sentence(valence: float, parts: Mapping[str, float], pick: float) -> str:
    """Return a sentence that expresses a first opinion.

    - `valence`: the opinion as a number from −1 (against) to 1 (in favour).
    - `parts`: how much each attribute contributes to the opinion.
    - `pick`: a number from 0 to 1 that selects one of the possible sentences.
    """
    # The sentence is on the attribute that contributes most in the direction of the opinion.
    sign = -1.0 if valence < 0 else 1.0
    strongest = max(parts, key=lambda name: sign * parts[name])
    theme_of = {"openness": "newness", "price_sensitivity": "price", "engagement": "category"}
    sentences = load_wordings()["opinion"][valence_label(valence)][theme_of[strongest]]
    return str(sentences[int(pick * len(sentences))])
