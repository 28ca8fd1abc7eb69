"""Draw names by sex and year of birth. No two people of a group get the same name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_uppercase
from typing import Any

import numpy as np

from folkmoot.files import packaged_yaml

# The year of the packaged population. A birth year is this year minus the age.
REFERENCE_YEAR = 2022


@dataclass(frozen=True, slots=True)
class NameBook:
    """Names from the United States: family names, and given names by sex and year of birth."""

    # By sex: pairs (first birth year, names), oldest first.
    given: dict[str, tuple[tuple[int, tuple[str, ...]], ...]]
    # Family names.
    family: tuple[str, ...]

    def given_for(self, sex: str, age: int) -> tuple[str, ...]:
        """Return the given names that occur among people of this sex and age."""
        # For "X", the names of both other sexes.
        if sex == "X":
            return (*self.given_for("F", age), *self.given_for("M", age))
        born = REFERENCE_YEAR - age
        cohorts = self.given[sex]
        fitting = [names for first, names in cohorts if born >= first]
        return fitting[-1] if fitting else cohorts[0][1]


@lru_cache(maxsize=1)
def name_book() -> NameBook:
    """Return the packaged names."""
    data: dict[str, Any] = packaged_yaml(__file__, "names_us.yaml")
    given = {
        sex: tuple((int(cohort["from"]), tuple(cohort["names"])) for cohort in cohorts)
        for sex, cohorts in data["given"].items()
    }
    return NameBook(given, tuple(data["family"]))


def draw_names(
    people: Sequence[tuple[str, int]],
    rng: np.random.Generator,
    taken: Collection[str] = (),
) -> list[str]:
    """Return a different full name for each person, in order.

    - `people`: (sex, age) of each person.
    - `taken`: given names that must not be drawn.
    """
    # A given name repeats only after all names of people of the same sex and age were used. In
    # very large groups, names get middle initials.
    book = name_book()
    used_given: set[str] = set(taken)
    used_full: set[str] = set()
    # Cohort → its unused given names.
    unused_names: dict[tuple[str, ...], list[str]] = {}
    # Cohort → how often all of its full names were used up.
    initials_number: dict[tuple[str, ...], int] = {}
    names: list[str] = []
    for sex, age in people:
        cohort = book.given_for(sex, age)
        unused = unused_names[cohort] = [
            given_name
            for given_name in unused_names.get(cohort, cohort)
            if given_name not in used_given
        ]
        while (
            full := _draw_full_name(
                unused or cohort, initials_number.get(cohort, 0), book.family, used_full, rng
            )
        ) is None:
            initials_number[cohort] = initials_number.get(cohort, 0) + 1
        used_given.add(full.split(" ", 1)[0])
        used_full.add(full)
        names.append(full)
    return names


def _draw_full_name(
    given: Sequence[str],
    initials_number: int,
    family: Sequence[str],
    used: set[str],
    rng: np.random.Generator,
) -> str | None:
    # `initials_number` selects the middle initials: 0 for none, 1 for "A.", 27 for "A. A.".
    initials = ""
    while initials_number:
        initials_number, letter = divmod(initials_number - 1, 26)
        initials = f"{ascii_uppercase[letter]}. {initials}"
    # With half of the names used, 40 tries fail with a probability below 10⁻¹².
    for _ in range(40):
        first, last = given[int(rng.integers(len(given)))], family[int(rng.integers(len(family)))]
        if (full := f"{first} {initials}{last}") not in used:
            return full
    return None
