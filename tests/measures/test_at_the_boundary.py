"""Intervals of equal units have a width, and a missing interval has a reason."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import numpy as np
import pytest

from folkmoot.measures.agreement import (
    correlation_with_oneself,
    kappa_of_possible,
    krippendorff_interval,
)
from folkmoot.measures.diagnostics import (
    NOT_KNOWN,
    PASSED,
    check_acquiescence,
    check_instability,
    check_spread_of_ratings,
    check_spread_of_votes,
    check_sycophancy,
)
from folkmoot.measures.diversity import (
    effective_ratio,
    evenness_estimate,
    spread_of_ratings,
)
from folkmoot.measures.drift import ConditionAnswers, measure_drift
from folkmoot.measures.inference.clustered import (
    clustered_difference,
    clustered_mean,
    clustered_share,
    paired_difference,
    skewed_mean,
)
from folkmoot.measures.inference.differences import Side, estimate_difference
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.measures.inference.proportions import between, newcombe, wilson
from folkmoot.measures.inference.rectified import rectified_mean
from folkmoot.measures.persona_variance import explained_share, intraclass_correlation
from folkmoot.measures.replayed import fidelity
from folkmoot.measures.reply_checks import share_of_replies
from folkmoot.measures.retest import Repeat
from folkmoot.randomness import generator

# Units that are all equal: the value of each unit, with numbers of units around the limit.
UNIT_COUNTS = (1, 2, 3, 4, 5, 6, 10, 20, 200)
# (values of one unit): all hits, no hit, half of the answers of a unit.
PATTERNS = ((1.0,), (0.0,), (1.0, 1.0), (0.0, 0.0, 0.0), (1.0, 0.0), (1.0, 0.0, 0.0))


def repeat_pattern(pattern, units):
    values = [value for _ in range(units) for value in pattern]
    return values, [f"u{unit}" for unit in range(units) for _ in pattern]


def make_side(pattern, units, name=""):
    values, names = repeat_pattern(pattern, units)
    return Side.from_values(values, [name + unit for unit in names])


def iterate_share_estimates(pattern, units):
    """Yield estimates of shares and of their differences from units that are all equal."""
    values, names = repeat_pattern(pattern, units)
    first, second = make_side(pattern, units, "a"), make_side(pattern, units, "b")
    yield "share", clustered_share(values, names), (0.0, 1.0)
    yield "bounded mean", clustered_mean(values, names, bounds=(0.0, 1.0)), (0.0, 1.0)
    yield "difference", estimate_difference(first, second, "share"), (-1.0, 1.0)
    paired_sides = make_side(pattern, units), make_side(pattern, units)
    yield "paired difference", estimate_difference(*paired_sides, "share"), (-1.0, 1.0)
    side_without_hits = make_side((0.0,) * len(pattern), units)
    yield (
        "paired with none",
        estimate_difference(paired_sides[0], side_without_hits, "share"),
        (-1.0, 1.0),
    )
    independent_side = make_side((0.0,) * len(pattern), units, "b")
    yield "against none", estimate_difference(first, independent_side, "share"), (-1.0, 1.0)
    subjects = (
        Side(np.array(values), tuple(names), subjects=tuple(range(len(values)))) for _ in range(2)
    )
    yield "subjects", estimate_difference(*subjects, "share"), (-1.0, 1.0)
    faults = {unit: [int(sum(pattern)), len(pattern)] for unit in range(units)}
    yield "replies", share_of_replies(faults), (0.0, 1.0)


@pytest.mark.parametrize("units", UNIT_COUNTS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_equal_units_have_an_interval(pattern, units):
    for name, estimate, (minimum, maximum) in iterate_share_estimates(pattern, units):
        if units < FEWEST_UNITS:
            assert not estimate.has_interval, name
            continue
        assert estimate.has_interval, (name, estimate)
        assert minimum <= estimate.low <= estimate.value <= estimate.high <= maximum, (
            name,
            estimate,
        )
        # With 20 equal units, 5 to 20 % of all units may differ. The interval must be as wide.
        assert estimate.high - estimate.low > 0.7 / units * (
            1 if name != "bounded mean" else 0.5
        ), (name, estimate)
        # The test agrees with the interval.
        assert math.isnan(estimate.p) or (estimate.p < 0.05) == estimate.excludes_zero, (
            name,
            estimate,
        )


def test_the_interval_of_equal_units_follows_the_rule_of_three():
    """With 20 of 20 equal answers, the lower bound is between 83 and 86 %."""
    for estimate in (
        wilson(20, 20),
        clustered_share([1.0] * 20, range(20)),
        clustered_share([1.0] * 60, [n // 3 for n in range(60)]),
        clustered_mean([1.0] * 20, range(20), bounds=(0, 1)),
    ):
        assert 0.83 <= estimate.low <= 0.86 and estimate.high == 1
    # One large cluster reduces the effective number of units.
    unequal_clusters = clustered_share([1.0] * 40, [max(0, n - 20) for n in range(40)])
    assert unequal_clusters.low < 0.6


def test_a_higher_level_gives_wider_intervals():
    for level, wider in ((0.8, 0.95), (0.95, 0.999)):
        for estimate in (
            partial(clustered_share, [1.0] * 12, [n // 2 for n in range(12)]),
            partial(clustered_mean, [0.5] * 12, range(12), bounds=(0, 1)),
            partial(
                estimate_difference, make_side((1, 0), 9, "a"), make_side((1, 0), 9, "b"), "share"
            ),
        ):
            narrow, wide = estimate(level=level), estimate(level=wider)
            assert wide.low <= narrow.low <= narrow.high <= wide.high
            assert narrow.high - narrow.low < wide.high - wide.low


def iterate_other_estimates(units):
    """Yield other estimates from data without variation or with as little as possible."""
    equal, names = [3.0] * units, [f"u{unit}" for unit in range(units)]
    mixed = [float(unit % 3) for unit in range(units)]
    words = ["yes" if unit % 2 else "no" for unit in range(units)]
    yield "mean", clustered_mean(equal, names)
    yield "skewed mean", skewed_mean(equal, names)
    yield "paired", paired_difference(equal, equal, names)
    yield "two means", clustered_difference(equal * 2, [1] * units + [0] * units, range(2 * units))
    yield "Wilson none", wilson(0, units)
    yield "Wilson all", wilson(units, units)
    yield "Newcombe", newcombe(units, units, units, units)
    yield "Newcombe apart", newcombe(units, units, 0, units)
    whole = partial(clustered_share, [1.0] * units, names)
    yield "MOVER", between(whole, partial(wilson, 0, units))
    yield "Tango", paired_shares(units, 0, 0, 0)
    yield "Tango apart", paired_shares(0, units, 0, 0)
    yield "correlation equal", correlation_with_oneself(mixed, mixed, ["q"] * units, names)
    shifted = [2 * value + 1 for value in mixed]
    yield "correlation shifted", correlation_with_oneself(mixed, shifted, ["q"] * units, names)
    back = [-value for value in mixed]
    yield "correlation opposite", correlation_with_oneself(mixed, back, ["q"] * units, names)
    yield "correlation constant", correlation_with_oneself(equal, equal, ["q"] * units, names)
    yield "kappa", kappa_of_possible(words, words)
    yield "kappa constant", kappa_of_possible(["yes"] * units, ["yes"] * units)
    # Units of three, who are alike in all units. Their shares are no binary fractions.
    trios = [name for name in names for _ in range(3)]
    votes = ["a", "b", "b"] * units, ["a", "a", "b"] * units
    yield "kappa of equal trios", kappa_of_possible(*votes, (), trios)
    yield "icc of equal trios", intraclass_correlation([1, 5, 3] * units, [2, 5, 3] * units, trios)
    yield "attribute of equal trios", explained_share([1, 5, 3] * units, [1, 2, 2] * units, trios)
    for distances in ("ordinal", "interval"):
        codes = [[1, 2, 3] * units, [2, 2, 3] * units]
        yield f"{distances} alpha", krippendorff_interval(codes, distances, trios)
    yield "nominal alpha", krippendorff_interval(codes, "nominal", trios)
    yield from iterate_estimates_of_units_of_two_sizes(units)
    yield "icc", intraclass_correlation(mixed, mixed, names)
    yield "attribute", explained_share(mixed, mixed, names)
    yield "evenness of one", evenness_estimate([units, 0, 0])
    yield "evenness of all", evenness_estimate([units, units])
    yield "ratio", effective_ratio(np.diag([units, units]))
    yield "ratings", spread_of_ratings(np.full((units, 2), 4.0), 6)
    yield "fractions", spread_of_ratings(np.full((units, 2), 0.1), 6)
    yield "ratings at both ends", spread_of_ratings(np.array([[0.0], [6.0]] * units), 6)
    if units > 1:
        yield "rectified", rectified_mean(equal, equal, [3.0] * 100).corrected
        people = [1.0] * units
        yield "rectified share", rectified_mean(people, people, [1.0] * 100, share=True).corrected
    same = ConditionAnswers(tuple(words), tuple(names))
    other = ConditionAnswers(tuple(words), tuple(f"o{unit}" for unit in range(units)))
    drift = measure_drift([(same, other)], generator(0, ("boundary",)))
    yield "drift", drift.mean
    yield "drift of a question", drift.questions[0].difference
    apart = ConditionAnswers(("other",) * units, other.units)
    constant = ConditionAnswers(("one",) * units, tuple(names))
    yield "drift apart", measure_drift([(constant, apart)], generator(0, ("apart",))).mean
    numbers = (
        ConditionAnswers(tuple(equal), tuple(names)),
        ConditionAnswers(tuple(equal), other.units),
    )
    yield "drift of numbers", measure_drift([numbers], generator(0, ("n",))).questions[0].difference
    # In each unit one of three, or of twenty, changes.
    for size, answer, changed in product((3, 20), ("one", 0.1), ("other", 0.7)):
        if isinstance(answer, str) == isinstance(changed, str):
            within = tuple(name for name in names for _ in range(size))
            question = (
                ConditionAnswers((answer,) * len(within), within),
                ConditionAnswers((changed, *[answer] * (size - 1)) * units, within),
            )
            drift = measure_drift([question], generator(0, ("trios",)))
            yield f"drift of one in {size}", drift.mean
            yield f"difference of one in {size}", drift.questions[0].difference


def iterate_estimates_of_units_of_two_sizes(units):
    """Yield estimates from units of three and of six with equal shares of answers."""
    trios = [unit for unit in range(units) for _ in range(3 + 3 * (unit % 2))]
    count = len(trios) // 3
    pairs = [1, 5, 3] * count, [2, 5, 3] * count
    yield "icc of two sizes", intraclass_correlation(*pairs, trios)
    yield "attribute of two sizes", explained_share([1, 5, 3] * count, [1, 2, 2] * count, trios)
    for distances in ("nominal", "ordinal", "interval"):
        yield f"{distances} alpha of two sizes", krippendorff_interval(pairs, distances, trios)
    # Units that are mirror images of each other change an estimate alike.
    mirrored = [unit for unit in range(2 * units) for _ in range(2)]
    images = [1, 3, 3, 1] * units, [2, 3, 2, 1] * units
    yield "icc of mirror images", intraclass_correlation(*images, mirrored)
    for distances in ("nominal", "ordinal", "interval"):
        yield (
            f"{distances} alpha of mirror images",
            krippendorff_interval(images, distances, mirrored),
        )
    question = (
        ConditionAnswers((0.1,) * len(trios), tuple(trios)),
        ConditionAnswers((0.7, 0.1, 0.1) * count, tuple(trios)),
    )
    drift = measure_drift([question], generator(0, ("two sizes",)))
    yield "drift of two sizes", drift.mean
    yield "difference of two sizes", drift.questions[0].difference


@pytest.mark.parametrize("units", UNIT_COUNTS)
def test_all_intervals_have_a_width(units):
    for name, estimate in iterate_other_estimates(units):
        assert isinstance(estimate, Estimate)
        if estimate.has_interval:
            assert (
                estimate.low <= estimate.value + 1e-9 and estimate.value - 1e-9 <= estimate.high
            ), (name, estimate)
            assert estimate.high - estimate.low > 0.7 / (2 * units), (name, estimate)
        assert math.isnan(estimate.low) == math.isnan(estimate.high), (name, estimate)


@pytest.mark.parametrize("value", [0.1, 0.7, 100.1])
def test_equal_fractions_do_not_vary(value):
    """The mean of 37 times 0.1 is not exactly 0.1."""
    equal, other, names = [value] * 37, [float(n % 5) for n in range(37)], range(37)
    assert math.isnan(intraclass_correlation(equal, equal, names).value)
    assert math.isnan(rectified_mean(equal, other, [3.0] * 100).fit)
    assert math.isnan(rectified_mean(other, equal, [3.0] * 100).fit)
    assert math.isnan(fidelity(other, equal).correlation) and math.isnan(
        fidelity(equal, other).correlation
    )
    sides = (
        ConditionAnswers(tuple(equal), tuple(names)),
        ConditionAnswers((0.4,) * 37, tuple(names)),
    )
    assert math.isinf(measure_drift([sides], generator(0, ("n",))).questions[0].difference.value)


def make_repeats(answers, last, untouched=True):
    pairs = enumerate(zip(answers, last, strict=True))
    return [Repeat(n, "q", first, second, untouched) for n, (first, second) in pairs]


def test_a_retest_without_a_discordant_pair_has_an_interval():
    """Ten equal answers do not show that 85 % are equal. Thirty do."""
    for number, verdict in ((10, NOT_KNOWN), (30, PASSED)):
        words = ["yes", "no"] * (number // 2)
        check = check_instability(make_repeats(words, words))
        assert check.verdict == verdict
        assert check.value is not None and check.value.high > 0.1
    for number, verdict in ((5, NOT_KNOWN), (60, PASSED)):
        numbers = [float(n % 4) for n in range(number)]
        check = check_instability(make_repeats(numbers, numbers))
        assert check.verdict == verdict, check
        assert check.value is not None and check.value.low < 0.97
        assert "a correlation of 1" in check.says and " to 1" in check.says


@pytest.mark.parametrize("n", [1, 2, 5, 12, 30])
def test_checks_do_not_print_nan(n):
    yes = [True] * n
    checks = [
        check_acquiescence(yes, yes, range(n)),
        check_acquiescence(yes, [not answer for answer in yes], range(n)),
        check_instability(make_repeats(["a"] * n, ["a"] * n)),
        check_instability(make_repeats([1.0] * n, [1.0] * n)),
        check_spread_of_votes([n, 0, 0, 0, 0], np.diag([n, 0, 0, 0, 0])),
        check_spread_of_ratings([3.0] * n, 1, 5),
        check_sycophancy((0, n), (0, n)),
        check_sycophancy((n, n), (0, n)),
        check_sycophancy(None, None, ["I agree."] * n),
    ]
    for check in checks:
        assert "nan" not in check.says.casefold(), check.says
        assert "inf" not in check.says.casefold().replace("information", ""), check.says
