"""Claims: the method follows from the units, the verdict from the interval, the words from both."""

from __future__ import annotations

import numpy as np
import pytest

from folkmoot.measures.inference.claims import Claim, Side, estimate_difference, evaluate
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.measures.inference.specification_curve import Curve, specification_curve


def side(hits: int, n: int, name: str = "", units: int = 0) -> Side:
    """`hits` ones among `n`, each a unit of its own or spread over so many units."""
    named = [f"{name}{i % units if units else i}" for i in range(n)]
    return Side.of([float(i < hits) for i in range(n)], named)


def test_shares_of_different_people_are_compared_by_newcombe() -> None:
    found = estimate_difference(side(40, 100, "a"), side(10, 100, "b"), "share")
    expected = newcombe(40, 100, 10, 100)
    assert (found.low, found.high) == (expected.low, expected.high)


def test_the_same_people_in_both_arms_are_pairs() -> None:
    found = estimate_difference(side(40, 100), side(10, 100), "share")
    assert found.value == pytest.approx(0.3) and "paired" in found.method
    rng = np.random.default_rng(0)
    level = rng.normal(0, 10, 50)
    pairs = (Side.of(level + 1 + rng.normal(0, 0.1, 50)), Side.of(level))
    assert estimate_difference(*pairs, "mean").excludes_zero


def test_many_rows_of_few_units_are_few() -> None:
    result = evaluate(Claim("x", ("a", "b")), side(80, 100, "a", 4), side(10, 100, "b", 4))
    assert not result.estimate.has_interval
    assert result.verdict == "not tested (4 independent units are an illustration)"


def test_what_is_printed_of_a_share_is_in_points_and_of_a_mean_is_not() -> None:
    claim = Claim("moved", ("acp", "plain"), direction="greater", margin=0.05)
    said = evaluate(claim, side(40, 100, "a"), side(10, 100, "b")).says
    assert said.startswith("moved: acp exceeds plain by more than 5 points: supported (+30 points")
    assert "%" not in said
    mean = Claim("warmth", ("a", "b"), "mean")
    assert "points" not in evaluate(mean, side(40, 100, "a"), side(10, 100, "b")).says


def over_specifications(
    effect: float, claim: Claim, people: int = 80, seed: int = 0, specifications: int = 8
) -> Curve:
    """Specifications that share their people: each answers yes by a liking of their own, to which
    each specification adds noise."""
    rng = np.random.default_rng(seed)
    liking = rng.normal(size=(2, people))
    sides = {}
    for number in range(specifications):
        noisy = 0.7 * liking + 0.7 * rng.normal(size=(2, people))
        hits = noisy < np.array([[-0.25 + effect], [-0.25]])
        arms = (
            Side.of(row.astype(float), [f"{name}{i}" for i in range(people)])
            for name, row in zip("ab", hits, strict=True)
        )
        sides[f"s{number}"] = tuple(arms)
    return specification_curve(claim, sides)  # type: ignore[arg-type]


MORE = Claim("x", ("a", "b"), direction="greater")


def test_a_strong_effect_is_robust_and_a_refuted_direction_is_not() -> None:
    assert over_specifications(1.0, MORE).word == "robust"
    assert over_specifications(-1.0, MORE).word == "fragile"
    beyond = Claim("x", ("a", "b"), direction="greater", margin=0.6)
    assert over_specifications(1.0, beyond).word == "fragile"


def test_an_equivalence_that_all_specifications_support_is_robust() -> None:
    claim = Claim("x", ("a", "b"), direction="equivalent", margin=0.15)
    assert over_specifications(0.0, claim, people=2_000).word == "robust"
    assert over_specifications(1.0, claim, people=2_000).word == "fragile"


@pytest.mark.parametrize("direction", ["greater", "different"])
def test_noise_is_rarely_robust(direction: str) -> None:
    claim = Claim("x", ("a", "b"), direction=direction)  # type: ignore[arg-type]
    words = [over_specifications(0.0, claim, 30, seed).word for seed in range(100)]
    assert words.count("robust") <= 7


def test_identical_specifications_count_once() -> None:
    same = (side(40, 100, "a"), side(10, 100, "b"))
    curve = specification_curve(MORE, {"one": same, "again": same})
    assert (len(curve.estimates), curve.merged, curve.word) == (1, 1, "one specification")


def test_a_further_specification_is_predicted_from_the_spread() -> None:
    curve = over_specifications(0.5, MORE)
    low, high = curve.predicted
    values = list(curve.estimates.values())
    assert low < min(values) and max(values) < high
    assert np.isnan(over_specifications(0.5, MORE, specifications=2).predicted).all()
