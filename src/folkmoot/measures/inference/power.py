"""Power of a design: detectable effects and required sample sizes.

Source: Cohen (1988), Statistical Power Analysis for the Behavioral Sciences, ch. 6.
"""

# Shares use Cohen's h = 2 asin √p₁ − 2 asin √p₂ and the normal approximation. Means use Cohen's d.
# Clusters are included through the design effect.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.distributions import normal_cdf, normal_quantile, student_quantile
from folkmoot.measures.inference.estimates import ALPHA

# The customary power (Cohen 1988) for which all sizes are computed.
POWER = 0.8


@dataclass(frozen=True, slots=True)
class DesignSize:
    """The size of a design: the number of conditions, and the number of units in each condition."""

    # What a unit is. independent: a participant, and participants do not talk to each other.
    # paired: a block, group or replication that passes through all conditions. clustered: a session
    # of `size` participants who talk.
    kind: Literal["independent", "paired", "clustered"]
    # Number of conditions.
    arms: int
    # Number of units in each condition, or in total for a paired design.
    units: int
    size: int = 1
    # The word for a unit.
    unit_name: str = "participant"
    # (key of the study file that sets the size, its value). The key is empty if no single key sets
    # the size.
    setting: tuple[str, int] = field(default=("", 0), compare=False)


def cohen_h(share1: float, share2: float) -> float:
    """Return Cohen's h for two shares. It is positive if the first share is larger."""
    return 2 * math.asin(math.sqrt(share1)) - 2 * math.asin(math.sqrt(share2))


def power_two_shares(share1: float, share2: float, n: float) -> float:
    """Return the power of a two-sided test (at 5 %) of the difference between two shares.

    - `n`: the number of units in each group.
    """
    return _power_of_h(abs(cohen_h(share1, share2)), n, ALPHA)


def n_two_shares(share1: float, share2: float) -> float:
    """Return how many units each group needs for power `POWER`. The number is not rounded.

    If the shares are equal, the result is infinite.
    """
    h = abs(cohen_h(share1, share2))
    return _smallest_detectable(lambda n: _power_of_h(h, n, ALPHA)) if h else math.inf


def smallest_h(n: float, alpha: float = ALPHA) -> float:
    """Return the smallest Cohen's h that a comparison of two groups detects with power `POWER`.

    - `n`: the number of units in each group.
    """
    return _smallest_detectable(lambda h: _power_of_h(h, n, alpha))


def detectable_share(base: float, n: float, alpha: float = ALPHA) -> float:
    """Return the smallest share above `base` that a comparison of two groups can detect.

    - `n`: the number of units in each group.

    NaN if no share is large enough.
    """
    angle = math.asin(math.sqrt(base)) + smallest_h(n, alpha) / 2
    return math.sin(angle) ** 2 if angle <= math.pi / 2 else math.nan


def smallest_d_paired(pairs: float, alpha: float = ALPHA) -> float:
    """Return the smallest mean of paired differences that a comparison can detect.

    The mean is given in standard deviations of the differences.

    - `pairs`: the number of independent units, such as blocks or sessions.

    The result is NaN with fewer than two units.
    """
    # The test is a t test.
    if pairs < 2:
        return math.nan
    return _smallest_detectable(lambda d: _power_of_t(d * math.sqrt(pairs), pairs - 1, alpha))


def smallest_d(n: float, alpha: float = ALPHA) -> float:
    """Return the smallest Cohen's d that a comparison of two groups detects with power `POWER`.

    - `n`: the number of units in each group.

    NaN with fewer than two units in each group.
    """
    if n < 2:
        return math.nan
    return _smallest_detectable(lambda d: _power_of_t(d * math.sqrt(n / 2), 2 * n - 2, alpha))


def smallest_margin_paired(pairs: float, ratio: float = 0.0, alpha: float = ALPHA) -> float:
    """Return the smallest margin for which paired differences show an equivalence.

    The margin is given in standard deviations of the differences. The power is `POWER`.

    - `pairs`: the number of independent units, such as blocks or sessions.
    - `ratio`: the true difference as a share of the margin.

    NaN with fewer than two units, or if the true difference is not within the margin.
    """
    return _smallest_margin(math.sqrt(pairs), pairs - 1, ratio, alpha)


def smallest_margin(units: float, ratio: float = 0.0, alpha: float = ALPHA) -> float:
    """Return the smallest margin for which a comparison of two groups shows an equivalence.

    The margin is given in standard deviations within the groups. The power is `POWER`.

    - `units`: the number of units in each group.
    - `ratio`: the true difference as a share of the margin.

    NaN with fewer than two units in each group, or if the true difference is not within the margin.
    """
    return _smallest_margin(math.sqrt(units / 2), 2 * units - 2, ratio, alpha)


def _smallest_margin(root: float, df: float, ratio: float, alpha: float) -> float:
    # `root`: one standard deviation in standard errors.
    if df < 1 or abs(ratio) >= 1:
        return math.nan
    return _smallest_detectable(
        lambda margin: power_within(margin * root, ratio * margin * root, df, alpha)
    )


def power_within(margin: float, difference: float, df: float, alpha: float) -> float:
    """Return the chance that the t interval of a difference lies within ± `margin`.

    - `margin`, `difference`: the margin and the true difference, in standard errors.
    - `df`: the degrees of freedom of the standard error.
    - `alpha`: the interval has the level 1 − `alpha`.

    Source: Phillips (1990), doi:10.1007/BF01063556.
    """
    from scipy.special import chdtri, gammaln, ndtr

    # Given the ratio of the estimated to the true standard error, the estimate must lie within the
    # margin by half an interval. The chance is averaged over the distribution of this ratio.
    half = student_quantile(1 - alpha / 2, df)
    low, high = (math.sqrt(float(chdtri(df, tail)) / df) for tail in (1 - 1e-14, 1e-14))
    high = min(high, margin / half)
    if high <= low:
        return 0.0
    nodes, weights = _quadrature()
    ratios = low + (high - low) * (nodes + 1) / 2
    log_density = (df - 1) * np.log(ratios) - df * ratios**2 / 2
    constant = df / 2 * math.log(df / 2) + math.log(2) - float(gammaln(df / 2))
    room = margin - half * ratios
    inside = ndtr(room - difference) - ndtr(-room - difference)
    total = float((weights * np.exp(log_density + constant) * inside).sum())
    return min(1.0, (high - low) / 2 * total)


@cache
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.polynomial.legendre.leggauss(100)


def _power_of_h(h: float, n: float, alpha: float) -> float:
    # A two-sided normal test. For h = 0 the power is alpha.
    critical, shift = -normal_quantile(alpha / 2), h * math.sqrt(n / 2)
    return normal_cdf(shift - critical) + normal_cdf(-critical - shift)


def _power_of_t(shift: float, df: float, alpha: float) -> float:
    from scipy.stats import nct

    critical = -student_quantile(alpha / 2, df)
    lower = float(nct.cdf(-critical, df, shift))
    # scipy returns NaN for probabilities below 10⁻¹⁶.
    if math.isnan(lower):
        lower = 0.0
    return float(nct.sf(critical, df, shift)) + lower


def _smallest_detectable(power: Callable[[float], float]) -> float:
    from scipy.optimize import brentq

    # Double the upper end until it brackets the solution.
    high = 1.0
    while power(high) < POWER:
        high *= 2
    return float(brentq(lambda size: power(size) - POWER, 0.0, high, xtol=1e-12, rtol=1e-12))


def design_effect(cluster_size: float, icc: float) -> float:
    """Return the factor by which clusters increase variances.

        design_effect(5, 0.1)  # 1.4

    - `cluster_size`: the mean number of members of a cluster.
    - `icc`: how alike members of a cluster are, from 0 to 1.

    Raises ValueError for an impossible size or ICC.

    Formula: 1 + (m − 1) ICC. Source: Kish (1965), Survey Sampling, section 5.4.
    """
    if not -1 <= icc <= 1 or cluster_size < 1:
        raise ValueError(f"impossible clusters: size {cluster_size}, ICC {icc}")
    return 1 + (cluster_size - 1) * icc


def effective_n(n: float, cluster_size: float, icc: float) -> float:
    """Return how many independent units give as much information as n clustered units.

    - `icc`: how alike members of a cluster are, from 0 to 1.
    """
    return n / max(design_effect(cluster_size, icc), 1e-9)


def power_beyond(
    difference: float,
    se: float,
    smallest: float,
    alpha: float,
    *,
    equivalent: bool,
    upper_alpha: float | None,
) -> float:
    """Return the chance that the interval of an estimate lies above `smallest`.

    - `difference`, `se`: the mean and the standard error of the estimate.
    - `equivalent`: True to return the chance that the interval lies within ± `smallest`.
    - `upper_alpha`: the level of the upper bound if it differs from `alpha`.
    """
    # The estimate is normal, and the interval has the level 1 − alpha.
    half = normal_quantile(1 - alpha / 2)
    if equivalent:
        upper_half = normal_quantile(1 - (upper_alpha or alpha) / 2)
        room, shift = smallest / se, difference / se
        return max(0.0, normal_cdf(room - upper_half - shift) - normal_cdf(half - room - shift))
    return normal_cdf((difference - smallest) / se - half)
