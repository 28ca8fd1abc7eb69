"""The packaged sample: the joint table fits published figures, and every figure has a source."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from folkmoot.people.sources.grounded import PersonaGenerator, joint
from folkmoot.people.sources.grounded.population import income_fifth
from folkmoot.people.sources.grounded.raking import RakingMargin, rake_table
from folkmoot.randomness import generator

DOCS_PAGE = Path(__file__).parents[2] / "docs" / "personas.md"
DEGREES = ("Bachelor's degree", "Master's degree", "Doctorate")


@pytest.fixture(scope="module")
def sample() -> pl.DataFrame:
    return joint.sample_people()


def calculate_share(sample: pl.DataFrame, event: pl.Expr, condition: pl.Expr) -> float:
    return float(sample.filter(condition).select(event.mean()).item())


def calculate_median(sample: pl.DataFrame, column: str, condition: pl.Expr) -> float:
    return float(sample.filter(condition)[column].median())  # type: ignore[arg-type]


def col(name: str) -> pl.Expr:
    return pl.col(name)


# --- raking --------------------------------------------------------------------------------------


def test_raking_gives_the_known_answer() -> None:
    """The two-way example of Deming and Stephan: the odds ratio of the seed is kept."""
    seed = np.array([[40.0, 30.0], [35.0, 50.0]])
    rows, columns = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    table = rake_table(
        seed, [RakingMargin("rows", (0,), rows), RakingMargin("columns", (1,), columns)]
    )
    assert table.sum(1) == pytest.approx(rows) and table.sum(0) == pytest.approx(columns)
    odds_ratio = table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])
    assert odds_ratio == pytest.approx(40 * 50 / (30 * 35))


@settings(max_examples=40, deadline=None)
@given(
    st_numpy.arrays(float, (2, 3, 4), elements=st.floats(0.05, 5)),
    st_numpy.arrays(float, (3, 2), elements=st.floats(0.1, 1)),
    st_numpy.arrays(float, (2,), elements=st.floats(0.1, 1)),
)
def test_margins_hold_in_any_order_of_axes(seed: Any, by_two: Any, merged: Any) -> None:
    """Margins of a part of the table and of merged levels hold as well."""
    two_way_margin = RakingMargin("two", (1, 0), by_two / by_two.sum())
    part_margin = RakingMargin(
        "part", (2,), merged / merged.sum(), {1: slice(1, None)}, {2: (0, 1, 1, 0)}
    )
    table = rake_table(seed, [part_margin, two_way_margin])
    assert np.transpose(table.sum(2)) == pytest.approx(two_way_margin.wanted, abs=1e-4)
    level_sums = table[:, 1:].sum((0, 1))
    merged_shares = (
        np.array([level_sums[0] + level_sums[3], level_sums[1] + level_sums[2]]) / level_sums.sum()
    )
    assert merged_shares == pytest.approx(part_margin.wanted, abs=1e-4)


def test_the_fit_is_within_a_point_and_shown_in_the_docs() -> None:
    """The margins contradict each other slightly (different years and populations)."""
    text = DOCS_PAGE.read_text()
    occupations = joint.raked_occupations()
    fits = [(margin, joint.core_shares()) for margin in joint.core_margins()]
    fits += [(margin, occupations.table) for margin in occupations.margins]
    for margin, table in fits:
        distances = 100 * np.abs(margin.observed_margin(table) - margin.wanted)
        largest, mean = float(distances.max()), float(distances.mean())
        assert largest < 1, margin.name
        line = f"| {margin.name} | {distances.size} | {largest:.2f} | {mean:.2f} |"
        assert line in text, line


# --- sex, age, race and work ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "axis", "level"),
    [
        ("women", 1, 0),
        ("age_20_24", 2, 1),
        ("age_45_54", 2, 4),
        ("age_65", 2, 6),
        ("black", 4, 1),
        ("asian", 4, 2),
        ("hispanic", 4, 3),
    ],
)
def test_every_occupation_has_its_published_shares(column: str, axis: int, level: int) -> None:
    """Shares are percentages of the workers; age shares are those of workers of 20 and over."""
    frame = pl.read_csv(Path(joint.__file__).with_name("us_occupations.csv").read_bytes())
    table = (
        joint.raked_occupations().table[:, :, 1:] if axis == 2 else joint.raked_occupations().table
    )
    job_counts = np.moveaxis(table, axis, 1).sum(axis=(2, 3, 4))
    percentages = 100 * job_counts[:, level - (axis == 2)] / job_counts.sum(axis=1)
    published_percentages = frame[column].to_numpy()
    if axis == 2:
        adults = frame.select(pl.col("^age_.*$").exclude("age_16_19")).to_numpy().sum(axis=1)
        published_percentages = 100 * published_percentages / adults
    deviations = np.abs(percentages - published_percentages)
    worst_job = frame["job"][int(deviations.argmax())]
    assert deviations.max() < 4 and np.average(deviations, weights=frame["thousands"]) < 1, (
        worst_job,
        deviations.max(),
    )


def test_occupations_have_their_published_shares_of_women(sample: pl.DataFrame) -> None:
    is_woman = col("sex") == "F"
    for job, low, high in (
        ("registered nurse", 0.80, 0.95),
        ("preschool teacher", 0.93, 1.0),
        ("roofer", 0.0, 0.15),
        ("electrician", 0.0, 0.07),
        ("truck driver", 0.04, 0.13),
        ("accountant", 0.5, 0.68),
    ):
        assert low <= calculate_share(sample, is_woman, col("occupation") == job) <= high, job


def test_work_home_and_study_follow_sex_and_age(sample: pl.DataFrame) -> None:
    is_prime_age = col("age").is_between(25, 54)
    is_working, is_at_home = col("activity") == "works", col("activity") == "at home"
    is_man, is_woman = col("sex") == "M", col("sex") == "F"
    assert (
        calculate_share(sample, is_working, is_prime_age & is_man)
        > calculate_share(sample, is_working, is_prime_age & is_woman) + 0.08
    )
    assert calculate_share(sample, is_at_home, is_prime_age & is_woman) > 2.5 * calculate_share(
        sample, is_at_home, is_prime_age & is_man
    )
    assert calculate_share(sample, col("activity") == "studies", col("age") < 20) > 0.3
    assert calculate_share(sample, col("activity") == "retired", col("age") < 45) < 0.01
    assert calculate_share(sample, col("activity") == "retired", col("age") >= 70) > 0.55


def test_degrees_and_leading_jobs_have_a_minimum_age(sample: pl.DataFrame) -> None:
    manager = col("occupation").str.contains("manager|supervisor|chief executive|administrator")
    assert sample.filter(manager & (col("activity") == "works"))["age"].min() >= 21
    for degree, min_age in (("Bachelor's degree", 21), ("Master's degree", 23), ("Doctorate", 27)):
        assert sample.filter(col("education") == degree)["age"].min() >= min_age
    doctors = sample.filter(col("occupation") == "physician")
    assert set(doctors["education"]) == {"Doctorate"} and doctors["age"].min() >= 27
    lawyers = sample.filter(col("occupation") == "lawyer")
    assert set(lawyers["education"]) <= {"Master's degree", "Doctorate"}


def test_degrees_follow_race_sex_and_age(sample: pl.DataFrame) -> None:
    has_degree, is_adult = col("education").is_in(DEGREES), col("age") >= 25
    published_shares = joint.us_figures()["degrees_by_race"]["shares"]
    for race, per_cent in published_shares.items():
        percentage = 100 * calculate_share(sample, has_degree, is_adult & (col("race") == race))
        assert percentage == pytest.approx(per_cent, abs=4), race
    women = calculate_share(sample, has_degree, is_adult & (col("sex") == "F"))
    assert women - calculate_share(
        sample, has_degree, is_adult & (col("sex") == "M")
    ) == pytest.approx(0.028, abs=0.015)
    hispanic = col("race") == "Hispanic"
    assert (
        calculate_share(sample, hispanic, col("age") < 35)
        > calculate_share(sample, hispanic, col("age") > 64) + 0.06
    )


# --- income and household -------------------------------------------------------------------------


def test_households_have_the_published_incomes(sample: pl.DataFrame) -> None:
    """Fifths and median are of households, so each person is weighted by 1 / adults."""
    weights = 1 / sample["adults"].to_numpy()
    incomes = sample["income_usd"].to_numpy()
    terms = joint.us_figures()["household_income"]
    edges = [0, *terms["fifths"], np.inf]
    for low, high in itertools.pairwise(edges):
        inside = (incomes > low) & (incomes <= high)
        assert weights[inside].sum() / weights.sum() == pytest.approx(0.2, abs=0.004)
    below = weights[incomes <= terms["median"]].sum() / weights.sum()
    assert below == pytest.approx(0.5, abs=0.004)
    assert income_fifth(29_000) == "Low income" and income_fifth(153_001) == "High income"


def test_working_people_earn_more_than_others(sample: pl.DataFrame) -> None:
    own_incomes = {
        kind: calculate_median(sample, "own_income_usd", col("activity") == kind)
        for kind in joint.ACTIVITIES
    }
    assert own_incomes["looks for work"] < 0.4 * own_incomes["works"]
    assert (
        own_incomes["studies"] < 0.3 * own_incomes["works"]
        and own_incomes["at home"] < 0.3 * own_incomes["works"]
    )
    jobless_income = calculate_median(sample, "income_usd", col("activity") == "looks for work")
    assert jobless_income < 0.7 * calculate_median(sample, "income_usd", col("activity") == "works")


def test_a_retirement_income_depends_on_the_former_occupation(sample: pl.DataFrame) -> None:
    """Incomes differ between former occupations; the published medians by sex still hold."""

    def median_of_retired(*jobs: str) -> float:
        names = [f"retired {job}" for job in jobs]
        return calculate_median(sample, "own_income_usd", col("occupation").is_in(names))

    high_income = median_of_retired("physician", "software developer", "chief executive", "lawyer")
    low_income = median_of_retired(
        "cashier", "housekeeper", "childcare worker", "personal care aide"
    )
    assert 2 < high_income / low_income < 6
    published = joint.us_figures()["other_income"]["retired"]
    for sex, dollars in published.items():
        median_income = calculate_median(
            sample, "own_income_usd", (col("activity") == "retired") & (col("sex") == sex)
        )
        assert median_income == pytest.approx(dollars, rel=0.07)
    rows = [{"occupation": "retired physician"}, {"occupation": "retired cashier"}] * 60
    profiles = PersonaGenerator().from_profiles(rows, generator(4, ()))
    incomes = {
        job: np.median([profile.income_usd for profile in profiles if profile.occupation == job])
        for job in ("retired physician", "retired cashier")
    }
    assert incomes["retired physician"] > 1.5 * incomes["retired cashier"]


def test_no_homemaker_lives_alone_and_people_alone_at_home_have_an_income(
    sample: pl.DataFrame,
) -> None:
    homemakers = sample.filter(col("occupation") == "homemaker")
    assert homemakers.height > 500 and (homemakers["household"] == "alone").sum() == 0
    is_alone_at_home = (
        (col("activity") == "at home") & (col("household") == "alone") & (col("children") == 0)
    )
    former = sample.filter(is_alone_at_home)
    assert former["occupation"].str.starts_with("former ").all()
    assert calculate_share(sample, col("income_usd") < 8000, is_alone_at_home) < 0.2


def test_the_docs_page_counts_the_sources_by_status() -> None:
    kinds = Counter(source["status"] for source in joint.us_figures()["sources"].values())
    page_text = DOCS_PAGE.read_text("utf-8")
    opened, unverified, assumed = (kinds[kind] for kind in ("opened", "unverified", "assumed"))
    assert (
        f"Of the {sum(kinds.values())} sources {opened} were opened, {unverified} are unverified "
        f"and {assumed} is an assumption of ours"
    ) in " ".join(page_text.split())
    rows = dict(re.findall(r"^\| .* \| `(\w+)` \| \d+ \| (\w+) \|$", page_text, re.MULTILINE))
    known_sources = joint.us_figures()["sources"]
    assert all(known_sources[name]["status"] == status for name, status in rows.items())


def test_incomes_are_plausible_for_occupation_and_household(
    sample: pl.DataFrame,
) -> None:
    is_alone = col("household") == "alone"
    cashiers = sample.filter(is_alone & (col("occupation") == "cashier"))
    assert len(cashiers) > 20 and cashiers["income_usd"].max() < 90_000
    has_low_paid_job = col("occupation").is_in(
        ["dishwasher", "fast food worker", "housekeeper", "packer"]
    )
    assert sample.filter(is_alone & has_low_paid_job)["income_usd"].max() < 100_000
    for job, other_job in (("physician", "cashier"), ("software developer", "cook")):
        higher_income = calculate_median(sample, "own_income_usd", col("occupation") == job)
        assert higher_income > 3 * calculate_median(
            sample, "own_income_usd", col("occupation") == other_job
        )


def test_couples_have_higher_incomes_than_people_who_live_alone(sample: pl.DataFrame) -> None:
    is_working = col("activity") == "works"
    couple_income = calculate_median(
        sample, "income_usd", is_working & (col("household") == "with a spouse")
    )
    assert couple_income > 1.6 * calculate_median(
        sample, "income_usd", is_working & (col("household") == "alone")
    )
    with_parents = sample.filter(col("household") == "with parents")
    assert with_parents["age"].median() < 28
    is_married = col("household").str.starts_with("with a spouse")
    share_of_old_men = calculate_share(sample, is_married, (col("age") >= 65) & (col("sex") == "M"))
    assert (
        share_of_old_men
        > calculate_share(sample, is_married, (col("age") >= 65) & (col("sex") == "F")) + 0.1
    )
    single_parents = sample.filter(col("household").is_in(["with one child", "with two children"]))
    assert calculate_share(single_parents, col("sex") == "F", pl.lit(True)) == pytest.approx(
        0.75, abs=0.1
    )


def test_the_sample_is_reproducible() -> None:
    first = joint.sample_people()
    joint.sample_people.cache_clear()
    assert joint.sample_people().equals(first)


# --- sources -------------------------------------------------------------------------------------


def find_sourced_figures(node: Any, path: str = "") -> list[tuple[str, str]]:
    if not isinstance(node, dict):
        return []
    own_figure = [(path, node["source"])] if "source" in node else []
    return own_figure + [
        figure
        for key, value in node.items()
        for figure in find_sourced_figures(value, f"{path}.{key}")
    ]


def test_every_demographic_figure_has_a_source_with_a_year_and_a_status() -> None:
    data = joint.us_figures()
    sources = data["sources"]
    for name, source in sources.items():
        assert source["status"] in ("opened", "unverified", "assumed"), name
        assert isinstance(source["year"], int) and source["title"], name
    sourced_figures = find_sourced_figures(
        {key: value for key, value in data.items() if key != "sources"}
    )
    assert {source_name for _, source_name in sourced_figures} <= set(sources)
    figure_names = {path.split(".")[1] for path, _ in sourced_figures}
    assert figure_names >= {
        *("age", "sex", "education_by_age", "degrees_by_sex", "degrees_by_race", "race_by_age"),
        *("activity_by_age", "employed_by_sex", "employed_by_education", "household_by_age"),
        *("children", "earnings", "other_income", "household_income", "location_type", "region"),
        *("political_leaning", "ocean", "vals", "adoption", "consumer", "opinion"),
    }


def test_the_docs_mark_the_same_figures_as_unverified() -> None:
    text = re.sub(r"\s+", " ", DOCS_PAGE.read_text())
    for name, source in joint.us_figures()["sources"].items():
        assert f"| `{name}` | {source['year']} | {source['status']} |" in text, name
