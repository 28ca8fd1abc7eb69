"""Clustered means: hand-computed sandwich, exact permutations."""

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


def test_one_value_per_cluster_is_the_t_interval():
    y = [1.0, 2.0, 4.0, 7.0, 3.0]
    found = clustered_mean(y, list("abcde"))
    expected = stats.ttest_1samp(y, 0)
    ci = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ci.low, ci.high))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.n, found.clusters) == (5, 5)


def test_the_interval_of_skewed_values_is_that_of_halls_statistic():
    y = np.array([1.0, 1, 1, 1, 2, 1, 3, 5, 1, 2])
    e = skewed_mean(y, range(10))
    skew = stats.skew(y, bias=False) / 10**0.5

    def statistic(mean):
        t = (y.mean() - mean) / stats.sem(y)
        return t + skew / 3 * t**2 + skew**2 / 27 * t**3 + skew / 6

    limit = stats.t.ppf(0.975, 9)
    assert (statistic(e.low), statistic(e.high)) == pytest.approx((limit, -limit))
    assert e.p == pytest.approx(2 * stats.t.sf(statistic(0), 9))
    # It reaches further to the side of the rare answers.
    assert e.high - e.value > e.value - e.low
    even = [1.0, 2, 3, 4, 5]
    plain, same = clustered_mean(even, range(5)), skewed_mean(even, range(5))
    assert (same.low, same.high) == (plain.low, plain.high)


def test_singletons_are_statsmodels_hc2():
    """With a cluster for each unit CR2 is HC2, which statsmodels has."""
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(30), rng.normal(size=30), rng.random(30) < 0.3]).astype(float)
    y = x @ [1.0, 0.5, -1.0] + rng.normal(size=30) * (1 + x[:, 2])
    fit = OLS(y, x).fit(cov_type="HC2")
    for column in range(3):
        e = clustered_coefficient(y, x, column, range(30))
        df = float(e.method.split()[-2])
        error = (e.high - e.low) / 2 / stats.t.ppf(0.975, df)
        assert e.value == pytest.approx(fit.params[column])
        assert error == pytest.approx(fit.bse[column], rel=5e-3)  # the method names df rounded


def test_cr2_and_its_degrees_of_freedom_by_their_definition():
    """A_g is the symmetric square root of the inverse of I − H in each cluster, the degrees of
    freedom the fewer of Satterthwaite's of the quadratic form under two error variances: one for
    all, and the size of the cluster. By whole matrices."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(14), [2, 9, 4, 1, 6, 3, 12, 3, 5, 8, 2, 7, 5, 4])
    n = len(groups)
    x = np.column_stack([np.ones(n), groups % 2, rng.normal(size=n)]).astype(float)
    y = rng.normal(size=n) + rng.normal(size=14)[groups]
    bread = np.linalg.inv(x.T @ x)
    left = np.eye(n) - x @ bread @ x.T
    tested = 0
    for column in range(3):
        loads = np.zeros((n, 14))
        for g in range(14):
            own = np.flatnonzero(groups == g)
            values, vectors = np.linalg.eigh(left[np.ix_(own, own)])
            root = vectors @ np.diag([v**-0.5 if v > 1e-10 else 0 for v in values]) @ vectors.T
            loads[own, g] = root @ x[own] @ bread[:, column]
        variance = float(((loads.T @ (left @ y)) ** 2).sum())
        both = []
        for variances in (np.ones(n), np.bincount(groups)[groups]):
            form = loads.T @ left @ np.diag(variances) @ left @ loads
            both.append(np.trace(form) ** 2 / (form**2).sum())
        df = min(both)
        value = float((bread @ x.T @ y)[column])
        e = clustered_coefficient(y, x, column, groups.tolist())
        assert e.value == pytest.approx(value)
        if df < 4:
            assert f"{df:.1f} degrees of freedom" in e.why
            continue
        assert e.p == pytest.approx(2 * stats.t.sf(abs(value) / variance**0.5, df))
        assert e.high - e.value == pytest.approx(stats.t.ppf(0.975, df) * variance**0.5)
        tested += 1
    assert tested


def test_copying_units_inside_clusters_adds_no_certainty():
    y, groups = [1.0, 3.0, 2.0, 6.0, 4.0], list("abcde")
    once = clustered_mean(y, groups)
    often = clustered_mean(np.repeat(y, 25), [g for g in groups for _ in range(25)])
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_one_cluster_has_no_interval():
    found = clustered_mean([1.0, 2.0, 3.0], ["s", "s", "s"])
    assert found.value == 2.0
    assert not found.has_interval
    assert clustered_mean([], []).n == 0


def test_fewer_than_five_clusters_are_shown_one_by_one():
    after, before = [2.0, 3.0, 5.0, 4.0], [1.0, 1.0, 2.0, 0.0]
    found = paired_difference(after, before, list("abcd"))
    assert (found.value, found.unit_count) == (2.5, 4)
    assert not found.has_interval and math.isnan(found.low) and math.isnan(found.p)
    assert found.each == (1.0, 2.0, 3.0, 4.0)
    assert clustered_mean([1.0, 3.0, 7.0], list("aab")).each == (2.0, 7.0)
    assert clustered_mean([1.0, 2.0, 3.0, 4.0, 6.0], list("abcde")).each == ()


def test_units_of_which_no_cluster_is_known_are_units_of_their_own():
    assert clustered_mean([1.0, 2.0, 3.0, 4.0, 6.0], [None] * 5).clusters == 5
    assert clustered_mean([1.0, 2.0, 3.0, 4.0, 6.0], [None] * 3 + ["a"] * 2).clusters == 4


def test_clustered_difference_against_cluster_means():
    values = [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 9.0, 9.0, 4.0, 4.0, 8.0, 8.0]
    treated = [False] * 4 + [True] * 4 + [False] * 2 + [True] * 2
    groups = [g for g in "abcdef" for _ in range(2)]
    found = clustered_difference(values, treated, groups)
    # One value per cluster is Student's test of 5, 9, 8 against 1, 3, 4; copies change nothing.
    student = stats.ttest_ind([5.0, 9.0, 8.0], [1.0, 3.0, 4.0])
    ci = student.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ci.low, ci.high))
    assert found.p == pytest.approx(student.pvalue)
    assert math.isnan(clustered_difference(values, [True] * 12, groups).value)
    lone = clustered_difference(values, [True] * 2 + [False] * 10, groups)
    assert not lone.has_interval and math.isnan(lone.p)


def test_clusters_that_hold_both_sides_are_compared_within():
    # Every cluster has its own level; within each the treated values are 2 higher.
    values = [1.0, 3.0, 11.0, 13.0, 21.0, 23.1, 31.0, 32.9, 41.0, 43.0]
    treated = [False, True] * 5
    within = clustered_difference(values, treated, [g for g in "abcde" for _ in range(2)])
    apart = clustered_difference(values, treated, list(range(10)))
    assert within.value == pytest.approx(apart.value) == pytest.approx(2.0)
    assert within.high - within.low < 0.5
    assert apart.high - apart.low > 20


def test_clusters_that_all_say_the_same_give_no_interval():
    found = clustered_mean([0.5] * 10, list("aabbccddee"))
    assert found.value == 0.5
    assert not found.has_interval
    assert math.isnan(found.p)
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
def test_an_interval_excludes_zero_exactly_where_p_says_so(drawn):
    groups, values, treated = drawn
    for e in (
        clustered_mean(values, groups),
        skewed_mean(values, groups),
        clustered_difference(values, treated, groups),
    ):
        if e.has_interval and abs(e.p - 0.05) > 1e-9:
            assert e.excludes_zero == (e.p < 0.05)
