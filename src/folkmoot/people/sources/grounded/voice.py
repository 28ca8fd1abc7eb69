"""How somebody talks, following from temperament, schooling and age (assumed, with chance)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from folkmoot.people.sources.grounded.character import words
from folkmoot.people.sources.grounded.profile import TRAITS, Traits, VoiceProfile

S = TypeVar("S", bound=str)
_NOISE = 0.5


def draw_voice(
    rng: np.random.Generator, scores: Mapping[str, float], traits: Traits
) -> VoiceProfile:
    """Verbosity by extraversion, formality by schooling and age, directness by disagreeableness,
    vocabulary by schooling and openness; two habits of speech that fit the most marked traits.
    """
    verbosity: tuple[Literal["brief"], Literal["moderate"], Literal["talkative"]]
    verbosity = ("brief", "moderate", "talkative")
    formality: tuple[Literal["casual"], Literal["neutral"], Literal["formal"]]
    formality = ("casual", "neutral", "formal")
    directness: tuple[Literal["indirect"], Literal["balanced"], Literal["blunt"]]
    directness = ("indirect", "balanced", "blunt")
    vocabulary: tuple[Literal["plain"], Literal["everyday"], Literal["educated"]]
    vocabulary = ("plain", "everyday", "educated")
    e, a, o = scores["extraversion"], scores["agreeableness"], scores["openness"]
    school = scores["education"]
    return VoiceProfile(
        verbosity=_step(e, rng, verbosity),
        formality=_step(0.6 * school + 0.3 * scores["age"], rng, formality),
        directness=_step(-a + 0.2 * e, rng, directness),
        vocabulary=_step(0.8 * school + 0.3 * o, rng, vocabulary),
        habits=_habits(rng, traits),
    )


def _step(value: float, rng: np.random.Generator, names: tuple[Any, Any, Any]) -> Any:
    z = value + _NOISE * rng.standard_normal()
    return names[0] if z < -0.6 else names[2] if z > 0.6 else names[1]


def _habits(rng: np.random.Generator, traits: Traits) -> tuple[str, ...]:
    """One habit of the most marked trait, one of the second or of anybody."""
    order = sorted(TRAITS, key=lambda t: -abs(getattr(traits, t) - 50))
    stock = words()["habits"]

    def of(trait: str) -> list[str]:
        return list(stock[f"{trait}_{'high' if getattr(traits, trait) >= 50 else 'low'}"])

    first = of(order[0])
    second = of(order[1]) if rng.random() < 0.6 else list(stock["any"])
    return first[int(rng.integers(len(first)))], second[int(rng.integers(len(second)))]
