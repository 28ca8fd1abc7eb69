"""The population of the United States, from which the demographics of participants are drawn."""
# It is built from published tables (`joint.py`). If an attribute is fixed in advance, a random
# value is still drawn and then ignored. So fixing one attribute of a participant changes only
# attributes that depend on it.

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.people.enrichment import SCALES
from folkmoot.people.sources.grounded import joint

Figures = Mapping[str, Any]
Fixed = Mapping[str, Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The demographics of one participant."""

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
    race: str

    def standardised_scores(self) -> dict[str, float]:
        """Return the standardised scores on which traits and buying behaviour depend."""
        return {
            # The median household income and the standard deviation of its logarithm.
            "income": math.log(max(self.income_usd, 1000) / 74580) / 0.93,
            "education": (SCALES["education"].index(self.education) - 1.2) / 1.1,
            "age": (self.age - 47) / 17.0,
            "employed": 0.7 if self.employed else -1.0,
            "children": 1.2 if self.children else -0.6,
        }


def band_of(age: int, bands: Mapping[str, object]) -> str:
    """Return the age band (such as "25-34") that contains an age."""
    # An age above all bands gets the last band.
    for band in bands:
        if age <= int(band.split("-")[1]):
            return str(band)
    return str(list(bands)[-1])


# Known attributes in order of importance. Earlier ones decide first which people are similar.
_KNOWN = (
    *("sex", "age", "age_band", "race", "education", "income_usd", "income"),
    *("household", "occupation"),
)
_NEAR_YEARS = 3
# Incomes are similar if their natural logarithms differ by at most this much.
_NEAR_INCOME = 0.25


@dataclass(frozen=True)
class Population:
    """A table of people with weights, one person per row."""

    # The columns are those of `joint.sample_people`.

    frame: pl.DataFrame

    def draw_matching_person(self, fixed: Fixed, at: float) -> dict[str, Any]:
        """Return one randomly drawn person who has the attributes in `fixed`.

        - `at`: a random number from 0 to 1 that selects the person.
        """
        # An attribute is ignored if no person has it together with the attributes before it (in the
        # order of `_KNOWN`).
        chosen = self._matching_rows(fixed)
        weights = (
            self._column_values("weight")
            if chosen is None
            else self._column_values("weight") * chosen
        )
        edges = np.cumsum(weights)
        row_index = int(np.searchsorted(edges, at * edges[-1], side="right"))
        return self.frame.row(min(row_index, len(edges) - 1), named=True)

    # Drawing one person reads up to four columns with a row for each person of the population, and
    # a study draws thousands of people. So columns are converted once, and a comparison of texts is
    # made once for each distinct text.
    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return {name: self.frame[name].to_numpy() for name in self.frame.columns}

    @cached_property
    def _income_fifths(self) -> NDArray[Any]:
        return np.array([income_fifth(usd) for usd in self._column_values("income_usd")])

    @cached_property
    def _occupation_codes(self) -> tuple[list[str], NDArray[np.int64]]:
        # The second result holds the number of each person's occupation in the first.
        occupations, codes = np.unique(
            self._column_values("occupation").astype(str), return_inverse=True
        )
        return occupations.tolist(), codes

    def _column_values(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def _matching_rows(self, fixed: Fixed) -> Mask | None:
        chosen: Mask | None = None
        for key in _KNOWN:
            if key not in fixed:
                continue
            matches = self._rows_like(key, fixed[key], chosen)
            remaining = matches if chosen is None else matches & chosen
            # Ignore an attribute that none of the similar people has.
            if remaining.any():
                chosen = remaining
        return chosen

    def _rows_like(self, key: str, value: Any, chosen: Mask | None) -> Mask:
        if key == "age_band":
            ages, (low, high) = self._column_values("age"), value
            distances = np.maximum(np.maximum(low - ages, ages - high), 0)
            return np.asarray(
                distances <= (distances if chosen is None else distances[chosen]).min()
            )
        column = self._column_values("income_usd" if key == "income" else key)
        if key == "age":
            # Widen the range if no similar person has nearly the same age.
            distances = np.abs(column - int(value))
            chosen_distances = distances if chosen is None else distances[chosen]
            return np.asarray(distances <= max(_NEAR_YEARS, chosen_distances.min()))
        if key == "income_usd":
            return np.asarray(np.abs(np.log(column / max(int(value), 1))) <= _NEAR_INCOME)
        if key == "income":
            return np.asarray(self._income_fifths == value)
        return (
            self._rows_with_occupation(str(value))
            if key == "occupation"
            else np.asarray(column == value)
        )

    def _rows_with_occupation(self, occupation: str) -> Mask:
        # An unknown occupation is matched by its last word: "taxi driver" matches all drivers.
        # Words such as "retired" match people by their activity.
        names, codes = self._occupation_codes
        words = re.findall(r"[\w-]+", occupation.casefold())
        folded = occupation.casefold()
        exact_matches = np.array([name.casefold() == folded for name in names])[codes]
        if exact_matches.any() or not words:
            return exact_matches
        has_activity = self._column_values("activity") == next(
            (ACTIVITIES[word] for word in words if word in ACTIVITIES), "works"
        )
        trade_word = [word for word in words if word not in ACTIVITIES][-1:]
        has_trade = np.array(
            [name.removesuffix(" between jobs").split()[-1:] == trade_word for name in names]
        )[codes]
        return np.asarray(
            has_activity & has_trade if (has_activity & has_trade).any() else has_activity
        )


# Words for people who do not work → their activity in the population.
ACTIVITIES = {
    **dict.fromkeys(("unemployed", "jobless", "jobseeker"), "looks for work"),
    **dict.fromkeys(("retired", "retiree", "pensioner"), "retired"),
    **dict.fromkeys(("student", "pupil"), "studies"),
    **dict.fromkeys(("housewife", "househusband", "stay-at-home"), "at home"),
}


@lru_cache(maxsize=1)
def united_states() -> Population:
    """Return the packaged population of the United States."""
    return Population(joint.sample_people())


def draw_circumstances(rng: np.random.Generator, data: Figures, fixed: Fixed) -> Circumstances:
    """Return the demographics of a randomly drawn person who has the attributes in `fixed`."""
    # Location is drawn independently. Political leaning is drawn by age.
    row = united_states().draw_matching_person(fixed, rng.random())
    # Matching people may be outside the band if no one inside it is similar enough.
    low, high = fixed.get("age_band", (row["age"], row["age"]))
    age = int(fixed.get("age", min(max(row["age"], low), high)))
    usd = int(fixed.get("income_usd", row["income_usd"]))
    income = str(fixed.get("income", income_fifth(usd)))
    location_type = str(fixed.get("location_type", _pick_key(rng, data["location_type"]["shares"])))
    location = _draw_location(rng, data, location_type)
    by_age = data["political_leaning"]["shares"]
    leaning = _pick_key(rng, by_age[band_of(age, by_age)])
    return Circumstances(
        age=age,
        sex=str(fixed.get("sex", row["sex"])),
        education=str(fixed.get("education", row["education"])),
        income=income,
        income_usd=usd
        if income_fifth(usd) == income or "income_usd" in fixed
        else _typical_income(income),
        occupation=str(fixed.get("occupation", row["occupation"])),
        employed=row["activity"] == "works",
        location=str(fixed.get("location", location)),
        location_type=location_type,
        household=str(fixed.get("household", row["household"])),
        children=row["children"] > 0,
        political_leaning=str(fixed.get("political_leaning", leaning)),
        race=str(fixed.get("race", row["race"])),
    )


def _pick_key(rng: np.random.Generator, shares: Mapping[str, float]) -> str:
    at = rng.random() * math.fsum(shares.values())
    for key, share in shares.items():
        at -= share
        if at < 0:
            return str(key)
    return str(list(shares)[-1])


def income_fifth(usd: float) -> str:
    """Return the fifth of US households to which this yearly income in USD belongs."""
    above = sum(usd > limit for limit in joint.us_figures()["household_income"]["fifths"])
    return SCALES["income"][int(above)]


def _typical_income(income: str) -> int:
    # Assumed ends of the lowest and the highest fifth, so that each has a geometric middle.
    limits = [15_000, *joint.us_figures()["household_income"]["fifths"], 260_000]
    at = SCALES["income"].index(income)
    return int(round(math.sqrt(limits[at] * limits[at + 1]), -2))


def _draw_location(rng: np.random.Generator, data: Figures, location_type: str) -> str:
    region = _pick_key(rng, data["region"]["shares"])
    cities = data["cities"][region]
    city = cities[int(rng.integers(len(cities)))]
    return {
        "urban": f"{city}",
        "suburban": f"a suburb of {city}",
        "rural": f"a small town in {city.split(', ')[1]}",
    }[location_type]
