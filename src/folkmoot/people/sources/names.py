"""Names by sex and year of birth, without repeats in a group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_uppercase
from typing import Any

import numpy as np

from folkmoot.files import packaged_yaml

# The year whose population the packaged figures describe; ages are counted back from it.
REFERENCE_YEAR = 2022


@dataclass(frozen=True, slots=True)
class NameBook:
    """Names of the United States. `given[sex]` is [(first birth year, names), …], oldest first."""

    given: dict[str, tuple[tuple[int, tuple[str, ...]], ...]]
    family: tuple[str, ...]

    def given_for(self, sex: str, age: int) -> tuple[str, ...]:
        """Return given names of the birth cohort of this sex ("F", "M"; "X": both) and age."""
        if sex == "X":
            return (*self.given_for("F", age), *self.given_for("M", age))
        born = REFERENCE_YEAR - age
        cohorts = self.given[sex]
        fitting = [names for first, names in cohorts if born >= first]
        return fitting[-1] if fitting else cohorts[0][1]


@lru_cache(maxsize=1)
def name_book() -> NameBook:
    """The packaged names."""
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
    """A full name for each (sex, age), in order; no two the same, no given name of `taken`.

    Given names do not repeat either until the cohort's list is used up, so that in a group of
    usual size everybody can be addressed by given name. Where nearly all full names of a cohort are
    taken (thousands of people of one sex and age), a middle initial tells people apart.
    """
    book = name_book()
    used_given: set[str] = set(taken)
    used_full: set[str] = set()
    left: dict[tuple[str, ...], list[str]] = {}  # of each cohort's names
    middle: dict[tuple[str, ...], int] = {}  # how often a cohort's full names were used up
    names: list[str] = []
    for sex, age in people:
        cohort = book.given_for(sex, age)
        free = left[cohort] = [
            group for group in left.get(cohort, cohort) if group not in used_given
        ]
        while (
            full := _draw_full_name(
                free or cohort, middle.get(cohort, 0), book.family, used_full, rng
            )
        ) is None:
            middle[cohort] = middle.get(cohort, 0) + 1
        used_given.add(full.split(" ", 1)[0])
        used_full.add(full)
        names.append(full)
    return names


def _draw_full_name(
    given: Sequence[str],
    middle: int,
    family: Sequence[str],
    used: set[str],
    rng: np.random.Generator,
) -> str | None:
    """A full name that nobody has; None where tries tell that few are left."""
    initials = ""
    while middle:
        middle, letter = divmod(middle - 1, 26)
        initials = f"{ascii_uppercase[letter]}. {initials}"
    for _ in range(40):
        first, last = given[int(rng.integers(len(given)))], family[int(rng.integers(len(family)))]
        if (full := f"{first} {initials}{last}") not in used:
            return full
    return None
