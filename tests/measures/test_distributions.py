"""Quantiles and p-values equal those of `scipy.stats`, which runs and reports do not import."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest
from scipy import stats

from folkmoot.measures.inference import distributions
from folkmoot.measures.inference.distributions import normal_p, normal_quantile
from folkmoot.measures.inference.estimates import ALPHA, NORMAL_QUANTILE

VALUES = (0.0, 0.3, 1.96, 7.0, 40.0)
DEGREES = (1, 2.5, 4, 30, 1e6)


def test_quantiles_and_p_values_equal_those_of_scipy() -> None:
    for probability, df in product((0.025, 0.5, 0.975, 0.9999), DEGREES):
        assert distributions.student_quantile(probability, df) == stats.t.ppf(probability, df)
        assert distributions.normal_quantile(probability) == stats.norm.ppf(probability)
    for value, df in product(VALUES, DEGREES):
        for signed in (value, -value):
            assert distributions.student_p(signed, df) == 2 * stats.t.sf(value, df)
            assert distributions.normal_p(signed) == 2 * stats.norm.sf(value)
            assert distributions.normal_cdf(signed) == stats.norm.cdf(signed)
        assert distributions.chi2_p(value, df) == stats.chi2.sf(value, df)
    # A statistic of zero may be slightly negative by rounding.
    assert distributions.chi2_p(-1e-17, 3) == 1.0


def test_exact_p_and_interval_equal_those_of_scipy() -> None:
    for hits, n in ((0, 1), (0, 9), (1, 9), (5, 10), (9, 9), (19, 24)):
        exact = stats.binomtest(hits, n)
        assert distributions.sign_p(hits, n - hits) == pytest.approx(exact.pvalue, abs=1e-12)
        for level in (0.9, 0.95):
            bounds = exact.proportion_ci(level, method="exact")
            assert distributions.clopper_pearson(hits, n, level) == pytest.approx(
                tuple(bounds), abs=1e-9
            )


def test_measures_do_not_import_scipy_stats() -> None:
    code = (
        "import sys; from folkmoot.measures.inference.clustered import clustered_mean as mean; "
        "assert mean([1, 2, 3, 4, 5, 7], range(6)).p < 1; assert 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_intervals_and_tests_have_one_level() -> None:
    assert normal_quantile(1 - ALPHA / 2) == pytest.approx(NORMAL_QUANTILE, abs=1e-12)
    assert normal_p(1.95998) < ALPHA and NORMAL_QUANTILE < 1.95998
