"""Logistic regression: closed forms, separation, clustering."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from folkmoot.measures.inference.regression import design, firth, logistic


def make_two_conditions(a: int, b: int, c: int, d: int) -> tuple[list[bool], list[str]]:
    """Make outcomes: a of a + b changed in the condition `plain`, c of c + d in the other."""
    outcome = [True] * a + [False] * b + [True] * c + [False] * d
    return outcome, ["plain"] * (a + b) + ["acp"] * (c + d)


def test_one_binary_predictor_gives_the_odds_ratio():
    outcome, arm = make_two_conditions(10, 90, 30, 70)
    model = logistic(outcome, {"condition": arm}, reference={"condition": "plain"})
    (term,) = model.terms
    assert term.odds_ratio == pytest.approx((30 * 90) / (70 * 10), rel=1e-5)
    # HC1 of a saturated model is Woolf's error, times n/(n - k).
    woolf = math.sqrt(1 / 10 + 1 / 90 + 1 / 30 + 1 / 70)
    assert math.log(term.high / term.odds_ratio) / 1.959964 == pytest.approx(woolf, rel=0.01)
    assert (model.n, model.events, model.estimator) == (200, 40, "maximum likelihood")


def test_separation_falls_back_to_firth_with_a_wide_interval():
    outcome, arm = make_two_conditions(0, 50, 20, 30)
    model = logistic(outcome, {"condition": arm}, reference={"condition": "plain"})
    assert model.estimator == "Firth (separation)"
    (term,) = model.terms
    # For a saturated table Firth's fit adds a half to every cell.
    assert term.odds_ratio == pytest.approx((20.5 * 50.5) / (30.5 * 0.5), rel=1e-6)
    assert term.low < 10
    assert term.high > 200


@pytest.mark.parametrize(("origin", "unit"), [(0.0, 1.0), (1980.0, 1.0), (20_000.0, 1_000.0)])
def test_the_origin_and_unit_of_a_covariate_change_no_effect(origin: float, unit: float) -> None:
    rng = np.random.default_rng(1)
    arms = rng.choice(["acp", "plain"], 600).tolist()
    ages = rng.integers(20, 70, 600)
    odds = np.exp(0.03 * (ages - 45) + 0.5 * (np.array(arms) == "acp"))
    outcome = (rng.random(600) < odds / (1 + odds)).tolist()
    plain = logistic(outcome, {"arm": arms, "age": ages.tolist()})
    shifted = logistic(outcome, {"arm": arms, "age": (origin + unit * ages).tolist()})
    assert shifted.estimator == plain.estimator == "maximum likelihood"
    for first, second, scale in zip(plain.terms, shifted.terms, (1.0, unit), strict=True):
        assert (first.odds_ratio, first.low, first.high) == pytest.approx(
            (second.odds_ratio**scale, second.low**scale, second.high**scale), rel=1e-7
        )
        assert first.p == pytest.approx(second.p, rel=1e-6)
    never = [y and arm == "acp" for y, arm in zip(outcome, arms, strict=True)]
    separated = [
        logistic(never, {"arm": arms, "age": x.tolist()}) for x in (ages, origin + unit * ages)
    ]
    assert {model.estimator for model in separated} == {"Firth (separation)"}
    effects = [model.terms[0].odds_ratio for model in separated]
    assert effects[0] == pytest.approx(effects[1], rel=1e-6)


def draw_columns(rng: np.random.Generator, n: int) -> dict[str, list[str] | list[float]]:
    """Draw one to three covariates with different scales, some with values far from the others."""
    kinds = [
        rng.choice(list("abc"), n).tolist(),
        rng.normal(1980, 15, n).tolist(),
        np.exp(rng.normal(8, 1, n)).tolist(),
        rng.standard_t(3, n).tolist(),
    ]
    chosen = rng.choice(len(kinds), rng.integers(1, 4), replace=False)
    return {f"column {i}": kinds[i] for i in chosen}


@pytest.mark.parametrize("seed", range(100))
def test_separation_is_claimed_where_a_linear_program_finds_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 120))
    columns = draw_columns(rng, n)
    x = design(columns, {}).matrix
    x[:, 1:] = (x[:, 1:] - x[:, 1:].mean(axis=0)) / x[:, 1:].std(axis=0)
    log_odds = x @ rng.normal(0, 2, x.shape[1])
    outcome = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    model = logistic(outcome.tolist(), columns)
    if model.estimator == "none":
        return
    # Separated: some direction orders no row against its outcome, and some row with it.
    towards = np.where(outcome, 1.0, -1.0)[:, None] * x
    found = linprog(-towards.sum(axis=0), -towards, np.zeros(n), bounds=[(-1, 1)] * x.shape[1])
    is_separated = -found.fun > 1e-7
    assert (model.estimator == "Firth (separation)") == is_separated


def test_firth_penalises_towards_even_odds():
    y = np.array([1.0] * 3 + [0.0] * 7)
    beta, covariance = firth(y, np.ones((10, 1)))
    assert beta[0] == pytest.approx(math.log(3.5 / 7.5))
    assert covariance[0, 0] == pytest.approx(1 / (10 * (3.5 / 11) * (7.5 / 11)))


def test_missing_values_are_dropped_and_counted():
    outcome, arm = make_two_conditions(10, 30, 20, 20)
    ages: list[float | None] = [30.0 + i % 17 for i in range(80)]
    ages[3], ages[5] = None, math.nan
    model = logistic([None, *outcome[1:]], {"condition": arm, "age": ages})
    assert (model.n, model.incomplete) == (77, 3)
    assert [term.variable for term in model.terms] == ["condition", "age"]


def test_columns_without_information_are_left_out_and_listed():
    design_matrix = design(
        {"a": ["x", "y", "x", "y"], "b": ["u", "v", "u", "v"], "c": [1, 1, 1, 1]}, {}
    )
    assert design_matrix.matrix.shape == (4, 2)
    assert design_matrix.left_out == ("b: v", "c")
    assert design_matrix.reference == {"a": "x", "b": "u"}


@pytest.mark.parametrize("cells", [(0, 20, 0, 20), (20, 0, 20, 0), (1, 0, 0, 1)])
def test_data_without_variation_give_no_terms(cells):
    outcome, arm = make_two_conditions(*cells)
    model = logistic(outcome, {"condition": arm})
    assert model.terms == ()
    assert model.estimator == "none"
    assert logistic([], {"condition": []}).n == 0
