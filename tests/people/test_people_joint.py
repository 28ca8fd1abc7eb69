"""The packaged people: the joint table fits what is published; every figure names its source."""

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

DOCS = Path(__file__).parents[2] / "docs" / "personas.md"
DEGREES = ("Bachelor's degree", "Master's degree", "Doctorate")


@pytest.fixture(scope="module")
def people() -> pl.DataFrame:
    return joint.sample_people()


def share(people: pl.DataFrame, of: pl.Expr, among: pl.Expr) -> float:
    return float(people.filter(among).select(of.mean()).item())


def median(people: pl.DataFrame, column: str, among: pl.Expr) -> float:
    return float(people.filter(among)[column].median())  # type: ignore[arg-type]


def col(name: str) -> pl.Expr:
    return pl.col(name)


# --- raking --------------------------------------------------------------------------------------


def test_raking_gives_the_known_answer() -> None:
    """Deming and Stephan's own two-way case: the odds ratio of the seed is kept."""
    seed = np.array([[40.0, 30.0], [35.0, 50.0]])
    rows, columns = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    table = rake_table(
        seed, [RakingMargin("rows", (0,), rows), RakingMargin("columns", (1,), columns)]
    )
    assert table.sum(1) == pytest.approx(rows) and table.sum(0) == pytest.approx(columns)
    odds = table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])
    assert odds == pytest.approx(40 * 50 / (30 * 35))


@settings(max_examples=40, deadline=None)
@given(
    st_numpy.arrays(float, (2, 3, 4), elements=st.floats(0.05, 5)),
    st_numpy.arrays(float, (3, 2), elements=st.floats(0.1, 1)),
    st_numpy.arrays(float, (2,), elements=st.floats(0.1, 1)),
)
def test_margins_in_any_order_of_axes_hold(seed: Any, by_two: Any, merged: Any) -> None:
    """Also of a part of the table, and of merged levels."""
    two = RakingMargin("two", (1, 0), by_two / by_two.sum())
    part = RakingMargin("part", (2,), merged / merged.sum(), {1: slice(1, None)}, {2: (0, 1, 1, 0)})
    table = rake_table(seed, [part, two])
    assert np.transpose(table.sum(2)) == pytest.approx(two.wanted, abs=1e-4)
    inside = table[:, 1:].sum((0, 1))
    found = np.array([inside[0] + inside[3], inside[1] + inside[2]]) / inside.sum()
    assert found == pytest.approx(part.wanted, abs=1e-4)


def test_the_fit_is_within_a_point_and_shown_in_the_docs() -> None:
    """Margins contradict each other a little (other years, other populations)."""
    text = DOCS.read_text()
    for name, cells, largest, mean in joint.fit_to_margins():
        assert largest < 1, name
        assert f"| {name} | {cells} | {largest:.2f} | {mean:.2f} |" in text, (name, largest, mean)


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
def test_every_occupation_has_its_published_people(column: str, axis: int, level: int) -> None:
    """In a hundred of those who work in it; of ages, of those of 20 and over."""
    frame = pl.read_csv(Path(joint.__file__).with_name("us_occupations.csv").read_bytes())
    table = (
        joint.raked_occupations().table[:, :, 1:] if axis == 2 else joint.raked_occupations().table
    )
    of_job = np.moveaxis(table, axis, 1).sum(axis=(2, 3, 4))
    found = 100 * of_job[:, level - (axis == 2)] / of_job.sum(axis=1)
    wanted = frame[column].to_numpy()
    if axis == 2:
        adults = frame.select(pl.col("^age_.*$").exclude("age_16_19")).to_numpy().sum(axis=1)
        wanted = 100 * wanted / adults
    off = np.abs(found - wanted)
    worst = frame["job"][int(off.argmax())]
    assert off.max() < 4 and np.average(off, weights=frame["thousands"]) < 1, (worst, off.max())


def test_women_do_women_s_jobs_and_men_men_s(people: pl.DataFrame) -> None:
    women = col("sex") == "F"
    for job, low, high in (
        ("registered nurse", 0.80, 0.95),
        ("preschool teacher", 0.93, 1.0),
        ("roofer", 0.0, 0.15),
        ("electrician", 0.0, 0.07),
        ("truck driver", 0.04, 0.13),
        ("accountant", 0.5, 0.68),
    ):
        assert low <= share(people, women, col("occupation") == job) <= high, job


def test_work_home_and_study_follow_sex_and_age(people: pl.DataFrame) -> None:
    prime = col("age").is_between(25, 54)
    works, home = col("activity") == "works", col("activity") == "at home"
    men, women = col("sex") == "M", col("sex") == "F"
    assert share(people, works, prime & men) > share(people, works, prime & women) + 0.08
    assert share(people, home, prime & women) > 2.5 * share(people, home, prime & men)
    assert share(people, col("activity") == "studies", col("age") < 20) > 0.3
    assert share(people, col("activity") == "retired", col("age") < 45) < 0.01
    assert share(people, col("activity") == "retired", col("age") >= 70) > 0.55


def test_nobody_is_too_young_for_a_degree_or_for_being_in_charge(people: pl.DataFrame) -> None:
    manager = col("occupation").str.contains("manager|supervisor|chief executive|administrator")
    assert people.filter(manager & (col("activity") == "works"))["age"].min() >= 21
    for degree, least in (("Bachelor's degree", 21), ("Master's degree", 23), ("Doctorate", 27)):
        assert people.filter(col("education") == degree)["age"].min() >= least
    doctors = people.filter(col("occupation") == "physician")
    assert set(doctors["education"]) == {"Doctorate"} and doctors["age"].min() >= 27
    lawyers = people.filter(col("occupation") == "lawyer")
    assert set(lawyers["education"]) <= {"Master's degree", "Doctorate"}


def test_degrees_follow_race_sex_and_age(people: pl.DataFrame) -> None:
    degree, adult = col("education").is_in(DEGREES), col("age") >= 25
    wanted = joint.us_figures()["degrees_by_race"]["shares"]
    for race, per_cent in wanted.items():
        got = 100 * share(people, degree, adult & (col("race") == race))
        assert got == pytest.approx(per_cent, abs=4), race
    women = share(people, degree, adult & (col("sex") == "F"))
    assert women - share(people, degree, adult & (col("sex") == "M")) == pytest.approx(
        0.028, abs=0.015
    )
    hispanic = col("race") == "Hispanic"
    assert (
        share(people, hispanic, col("age") < 35) > share(people, hispanic, col("age") > 64) + 0.06
    )


# --- income and household -------------------------------------------------------------------------


def test_households_have_the_published_incomes(people: pl.DataFrame) -> None:
    """Fifths and median of households: each person counts for its part of the household."""
    weights = 1 / people["adults"].to_numpy()
    incomes = people["income_usd"].to_numpy()
    terms = joint.us_figures()["household_income"]
    edges = [0, *terms["fifths"], np.inf]
    for low, high in itertools.pairwise(edges):
        inside = (incomes > low) & (incomes <= high)
        assert weights[inside].sum() / weights.sum() == pytest.approx(0.2, abs=0.004)
    below = weights[incomes <= terms["median"]].sum() / weights.sum()
    assert below == pytest.approx(0.5, abs=0.004)
    assert income_fifth(29_000) == "Low income" and income_fifth(153_001) == "High income"


def test_who_is_at_work_earns_more_than_who_is_not(people: pl.DataFrame) -> None:
    own = {
        kind: median(people, "own_income_usd", col("activity") == kind) for kind in joint.ACTIVITIES
    }
    assert own["looks for work"] < 0.4 * own["works"]
    assert own["studies"] < 0.3 * own["works"] and own["at home"] < 0.3 * own["works"]
    jobless = median(people, "income_usd", col("activity") == "looks for work")
    assert jobless < 0.7 * median(people, "income_usd", col("activity") == "works")


def test_a_retirement_income_depends_on_the_former_occupation(people: pl.DataFrame) -> None:
    """Lawyers and cashiers had the same; the published medians of women and men still hold."""

    def retired(*jobs: str) -> float:
        names = [f"retired {job}" for job in jobs]
        return median(people, "own_income_usd", col("occupation").is_in(names))

    rich = retired("physician", "software developer", "chief executive", "lawyer")
    poor = retired("cashier", "housekeeper", "childcare worker", "personal care aide")
    assert 2 < rich / poor < 6
    published = joint.us_figures()["other_income"]["retired"]
    for sex, dollars in published.items():
        found = median(
            people, "own_income_usd", (col("activity") == "retired") & (col("sex") == sex)
        )
        assert found == pytest.approx(dollars, rel=0.07)
    told = [{"occupation": "retired physician"}, {"occupation": "retired cashier"}] * 60
    made = PersonaGenerator().from_profiles(told, generator(4, ()))
    incomes = {
        job: np.median([p.income_usd for p in made if p.occupation == job])
        for job in ("retired physician", "retired cashier")
    }
    assert incomes["retired physician"] > 1.5 * incomes["retired cashier"]


def test_no_homemaker_lives_alone_and_who_does_has_something_to_live_on(
    people: pl.DataFrame,
) -> None:
    homemakers = people.filter(col("occupation") == "homemaker")
    assert homemakers.height > 500 and (homemakers["household"] == "alone").sum() == 0
    alone = (col("activity") == "at home") & (col("household") == "alone") & (col("children") == 0)
    former = people.filter(alone)
    assert former["occupation"].str.starts_with("former ").all()
    assert share(people, col("income_usd") < 8000, alone) < 0.2


def test_the_page_counts_the_sources_that_were_not_opened() -> None:
    kinds = Counter(source["status"] for source in joint.us_figures()["sources"].values())
    page = DOCS.read_text("utf-8")
    opened, unverified, ours = (kinds[kind] for kind in ("opened", "unverified", "assumed"))
    assert (
        f"Of the {sum(kinds.values())} sources {opened} were opened, {unverified} are unverified "
        f"and {ours} is an assumption of ours"
    ) in " ".join(page.split())
    rows = dict(re.findall(r"^\| .* \| `(\w+)` \| \d+ \| (\w+) \|$", page, re.MULTILINE))
    known = joint.us_figures()["sources"]
    assert all(known[name]["status"] == status for name, status in rows.items())


def test_nobody_has_an_income_that_the_work_and_the_household_cannot_make(
    people: pl.DataFrame,
) -> None:
    alone = col("household") == "alone"
    cashiers = people.filter(alone & (col("occupation") == "cashier"))
    assert len(cashiers) > 20 and cashiers["income_usd"].max() < 90_000
    poor = col("occupation").is_in(["dishwasher", "fast food worker", "housekeeper", "packer"])
    assert people.filter(alone & poor)["income_usd"].max() < 100_000
    for job, other in (("physician", "cashier"), ("software developer", "cook")):
        much = median(people, "own_income_usd", col("occupation") == job)
        assert much > 3 * median(people, "own_income_usd", col("occupation") == other)


def test_couples_have_more_than_those_who_live_alone(people: pl.DataFrame) -> None:
    worker = col("activity") == "works"
    couple = median(people, "income_usd", worker & (col("household") == "with a spouse"))
    assert couple > 1.6 * median(people, "income_usd", worker & (col("household") == "alone"))
    with_parents = people.filter(col("household") == "with parents")
    assert with_parents["age"].median() < 28
    married = col("household").str.starts_with("with a spouse")
    old_men = share(people, married, (col("age") >= 65) & (col("sex") == "M"))
    assert old_men > share(people, married, (col("age") >= 65) & (col("sex") == "F")) + 0.1
    lone = people.filter(col("household").is_in(["with one child", "with two children"]))
    assert share(lone, col("sex") == "F", pl.lit(True)) == pytest.approx(0.75, abs=0.1)


def test_the_same_people_always() -> None:
    first = joint.sample_people()
    joint.sample_people.cache_clear()
    assert joint.sample_people().equals(first)


# --- sources -------------------------------------------------------------------------------------


def figures_with_sources(node: Any, path: str = "") -> list[tuple[str, str]]:
    if not isinstance(node, dict):
        return []
    own = [(path, node["source"])] if "source" in node else []
    return own + [f for k, v in node.items() for f in figures_with_sources(v, f"{path}.{k}")]


def test_every_demographic_figure_has_a_source_with_a_year_and_a_status() -> None:
    data = joint.us_figures()
    sources = data["sources"]
    for name, source in sources.items():
        assert source["status"] in ("opened", "unverified", "assumed"), name
        assert isinstance(source["year"], int) and source["title"], name
    named = figures_with_sources({k: v for k, v in data.items() if k != "sources"})
    assert {s for _, s in named} <= set(sources)
    demographic = {path.split(".")[1] for path, _ in named}
    assert demographic >= {
        *("age", "sex", "education_by_age", "degrees_by_sex", "degrees_by_race", "race_by_age"),
        *("activity_by_age", "employed_by_sex", "employed_by_education", "household_by_age"),
        *("children", "earnings", "other_income", "household_income", "location_type", "region"),
        *("political_leaning", "ocean", "vals", "adoption", "consumer", "opinion"),
    }


def test_the_docs_mark_the_same_figures_as_unverified() -> None:
    text = re.sub(r"\s+", " ", DOCS.read_text())
    for name, source in joint.us_figures()["sources"].items():
        assert f"| `{name}` | {source['year']} | {source['status']} |" in text, name
