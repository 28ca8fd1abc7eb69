"""Whether clusters may be believed: stability, a map, and the members nearest each centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.clusters import SAMPLE_ABOVE, Algorithm, labels_at
from folkmoot.randomness import generator

FloatArray = NDArray[np.float64]


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


def bootstrap_stability(
    vectors: FloatArray,
    labels: Sequence[int],
    algorithm: Algorithm = "kmeans",
    seed: int = 42,
    draws: int = 20,
) -> Stability:
    """How alike clusterings of resampled members (n, d) are to `labels` (n,), k held fixed.

    Each draw resamples n members with replacement, clusters the distinct ones again and compares
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
    for _ in range(draws):
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


def flat_map(vectors: FloatArray) -> Map:
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
    share = [float(v) for v in found.explained_variance_ratio_] + [0.0]
    return Map(flat, (share[0], share[1]))


def nearest_members(
    vectors: FloatArray, labels: Sequence[int], count: int = 3
) -> dict[int, list[int]]:
    """Per cluster the rows of its `count` members nearest its centre, nearest first.

    `vectors` (n, d), `labels` (n,). Shown beside a cluster's description, so that it can be
    checked against what its members said.
    """
    own = np.asarray(labels)
    found: dict[int, list[int]] = {}
    for label in sorted(set(labels)):
        rows = np.flatnonzero(own == label)
        away = ((vectors[rows] - vectors[rows].mean(axis=0)) ** 2).sum(axis=1)
        found[int(label)] = [int(r) for r in rows[np.argsort(away.round(12), kind="stable")]][
            :count
        ]
    return found
