"""Clusters of reasons: which members belong together, and how many groups the data support.

Cross-pollination clusters the embeddings of what participants said; the report shows the
silhouettes by which the number of clusters was chosen. Same input, same labels, everywhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
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
MOST_STEPS = 300  # of k-means, as in scikit-learn


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
    with _one_thread():
        sample = _Sample(x, seed)
        by_k = _labels(x, range(2, largest + 1), algorithm, sample)
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
    several random starts and draws nothing. `agglomerative`: Ward's criterion itself. Both by
    scipy: scikit-learn gives the same labels, but takes a second to load while calls wait.
    """
    x = np.ascontiguousarray(vectors, dtype=np.float64)
    with _one_thread():
        return _labels(x, [k], algorithm, _Sample(x, seed))[k]


def _one_thread() -> AbstractContextManager[Any]:
    """scipy held to one thread; loaded first, because only what is there is held."""
    import scipy.cluster.vq  # noqa: F401

    return one_thread()


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
        """Euclidean distances (m, m), by one product."""
        products = self.x @ self.x.T
        squares = np.diag(products).copy()
        apart = squares[:, None] + squares - 2 * products
        np.sqrt(np.maximum(apart, 0, out=apart), out=apart)
        np.fill_diagonal(apart, 0)
        return apart


def _labels(
    x: FloatArray, ks: Sequence[int], algorithm: Algorithm, sample: _Sample
) -> dict[int, list[int]]:
    """Labels for each number of clusters."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    if algorithm == "agglomerative":
        tree = linkage(x, "ward")
        found = {k: _cut(tree, k) for k in ks}
    elif algorithm == "kmeans":
        tree = linkage(squareform(sample.apart, checks=False), "ward")
        found = {k: _lloyd(x, _means(sample.x, _cut(tree, k))) for k in ks}
    else:
        raise ValueError(f"unknown clustering algorithm: {algorithm!r} (kmeans, agglomerative)")
    return {k: by_first_appearance(labels) for k, labels in found.items()}


def _cut(tree: FloatArray, k: int) -> NDArray[np.intp]:
    """Labels (n,) for exactly k clusters: all merges but the last k − 1, ties or not."""
    from scipy.cluster.hierarchy import fcluster

    in_turn = tree.copy()
    in_turn[:, 2] = np.arange(len(tree))
    return cast("NDArray[np.intp]", fcluster(in_turn, len(tree) - k, "distance"))


def _means(x: FloatArray, labels: NDArray[np.intp]) -> FloatArray:
    """The mean (k, d) of each cluster's rows (m, d)."""
    return np.stack([x[labels == c].mean(axis=0) for c in np.unique(labels)])


def _lloyd(x: FloatArray, means: FloatArray) -> NDArray[np.intp]:
    """Labels (n,) of k-means from these means (k, d).

    Lloyd (1982), doi:10.1109/TIT.1982.1056489. A cluster that loses all its members keeps its mean.
    """
    from scipy.cluster.vq import kmeans2

    before = np.full(len(x), -1)
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # of such a cluster
        for _ in range(MOST_STEPS):
            means, labels = kmeans2(x, means, iter=1, minit="matrix", check_finite=False)
            if np.array_equal(labels, before):
                break
            before = labels
    return before


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
