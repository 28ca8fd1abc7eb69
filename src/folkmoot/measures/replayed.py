"""Compare simulated answers with the human answers of the replayed experiment."""

# Descriptive fit compares the answers, and causal fidelity compares the effects. A simulation can
# have good descriptive fit without causal fidelity, and the reverse.

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import clustered_mean
from folkmoot.measures.inference.estimates import Estimate, varies

FloatArray = NDArray[np.float64]


class Fit(NamedTuple):
    """The agreement between simulated and human changes of n answers."""

    # A change is the second answer minus the first answer.

    n: int
    # The mean change of people and of the simulation (`people_change`, `change`).
    people_change: float
    change: float
    # The simulated mean change minus that of people, clustered by person.
    gap: Estimate
    # The correlation of both changes over answers, or NaN if either does not vary.
    correlation: float
    # The slope of people's change on the simulated change. 1: the simulated changes have the right
    # size.
    slope: float
    # The Wasserstein distance of the final answers, as a share of the scale.
    distance: float
    # The share of answers that changed (`people_moved`, `moved`).
    people_moved: float
    moved: float
    # The share of answers that ended on the other side of the middle (`people_crossed`, `crossed`).
    people_crossed: float
    crossed: float
    # The slope of the change on the first answer. Below 0, answers move towards the mean
    # (`people_regression`, `regression`).
    people_regression: float
    regression: float


class Fidelity(NamedTuple):
    """The agreement between simulated and human effects on several items."""

    items: int
    correlation: float
    # The slope of the effects in people on the simulated effects.
    slope: float
    # The share of items in which both effects have the same sign, or NaN if all effects in people
    # are 0.
    same_sign: float


def fit_of_changes(
    people: tuple[ArrayLike, ArrayLike],
    simulated: tuple[ArrayLike, ArrayLike],
    persons: Sequence[Hashable],
    scale: tuple[float, float],
) -> Fit:
    """Compare the changes of human answers with the changes of simulated answers.

    - `people`, `simulated`: (first answers, second answers), each of shape (n,).
    - `persons`: the person who gave each answer, shape (n,).
    - `scale`: the lowest and the highest possible answer.

    Raises ValueError without answers.
    """
    (b, a), (sb, sa) = (
        tuple(np.asarray(value, float) for value in side) for side in (people, simulated)
    )
    if not len(b):
        raise ValueError("no answers to compare")
    real, own = a - b, sa - sb
    low, high = scale
    middle = (low + high) / 2
    # The Wasserstein distance of the last answers, as a share of the scale.
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
        _share_crossing_middle(b, a, middle),
        _share_crossing_middle(sb, sa, middle),
        _slope(b, real),
        _slope(sb, own),
    )


def adjusted_changes(before: ArrayLike, after: ArrayLike) -> FloatArray:
    """Return each answer's change minus the change that the first answer predicts, shape (n,)."""
    # Answers of people and of models both regress to the mean. Without this adjustment, items with
    # extreme first answers would show similar "effects" in both.
    first, last = np.asarray(before, float), np.asarray(after, float)
    change = last - first
    slope = _slope(first, change)
    predicted = 0.0 if math.isnan(slope) else slope * (first - first.mean())
    adjusted: FloatArray = change - predicted
    return adjusted


def fidelity(effects_of_people: ArrayLike, simulated: ArrayLike) -> Fidelity:
    """Compare the effects on humans with the simulated effects, item by item.

    - `effects_of_people`, `simulated`: one effect for each item, shape (items,).
    """
    real, own = np.asarray(effects_of_people, float), np.asarray(simulated, float)
    known = real != 0
    same = float((np.sign(real[known]) == np.sign(own[known])).mean()) if known.any() else math.nan
    return Fidelity(len(real), _correlation(own, real), _slope(own, real), same)


def _share_crossing_middle(before: FloatArray, after: FloatArray, middle: float) -> float:
    # Answers on the middle do not count.
    return float(((before - middle) * (after - middle) < 0).mean())


def _correlation(x: FloatArray, y: FloatArray) -> float:
    if len(x) < 3 or not (varies(x) and varies(y)):
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def _slope(x: FloatArray, y: FloatArray) -> float:
    if len(x) < 3 or not varies(x):
        return math.nan
    return float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
