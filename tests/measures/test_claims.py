"""Claims: method by units, verdict by interval, and text by both."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, ttest_ind

from folkmoot.measures.inference.claims import (
    Claim,
    Direction,
    Family,
    Result,
    evaluate,
)
from folkmoot.measures.inference.differences import Side, bound_difference, estimate_difference
from folkmoot.measures.inference.estimates import format_p_value
from folkmoot.measures.inference.families import judge_families
from folkmoot.measures.inference.proportions import holm, newcombe
from folkmoot.measures.inference.simultaneous import (
    DirectionalTests,
    JointResult,
    decide_jointly,
)
from folkmoot.measures.inference.specification_curve import Curve, specification_curve
from tests.sweeps import sample_daily


def make_side(hits: int, n: int, name: str = "", units: int = 0) -> Side:
    """Make `hits` ones among `n`, each a separate unit or in one of `units` units."""
    unit_names = [f"{name}{i % units if units else i}" for i in range(n)]
    return Side.from_values([float(i < hits) for i in range(n)], unit_names)


def test_shares_of_different_participants_are_compared_by_newcombe() -> None:
    estimate = estimate_difference(make_side(40, 100, "a"), make_side(10, 100, "b"), "share")
    expected = newcombe(40, 100, 10, 100)
    assert (estimate.low, estimate.high) == (expected.low, expected.high)


def test_the_same_participants_in_both_conditions_are_pairs() -> None:
    estimate = estimate_difference(make_side(40, 100), make_side(10, 100), "share")
    assert estimate.value == pytest.approx(0.3) and "paired" in estimate.method
    rng = np.random.default_rng(0)
    level = rng.normal(0, 10, 50)
    pairs = (Side.from_values(level + 1 + rng.normal(0, 0.1, 50)), Side.from_values(level))
    assert estimate_difference(*pairs, "mean").excludes_zero


def lose(side: Side, *units: str) -> Side:
    """Return a side with one more unknown answer for each of the given units."""
    return replace(side, lost_units=units)


def test_bounds_for_missing_answers_equal_a_hand_calculation() -> None:
    first, second = make_side(30, 90, "a"), make_side(10, 95, "b")
    assert bound_difference(first, second) is None
    second = lose(second, *(f"lost{i}" for i in range(5)))
    bounds = bound_difference(replace(first, pending=10), second)
    assert bounds is not None and bounds.sign_holds
    assert bounds.observed == pytest.approx(30 / 90 - 10 / 95)
    assert (bounds.low, bounds.high) == pytest.approx((0.30 - 0.15, 0.40 - 0.10))
    fewer = bound_difference(replace(make_side(12, 90, "a"), pending=10), second)
    assert fewer is not None and not fewer.sign_holds


def test_bounds_of_averaged_answers_use_their_fractions() -> None:
    """Subjects of a condition answered several times, so their values are shares."""
    halves = Side.from_values([0.5] * 9, [f"a{i}" for i in range(9)])
    none = Side.from_values([0.0] * 9 + [math.nan], [f"b{i}" for i in range(10)])
    bounds = bound_difference(halves, none)
    assert bounds is not None
    assert (bounds.low, bounds.observed, bounds.high) == pytest.approx((0.4, 0.5, 0.5))


ANSWERS = st.lists(
    st.tuples(st.sampled_from("uvwxyz"), st.sampled_from([0.0, 0.25, 0.5, 1.0, math.nan])),
    min_size=2,
    max_size=12,
).filter(lambda answers: any(math.isfinite(value) for _, value in answers))


@settings(deadline=None, max_examples=200)
@given(ANSWERS, ANSWERS, st.booleans(), st.integers(0, 3))
def test_the_range_over_missing_answers_contains_the_estimate(
    first_answers: list[tuple[str, float]],
    second_answers: list[tuple[str, float]],
    shares_units: bool,
    pending: int,
) -> None:
    sides = []
    for name, answers in (("a", first_answers), ("b", second_answers)):
        units = [unit if shares_units else name + unit for unit, _ in answers]
        sides.append(Side.from_values([value for _, value in answers], units))
    first, second = sides[0], replace(sides[1], pending=pending)
    bounds = bound_difference(first, second)
    if bounds is None:
        assert not first.lost + second.lost
        return
    estimate = estimate_difference(first, second, "share").value
    assert bounds.observed == pytest.approx(estimate)
    assert bounds.low - 1e-9 <= estimate <= bounds.high + 1e-9
    assert bounds.low >= -1 and bounds.high <= 1


def answer_in_groups(hits: list[int], sizes: list[int]) -> Side:
    """Make a side with `sizes[i]` answers in group i, of which `hits[i]` are ones."""
    values = [float(j < hit) for hit, n in zip(hits, sizes, strict=True) for j in range(n)]
    return Side.from_values(values, [f"g{i}" for i, n in enumerate(sizes) for _ in range(n)])


def test_every_case_counts_equally_if_groups_of_unequal_size_are_in_both_conditions() -> None:
    """The two large groups move down and the six small ones up: 63 and 68 of 156 cases."""
    sizes = [60, 60, *[6] * 6]
    first = answer_in_groups([18, 18, 5, 4, 5, 4, 5, 4], sizes)
    second = answer_in_groups([30, 30, 1, 1, 2, 1, 1, 2], sizes)
    result = evaluate(Claim("changed", ("a", "b"), direction="greater"), first, second)
    assert result.means == pytest.approx((63 / 156, 68 / 156))
    assert result.estimate.value == pytest.approx(63 / 156 - 68 / 156)
    assert result.answer_text.startswith("a 40 %, b 44 %; difference −3 points")
    # The estimand stays the same if one small group has no answer in one condition.
    fewer = answer_in_groups([30, 30, 1, 1, 2, 1, 1], sizes[:-1])
    assert estimate_difference(first, fewer, "share").value == pytest.approx(63 / 156 - 66 / 150)


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5)])
def test_groups_of_one_size_in_both_conditions_have_the_paired_interval(
    sizes: tuple[int, int],
) -> None:
    rng = np.random.default_rng(4)
    sides = [
        Side.from_values(rng.normal(size=6 * size), [f"g{i // size}" for i in range(6 * size)])
        for size in sizes
    ]
    estimate = estimate_difference(*sides, "mean")
    means = [[*side.by_unit.values()] for side in sides]
    paired = estimate_difference(*(Side.from_values(own) for own in means), "mean")
    assert (estimate.value, estimate.low, estimate.high, estimate.p) == pytest.approx(
        (paired.value, paired.low, paired.high, paired.p)
    )


def test_many_rows_of_few_units_are_not_tested() -> None:
    result = evaluate(
        Claim("x", ("a", "b")), make_side(80, 100, "a", 4), make_side(10, 100, "b", 4)
    )
    assert not result.estimate.has_interval
    assert result.verdict == "not tested (4 independent units are an illustration)"


def test_only_differences_of_shares_are_printed_in_points() -> None:
    claim = Claim("moved", ("acp", "plain"), direction="greater", margin=0.05)
    sentence = evaluate(claim, make_side(40, 100, "a"), make_side(10, 100, "b")).says
    assert sentence.startswith(
        "Moved: acp exceeds plain by more than 5 points; supported (+30 points"
    )
    assert "%" not in sentence
    mean = Claim("warmth", ("a", "b"), "mean")
    assert "points" not in evaluate(mean, make_side(40, 100, "a"), make_side(10, 100, "b")).says


def draw_sides(kind: str, paired: bool, per_unit: int, seed: int) -> tuple[Side, Side]:
    """Draw both conditions of a claim with a random effect, size and spread."""
    rng = np.random.default_rng(seed)
    units = rng.integers(5, 40)
    effect, spread = rng.normal(0, 0.4), rng.uniform(0.05, 1)
    sides = []
    shared = rng.normal(0, spread, units)
    for condition, shift in (("a", effect), ("b", 0.0)):
        sizes = rng.integers(1, per_unit + 1, units) if per_unit > 1 else np.ones(units, int)
        unit_of_row = np.repeat(np.arange(units), per_unit if paired else sizes)
        y = 0.3 + shift + shared[unit_of_row] + rng.normal(0, spread, len(unit_of_row))
        values = (y > 0.5).astype(float) if kind == "share" else y
        names = tuple(str(unit) if paired else f"{condition}{unit}" for unit in unit_of_row)
        subjects = tuple(range(len(unit_of_row))) if paired else ()
        sides.append(Side(values, names, subjects=subjects))
    return sides[0], sides[1]


def read_printed_p(result: Result) -> str:
    """Return "yes" if the printed p is significant, "no" if not, and "" without a p."""
    match = re.search(r"p (<|=) (\.\d+|1)", result.numbers_text)
    return "" if match is None else "yes" if float(match[2]) < 0.05 else "no"


@pytest.mark.parametrize("family", get_args(Family))
@pytest.mark.parametrize("direction", ["greater", "less", "different"])
def test_p_of_a_claim_with_a_margin_tests_the_margin_however_many_claims_there_are(
    direction: Direction, family: Family
) -> None:
    """The expected p is that of Student's t-test after the margin is subtracted."""
    rng = np.random.default_rng(5)
    sign = -1 if direction == "less" else 1
    treated, untreated = sign * rng.normal(0.9, 1, 50), sign * rng.normal(0, 1, 50)
    sides = (
        Side.from_values(treated, [f"t{i}" for i in range(50)]),
        Side.from_values(untreated, [f"c{i}" for i in range(50)]),
    )
    expected = ttest_ind(treated - sign * 0.4, untreated).pvalue
    assert ttest_ind(treated, untreated).pvalue < expected / 100
    claims = [
        Claim(f"t.c{i}", ("t", "c"), "mean", direction, margin=0.4, family=family) for i in range(3)
    ]
    for count in (1, 3):
        results = judge_families(claims[:count], lambda claim: (claim, *sides))
        if direction == "different" and family == "primary" and count > 1:
            # Only joint intervals decide them.
            assert all(math.isnan(result.p) for result in results)
            continue
        # All claims have the same data, so Holm's method multiplies each p by their number.
        assert [result.p for result in results] == pytest.approx([count * expected] * count)
        printed_p = f"{'adjusted ' * (count > 1)}{format_p_value(results[0].p)} for the margin"
        assert results[0].p_in_words == printed_p


def test_a_p_value_just_below_the_limit_is_not_printed_as_the_limit() -> None:
    printed = {p: format_p_value(p) for p in (0.0494, 0.0495, 0.04984, 0.04999996, 0.05, 0.0504)}
    assert [*printed.values()] == [
        "p = .049",
        "p = .0495",
        "p = .0498",
        "p = .04999996",
        "p = .050",
        "p = .050",
    ]


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
def test_verdict_p_and_interval_agree(
    claim_designs: list[tuple[str, bool, int, Direction, int]], family: Family
) -> None:
    claims = {}
    for number, (kind, paired, per_unit, direction, seed) in enumerate(claim_designs):
        claim = Claim(f"t.c{number}", ("x", "y"), kind, direction, family=family)  # type: ignore[arg-type]
        if direction == "equivalent":
            claim = replace(claim, margin=0.2)
        claims[claim] = draw_sides(kind, paired, per_unit, seed)
    for result in judge_families(list(claims), lambda evaluated: (evaluated, *claims[evaluated])):
        estimate, is_significant, conclusion = (
            result.estimate,
            read_printed_p(result),
            result.conclusion_text,
        )
        if not estimate.has_interval:
            assert result.why or estimate.p == 1.0
            continue
        if min(abs(estimate.low), abs(estimate.high)) < 1e-6:
            continue  # at the limit the result depends on rounding
        low, high = result.joint[:2] if result.joint is not None else (estimate.low, estimate.high)
        if result.claim.direction == "equivalent":
            # Several primary equivalences have no p. Any other p agrees with the verdict.
            assert is_significant in ("", "yes" if result.verdict == "supported" else "no")
            is_unadjusted = family != "primary" and " by itself" in result.numbers_text
            is_within = low >= -0.2 and high <= 0.2 and not is_unadjusted
            assert (result.verdict == "supported") == is_within, conclusion
            continue
        if result.joint is not None:
            assert (is_significant == "yes") == joint_interval_excludes_zero(result), conclusion
        elif family == "primary":
            assert (is_significant == "yes") == estimate.excludes_zero, conclusion
        elif estimate.excludes_zero and is_significant == "no":
            assert "by itself" in result.numbers_text, conclusion
        if result.claim.direction == "different":
            assert (result.verdict == "supported") == (is_significant == "yes"), conclusion
        if result.verdict == "supported":
            assert is_significant == "yes" and estimate.excludes_zero, conclusion


def joint_interval_excludes_zero(result: Result) -> bool:
    """Return whether the joint interval of a result excludes zero."""
    return not contains_truth(result, 0.0)


def contains_truth(result: Result, truth: float) -> bool:
    """Return whether the joint interval of a result contains a value."""
    assert result.joint is not None
    low, high, no_low, no_high = result.joint
    return (low < truth if no_low else low <= truth) and (
        truth < high if no_high else truth <= high
    )


def test_holms_steps_and_bounds_equal_a_hand_calculation() -> None:
    """Normal estimates with standard error 1 and the bounds of Strassburger and Bretz (2008)."""

    def make_tests(z: float, **options: bool) -> DirectionalTests:
        def interval_at(level: float) -> tuple[float, float]:
            half_width = norm.ppf((1 + level) / 2)
            return z - half_width, z + half_width

        return DirectionalTests(0.0, 0.0, norm.sf(z), norm.cdf(z), interval_at, **options)

    def decide(*zs: float) -> list[JointResult]:
        results = decide_jointly([make_tests(z) for z in zs])
        assert None not in results
        return [result for result in results if result is not None]

    # z = 2.5 passes α / 3 (2.39), 2.3 then passes α / 2 (2.24), and 1.9 does not pass α (1.96).
    first, second, third = decide(2.5, 2.3, 1.9)
    assert first.interval[::2] == second.interval[::2] == (0.0, True)
    assert third.interval.low == pytest.approx(1.9 - 1.96, abs=0.001)
    # No value is shown to be below zero, so upper bounds have the level of the first step.
    assert [joint_result.interval.high for joint_result in (first, second, third)] == pytest.approx(
        [z + 2.394 for z in (2.5, 2.3, 1.9)], abs=0.001
    )
    p_values = [2 * norm.sf(z) for z in (2.5, 2.3, 1.9)]
    assert [joint_result.adjusted_p for joint_result in (first, second, third)] == pytest.approx(
        holm(p_values)
    )
    # All are shown: the bounds are also those of Bonferroni, if they are above zero.
    first, second, third = decide(4.0, 2.5, 2.0)
    assert first.interval.low == pytest.approx(4.0 - 2.394, abs=0.001)
    assert second.interval.low == pytest.approx(2.5 - 2.394, abs=0.001)
    assert third.interval[::2] == (0.0, True)
    # Signs differ: each direction is a family with its own half of the level.
    increase, decrease, small_effect = decide(2.5, -2.5, 1.0)
    assert increase.interval[::2] == (0.0, True) and decrease.interval[1::2] == (0.0, True)
    assert increase.adjusted_p == decrease.adjusted_p == pytest.approx(3 * 2 * norm.sf(2.5))
    assert small_effect.interval[:2] == pytest.approx((1 - 2.241, 1 + 2.241), abs=0.001)
    # A claim that cannot be tested counts, and one that needs both bounds keeps its share.
    (tested, absent) = decide_jointly([make_tests(2.1), None])
    assert absent is None and tested is not None and not tested.is_above
    shown_result, equivalence_result = decide_jointly(
        [make_tests(2.3), make_tests(0.5, keeps_share=True)]
    )
    assert shown_result is not None and equivalence_result is not None and shown_result.is_above
    assert equivalence_result.interval[:2] == pytest.approx((0.5 - 1.96, 0.5 + 2.241), abs=0.001)
    # Its bounds decide the verdict, so no p-value may be printed.
    assert math.isnan(equivalence_result.adjusted_p)


def test_margins_and_directions_are_judged_by_the_joint_interval() -> None:
    """70 against 20 of 100, with a margin of 20 points, beside a claim of a decrease."""
    increase = Claim("t.a", ("a", "b"), direction="greater", margin=0.2, family="primary")
    decrease = Claim("t.b", ("a", "b"), direction="less", family="primary")
    equivalence = Claim("t.c", ("a", "b"), direction="equivalent", margin=0.3, family="primary")
    data = {
        increase: (make_side(70, 100, "a"), make_side(20, 100, "b")),
        decrease: (make_side(20, 100, "a"), make_side(38, 100, "b")),
        equivalence: (make_side(50, 100, "a"), make_side(50, 100, "b")),
    }
    increase_result, decrease_result, equivalence_result = judge_families(
        list(data), lambda claim: (claim, *data[claim])
    )
    assert [
        result.verdict for result in (increase_result, decrease_result, equivalence_result)
    ] == ["supported"] * 3
    assert (
        equivalence_result.numbers_text.endswith(" jointly)")
        and " p " not in equivalence_result.numbers_text
    )
    # p of the decrease is .005, and it gets the level of the supported claim with a margin.
    assert decrease_result.adjusted_p == pytest.approx(2 * decrease_result.estimate.p)
    assert decrease_result.numbers_text.endswith(
        "by itself, −32 to below 0 jointly, adjusted p = .010)"
    )
    assert increase_result.joint is not None and increase_result.joint[::2] == (0.2, True)
    assert (
        "above +20 to +" in increase_result.numbers_text
        and "p =" not in increase_result.numbers_text
    )
    # A claim beside two supported ones gets the whole level.
    level = 0.95
    single_interval = newcombe(50, 100, 50, 100, level)
    assert equivalence_result.joint is not None and equivalence_result.joint.low == pytest.approx(
        single_interval.low
    )
    # A single claim is judged by its separate interval.
    (single_result,) = judge_families([decrease], lambda claim: (claim, *data[claim]))
    assert single_result.joint is None and single_result.numbers_text.endswith(
        "(−18 points, −30 to −5, p = .005)"
    )


CLAIM_KINDS = ["share", "mean", "paired share", "clusters"]
NO_EFFECTS, SOME_EFFECTS, ALL_EFFECTS = (0.0, 0.0, 0.0), (0.0, 0.15, 0.3), (0.3, 0.3, 0.3)


def draw_claim_sides(
    rng: np.random.Generator, kind: str, shift: float, second_values: np.ndarray
) -> list[Side]:
    """Draw both conditions of a claim. `second_values` (60,) is the second one of all claims."""
    names = [f"p{i}" for i in range(60)]
    if kind == "paired share":  # some of those who do not show it in the second arm do in the first
        first = np.maximum(second_values, rng.random(60) < shift / 0.6)
        return [Side.from_values(first, names), Side.from_values(second_values, names)]
    if kind == "share":
        first = rng.random(60) < 0.4 + shift
        return [
            Side.from_values(first, [f"a{name}" for name in names]),
            Side.from_values(second_values, names),
        ]
    groups = [str(i // 6) for i in range(60)] if kind == "clusters" else names
    common = rng.normal(0, 0.3, 10).repeat(6) if kind == "clusters" else 0.0
    first = shift + common + rng.normal(size=60)
    return [
        Side.from_values(first, [f"a{group}" for group in groups]),
        Side.from_values(second_values, groups),
    ]


def count_joint_coverage(how: str, effects: tuple[float, ...], draws: int) -> int:
    """In how many data sets all three joint intervals hold their difference. All are compared with
    the same arm."""
    rng = np.random.default_rng(3108)
    claims = {
        Claim(f"t.c{n}", ("a", "b"), "share" if "share" in how else "mean", family="primary"): n
        for n in range(3)
    }
    covered_count = 0
    for _ in range(draws):
        if "share" in how:
            other = (rng.random(60) < 0.4).astype(float)
        else:
            common = rng.normal(0, 0.3, 10).repeat(6) if how == "clusters" else 0.0
            other = common + rng.normal(size=60)
        arms = {claim: draw_claim_sides(rng, how, effects[n], other) for claim, n in claims.items()}
        results = judge_families(list(claims), lambda claim, arms=arms: (claim, *arms[claim]))  # type: ignore[misc]
        covered_count += all(
            contains_truth(result, truth) for result, truth in zip(results, effects, strict=True)
        )
    return covered_count


@pytest.mark.parametrize(("how", "effects"), [("share", SOME_EFFECTS), ("clusters", ALL_EFFECTS)])
def test_joint_intervals_cover_all_differences(how: str, effects: tuple[float, ...]) -> None:
    assert count_joint_coverage(how, effects, 150) >= 0.90 * 150  # three standard errors below 95 %


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("effects", [NO_EFFECTS, SOME_EFFECTS, ALL_EFFECTS])
@pytest.mark.parametrize("how", CLAIM_KINDS)
def test_joint_intervals_cover_all_differences_in_2000_data_sets(
    how: str, effects: tuple[float, ...]
) -> None:
    covered_count = count_joint_coverage(how, effects, 2_000)
    print(f"{how}, {effects}: all three intervals hold in {covered_count} of 2000 data sets")
    assert covered_count >= 0.94 * 2_000  # two standard errors below 95 %


def test_too_few_degrees_of_freedom_are_not_tested_with_a_reason() -> None:
    # One of seven groups has most of the participants.
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


@pytest.mark.parametrize(
    ("direction", "reversed_direction"), [("greater", "less"), ("different", "different")]
)
def test_a_reversed_result_equals_that_of_swapped_conditions(
    direction: str, reversed_direction: str
) -> None:
    first, second = make_side(40, 100, "a"), make_side(15, 100, "b")
    margin = 0.05 if direction == "greater" else 0.0
    claim = Claim(
        "x", ("a", "b"), direction=direction, margin=margin, family="primary", names=("A", "")
    )  # type: ignore[arg-type]
    swapped_claim = Claim(
        "x",
        ("b", "a"),
        direction=reversed_direction,
        margin=margin,
        family="primary",
        names=("", "A"),
    )  # type: ignore[arg-type]
    second_claims = [replace(original, measure="y") for original in (claim, swapped_claim)]
    results = judge_families(
        [claim, second_claims[0]], lambda evaluated: (evaluated, first, second)
    )
    expected = judge_families(
        [swapped_claim, second_claims[1]], lambda evaluated: (evaluated, second, first)
    )
    for result, expected_result in zip(results, expected, strict=True):
        reversed_result = result.reverse()
        assert (
            reversed_result.claim == expected_result.claim
            and reversed_result.verdict == expected_result.verdict
        )
        assert (
            reversed_result.interval_text == expected_result.interval_text
            and reversed_result.numbers_text == expected_result.numbers_text
        )
        numbers = (reversed_result.p, *reversed_result.means, *reversed_result.counts)
        assert numbers == pytest.approx(
            (expected_result.p, *expected_result.means, *expected_result.counts)
        )
        restored = reversed_result.reverse()
        assert (restored.claim, restored.joint) == (result.claim, result.joint)
        assert restored.numbers_text == result.numbers_text


def make_curve(
    effect: float, claim: Claim, participants: int = 80, seed: int = 0, specifications: int = 8
) -> Curve:
    """Make specifications of the same participants. Each has an individual liking, to which each
    specification adds noise."""
    rng = np.random.default_rng(seed)
    liking = rng.normal(size=(2, participants))
    sides = {}
    for number in range(specifications):
        noisy = 0.7 * liking + 0.7 * rng.normal(size=(2, participants))
        hits = noisy < np.array([[-0.25 + effect], [-0.25]])
        condition_sides = (
            Side.from_values(row.astype(float), [f"{name}{i}" for i in range(participants)])
            for name, row in zip("ab", hits, strict=True)
        )
        sides[f"s{number}"] = tuple(condition_sides)
    return specification_curve(claim, sides)  # type: ignore[arg-type]


GREATER_CLAIM = Claim("x", ("a", "b"), direction="greater")


@pytest.mark.parametrize("effect", [1.0, -1.0])
def test_four_specifications_are_too_few_for_robustness(effect: float) -> None:
    curve_of_four = make_curve(effect, GREATER_CLAIM, specifications=4)
    assert curve_of_four.robustness_word == "too few" and not curve_of_four.is_judged
    assert np.isnan([curve_of_four.p_median, curve_of_four.p_count, curve_of_four.p_z]).all()
    curve_of_five = make_curve(effect, GREATER_CLAIM, specifications=5)
    assert curve_of_five.robustness_word == ("robust" if effect > 0 else "fragile")


def test_a_strong_effect_is_robust_and_a_refuted_direction_is_not() -> None:
    assert make_curve(1.0, GREATER_CLAIM).robustness_word == "robust"
    assert make_curve(-1.0, GREATER_CLAIM).robustness_word == "fragile"
    claim_with_margin = Claim("x", ("a", "b"), direction="greater", margin=0.6)
    assert make_curve(1.0, claim_with_margin).robustness_word == "fragile"


def test_an_equivalence_that_all_specifications_support_is_robust() -> None:
    claim = Claim("x", ("a", "b"), direction="equivalent", margin=0.15)
    assert make_curve(0.0, claim, participants=2_000).robustness_word == "robust"
    assert make_curve(1.0, claim, participants=2_000).robustness_word == "fragile"


@pytest.mark.parametrize(
    "direction", sample_daily(["greater", "different"], daily=1, part="alarms")
)
def test_noise_is_rarely_robust(direction: str) -> None:
    claim = Claim("x", ("a", "b"), direction=direction)  # type: ignore[arg-type]
    words = [make_curve(0.0, claim, 30, seed).robustness_word for seed in range(100)]
    assert words.count("robust") <= 7


def test_identical_specifications_count_once() -> None:
    same = (make_side(40, 100, "a"), make_side(10, 100, "b"))
    curve = specification_curve(GREATER_CLAIM, {"one": same, "again": same})
    assert (len(curve.estimates), curve.merged, curve.robustness_word) == (
        1,
        1,
        "too few",
    )


def test_the_prediction_interval_contains_the_spread_of_specifications() -> None:
    curve = make_curve(0.5, GREATER_CLAIM)
    low, high = curve.predicted
    values = list(curve.estimates.values())
    assert low < min(values) and max(values) < high
    assert np.isnan(make_curve(0.5, GREATER_CLAIM, specifications=2).predicted).all()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("family", "main", "family 'main' is not one of primary, secondary, exploratory"),
        ("direction", "bigger", "is not one of greater, less, different, equivalent"),
        ("kind", "count", "is not one of share, mean"),
        ("contrast", ("a", "b", "c"), "a contrast names two conditions"),
        ("contrast", "ab", "a contrast names two conditions"),
        ("margin", -0.1, "a margin is a number of at least 0"),
        ("margin", math.nan, "a margin is a number of at least 0"),
    ],
)
def test_a_claim_with_a_wrong_value_is_refused(field: str, value: object, message: str) -> None:
    stated: dict[str, Any] = {"contrast": ("a", "b"), field: value}
    with pytest.raises(ValueError, match=f"votes.changed: .*{message}"):
        Claim("votes.changed", **stated)


def test_a_mean_of_shares_is_in_points_and_between_minus_and_plus_one() -> None:
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


def test_averaged_truth_values_are_not_rounded() -> None:
    """Six subjects have four answers each. Half are true in one condition, three of four in the
    other. If they were rounded, both would be "no" or "yes"."""
    groups = [f"g{n}" for n in range(6)]
    first = Side.from_values([0.75, 0.75, 0.5, 1.0, 0.75, 0.75], groups)
    second = Side.from_values([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], groups)
    estimate = estimate_difference(first, second, "share")
    assert estimate.value == pytest.approx(0.25)
    assert estimate.method.startswith("CR2, t with 5.0 df")
