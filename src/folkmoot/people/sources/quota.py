"""Make personas with given ratios of attributes, without network or model."""
# Each ratio is met as exactly as the number of personas allows. Attributes are drawn independently
# of each other, with two exceptions. The occupation depends on sex, age and education, and degrees
# have a minimum age. `grounded` makes personas with realistic correlations between attributes.

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np

from folkmoot.errors import InputError, Problem
from folkmoot.files import packaged_yaml
from folkmoot.hints import capitalise
from folkmoot.people.enrichment import SCALES
from folkmoot.people.persona import DEMOGRAPHIC_KEYS, Persona, indefinite_article
from folkmoot.people.sources.grounded.joint import likely_job
from folkmoot.people.sources.names import draw_names

Ratios = Mapping[str, Mapping[str, float]]
# A uniform draw from [0, 1).
Draw = Callable[[], float]

_KNOWN = {"sex": ("F", "M"), **SCALES}
# Drawing in blocks is fast and bounds the memory.
DRAWS_AT_ONCE = 100_000
_AGE = re.compile(r"(\d{1,3})(?:\s*[-–]\s*(\d{1,3}))?")


def default_ratios() -> dict[str, dict[str, float]]:
    """Return the packaged ratios. They describe adults aged 18 to 65 in the United States."""
    # The sources are in `quota_us.yaml`.
    return {key: dict(shares) for key, shares in _load_wordings()["ratios"].items()}


def make(count: int, rng: np.random.Generator, ratios: Ratios | None = None) -> list[Persona]:
    """Return `count` different personas with the given ratios of attributes.

    - `ratios`: for some attributes, ratios that replace those of `default_ratios`, as in
      `{"sex": {"F": 1}}`.

    Raises InputError with every invalid ratio.
    """
    # `age` takes bands ("30-44") or single years. A new attribute (`tenant: {yes: .6, no: .4}`) is
    # added to demographics and text. Rounding is by largest remainder.
    shares = {**default_ratios(), **{key: dict(value) for key, value in (ratios or {}).items()}}
    problems = check_ratios(shares)
    if problems:
        raise InputError(problems)
    columns = {key: _deal_values(values, count, rng) for key, values in shares.items()}
    rows = [{key: column[i] for key, column in columns.items()} for i in range(count)]
    for row in rows:
        row["age"] = _draw_age(str(row["age"]), rng)
    _swap_degrees_of_too_young(rows, rng)
    for row in rows:
        demographics = (row["sex"], row["age"], row["education"])
        row.setdefault("occupation", likely_job(*demographics, rng.random()))
    names = draw_names([(row["sex"], row["age"]) for row in rows], rng)
    draws = _uniform_draws(count * _MAX_DRAWS_PER_DESCRIPTION, rng)
    people = [
        _build_persona(i, name, row, draws.__next__)
        for i, (name, row) in enumerate(zip(names, rows, strict=True))
    ]
    # Exhaust the draws, so that the generator continues from the same state however many the
    # descriptions used.
    deque(draws, maxlen=0)
    return people


def _uniform_draws(count: int, rng: np.random.Generator) -> Iterator[float]:
    # Single draws would take as long as writing the descriptions. Drawing all numbers at once would
    # take as much memory as the personas.
    for start in range(0, count, DRAWS_AT_ONCE):
        yield from rng.random(min(DRAWS_AT_ONCE, count - start)).tolist()


def check_ratios(ratios: Ratios) -> list[Problem]:
    """Return a problem for each ratio without shares, with a wrong share or an unknown value."""
    problems = []
    for key, shares in ratios.items():
        ratio_key = f"ratios.{key}"
        # NaN is neither below zero nor above.
        if not all(share >= 0 for share in shares.values()) or not 0 < sum(shares.values()) < inf:
            problems.append(
                Problem("shares must be 0 or more and sum to more than 0", key=ratio_key)
            )
        for value in shares:
            if key in _KNOWN and value not in _KNOWN[key]:
                listed = ", ".join(map(str, _KNOWN[key]))
                problems.append(
                    Problem(
                        f"{value!r} is not a valid {key}", key=ratio_key, hint=f"one of: {listed}"
                    )
                )
            elif key == "age" and not _age_bounds(str(value)):
                problems.append(
                    Problem(
                        f"{value!r} is not a valid age", key=ratio_key, hint='like "30-44" or 35'
                    )
                )
    return problems


def _deal_values(shares: Mapping[str, float], count: int, rng: np.random.Generator) -> list[Any]:
    values = list(shares)
    weights = np.array([shares[value] for value in values], dtype=float)
    exact = weights / weights.sum() * count
    counts = np.floor(exact).astype(int)
    # Break ties at random, so that the first value of a list is not favoured in small groups.
    order = sorted(range(len(values)), key=lambda i: (counts[i] - exact[i], rng.random()))
    for i in order[: count - int(counts.sum())]:
        counts[i] += 1
    dealt = [value for value, count in zip(values, counts, strict=True) for _ in range(count)]
    return [dealt[int(index)] for index in rng.permutation(count)]


def _swap_degrees_of_too_young(rows: list[dict[str, Any]], rng: np.random.Generator) -> None:
    # After the swaps, each person is old enough for the degree, if possible. A swap changes no
    # ratio.
    ages = np.array([row["age"] for row in rows])
    needed = np.array([_DEGREE_AGE[row["education"]] for row in rows])
    for i in np.flatnonzero(ages < needed):
        if ages[i] >= needed[i]:
            # An earlier swap has already given this person another degree.
            continue
        partners = np.flatnonzero((ages >= needed[i]) & (ages[i] >= needed))
        if len(partners):
            j = partners[int(rng.integers(len(partners)))]
            row, other = rows[i], rows[j]
            row["education"], other["education"] = other["education"], row["education"]
            needed[i], needed[j] = needed[j], needed[i]


# The usual age at which a degree is completed at the earliest.
_DEGREE_AGE = {
    "High school": 0,
    "Some college": 0,
    "Bachelor's degree": 22,
    "Master's degree": 24,
    "Doctorate": 28,
}


@lru_cache(maxsize=1000)
def _age_bounds(band: str) -> tuple[int, int] | None:
    found = _AGE.fullmatch(band.strip())
    if not found:
        return None
    low = int(found[1])
    high = int(found[2] or low)
    return (low, high) if 0 < low <= high <= 110 else None


def _draw_age(band: str, rng: np.random.Generator) -> int:
    bounds = _age_bounds(band)
    # `check_ratios` has rejected invalid bands.
    assert bounds is not None
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _build_persona(index: int, name: str, row: dict[str, Any], draw: Draw) -> Persona:
    words = _load_wordings()
    added_attributes = {key: value for key, value in row.items() if key not in DEMOGRAPHIC_KEYS}
    job, leaning = str(row["occupation"]), row["political_leaning"]
    location = _pick_item(words["places"][row["location_type"]], draw)
    life_stage = "young" if row["age"] < 30 else "middle" if row["age"] < 52 else "older"
    facts = {
        "name": name,
        "first": name.split(" ", 1)[0],
        "they": "She" if row["sex"] == "F" else "He",
        "age": row["age"],
        "an_age": f"{indefinite_article(str(row['age']))} {row['age']}",
        "job": job,
        "a_job": f"{indefinite_article(job)} {job}",
        "leaning": leaning,
        "household": _pick_item(words["household"][life_stage], draw),
        "home": _pick_item(words["setting"][row["location_type"]], draw).format(place=location),
        "schooling": _SCHOOLING[row["education"]],
        "money": _pick_item(words["money"][row["income"]], draw),
        "politics": "politically moderate" if leaning == "moderate" else f"{leaning} in politics",
        "care": _pick_item(words["cares"], draw),
        "manner": _pick_item(words["manner"], draw),
    }
    facts["habit"], facts["habit2"] = _pick_two(words["habits"], draw)
    # Values of the political leaning are listed twice, so that they are drawn more often.
    leaning_values = words["values"][leaning]
    facts["value"], facts["value2"] = _pick_two(
        [*words["values"]["any"], *leaning_values, *leaning_values], draw
    )
    text = _pick_item(words["portraits"], draw).format(**facts)
    if added_attributes:
        added_text = ", ".join(
            f"{key.replace('_', ' ')}: {value}" for key, value in added_attributes.items()
        )
        text += f" ({capitalise(added_text)}.)"
    return Persona(
        id=f"q_{index + 1:05d}",
        text=text,
        base=f"{name}, {indefinite_article(job)} {job} from {location}",
        demographics={key: row[key] for key in (*DEMOGRAPHIC_KEYS, *added_attributes)},
        source="quota",
        name=name,
    )


# An upper bound of the draws that one description uses.
_MAX_DRAWS_PER_DESCRIPTION = 11
_SCHOOLING = {
    "High school": "finished high school",
    "Some college": "has some college",
    "Bachelor's degree": "has a bachelor's degree",
    "Master's degree": "has a master's degree",
    "Doctorate": "has a doctorate",
}


def _pick_item(items: Any, draw: Draw) -> str:
    # A third of the time of `Generator.integers`.
    return str(items[int(draw() * len(items))])


def _pick_two(items: list[str], draw: Draw) -> tuple[str, str]:
    first = _pick_item(items, draw)
    return first, _pick_item([item for item in items if item != first], draw)


@lru_cache(maxsize=1)
def _load_wordings() -> dict[str, Any]:
    data: dict[str, object] = packaged_yaml(__file__, "quota_us.yaml")
    return data
