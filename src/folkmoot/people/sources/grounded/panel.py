"""A panel: the researcher's table of people, used in place of the packaged population."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from folkmoot.errors import InputError, Problem
from folkmoot.hints import join_words
from folkmoot.people.persona import Persona
from folkmoot.people.sources import table
from folkmoot.people.sources.grounded.profile import (
    Given,
    check_profile,
    with_blank_locations,
    without_refused_answers,
)
from folkmoot.people.sources.table_files import (
    POINT_HINT,
    first_line,
    group_problems,
    has_decimal_comma,
    is_weight_column,
)

# Columns that a table of another country must fill. Missing values would be drawn from the American
# population.
COMPLETE = (
    *("name", "age", "sex", "education", "income", "occupation", "household"),
    *("location", "location_type", "political_leaning"),
)
_AMERICAN = ("", "us", "usa", "united states")


@dataclass(frozen=True)
class Panel:
    """The researcher's table of people. Each person has a weight."""

    # The known values of each person (keys of `Given`).
    rows: tuple[Mapping[str, object], ...]
    # The weight of each person.
    weights: tuple[float, ...]

    def sample_rows(self, count: int, rng: np.random.Generator) -> list[int]:
        """Return the row numbers of `count` people, drawn at random by weight."""
        # If there are enough people, none is drawn twice. Otherwise a person whose weight is worth
        # several draws gets the whole number of them, and the last pass draws the rest by what is
        # left of the weights. A pass draws no person twice.
        weights = np.array(self.weights)
        passes = [weights]
        if count > int((weights > 0).sum()):
            expected = weights / math.fsum(weights) * count
            # The tolerance keeps 2.9999999999999996 from losing a draw.
            whole = np.floor(expected + 1e-9)
            passes = [np.where(whole > done, expected, 0.0) for done in range(int(whole.max()))]
            passes.append(np.maximum(expected - whole, 0.0))
        chosen: list[int] = []
        for rates in passes:
            if len(chosen) == count:
                break
            # The order of exponential times with these rates is that of successive weighted draws
            # without replacement. A rate of 0 gives an infinite time.
            with np.errstate(divide="ignore"):
                times = rng.exponential(size=len(weights)) / rates
            drawable_count = int((rates > 0).sum())
            chosen += np.argsort(times)[: min(drawable_count, count - len(chosen))].tolist()
        return chosen


def read_panel(path: Path) -> Panel:
    """Read a table of people with weights, one person per row.

    Raises InputError with every problem and its line.
    """
    # The columns are the fields of `Given`, `weight` (each row counts once without it) and
    # `country` (default `us`).
    rows: list[Mapping[str, object]] = []
    weights: list[float] = []
    problems: list[Problem] = []
    personas = table.read_personas(path)
    weight_column = _find_weight_column(personas, path)
    for line, person in enumerate(personas, first_line(path)):
        row = {**person.demographics, **person.extra, "name": person.name or None}
        cell = row.get(weight_column) if weight_column else 1
        weight = _parse_weight(cell)
        row_problems = check_profile(row, str(line))
        if weight is None:
            # A missing weight has no default: 1 is little beside 1,200 and much beside 0.02.
            hint = POINT_HINT if has_decimal_comma(cell) else "give a number of 0 or more"
            problem = "empty" if cell is None else f"{cell!r} is not a weight"
            row_problems.append(Problem(problem, where=str(line), key=weight_column, hint=hint))
        row_problems += check_foreign_gaps(row, str(line))
        problems += [replace(problem, file=str(path)) for problem in row_problems]
        rows.append(row)
        weights.append(weight or 0.0)
    if not problems and not sum(weights):
        problems.append(Problem("all weights are 0", str(path), key=weight_column))
    if problems:
        raise InputError(group_problems(problems))
    known = (
        Given.model_validate(row).model_dump(exclude_none=True)
        for row in with_blank_locations(map(without_refused_answers, rows))
    )
    return Panel(tuple(known), tuple(weights))


def check_foreign_gaps(row: Mapping[str, object], line: str) -> list[Problem]:
    """Return a problem for each empty cell in the row of a person outside the United States."""
    # An empty value would be filled with a random American value, which does not fit another
    # country.
    if str(row.get("country", "")).strip().casefold() in _AMERICAN:
        return []
    given = without_refused_answers(row)
    missing = [key for key in COMPLETE if given.get(key) in (None, "")]
    if given.get("income_usd") is not None:
        missing = [key for key in missing if key != "income"]
    hint = "fill it in: a missing value would be drawn from the American population"
    return [Problem("empty", where=line, key=key, hint=hint) for key in missing]


def _find_weight_column(personas: Iterable[Persona], path: Path) -> str:
    # Returns "" if no row has a weight.
    columns = sorted({key for person in personas for key in person.extra if is_weight_column(key)})
    if len(columns) > 1:
        problem = f"the columns {join_words(columns)} both hold weights"
        raise InputError(Problem(problem, str(path), hint="keep one of them"))
    return columns[0] if columns else ""


def _parse_weight(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 and math.isfinite(number) else None
