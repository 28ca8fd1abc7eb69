"""Logistic regression: closed forms, separation, clustering."""

from __future__ import annotations

import math

import numpy as np
import pytest

from folkmoot.measures.inference.regression import design, firth, logistic


def two_arms(a: int, b: int, c: int, d: int) -> tuple[list[bool], list[str]]:
    """a of a + b changed in the plain arm, c of c + d in the other."""
    outcome = [True] * a + [False] * b + [True] * c + [False] * d
    return outcome, ["plain"] * (a + b) + ["acp"] * (c + d)


def test_one_binary_predictor_is_the_odds_ratio():
    outcome, arm = two_arms(10, 90, 30, 70)
    found = logistic(outcome, {"condition": arm}, reference={"condition": "plain"})
    (term,) = found.terms
    assert term.odds_ratio == pytest.approx((30 * 90) / (70 * 10), rel=1e-5)
    # HC1 of a saturated model is Woolf's error, times n/(n - k).
    woolf = math.sqrt(1 / 10 + 1 / 90 + 1 / 30 + 1 / 70)
    assert math.log(term.high / term.odds_ratio) / 1.959964 == pytest.approx(woolf, rel=0.01)
    assert (found.n, found.events, found.estimator) == (200, 40, "maximum likelihood")


def test_separation_falls_back_to_firth_with_a_wide_interval():
    outcome, arm = two_arms(0, 50, 20, 30)
    found = logistic(outcome, {"condition": arm}, reference={"condition": "plain"})
    assert found.estimator == "Firth (separation)"
    (term,) = found.terms
    # For a saturated table Firth's fit adds a half to every cell.
    assert term.odds_ratio == pytest.approx((20.5 * 50.5) / (30.5 * 0.5), rel=1e-6)
    assert term.low < 10
    assert term.high > 200


def test_firth_penalises_towards_even_odds():
    y = np.array([1.0] * 3 + [0.0] * 7)
    beta, covariance = firth(y, np.ones((10, 1)))
    assert beta[0] == pytest.approx(math.log(3.5 / 7.5))
    assert covariance[0, 0] == pytest.approx(1 / (10 * (3.5 / 11) * (7.5 / 11)))


def test_missing_values_are_dropped_and_counted():
    outcome, arm = two_arms(10, 30, 20, 20)
    ages: list[float | None] = [30.0 + i % 17 for i in range(80)]
    ages[3], ages[5] = None, math.nan
    found = logistic([None, *outcome[1:]], {"condition": arm, "age": ages})
    assert (found.n, found.incomplete) == (77, 3)
    assert [t.variable for t in found.terms] == ["condition", "age"]


def test_columns_without_information_are_left_out_and_named():
    built = design({"a": ["x", "y", "x", "y"], "b": ["u", "v", "u", "v"], "c": [1, 1, 1, 1]}, {})
    assert built.matrix.shape == (4, 2)
    assert built.left_out == ("b: v", "c")
    assert built.reference == {"a": "x", "b": "u"}


@pytest.mark.parametrize("cells", [(0, 20, 0, 20), (20, 0, 20, 0), (1, 0, 0, 1)])
def test_nothing_to_fit(cells):
    outcome, arm = two_arms(*cells)
    found = logistic(outcome, {"condition": arm})
    assert found.terms == ()
    assert found.estimator == "none"
    assert logistic([], {"condition": []}).n == 0
