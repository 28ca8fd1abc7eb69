"""Human benchmarks as a finding: those that are published, or those of a table of human answers."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, Problem
from folkmoot.kit.findings import Row, finite_or_none
from folkmoot.measures.bands import Band, human_bands, show
from folkmoot.measures.computed_bands import MIN_ANSWERS, AnswerTable, compute_bands
from folkmoot.measures.inference.estimates import format_count
from folkmoot.people.sources.people_table import AFTER, ARM, BEFORE, ITEM, PERSON, read_people
from folkmoot.storage.findings import Finding, ResultTable

TITLE = "Human benchmarks"
SECTION = "Human bands"


def published_bands() -> Finding:
    """Return the benchmarks that Folkmoot ships, with their sources."""
    bands = [*human_bands().values()]
    rows = [
        {
            "key": band.key,
            **_cells(band),
            "people": band.n,
            "design": band.design,
            "enters_comparisons": band.verified,
        }
        for band in bands
    ]
    keys_by_source: dict[str, list[str]] = {}
    for band in bands:
        keys_by_source.setdefault(band.source, []).append(band.key)
    return Finding(
        "bands",
        TITLE,
        f"{len(bands)} published figures. Hold a run only against those of a like design.",
        ResultTable.from_records(rows, "Ranges over studies, arms or items; no verdict."),
        notes=tuple(f"{', '.join(keys)}: {source}." for source, keys in keys_by_source.items()),
        section=SECTION,
    )


def bands_of_table(path: Path, scale: tuple[float, float] | None = None) -> list[Band]:
    """Return the benchmarks of a table of human answers.

    `scale`: lowest and highest possible rating; without it, those of the table. Raises InputError
    if the table has too few pairs of answers, or ratings outside the scale.
    """
    table = read_people(path)
    if lacking := [name for name in (BEFORE, AFTER) if name not in table.columns]:
        raise InputError([Problem(f"no column {name!r}", str(path)) for name in lacking])
    pairs = table.drop_nulls([BEFORE, AFTER])
    answers = _answer_table(pairs, scale, path)
    design = f"before and after, in {path.name}"
    bands = compute_bands(answers, design, f"computed from {path.name}")
    if not bands:
        count = format_count(pairs.height, "pair")
        problem = f"{count} of answers before and after, and {MIN_ANSWERS} are needed"
        raise InputError(Problem(problem, str(path)))
    return bands


def computed_bands(path: Path, scale: tuple[float, float] | None = None) -> Finding:
    """Return the benchmarks of a table of human answers as a finding."""
    bands = bands_of_table(path, scale)
    rows = [{**_cells(band), "range": band.range} for band in bands]
    return Finding(
        "bands",
        TITLE,
        f"{len(bands)} figures of {format_count(bands[0].n, 'person', 'people')} in {path.name}.",
        ResultTable.from_records(rows, "No verdict: compare only with runs of a like design."),
        section=SECTION,
    )


def _cells(band: Band) -> Row:
    low, centre, high = (
        show(value, band).replace("-", "−") if finite_or_none(value) is not None else None
        for value in (band.low, band.centre, band.high)
    )
    return {"what": band.label, "lowest": low, "centre": centre, "highest": high}


def _answer_table(
    pairs: pl.DataFrame, scale: tuple[float, float] | None, path: Path
) -> AnswerTable:
    def column(name: str) -> list[str]:
        if name in pairs.columns:
            return pairs[name].fill_null("").to_list()
        return [""] * pairs.height

    # Without ids, each row is another person.
    persons = column(PERSON) if PERSON in pairs.columns else [*map(str, range(pairs.height))]
    before, after = (pairs[name].to_list() for name in (BEFORE, AFTER))
    ratings = [pairs[name].cast(pl.Float64, strict=False) for name in (BEFORE, AFTER)]
    if any(rating.null_count() for rating in ratings):
        if scale is not None:
            hint = "options need no scale"
            raise InputError(Problem("these answers are not numbers", str(path), hint=hint))
        return AnswerTable(persons, column(ITEM), column(ARM), before, after)
    numbers = [number for rating in ratings for number in rating.to_list()]
    if not numbers:
        return AnswerTable(persons, [], [], [], [])
    low, high = scale or (min(numbers), max(numbers))
    if not low < high or min(numbers) < low or max(numbers) > high:
        problem = f"the answers go from {min(numbers):g} to {max(numbers):g}"
        hint = "give the lowest and the highest possible answer: --scale 1 7"
        raise InputError(Problem(problem, str(path), hint=hint))
    first, last = (rating.to_list() for rating in ratings)
    return AnswerTable(persons, column(ITEM), column(ARM), first, last, (low, high))
