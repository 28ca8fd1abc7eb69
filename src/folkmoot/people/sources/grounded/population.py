"""The population of a country: its figures read from file, and one person's demographics drawn.

Every draw is made whether or not its value is fixed in advance, so that fixing one attribute of a
person changes nothing that does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from folkmoot.errors import InputError
from folkmoot.files import packaged_yaml
from folkmoot.people.enrichment import SCALES
from folkmoot.people.sources.names import occupations

Figures = Mapping[str, Any]
Fixed = Mapping[str, Any]


@lru_cache(maxsize=4)
def figures(country: str = "us") -> dict[str, Any]:
    """Every figure of a country. Raises InputError for one that is not packaged."""
    if country != "us":
        raise InputError(f"no population data for country {country!r}; available: us")
    data: dict[str, Any] = packaged_yaml(__file__, f"{country}.yaml")
    return data


@dataclass(frozen=True, slots=True)
class Circumstances:
    """One person's demographics, with the standardised scores that the rest depends on."""

    age: int
    sex: str
    education: str
    income: str
    income_usd: int
    occupation: str
    employed: bool
    location: str
    location_type: str
    household: str
    children: bool
    political_leaning: str

    def scores(self) -> dict[str, float]:
        """Standardised scores: income by its rank in fifths of dollars, education by its rank."""
        return {
            "income": math.log(max(self.income_usd, 1000) / 74580) / 0.93,
            "education": (SCALES["education"].index(self.education) - 1.2) / 1.1,
            "age": (self.age - 47) / 17.0,
            "employed": 0.7 if self.employed else -1.0,
            "children": 1.2 if self.children else -0.6,
        }


def band_of(age: int, bands: Mapping[str, Any]) -> str:
    """The band ("25-34") that an age falls into; the nearest for ages outside all of them."""
    for band in bands:
        if age <= int(band.split("-")[1]):
            return str(band)
    return str(list(bands)[-1])


def draw_circumstances(rng: np.random.Generator, data: Figures, fixed: Fixed) -> Circumstances:
    """Demographics in the order in which they depend on each other: age, education, income, …."""
    band = _pick(rng, data["age"])
    low, high = map(int, band.split("-"))
    age = int(fixed.get("age", int(rng.integers(low, high + 1))))
    band = band_of(age, data["age"])
    sex = str(fixed.get("sex", _pick(rng, data["sex"])))
    education = str(fixed.get("education", _education(rng, data, band, age)))
    usd = int(fixed.get("income_usd", _income(rng, data, education, band)))
    income = str(fixed.get("income", _fifth(usd, data)))
    household, children = _household(rng, data, band)
    activity = _pick(rng, data["activity"][band])
    occupation, employed = _occupation(rng, activity, education, children, str(data["country"]))
    location_type = str(fixed.get("location_type", _pick(rng, data["location_type"])))
    return Circumstances(
        age=age,
        sex=sex,
        education=education,
        income=income,
        income_usd=usd if "income" not in fixed or "income_usd" in fixed else _middle(income, data),
        occupation=str(fixed.get("occupation", occupation)),
        employed=employed,
        location=str(fixed.get("location", _location(rng, data, location_type))),
        location_type=location_type,
        household=str(fixed.get("household", household)),
        children=children,
        political_leaning=str(
            fixed.get("political_leaning", _pick(rng, data["political_leaning"][band]))
        ),
    )


def _pick(rng: np.random.Generator, shares: Mapping[str, float]) -> str:
    """A key, with probability in proportion to its share. One draw."""
    at = rng.random() * sum(shares.values())
    for key, share in shares.items():
        at -= share
        if at < 0:
            return str(key)
    return str(list(shares)[-1])


def _education(rng: np.random.Generator, data: Figures, band: str, age: int) -> str:
    """Attainment of the age band; a degree that takes longer than somebody has lived is lowered."""
    drawn = _pick(rng, data["education"][band])
    youngest = {"Bachelor's degree": 21, "Master's degree": 23, "Doctorate": 27}
    while age < youngest.get(drawn, 0):
        scale = SCALES["education"]
        drawn = scale[scale.index(drawn) - 1]
    return drawn


def _income(rng: np.random.Generator, data: Figures, education: str, band: str) -> int:
    terms = data["income"]
    median = terms["median_by_education"][education] * terms["factor_by_age"][band]
    dollars = median / terms["scale"] * math.exp(terms["log_sd"] * rng.standard_normal())
    return int(round(min(900_000.0, max(8_000.0, dollars)), -2))


def _fifth(usd: int, data: Figures) -> str:
    above: int = sum(usd > limit for limit in data["income"]["fifths"])
    return SCALES["income"][int(above)]


def _middle(income: str, data: Figures) -> int:
    """A typical income of a fifth, for those of whom only the fifth is known."""
    limits = [15_000, *data["income"]["fifths"], 260_000]
    at = SCALES["income"].index(income)
    return int(round(math.sqrt(limits[at] * limits[at + 1]), -2))


def _occupation(
    rng: np.random.Generator, activity: str, education: str, children: bool, country: str
) -> tuple[str, bool]:
    """(occupation, whether in work). Some work below their education: one in five."""
    levels = list(SCALES["education"])
    at = levels.index(education)
    if rng.random() < 0.2 and at > 0:
        at -= 1
    jobs = occupations(country)[levels[at]]
    job = jobs[int(rng.integers(len(jobs)))]
    if activity == "retired":
        return f"retired {job}", False
    if activity == "studies":
        return ("graduate student" if at >= 2 else "college student"), False
    if activity == "at home":
        return ("stay-at-home parent" if children else "homemaker"), False
    if activity == "looks for work":
        return f"{job} between jobs", False
    return job, True


def _location(rng: np.random.Generator, data: Figures, location_type: str) -> str:
    region = _pick(rng, data["region"])
    cities = data["cities"][region]
    city = cities[int(rng.integers(len(cities)))]
    return {
        "urban": f"{city}",
        "suburban": f"a suburb of {city}",
        "rural": f"a small town in {city.split(', ')[1]}",
    }[location_type]


def _household(rng: np.random.Generator, data: Figures, band: str) -> tuple[str, bool]:
    """(with whom somebody lives, whether children are at home)."""
    kind = _pick(rng, data["household"][band])
    couple = kind in {"spouse", "partner"}
    has = rng.random() < data["children"]["couples" if couple else "others"][band]
    how_many = 1 + int(rng.random() < 0.58) + int(rng.random() < 0.2)
    if kind in {"parents", "roommates"}:
        has = False
    words = {
        "parents": "with parents",
        "roommates": "with relatives" if band in {"45-54", "55-64", "65-79"} else "with roommates",
        "partner": "with a partner",
        "spouse": "with a spouse",
        "alone": "alone",
    }[kind]
    if not has:
        return words, False
    brood = "one child" if how_many == 1 else f"{('two', 'three')[how_many - 2]} children"
    return (f"{words} and {brood}" if couple else f"with {brood}"), True
