"""Clusters of reasons: which members belong together, and how many groups the data support.

Cross-pollination clusters the embeddings of what participants said; the report shows the
silhouettes by which the number of clusters was chosen. Same input, same labels, everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        x = _rotated(x)
        by_k = _labels(x, range(2, largest + 1), algorithm, seed)
        picked = _sample(len(x), seed, SAMPLE_ABOVE)
        apart = _distances(x[picked], "euclidean")
        scores = {k: _silhouette(apart, np.asarray(labels)[picked]) for k, labels in by_k.items()}
    best = max(scores, key=lambda k: (round(scores[k], 12), -k))
    return Clustering(by_k[best], scores)


def labels_at(
    vectors: FloatArray, k: int, algorithm: Algorithm = "kmeans", seed: int = 42
) -> list[int]:
    """Labels (n,) for exactly k clusters, counted from 0 by first appearance.

    `kmeans`: Lloyd's algorithm from the means of Ward's clusters, which ends as low as the best of
    several random starts and draws nothing. `agglomerative`: Ward's criterion itself.
    """
    return _labels(vectors, [k], algorithm, seed)[k]


def _labels(
    vectors: FloatArray, ks: Sequence[int], algorithm: Algorithm, seed: int
) -> dict[int, list[int]]:
    """Labels for each number of clusters."""
    from sklearn.cluster import AgglomerativeClustering, KMeans

    if algorithm == "agglomerative":
        fits = {k: AgglomerativeClustering(n_clusters=k, linkage="ward") for k in ks}
    elif algorithm == "kmeans":
        starts = _ward_means(vectors, ks, seed)
        fits = {k: KMeans(k, init=starts[k], n_init=1, random_state=seed) for k in ks}
    else:
        raise ValueError(f"unknown clustering algorithm: {algorithm!r} (kmeans, agglomerative)")
    return {k: by_first_appearance(fit.fit_predict(vectors)) for k, fit in fits.items()}


def _ward_means(
    vectors: FloatArray, ks: Sequence[int], seed: int
) -> dict[int, FloatArray | Literal["k-means++"]]:
    """The means (k, d) of Ward's clusters; of a sample where there are too many rows for a tree."""
    from scipy.cluster.hierarchy import fcluster, linkage

    x = vectors[_sample(len(vectors), seed, SAMPLE_ABOVE)]
    tree = linkage(x, "ward")
    starts: dict[int, FloatArray | Literal["k-means++"]] = {}
    for k in ks:
        labels = fcluster(tree, k, "maxclust")
        means = np.stack([x[labels == c].mean(axis=0) for c in np.unique(labels)])
        starts[k] = means if len(means) == k else "k-means++"  # ties may leave fewer
    return starts


def mean_silhouette(
    vectors: FloatArray,
    labels: list[int],
    seed: int = 42,
    sample_above: int = SAMPLE_ABOVE,
    metric: str = "euclidean",
) -> float:
    """Mean over members of (b − a) / max(a, b), in [−1, 1]; 0.0 where it is not defined.

    a: mean distance to the other members of one's own cluster; b: the smallest mean distance to
    the members of another. Not defined for one cluster or for as many clusters as members. Above
    `sample_above` rows of `vectors` (n, d) a sample of that size is taken, the same for every
    labelling of one seed.
    """
    picked = _sample(len(vectors), seed, sample_above)
    return _silhouette(_distances(vectors[picked], metric), np.asarray(labels)[picked])


def _sample(n: int, seed: int, above: int) -> NDArray[np.intp]:
    """The rows over which silhouettes are taken: all of them, up to a size."""
    if n <= above:
        return np.arange(n)
    return generator(seed, ("silhouette",)).choice(n, above, replace=False)


def _distances(x: FloatArray, metric: str) -> FloatArray:
    from sklearn.metrics import pairwise_distances

    return cast(FloatArray, pairwise_distances(x, metric=metric))


def _silhouette(apart: FloatArray, labels: NDArray[np.intp]) -> float:
    """The mean silhouette of labels (n,) by the distances (n, n) between their members."""
    from sklearn.metrics import silhouette_score

    groups = len(np.unique(labels))
    if groups < 2 or groups >= len(labels):
        return 0.0
    return float(silhouette_score(apart, labels, metric="precomputed"))


def by_first_appearance(raw: NDArray[Any] | list[int]) -> list[int]:
    """The same partition with labels 0, 1, … in the order in which they first occur."""
    seen: dict[int, int] = {}
    return [seen.setdefault(int(label), len(seen)) for label in raw]


def _rotated(x: FloatArray) -> FloatArray:
    """The rows in the basis of their own span: the same distances in at most n columns."""
    if x.shape[1] <= len(x) or len(x) > SAMPLE_ABOVE:
        return x
    r = cast(FloatArray, np.linalg.qr(x.T, mode="r"))
    return np.ascontiguousarray(r.T)
