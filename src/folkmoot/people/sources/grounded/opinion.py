"""The pre-seeded opinion: what somebody thinks of a concept before anybody has spoken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from folkmoot.people.sources.grounded.character import words
from folkmoot.people.sources.grounded.profile import ConsumerProfile, Opinion

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
_LIMITS = (-0.6, -0.2, 0.2, 0.6)


def label(valence: float) -> str:
    """The band of a valence in words."""
    return LABELS[sum(valence >= limit for limit in _LIMITS)]


def draw_opinion(
    rng: np.random.Generator,
    scores: Mapping[str, float],
    consumer: ConsumerProfile,
    data: Mapping[str, Any],
    fixed: Mapping[str, Any],
    appeal: float = 0.0,
) -> Opinion:
    """Valence from openness, price sensitivity and engagement, and a sentence that says why."""
    terms = data["opinion"]
    inputs = {
        "openness": scores["openness"],
        "price_sensitivity": (consumer.price_sensitivity - 50) / 20,
        "engagement": (consumer.engagement - 50) / 20,
    }
    parts = {name: weight * inputs[name] for name, weight in terms["weights"].items()}
    drawn = appeal + sum(parts.values()) + terms["noise"] * rng.standard_normal()
    valence = round(float(fixed.get("valence", min(1.0, max(-1.0, drawn)))), 2)
    pick = rng.random()
    if "opinion" in fixed:
        return Opinion(valence=valence, sentence=str(fixed["opinion"]))
    return Opinion(valence=valence, sentence=sentence(valence, parts, pick))


def sentence(valence: float, parts: Mapping[str, float], pick: float) -> str:
    """A sentence for a valence; what pulls hardest in its direction is what it speaks of."""
    sign = -1.0 if valence < 0 else 1.0
    strongest = max(parts, key=lambda name: sign * parts[name])
    theme = {"openness": "newness", "price_sensitivity": "price", "engagement": "category"}
    stock = words()["opinion"][label(valence)][theme[strongest]]
    return str(stock[int(pick * len(stock))])
