"""Divide vectors into clusters, and measure how reliable the clusters are.

The vectors are called members. They are, for example, embeddings of utterances.
"""

# The same input gives the same labels on every machine. scikit-learn takes a second to load, so
# each function imports it when it needs it.

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from folkmoot.randomness import generator, limit_to_one_thread

FloatArray = NDArray[np.float64]
Vectors = FloatArray | NDArray[np.float32]
Algorithm = Literal["kmeans", "agglomerative"]

# These three values are those of Polis. A participant needs this many votes, or one on every
# comment, to be assigned to a group. One more group is tried for every 12 participants.
ENOUGH_VOTES = 7
MOST_GROUPS = 5
PEOPLE_PER_GROUP = 12
# Above this number of rows k-means uses mini-batches. Ward's tree would not fit into memory.
LARGE = 10_000
# Computations with quadratic cost use a sample of this many rows.
SAMPLE_ABOVE = 2_000


@dataclass(frozen=True, slots=True)
class Clustering:
    """A division of n members (vectors) into clusters, made by `best_clustering`."""

    # The cluster of each member.
    labels: list[int]
    # The mean silhouette by number of clusters. It is empty with fewer than three members or only
    # equal rows, which form one cluster.
    silhouettes: dict[int, float]

    @property
    def cluster_count(self) -> int:
        """The number of clusters."""
        return max(self.labels, default=-1) + 1


# The upper limit of the mean silhouette for each structure: Kaufman and Rousseeuw (1990, p. 88).
STRUCTURES = ((0.25, "none"), (0.5, "weak"), (0.7, "reasonable"), (1.0, "strong"))


def describe_structure(silhouette: float) -> str:
    """Return how clearly clusters are separated: none, weak, reasonable or strong structure."""
    # The limits have two digits, so 0.254 counts as 0.25.
    rounded = round(silhouette, 2)
    return next((name for most, name in STRUCTURES if rounded <= most), "strong")


def cluster_option(
    vectors: Vectors,
    algorithm: Algorithm = "kmeans",
    max_k: int = 6,
    seed: int = 42,
) -> list[int]:
    """Return the number of the cluster of each member. Clusters are numbered from 0.

    - `vectors`: the members, shape (n, d).
    - `max_k`: the largest number of clusters.
    """
    # The clustering of `best_clustering`. The qualified name of this function is part of journal
    # fingerprints.
    return best_clustering(vectors, algorithm, max_k, seed).labels


def best_clustering(
    vectors: Vectors,
    algorithm: Algorithm = "kmeans",
    max_k: int = 6,
    seed: int = 42,
) -> Clustering:
    """Return the clustering with the largest mean silhouette among 2 to `max_k` clusters.

    - `vectors`: the members, shape (n, d).
    - `max_k`: the largest number of clusters.

    The result has a single cluster if there are fewer than three members, if `max_k` is below 2, or
    if all members are equal. Raises ValueError if `vectors` is not of shape (n, d).

    Source: Rousseeuw (1987), doi:10.1016/0377-0427(87)90125-7, computed by scikit-learn.
    """
    # If two silhouettes are equal, the clustering with fewer clusters is returned. Labels count
    # from 0 in order of first appearance. Above 2,000 rows, the silhouette uses a fixed random
    # sample of 2,000.
    from sklearn.metrics import silhouette_score

    x = _as_clustered(vectors)
    if x.ndim != 2:
        raise ValueError(f"vectors must be (n, d), got shape {x.shape}")
    n = len(x)
    distinct: set[bytes] = set()
    for row in x:
        # Adding 0.0 turns −0.0 into 0.0, which has other bytes.
        distinct.add((row.round(12) + 0.0).tobytes())
        # More than max_k distinct rows allow every k, so there is no need to count further.
        if len(distinct) > max_k:
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
    """Divide the members into exactly k clusters and return their labels, shape (n,).

    - `vectors`: the members, shape (n, d).
    - `algorithm`: `kmeans` or `agglomerative`, both from scikit-learn.

    Raises ValueError for `agglomerative` with more than 10,000 members.

    Source of `kmeans` above 10,000 members: Sculley (2010), doi:10.1145/1772690.1772862.
    """
    # `kmeans`: the best of ten starts, or mini-batches above 10,000 rows. `agglomerative`: Ward's
    # criterion with quadratic memory. Labels count from 0 in order of first appearance.
    from sklearn.cluster import AgglomerativeClustering, KMeans, MiniBatchKMeans

    x = _as_clustered(vectors)
    # Sums in several threads depend on their order, which would change labels between machines.
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
            # Random starts, not Ward's clusters: these find six groups in points without structure.
            lloyd = KMeans(k, n_init=10, random_state=seed % 2**32)
            return by_first_appearance(lloyd.fit_predict(x).tolist())
    raise ValueError(f"unknown clustering algorithm: {algorithm!r} (kmeans, agglomerative)")


def too_large(n: int) -> str:
    """Return a sentence on why n members are too many for agglomerative clustering."""
    return f"agglomerative clustering compares all pairs, and {n:,} members are more than {LARGE:,}"


def _as_clustered(vectors: Vectors) -> Vectors:
    # A copy of more than `LARGE` rows in double precision may not fit into memory.
    return vectors if len(vectors) > LARGE else np.ascontiguousarray(vectors, dtype=np.float64)


def _sample_rows(n: int, seed: int) -> NDArray[np.intp]:
    # All rows up to `SAMPLE_ABOVE`, because the silhouette has a quadratic cost.
    if n <= SAMPLE_ABOVE:
        return np.arange(n)
    return generator(seed, ("silhouette",)).choice(n, SAMPLE_ABOVE, replace=False)


def by_first_appearance(raw: Iterable[Hashable]) -> list[int]:
    """Replace labels by 0, 1, 2 and so on, in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(label, len(seen)) for label in raw]


@dataclass(frozen=True, slots=True)
class Stability:
    """The agreement of a clustering with clusterings of random samples of the same members."""

    # Mean and 10th percentile of the adjusted Rand indices (`mean`, `low`).
    mean: float
    low: float
    # The number of resamples.
    draws: int

    @property
    def verdict(self) -> str:
        """The stability in one word: stable, doubtful or unstable."""
        # Stable from .75, unstable below .5 (Hennig's rules of thumb).
        if self.mean >= 0.75:
            return "stable"
        return "doubtful" if self.mean >= 0.5 else "unstable"


# Draws per estimate. Each repeats the whole clustering, so more would be slow.
REDRAWS = 20
# The stability of each clustering that this process has examined, by the hash of its arguments. The
# page and the PDF of a run and its comparisons need the same one, and each takes a third of a
# second.
_known_stabilities: dict[bytes, Stability] = {}


def bootstrap_stability(
    vectors: Vectors,
    labels: Sequence[int],
    algorithm: Algorithm = "kmeans",
    seed: int = 42,
) -> Stability:
    """Return how stable clusters are: 1 if random samples of the members give the same clusters.

    - `vectors`: the members, shape (n, d).
    - `labels`: the cluster of each member, shape (n,).

    0 means that the clusters agree only by chance. A single cluster gives 1.

    Sources: Hubert and Arabie (1985), doi:10.1007/BF01908075. Hennig (2007),
    doi:10.1016/j.csda.2006.11.025.
    """
    k = len(set(labels))
    if k < 2:
        return Stability(1.0, 1.0, 0)
    # The memory of the array is hashed without a copy, because there may be many vectors.
    hasher = hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=16)
    hasher.update(repr((vectors.shape, str(vectors.dtype), list(labels), algorithm, seed)).encode())
    key = hasher.digest()
    if key not in _known_stabilities:
        _known_stabilities[key] = _compute_stability(vectors, labels, k, algorithm, seed)
    return _known_stabilities[key]


def _compute_stability(
    vectors: Vectors, labels: Sequence[int], k: int, algorithm: Algorithm, seed: int
) -> Stability:
    # The adjusted Rand index over 20 samples with replacement.
    from sklearn.metrics import adjusted_rand_score

    own = np.asarray(labels)
    rng = generator(seed, ("cluster stability",))
    scores: list[float] = []
    for _ in range(REDRAWS):
        picked = np.unique(rng.integers(0, len(own), min(len(own), SAMPLE_ABOVE)))
        # A draw with too few distinct members cannot form k clusters.
        if len(picked) <= k or len(np.unique(vectors[picked], axis=0)) < k:
            continue
        again = labels_at(vectors[picked], k, algorithm, seed)
        scores.append(float(adjusted_rand_score(own[picked], again)))
    if not scores:
        return Stability(0.0, 0.0, 0)
    return Stability(float(np.mean(scores)), float(np.quantile(scores, 0.1)), len(scores))


@dataclass(frozen=True, slots=True)
class Map:
    """A two-dimensional map of n vectors: the coordinates, and the share of variance per axis."""

    coordinates: FloatArray
    # If the sum is small, the map distorts distances.
    explained: tuple[float, float]


def flat_map(vectors: Vectors) -> Map:
    """Return a two-dimensional map of vectors, made of the first two principal components.

    - `vectors`: the vectors (members), shape (n, d).

    All coordinates are zero with fewer than three members, or if all members are equal.
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
    # The sign of an axis is arbitrary, so make its largest loading positive.
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    flat[:, :count] = centred @ (axes * np.where(signs == 0, 1.0, signs)[:, None]).T
    share = [float(value) for value in found.explained_variance_ratio_] + [0.0]
    return Map(flat, (share[0], share[1]))


def nearest_members(
    vectors: Vectors, labels: Sequence[int], count: int = 3
) -> dict[int, list[int]]:
    """Return the row numbers of the members nearest to the centre of each cluster.

    - `vectors`: the members, shape (n, d).
    - `labels`: the cluster of each member, shape (n,).
    - `count`: the number of members to return for each cluster, nearest first.
    """
    # The report prints these members next to the description of the cluster, so that readers can
    # check the description.
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
    """Return the opinion group of each participant. Group 0 is the largest.

    - `matrix`: votes, shape (participants, comments). NaN marks an unseen comment.

    A participant with too few votes has the group None. If all votes are alike, every participant
    has the group None.

    Source: the method of Polis, Small et al. (2021), doi:10.6035/recerca.5516.
    """
    # All groups are None also if fewer than three participants voted enough.
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
    # A missing vote is replaced by the mean of its comment.
    means = np.where(cast, matrix, 0.0).sum(axis=0) / np.maximum(cast.sum(axis=0), 1)
    full = np.where(cast, matrix, means)
    if np.ptp(full, axis=0).max() == 0:
        return none
    places = PCA(2, svd_solver="full").fit_transform(full)
    # Without this factor, participants with few votes would stay in the middle.
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
