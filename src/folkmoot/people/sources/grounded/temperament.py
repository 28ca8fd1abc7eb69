"""OCEAN scores with published inter-trait correlations and differences of age and sex."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folkmoot.people.sources.grounded.population import figures
from folkmoot.people.sources.grounded.profile import TRAITS, Traits


def draw_traits(
    rng: np.random.Generator, age: int, sex: str, fixed: Mapping[str, Any], country: str = "us"
) -> Traits:
    """Five scores for somebody of this age and sex: mean by both, residuals correlated.

    Scores that `fixed` names are kept; the others are drawn as if it did not.
    """
    terms = figures(country)["ocean"]
    residual = residual_factor(country) @ rng.standard_normal(len(TRAITS))
    scores: dict[str, int] = {}
    for trait, r in zip(TRAITS, residual, strict=True):
        z = mean_z(trait, age, sex, terms) + float(r)
        drawn = round(min(100.0, max(0.0, terms["mean"] + terms["sd"] * z)))
        scores[trait] = int(fixed.get(trait, drawn))
    return Traits(**scores)


def mean_z(trait: str, age: int, sex: str, terms: Mapping[str, Any]) -> float:
    """What age and sex alone let one expect, in standard deviations."""
    half = terms["women_minus_men"][trait] / 2
    slope = terms["per_decade"][sex][trait] * (age - terms["pivot_age"]) / 10
    return float((half if sex == "F" else -half) + slope)


@lru_cache(maxsize=4)
def residual_factor(country: str = "us") -> NDArray[np.float64]:
    """The factor that turns independent normals into what age and sex leave of the traits.

    The published correlations are those of whole populations, so the covariance that age and sex
    make is taken off: the total then has unit variances and the published correlations.
    """
    remaining = published(country) - _by_age_and_sex(country)
    return np.asarray(np.linalg.cholesky(remaining), dtype=np.float64)


def _by_age_and_sex(country: str) -> NDArray[np.float64]:
    """Covariance of the five means over the ages and sexes of the population."""
    data = figures(country)
    terms = data["ocean"]
    cells: list[list[float]] = []
    weights: list[float] = []
    for band, share in data["age"].items():
        low, high = map(int, band.split("-"))
        for age in range(low, high + 1):
            for sex, half in data["sex"].items():
                cells.append([mean_z(t, age, sex, terms) for t in TRAITS])
                weights.append(share * half / (high - low + 1))
    return np.cov(np.array(cells).T, aweights=np.array(weights), ddof=0)


def published(country: str = "us") -> NDArray[np.float64]:
    """The published correlation matrix, in the order of `TRAITS`."""
    pairs = figures(country)["ocean"]["correlations"]
    matrix = np.eye(len(TRAITS))
    for pair, r in pairs.items():
        i, j = (TRAITS.index(t) for t in pair.split("-"))
        matrix[i, j] = matrix[j, i] = r
    return matrix
