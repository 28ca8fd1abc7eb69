"""Clusters of reasons: which members belong together, and whether the clusters may be believed.

Cross-pollination clusters the embeddings of what participants said; the report shows the
silhouettes by which the number of clusters was chosen, how stable the clusters are, a map, and the
members nearest each centre. Same input, same labels, everywhere. scikit-learn takes a second to
load, so it is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from folkmoot.randomness import generator, limit_to_one_thread

FloatArray = NDArray[np.float64]
Vectors = FloatArray | NDArray[np.float32]
Algorithm = Literal["kmeans", "agglomerative"]

ENOUGH_VOTES = 7  # of a participant who is put into a group, or all comments if they are fewer
MOST_GROUPS = 5
PEOPLE_PER_GROUP = 12  # one group more is tried for so many people more
LARGE = 10_000  # rows; of more, k-means goes by mini-batches, and Ward's tree does not fit
SAMPLE_ABOVE = 2_000  # rows; what is quadratic in their number is taken over so many of them


@dataclass(frozen=True, slots=True)
class Clustering:
    """Labels (n,) and the mean silhouette of each number of clusters that was tried.

    `silhouettes` is empty where there was nothing to choose (fewer than three members, or all
    rows identical); then there is one cluster.
    """

    labels: list[int]
    silhouettes: dict[int, float]

    @property
    def cluster_count(self) -> int:
        return max(self.labels, default=-1) + 1


# The largest mean silhouette of each kind of structure, by Kaufman and Rousseeuw (1990, p. 88).
STRUCTURES = ((0.25, "none"), (0.5, "weak"), (0.7, "reasonable"), (1.0, "strong"))


def describe_structure(silhouette: float) -> str:
    """Return the structure that a mean silhouette shows: none, weak, reasonable or strong."""
    rounded = round(silhouette, 2)  # the limits have two digits: 0.254 is 0.25
    return next((name for most, name in STRUCTURES if rounded <= most), "strong")


def cluster_option(
    vectors: Vectors,
    algorithm: Algorithm = "kmeans",
    max_k: int = 6,
    seed: int = 42,
) -> list[int]:
    """Labels (n,) of the best clustering of the rows of `vectors` (n, d); see `best_clustering`."""
    return best_clustering(vectors, algorithm, max_k, seed).labels


def best_clustering(
    vectors: Vectors,
    algorithm: Algorithm = "kmeans",
    max_k: int = 6,
    seed: int = 42,
) -> Clustering:
    """The clustering, among k = 2 … `max_k`, with the largest mean silhouette.

    Fewer than three members, `max_k` below 2, or rows that are all identical give one cluster.
    Distances are Euclidean, which for L2-normalised rows (n, d) orders pairs as the cosine does.
    Equal silhouettes go to the smaller k. Labels count from 0 by first appearance, so that they
    do not hang on a library's internal order. Above 2,000 rows the silhouette is taken over a
    fixed random sample of 2,000 (its cost is quadratic). Above 10,000 rows see `labels_at`.

    Silhouette: Rousseeuw (1987), doi:10.1016/0377-0427(87)90125-7; computed by scikit-learn.
    """
    from sklearn.metrics import silhouette_score

    x = _as_clustered(vectors)
    if x.ndim != 2:
        raise ValueError(f"vectors must be (n, d), got shape {x.shape}")
    n = len(x)
    distinct: set[bytes] = set()
    for row in x:
        distinct.add((row.round(12) + 0.0).tobytes())  # + 0.0: there is a negative zero
        if len(distinct) > max_k:  # how many more there are changes nothing
            break
    largest = min(max_k, n - 1, len(distinct))
    if n < 3 or largest < 2:
        return Clustering([0] * n, {})
    rows = _sample_rows(n, seed)
    by_k = {k: labels_at(x, k, algorithm, seed) for k in range(2, largest + 1)}
    scores = {}
    with limit_to_one_thread():
        for k, labels in by_k.items():
            own = np.array(labels)[rows]
            alike = len(set(own.tolist())) < 2
            scores[k] = 0.0 if alike else float(silhouette_score(x[rows], own))
    best = max(scores, key=lambda k: (round(scores[k], 12), -k))
    return Clustering(by_k[best], scores)


def labels_at(
    vectors: Vectors, k: int, algorithm: Algorithm = "kmeans", seed: int = 42
) -> list[int]:
    """Labels (n,) for exactly k clusters, counted from 0 by first appearance.

    `kmeans`: the best of ten starts; above 10,000 rows by mini-batches (Sculley 2010,
    doi:10.1145/1772690.1772862). `agglomerative`: Ward's criterion, whose memory is quadratic:
    ValueError above 10,000 rows. All by scikit-learn.
    """
    from sklearn.cluster import AgglomerativeClustering, KMeans, MiniBatchKMeans

    x = _as_clustered(vectors)
    with limit_to_one_thread():
        if algorithm == "agglomerative":
            if len(x) > LARGE:
                raise ValueError(f"{too_large(len(x))}; use kmeans")
            ward = AgglomerativeClustering(k, linkage="ward")
            return by_first_appearance(ward.fit_predict(x).tolist())
        if algorithm == "kmeans":
            if len(x) > LARGE:
                small = MiniBatchKMeans(k, n_init=10, batch_size=2048, random_state=seed % 2**32)
                return by_first_appearance(small.fit_predict(x).tolist())
            # Not from Ward's clusters: in points without structure they find six groups.
            lloyd = KMeans(k, n_init=10, random_state=seed % 2**32)
            return by_first_appearance(lloyd.fit_predict(x).tolist())
    raise ValueError(f"unknown clustering algorithm: {algorithm!r} (kmeans, agglomerative)")


def too_large(n: int) -> str:
    """Why agglomerative clustering is out of the question for n members."""
    return f"agglomerative clustering compares all pairs, and {n:,} members are more than {LARGE:,}"


def _as_clustered(vectors: Vectors) -> Vectors:
    """The rows in double precision; many are left as they are, a copy of them may not fit."""
    return vectors if len(vectors) > LARGE else np.ascontiguousarray(vectors, dtype=np.float64)


def _sample_rows(n: int, seed: int) -> NDArray[np.intp]:
    """The rows of n over which what is quadratic is taken: all, up to a size."""
    if n <= SAMPLE_ABOVE:
        return np.arange(n)
    return generator(seed, ("silhouette",)).choice(n, SAMPLE_ABOVE, replace=False)


def by_first_appearance(raw: Iterable[Hashable]) -> list[int]:
    """The same partition with labels 0, 1, … in the order in which they first occur."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(label, len(seen)) for label in raw]


@dataclass(frozen=True, slots=True)
class Stability:
    """Adjusted Rand indices of re-clusterings: mean, 10th percentile, number of draws."""

    mean: float
    low: float
    draws: int

    @property
    def verdict(self) -> str:
        """In words: stable from .75 on, unstable below .5 (rules of thumb of Hennig's)."""
        if self.mean >= 0.75:
            return "stable"
        return "doubtful" if self.mean >= 0.5 else "unstable"


REDRAWS = 20


def bootstrap_stability(
    vectors: Vectors,
    labels: Sequence[int],
    algorithm: Algorithm = "kmeans",
    seed: int = 42,
) -> Stability:
    """How alike clusterings of resampled members (n, d) are to `labels` (n,), k held fixed.

    Each of 20 draws takes n members with replacement, clusters the distinct ones again and compares
    their labels by the adjusted Rand index (1: the same partition; 0: chance). One cluster is
    trivially stable (mean 1, no draws). Of more than 2,000 members a draw takes 2,000.
    Hubert and Arabie (1985), doi:10.1007/BF01908075; Hennig (2007), doi:10.1016/j.csda.2006.11.025.
    """
    from sklearn.metrics import adjusted_rand_score

    k = len(set(labels))
    if k < 2:
        return Stability(1.0, 1.0, 0)
    own = np.asarray(labels)
    rng = generator(seed, ("cluster stability",))
    scores: list[float] = []
    for _ in range(REDRAWS):
        picked = np.unique(rng.integers(0, len(own), min(len(own), SAMPLE_ABOVE)))
        if len(picked) <= k or len(np.unique(vectors[picked], axis=0)) < k:
            continue
        again = labels_at(vectors[picked], k, algorithm, seed)
        scores.append(float(adjusted_rand_score(own[picked], again)))
    if not scores:
        return Stability(0.0, 0.0, 0)
    return Stability(float(np.mean(scores)), float(np.quantile(scores, 0.1)), len(scores))


@dataclass(frozen=True, slots=True)
class Map:
    """A flat map of vectors: coordinates (n, 2) and the share of variance that each axis shows."""

    coordinates: FloatArray
    explained: tuple[float, float]


def flat_map(vectors: Vectors) -> Map:
    """Principal components 1 and 2 of the rows (n, d).

    Signs are fixed so that the largest loading of each axis is positive. Fewer than three rows
    or no variance: zeros. Distances on the map are distorted by whatever `explained` lacks to 1.
    Computed by scikit-learn.
    """
    x = np.asarray(vectors, float)
    flat = np.zeros((len(x), 2))
    if len(x) < 3:
        return Map(flat, (0.0, 0.0))
    centred = x - x.mean(axis=0)
    total = float((centred**2).sum())
    if total < 1e-18:
        return Map(flat, (0.0, 0.0))
    from sklearn.decomposition import PCA

    count = min(2, min(x.shape) - 1)
    if count < 1:
        return Map(flat, (0.0, 0.0))
    found = PCA(n_components=count, svd_solver="arpack", random_state=0).fit(centred)
    axes = found.components_
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    flat[:, :count] = centred @ (axes * np.where(signs == 0, 1.0, signs)[:, None]).T
    share = [float(value) for value in found.explained_variance_ratio_] + [0.0]
    return Map(flat, (share[0], share[1]))


def nearest_members(
    vectors: Vectors, labels: Sequence[int], count: int = 3
) -> dict[int, list[int]]:
    """Per cluster the rows of its `count` members nearest its centre, nearest first.

    `vectors` (n, d), `labels` (n,). Shown beside a cluster's description, so that it can be
    checked against what its members said.
    """
    own = np.asarray(labels)
    found: dict[int, list[int]] = {}
    for label in sorted(set(labels)):
        rows = np.flatnonzero(own == label)
        own_vectors = np.asarray(vectors[rows], float)
        away = ((own_vectors - own_vectors.mean(axis=0)) ** 2).sum(axis=1)
        found[int(label)] = [int(r) for r in rows[np.argsort(away.round(12), kind="stable")]][
            :count
        ]
    return found


def opinion_groups(matrix: NDArray[np.float64]) -> list[int | None]:
    """The opinion group of each participant, the largest 0; None for who voted too little.

    As Polis does: votes (n, m) with NaN for unseen, which becomes the comment's mean; two
    principal components, stretched by √(m / votes of the participant) so that whoever voted on
    little does not stay in the middle; k-means over those with at least 7 votes (or all m), k from
    2 to 5 by the silhouette. Where all vote alike, or fewer than three can be grouped, there are no
    groups. Small, Björkegren, Erkkilä, Shaw and Megill (2021), doi:10.6035/recerca.5516.
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.metrics import silhouette_score

    n, m = matrix.shape
    none: list[int | None] = [None] * n
    cast = np.isfinite(matrix)
    counts = cast.sum(axis=1)
    enough = np.flatnonzero(counts >= max(1, min(ENOUGH_VOTES, m)))
    if len(enough) < 3 or m < 2:
        return none
    means = np.where(cast, matrix, 0.0).sum(axis=0) / np.maximum(cast.sum(axis=0), 1)
    full = np.where(cast, matrix, means)
    if np.ptp(full, axis=0).max() == 0:
        return none
    places = PCA(2, svd_solver="full").fit_transform(full)
    places *= np.sqrt(m / np.maximum(counts, 1))[:, None]
    people = places[enough]
    distinct = len(np.unique(people.round(9), axis=0))
    most = min(MOST_GROUPS, 2 + len(enough) // PEOPLE_PER_GROUP, distinct - 1, len(enough) - 1)
    tried = [KMeans(k, n_init=10, random_state=0).fit_predict(people) for k in range(2, most + 1)]
    if not tried:
        return none
    labels = max(tried, key=lambda found: float(silhouette_score(people, found)))
    order = {
        int(group): rank
        for rank, group in enumerate(np.argsort(-np.bincount(labels), kind="stable"))
    }
    for at, label in zip(enough, labels, strict=True):
        none[at] = order[int(label)]
    return none
