"""Variance between personas and by attribute, on answers with a known structure."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from folkmoot.kit.controls.findings import with_roles
from folkmoot.kit.controls.persona_findings import persona_variance_finding, persona_variance_rows
from folkmoot.kit.controls.tables import RETEST
from folkmoot.measures.persona_variance import explained_share, intraclass_correlation

N = 200
PARTICIPANTS = [f"p_{n:03}" for n in range(N)]


def draw_answers(seed: int, options: int = 3) -> list[str]:
    return [f"option {n}" for n in np.random.default_rng(seed).integers(options, size=N)]


def test_the_icc_of_a_small_example_equals_a_hand_calculation() -> None:
    # Means 1.5, 3.5, 5.5: MSB = 2 · 8 / 2 = 8. Each pair differs by 1: MSW = .5.
    icc = intraclass_correlation([1.0, 3.0, 5.0], [2.0, 4.0, 6.0], ["a", "b", "c"])
    assert icc.value == pytest.approx(7.5 / 8.5) and not icc.has_interval


def test_a_model_that_ignores_the_persona_has_an_icc_near_zero() -> None:
    iccs = [
        intraclass_correlation(draw_answers(seed), draw_answers(1_000 + seed), PARTICIPANTS)
        for seed in range(100)
    ]
    assert abs(float(np.mean([estimate.value for estimate in iccs]))) < 0.02
    assert max(abs(estimate.value) for estimate in iccs) < 0.2
    assert sum(estimate.low <= 0 <= estimate.high for estimate in iccs) >= 90


def test_a_model_that_follows_the_persona_has_an_icc_near_one() -> None:
    first = draw_answers(1)
    # Four of 200 answer differently in the retest.
    second = ["option 0" if n % 50 == 0 else answer for n, answer in enumerate(first)]
    icc = intraclass_correlation(first, second, PARTICIPANTS)
    assert icc.value > 0.9 and icc.low > 0.85
    assert intraclass_correlation(first, first, PARTICIPANTS).value == 1
    assert math.isnan(intraclass_correlation(["a"] * N, ["a"] * N, PARTICIPANTS).value)


def test_the_interval_covers_the_true_icc_in_most_samples() -> None:
    rng, hits = np.random.default_rng(7), 0
    for _ in range(200):
        person = rng.normal(size=60)
        first, second = (person + rng.normal(size=60) for _ in range(2))
        icc = intraclass_correlation(list(first), list(second), range(60))
        hits += icc.low <= 0.5 <= icc.high
    assert 180 <= hits <= 198


def test_units_with_equal_answers_count_like_other_units_in_the_interval() -> None:
    """Numbers that differ in the 12th decimal have the interval of equal numbers."""
    rng = np.random.default_rng(3)
    units = [f"group {n // 2}" for n in range(60)]
    values = ["a", "b", "c"] * 20
    first, second = rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    varied = first + 1e-12 * rng.random(60)
    for one, other in (
        (explained_share(first, values, units), explained_share(varied, values, units)),
        (
            intraclass_correlation(first, second, units),
            intraclass_correlation(varied, second, units),
        ),
    ):
        assert one.has_interval and one.clusters == 30
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))


def test_a_share_of_many_participants_is_computed_at_once() -> None:
    """Computed without each participant in turn, these would take several minutes."""
    rng = np.random.default_rng(5)
    number = 40_000
    values = rng.integers(0, 4, number).tolist()
    answers = [f"option {n}" for n in (rng.integers(0, 3, number) + values) % 4]
    share = explained_share(answers, values, range(number))
    assert share.has_interval and share.clusters == number
    # Each value rules out one of four equally frequent options.
    assert share.value == pytest.approx(1 / 9, abs=0.01)


def test_a_share_is_adjusted_and_needs_thirty_participants() -> None:
    values = [n % 4 for n in range(N)]
    shares_without_effect = [
        explained_share(draw_answers(seed), values, PARTICIPANTS).value for seed in range(50)
    ]
    assert abs(float(np.mean(shares_without_effect))) < 0.004
    assert explained_share([float(value) for value in values], values, PARTICIPANTS).value == 1
    assert math.isnan(explained_share(draw_answers(1)[:29], values[:29], PARTICIPANTS[:29]).value)


def test_only_the_built_in_attribute_is_found() -> None:
    rng = np.random.default_rng(3)
    sides = [("left", "right")[n] for n in rng.integers(2, size=N)]
    answers = ["yes" if (side == "left") == (rng.random() < 0.8) else "no" for side in sides]
    retest_answers = ["no" if rng.random() < 0.1 else answer for answer in answers]
    table = pl.DataFrame(
        {
            "control": [RETEST] * N,
            "question": ["vote"] * N,
            "participant_id": PARTICIPANTS,
            "unit": PARTICIPANTS,
            "value": retest_answers,
            "number": [None] * N,
            "expected": answers,
            "missing": [None] * N,
        },
        schema_overrides={"number": pl.Float64, "missing": pl.String},
    ).pipe(with_roles)
    attributes = pl.DataFrame(
        {"participant_id": PARTICIPANTS, "politics": sides, "age": rng.integers(18, 90, size=N)}
    )
    finding = persona_variance_finding(table, attributes)
    assert finding is not None
    assert "of the variance lies between participants; of single attributes" in finding.says
    assert any("such as the order of the options" in note for note in finding.notes)
    assert "politics" in finding.says and "age" not in finding.says
    rows = {row[1]: row for row in finding.grid.rows}
    assert rows.keys() == {"the whole persona", "politics", "age"}
    # P(yes) is .8 or .2: the between variance is .09 of .25.
    assert rows["politics"][3] == pytest.approx(0.36, abs=0.12)
    assert persona_variance_finding(table.head(29), attributes) is None


def test_several_answers_of_a_participant_count_as_one() -> None:
    """Thirty-two participants answer in ten experiments, always alike."""
    people = [f"p_{n % 32}" for n in range(320)]
    answers, values = [n % 32 % 3 for n in range(320)], [n % 32 % 4 for n in range(320)]
    repeated = explained_share(answers, values, people, people)
    once = explained_share(answers[:32], values[:32], people[:32])
    assert (repeated.value, repeated.n) == (pytest.approx(once.value), 32)


def test_eight_participants_have_no_share_in_however_many_experiments() -> None:
    people = [f"p_{n % 8}" for n in range(80)]
    table = pl.DataFrame(
        {
            "control": [RETEST] * 80,
            "question": ["vote"] * 80,
            "participant_id": people,
            "unit": [f"{n // 8}/{n % 8}" for n in range(80)],
            "independent_unit": people,
            "value": ["yes", "no", "no"] * 26 + ["yes", "no"],
            "number": [None] * 80,
            "expected": ["yes", "no"] * 40,
            "missing": [None] * 80,
        },
        schema_overrides={"number": pl.Float64, "missing": pl.String},
    ).pipe(with_roles)
    attributes = pl.DataFrame({"participant_id": people[:8], "hobby": ["chess", "tennis"] * 4})
    rows = persona_variance_rows(table, attributes)
    assert {(row.participants, row.missing) for row in rows} == {(8, "too_few")}
    assert persona_variance_finding(table, attributes) is None
