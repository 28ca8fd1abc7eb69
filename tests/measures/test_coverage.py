"""Coverage of intervals: over simulated data sets, and compared with other formulae."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, t
from statsmodels.stats.proportion import proportion_confint

from folkmoot.measures.agreement import (
    correlation_with_oneself,
    kappa_of_possible,
    krippendorff_alpha,
    krippendorff_interval,
)
from folkmoot.measures.diversity import effective_ratio, evenness_estimate, spread_of_ratings
from folkmoot.measures.inference.proportions import newcombe, wilson
from tests.measures.coverage import ABOVE_97, CASES, find_estimator, measure_coverage

DRAWS = 2_000
PAGE = Path(__file__).parents[2] / "docs" / "measures.md"


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_the_truth_in_at_least_93_of_100_data_sets(name: str) -> None:
    coverage = measure_coverage(name, DRAWS)
    assert coverage.known >= DRAWS / 2
    assert coverage.share >= 0.93, coverage
    assert coverage.share <= 0.97 or find_estimator(name) in ABOVE_97, coverage


def test_the_page_lists_all_estimators_and_explains_high_coverage() -> None:
    page = PAGE.read_text("utf-8")
    for name in {find_estimator(case) for case in CASES}:
        row = next((line for line in page.splitlines() if line.startswith(f"| {name} |")), "")
        lowest, highest = (float(f"0{part}") for part in row.split(" | ")[2].split(" to "))
        assert 0.93 <= lowest <= highest
        assert highest <= 0.97 or ABOVE_97[name] in row


@pytest.mark.parametrize("n", [10, 20, 40])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_the_exact_coverage_of_shares_is_high_enough(n: int, p: float) -> None:
    """Sum over all possible results of one share, and of two shares of the same size."""
    coverage_of_one = sum(
        binom.pmf(k, n, p) for k in range(n + 1) if wilson(k, n).low <= p <= wilson(k, n).high
    )
    assert coverage_of_one >= 0.92
    if n <= 20:
        counts = product(range(n + 1), repeat=2)
        covered_counts = (
            (hits1, hits2)
            for hits1, hits2 in counts
            if not newcombe(hits1, n, hits2, n).excludes_zero
        )
        assert (
            sum(binom.pmf(hits1, n, p) * binom.pmf(hits2, n, p) for hits1, hits2 in covered_counts)
            >= 0.94
        )


def test_kappa_is_wilsons_interval_rescaled_to_possible_agreement() -> None:
    # 40 people, two options, 30 agree; the first is chosen by half of them both times.
    first = ["a"] * 20 + ["b"] * 20
    last = ["a"] * 15 + ["b"] * 20 + ["a"] * 5
    estimate = kappa_of_possible(first, last)
    low, high = proportion_confint(30, 40, method="wilson")
    # Marginals agree, so that most is 1 and its standard error √(10 / 40²) for each of two options.
    slack = 0.5 * math.sqrt(2 * 10 / 40**2) / 2
    assert estimate.value == pytest.approx(0.5)
    assert estimate.low == pytest.approx((low - 0.5) / 0.5)
    assert estimate.high == pytest.approx((high - 0.5) / (1 - slack - 0.5))


def jackknife(values: list[float], full_value: float) -> tuple[float, float]:
    """Return the bias-corrected value and the standard error from the leave-one-out values."""
    n = len(values)
    mean = sum(values) / n
    return n * full_value - (n - 1) * mean, math.sqrt(
        (n - 1) / n * sum((value - mean) ** 2 for value in values)
    )


def compute_entropy(votes: list[int]) -> float:
    shares = [votes.count(option) / len(votes) for option in set(votes)]
    return -sum(p * math.log(p) for p in shares)


def test_evenness_equals_the_jackknife_over_participants() -> None:
    votes = [0] * 12 + [1] * 8 + [2] * 5 + [3] * 5
    leave_one_out = [compute_entropy(votes[:n] + votes[n + 1 :]) for n in range(30)]
    corrected, error = jackknife(leave_one_out, compute_entropy(votes))
    half_width = t.ppf(0.975, 29) * math.sqrt(error**2 + 3 / (2 * 30**2))
    estimate = evenness_estimate([12, 8, 5, 5])
    assert estimate.value == pytest.approx(corrected / math.log(4))
    assert estimate.low == pytest.approx((corrected - half_width) / math.log(4))
    assert estimate.high == pytest.approx(min(1, (corrected + half_width) / math.log(4)))
    assert not evenness_estimate([9, 5, 5]).has_interval


def test_the_evenness_of_a_few_dissenters_has_exact_bounds() -> None:
    estimate = evenness_estimate([97, 2, 1, 0, 0])
    low, high = proportion_confint(3, 100, method="beta")
    for bound, share in ((estimate.low, low), (estimate.high, high)):
        spread = share * math.log(4) if bound == estimate.high else 0.0
        binary_entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        assert bound == pytest.approx((binary_entropy + spread) / math.log(5))


def test_the_effective_ratio_equals_the_jackknife_over_pairs() -> None:
    table = np.array([[9, 4, 1], [1, 6, 2], [0, 3, 4]])
    pairs = [(i, j) for i in range(3) for j in range(3) for _ in range(table[i, j])]

    def compute_log_ratio(selected: list[tuple[int, int]]) -> float:
        return compute_entropy([j for _, j in selected]) - compute_entropy([i for i, _ in selected])

    _, error = jackknife(
        [compute_log_ratio(pairs[:n] + pairs[n + 1 :]) for n in range(len(pairs))],
        compute_log_ratio(pairs),
    )
    half_width = t.ppf(0.975, 10) * math.sqrt(error**2 + 12 * 2 / 30**3)  # eleven people moved
    estimate = effective_ratio(table)
    assert math.log(estimate.value) == pytest.approx(compute_log_ratio(pairs))
    assert math.log(estimate.low) == pytest.approx(compute_log_ratio(pairs) - half_width)
    assert math.log(estimate.high) == pytest.approx(compute_log_ratio(pairs) + half_width)


def test_the_retest_correlation_equals_the_jackknife_of_fishers_z() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, 12))
    y += x
    correlation = np.corrcoef(x, y)[0, 1]
    leave_one_out = [
        math.atanh(np.corrcoef(np.delete(x, n), np.delete(y, n))[0, 1]) for n in range(12)
    ]
    _, error = jackknife(leave_one_out, math.atanh(correlation))
    estimate = correlation_with_oneself(x, y, ["q"] * 12, range(12))
    half_width = t.ppf(0.975, 11) * error
    assert estimate.value == pytest.approx(correlation)
    assert (estimate.low, estimate.high) == pytest.approx(
        (
            math.tanh(math.atanh(correlation) - half_width),
            math.tanh(math.atanh(correlation) + half_width),
        )
    )
    # A shift of one question does not reduce the correlation.
    shifted = np.concatenate([y, y + 5])
    two_questions = correlation_with_oneself(
        [*x, *x], shifted, [0] * 12 + [1] * 12, [*range(12)] * 2
    )
    assert two_questions.value == pytest.approx(correlation)


def test_alpha_of_ratings_uses_the_jackknife_and_of_codes_wilson() -> None:
    rng = np.random.default_rng(8)
    first = rng.integers(1, 6, 15)
    coders = np.array([first, np.clip(first + rng.integers(-1, 2, 15), 1, 5)], float)
    alpha = krippendorff_alpha(coders, "ordinal")
    leave_one_out = [krippendorff_alpha(np.delete(coders, n, axis=1), "ordinal") for n in range(15)]
    _, error = jackknife([-math.log(1 - value) for value in leave_one_out], -math.log(1 - alpha))
    estimate = krippendorff_interval(coders, "ordinal")
    half_width = t.ppf(0.975, 14) * error
    assert (estimate.low, estimate.high) == pytest.approx(
        (1 - (1 - alpha) * math.exp(half_width), 1 - (1 - alpha) * math.exp(-half_width))
    )
    codes = np.array([[0] * 10 + [1] * 10, [0] * 8 + [1] * 12], float)
    estimate = krippendorff_interval(codes)
    # 22 codes of one kind and 18 of the other; 2 of 20 pairs disagree.
    scale = 39 * 40 / (40**2 - 22**2 - 18**2)
    low, high = proportion_confint(2, 20, alpha=2 * t.sf(t.ppf(0.975, 19), 1e9), method="wilson")
    assert estimate.value == pytest.approx(1 - scale * 0.1)
    assert (estimate.low, estimate.high) == pytest.approx(
        (1 - scale * high, 1 - scale * low), abs=0.02
    )


def test_the_spread_of_ratings_equals_the_jackknife_of_the_deviation() -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(5, 2, 20)
    log_deviation = math.log(x.std(ddof=1))
    _, error = jackknife([math.log(np.delete(x, n).std(ddof=1)) for n in range(20)], log_deviation)
    estimate = spread_of_ratings(x[:, None], 10)
    half_width = t.ppf(0.975, 19) * error
    assert (estimate.low, estimate.high) == pytest.approx(
        (math.exp(log_deviation - half_width) / 10, math.exp(log_deviation + half_width) / 10)
    )
