"""Stability of clusters, the flat map, and the members nearest the centre."""

from __future__ import annotations

import numpy as np
import pytest

from folkmoot.measures.cluster_quality import bootstrap_stability, flat_map, nearest_members
from folkmoot.measures.clusters import cluster_option, labels_at


def blobs(n: int = 60, k: int = 3, noise: float = 0.05) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.eye(32)[[i % k for i in range(n)]] + rng.normal(0, noise, (n, 32))


def test_real_clusters_are_stable_and_noise_is_not():
    x = blobs()
    solid = bootstrap_stability(x, cluster_option(x))
    assert solid.mean == pytest.approx(1.0)
    assert solid.verdict == "stable"
    noise = np.random.default_rng(1).normal(size=(60, 32))
    loose = bootstrap_stability(noise, labels_at(noise, 5))
    assert loose.mean < 0.4
    assert loose.verdict == "unstable"
    assert bootstrap_stability(noise, labels_at(noise, 5)) == loose


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
