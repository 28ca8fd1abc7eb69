"""Intervals hold the truth as often as they claim: over simulated data sets, and by hand."""

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
from tests.measures.coverage import ABOVE_97, CASES, cover, estimator

DRAWS = 2_000
PAGE = Path(__file__).parents[2] / "docs" / "measures.md"


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("name", CASES)
def test_an_interval_holds_the_truth_in_at_least_93_of_100_data_sets(name: str) -> None:
    found = cover(name, DRAWS)
    assert found.known >= DRAWS / 2
    assert found.share >= 0.93, found
    assert found.share <= 0.97 or estimator(name) in ABOVE_97, found


def test_the_page_has_a_row_for_each_estimator_and_explains_what_is_cautious() -> None:
    page = PAGE.read_text("utf-8")
    for name in {estimator(case) for case in CASES}:
        row = next((line for line in page.splitlines() if line.startswith(f"| {name} |")), "")
        least, most = (float(f"0{part}") for part in row.split(" | ")[2].split(" to "))
        assert 0.93 <= least <= most
        assert most <= 0.97 or ABOVE_97[name] in row


@pytest.mark.parametrize("n", [10, 20, 40])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_the_coverage_of_shares_is_known_exactly(n: int, p: float) -> None:
    """All results that a share, or two of the same size, can have, by their probability."""
    one = sum(
        binom.pmf(k, n, p) for k in range(n + 1) if wilson(k, n).low <= p <= wilson(k, n).high
    )
    assert one >= 0.92
    if n <= 20:
        counts = product(range(n + 1), repeat=2)
        held = ((a, b) for a, b in counts if not newcombe(a, n, b, n).excludes_zero)
        assert sum(binom.pmf(a, n, p) * binom.pmf(b, n, p) for a, b in held) >= 0.94


def test_kappa_is_wilsons_interval_of_agreement_between_chance_and_the_most() -> None:
    # 40 people, two options, 30 agree; the first is chosen by half of them both times.
    first = ["a"] * 20 + ["b"] * 20
    last = ["a"] * 15 + ["b"] * 20 + ["a"] * 5
    e = kappa_of_possible(first, last)
    low, high = proportion_confint(30, 40, method="wilson")
    # Marginals agree, so that most is 1 and its standard error √(10 / 40²) for each of two options.
    slack = 0.5 * math.sqrt(2 * 10 / 40**2) / 2
    assert e.value == pytest.approx(0.5)
    assert e.low == pytest.approx((low - 0.5) / 0.5)
    assert e.high == pytest.approx((high - 0.5) / (1 - slack - 0.5))


def left_out(values: list[float], whole: float) -> tuple[float, float]:
    """Bias-corrected value and standard error from the values without each unit."""
    n = len(values)
    mean = sum(values) / n
    return n * whole - (n - 1) * mean, math.sqrt((n - 1) / n * sum((v - mean) ** 2 for v in values))


def entropy(votes: list[int]) -> float:
    shares = [votes.count(option) / len(votes) for option in set(votes)]
    return -sum(p * math.log(p) for p in shares)


def test_evenness_is_the_jackknife_over_people() -> None:
    votes = [0] * 12 + [1] * 8 + [2] * 5 + [3] * 5
    others = [entropy(votes[:n] + votes[n + 1 :]) for n in range(30)]
    middle, error = left_out(others, entropy(votes))
    reach = t.ppf(0.975, 29) * math.sqrt(error**2 + 3 / (2 * 30**2))
    e = evenness_estimate([12, 8, 5, 5])
    assert e.value == pytest.approx(middle / math.log(4))
    assert e.low == pytest.approx((middle - reach) / math.log(4))
    assert e.high == pytest.approx(min(1, (middle + reach) / math.log(4)))
    assert not evenness_estimate([9, 5, 5]).has_interval


def test_the_evenness_of_a_few_dissenters_has_exact_bounds() -> None:
    e = evenness_estimate([97, 2, 1, 0, 0])
    low, high = proportion_confint(3, 100, method="beta")
    for bound, share in ((e.low, low), (e.high, high)):
        spread = share * math.log(4) if bound == e.high else 0.0
        own = -share * math.log(share) - (1 - share) * math.log(1 - share)
        assert bound == pytest.approx((own + spread) / math.log(5))


def test_the_effective_ratio_is_the_jackknife_over_pairs() -> None:
    table = np.array([[9, 4, 1], [1, 6, 2], [0, 3, 4]])
    pairs = [(i, j) for i in range(3) for j in range(3) for _ in range(table[i, j])]

    def log_ratio(some: list[tuple[int, int]]) -> float:
        return entropy([j for _, j in some]) - entropy([i for i, _ in some])

    _, error = left_out(
        [log_ratio(pairs[:n] + pairs[n + 1 :]) for n in range(len(pairs))], log_ratio(pairs)
    )
    reach = t.ppf(0.975, 10) * math.sqrt(error**2 + 12 * 2 / 30**3)  # eleven people moved
    e = effective_ratio(table)
    assert math.log(e.value) == pytest.approx(log_ratio(pairs))
    assert math.log(e.low) == pytest.approx(log_ratio(pairs) - reach)
    assert math.log(e.high) == pytest.approx(log_ratio(pairs) + reach)


def test_the_correlation_of_two_askings_is_the_jackknife_of_fishers_z() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, 12))
    y += x
    whole = np.corrcoef(x, y)[0, 1]
    others = [math.atanh(np.corrcoef(np.delete(x, n), np.delete(y, n))[0, 1]) for n in range(12)]
    _, error = left_out(others, math.atanh(whole))
    e = correlation_with_oneself(x, y, ["q"] * 12, range(12))
    reach = t.ppf(0.975, 11) * error
    assert e.value == pytest.approx(whole)
    assert (e.low, e.high) == pytest.approx(
        (math.tanh(math.atanh(whole) - reach), math.tanh(math.atanh(whole) + reach))
    )
    # A shift of one question is no disagreement.
    moved = np.concatenate([y, y + 5])
    twice = correlation_with_oneself([*x, *x], moved, [0] * 12 + [1] * 12, [*range(12)] * 2)
    assert twice.value == pytest.approx(whole)


def test_alpha_of_ratings_is_the_jackknife_and_of_codes_wilsons() -> None:
    rng = np.random.default_rng(8)
    first = rng.integers(1, 6, 15)
    both = np.array([first, np.clip(first + rng.integers(-1, 2, 15), 1, 5)], float)
    alpha = krippendorff_alpha(both, "ordinal")
    others = [krippendorff_alpha(np.delete(both, n, axis=1), "ordinal") for n in range(15)]
    _, error = left_out([-math.log(1 - a) for a in others], -math.log(1 - alpha))
    e = krippendorff_interval(both, "ordinal")
    reach = t.ppf(0.975, 14) * error
    assert (e.low, e.high) == pytest.approx(
        (1 - (1 - alpha) * math.exp(reach), 1 - (1 - alpha) * math.exp(-reach))
    )
    codes = np.array([[0] * 10 + [1] * 10, [0] * 8 + [1] * 12], float)
    e = krippendorff_interval(codes)
    # 22 codes of one kind and 18 of the other; 2 of 20 pairs disagree.
    scale = 39 * 40 / (40**2 - 22**2 - 18**2)
    low, high = proportion_confint(2, 20, alpha=2 * t.sf(t.ppf(0.975, 19), 1e9), method="wilson")
    assert e.value == pytest.approx(1 - scale * 0.1)
    assert (e.low, e.high) == pytest.approx((1 - scale * high, 1 - scale * low), abs=0.02)


def test_the_spread_of_ratings_is_the_jackknife_of_a_standard_deviation() -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(5, 2, 20)
    whole = math.log(x.std(ddof=1))
    _, error = left_out([math.log(np.delete(x, n).std(ddof=1)) for n in range(20)], whole)
    e = spread_of_ratings(x[:, None], 10)
    reach = t.ppf(0.975, 19) * error
    assert (e.low, e.high) == pytest.approx(
        (math.exp(whole - reach) / 10, math.exp(whole + reach) / 10)
    )
