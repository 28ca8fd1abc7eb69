"""How a simulated experiment fits the human one that it replays, answer by answer.

Descriptive fit (do the answers look alike?) and causal fidelity (are the effects alike?) are
separate: a simulation can have either without the other.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import clustered_mean
from folkmoot.measures.inference.estimates import Estimate

FloatArray = NDArray[np.float64]


class Fit(NamedTuple):
    """The people's changes and the simulated ones of the same answers.

    `people_change`, `change`: means; `gap`: simulated minus people's, clustered by person.
    `correlation` and `slope` (of the people's change on the simulated one; 1 is calibrated) over
    individuals; NaN where either has no variance. `distance`: between the distributions of final
    answers, as the mean distance that an answer has to be moved (Wasserstein), a share of the
    scale. `moved`, `crossed`: shares with another answer than before, and on the other side of the
    middle. `regression`: slope of the change on the first answer; below 0: towards the mean.
    """

    n: int
    people_change: float
    change: float
    gap: Estimate
    correlation: float
    slope: float
    distance: float
    people_moved: float
    moved: float
    people_crossed: float
    crossed: float
    people_regression: float
    regression: float


class Fidelity(NamedTuple):
    """Simulated effects against those of people, over items. `same_sign`: the share of items in
    which both effects have one sign; NaN where none of the people's differs from 0."""

    items: int
    correlation: float
    slope: float
    same_sign: float


def fit_of_changes(
    people: tuple[ArrayLike, ArrayLike],
    simulated: tuple[ArrayLike, ArrayLike],
    persons: Sequence[Hashable],
    scale: tuple[float, float],
) -> Fit:
    """Compare (before, after) of people with those of the simulation, (n,) each and in one order.

    `persons` (n,): who answered; `scale`: lowest and highest answer. Raises ValueError for none.
    """
    (b, a), (sb, sa) = (
        tuple(np.asarray(value, float) for value in side) for side in (people, simulated)
    )
    if not len(b):
        raise ValueError("no answers to compare")
    real, own = a - b, sa - sb
    low, high = scale
    middle = (low + high) / 2
    distance = float(np.abs(np.sort(a) - np.sort(sa)).mean()) / (high - low)
    return Fit(
        len(b),
        float(real.mean()),
        float(own.mean()),
        clustered_mean(own - real, persons),
        _correlation(own, real),
        _slope(own, real),
        distance,
        float((real != 0).mean()),
        float((own != 0).mean()),
        _crossed(b, a, middle),
        _crossed(sb, sa, middle),
        _slope(b, real),
        _slope(sb, own),
    )


def adjusted_changes(before: ArrayLike, after: ArrayLike) -> FloatArray:
    """Changes (n,) as they would be from the mean first answer: each less what its own first answer
    predicts. Without this, items with extreme first answers have alike "effects" in any two sets
    of answers, because both regress to the mean."""
    first, last = np.asarray(before, float), np.asarray(after, float)
    change = last - first
    slope = _slope(first, change)
    predicted = 0.0 if math.isnan(slope) else slope * (first - first.mean())
    adjusted: FloatArray = change - predicted
    return adjusted


def fidelity(effects_of_people: ArrayLike, simulated: ArrayLike) -> Fidelity:
    """Compare effects (items,) of people with simulated ones of the same items."""
    real, own = np.asarray(effects_of_people, float), np.asarray(simulated, float)
    known = real != 0
    same = float((np.sign(real[known]) == np.sign(own[known])).mean()) if known.any() else math.nan
    return Fidelity(len(real), _correlation(own, real), _slope(own, real), same)


def _crossed(before: FloatArray, after: FloatArray, middle: float) -> float:
    """The share that ends on the other side of the middle; who stood on it cannot cross it."""
    return float(((before - middle) * (after - middle) < 0).mean())


def _correlation(x: FloatArray, y: FloatArray) -> float:
    if len(x) < 3 or x.std() == 0 or y.std() == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def _slope(x: FloatArray, y: FloatArray) -> float:
    """The slope of y on x; NaN where x does not vary."""
    if len(x) < 3 or x.std() == 0:
        return math.nan
    return float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
