"""Clusters of reasons: which members belong together, and how many groups the data support.

Cross-pollination clusters the embeddings of what participants said; the report shows the
silhouettes by which the number of clusters was chosen. Same input, same labels, everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from folkmoot.one_thread import one_thread
from folkmoot.randomness import generator

FloatArray = NDArray[np.float64]
Algorithm = Literal["kmeans", "agglomerative"]

SAMPLE_ABOVE = 2_000


@dataclass(frozen=True, slots=True)
class Clustering:
    """Labels (n,) and the mean silhouette of each number of clusters that was tried.

    `silhouettes` is empty where there was nothing to choose (fewer than three members, or all
    rows identical); then there is one cluster.
    """

    labels: list[int]
    silhouettes: dict[int, float]

    @property
    def k(self) -> int:
        return max(self.labels, default=-1) + 1


def cluster_option(
    vectors: FloatArray,
    algorithm: Algorithm = "kmeans",
    max_k: int = 6,
    seed: int = 42,
) -> list[int]:
    """Labels (n,) of the best clustering of the rows of `vectors` (n, d); see `best_clustering`."""
    return best_clustering(vectors, algorithm, max_k, seed).labels


def best_clustering(
    vectors: FloatArray,
    algorithm: Algorithm = "kmeans",
    max_k: int = 6,
    seed: int = 42,
) -> Clustering:
    """The clustering, among k = 2 … `max_k`, with the largest mean silhouette.

    Fewer than three members, `max_k` below 2, or rows that are all identical give one cluster.
    Distances are Euclidean, which for L2-normalised rows (n, d) orders pairs as the cosine does.
    Equal silhouettes go to the smaller k. Labels count from 0 by first appearance, so that they
    do not hang on a library's internal order. Above 2,000 rows the silhouette is taken over a
    fixed random sample of 2,000 (its cost is quadratic).

    Silhouette: Rousseeuw (1987), doi:10.1016/0377-0427(87)90125-7.
    """
    x = np.ascontiguousarray(vectors, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"vectors must be (n, d), got shape {x.shape}")
    n = len(x)
    distinct = len({row.tobytes() for row in x.round(12) + 0.0})  # + 0.0: there is a negative zero
    largest = min(max_k, n - 1, distinct)
    if n < 3 or largest < 2:
        return Clustering([0] * n, {})
    import sklearn
    import sklearn.cluster
    import sklearn.metrics  # loaded first, so that their threads are found

    with one_thread(), sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        sample = _Sample(x, seed)
        by_k = _labels(x, range(2, largest + 1), algorithm, seed, sample)
        scores = {
            k: silhouette(sample.apart, np.array(own)[sample.rows]) for k, own in by_k.items()
        }
    best = max(scores, key=lambda k: (round(scores[k], 12), -k))
    return Clustering(by_k[best], scores)


def labels_at(
    vectors: FloatArray, k: int, algorithm: Algorithm = "kmeans", seed: int = 42
) -> list[int]:
    """Labels (n,) for exactly k clusters, counted from 0 by first appearance.

    `kmeans`: Lloyd's algorithm from the means of Ward's clusters, which ends as low as the best of
    several random starts and draws nothing. `agglomerative`: Ward's criterion itself.
    """
    return _labels(vectors, [k], algorithm, seed, _Sample(vectors, seed))[k]


class _Sample:
    """What is quadratic in the number of rows is taken over these of them: all, up to a size."""

    def __init__(self, x: FloatArray, seed: int) -> None:
        self.rows: NDArray[np.intp] = np.arange(len(x))
        if len(x) > SAMPLE_ABOVE:
            rng = generator(seed, ("silhouette",))
            self.rows = rng.choice(len(x), SAMPLE_ABOVE, replace=False)
        self.x = x[self.rows]

    @cached_property
    def apart(self) -> FloatArray:
        """Euclidean distances (m, m); not everybody asks for them."""
        from sklearn.metrics import pairwise_distances

        return cast("FloatArray", pairwise_distances(self.x))


def _labels(
    x: FloatArray, ks: Sequence[int], algorithm: Algorithm, seed: int, sample: _Sample
) -> dict[int, list[int]]:
    """Labels for each number of clusters."""
    from sklearn.cluster import AgglomerativeClustering, KMeans

    if algorithm == "agglomerative":
        fits = {k: AgglomerativeClustering(n_clusters=k, linkage="ward") for k in ks}
    elif algorithm == "kmeans":
        starts = _ward_means(sample.x, ks, sample.apart)
        fits = {k: KMeans(k, init=starts[k], n_init=1, random_state=seed) for k in ks}
    else:
        raise ValueError(f"unknown clustering algorithm: {algorithm!r} (kmeans, agglomerative)")
    return {k: by_first_appearance(fit.fit_predict(x)) for k, fit in fits.items()}


def _ward_means(
    x: FloatArray, ks: Sequence[int], apart: FloatArray
) -> dict[int, FloatArray | Literal["k-means++"]]:
    """The means (k, d) of Ward's clusters of rows (m, d) that are `apart` (m, m)."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(apart, checks=False), "ward")
    starts: dict[int, FloatArray | Literal["k-means++"]] = {}
    for k in ks:
        labels = fcluster(tree, k, "maxclust")
        means = np.stack([x[labels == c].mean(axis=0) for c in np.unique(labels)])
        starts[k] = means if len(means) == k else "k-means++"  # ties may leave fewer
    return starts


def silhouette(apart: FloatArray, labels: Sequence[int] | NDArray[np.intp]) -> float:
    """Mean over members of (b − a) / max(a, b), in [−1, 1]; 0.0 where it is not defined.

    a: mean distance to the other members of one's own cluster; b: the smallest mean distance to
    the members of another; a member alone in its cluster counts as 0. `apart` (n, n): distances
    between the members, `labels` (n,). Not defined for one cluster or for as many as members.

    scikit-learn's `silhouette_score` in one product for all members: a tenth of its time, and a
    study's calls wait for it. Rousseeuw (1987), doi:10.1016/0377-0427(87)90125-7.
    """
    _, of = np.unique(labels, return_inverse=True)
    n, groups = len(of), of.max(initial=-1) + 1
    if groups < 2 or groups >= n:
        return 0.0
    members = np.eye(groups)[of]
    sizes = members.sum(axis=0)
    totals = apart @ members
    each = np.arange(n)
    own = totals[each, of] / np.maximum(sizes[of] - 1, 1)
    others = totals / sizes
    others[each, of] = np.inf
    nearest = others.min(axis=1)
    widest = np.maximum(own, nearest)
    width = np.divide(nearest - own, widest, out=np.zeros(n), where=widest > 0)
    return float(np.where(sizes[of] > 1, width, 0.0).mean())


def by_first_appearance(raw: NDArray[Any] | list[int]) -> list[int]:
    """The same partition with labels 0, 1, … in the order in which they first occur."""
    seen: dict[int, int] = {}
    return [seen.setdefault(int(label), len(seen)) for label in raw]
