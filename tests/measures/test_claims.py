"""Claims: the method follows from the units, the verdict from the interval, the words from both."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from folkmoot.measures.inference.claims import (
    Claim,
    Direction,
    Family,
    Result,
    evaluate,
)
from folkmoot.measures.inference.differences import Side, estimate_difference
from folkmoot.measures.inference.families import judge_families
from folkmoot.measures.inference.proportions import holm, newcombe
from folkmoot.measures.inference.simultaneous import (
    DirectionalTests,
    JointResult,
    decide_jointly,
)
from folkmoot.measures.inference.specification_curve import Curve, specification_curve
from tests.sweeps import sample_daily


def side(hits: int, n: int, name: str = "", units: int = 0) -> Side:
    """`hits` ones among `n`, each a unit of its own or spread over so many units."""
    named = [f"{name}{i % units if units else i}" for i in range(n)]
    return Side.from_values([float(i < hits) for i in range(n)], named)


def test_shares_of_different_people_are_compared_by_newcombe() -> None:
    found = estimate_difference(side(40, 100, "a"), side(10, 100, "b"), "share")
    expected = newcombe(40, 100, 10, 100)
    assert (found.low, found.high) == (expected.low, expected.high)


def test_the_same_people_in_both_arms_are_pairs() -> None:
    found = estimate_difference(side(40, 100), side(10, 100), "share")
    assert found.value == pytest.approx(0.3) and "paired" in found.method
    rng = np.random.default_rng(0)
    level = rng.normal(0, 10, 50)
    pairs = (Side.from_values(level + 1 + rng.normal(0, 0.1, 50)), Side.from_values(level))
    assert estimate_difference(*pairs, "mean").excludes_zero


def test_many_rows_of_few_units_are_few() -> None:
    result = evaluate(Claim("x", ("a", "b")), side(80, 100, "a", 4), side(10, 100, "b", 4))
    assert not result.estimate.has_interval
    assert result.verdict == "not tested (4 independent units are an illustration)"


def test_what_is_printed_of_a_share_is_in_points_and_of_a_mean_is_not() -> None:
    claim = Claim("moved", ("acp", "plain"), direction="greater", margin=0.05)
    said = evaluate(claim, side(40, 100, "a"), side(10, 100, "b")).says
    assert said.startswith("Moved: acp exceeds plain by more than 5 points; supported (+30 points")
    assert "%" not in said
    mean = Claim("warmth", ("a", "b"), "mean")
    assert "points" not in evaluate(mean, side(40, 100, "a"), side(10, 100, "b")).says


def drawn_sides(kind: str, paired: bool, per_unit: int, seed: int) -> tuple[Side, Side]:
    """Both arms of a claim with an effect, a size and a spread by chance."""
    rng = np.random.default_rng(seed)
    units = rng.integers(5, 40)
    effect, spread = rng.normal(0, 0.4), rng.uniform(0.05, 1)
    sides = []
    shared = rng.normal(0, spread, units)
    for arm, shift in (("a", effect), ("b", 0.0)):
        sizes = rng.integers(1, per_unit + 1, units) if per_unit > 1 else np.ones(units, int)
        of = np.repeat(np.arange(units), per_unit if paired else sizes)
        y = 0.3 + shift + shared[of] + rng.normal(0, spread, len(of))
        values = (y > 0.5).astype(float) if kind == "share" else y
        names = tuple(str(u) if paired else f"{arm}{u}" for u in of)
        subjects = tuple(range(len(of))) if paired else ()
        sides.append(Side(values, names, subjects=subjects))
    return sides[0], sides[1]


def tells(result: Result) -> str:
    """What the printed p says of no difference: "yes", "no", or nothing."""
    found = re.search(r"p (<|=) (\.\d+|1)", result.numbers_text)
    return "" if found is None else "yes" if float(found[2]) < 0.05 else "no"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["share", "mean"]),
            st.booleans(),
            st.integers(1, 4),
            st.sampled_from(get_args(Direction)),
            st.integers(0, 2**32 - 1),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(get_args(Family)),
)
def test_verdict_p_and_interval_never_contradict_each_other(
    drawn: list[tuple[str, bool, int, Direction, int]], family: Family
) -> None:
    claims = {}
    for number, (kind, paired, per_unit, direction, seed) in enumerate(drawn):
        claim = Claim(f"t.c{number}", ("x", "y"), kind, direction, family=family)  # type: ignore[arg-type]
        if direction == "equivalent":
            claim = replace(claim, margin=0.2)
        claims[claim] = drawn_sides(kind, paired, per_unit, seed)
    for result in judge_families(list(claims), lambda c: (c, *claims[c])):
        e, apart, says = result.estimate, tells(result), result.conclusion_text
        if not e.has_interval:
            assert result.why or e.p == 1.0
            continue
        if min(abs(e.low), abs(e.high)) < 1e-6:
            continue  # at the border itself rounding decides
        low, high = result.joint[:2] if result.joint is not None else (e.low, e.high)
        if result.claim.direction == "equivalent":
            # Several equivalences have no p. That of a single one agrees with its verdict.
            assert apart in ("", "yes" if result.verdict == "supported" else "no")
            assert (result.verdict == "supported") == (low >= -0.2 and high <= 0.2)
            continue
        if result.joint is not None:
            assert (apart == "yes") == excludes_zero(result), says
        elif family == "primary":
            assert (apart == "yes") == e.excludes_zero, says
        elif e.excludes_zero and apart == "no":
            assert "by itself" in result.numbers_text, says
        if result.claim.direction == "different":
            assert (result.verdict == "supported") == (apart == "yes"), says
        if result.verdict == "supported":
            assert apart == "yes" and e.excludes_zero, says


def excludes_zero(result: Result) -> bool:
    """Whether the joint interval of a result excludes zero."""
    return not holds(result, 0.0)


def holds(result: Result, truth: float) -> bool:
    """Whether the joint interval of a result has a value in it."""
    assert result.joint is not None
    low, high, no_low, no_high = result.joint
    return (low < truth if no_low else low <= truth) and (
        truth < high if no_high else truth <= high
    )


def test_holms_steps_and_bounds_by_hand() -> None:
    """Normal estimates with standard error 1, as Strassburger and Bretz (2008) state the bounds."""

    def normal(z: float, **more: bool) -> DirectionalTests:
        def interval_at(level: float) -> tuple[float, float]:
            half = norm.ppf((1 + level) / 2)
            return z - half, z + half

        return DirectionalTests(0.0, 0.0, norm.sf(z), norm.cdf(z), interval_at, **more)

    def decide(*zs: float) -> list[JointResult]:
        found = decide_jointly([normal(z) for z in zs])
        assert None not in found
        return [result for result in found if result is not None]

    # z = 2.5 passes α / 3 (2.39), 2.3 then passes α / 2 (2.24), and 1.9 does not pass α (1.96).
    first, second, third = decide(2.5, 2.3, 1.9)
    assert first.interval[::2] == second.interval[::2] == (0.0, True)
    assert third.interval.low == pytest.approx(1.9 - 1.96, abs=0.001)
    # No value is shown to be below zero, so upper bounds have the level of the first step.
    assert [r.interval.high for r in (first, second, third)] == pytest.approx(
        [z + 2.394 for z in (2.5, 2.3, 1.9)], abs=0.001
    )
    ps = [2 * norm.sf(z) for z in (2.5, 2.3, 1.9)]
    assert [r.adjusted_p for r in (first, second, third)] == pytest.approx(holm(ps))
    # All are shown: the bounds are also those of Bonferroni, if they are above zero.
    first, second, third = decide(4.0, 2.5, 2.0)
    assert first.interval.low == pytest.approx(4.0 - 2.394, abs=0.001)
    assert second.interval.low == pytest.approx(2.5 - 2.394, abs=0.001)
    assert third.interval[::2] == (0.0, True)
    # Signs differ: each direction is a family with its own half of the level.
    up, down, small = decide(2.5, -2.5, 1.0)
    assert up.interval[::2] == (0.0, True) and down.interval[1::2] == (0.0, True)
    assert up.adjusted_p == down.adjusted_p == pytest.approx(3 * 2 * norm.sf(2.5))
    assert small.interval[:2] == pytest.approx((1 - 2.241, 1 + 2.241), abs=0.001)
    # A claim that cannot be tested counts, and one that needs both bounds keeps its share.
    (tested, absent) = decide_jointly([normal(2.1), None])
    assert absent is None and tested is not None and not tested.is_above
    shown, kept = decide_jointly([normal(2.3), normal(0.5, keeps_share=True)])
    assert shown is not None and kept is not None and shown.is_above
    assert kept.interval[:2] == pytest.approx((0.5 - 1.96, 0.5 + 2.241), abs=0.001)
    # Its bounds alone decide it, so no p-value may be printed beside them.
    assert math.isnan(kept.adjusted_p)


def test_margins_and_directions_are_judged_by_the_joint_interval() -> None:
    """70 against 20 of 100, with a margin of 20 points, beside a claim of a decrease."""
    grows = Claim("t.a", ("a", "b"), direction="greater", margin=0.2, family="primary")
    falls = Claim("t.b", ("a", "b"), direction="less", family="primary")
    same = Claim("t.c", ("a", "b"), direction="equivalent", margin=0.3, family="primary")
    data = {
        grows: (side(70, 100, "a"), side(20, 100, "b")),
        falls: (side(20, 100, "a"), side(38, 100, "b")),
        same: (side(50, 100, "a"), side(50, 100, "b")),
    }
    up, down, near = judge_families(list(data), lambda c: (c, *data[c]))
    assert [r.verdict for r in (up, down, near)] == ["supported"] * 3
    assert near.numbers_text.endswith(" jointly)") and " p " not in near.numbers_text
    # p of the decrease is .005, and the claim with a margin leaves its share to it.
    assert down.adjusted_p == pytest.approx(2 * down.estimate.p)
    assert down.numbers_text.endswith("by itself, −32 to below 0 jointly, adjusted p = .010)")
    assert up.joint is not None and up.joint[::2] == (0.2, True)
    assert "above +20 to +" in up.numbers_text and "p =" not in up.numbers_text
    # The share of all claims is left to a claim that is beside two supported ones.
    level = 0.95
    alone = newcombe(50, 100, 50, 100, level)
    assert near.joint is not None and near.joint.low == pytest.approx(alone.low)
    # Without the others a claim is judged by its own interval.
    (single,) = judge_families([falls], lambda c: (c, *data[c]))
    assert single.joint is None and single.numbers_text.endswith(
        "(−18 points, −30 to −5, p = .005)"
    )


TOGETHER = ["share", "mean", "paired share", "clusters"]
NOTHING, SOME, ALL = (0.0, 0.0, 0.0), (0.0, 0.15, 0.3), (0.3, 0.3, 0.3)


def arms_with(rng: np.random.Generator, how: str, shift: float, other: np.ndarray) -> list[Side]:
    """Both arms of a claim; `other` (60,): values of the second arm, the same for all claims."""
    names = [f"p{i}" for i in range(60)]
    if how == "paired share":  # some of those who do not show it in the second arm do in the first
        first = np.maximum(other, rng.random(60) < shift / 0.6)
        return [Side.from_values(first, names), Side.from_values(other, names)]
    if how == "share":
        first = rng.random(60) < 0.4 + shift
        return [Side.from_values(first, [f"a{n}" for n in names]), Side.from_values(other, names)]
    groups = [str(i // 6) for i in range(60)] if how == "clusters" else names
    common = rng.normal(0, 0.3, 10).repeat(6) if how == "clusters" else 0.0
    first = shift + common + rng.normal(size=60)
    return [Side.from_values(first, [f"a{g}" for g in groups]), Side.from_values(other, groups)]


def held_together(how: str, effects: tuple[float, ...], draws: int) -> int:
    """In how many data sets all three joint intervals hold their difference. All are compared with
    the same arm."""
    rng = np.random.default_rng(3108)
    claims = {
        Claim(f"t.c{n}", ("a", "b"), "share" if "share" in how else "mean", family="primary"): n
        for n in range(3)
    }
    held = 0
    for _ in range(draws):
        if "share" in how:
            other = (rng.random(60) < 0.4).astype(float)
        else:
            common = rng.normal(0, 0.3, 10).repeat(6) if how == "clusters" else 0.0
            other = common + rng.normal(size=60)
        arms = {c: arms_with(rng, how, effects[n], other) for c, n in claims.items()}
        found = judge_families(list(claims), lambda c, arms=arms: (c, *arms[c]))  # type: ignore[misc]
        held += all(holds(result, truth) for result, truth in zip(found, effects, strict=True))
    return held


@pytest.mark.parametrize(("how", "effects"), [("share", SOME), ("clusters", ALL)])
def test_joint_intervals_hold_together(how: str, effects: tuple[float, ...]) -> None:
    assert held_together(how, effects, 150) >= 0.90 * 150  # three standard errors below 95 %


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("effects", [NOTHING, SOME, ALL])
@pytest.mark.parametrize("how", TOGETHER)
def test_they_do_in_2000_data_sets(how: str, effects: tuple[float, ...]) -> None:
    found = held_together(how, effects, 2_000)
    print(f"{how}, {effects}: all three intervals hold in {found} of 2000 data sets")
    assert found >= 0.94 * 2_000  # two standard errors below 95 %


def test_too_few_degrees_of_freedom_are_no_test_and_the_report_says_so() -> None:
    # One of seven groups has most of the people.
    units = ["big"] * 60 + [f"g{n}" for n in range(6)]
    values = np.random.default_rng(5).normal(1, 1, len(units))
    sides = (
        Side(values, tuple(units), subjects=tuple(range(66))),
        Side(np.zeros(66), tuple(units), subjects=tuple(range(66))),
    )
    result = evaluate(Claim("t.c", ("x", "y"), "mean", family="primary"), *sides)
    assert not result.is_tested and not result.estimate.has_interval
    assert "degrees of freedom, fewer than four" in result.conclusion_text
    assert "not tested" in result.verdict


@pytest.mark.parametrize(("direction", "turned"), [("greater", "less"), ("different", "different")])
def test_a_result_turned_round_is_that_of_the_conditions_in_the_other_order(
    direction: str, turned: str
) -> None:
    first, second = side(40, 100, "a"), side(15, 100, "b")
    margin = 0.05 if direction == "greater" else 0.0
    claim = Claim(
        "x", ("a", "b"), direction=direction, margin=margin, family="primary", names=("A", "")
    )  # type: ignore[arg-type]
    other = Claim(
        "x", ("b", "a"), direction=turned, margin=margin, family="primary", names=("", "A")
    )  # type: ignore[arg-type]
    second_claims = [replace(one, measure="y") for one in (claim, other)]
    results = judge_families([claim, second_claims[0]], lambda c: (c, first, second))
    expected = judge_families([other, second_claims[1]], lambda c: (c, second, first))
    for own, wanted in zip(results, expected, strict=True):
        got = own.reverse()
        assert got.claim == wanted.claim and got.verdict == wanted.verdict
        assert got.interval_text == wanted.interval_text and got.numbers_text == wanted.numbers_text
        numbers = (got.p, *got.means, *got.counts)
        assert numbers == pytest.approx((wanted.p, *wanted.means, *wanted.counts))
        again = got.reverse()
        assert (again.claim, again.joint) == (own.claim, own.joint)
        assert again.numbers_text == own.numbers_text


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
            Side.from_values(row.astype(float), [f"{name}{i}" for i in range(people)])
            for name, row in zip("ab", hits, strict=True)
        )
        sides[f"s{number}"] = tuple(arms)
    return specification_curve(claim, sides)  # type: ignore[arg-type]


MORE = Claim("x", ("a", "b"), direction="greater")


@pytest.mark.parametrize("effect", [1.0, -1.0])
def test_four_specifications_carry_no_statement_about_robustness(effect: float) -> None:
    few = over_specifications(effect, MORE, specifications=4)
    assert few.robustness_word == "too few" and not few.is_judged
    assert np.isnan([few.p_median, few.p_count, few.p_z]).all()
    enough = over_specifications(effect, MORE, specifications=5)
    assert enough.robustness_word == ("robust" if effect > 0 else "fragile")


def test_a_strong_effect_is_robust_and_a_refuted_direction_is_not() -> None:
    assert over_specifications(1.0, MORE).robustness_word == "robust"
    assert over_specifications(-1.0, MORE).robustness_word == "fragile"
    beyond = Claim("x", ("a", "b"), direction="greater", margin=0.6)
    assert over_specifications(1.0, beyond).robustness_word == "fragile"


def test_an_equivalence_that_all_specifications_support_is_robust() -> None:
    claim = Claim("x", ("a", "b"), direction="equivalent", margin=0.15)
    assert over_specifications(0.0, claim, people=2_000).robustness_word == "robust"
    assert over_specifications(1.0, claim, people=2_000).robustness_word == "fragile"


@pytest.mark.parametrize(
    "direction", sample_daily(["greater", "different"], daily=1, part="alarms")
)
def test_noise_is_rarely_robust(direction: str) -> None:
    claim = Claim("x", ("a", "b"), direction=direction)  # type: ignore[arg-type]
    words = [over_specifications(0.0, claim, 30, seed).robustness_word for seed in range(100)]
    assert words.count("robust") <= 7


def test_identical_specifications_count_once() -> None:
    same = (side(40, 100, "a"), side(10, 100, "b"))
    curve = specification_curve(MORE, {"one": same, "again": same})
    assert (len(curve.estimates), curve.merged, curve.robustness_word) == (
        1,
        1,
        "too few",
    )


def test_a_further_specification_is_predicted_from_the_spread() -> None:
    curve = over_specifications(0.5, MORE)
    low, high = curve.predicted
    values = list(curve.estimates.values())
    assert low < min(values) and max(values) < high
    assert np.isnan(over_specifications(0.5, MORE, specifications=2).predicted).all()


def test_a_mean_of_shares_is_told_in_points_and_stays_between_minus_and_plus_one() -> None:
    claim = Claim(
        "t.met_share", ("a", "b"), "mean", subject=("group",), paired=True, is_mean_of_shares=True
    )
    groups = [f"g{n}" for n in range(6)]
    first = Side.from_values([1.0, 1.0, 1.0, 1.0, 1.0, 0.9], groups)
    second = Side.from_values([0.0, 0.0, 0.1, 0.0, 0.6, 0.0], groups)
    result = evaluate(claim, first, second)
    assert result.estimate_text == "a − b +87 points (+62 to +100)"
    assert claim.size(0.1) == "10 points"
    with pytest.raises(ValueError, match="only a mean can be one of shares"):
        Claim("t.met", ("a", "b"), is_mean_of_shares=True)


def test_truth_values_that_are_averaged_within_subjects_are_not_counted_as_one_each() -> None:
    """Six subjects with four answers each: half of them are true in one arm, three in four in the
    other. Counted as one each, a half and three quarters would both be "no" or "yes"."""
    groups = [f"g{n}" for n in range(6)]
    first = Side.from_values([0.75, 0.75, 0.5, 1.0, 0.75, 0.75], groups)
    second = Side.from_values([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], groups)
    found = estimate_difference(first, second, "share")
    assert found.value == pytest.approx(0.25)
    assert found.method.startswith("CR2, t with 5.0 df")
