"""Means and differences of dependent values, for example of answers in one conversation.

There is no interval with fewer than five clusters.
"""

# Intervals are clustered by discussion, session, group or block, with a correction for few
# clusters. Test and interval use one method, so they always agree.

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.distributions import (
    normal_p,
    normal_quantile,
    student_p,
    student_quantile,
)
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate
from folkmoot.measures.inference.proportions import wilson

FloatArray = NDArray[np.float64]

# Smaller variances, relative to the squared value, are rounding errors.
_NOTHING = 1e-18
# If 1 − leverage is below this, a single cluster determines a coefficient.
_SINGULAR = 1e-10
# With fewer of Satterthwaite's degrees of freedom the t distribution fits badly, and no test is
# made (Pustejovsky and Tipton 2018). The mean of five clusters of equal size has four degrees of
# freedom, up to rounding.
FEWEST_DF = 4 - 1e-9
# A mean with a smaller skewness needs no transformation.
_SYMMETRIC = 1e-6
# Rows of clusters that are decomposed together. It bounds the memory for their matrices.
ROWS_AT_ONCE = 100_000
# Means of clusters that differ by less are equal up to rounding.
_EQUAL = 1e-12
NOTHING_VARIES = "nothing varies between independent units"
EQUAL_UNITS = "Wilson over units, which are all equal"


def clustered_mean(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Return the mean of values, with an interval that allows for clusters.

        clustered_mean([1, 2, 3, 4, 5], ["a", "b", "c", "d", "e"])

    - `values`: numbers, shape (n,). Values that are not finite are left out.
    - `clusters`: the independent group of each value, shape (n,).
    - `level`: the confidence level of the interval.
    - `bounds`: the smallest and the largest possible value. With `bounds`, the interval stays
      between the two values, and there is an interval even if all clusters have the same mean.

    The p-value tests a mean of zero. Raises ValueError if the lengths differ.
    """
    # The method is CR2, see `clustered_coefficient`. With one value per cluster, the result is the
    # ordinary t interval.
    y, groups = _finite_values(values, clusters)
    found = clustered_coefficient(y, np.ones((len(y), 1)), 0, groups.tolist(), level)
    if 0 < found.clusters < FEWEST_UNITS:
        means = np.bincount(groups, weights=y) / np.bincount(groups)
        found = replace(found, each=tuple(means.tolist()))
    # Replace the fitted value by the plain mean, so that 0.5 is exactly 0.5.
    found = replace(found, value=float(y.mean())) if len(y) else found
    return found if bounds is None else _within_bounds(found, y, groups, level, bounds)


def _within_bounds(
    found: Estimate,
    y: FloatArray,
    groups: NDArray[np.int64],
    level: float,
    bounds: tuple[float, float],
) -> Estimate:
    sizes = np.bincount(groups)
    if found.clusters < FEWEST_UNITS or np.ptp(np.bincount(groups, weights=y) / sizes) > _EQUAL:
        return found.clip_bounds(*bounds)
    low, high = interval_of_equal_units(found.value, sizes, bounds, level)
    # The p-value of a mean of zero is the level at which one end of the interval is zero. At that
    # end, all units that differ have the bound on the other side of zero.
    other = bounds[0] if found.value > 0 else bounds[1]
    differing = found.value / (found.value - other) if other else 1.0
    odds = differing / (1 - differing) if differing < 1 else math.inf
    p = normal_p(math.sqrt(_kish_units(sizes) * odds)) if found.value else 1.0
    return replace(found, low=low, high=high, p=p, method=EQUAL_UNITS, why="")


def interval_of_equal_units(
    value: float, sizes: ArrayLike, bounds: tuple[float, float], level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of a mean for the case that all independent units have equal means.

        interval_of_equal_units(1.0, [1] * 20, (0, 1))  # (0.839, 1.0)

    - `value`: the mean of each unit.
    - `sizes`: the number of values of each unit, shape (g,).
    - `bounds`: the smallest and the largest possible value.

    Source: Hanley and Lippman-Hand (1983), "If nothing goes wrong, is everything all right?",
    doi:10.1001/jama.1983.03330370053031.
    """
    # None of the g units differs. So in the population at most a share π of units differs: the
    # upper end of Wilson's interval for 0 of g, about 4/g. These units may have any possible mean.
    # Units of unequal size count as fewer units (Kish 1965), because a large one may differ.
    units = _kish_units(sizes)
    z2 = normal_quantile((1 + level) / 2) ** 2
    unseen = z2 / (units + z2)
    least, most = bounds
    return value - unseen * (value - least), value + unseen * (most - value)


def _kish_units(sizes: ArrayLike) -> float:
    counts = np.asarray(sizes, float)
    return float(counts.sum() ** 2 / (counts**2).sum())


def skewed_mean(values: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95) -> Estimate:
    """Return the mean of skewed values, such as values near one end of a scale.

    The interval allows for clusters and for the skew.

    - `values`: numbers, shape (n,).
    - `clusters`: the independent group of each value, shape (n,).

    Source: Hall (1992), J. R. Statist. Soc. B 54, 221–228, doi:10.1111/j.2517-6161.1992.tb01876.x.
    """
    # Unlike the interval of `clustered_mean`, this one also holds for few skewed ratings.
    estimate = clustered_mean(values, clusters, level)
    if not estimate.has_interval:
        return estimate
    y, groups = _finite_values(values, clusters)
    found = bias_reduced(y - estimate.value, np.ones((len(y), 1)), 0, groups)
    sums = np.bincount(groups, weights=y - estimate.value)
    number = len(sums)
    third = number / ((number - 1) * (number - 2)) * float((sums**3).sum())
    skew = third / float(sums.var(ddof=1)) ** 1.5 / math.sqrt(number)
    if abs(skew) < _SYMMETRIC:
        return estimate
    error, limit = math.sqrt(found.variance), student_quantile((1 + level) / 2, found.df)

    # The inverse of Hall's transformation gives the bounds.
    def untransformed(statistic: float) -> float:
        return float(3 / skew * (np.cbrt(1 + skew * (statistic - skew / 6)) - 1))

    zero = estimate.value / error
    at_zero = ((1 + skew * zero / 3) ** 3 - 1) / skew + skew / 6
    low, high = (estimate.value - error * untransformed(way * limit) for way in (1, -1))
    p = student_p(at_zero, found.df)
    return replace(
        estimate, low=low, high=high, p=p, method=f"{estimate.method}, skewness allowed for"
    )


def clustered_share(hits: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95) -> Estimate:
    """Return the share of hits, with an interval that allows for clusters.

    - `hits`: 0 or 1, shape (n,).
    - `clusters`: the independent group of each value, shape (n,).
    """
    # The only place that chooses the method for a share of one condition:
    # - One value in each cluster: Wilson's interval.
    # - Clusters with equal shares, such as all hits: `interval_of_equal_units`.
    # - Otherwise CR2 on the scale of log odds. Unlike the interval of `clustered_mean`, this one
    #   also holds if only some clusters have a rare answer.
    y, groups = _finite_values(hits, clusters)
    units = len(np.unique(groups))
    # Fewer units have no interval, and are shown one by one.
    if FEWEST_UNITS <= units == len(y) and np.isin(y, (0.0, 1.0)).all():
        return replace(wilson(int(y.sum()), len(y), level), clusters=units)
    estimate = clustered_mean(y, groups.tolist(), level, (0.0, 1.0))
    if not estimate.has_interval or estimate.method == EQUAL_UNITS:
        return replace(estimate, p=math.nan)
    found = bias_reduced(y - estimate.value, np.ones((len(y), 1)), 0, groups)
    sums = np.asarray(np.bincount(groups, weights=y - estimate.value), float)
    df = min(found.df, _df_of_squares(sums))
    reach = student_quantile((1 + level) / 2, df) * math.sqrt(found.variance)
    low, high = estimate.value - reach, estimate.value + reach
    return on_log_odds(replace(estimate, low=low, high=high, method=_name_method(df)))


def _df_of_squares(sums: FloatArray) -> float:
    # `sums` (g,): one sum per cluster. The degrees of freedom are at least 2, and small if only a
    # few clusters have large sums. Box (1953), doi:10.1093/biomet/40.3-4.318.
    squares = sums**2
    return max(2.0, 3 * float(squares.sum()) ** 2 / float((squares**2).sum()) - 1)


def on_log_odds(e: Estimate) -> Estimate:
    """Return the estimate of a share, with a new interval that is symmetric in log odds."""
    if not 0 < e.value < 1:
        return replace(e, low=math.nan, high=math.nan, p=math.nan)
    if not e.has_interval:
        return e
    middle = math.log(e.value / (1 - e.value))
    reach = (e.high - e.low) / 2 / (e.value * (1 - e.value))
    low, high = (0.5 * (1 + math.tanh((middle + way * reach) / 2)) for way in (-1, 1))
    return replace(e, low=low, high=high, p=math.nan, method=f"{e.method}, on log odds")


def paired_difference(
    after: ArrayLike,
    before: ArrayLike,
    clusters: Sequence[Hashable],
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Return the mean of `after` minus `before`, with the interval of `clustered_mean`.

    - `after`, `before`: two values of each participant, shape (n,).
    - `clusters`: the independent group of each participant, shape (n,).
    - `bounds`: the smallest and the largest possible difference.
    """
    differences = np.asarray(after, float) - np.asarray(before, float)
    return clustered_mean(differences, clusters, level, bounds)


def lacks_variation(e: Estimate) -> bool:
    """Return whether an estimate has no interval because all units are equal."""
    return not math.isfinite(e.low) and (e.why == NOTHING_VARIES or e.p == 1.0)


def clustered_difference(
    values: ArrayLike, treated: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """Return the mean of treated values minus the mean of untreated values.

    - `values`: numbers, shape (n,).
    - `treated`: truth values, shape (n,).
    - `clusters`: the independent group of each value, shape (n,).

    The interval is NaN if treated or untreated values come from fewer than two clusters.
    """
    # A cluster may have treated values, untreated values, or both. The method is
    # `clustered_coefficient`.
    side = np.asarray(treated, bool)
    y = np.asarray(values, float)
    keep = np.isfinite(y)
    y, side = y[keep], side[keep]
    groups = encode_labels([cluster for cluster, k in zip(clusters, keep, strict=True) if k])
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
    """Return one coefficient of a least-squares fit, with an interval that allows for clusters.

    - `y`: the outcome, shape (n,).
    - `design`: the predictors, shape (n, k), including a constant.
    - `column`: the column of the predictor in `design`. Its coefficient is returned.
    - `clusters`: the independent group of each row, shape (n,). None marks a row that is
      independent of all other rows.

    The interval is NaN with fewer than five clusters.

    Sources: Bell and McCaffrey (2002), Survey Methodology 28, 169–181. Pustejovsky and Tipton
    (2018), doi:10.1080/07350015.2016.1247004.
    """
    # The method is CR2. The interval is also NaN with fewer than four degrees of freedom, or no
    # variation between clusters.
    outcome, groups = np.asarray(y, float), encode_labels(clusters)
    n, g = len(outcome), len(np.unique(groups))
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    fit = np.linalg.lstsq(design, outcome)[0]
    value = float(fit[column])
    none = Estimate(value, math.nan, math.nan, n, g)
    if g < FEWEST_UNITS or n <= design.shape[1]:
        return none
    found = bias_reduced(outcome - design @ fit, design, column, groups)
    variance, df = found.variance, found.df
    if variance <= _NOTHING * max(1.0, value**2):
        # All clusters have the same value, so there is no variation to estimate an error from.
        if abs(value) < _EQUAL:
            return replace(none, p=1.0)
        return replace(none, why=NOTHING_VARIES)
    if df < FEWEST_DF:
        # Rounded down, because "4.0" beside "fewer than four" would look like an error.
        shown_df = math.floor(df * 100) / 100
        why = (
            f"{shown_df:.2f} degrees of freedom, fewer than four: independent units of unequal size"
        )
        return replace(none, why=why)
    error = math.sqrt(variance)
    reach = student_quantile((1 + level) / 2, df) * error
    p = student_p(value / error, df)
    return Estimate(value, value - reach, value + reach, n, g, p, _name_method(df))


def _name_method(df: float) -> str:
    return f"CR2, t with {df:.1f} df"


@dataclass(frozen=True, slots=True)
class BiasReduced:
    """The variance of a coefficient, and the degrees of freedom under two assumptions."""

    # The variance is CR2.

    variance: float
    # If errors are independent with equal variance.
    df_independent: float
    # If the members of a cluster are fully alike. If clusters differ in size and members are alike,
    # `df_independent` would give intervals that are too narrow. Imbens and Kolesár (2016),
    # doi:10.1162/REST_a_00552, estimate how alike members are, which needs many clusters.
    df_alike: float

    @property
    def df(self) -> float:
        """The degrees of freedom to use: the smaller of the two numbers."""
        return min(self.df_independent, self.df_alike)


def bias_reduced(
    residuals: FloatArray, design: FloatArray, column: int, groups: NDArray[np.int64]
) -> BiasReduced:
    """Return the variance of a coefficient if errors are clustered, and the degrees of freedom.

    - `design`: the predictors, shape (n, k).
    - `column`: the column of the predictor in `design`.
    - `groups`: the cluster of each row, shape (n,).
    """
    # The variance is CR2, and the degrees of freedom are Satterthwaite's.
    bread = np.asarray(np.linalg.pinv(design.T @ design), float)
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
    # Clusters of equal size are decomposed together, which is much faster than one by one.
    for clusters in _clusters_by_size(sizes):
        rows = order[starts[clusters][:, None] + np.arange(sizes[clusters[0]])]
        x = design[rows]
        # I − H of a cluster differs from I only in the span of the cluster's rows of the design. So
        # a decomposition of width k is enough.
        q, s, _ = np.linalg.svd(x @ root, full_matrices=False)
        left = 1.0 - s**2
        stretch = np.where(left > _SINGULAR, 1 / np.sqrt(np.maximum(left, _SINGULAR)), 0.0) - 1.0
        weights = x @ bread[:, column]
        inside = stretch * np.einsum("crk,cr->ck", q, weights)
        weights = weights + np.einsum("crk,ck->cr", q, inside)
        scores[clusters] = np.einsum("cr,cr->c", weights, residuals[rows])
        own[clusters] = np.einsum("cr,cr->c", weights, weights)
        cross[clusters] = np.einsum("crk,cr->ck", x, weights)
    in_order = design[order]

    def degrees_of_freedom(variances: FloatArray) -> float:
        gram = (in_order * np.repeat(variances, sizes)[:, None]).T @ in_order
        return _satterthwaite_df(own, cross, bread, variances, gram)

    return BiasReduced(
        float(np.square(scores).sum()),
        degrees_of_freedom(np.ones(len(sizes))),
        degrees_of_freedom(sizes.astype(float)),
    )


def _satterthwaite_df(
    own: FloatArray, cross: FloatArray, bread: FloatArray, variances: FloatArray, gram: FloatArray
) -> float:
    # `own` (g,): the squared weights of each cluster, summed. `cross` (g, k): the rows of the
    # design times these weights. `bread` (k, k): the inverse of X'X. `variances` (g,): the error
    # variance in each cluster. `gram` (k, k): X'X weighted by these variances.
    diagonal = variances * own
    # The result is (tr A)² / tr A² with A (g, g) the covariance of the scores of clusters. A needs
    # too much memory for thousands of clusters. So both traces are computed from the form
    # D + U K U' with few columns in U.
    around = np.hstack([cross, variances[:, None] * cross])
    inner = np.block([[bread @ gram @ bread, -bread], [-bread, np.zeros_like(bread)]])
    product = inner @ around.T @ around
    trace = diagonal.sum() + np.trace(product)
    squares = (diagonal**2).sum() + np.trace(product @ product)
    squares += 2 * (diagonal * ((around @ inner) * around).sum(axis=1)).sum()
    return float(trace**2 / squares) if squares > 0 else 1.0


def _clusters_by_size(sizes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
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
    return y[keep], encode_labels([cluster for cluster, k in zip(clusters, keep, strict=True) if k])


def encode_labels(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return the number of each label, from 0 in the order in which labels first occur.

    None marks a value that belongs with no other value, so each None gets a number.
    """
    seen: dict[Hashable, int] = {}
    own = (("alone", n) if label is None else label for n, label in enumerate(labels))
    return np.array([seen.setdefault(label, len(seen)) for label in own], dtype=np.int64)


def wider_interval(plain: Estimate, clustered: Estimate) -> Estimate:
    """Return a share with the wider of two intervals.

    - `plain`: the share with an interval for independent values.
    - `clustered`: the same share with an interval for clustered values.
    """
    if not clustered.has_interval:
        return replace(plain, each=clustered.each)
    # An interval clustered by few draws can come out narrower than Wilson's by chance. Taking the
    # wider bound never claims more than the data allow.
    low, high = min(plain.low, clustered.low), max(plain.high, clustered.high)
    p_value = max(
        (p_value for p_value in (plain.p, clustered.p) if math.isfinite(p_value)), default=math.nan
    )
    method = f"{plain.method}, or clustered by draw if that is wider"
    return replace(plain, low=low, high=high, p=p_value, method=method).clip_bounds(-1.0, 1.0)
