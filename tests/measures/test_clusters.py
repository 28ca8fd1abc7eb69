"""Clusters: known silhouettes, degenerate inputs, determinism, stability, map, nearest members."""

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


def draw_blobs(n: int, k: int, d: int = 64, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    truth = [i % k for i in range(n)]
    x = np.eye(d)[truth] + rng.normal(0, 0.05, (n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True), truth


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_built_in_clusters_are_found(algorithm, k):
    x, truth = draw_blobs(60, k)
    clustering = best_clustering(x, algorithm, 6)
    assert clustering.cluster_count == k
    assert adjusted_rand_score(truth, clustering.labels) == 1.0
    assert set(clustering.silhouettes) == {2, 3, 4, 5, 6}


def test_points_without_structure_form_two_clusters():
    """K-means that starts from Ward's clusters gives six for most of these."""
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=(60, 256))
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        assert best_clustering(noise).cluster_count == 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_few_or_identical_members_are_one_cluster(algorithm):
    assert cluster_option(np.zeros((0, 8)), algorithm) == []
    assert cluster_option(np.eye(2), algorithm) == [0, 0]
    assert cluster_option(np.ones((40, 8)), algorithm) == [0] * 40
    assert cluster_option(draw_blobs(30, 3)[0], algorithm, max_k=1) == [0] * 30


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_clusters_of_three_members_or_two_distinct_rows(algorithm):
    assert len(set(cluster_option(np.eye(3), algorithm))) == 2
    assert cluster_option(np.eye(2)[[1, 1, 0, 1]], algorithm) == [0, 0, 1, 0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_labels_are_deterministic_and_numbered_by_appearance(algorithm):
    x = np.random.default_rng(5).normal(size=(50, 20))
    first = cluster_option(x, algorithm, 6, seed=7)
    assert first == cluster_option(x.copy(), algorithm, 6, seed=7)
    assert first == by_first_appearance(first)
    assert by_first_appearance([3, 3, 1, 2, 1]) == [0, 0, 1, 2, 1]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", range(1, 9))
def test_equal_distances_give_exactly_k_clusters(algorithm, k):
    labels = labels_at(np.eye(8), k, algorithm)
    assert labels == by_first_appearance(labels)
    assert len(set(labels)) == k


def test_silhouettes_of_iris_equal_published_values():
    x = load_iris().data
    published = {2: 0.681046, 3: 0.552819, 4: 0.498051, 5: 0.488749}
    clustering = best_clustering(x, "kmeans", 5)
    assert clustering.cluster_count == 2
    assert {k: clustering.silhouettes[k] for k in (2, 3)} == pytest.approx(
        {k: published[k] for k in (2, 3)}, abs=2e-3
    )


def test_large_input_is_clustered_correctly():
    x, truth = draw_blobs(2_600, 3, d=16)
    clustering = best_clustering(x, "kmeans", 4)
    assert clustering.cluster_count == 3
    assert adjusted_rand_score(truth, clustering.labels) == 1.0


def test_very_large_input_is_clustered_without_all_pairs(monkeypatch):
    monkeypatch.setattr(clusters, "LARGE", 500)
    x, truth = draw_blobs(900, 3, d=16)
    members = x.astype(np.float32)
    clustering = best_clustering(members, "kmeans", 4)
    assert clustering.cluster_count == 3 and adjusted_rand_score(truth, clustering.labels) == 1.0
    assert clustering == best_clustering(members, "kmeans", 4)
    with pytest.raises(
        ValueError, match=r"all pairs, and 900 members are more than 500; use kmeans"
    ):
        labels_at(members, 3, "agglomerative")


def test_an_unknown_algorithm_or_shape_is_refused():
    with pytest.raises(ValueError, match="unknown clustering algorithm"):
        labels_at(np.eye(4), 2, "dbscan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be"):
        cluster_option(np.ones(4))


def draw_groups(n: int = 60, k: int = 3, noise: float = 0.05) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.eye(32)[[i % k for i in range(n)]] + rng.normal(0, noise, (n, 32))


def test_real_clusters_are_stable_and_noise_is_not():
    x = draw_groups()
    stable = bootstrap_stability(x, cluster_option(x))
    assert stable.mean == pytest.approx(1.0)
    assert stable.verdict == "stable"
    noise = np.random.default_rng(1).normal(size=(60, 32))
    unstable = bootstrap_stability(noise, labels_at(noise, 5))
    assert unstable.mean < 0.4
    assert unstable.verdict == "unstable"
    clusters._known_stabilities.clear()
    assert bootstrap_stability(noise, labels_at(noise, 5)) == unstable


def test_stability_is_cached_only_for_the_same_input():
    x = draw_groups(noise=0.5)
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


def test_stability_of_one_cluster_or_few_members():
    assert bootstrap_stability(np.eye(4), [0, 0, 0, 0]).draws == 0
    assert bootstrap_stability(np.eye(3), [0, 1, 2]).mean <= 1


def test_the_map_keeps_distances_of_planar_data():
    rng = np.random.default_rng(2)
    plane = rng.normal(size=(50, 2)) * [3, 1]
    x = np.hstack([plane, np.zeros((50, 30))]) + 7
    plane_map = flat_map(x)
    assert sum(plane_map.explained) == pytest.approx(1.0)
    assert plane_map.explained[0] > plane_map.explained[1]
    coordinates = plane_map.coordinates
    map_distances = np.linalg.norm(coordinates[:, None] - coordinates[None], axis=2)
    true_distances = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    assert map_distances == pytest.approx(true_distances)
    assert (flat_map(x).coordinates == coordinates).all()


@pytest.mark.parametrize("x", [np.zeros((0, 5)), np.eye(2), np.ones((6, 4))])
def test_the_map_of_degenerate_input_is_zero(x):
    assert (flat_map(x).coordinates == 0).all()
    assert flat_map(x).explained == (0.0, 0.0)


def test_the_map_of_a_line_has_one_dimension():
    line_map = flat_map(np.arange(6.0)[:, None] * np.array([[1.0, 2.0]]))
    assert line_map.explained[0] == pytest.approx(1.0)


def test_nearest_members_are_sorted_by_distance():
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
def test_structure_has_the_names_of_kaufman_and_rousseeuw(
    silhouette: float, structure: str
) -> None:
    assert describe_structure(silhouette) == structure
