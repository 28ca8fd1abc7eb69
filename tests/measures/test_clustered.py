"""Clustered means: hand-computed sandwich, exact permutations, bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from folkmoot.measures.clustered import (
    cluster_bootstrap,
    clustered_difference,
    clustered_mean,
    intraclass_correlation,
    label_shuffle_p,
    paired_difference,
    sign_flip_p,
)


def test_one_value_per_cluster_is_the_t_interval():
    y = [1.0, 2.0, 4.0, 7.0, 3.0]
    found = clustered_mean(y, list("abcde"))
    expected = stats.ttest_1samp(y, 0)
    ci = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ci.low, ci.high))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.n, found.clusters) == (5, 5)


def test_sandwich_by_hand():
    y = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    groups = ["s1", "s1", "s2", "s2", "s3", "s3"]
    # Cluster sums of y - 1/2: 1, -1, 0. Variance 2/36 * 3/2, error .288675, t(2) = 4.302653.
    found = clustered_mean(y, groups)
    assert found.high - found.value == pytest.approx(4.302652729911275 * math.sqrt(3 / 36))


def test_copying_units_inside_clusters_adds_no_certainty():
    y, groups = [1.0, 3.0, 2.0, 6.0], list("abcd")
    once = clustered_mean(y, groups)
    often = clustered_mean(np.repeat(y, 25), [g for g in groups for _ in range(25)])
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_one_cluster_has_no_interval():
    found = clustered_mean([1.0, 2.0, 3.0], ["s", "s", "s"])
    assert found.value == 2.0
    assert not found.has_interval
    assert clustered_mean([], []).n == 0


def test_paired_difference_uses_the_exact_test_with_few_clusters():
    after, before = [2.0, 3.0, 5.0, 4.0], [1.0, 1.0, 2.0, 0.0]
    found = paired_difference(after, before, list("abcd"))
    assert found.value == 2.5
    assert found.p == pytest.approx(2 / 16)  # all of one sign: the most extreme of 2^4


def test_clustered_difference_against_cluster_means():
    values = [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 9.0, 9.0]
    treated = [False] * 4 + [True] * 4
    groups = [g for g in "abcd" for _ in range(2)]
    found = clustered_difference(values, treated, groups)
    assert found.value == pytest.approx(5.0)
    # One value per cluster would be Welch's test of 5, 9 against 1, 3; copies change nothing.
    welch = stats.ttest_ind([5.0, 9.0], [1.0, 3.0], equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high))
    assert found.p == pytest.approx(2 / 6)  # exact: 2 of the 6 ways to deal four means
    assert math.isnan(clustered_difference(values, [True] * 8, groups).value)


def test_clusters_that_hold_both_sides_are_compared_within():
    # Every cluster has its own level; within each the treated stand 2 higher.
    values = [1.0, 3.0, 11.0, 13.0, 21.0, 23.1, 31.0, 32.9]
    treated = [False, True] * 4
    within = clustered_difference(values, treated, [g for g in "abcd" for _ in range(2)])
    apart = clustered_difference(values, treated, list(range(8)))
    assert within.value == pytest.approx(apart.value) == pytest.approx(2.0)
    assert within.high - within.low < 0.5
    assert apart.high - apart.low > 20


def test_clusters_that_all_say_the_same_give_no_interval():
    found = clustered_mean([0.5] * 6, list("aabbcc"))
    assert found.value == 0.5
    assert not found.has_interval
    assert math.isnan(found.p)
    assert clustered_mean([0.0] * 4, list("abcd")).p == 1.0
    two = clustered_difference([0.25] * 4 + [0.0] * 4, [True] * 4 + [False] * 4, list("aabbccdd"))
    assert not two.has_interval
    assert two.p == pytest.approx(2 / 6)
    paired = paired_difference([1.0] * 3, [0.0] * 3, list("abc"))
    assert paired.p == pytest.approx(2 / 8)


def test_permutation_tests_are_exact():
    assert sign_flip_p([1, 1, 1, 1, 1], list("abcde")) == pytest.approx(2 / 32)
    assert sign_flip_p([1, -1, 1, -1], list("abcd")) == 1.0
    assert label_shuffle_p([5, 6, 7], [1, 2, 3]) == pytest.approx(2 / 20)
    assert math.isnan(sign_flip_p([3.0], ["a"]))


@pytest.mark.parametrize("n", [2, 5, 8, 14, 15])
def test_sign_flips_agree_with_scipy(n):
    rng = np.random.default_rng(n)
    for differences in (rng.normal(0.3, 1, n), rng.integers(-2, 3, n) / 4, np.zeros(n)):
        exact = stats.permutation_test(
            (differences,),
            lambda x, axis=-1: np.sum(x, axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
            vectorized=True,
        ).pvalue
        near = 1e-9 if n < 15 else 0.02  # from 15 clusters on flips are sampled
        assert sign_flip_p(differences, range(n)) == pytest.approx(exact, abs=near)


def test_bootstrap_draws_clusters():
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(200), 5)
    effects = rng.normal(0, 1, 200)[clusters]
    found = cluster_bootstrap(effects, clusters.tolist(), np.random.default_rng(4))
    exact = clustered_mean(effects, clusters.tolist())
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=0.03)
    again = cluster_bootstrap(effects, clusters.tolist(), np.random.default_rng(4))
    assert again == found


def test_intraclass_correlation():
    assert intraclass_correlation([1, 1, 2, 2, 3, 3], list("aabbcc")) == pytest.approx(1.0)
    # Anova by hand: MSB = 0, MSW = 1 * 6/3: (0 - 2) / (0 + 2) = -1 for pairs.
    assert intraclass_correlation([1, 3, 1, 3, 1, 3], list("aabbcc")) == pytest.approx(-1.0)
    assert math.isnan(intraclass_correlation([1, 2], list("ab")))
