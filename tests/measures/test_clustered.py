"""Clustered means, compared with hand calculations and other packages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS

from folkmoot.measures.inference.clustered import (
    clustered_coefficient,
    clustered_difference,
    clustered_mean,
    paired_difference,
    skewed_mean,
)


def test_one_value_per_cluster_gives_the_t_interval():
    y = [1.0, 2.0, 4.0, 7.0, 3.0]
    estimate = clustered_mean(y, list("abcde"))
    expected = stats.ttest_1samp(y, 0)
    ci = expected.confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((ci.low, ci.high))
    assert estimate.p == pytest.approx(expected.pvalue)
    assert (estimate.n, estimate.clusters) == (5, 5)


def test_the_interval_of_skewed_values_uses_halls_statistic():
    y = np.array([1.0, 1, 1, 1, 2, 1, 3, 5, 1, 2])
    estimate = skewed_mean(y, range(10))
    skew = stats.skew(y, bias=False) / 10**0.5

    def compute_statistic(mean):
        t = (y.mean() - mean) / stats.sem(y)
        return t + skew / 3 * t**2 + skew**2 / 27 * t**3 + skew / 6

    limit = stats.t.ppf(0.975, 9)
    assert (compute_statistic(estimate.low), compute_statistic(estimate.high)) == pytest.approx(
        (limit, -limit)
    )
    assert estimate.p == pytest.approx(2 * stats.t.sf(compute_statistic(0), 9))
    # The interval is longer on the side of the rare answers.
    assert estimate.high - estimate.value > estimate.value - estimate.low
    symmetric_values = [1.0, 2, 3, 4, 5]
    symmetric_estimate, skewed_estimate = (
        clustered_mean(symmetric_values, range(5)),
        skewed_mean(symmetric_values, range(5)),
    )
    assert (skewed_estimate.low, skewed_estimate.high) == (
        symmetric_estimate.low,
        symmetric_estimate.high,
    )


def test_singleton_clusters_equal_hc2_of_statsmodels():
    """With a cluster for each unit CR2 is HC2, which statsmodels has."""
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(30), rng.normal(size=30), rng.random(30) < 0.3]).astype(float)
    y = x @ [1.0, 0.5, -1.0] + rng.normal(size=30) * (1 + x[:, 2])
    fit = OLS(y, x).fit(cov_type="HC2")
    for column in range(3):
        estimate = clustered_coefficient(y, x, column, range(30))
        df = float(estimate.method.split()[-2])
        error = (estimate.high - estimate.low) / 2 / stats.t.ppf(0.975, df)
        assert estimate.value == pytest.approx(fit.params[column])
        assert error == pytest.approx(fit.bse[column], rel=5e-3)  # the method names df rounded


def test_cr2_and_its_degrees_of_freedom_follow_their_definition():
    """A_g is the symmetric square root of the inverse of I − H in each cluster, the degrees of
    freedom the fewer of Satterthwaite's of the quadratic form under two error variances: one for
    all, and the size of the cluster. By whole matrices."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(14), [2, 9, 4, 1, 6, 3, 12, 3, 5, 8, 2, 7, 5, 4])
    n = len(groups)
    x = np.column_stack([np.ones(n), groups % 2, rng.normal(size=n)]).astype(float)
    y = rng.normal(size=n) + rng.normal(size=14)[groups]
    bread = np.linalg.inv(x.T @ x)
    residual_maker = np.eye(n) - x @ bread @ x.T
    tested = 0
    for column in range(3):
        loadings = np.zeros((n, 14))
        for group in range(14):
            members = np.flatnonzero(groups == group)
            values, vectors = np.linalg.eigh(residual_maker[np.ix_(members, members)])
            root = (
                vectors
                @ np.diag([eigenvalue**-0.5 if eigenvalue > 1e-10 else 0 for eigenvalue in values])
                @ vectors.T
            )
            loadings[members, group] = root @ x[members] @ bread[:, column]
        variance = float(((loadings.T @ (residual_maker @ y)) ** 2).sum())
        candidates = []
        for variances in (np.ones(n), np.bincount(groups)[groups]):
            quadratic_form = (
                loadings.T @ residual_maker @ np.diag(variances) @ residual_maker @ loadings
            )
            candidates.append(np.trace(quadratic_form) ** 2 / (quadratic_form**2).sum())
        df = min(candidates)
        value = float((bread @ x.T @ y)[column])
        estimate = clustered_coefficient(y, x, column, groups.tolist())
        assert estimate.value == pytest.approx(value)
        if df < 4:
            shown_df, _, rest = estimate.why.partition(" ")
            assert 0 <= df - float(shown_df) < 0.01 + 1e-9 and "degrees of freedom" in rest
            continue
        assert estimate.p == pytest.approx(2 * stats.t.sf(abs(value) / variance**0.5, df))
        assert estimate.high - estimate.value == pytest.approx(
            stats.t.ppf(0.975, df) * variance**0.5
        )
        tested += 1
    assert tested


def test_copies_of_units_in_clusters_do_not_narrow_the_interval():
    y, groups = [1.0, 3.0, 2.0, 6.0, 4.0], list("abcde")
    single = clustered_mean(y, groups)
    repeated = clustered_mean(np.repeat(y, 25), [group for group in groups for _ in range(25)])
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high))


def test_one_cluster_has_no_interval():
    estimate = clustered_mean([1.0, 2.0, 3.0], ["s", "s", "s"])
    assert estimate.value == 2.0
    assert not estimate.has_interval
    assert clustered_mean([], []).n == 0


def test_fewer_than_five_clusters_are_listed_without_interval():
    after, before = [2.0, 3.0, 5.0, 4.0], [1.0, 1.0, 2.0, 0.0]
    estimate = paired_difference(after, before, list("abcd"))
    assert (estimate.value, estimate.unit_count) == (2.5, 4)
    assert not estimate.has_interval and math.isnan(estimate.low) and math.isnan(estimate.p)
    assert estimate.each == (1.0, 2.0, 3.0, 4.0)
    assert clustered_mean([1.0, 3.0, 7.0], list("aab")).each == (2.0, 7.0)
    assert clustered_mean([1.0, 2.0, 3.0, 4.0, 6.0], list("abcde")).each == ()


def test_units_without_a_cluster_are_separate_clusters():
    assert clustered_mean([1.0, 2.0, 3.0, 4.0, 6.0], [None] * 5).clusters == 5
    assert clustered_mean([1.0, 2.0, 3.0, 4.0, 6.0], [None] * 3 + ["a"] * 2).clusters == 4


def test_a_clustered_difference_equals_the_test_of_cluster_means():
    values = [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 9.0, 9.0, 4.0, 4.0, 8.0, 8.0]
    treated = [False] * 4 + [True] * 4 + [False] * 2 + [True] * 2
    groups = [group for group in "abcdef" for _ in range(2)]
    estimate = clustered_difference(values, treated, groups)
    # With one value per cluster this is Student's test of 5, 9, 8 against 1, 3, 4.
    student = stats.ttest_ind([5.0, 9.0, 8.0], [1.0, 3.0, 4.0])
    ci = student.confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((ci.low, ci.high))
    assert estimate.p == pytest.approx(student.pvalue)
    assert math.isnan(clustered_difference(values, [True] * 12, groups).value)
    one_treated_cluster = clustered_difference(values, [True] * 2 + [False] * 10, groups)
    assert not one_treated_cluster.has_interval and math.isnan(one_treated_cluster.p)


def test_clusters_with_both_conditions_are_compared_within():
    # The level differs between clusters. Within each cluster treated values are 2 higher.
    values = [1.0, 3.0, 11.0, 13.0, 21.0, 23.1, 31.0, 32.9, 41.0, 43.0]
    treated = [False, True] * 5
    within = clustered_difference(values, treated, [group for group in "abcde" for _ in range(2)])
    between = clustered_difference(values, treated, list(range(10)))
    assert within.value == pytest.approx(between.value) == pytest.approx(2.0)
    assert within.high - within.low < 0.5
    assert between.high - between.low > 20


def test_equal_clusters_without_bounds_have_no_interval():
    estimate = clustered_mean([0.5] * 10, list("aabbccddee"))
    assert estimate.value == 0.5
    assert not estimate.has_interval
    assert math.isnan(estimate.p)
    assert clustered_mean([0.0] * 5, list("abcde")).p == 1.0


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=12, max_size=40).flatmap(
        lambda groups: st.tuples(
            st.just(groups),
            st.lists(st.integers(-3, 3), min_size=len(groups), max_size=len(groups)),
            st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)),
        )
    )
)
def test_an_interval_excludes_zero_exactly_if_p_is_below_the_level(data):
    groups, values, treated = data
    for estimate in (
        clustered_mean(values, groups),
        skewed_mean(values, groups),
        clustered_difference(values, treated, groups),
    ):
        if estimate.has_interval and abs(estimate.p - 0.05) > 1e-9:
            assert estimate.excludes_zero == (estimate.p < 0.05)
