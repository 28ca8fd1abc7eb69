"""A few people's answers correct many simulated ones: prediction-powered inference.

The simulated answers may be wrong in any way; the interval is valid all the same, and narrower than
that of the people alone as far as the simulation predicts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.measures.estimates import Estimate


@dataclass(frozen=True, slots=True)
class Rectified:
    """The corrected mean, that of the people alone, and what the simulation is worth.

    `weight` (0 to 1) is how much the simulation counts. `worth` is the number of people whose
    answers alone would give as narrow an interval; `n` people answered.
    """

    corrected: Estimate
    people: Estimate
    simulated: float
    weight: float
    worth: float

    @property
    def n(self) -> int:
        return self.people.n


def rectified_mean(people: ArrayLike, predicted: ArrayLike, simulated: ArrayLike) -> Rectified:
    """The mean of a population of which few answered and many were simulated.

    `people` (n,) answers of people, `predicted` (n,) what the simulation said in the place of the
    same people, `simulated` (N,) what it said for others of the same population. With w the weight

        mean(people) + w (mean(simulated) − mean(predicted)),
        variance var(people − w predicted) / n + w² var(simulated) / N,

    w = cov(people, predicted) / ((1 + n/N) var(predicted)), within 0 and 1; t with n − 1 df.
    People who all say the same do not tell how sure that is: no interval (NaN).
    Raises ValueError for fewer than two people, or lengths that differ.
    Angelopoulos et al. (2023), doi:10.1126/science.adi6000; Angelopoulos, Duchi and Zrnic (2023),
    arXiv:2311.01453, for the weight.
    """
    from scipy import stats

    y, f, many = (np.asarray(values, float) for values in (people, predicted, simulated))
    n, others = len(y), len(many)
    if len(f) != n or n < 2:
        raise ValueError(
            f"{n} answers of people and {len(f)} predictions; needs two or more of each"
        )
    spread = float(f.var(ddof=1))
    weight = 0.0
    if others > 1 and spread > 0:
        together = float(np.cov(y, f, ddof=1)[0, 1])
        weight = min(1.0, max(0.0, together / ((1 + n / others) * spread)))
    shift = weight * (float(many.mean()) - float(f.mean())) if weight else 0.0
    variance = float((y - weight * f).var(ddof=1)) / n
    if weight:
        variance += weight**2 * float(many.var(ddof=1)) / others
    t = float(stats.t.ppf(0.975, n - 1))
    alone = float(y.var(ddof=1)) / n

    def estimate(value: float, squared: float, method: str) -> Estimate:
        error = t * math.sqrt(squared) if squared > 0 else math.nan
        return Estimate(value, value - error, value + error, n, method=method)

    return Rectified(
        estimate(float(y.mean()) + shift, variance, "prediction-powered"),
        estimate(float(y.mean()), alone, "t"),
        float(np.concatenate([f, many]).mean()),
        weight,
        n * alone / variance if variance else float(n),
    )
