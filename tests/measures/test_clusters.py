"""Clusters: known silhouettes, degenerate inputs, determinism."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score, pairwise_distances, silhouette_score

from folkmoot.measures.clusters import (
    best_clustering,
    by_first_appearance,
    cluster_option,
    labels_at,
    silhouette,
)

ALGORITHMS = ["kmeans", "agglomerative"]


def blobs(n: int, k: int, d: int = 64, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    truth = [i % k for i in range(n)]
    x = np.eye(d)[truth] + rng.normal(0, 0.05, (n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True), truth


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_finds_planted_clusters(algorithm, k):
    x, truth = blobs(60, k)
    found = best_clustering(x, algorithm, 6)
    assert found.k == k
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert set(found.silhouettes) == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_few_or_identical_members_are_one_cluster(algorithm):
    assert cluster_option(np.zeros((0, 8)), algorithm) == []
    assert cluster_option(np.eye(2), algorithm) == [0, 0]
    assert cluster_option(np.ones((40, 8)), algorithm) == [0] * 40
    assert cluster_option(blobs(30, 3)[0], algorithm, max_k=1) == [0] * 30


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_members_and_two_distinct_rows(algorithm):
    assert len(set(cluster_option(np.eye(3), algorithm))) == 2
    assert cluster_option(np.eye(2)[[1, 1, 0, 1]], algorithm) == [0, 0, 1, 0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_same_labels_again_and_counted_by_appearance(algorithm):
    x = np.random.default_rng(5).normal(size=(50, 20))
    first = cluster_option(x, algorithm, 6, seed=7)
    assert first == cluster_option(x.copy(), algorithm, 6, seed=7)
    assert first == by_first_appearance(first)
    assert by_first_appearance([3, 3, 1, 2, 1]) == [0, 0, 1, 2, 1]


@pytest.mark.parametrize("seed", range(12))
def test_labels_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(10, 200))
    x = rng.normal(size=(n, 24)) + 2 * np.eye(24)[rng.integers(0, 5, n)]
    for k in (2, 3, 6):
        ward = AgglomerativeClustering(k, linkage="ward").fit_predict(x)
        assert labels_at(x, k, "agglomerative") == by_first_appearance(ward)
        starts = np.stack([x[ward == c].mean(axis=0) for c in range(k)])
        lloyd = KMeans(k, init=starts, n_init=1, tol=0).fit_predict(x)
        assert labels_at(x, k, "kmeans") == by_first_appearance(lloyd)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", range(1, 9))
def test_exactly_k_clusters_though_all_distances_are_equal(algorithm, k):
    found = labels_at(np.eye(8), k, algorithm)
    assert found == by_first_appearance(found)
    assert len(set(found)) == k


def test_silhouette_known_answers():
    line = pairwise_distances(np.array([[0.0], [1.0], [10.0], [11.0]]))
    assert silhouette(line, [0, 0, 1, 1]) == pytest.approx(0.899749373)
    fan = np.array([[1, 0], [0.8, 0.6], [0, 1], [-0.6, 0.8]])
    cosine = pairwise_distances(fan, metric="cosine")
    assert silhouette(cosine, [0, 0, 1, 1]) == pytest.approx(0.78021978)


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0, 0], [3, 1, 2, 0]])
def test_silhouette_is_nought_where_it_is_not_defined(labels):
    apart = pairwise_distances(np.arange(len(labels))[:, None]) if labels else np.zeros((0, 0))
    assert silhouette(apart, labels) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_silhouette_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 60))
    x = rng.integers(0, 4, (n, 3)) + rng.normal(0, 0.1, (n, 3)) * (seed % 2)  # with equal rows
    labels = rng.permutation(np.r_[0, 0, 7, rng.choice([0, 3, 7, 9], n - 3)])
    apart = pairwise_distances(x)
    expected = silhouette_score(apart, labels, metric="precomputed")
    assert silhouette(apart, labels) == pytest.approx(expected, abs=1e-12)


def test_silhouette_of_iris_by_k():
    x = load_iris().data
    published = {2: 0.681046, 3: 0.552819, 4: 0.498051, 5: 0.488749}
    found = best_clustering(x, "kmeans", 5)
    assert found.k == 2
    assert {k: found.silhouettes[k] for k in (2, 3)} == pytest.approx(
        {k: published[k] for k in (2, 3)}, abs=2e-3
    )


def test_large_input_is_sampled_and_still_right():
    x, truth = blobs(2_600, 3, d=16)
    found = best_clustering(x, "kmeans", 4)
    assert found.k == 3
    assert adjusted_rand_score(truth, found.labels) == 1.0


def test_rejects_unknown_algorithm_and_shape():
    with pytest.raises(ValueError, match="unknown clustering algorithm"):
        labels_at(np.eye(4), 2, "dbscan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be"):
        cluster_option(np.ones(4))
