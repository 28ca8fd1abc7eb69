"""Clusters: known silhouettes, degenerate inputs, determinism, stability, map, members."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from folkmoot.measures import clusters
from folkmoot.measures.clusters import (
    best_clustering,
    bootstrap_stability,
    by_first_appearance,
    cluster_option,
    describe_structure,
    flat_map,
    labels_at,
    nearest_members,
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
    assert found.cluster_count == k
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert set(found.silhouettes) == {2, 3, 4, 5, 6}


def test_points_without_structure_do_not_fall_into_many_clusters():
    """From Ward's clusters as a start, k-means gave six for most of these."""
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=(60, 256))
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        assert best_clustering(noise).cluster_count == 2


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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", range(1, 9))
def test_exactly_k_clusters_though_all_distances_are_equal(algorithm, k):
    found = labels_at(np.eye(8), k, algorithm)
    assert found == by_first_appearance(found)
    assert len(set(found)) == k


def test_silhouette_of_iris_by_k():
    x = load_iris().data
    published = {2: 0.681046, 3: 0.552819, 4: 0.498051, 5: 0.488749}
    found = best_clustering(x, "kmeans", 5)
    assert found.cluster_count == 2
    assert {k: found.silhouettes[k] for k in (2, 3)} == pytest.approx(
        {k: published[k] for k in (2, 3)}, abs=2e-3
    )


def test_large_input_is_sampled_and_still_right():
    x, truth = blobs(2_600, 3, d=16)
    found = best_clustering(x, "kmeans", 4)
    assert found.cluster_count == 3
    assert adjusted_rand_score(truth, found.labels) == 1.0


def test_very_many_members_go_by_mini_batches_and_never_by_all_pairs(monkeypatch):
    monkeypatch.setattr(clusters, "LARGE", 500)
    x, truth = blobs(900, 3, d=16)
    many = x.astype(np.float32)
    found = best_clustering(many, "kmeans", 4)
    assert found.cluster_count == 3 and adjusted_rand_score(truth, found.labels) == 1.0
    assert found == best_clustering(many, "kmeans", 4)
    with pytest.raises(
        ValueError, match=r"all pairs, and 900 members are more than 500; use kmeans"
    ):
        labels_at(many, 3, "agglomerative")


def test_rejects_unknown_algorithm_and_shape():
    with pytest.raises(ValueError, match="unknown clustering algorithm"):
        labels_at(np.eye(4), 2, "dbscan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be"):
        cluster_option(np.ones(4))


def groups(n: int = 60, k: int = 3, noise: float = 0.05) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.eye(32)[[i % k for i in range(n)]] + rng.normal(0, noise, (n, 32))


def test_real_clusters_are_stable_and_noise_is_not():
    x = groups()
    solid = bootstrap_stability(x, cluster_option(x))
    assert solid.mean == pytest.approx(1.0)
    assert solid.verdict == "stable"
    noise = np.random.default_rng(1).normal(size=(60, 32))
    loose = bootstrap_stability(noise, labels_at(noise, 5))
    assert loose.mean < 0.4
    assert loose.verdict == "unstable"
    clusters._known_stabilities.clear()
    assert bootstrap_stability(noise, labels_at(noise, 5)) == loose


def test_the_stability_of_other_members_labels_or_seeds_is_computed():
    x = groups(noise=0.5)
    labels = labels_at(x, 4)
    first = bootstrap_stability(x, labels)
    assert bootstrap_stability(x.copy(), list(labels)) is first
    others = (
        bootstrap_stability(x, labels, seed=43),
        bootstrap_stability(x, labels, "agglomerative"),
        bootstrap_stability(x + np.random.default_rng(3).normal(0, 0.5, x.shape), labels),
        bootstrap_stability(x, [*labels[1:], labels[0]]),
    )
    assert all(other != first for other in others)


def test_one_cluster_or_too_few_members():
    assert bootstrap_stability(np.eye(4), [0, 0, 0, 0]).draws == 0
    assert bootstrap_stability(np.eye(3), [0, 1, 2]).mean <= 1


def test_map_keeps_the_plane_of_the_data():
    rng = np.random.default_rng(2)
    plane = rng.normal(size=(50, 2)) * [3, 1]
    x = np.hstack([plane, np.zeros((50, 30))]) + 7
    found = flat_map(x)
    assert sum(found.explained) == pytest.approx(1.0)
    assert found.explained[0] > found.explained[1]
    flat = found.coordinates
    between = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    truth = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    assert between == pytest.approx(truth)
    assert (flat_map(x).coordinates == flat).all()


@pytest.mark.parametrize("x", [np.zeros((0, 5)), np.eye(2), np.ones((6, 4))])
def test_map_of_nothing_is_flat(x):
    assert (flat_map(x).coordinates == 0).all()
    assert flat_map(x).explained == (0.0, 0.0)


def test_map_of_a_line():
    found = flat_map(np.arange(6.0)[:, None] * np.array([[1.0, 2.0]]))
    assert found.explained[0] == pytest.approx(1.0)


def test_nearest_members():
    x = np.array([[0.0], [1.0], [5.0], [100.0], [101.0]])
    # Centre of the first three is 2: 1 is nearest, then 0, then 5.
    assert nearest_members(x, [0, 0, 0, 1, 1], 2) == {0: [1, 0], 1: [3, 4]}


@pytest.mark.parametrize(
    ("silhouette", "structure"),
    [
        *((-0.2, "none"), (0.25, "none"), (0.26, "weak"), (0.5, "weak"), (0.51, "reasonable")),
        *((0.7, "reasonable"), (0.71, "strong"), (1.0, "strong")),
    ],
)
def test_structure_is_called_as_kaufman_and_rousseeuw_call_it(
    silhouette: float, structure: str
) -> None:
    assert describe_structure(silhouette) == structure
