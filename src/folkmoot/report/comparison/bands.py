"""Findings on human benchmarks, which are published or computed from human answers."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, Problem
from folkmoot.hints import number_text
from folkmoot.kit.findings import Row, finite_or_none
from folkmoot.measures.bands import Band, human_bands, show
from folkmoot.measures.computed_bands import MIN_ANSWERS, AnswerTable, compute_bands
from folkmoot.measures.inference.estimates import format_count
from folkmoot.measures.wording import Sentence
from folkmoot.people.sources.missing_answers import MISSING_HINT, list_missing_codes
from folkmoot.people.sources.people_table import (
    AFTER,
    ARM,
    BEFORE,
    ITEM,
    PERSON,
    list_unclear_numbers,
    list_unclear_rows,
    read_people,
)
from folkmoot.people.sources.table_files import group_problems, has_decimal_comma
from folkmoot.report.comparison.samples import (
    describe_respelled,
    describe_weights,
    respell_choices,
)
from folkmoot.storage.findings import Finding, ResultTable

TITLE = "Human benchmarks"
SECTION = "Human bands"


def published_bands() -> Finding:
    """Return the finding on the packaged benchmarks and the sources of the benchmarks."""
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


def bands_of_table(
    path: Path, scale: tuple[float, float] | None = None
) -> tuple[list[Band], tuple[Sentence, ...]]:
    """Return the benchmarks of a table of human answers, and notes on how it was read.

    `scale`: lowest and highest possible rating. None means the lowest and highest in the table.

    Raises InputError for each of these problems:

    - The table does not say which answers count.
    - Some answers are numbers and other answers are options.
    - A rating is outside the scale, or looks like a code for a missing answer.
    - Too few rows hold an answer before and an answer after.
    """
    table = read_people(path)
    if lacking := [name for name in (BEFORE, AFTER) if name not in table.columns]:
        raise InputError([Problem(f"no column {name!r}", str(path)) for name in lacking])
    if problems := [*list_unclear_rows(table, path)]:
        raise InputError(problems)
    has_ratings = _has_ratings(table, scale, path)
    if has_ratings and scale is None and (codes := _list_codes(table, path)):
        raise InputError(codes)
    notes = [weights] if (weights := describe_weights(path.name, table)) else []
    if not has_ratings:
        table, respelled = respell_choices(table, (BEFORE, AFTER))
        notes += [describe_respelled(path.name, respelled)] if respelled else []
    pairs = table.drop_nulls([BEFORE, AFTER])
    answers = _rating_table(pairs, scale, path) if has_ratings else _option_table(pairs)
    design = f"before and after, in {path.name}"
    bands = compute_bands(answers, design, f"computed from {path.name}")
    if not bands:
        count = format_count(pairs.height, "pair")
        problem = f"{count} of answers before and after, and {MIN_ANSWERS} are needed"
        raise InputError(Problem(problem, str(path)))
    return bands, tuple(notes)


def computed_bands(path: Path, scale: tuple[float, float] | None = None) -> Finding:
    """Return the finding on the benchmarks of a table of human answers."""
    bands, notes = bands_of_table(path, scale)
    rows = [{**_cells(band), "range": band.range} for band in bands]
    return Finding(
        "bands",
        TITLE,
        f"{len(bands)} figures of {format_count(bands[0].n, 'person', 'people')} in {path.name}.",
        ResultTable.from_records(rows, "No verdict: compare only with runs of a like design."),
        notes=notes,
        section=SECTION,
    )


def _cells(band: Band) -> Row:
    low, centre, high = (
        show(value, band).replace("-", "−") if finite_or_none(value) is not None else None
        for value in (band.low, band.centre, band.high)
    )
    return {"what": band.label, "lowest": low, "centre": centre, "highest": high}


def _has_ratings(table: pl.DataFrame, scale: tuple[float, float] | None, path: Path) -> bool:
    # Without this error, a single misspelt rating would turn all ratings into options.
    problems = [*list_unclear_numbers(table, path, "write all answers as numbers, or none")]
    answers = [cell for name in (BEFORE, AFTER) for cell in table[name].drop_nulls()]
    if problems and (len(problems) < len(answers) or any(map(has_decimal_comma, answers))):
        raise InputError(group_problems(problems))
    if problems and scale is not None:
        hint = "options need no scale"
        raise InputError(Problem("these answers are not numbers", str(path), hint=hint))
    return not problems


def _list_codes(table: pl.DataFrame, path: Path) -> list[Problem]:
    # Without a stated scale, a code such as -99 would become the end of the scale.
    columns = [table[name].cast(pl.Float64) for name in (BEFORE, AFTER)]
    answers = [answer for column in columns for answer in column.drop_nulls()]
    hint = f"{MISSING_HINT}, or state the scale: --scale 1 7"
    return [
        problem
        for column in columns
        for problem in list_missing_codes(column, path, answers=answers, hint=hint)
    ]


def _texts(pairs: pl.DataFrame, name: str) -> list[str]:
    if name in pairs.columns:
        return pairs[name].fill_null("").to_list()
    return [""] * pairs.height


def _persons(pairs: pl.DataFrame) -> list[str]:
    # Without ids, each row is another person.
    return _texts(pairs, PERSON) if PERSON in pairs.columns else [*map(str, range(pairs.height))]


def _option_table(pairs: pl.DataFrame) -> AnswerTable:
    before, after = (pairs[name].to_list() for name in (BEFORE, AFTER))
    return AnswerTable(_persons(pairs), _texts(pairs, ITEM), _texts(pairs, ARM), before, after)


def _rating_table(
    pairs: pl.DataFrame, scale: tuple[float, float] | None, path: Path
) -> AnswerTable:
    first, last = (pairs[name].cast(pl.Float64).to_list() for name in (BEFORE, AFTER))
    numbers = [*first, *last]
    if not numbers:
        return AnswerTable([], [], [], [], [])
    low, high = scale or (min(numbers), max(numbers))
    if not low < high or min(numbers) < low or max(numbers) > high:
        lowest, highest, first_step, last_step = map(
            number_text, (min(numbers), max(numbers), low, high)
        )
        problem = f"the answers go from {lowest} to {highest}"
        if scale is not None:
            problem += f", which the scale from {first_step} to {last_step} does not hold"
        hint = f"give the lowest and the highest possible answer: --scale 1 7; {MISSING_HINT}"
        raise InputError(Problem(problem, str(path), hint=hint))
    texts = _texts(pairs, ITEM), _texts(pairs, ARM)
    return AnswerTable(_persons(pairs), *texts, first, last, (low, high))
