"""Residents: sampled marginals against the ratios, no contradictions, one draw per set and seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from folkmoot.studies.town_hall.config import Ratios, ResidenceYears, ResidentSettings
from folkmoot.studies.town_hall.participants import (
    INCOMES,
    MAX_AGE,
    OCCUPATIONS,
    PRESSURES,
    TRAITS,
    Resident,
    can_afford_contribution,
    find_ages,
    find_contradiction,
    joint_problem,
    joint_shares,
    resident_ids,
    sample_residents,
)

SETS = 400
NAMES, _ = resident_ids(16, 4)


@pytest.fixture(scope="module")
def many() -> list[Resident]:
    settings = ResidentSettings()
    return [r for s in range(1, SETS + 1) for r in sample_residents(settings, NAMES, 42, s)]


def largest_error(values: list[object], shares: Mapping[Any, float]) -> float:
    """Return the largest difference between a share and its target, in standard errors."""
    n, counts = len(values), Counter(values)
    assert set(counts) <= set(shares)
    return max(abs(counts[v] / n - p) / sqrt(p * (1 - p) / n) for v, p in shares.items())


@pytest.mark.parametrize("name", list(Ratios.model_fields))
def test_marginals_follow_the_ratios(many: list[Resident], name: str) -> None:
    shares = getattr(Ratios(), name)
    assert largest_error([getattr(r, name) for r in many], shares) < 3.5


@pytest.mark.parametrize("trait", TRAITS)
def test_personality_follows_its_shares(many: list[Resident], trait: str) -> None:
    assert largest_error([getattr(r, trait) for r in many], ResidentSettings().personality) < 3.5


def test_residence_years_are_normal_and_clipped(many: list[Resident]) -> None:
    years = np.array([r.residence_years for r in many])
    assert years.min() == 1 and years.max() == 40
    inside = years[(years > 1) & (years < 40)]
    assert abs(np.median(years) - 15) < 0.5
    assert abs(np.mean((years > 7) & (years <= 23)) - 0.6827) < 0.03
    assert len(inside) > 0.9 * len(years)


def test_years_of_residence_are_fewer_than_years_of_age(many: list[Resident]) -> None:
    for r in many:
        ages = find_ages(r.age_group)
        assert ages is not None and r.residence_years <= ages.youngest
    long = ResidenceYears(mean=39, sd=4, low=10, high=60)
    settings = ResidentSettings(residence_years=long)
    drawn = [r for s in range(40) for r in sample_residents(settings, NAMES, 1, s)]
    assert max(r.residence_years for r in drawn if r.age_group == "30s") == 30
    assert max(r.residence_years for r in drawn if r.age_group == "60s") > 40


@pytest.mark.parametrize(
    ("group", "youngest", "oldest"),
    [
        ("30s", 30, 39),
        ("70s+", 70, MAX_AGE),
        ("18-24", 18, 24),
        ("18 to 24 years", 18, 24),
        ("65 and over", 65, MAX_AGE),
        ("over 80", 80, MAX_AGE),
        ("under 18", 0, 18),
        ("20s or 30s", 20, 39),
        ("44", 44, 44),
    ],
)
def test_the_name_of_an_age_group_gives_its_ages(group: str, youngest: int, oldest: int) -> None:
    assert find_ages(group) == (youngest, oldest)
    assert find_ages("adults") is None


def test_occupations_fit_the_age_group(many: list[Resident]) -> None:
    for r in many:
        assert r.occupation in OCCUPATIONS[r.age_group][r.income_level]


def test_income_pressure_and_affordability_never_contradict(many: list[Resident]) -> None:
    assert not [
        r
        for r in many
        if find_contradiction(r.income_level, r.economic_pressure, r.can_afford_contribution)
    ]
    seen = {(r.income_level, r.economic_pressure) for r in many}
    assert ("high", "struggling") not in seen and ("low", "comfortable") not in seen
    assert len(seen) == 7


def test_a_coin_decides_only_in_between(many: list[Resident]) -> None:
    between = [
        r.can_afford_contribution
        for r in many
        if (r.income_level, r.economic_pressure) == ("middle", "moderate")
    ]
    assert largest_error(list(between), {True: 0.5, False: 0.5}) < 3.5
    for income in INCOMES:
        for pressure in PRESSURES:
            if (income, pressure) != ("middle", "moderate"):
                assert can_afford_contribution(income, pressure, True) == can_afford_contribution(
                    income, pressure, False
                )


def test_same_seed_and_set_give_the_same_residents() -> None:
    settings = ResidentSettings()
    first = sample_residents(settings, NAMES, 7, 3)
    assert first == sample_residents(settings, NAMES, 7, 3)
    assert first != sample_residents(settings, NAMES, 7, 4)
    assert first != sample_residents(settings, NAMES, 8, 3)


def test_one_resident_more_changes_no_other() -> None:
    settings = ResidentSettings()
    assert (
        sample_residents(settings, NAMES[:5], 7, 3) == sample_residents(settings, NAMES, 7, 3)[:5]
    )


def test_ids_are_those_of_the_source() -> None:
    general, vulnerable = resident_ids(16, 4)
    assert general[0] == "A01" and general[-1] == "A16"
    assert vulnerable == ["A17", "A18", "A19", "A20"]


shares = st.tuples(*[st.integers(0, 20)] * 3).filter(lambda t: sum(t) > 0)


@given(shares, shares)
def test_the_joint_table_meets_both_ratios(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    incomes = {k: v / sum(a) for k, v in zip(INCOMES, a, strict=True)}
    pressures = {k: v / sum(b) for k, v in zip(PRESSURES, b, strict=True)}
    assume(not joint_problem(incomes, pressures))
    # At the very edge the fit converges slowly; a step inside it must be exact.
    assume(incomes["low"] + pressures["comfortable"] < 0.95)
    assume(incomes["high"] + pressures["struggling"] < 0.95)
    table = joint_shares(incomes, pressures)
    assert np.allclose(table.sum(axis=1), list(incomes.values()), atol=1e-3)
    assert np.allclose(table.sum(axis=0), list(pressures.values()), atol=1e-3)
    assert table[0, 0] == 0 and table[2, 2] == 0


def test_impossible_ratios_are_named() -> None:
    low = {"low": 0.9, "middle": 0.1, "high": 0.0}
    rich = {"comfortable": 0.5, "moderate": 0.5, "struggling": 0.0}
    assert "comfortable" in joint_problem(low, rich)
    assert not joint_problem(Ratios().income_level, Ratios().economic_pressure)
