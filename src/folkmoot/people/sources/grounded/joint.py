"""The population of the United States as one table, built from several published tables."""
# No published table has all attributes of a persona. Each published table has two or three
# attributes. The associations between the other attributes come from counts of survey respondents.
# `rake_table` adjusts these counts until they agree with all published tables. `sample_people`
# turns the fitted table into people with an occupation and an income. Every figure is in `us.yaml`
# with its source.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.files import packaged_yaml
from folkmoot.people.enrichment import SCALES
from folkmoot.people.sources.grounded.profile import RACES
from folkmoot.people.sources.grounded.raking import Array, RakingMargin, rake_table
from folkmoot.randomness import generator

Index = NDArray[np.intp]

SEXES = ("F", "M")
ACTIVITIES = ("works", "looks for work", "studies", "at home", "retired")
HOMES = ("spouse", "partner", "parents", "roommates", "alone")
DEGREES = SCALES["education"]
SEX, AGE, EDUCATION, ACTIVITY, RACE, HOME = range(6)

# Enough that most combinations of sex, age, education and race occur.
PEOPLE = 20_000
_GSS_DEGREES = (DEGREES[0], DEGREES[1], DEGREES[2], "Graduate degree")
_MARITAL = ("married", "never", "was married")
# Shares of doctorates among the graduate degrees of an occupation. For others it is 3 % (assumed).
_DOCTORATE_SHARES = {
    **dict.fromkeys(("physician", "dentist", "veterinarian", "pharmacist"), 0.97),
    **dict.fromkeys(("college teacher", "medical researcher", "psychologist"), 0.5),
    **dict.fromkeys(("biologist", "chemist"), 0.4),
}
# The lowest degree that an occupation requires by law or custom. Survey answers have exceptions.
_REQUIRED_DEGREES = {
    **dict.fromkeys(("physician", "dentist", "veterinarian"), "Doctorate"),
    **dict.fromkeys(("lawyer", "nurse practitioner", "speech therapist"), "Master's degree"),
    **dict.fromkeys(("physician assistant", "occupational therapist"), "Master's degree"),
    **dict.fromkeys(("elementary school teacher", "high school teacher"), "Bachelor's degree"),
    **dict.fromkeys(("pharmacist", "physical therapist", "architect"), "Bachelor's degree"),
}
_MIN_AGES_OF_DEGREES = {"Bachelor's degree": 21, "Master's degree": 23, "Doctorate": 27}
_RESPONSIBLE = re.compile(
    r"manager|supervisor|executive|director|administrator|police|nurse|hygienist|paralegal|lender|"
    r"teacher|counselor|officer|adjuster|agent|therapist"
)
# The minimum age for responsible occupations, and for those with 40 % or more degrees (assumed).
_MIN_RESPONSIBLE_AGE = 21
# Income noise is cut at this many standard deviations, which avoids extreme incomes.
_MAX_NOISE_SD = 2.2


# --- the core: sex, age, education, activity, race, home -----------------------------------------


@lru_cache(maxsize=1)
def us_figures() -> dict[str, Any]:
    """Return all published statistics of the United States."""
    figures: dict[str, Any] = packaged_yaml(__file__, "us.yaml")
    return figures


def _read_figures_table(name: str) -> pl.DataFrame:
    return pl.read_csv(files(__package__).joinpath(name).read_bytes())


def age_bands() -> tuple[str, ...]:
    """Return the age bands of the population, youngest first."""
    return tuple(us_figures()["age"]["bands"])


def _table_shares(rows: Iterable[Mapping[str, float]], columns: Sequence[str]) -> Array:
    counts = np.array([[row[column] for column in columns] for row in rows], dtype=float)
    result: Array = counts / counts.sum(axis=1, keepdims=True)
    return result


@lru_cache(maxsize=1)
def core_margins() -> tuple[RakingMargin, ...]:
    """Return the published shares with which the simulated population must agree."""
    # The order matters: if published tables contradict each other, the last ones are met exactly.
    figures_us = us_figures()
    ages = np.array([*figures_us["age"]["bands"].values()], dtype=float)
    ages = ages / ages.sum()
    women = np.array([*figures_us["sex"]["women"].values()]) / 100
    sexes = np.stack([women, 1 - women], axis=1)
    races = np.array([_race_shares(row) for row in figures_us["race_by_age"]["employed"].values()])
    old = ages[2:] / ages[2:].sum()
    adults = {AGE: slice(2, None)}
    working = {ACTIVITY: slice(0, 1)}
    degree = {EDUCATION: (0, 0, 1, 1, 1)}
    by_sex = [figures_us["degrees_by_sex"]["shares"][sex] for sex in SEXES]
    # The figure for all races replaces that of a race without a published one.
    by_race = [figures_us["degrees_by_race"]["shares"].get(race, 37.7) for race in RACES]
    employed = figures_us["employed_by_education"]["thousands"].values()
    by_age = {
        "household": (
            HOME,
            _table_shares(figures_us["household_by_age"]["shares"].values(), HOMES),
        ),
        "race": (RACE, races),
        "education": (
            EDUCATION,
            _table_shares(figures_us["education_by_age"]["shares"].values(), DEGREES),
        ),
        "activity": (
            ACTIVITY,
            _table_shares(figures_us["activity_by_age"]["shares"].values(), ACTIVITIES),
        ),
        "sex": (SEX, sexes),
    }
    return (
        RakingMargin(
            "degrees by race, 25 and over",
            (RACE, EDUCATION),
            _with_degrees(old @ races[2:], by_race),
            adults,
            degree,
        ),
        RakingMargin(
            "degrees by sex, 25 and over",
            (SEX, EDUCATION),
            _with_degrees(old @ sexes[2:], by_sex),
            adults,
            degree,
        ),
        RakingMargin(
            "education of those at work, 25 and over",
            (EDUCATION,),
            _normalise_counts(employed),
            {**adults, **working},
            {EDUCATION: (0, 1, 2, 2, 2)},
        ),
        RakingMargin(
            "sex of those at work",
            (SEX,),
            _normalise_counts(figures_us["employed_by_sex"]["thousands"].values()),
            working,
        ),
        *(
            RakingMargin(f"{name} by age", (AGE, axis), ages[:, None] * shares)
            for name, (axis, shares) in by_age.items()
        ),
    )


def _normalise_counts(counts: Iterable[float]) -> Array:
    values = np.array([*counts], dtype=float)
    shares: Array = values / values.sum()
    return shares


def _with_degrees(groups: Array, per_cent: Sequence[float]) -> Array:
    degree = np.array(per_cent) / 100
    return np.stack([groups * (1 - degree), groups * degree], axis=1)


def _race_shares(counts: Sequence[float]) -> Array:
    # `counts`: all, white, Black, Asian and Hispanic people. The published counts of white and
    # Black people include Hispanic people. 90 % of Hispanic people are assumed to be in the white
    # count, and 3 % in the Black count.
    total, white, black, asian, hispanic = counts
    alone = np.array([white - 0.9 * hispanic, black - 0.03 * hispanic, asian, hispanic])
    alone = np.maximum(alone, 0.001 * total)
    return _normalise_counts([*alone, max(total - alone.sum(), 0.005 * total)])


@lru_cache(maxsize=1)
def core_shares() -> Array:
    """Return the share of people with each combination of six attributes.

    The axes of the array are sex, age, education, activity, race and home.
    """
    seed = np.zeros(
        (len(SEXES), len(age_bands()), len(_GSS_DEGREES), len(ACTIVITIES), len(_MARITAL))
    )
    for sex, age, degree, activity, marital, people in _read_figures_table(
        "us_gss.csv"
    ).iter_rows():
        at = (SEXES.index(sex), age_bands().index(age), _GSS_DEGREES.index(degree))
        seed[(*at, ACTIVITIES.index(activity), _MARITAL.index(marital))] = people
    # A combination that the sample lacks is rare, not impossible, so every cell gets a small count.
    seed += 0.02 * seed.sum(axis=(2, 3, 4), keepdims=True) / seed[0, 0].size
    seed = seed / seed.sum()
    graduate = seed[:, :, 3:]
    by_degree = np.concatenate([seed[:, :, :3], 0.85 * graduate, 0.15 * graduate], axis=2)
    # Age band → index of the first degree that no person of this age has.
    young = {"18-19": 2, "20-24": 4}
    for band, first in young.items():
        by_degree[:, age_bands().index(band), first:] = 0
    return rake_table(
        np.einsum("saecm,mh->saech", by_degree, _home_shares())[:, :, :, :, None, :].repeat(
            len(RACES), 4
        ),
        core_margins(),
    )


def _home_shares() -> Array:
    rows = [{"spouse": 1.0}, *(us_figures()["unmarried"][status] for status in _MARITAL[1:])]
    return np.array([[row.get(home, 0.0) for home in HOMES] for row in rows])


# --- occupations of those at work ----------------------------------------------------------------


@dataclass(frozen=True)
class Jobs:
    """The occupations of the population, and the share of workers in each occupation."""

    # One name and one title for each occupation.
    names: tuple[str, ...]
    titles: tuple[str, ...]
    # The contribution of each occupation to the logarithm of earnings.
    pay: Array
    # Shares of workers, with the axes job, sex, age, education and race.
    table: Array
    # The published margins of `table`.
    margins: tuple[RakingMargin, ...]


@lru_cache(maxsize=1)
def raked_occupations() -> Jobs:
    """Return the occupations of the population. Their shares agree with published tables."""
    frame = _read_figures_table("us_occupations.csv")
    names = frame["job"].to_list()
    size = _normalise_counts(frame["thousands"].to_list())
    women = frame["women"].to_numpy() / 100
    ages = frame.select(pl.col("^age_.*$")).to_numpy().astype(float)
    # The published band is 16-19. Remove the workers of 16 and 17.
    ages[:, 0] *= np.where(_needs_min_age(frame), 0, 0.64)
    ages = ages / ages.sum(axis=1, keepdims=True)
    counts = frame.select("white", "black", "asian", "hispanic").to_numpy()
    races = np.array([_race_shares([100, *row]) for row in counts])
    schooling = np.array([_degree_shares(*row) for row in _schooling_rows(frame)])
    sexes = np.stack([women, 1 - women], axis=1)
    seed = np.einsum("j,js,ja,je,jr->jsaer", size, sexes, ages, schooling, races)
    working = core_shares()[:, :, :, 0].sum(axis=-1)
    margins = (
        RakingMargin("occupation by race", (0, 4), size[:, None] * races),
        RakingMargin("occupation by age", (0, 2), size[:, None] * ages),
        RakingMargin("occupation by sex", (0, 1), size[:, None] * sexes),
        RakingMargin("people at work", (1, 2, 3, 4), working / working.sum()),
    )
    pay = frame["pay"].to_numpy()
    return Jobs(
        tuple(names), tuple(frame["bls_title"].to_list()), pay, rake_table(seed, margins), margins
    )


def likely_job(sex: str, age: int, education: str, at: float) -> str:
    """Return a random occupation that workers with this sex, age and education have.

    - `at`: a random number from 0 to 1 that selects the occupation.
    """
    # Each occupation has a part of the range from 0 to 1 that is as large as its share.
    ages = [int(band.split("-")[1]) for band in age_bands()]
    band = min(int(np.searchsorted(ages, age)), len(ages) - 1)
    table = raked_occupations().table[:, SEXES.index(sex), :, DEGREES.index(education)].sum(axis=-1)
    shares = table[:, band] if table[:, band].any() else table.sum(axis=1)
    edges = np.cumsum(shares)
    return raked_occupations().names[
        min(int(np.searchsorted(edges, at * edges[-1], "right")), len(edges) - 1)
    ]


def _needs_min_age(frame: pl.DataFrame) -> NDArray[np.bool_]:
    responsible = [bool(_RESPONSIBLE.search(job)) for job in frame["job"]]
    schooled = (frame["bachelor"] + frame["graduate"]).to_numpy() >= 40
    return np.array(responsible) | schooled


def _schooling_rows(frame: pl.DataFrame) -> Iterable[tuple[Any, ...]]:
    return frame.select("job", "high_school", "associate", "bachelor", "graduate").iter_rows()


def _degree_shares(
    job: str, school: float, associate: float, bachelor: float, graduate: float
) -> Array:
    # The survey counts some college without a degree as high school. So some workers with high
    # school are assumed to have some college. Their share is larger if many workers in the
    # occupation have degrees.
    began = school * (0.3 + 0.4 * (bachelor + graduate) / 100)
    doctors = graduate * _DOCTORATE_SHARES.get(job, 0.03)
    shares = np.array([school - began, associate + began, bachelor, graduate - doctors, doctors])
    needed = DEGREES.index(_REQUIRED_DEGREES.get(job, DEGREES[0]))
    shares[:needed] = 0
    return _normalise_counts(shares)


# --- persons -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def sample_people() -> pl.DataFrame:
    """Return a table of 20,000 simulated people. Each call returns the same people.

    Columns that need an explanation:

    - `income_usd`: the income of the household in dollars of 2022.
    - `adults`: the number of adults in the household.
    - `weight`: a constant, because all people count equally.
    """
    rng = generator(0, ("people", "us"))
    shares = core_shares().ravel()
    edges = np.cumsum(shares) * PEOPLE
    # Systematic sampling: each cell gets its expected number of people, rounded up or down.
    cells = np.searchsorted(edges, np.arange(PEOPLE) + 0.5)
    attributes = np.array(np.unravel_index(np.minimum(cells, shares.size - 1), core_shares().shape))
    sex, band, education, activity, race, home = attributes[:, rng.permutation(PEOPLE)]
    job = _draw_jobs(sex, band, education, race, rng)
    age = _draw_ages(
        band, education, _needs_min_age(_read_figures_table("us_occupations.csv"))[job], rng
    )
    own = _draw_own_incomes(sex, band, education, activity, job, rng)
    own = own * _living_alone_factors(activity, home)
    adults, total = _draw_households(sex, band, education, home, own, rng)
    children = _draw_children(sex, band, home, rng)
    names = np.array(raked_occupations().names)
    return pl.DataFrame(
        {
            "age": age,
            "sex": np.array(SEXES)[sex],
            "education": np.array(DEGREES)[education],
            "race": np.array(RACES)[race],
            "activity": np.array(ACTIVITIES)[activity],
            "occupation": [
                _describe_occupation(
                    ACTIVITIES[activity_index],
                    str(names[job_index]),
                    DEGREES[education_index],
                    HOMES[home_index],
                    bool(child_count),
                )
                for activity_index, job_index, education_index, home_index, child_count in zip(
                    activity, job, education, home, children, strict=True
                )
            ],
            "household": [
                _describe_household(HOMES[home_index], int(band), int(child_count))
                for home_index, band, child_count in zip(home, band, children, strict=True)
            ],
            "children": children,
            "own_income_usd": np.round(own, -2).astype(int),
            "income_usd": np.round(_to_published(total, 1 / adults), -2).astype(int),
            "adults": adults,
            "weight": np.ones(PEOPLE),
        }
    )


def _draw_jobs(
    sex: Index, band: Index, education: Index, race: Index, rng: np.random.Generator
) -> Index:
    # A person without work gets the last or the desired occupation.
    table = np.moveaxis(raked_occupations().table, 0, -1)
    kinds = np.ravel_multi_index((sex, band, education, race), table.shape[:-1])
    edges = np.cumsum(table.reshape(-1, table.shape[-1]), axis=1)
    # If no one with the same four attributes works, use the shares for sex and education.
    fallback_edges = np.cumsum(table.sum(axis=(1, 3)), axis=-1)
    chosen = np.empty(len(sex), dtype=np.intp)
    for person, kind in enumerate(kinds):
        shares = (
            edges[kind] if edges[kind, -1] > 0 else fallback_edges[sex[person], education[person]]
        )
        chosen[person] = np.searchsorted(shares, rng.random() * shares[-1], side="right")
    return np.asarray(np.minimum(chosen, table.shape[-1] - 1))


def _draw_ages(
    band: Index, education: Index, of_age: NDArray[np.bool_], rng: np.random.Generator
) -> Index:
    limits = np.array([[int(x) for x in band.split("-")] for band in age_bands()])
    low, high = limits[band].T
    youngest = np.array([_MIN_AGES_OF_DEGREES.get(degree, 0) for degree in DEGREES])[education]
    youngest = np.maximum(youngest, np.where(of_age, _MIN_RESPONSIBLE_AGE, 0))
    return np.asarray(rng.integers(np.maximum(low, np.minimum(youngest, high)), high + 1))


def _bounded_noise(count: int, rng: np.random.Generator) -> Array:
    return np.clip(rng.standard_normal(count), -_MAX_NOISE_SD, _MAX_NOISE_SD)


def _draw_own_incomes(
    sex: Index, band: Index, education: Index, activity: Index, job: Index, rng: np.random.Generator
) -> Array:
    terms, other = us_figures()["earnings"], us_figures()["other_income"]
    part = np.array(
        [[terms["part_time_share"][sex][band] for band in age_bands()] for sex in SEXES]
    )
    # The effects are added to the logarithm, so each of them multiplies the earnings.
    log = terms["level"] + raked_occupations().pay[job]
    log = log + np.where(sex == 0, terms["female"], 0.0)
    log = log + np.array([terms["age"][band] for band in age_bands()])[band]
    schooling = np.array([terms["education"][degree] for degree in DEGREES])[education]
    log = log + schooling
    former = _centred_former_pay(raked_occupations().pay[job] + schooling, sex, activity)
    # Only people who work can work part-time.
    works = ACTIVITIES.index("works")
    log = log + np.where(
        (rng.random(len(sex)) < part[sex, band]) & (activity == works), terms["part_time"], 0.0
    )
    log = log + terms["log_sd"] * _bounded_noise(len(sex), rng)
    earned = terms["prices"] * np.exp(log)
    spread = np.exp(other["log_sd"] * _bounded_noise(len(sex), rng))
    retired = np.array([other["retired"][sex] for sex in SEXES])[sex]
    retired = retired * np.exp(other["retired_by_former_pay"] * former)
    kinds = {
        "looks for work": earned * other["looks for work"],
        "studies": other["studies"] * spread,
        "at home": other["at home"] * spread,
        "retired": retired * spread,
    }
    income = earned
    for kind, amount in kinds.items():
        income = np.where(activity == ACTIVITIES.index(kind), amount, income)
    return np.asarray(income)


def _living_alone_factors(activity: Index, home: Index) -> Array:
    # The factor is above 1 for people "at home" who live alone, and 1 for all others.
    other = us_figures()["other_income"]
    keeps = (activity == ACTIVITIES.index("at home")) & (home == HOMES.index("alone"))
    return np.where(keeps, other["at home alone"] / other["at home"], 1.0)


def _centred_former_pay(log_pay: Array, sex: Index, activity: Index) -> Array:
    # Without this, the median income of retired people would differ from the published median.
    centred = np.array(log_pay, dtype=float)
    for number in range(len(SEXES)):
        retired = (activity == ACTIVITIES.index("retired")) & (sex == number)
        centred[sex == number] -= np.median(log_pay[retired])
    return centred


def _draw_households(
    sex: Index, band: Index, education: Index, home: Index, own: Array, rng: np.random.Generator
) -> tuple[Index, Array]:
    # A spouse or partner has the other sex, the same age band and the same education. Parents are a
    # woman and a man of 45 to 64. Roommates are one or two people of the same age band. Couples of
    # the same sex are left out, because no published table was available.
    indices = np.arange(len(sex))

    def draw_partner_income(people: Index, like: Sequence[tuple[Index, Index]]) -> Array:
        # Each pair in `like` is one attribute of the partners. Its first array is the value that
        # each of `people` needs, and its second array is the value of everyone in the population.
        # If no partner has all attributes, only the first attribute counts.
        wanted_kinds = np.stack([wanted for wanted, _ in like], axis=1)
        kinds = np.stack([known for _, known in like], axis=1)
        incomes = np.empty(len(people))
        for kind in np.unique(wanted_kinds, axis=0):
            members = np.flatnonzero((wanted_kinds == kind).all(axis=1))
            pool = np.flatnonzero((kinds == kind).all(axis=1))
            if not len(pool):
                pool = np.flatnonzero(kinds[:, 0] == kind[0])
            incomes[members] = own[pool[rng.integers(len(pool), size=len(members))]]
        return incomes

    adults = np.ones(len(sex), dtype=np.intp)
    total = own.copy()
    couple = indices[home <= 1]
    alike = [(attribute[couple], attribute) for attribute in (band, education)]
    total[couple] += draw_partner_income(couple, [(1 - sex[couple], sex), *alike])
    adults[couple] = 2
    child = indices[home == HOMES.index("parents")]
    parents_age = np.isin(band, [age_bands().index("45-54"), age_bands().index("55-64")]).astype(
        np.intp
    )
    for parent, chance in ((0, 0.85), (1, 0.65)):
        with_parent = child[rng.random(len(child)) < chance]
        ones = np.ones(len(with_parent), dtype=np.intp)
        total[with_parent] += draw_partner_income(
            with_parent, [(ones * parent, sex), (ones, parents_age)]
        )
        adults[with_parent] += 1
    shared = indices[home == HOMES.index("roommates")]
    for mate in (shared, shared[rng.random(len(shared)) < 0.5]):
        total[mate] += draw_partner_income(mate, [(band[mate], band)])
        adults[mate] += 1
    return adults, total


def _to_published(incomes: Array, weights: Array) -> Array:
    terms = us_figures()["household_income"]
    shares = np.array([0.2, 0.4, 0.5, 0.6, 0.8, 0.95])
    first, second, third, fourth = terms["fifths"]
    published = np.log([first, second, terms["median"], third, fourth, terms["top_twentieth"]])
    order = np.argsort(incomes)
    ranks = np.cumsum(weights[order]) / weights.sum()
    observed = np.log(incomes[order[np.searchsorted(ranks, shares)]])
    log_incomes = np.log(incomes)
    adjusted = np.interp(log_incomes, observed, published)
    # Beyond the outermost published quantiles, shift by the same factor as at the quantile.
    adjusted = np.where(
        log_incomes < observed[0], log_incomes + published[0] - observed[0], adjusted
    )
    adjusted = np.where(
        log_incomes > observed[-1], log_incomes + published[-1] - observed[-1], adjusted
    )
    return np.clip(np.exp(adjusted), 3_000, 900_000)


def _draw_children(sex: Index, band: Index, home: Index, rng: np.random.Generator) -> Index:
    terms = us_figures()["children"]
    couples, others = (
        np.array([terms[key][band] for band in age_bands()]) for key in ("couples", "others")
    )
    mothers = 2 * terms["mothers_of_one_parent"]
    single_chance = others[band] * np.where(sex == 0, mothers, 2 - mothers)
    chance = np.where(
        home <= 1, couples[band], np.where(home == HOMES.index("alone"), single_chance, 0)
    )
    child_counts = 1 + (rng.random(len(sex)) < 0.58) + (rng.random(len(sex)) < 0.2)
    return np.where(rng.random(len(sex)) < chance, child_counts, 0)


def _describe_occupation(activity: str, job: str, degree: str, home: str, children: bool) -> str:
    if activity == "retired":
        return f"retired {job}"
    if activity == "studies":
        return "graduate student" if DEGREES.index(degree) >= 2 else "college student"
    if activity == "at home":
        if children:
            return "stay-at-home parent"
        # A person who lives alone is no homemaker. Most people in this cell are ill or have stopped
        # looking for work.
        return f"former {job}" if home == "alone" else "homemaker"
    return f"{job} between jobs" if activity == "looks for work" else job


def _describe_household(home: str, band: int, children: int) -> str:
    # The phrase follows "lives", as in "with a partner and one child".
    words = {
        "parents": "with parents",
        "roommates": "with relatives" if band >= age_bands().index("45-54") else "with roommates",
        "partner": "with a partner",
        "spouse": "with a spouse",
        "alone": "alone",
    }[home]
    if not children:
        return words
    brood = ("one child", "two children", "three children")[children - 1]
    return f"with {brood}" if home == "alone" else f"{words} and {brood}"
