"""Means of units that shared a conversation, which are not independent of each other.

The intervals cluster by discussion, session, group or set, with a correction for few clusters; with
fewer than five there is none. Test and interval are one method, so that they never disagree.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate

FloatArray = NDArray[np.float64]

_NOTHING = 1e-18  # variances below this, relative to the value squared, are rounding
_SINGULAR = 1e-10  # of 1 − leverage: below it a cluster determines a coefficient by itself
# Satterthwaite's degrees of freedom, below which the t distribution does not fit and no test is
# made (Pustejovsky and Tipton 2018). The mean of five clusters of one size has four but for
# rounding.
FEWEST_DF = 4 - 1e-9
_SYMMETRIC = 1e-6  # of the skewness of a mean: below it there is nothing to allow for
ROWS_AT_ONCE = 100_000  # of clusters that are taken apart together


def clustered_mean(
    values: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """The mean of `values` (n,) with an interval clustered by `clusters` (n,).

    By CR2, see `clustered_coefficient`; with one value per cluster it is the ordinary t interval.
    p: against a mean of zero. Non-finite values are left out.
    """
    y, groups = _finite_values(values, clusters)
    found = clustered_coefficient(y, np.ones((len(y), 1)), 0, groups.tolist(), level)
    if 0 < found.clusters < FEWEST_UNITS:
        means = np.bincount(groups, weights=y) / np.bincount(groups)
        found = replace(found, each=tuple(means.tolist()))
    # The plain mean, without the rounding of the fit: 0.5 is to read 0.5.
    return replace(found, value=float(y.mean())) if len(y) else found


def skewed_mean(values: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95) -> Estimate:
    """The mean of `values` (n,) that may lie at one end of a scale, clustered by `clusters` (n,).

    As `clustered_mean`, with a t statistic that Hall's cubic transformation makes nearly symmetric;
    its skewness is that of the clusters' sums of deviations. Where nearly half of all ratings lie
    at the end of the scale, the plain t interval of ten of them holds the mean too seldom.
    Hall (1992), J. R. Statist. Soc. B 54, 221–228, doi:10.1111/j.2517-6161.1992.tb01876.x.
    """
    from scipy.stats import t as student

    estimate = clustered_mean(values, clusters, level)
    if not estimate.has_interval:
        return estimate
    y, groups = _finite_values(values, clusters)
    variance, df = _bias_reduced(y - estimate.value, np.ones((len(y), 1)), 0, groups)
    sums = np.bincount(groups, weights=y - estimate.value)
    number = len(sums)
    third = number / ((number - 1) * (number - 2)) * float((sums**3).sum())
    skew = third / float(sums.var(ddof=1)) ** 1.5 / math.sqrt(number)
    if abs(skew) < _SYMMETRIC:
        return estimate
    error, limit = math.sqrt(variance), float(student.ppf((1 + level) / 2, df))

    def untransformed(statistic: float) -> float:
        return float(3 / skew * (np.cbrt(1 + skew * (statistic - skew / 6)) - 1))

    zero = estimate.value / error
    at_zero = ((1 + skew * zero / 3) ** 3 - 1) / skew + skew / 6
    low, high = (estimate.value - error * untransformed(way * limit) for way in (1, -1))
    p = float(2 * student.sf(abs(at_zero), df))
    return replace(
        estimate, low=low, high=high, p=p, method=f"{estimate.method}, skewness allowed for"
    )


def clustered_share(hits: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95) -> Estimate:
    """The share of `hits` (n,), of 0 and 1, with an interval clustered by `clusters` (n,).

    The standard error and degrees of freedom of `clustered_mean`, on the scale of log odds: a rare
    answer that some clusters share has a skewed estimate, for which the plain interval is too
    short above. No interval where all units or none are hits.
    """
    return on_log_odds(clustered_mean(hits, clusters, level))


def on_log_odds(e: Estimate) -> Estimate:
    """The estimate of a share with its interval made symmetric on the scale of log odds."""
    if not 0 < e.value < 1:
        return replace(e, low=math.nan, high=math.nan, p=math.nan)
    if not e.has_interval:
        return e
    middle = math.log(e.value / (1 - e.value))
    reach = (e.high - e.low) / 2 / (e.value * (1 - e.value))
    low, high = (0.5 * (1 + math.tanh((middle + way * reach) / 2)) for way in (-1, 1))
    return replace(e, low=low, high=high, p=math.nan, method=f"{e.method}, on log odds")


def paired_difference(
    after: ArrayLike, before: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """The mean of after − before over the same units (n,), clustered; see `clustered_mean`."""
    return clustered_mean(np.asarray(after, float) - np.asarray(before, float), clusters, level)


def clustered_difference(
    values: ArrayLike, treated: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """Mean of the treated minus mean of the others, clustered, by `clustered_coefficient`.

    `values` (n,), `treated` (n,) truth values, `clusters` (n,), each on one side or on both. No
    interval (NaN) with fewer than two clusters on a side.
    """
    side = np.asarray(treated, bool)
    y = np.asarray(values, float)
    keep = np.isfinite(y)
    y, side = y[keep], side[keep]
    groups = _encode_labels([cluster for cluster, k in zip(clusters, keep, strict=True) if k])
    both = [np.unique(groups[side]), np.unique(groups[~side])]
    if not all(map(len, both)):
        return Estimate(math.nan, math.nan, math.nan, len(y), len(np.unique(groups)))
    design = np.column_stack([np.ones(len(y)), side.astype(float)])
    found = clustered_coefficient(y, design, 1, groups.tolist(), level)
    found = replace(found, value=float(y[side].mean() - y[~side].mean()))
    if min(map(len, both)) < 2:
        return replace(found, low=math.nan, high=math.nan, p=math.nan)
    return found


def clustered_coefficient(
    y: ArrayLike,
    design: FloatArray,
    column: int,
    clusters: Sequence[Hashable],
    level: float = 0.95,
) -> Estimate:
    """One coefficient of a least-squares fit of y (n,) on `design` (n, k), clustered.

    Bias-reduced sandwich variance (CR2) and t with Satterthwaite's degrees of freedom, which hold
    with few or unequal clusters as well; both under the working model of independent errors. The
    constant, if wanted, is a column. Fewer than five clusters, fewer than four degrees of freedom,
    or clusters between which nothing varies: no interval (NaN). A cluster None is a unit of its
    own.
    Bell and McCaffrey (2002), Survey Methodology 28, 169–181; Pustejovsky and Tipton (2018),
    doi:10.1080/07350015.2016.1247004.
    """
    from scipy.stats import t as student

    outcome, groups = np.asarray(y, float), _encode_labels(clusters)
    n, g = len(outcome), len(np.unique(groups))
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    fit = np.linalg.lstsq(design, outcome)[0]
    value = float(fit[column])
    none = Estimate(value, math.nan, math.nan, n, g)
    if g < FEWEST_UNITS or n <= design.shape[1]:
        return none
    variance, df = _bias_reduced(outcome - design @ fit, design, column, groups)
    if variance <= _NOTHING * max(1.0, value**2):
        # All clusters say the same: there is no spread from which to tell how sure that is.
        if abs(value) < _NOTHING:
            return replace(none, p=1.0)
        return replace(none, why="nothing varies between independent units")
    if df < FEWEST_DF:
        why = f"{df:.1f} degrees of freedom, fewer than four: independent units of unequal size"
        return replace(none, why=why)
    error = math.sqrt(variance)
    reach = float(student.ppf((1 + level) / 2, df)) * error
    p = float(2 * student.sf(abs(value) / error, df))
    return Estimate(value, value - reach, value + reach, n, g, p, f"CR2, t with {df:.1f} df")


def _bias_reduced(
    residuals: FloatArray, design: FloatArray, column: int, groups: NDArray[np.int64]
) -> tuple[float, float]:
    """The CR2 variance of a coefficient, and its degrees of freedom."""
    bread = np.linalg.pinv(design.T @ design)
    width = design.shape[1]
    values, vectors = np.linalg.eigh(bread)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    scores, own, cross = (
        np.empty(len(starts)),
        np.empty(len(starts)),
        np.empty((len(starts), width)),
    )
    for clusters in _clusters_by_size(
        sizes
    ):  # of one size: their matrices are taken apart together
        rows = order[starts[clusters][:, None] + np.arange(sizes[clusters[0]])]
        x = design[rows]
        # I − H of the cluster differs from I only in the span of its rows of the design.
        q, s, _ = np.linalg.svd(x @ root, full_matrices=False)
        left = 1.0 - s**2
        stretch = np.where(left > _SINGULAR, 1 / np.sqrt(np.maximum(left, _SINGULAR)), 0.0) - 1.0
        weights = x @ bread[:, column]
        inside = stretch * np.einsum("crk,cr->ck", q, weights)
        weights = weights + np.einsum("crk,ck->cr", q, inside)
        scores[clusters] = np.einsum("cr,cr->c", weights, residuals[rows])
        own[clusters] = np.einsum("cr,cr->c", weights, weights)
        cross[clusters] = np.einsum("crk,cr->ck", x, weights)
    inner = bread @ cross.T @ cross
    trace = own.sum() - np.trace(inner)
    squares = (own**2).sum() + np.trace(inner @ inner)
    squares -= 2 * (own * ((cross @ bread) * cross).sum(axis=1)).sum()
    return float(np.square(scores).sum()), float(trace**2 / squares) if squares > 0 else 1.0


def _clusters_by_size(sizes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The numbers of clusters of one size, so many of them that their rows fit into memory."""
    for size in np.unique(sizes):
        clusters = np.flatnonzero(sizes == size)
        yield from np.array_split(clusters, math.ceil(len(clusters) * size / ROWS_AT_ONCE))


def _finite_values(
    values: ArrayLike, clusters: Sequence[Hashable]
) -> tuple[FloatArray, NDArray[np.int64]]:
    y = np.asarray(values, float)
    if len(y) != len(clusters):
        raise ValueError(f"{len(y)} values but {len(clusters)} cluster labels")
    keep = np.isfinite(y)
    return y[keep], _encode_labels(
        [cluster for cluster, k in zip(clusters, keep, strict=True) if k]
    )


def _encode_labels(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    seen: dict[Hashable, int] = {}
    # Units of which no cluster is known did not share one for that reason.
    own = (("alone", n) if label is None else label for n, label in enumerate(labels))
    return np.array([seen.setdefault(label, len(seen)) for label in own], dtype=np.int64)
