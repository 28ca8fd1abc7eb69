"""How somebody buys: VALS type, price sensitivity, loyalty, engagement, channels, adoption."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from folkmoot.people.sources.grounded.population import Circumstances, Figures
from folkmoot.people.sources.grounded.profile import TRAITS, ConsumerProfile, Traits, Vals

_NORMAL = NormalDist()
_TYPES: dict[str, tuple[Vals, Vals]] = {
    "ideals": ("thinker", "believer"),
    "achievement": ("achiever", "striver"),
    "self-expression": ("experiencer", "maker"),
}


def scores_of(who: Circumstances, traits: Traits) -> dict[str, float]:
    """All standardised scores that weights may name."""
    return {**who.scores(), **{t: traits.z(t) for t in TRAITS}}


def weighted(weights: Mapping[str, float], scores: Mapping[str, float]) -> float:
    """Σ weight × score."""
    return sum(w * scores[name] for name, w in weights.items())


def draw_vals(rng: np.random.Generator, scores: Mapping[str, float], data: Figures) -> Vals:
    """A VALS type: resources decide the row, the strongest motivation the column."""
    terms = data["vals"]
    spread = math.sqrt(sum(w * w for w in terms["resources"].values()))
    rank = _NORMAL.cdf(weighted(terms["resources"], scores) / (1.12 * spread))
    drive = {
        name: weighted(weights, scores) + terms["motivation_noise"] * rng.standard_normal()
        for name, weights in terms["motivation"].items()
    }
    if rank > 1 - terms["innovators"]:
        return "innovator"
    if rank < terms["survivors"]:
        return "survivor"
    middle = (terms["survivors"] + 1 - terms["innovators"]) / 2
    high, low = _TYPES[max(drive, key=lambda name: drive[name])]
    return high if rank > middle else low


def draw_consumer(
    rng: np.random.Generator,
    scores: Mapping[str, float],
    age: int,
    data: Figures,
    fixed: Mapping[str, Any],
) -> ConsumerProfile:
    """Scores 0–100 with unit variance before scaling, channels by age, the stage of adoption."""
    drawn = {
        name: _score(weighted(weights, scores), weights, rng)
        for name, weights in data["consumer"].items()
    }
    drawn.update({name: int(fixed[name]) for name in drawn if name in fixed})
    return ConsumerProfile(
        **drawn,
        channels=_channels(rng, age, scores),
        adoption=fixed.get("adoption") or _adoption(rng, scores, data),
    )


def _score(value: float, weights: Mapping[str, float], rng: np.random.Generator) -> int:
    noise = math.sqrt(max(0.05, 1 - sum(w * w for w in weights.values())))
    z = value + noise * rng.standard_normal()
    return round(min(100.0, max(0.0, 50 + 20 * z)))


def _adoption(rng: np.random.Generator, scores: Mapping[str, float], data: Figures) -> Any:
    """The stage whose published share holds the person's rank in innovativeness."""
    terms = data["adoption"]
    spread = math.sqrt(sum(w * w for w in terms["weights"].values()) + terms["noise"] ** 2)
    z = (weighted(terms["weights"], scores) + terms["noise"] * rng.standard_normal()) / spread
    above = 1 - _NORMAL.cdf(z)
    for stage, share in terms["shares"].items():
        above -= share
        if above < 0:
            return stage
    return list(terms["shares"])[-1]


def _channels(rng: np.random.Generator, age: int, scores: Mapping[str, float]) -> tuple[str, ...]:
    """Two or three places where somebody shops, the young online first (assumed)."""
    lean = {
        "online marketplaces": 1.2 - 0.02 * (age - 40),
        "a phone app": 0.9 - 0.03 * (age - 40),
        "big-box stores": 0.9 - 0.15 * scores["income"],
        "the neighborhood grocery": 0.7 + 0.01 * (age - 40),
        "discount stores": 0.6 - 0.45 * scores["income"],
        "specialty shops": 0.4 + 0.3 * scores["income"] + 0.15 * scores["openness"],
        "catalogs and mail": -0.3 + 0.02 * (age - 40),
    }
    drawn = {name: value + 0.5 * rng.standard_normal() for name, value in lean.items()}
    ranked = sorted(drawn, key=lambda name: -drawn[name])
    return tuple(ranked[: 2 + int(rng.random() < 0.4)])
