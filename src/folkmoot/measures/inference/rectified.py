"""Correct many simulated answers by a few human answers (prediction-powered inference).

The humans must be a random sample of the simulated population.
"""

# The simulated answers may be wrong in any way, because human answers correct them and the interval
# includes the uncertainty of the correction. The people must be in enough independent units
# (clusters). With fewer people or clusters than the limits of this module, the result is the
# uncorrected estimate from people alone.

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import clustered_mean, clustered_share, on_log_odds
from folkmoot.measures.inference.estimates import NORMAL_QUANTILE, Estimate, varies
from folkmoot.measures.inference.proportions import mover, wilson

FloatArray = NDArray[np.float64]

# Below these limits the error of the correction is not known well enough. Tests check the coverage
# of the interval above them.
FEWEST_PEOPLE = 20
FEWEST_CLUSTERS = 10
# People who gave the rarer of two answers.
FEWEST_OF_EACH = 10


@dataclass(frozen=True, slots=True)
class Rectified:
    """The mean of simulated answers after the correction, and the mean of human answers alone."""

    # The result of `rectified_mean`.

    # The corrected mean. If nothing was corrected, it equals `people`.
    corrected: Estimate
    # The mean from people alone.
    people: Estimate
    # The mean of the simulated answers.
    simulated: float
    # The weight of the simulation, 0 to 1.
    weight: float
    # The number of people that a study without a simulation needs for an interval as wide as that
    # of `corrected`.
    worth: float
    # The correlation of human with simulated answers, or NaN if either does not vary.
    fit: float
    # The standard deviation of the human answers.
    spread: float
    # The reason if nothing was corrected, otherwise empty.
    refused: str = ""
    # The factor by which shared conversations of people increase the squared width of the interval,
    # at least 1. NaN without an interval.
    design_effect: float = 1.0

    @property
    def person_count(self) -> int:
        """The number of people who answered."""
        return self.people.n


def rectified_mean(
    people: ArrayLike,
    predicted: ArrayLike,
    simulated: ArrayLike,
    *,
    clusters: Sequence[Hashable] | None = None,
    simulated_clusters: Sequence[Hashable] | None = None,
    share: bool = False,
) -> Rectified:
    """Return the mean of a population, estimated from few human and many simulated answers.

        rectified_mean(people, predicted, simulated, share=True)

    - `people`: answers of people, shape (n,).
    - `predicted`: simulated answers for the same people, shape (n,).
    - `simulated`: simulated answers for other people of the same population, shape (N,).
    - `clusters`: the conversation group of each human answer, shape (n,).
    - `simulated_clusters`: the conversation group of each answer in `simulated`, shape (N,).
    - `share`: True if the answers are 0 and 1.

    With fewer than 20 people, only the human answers count. Raises ValueError for fewer than two
    people, or lengths that differ.

    Sources: Angelopoulos et al. (2023), doi:10.1126/science.adi6000. Weight: Angelopoulos, Duchi
    and Zrnic (2023), arXiv:2311.01453.
    """
    # Further limits are 10 clusters of people and 10 clusters of `simulated`. For a share, the
    # rarer answer must also come from at least 10 people.
    y, f, many = (np.asarray(values, float) for values in (people, predicted, simulated))
    n, others = len(y), len(many)
    if len(f) != n or n < 2:
        raise ValueError(
            f"{n} answers of people and {len(f)} predictions; needs two or more of each"
        )
    units = list(range(n)) if clusters is None else list(clusters)
    alone = _uncorrected_estimate(y, units, share=share, clustered=clusters is not None)
    simulated_units = None if simulated_clusters is None else list(simulated_clusters)
    refused = _refusal_reason(y, units, simulated_units, share=share)
    weight, fit = _correction_weight(y, f, others)
    if refused:
        weight = 0.0
    # The corrected mean is mean(people − w predicted) + w mean(simulated). Its interval combines
    # the CR2 intervals of both terms. A share is computed on the scale of log odds.
    corrected = alone
    if weight:
        own = clustered_mean(y - weight * f, units)
        corrected = _corrected_estimate(own, many, weight, simulated_units, share=share)
    worth = float(n)
    if weight and corrected.has_interval and alone.has_interval:
        worth = n * ((alone.high - alone.low) / (corrected.high - corrected.low)) ** 2
    return Rectified(
        corrected,
        alone,
        float(np.concatenate([f, many]).mean()),
        weight,
        worth,
        fit,
        float(y.std(ddof=1)),
        refused,
        1.0 if clusters is None else _design_effect(y - weight * f, units),
    )


def rectified_difference(first: Rectified, second: Rectified) -> Estimate:
    """Return the difference between the corrected means of two independent conditions.

    The result has no p-value.

    Source: the method MOVER, Zou and Donner (2008), doi:10.1002/sim.3095.
    """
    one, two = first.corrected, second.corrected
    few = min(one.unit_count, two.unit_count)
    return Estimate(one.value - two.value, *mover(one, two), one.n + two.n, few, method="MOVER")


def people_needed(
    width: float,
    spread: float,
    fit: float,
    *,
    design_effect: float = 1.0,
    simulated: float = math.inf,
) -> int | None:
    """Return how many humans must answer so that the 95 % interval has this width.

    Returns None if the interval is wider even if every simulated participant has a human who
    answers.

    - `width`: the whole width, from the lower to the upper bound.
    - `spread`: the standard deviation of human answers.
    - `fit`: the correlation of human answers with the simulated answers.
    - `design_effect`: the factor by which conversation groups increase the variance.
    - `simulated`: the number of simulated participants, with and without a human who answers.

    Raises ValueError for a width of 0 or less.
    """
    # The result is at least `FEWEST_PEOPLE`. With n humans and T simulated participants, the
    # variance of the corrected mean is spread² × ((1 − fit²) / n + fit² / T), which follows from
    # the weight of `_correction_weight`.
    if width <= 0:
        raise ValueError(f"an interval of width {width} is not one")
    alone = (2 * NORMAL_QUANTILE * spread / width) ** 2 * design_effect
    # With a human for each simulated participant, the interval is that of the humans alone.
    if max(FEWEST_PEOPLE, alone) > simulated:
        return None
    explained = min(1.0, max(0.0, fit)) ** 2
    left_for_simulation = 1 - alone * explained / simulated
    count = alone * (1 - explained) / left_for_simulation if explained < 1 else 0.0
    return max(FEWEST_PEOPLE, math.ceil(count))


def _uncorrected_estimate(
    y: FloatArray, units: Sequence[Hashable], *, share: bool, clustered: bool
) -> Estimate:
    if share and not clustered:
        return wilson(round(float(y.sum())), len(y))
    return clustered_share(y, units) if share else clustered_mean(y, units)


def _design_effect(values: FloatArray, units: Sequence[Hashable]) -> float:
    # The squared ratio of the interval widths with and without clusters, at least 1. NaN if one of
    # the two intervals cannot be computed.
    clustered, independent = (
        clustered_mean(values, units),
        clustered_mean(values, range(len(values))),
    )
    if not (clustered.has_interval and independent.has_interval):
        return math.nan
    ratio = (clustered.high - clustered.low) / (independent.high - independent.low)
    return max(1.0, ratio**2)


def _refusal_reason(
    y: FloatArray,
    units: Sequence[Hashable],
    simulated_units: Sequence[Hashable] | None,
    *,
    share: bool,
) -> str:
    if len(y) < FEWEST_PEOPLE:
        return f"{len(y)} people; a correction needs {FEWEST_PEOPLE}"
    groups = len(set(units))
    if groups < FEWEST_CLUSTERS:
        return f"{groups} groups; a correction needs {FEWEST_CLUSTERS}"
    simulated_groups = len(set(simulated_units)) if simulated_units else FEWEST_CLUSTERS
    if simulated_groups < FEWEST_CLUSTERS:
        return (
            f"{simulated_groups} simulated groups beside these people's; a correction needs "
            f"{FEWEST_CLUSTERS}"
        )
    rarer = min(float(y.sum()), len(y) - float(y.sum()))
    if share and rarer < FEWEST_OF_EACH:
        return f"{rarer:.0f} people gave the rarer answer; a correction needs {FEWEST_OF_EACH}"
    return ""


def _correction_weight(y: FloatArray, f: FloatArray, others: int) -> tuple[float, float]:
    # Returns the weight of the simulation, and the correlation of simulated (`f`) and human answers
    # (`y`). The correlation is NaN if either kind of answer does not vary.
    n, spread, own = len(y), float(f.var(ddof=1)), float(y.var(ddof=1))
    if not varies(f):
        return 0.0, math.nan
    together = float(np.cov(y, f, ddof=1)[0, 1])
    fit = together / math.sqrt(spread * own) if varies(y) else math.nan
    weight = together / ((1 + n / others) * spread) if others > 1 else 0.0
    return min(1.0, max(0.0, weight)), fit


def _corrected_estimate(
    own: Estimate,
    many: FloatArray,
    weight: float,
    simulated_units: Sequence[Hashable] | None,
    *,
    share: bool,
) -> Estimate:
    # `own`: the mean of human answers minus weighted predictions for the same people. `many`:
    # simulated answers for other people, with the conversations `simulated_units`.
    value = own.value + weight * float(many.mean())
    reach_of_many = NORMAL_QUANTILE * float(many.std(ddof=1)) / math.sqrt(len(many))
    if simulated_units is not None:
        # Simulated participants who talked with each other are alike as well.
        of_groups = clustered_mean(many, simulated_units)
        reach_of_many = (of_groups.high - of_groups.low) / 2
    # Without an interval of one of the terms there is none of their sum.
    if not (own.has_interval and math.isfinite(reach_of_many)):
        return Estimate(value, math.nan, math.nan, own.n, own.clusters)
    reach = math.hypot((own.high - own.low) / 2, weight * reach_of_many)
    found = Estimate(
        value, value - reach, value + reach, own.n, own.clusters, method="prediction-powered, CR2"
    )
    if not share:
        return found
    # A corrected share may lie outside of 0 and 1, and log odds are undefined there.
    if 0 < value < 1:
        return on_log_odds(found)
    return replace(found.clip_bounds(0.0, 1.0), value=min(1.0, max(0.0, value)))
