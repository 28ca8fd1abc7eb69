"""Generate grounded participants at random, by quotas, or from partly known people."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from folkmoot.errors import InputError, Problem
from folkmoot.people.persona import Persona
from folkmoot.people.sources.grounded import character
from folkmoot.people.sources.grounded.attributes import (
    draw_consumer,
    draw_opinion,
    draw_traits,
    draw_vals,
    draw_voice,
    scores_of,
)
from folkmoot.people.sources.grounded.joint import us_figures as figures
from folkmoot.people.sources.grounded.panel import Panel
from folkmoot.people.sources.grounded.population import Fixed, draw_circumstances
from folkmoot.people.sources.grounded.profile import (
    LISTED,
    TRAITS,
    Given,
    Profile,
    check_profile,
    first_name,
)
from folkmoot.people.sources.names import draw_names
from folkmoot.people.sources.table_files import group_problems

Quotas = Mapping[str, Mapping[str, float]]
QUOTA_KEYS = ("age", "sex", *LISTED)
# Candidates per participant before a quota counts as impossible.
_MAX_CANDIDATES = 4000


@dataclass(frozen=True, slots=True)
class PersonaGenerator:
    """A generator of grounded participants for a study on one concept."""

    # A shift of all first opinions (−1 … 1), 0 if unknown.
    appeal: float = 0.0
    # The researcher's own table of people, from which participants are drawn by weight instead of
    # the packaged population.
    panel: Panel | None = None

    def generate_profiles(
        self, count: int, rng: np.random.Generator, quotas: Quotas | None = None
    ) -> list[Profile]:
        """Return `count` profiles with different names.

        - `quotas`: for each attribute, the share or number of each value, as in
          `{"sex": {"F": 10, "M": 10}}`.

        Raises InputError if no person in the population fits the quotas.
        """
        # The same state of `rng` gives the same profiles. Quotas are met as exactly as whole
        # numbers allow.
        # A seed per participant: an additional draw for one of them changes no other.
        seeds: list[int] = rng.integers(2**63, size=count).tolist()
        if quotas:
            drawn, known = self._by_quota(count, seeds, quotas)
        else:
            known = self._fixed_attributes(count, rng)
            rngs = map(np.random.default_rng, seeds)
            drawn = [self._draw_one(rng, row) for rng, row in zip(rngs, known, strict=True)]
        return self._assign_names(drawn, rng, [str(row.get("name", "")) for row in known])

    def from_profiles(
        self, rows: Sequence[Mapping[str, object]], rng: np.random.Generator
    ) -> list[Profile]:
        """Return profiles of partly known people. Unknown values are drawn at random.

        - `rows`: the known values of each person. The keys are those of `Given`.

        Raises InputError with every invalid value.
        """
        # The keys of a row are those of `Given`.
        problems = [
            problem
            for i, row in enumerate(rows, 1)
            for problem in check_profile(row, f"profile {i}")
        ]
        if problems:
            raise InputError(group_problems(problems))
        known = [Given.model_validate(row).model_dump(exclude_none=True) for row in rows]
        seeds: list[int] = rng.integers(2**63, size=len(rows)).tolist()
        drawn = [
            self._draw_one(np.random.default_rng(seed), row)
            for seed, row in zip(seeds, known, strict=True)
        ]
        given_names = [row.get("name", "") for row in known]
        ids = [row.get("id", "") for row in known]
        profiles = self._assign_names(drawn, rng, given_names, ids)
        return [person.model_copy(update={"source": "table"}) for person in profiles]

    def with_new_opinion(self, profile: Profile, rng: np.random.Generator) -> Profile:
        """Return the profile with a new first opinion, which is drawn at random."""
        scores = {trait: profile.traits.standard_score(trait) for trait in TRAITS}
        opinion = draw_opinion(rng, scores, profile.consumer, figures(), {}, self.appeal)
        return profile.model_copy(update={"opinion": opinion})

    def personas(
        self, count: int, rng: np.random.Generator, quotas: Quotas | None = None
    ) -> list[Persona]:
        """Return `count` generated personas, each with a description."""
        return [
            profile.to_persona(character.describe_profile(profile))
            for profile in self.generate_profiles(count, rng, quotas)
        ]

    def _draw_one(self, rng: np.random.Generator, fixed: Fixed) -> Profile:
        data = figures()
        circumstances = draw_circumstances(rng, data, fixed)
        traits = draw_traits(rng, circumstances.age, circumstances.sex, fixed)
        scores = scores_of(circumstances, traits)
        vals = draw_vals(rng, scores, data)
        consumer = draw_consumer(rng, scores, circumstances.age, data, fixed)
        voice = draw_voice(rng, scores, traits)
        opinion = draw_opinion(rng, scores, consumer, data, fixed, self.appeal)
        return Profile(
            id="",
            name="",
            age=circumstances.age,
            sex=circumstances.sex,
            education=circumstances.education,
            income=circumstances.income,
            income_usd=circumstances.income_usd,
            occupation=circumstances.occupation,
            location=circumstances.location,
            location_type=circumstances.location_type,
            household=circumstances.household,
            political_leaning=circumstances.political_leaning,
            # Do not invent a race for a partly known person.
            race=str(fixed.get("race", "")) if fixed else circumstances.race,
            traits=traits,
            vals=fixed.get("vals", vals),
            consumer=consumer,
            voice=voice,
            opinion=opinion,
            background=str(fixed.get("background", "")),
            described=bool(fixed.get("described", False)),
        )

    def _fixed_attributes(self, count: int, rng: np.random.Generator) -> list[Fixed]:
        if self.panel is None:
            return [{}] * count
        return [self.panel.rows[i] for i in self.panel.sample_rows(count, rng)]

    def _by_quota(
        self, count: int, seeds: Sequence[int], quotas: Quotas
    ) -> tuple[list[Profile], list[Fixed]]:
        # Candidates are drawn until one fits the remaining quotas. With a `panel`, the candidates
        # are its rows. A row is used a second time only after all other rows were used.
        remaining = {key: _allocate_counts(shares, count) for key, shares in quotas.items()}
        people: list[Profile] = []
        known: list[Mapping[str, object]] = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            candidates = [
                row
                for row in self._fixed_attributes(_MAX_CANDIDATES, rng)
                if not row or row not in known
            ]
            for row in candidates or self._fixed_attributes(_MAX_CANDIDATES, rng):
                profile = self._draw_one(rng, row)
                cells = {key: _quota_cell(profile, key, remaining[key]) for key in remaining}
                if all(
                    cell is not None and remaining[key][cell] > 0 for key, cell in cells.items()
                ):
                    break
            else:
                open_cells = {
                    key: [cell_name for cell_name, count_left in counts.items() if count_left > 0]
                    for key, counts in remaining.items()
                }
                raise InputError(
                    Problem(
                        f"no person fits the remaining quotas: {open_cells}",
                        key="quotas",
                        hint="this combination does not occur in the population; relax a quota",
                    )
                )
            for key, cell in cells.items():
                remaining[key][str(cell)] -= 1
            people.append(profile)
            known.append(row)
        return people, known

    def _assign_names(
        self,
        people: Sequence[Profile],
        rng: np.random.Generator,
        given: Sequence[str],
        ids: Sequence[str] = (),
    ) -> list[Profile]:
        given = given or [""] * len(people)
        ids = ids or [""] * len(people)
        taken = {first_name(name) for name in given if name}
        names = draw_names([(profile.sex, profile.age) for profile in people], rng, taken)
        return [
            person.model_copy(
                update={"name": given[i] or names[i], "id": ids[i] or f"p_{i + 1:04d}"}
            )
            for i, person in enumerate(people)
        ]


def _allocate_counts(shares: Mapping[str, float], person_count: int) -> dict[str, int]:
    total = math.fsum(shares.values())
    exact = {str(key): share / total * person_count for key, share in shares.items()}
    counts = {key: math.floor(value) for key, value in exact.items()}
    for key in sorted(exact, key=lambda key: counts[key] - exact[key])[
        : person_count - sum(counts.values())
    ]:
        counts[key] += 1
    return counts


def _quota_cell(profile: Profile, key: str, cells: Mapping[str, int]) -> str | None:
    # `key` is the attribute of the quota, such as "age". `cells` holds the sizes of the cells by
    # name.
    if key != "age":
        value = profile.consumer.adoption if key == "adoption" else str(getattr(profile, key))
        return value if value in cells else None
    for cell in cells:
        low, high = age_band(cell) or (0, -1)
        if low <= profile.age <= high:
            return cell
    return None


def age_band(text: str) -> tuple[int, int] | None:
    """Return the lowest and highest age in a text such as "25-34", "35" or "65+".

    Returns None for other text.
    """
    match = re.fullmatch(r"\s*(\d{1,3})\s*(?:[-–]\s*(\d{1,3})|(\+))?\s*", str(text))
    if not match:
        return None
    low = int(match[1])
    high = 120 if match[3] else int(match[2] or low)
    return (low, high) if low <= high else None


def check_quotas(quotas: Quotas) -> list[Problem]:
    """Return a problem for each unknown attribute, each unknown value, and each wrong share."""
    problems: list[Problem] = []
    valid_values = {"sex": ("F", "M"), **LISTED}
    for name, shares in quotas.items():
        key = f"quotas.{name}"
        if name not in QUOTA_KEYS:
            hint = f"quotas can be set for {', '.join(QUOTA_KEYS)}"
            problems.append(Problem("no quota can be set for this", key=key, hint=hint))
            continue
        if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
            problems.append(Problem("shares must be 0 or more and not all 0", key=key))
        for value in shares:
            if name == "age":
                if age_band(value) is None:
                    problems.append(
                        Problem(f"{value!r} is not an age band", key=key, hint='"25-34"')
                    )
            elif value not in valid_values[name]:
                hint = f"one of: {', '.join(valid_values[name])}"
                problems.append(Problem(f"{value!r} is not a valid {name}", key=key, hint=hint))
    return problems
