"""Means of units that shared a conversation, which are not independent of each other.

The intervals cluster by discussion, session, group or set: t with G − 1 degrees of freedom,
G the number of clusters. With few clusters there is an exact permutation test and a bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.estimates import Estimate

FloatArray = NDArray[np.float64]

FEW_CLUSTERS = 12
_EXACT_UP_TO = 20_000
_NOTHING = 1e-18  # variances below this, relative to the value squared, are rounding


def clustered_mean(
    values: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """The mean of `values` (n,) with an interval clustered by `clusters` (n,).

    Sandwich variance of the mean, Σ_g (Σ_{i∈g} (y_i − ȳ))² / n², times G/(G−1); t with G − 1 df.
    With one value per cluster it is the ordinary t interval. One cluster, or clusters that all
    say the same: no interval (NaN). p: against a mean of zero. Non-finite values are left out.
    Cameron and Miller (2015), doi:10.3368/jhr.50.2.317; computed by statsmodels.
    """
    y, groups = _finite(values, clusters)
    found = _regress(y, np.ones((len(y), 1)), 0, groups, level)
    # The plain mean, without the rounding of the fit: 0.5 is to read 0.5.
    return replace(found, value=float(y.mean())) if len(y) else found


def paired_difference(
    after: ArrayLike, before: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """The mean of after − before over the same units (n,), clustered; see `clustered_mean`.

    With few clusters (at most 12) p is that of `sign_flip_p`, which does not lean on the t
    distribution.
    """
    difference = np.asarray(after, float) - np.asarray(before, float)
    found = clustered_mean(difference, clusters, level)
    if 2 <= found.clusters <= FEW_CLUSTERS:
        p = sign_flip_p(difference, clusters)
        return replace(found, p=p)
    return found


def clustered_difference(
    values: ArrayLike, treated: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95
) -> Estimate:
    """Mean of the treated minus mean of the others, clustered.

    `values` (n,), `treated` (n,) truth values, `clusters` (n,). Where each cluster is wholly on
    one side: the two clustered means with their own variances, t with Welch–Satterthwaite degrees
    of freedom, and with few clusters (at most 12) p from `label_shuffle_p` over cluster means.
    Where clusters hold both sides: least squares on the treatment, sandwich variance by cluster,
    t with G − 1 df. No interval (NaN) with fewer than two clusters on a side.
    """
    side = np.asarray(treated, bool)
    y = np.asarray(values, float)
    keep = np.isfinite(y)
    y, side = y[keep], side[keep]
    groups = _codes([c for c, k in zip(clusters, keep, strict=True) if k])
    if side.all() or not side.any():
        return Estimate(math.nan, math.nan, math.nan, len(y), len(set(groups.tolist())))
    if set(groups[side].tolist()) & set(groups[~side].tolist()):
        design = np.column_stack([np.ones(len(y)), side.astype(float)])
        return _regress(y, design, 1, groups, level)
    return _two_sides((y[side], groups[side]), (y[~side], groups[~side]), level)


def _two_sides(
    first: tuple[FloatArray, NDArray[np.int64]],
    second: tuple[FloatArray, NDArray[np.int64]],
    level: float,
) -> Estimate:
    """Difference of two clustered means that share no cluster."""
    from scipy.stats import t as student

    sides = [_cluster_means(*side) for side in (first, second)]
    n, g = len(first[0]) + len(second[0]), sum(len(s.means) for s in sides)
    value = sides[0].mean - sides[1].mean
    if any(len(s.means) < 2 for s in sides):
        return Estimate(value, math.nan, math.nan, n, g)
    p = math.nan
    if g <= FEW_CLUSTERS:
        p = label_shuffle_p(sides[0].means, sides[1].means)
    variances = [s.variance for s in sides]
    total = sum(variances)
    if total <= _NOTHING * max(1.0, value**2):
        return Estimate(value, math.nan, math.nan, n, g, 1.0 if value == 0 else p)
    df = total**2 / sum(v**2 / (len(s.means) - 1) for v, s in zip(variances, sides, strict=True))
    error = math.sqrt(total)
    reach = float(student.ppf((1 + level) / 2, df)) * error
    if not math.isfinite(p):
        p = float(2 * student.sf(abs(value) / error, df))
    method = f"clustered t, {df:.1f} df"
    return Estimate(value, value - reach, value + reach, n, g, p, method)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side: its mean, the clustered variance of it, and the means of its clusters."""

    mean: float
    variance: float
    means: FloatArray


def _cluster_means(y: FloatArray, groups: NDArray[np.int64]) -> _Side:
    own = _codes(groups.tolist())
    sizes = np.bincount(own)
    sums = np.bincount(own, weights=y - y.mean())
    g = len(sizes)
    variance = float((sums**2).sum() / len(y) ** 2) * g / max(1, g - 1)
    return _Side(float(y.mean()), variance, sums / sizes + y.mean())


def clustered_coefficient(
    y: ArrayLike,
    design: FloatArray,
    column: int,
    clusters: Sequence[Hashable],
    level: float = 0.95,
) -> Estimate:
    """One coefficient of a least-squares fit of y (n,) on `design` (n, k), clustered.

    Sandwich variance by cluster, t with G − 1 df. The constant, if wanted, is a column.
    """
    return _regress(np.asarray(y, float), design, column, _codes(clusters), level)


def sign_flip_p(differences: ArrayLike, clusters: Sequence[Hashable], seed: int = 0) -> float:
    """Two-sided p of a mean difference of zero by flipping the sign of whole clusters.

    Exact (all 2^G flips) up to 20,000 flips, above that a sample of 20,000 by `seed`. Valid with
    few clusters if differences are symmetric around zero under the null. The sample is scipy's.
    """
    y, groups = _finite(differences, clusters)
    sums = np.bincount(groups, weights=y)
    if len(sums) < 2:
        return math.nan
    # Rounding must not part sums that are equal.
    sums = sums.round(10)
    if 2.0 ** len(sums) <= _EXACT_UP_TO:
        # One row for each way to give the sums signs. scipy's exact test gives the same in ten
        # times the time, which counts where every figure of every pair of levels is tested.
        signs = 1.0 - 2.0 * (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums)) & 1)
        return float(np.mean(np.abs(signs @ sums) >= abs(sums.sum()) - 1e-9))
    from scipy.stats import permutation_test

    result = permutation_test(
        (sums,),
        lambda x, axis=-1: np.sum(x, axis=axis),
        permutation_type="samples",
        n_resamples=_EXACT_UP_TO,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def label_shuffle_p(first: ArrayLike, second: ArrayLike, seed: int = 0) -> float:
    """Two-sided p that two sets of cluster means (g1,), (g2,) do not differ, by relabelling.

    Exact where there are at most 20,000 relabellings. Computed by scipy.
    """
    from scipy.stats import permutation_test

    a, b = np.asarray(first, float), np.asarray(second, float)
    if len(a) < 1 or len(b) < 1 or len(a) + len(b) < 3:
        return math.nan
    exact = math.comb(len(a) + len(b), len(a)) <= _EXACT_UP_TO
    result = permutation_test(
        (a, b),
        lambda x, y, axis=-1: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        permutation_type="independent",
        n_resamples=np.inf if exact else _EXACT_UP_TO,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def cluster_bootstrap(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    draws: int = 2_000,
    level: float = 0.95,
) -> Estimate:
    """The mean with a percentile interval from drawing whole clusters with replacement.

    An alternative to `clustered_mean` for skewed cluster means; with fewer than about ten
    clusters it is too narrow, and the t interval is to be preferred.
    """
    y, groups = _finite(values, clusters)
    sums, sizes = np.bincount(groups, weights=y), np.bincount(groups)
    n, g = len(y), len(sums)
    if g < 2:
        return Estimate(float(y.mean()) if n else math.nan, math.nan, math.nan, n, g)
    drawn = rng.integers(0, g, (draws, g))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(
        float(y.mean()), float(low), float(high), n, g, method="bootstrap over clusters"
    )


def intraclass_correlation(values: ArrayLike, clusters: Sequence[Hashable]) -> float:
    """ICC(1) from one-way analysis of variance: the share of variance that lies between clusters.

    (MSB − MSW) / (MSB + (m₀ − 1) MSW), m₀ = (n − Σ n_g²/n) / (G − 1). May be slightly negative.
    NaN for fewer than two clusters or no cluster of two.
    Donner and Koval (1980), doi:10.2307/2530491.
    """
    y, groups = _finite(values, clusters)
    sizes = np.bincount(groups) if len(y) else np.zeros(0)
    n, g = len(y), len(sizes)
    if g < 2 or n <= g:
        return math.nan
    means = np.bincount(groups, weights=y) / sizes
    between = float((sizes * (means - y.mean()) ** 2).sum() / (g - 1))
    within = float(((y - means[groups]) ** 2).sum() / (n - g))
    m0 = float((n - (sizes**2).sum() / n) / (g - 1))
    total = between + (m0 - 1) * within
    return (between - within) / total if total else math.nan


def _regress(
    y: FloatArray, design: FloatArray, column: int, groups: NDArray[np.int64], level: float
) -> Estimate:
    from statsmodels.regression.linear_model import OLS

    n, g = len(y), len(np.unique(groups))
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    plain = OLS(y, design).fit()
    value = float(plain.params[column])
    if g < 2 or n <= design.shape[1]:
        return Estimate(value, math.nan, math.nan, n, g)
    fitted: Any = OLS(y, design).fit(
        cov_type="cluster",
        # n/(n − k) would be counted twice with one unit per cluster and a lone constant.
        cov_kwds={"groups": groups, "use_correction": False, "df_correction": True},
        use_t=True,
    )
    from scipy.stats import t as student

    variance = max(0.0, float(fitted.cov_params()[column, column])) * g / (g - 1)
    if variance <= _NOTHING * max(1.0, value**2):
        # All clusters say the same: there is no spread from which to tell how sure that is.
        return Estimate(value, math.nan, math.nan, n, g, 1.0 if value == 0 else math.nan)
    error = math.sqrt(variance)
    reach = float(student.ppf((1 + level) / 2, g - 1)) * error
    p = float(2 * student.sf(abs(value) / error, g - 1))
    return Estimate(value, value - reach, value + reach, n, g, p, f"clustered t, {g - 1} df")


def _finite(
    values: ArrayLike, clusters: Sequence[Hashable]
) -> tuple[FloatArray, NDArray[np.int64]]:
    y = np.asarray(values, float)
    if len(y) != len(clusters):
        raise ValueError(f"{len(y)} values but {len(clusters)} cluster labels")
    keep = np.isfinite(y)
    return y[keep], _codes([c for c, k in zip(clusters, keep, strict=True) if k])


def _codes(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.int64)
