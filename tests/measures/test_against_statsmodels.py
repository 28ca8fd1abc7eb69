"""Formulas compared with statsmodels, which is installed only for these tests."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.stats import norm
from statsmodels.discrete.discrete_model import Logit as Reference
from statsmodels.stats.contingency_tables import SquareTable
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.power import NormalIndPower, TTestIndPower, TTestPower
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from folkmoot.measures.inference.paired_votes import bowker, mcnemar, stuart_maxwell
from folkmoot.measures.inference.power import (
    cohen_h,
    n_two_shares,
    power_two_shares,
    smallest_d,
    smallest_d_paired,
    smallest_h,
)
from folkmoot.measures.inference.proportions import newcombe, wilson
from folkmoot.measures.inference.regression import logistic


@pytest.mark.parametrize("n", [1, 2, 7, 40, 300, 20_000])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_wilson_intervals_equal_statsmodels(n: int, level: float) -> None:
    for count in sorted({0, 1, n // 3, n // 2, n - 1, n}):
        ours = wilson(count, n, level)
        low, high = proportion_confint(count, n, alpha=1 - level, method="wilson")
        assert (ours.low, ours.high) == pytest.approx((low, high), abs=1e-14)
        assert 0 <= ours.low <= ours.value <= ours.high <= 1


@pytest.mark.parametrize(
    "counts", [(0, 5, 0, 9), (5, 5, 0, 9), (3, 40, 17, 35), (95, 300, 22, 300)]
)
def test_newcombe_intervals_equal_statsmodels(counts: tuple[int, int, int, int]) -> None:
    ours = newcombe(*counts, level=0.9)
    low, high = confint_proportions_2indep(*counts, method="newcomb", compare="diff", alpha=0.1)
    assert (ours.low, ours.high) == pytest.approx((max(-1.0, low), min(1.0, high)), abs=1e-14)


@pytest.mark.parametrize("n", [2, 3, 10, 57, 400, 5_000])
@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_smallest_effects_have_the_power_of_statsmodels(n: int, alpha: float) -> None:
    # Compare the power, because the search of statsmodels for the size stops after four digits.
    assert NormalIndPower().power(smallest_h(n, alpha), n, alpha) == pytest.approx(0.8)
    two_groups = TTestIndPower().power(smallest_d(n, alpha), n, alpha / 2, alternative="larger")
    paired = TTestPower().power(smallest_d_paired(n, alpha), n, alpha / 2, alternative="larger")
    # One tail: at this power the other tail has a probability below 10⁻⁵.
    assert (two_groups, paired) == pytest.approx((0.8, 0.8), abs=1e-5)


@pytest.mark.parametrize("shares", [(0.1, 0.2), (0.5, 0.52), (0.0, 0.4), (0.9, 0.1)])
def test_power_and_size_equal_statsmodels(shares: tuple[float, float]) -> None:
    h = abs(cohen_h(*shares))
    for n in (5, 60, 900):
        assert power_two_shares(*shares, n) == pytest.approx(NormalIndPower().power(h, n, 0.05))
    size = NormalIndPower().solve_power(h, power=0.8, alpha=0.05)
    assert n_two_shares(*shares) == pytest.approx(float(size), rel=1e-6)
    assert power_two_shares(0.3, 0.3, 50) == pytest.approx(0.05)
    assert n_two_shares(0.3, 0.3) == math.inf


def test_paired_tests_equal_statsmodels() -> None:
    rng = np.random.default_rng(3)
    for size in (2, 3, 5):
        table = rng.integers(1, 40, (size, size))
        ours, theirs = bowker(table), SquareTable(table, shift_zeros=False).symmetry()
        assert (ours.statistic, ours.df, ours.p) == pytest.approx(
            (theirs.statistic, theirs.df, theirs.pvalue)
        )
        same = SquareTable(table, shift_zeros=False).homogeneity(method="stuart_maxwell")
        ours = stuart_maxwell(table)
        assert (ours.statistic, ours.df, ours.p) == pytest.approx(
            (same.statistic, same.df, same.pvalue)
        )
    for there, back in ((0, 1), (3, 3), (2, 15), (24, 1), (40, 12), (500, 480)):
        exact = there + back < 25
        theirs = reference_mcnemar([[0, there], [back, 0]], exact=exact, correction=False)
        ours = mcnemar(there, back)
        assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))


@pytest.mark.parametrize("seed", range(6))
def test_logistic_regression_equals_statsmodels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 60 + 90 * seed
    age, weight = rng.normal(size=n), rng.normal(size=n)
    y = rng.random(n) < 1 / (1 + np.exp(-(0.4 + 0.9 * age - 0.5 * weight)))
    ours = logistic(list(map(bool, y)), {"age": list(age), "weight": list(weight)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.column_stack([np.ones(n), age, weight])
        theirs = Reference(y.astype(float), x).fit(disp=0, cov_type="HC1")
    assert ours.estimator == "maximum likelihood"
    # For this model the HC1 of statsmodels lacks the factor n / (n − k).
    errors = theirs.bse[1:] * math.sqrt(n / (n - 3))
    for term, beta, error in zip(ours.terms, theirs.params[1:], errors, strict=True):
        log_values = (math.log(term.odds_ratio), math.log(term.low), math.log(term.high))
        half_width = norm.ppf(0.975) * error
        assert log_values == pytest.approx((beta, beta - half_width, beta + half_width), abs=1e-6)
        assert term.p == pytest.approx(2 * norm.sf(abs(beta) / error), rel=1e-5)
