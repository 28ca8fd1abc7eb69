"""The table of human answers. A row holds what one person answered about one item.

- `person`: the id of the person.
- `item`: what was asked.
- `before` and `after`: the two answers, as numbers or options.
- `arm`: the condition.
- `text_shown`: what the person read before the second answer.

All other columns are attributes of the person.
"""
# The same table is a source of personas (`table.read_personas`), an experiment to replay
# (`experiment.read_experiment`), a comparison with a run (`folkmoot compare --people`) and a human
# benchmark (`folkmoot bands`).

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, Problem
from folkmoot.hints import collapse_spaces
from folkmoot.people.sources.missing_answers import (
    MISSING,
    is_refused_answer,
    is_refused_choice,
)
from folkmoot.people.sources.table_files import (
    POINT_HINT,
    are_whole,
    clean_name,
    first_line,
    has_decimal_comma,
    read_frame,
)

PERSON, ITEM, BEFORE, AFTER, ARM = "person", "item", "before", "after", "arm"
TEXT_SHOWN = "text_shown"
COLUMNS = (PERSON, ITEM, BEFORE, AFTER, ARM, TEXT_SHOWN)
# The column of `people_in_answers` with what the person answered first.
FIRST_ANSWERS = "first_answers"
# Names of earlier versions and of the tables of a run. A file that a run exported can be read.
ALSO_CALLED = {
    "participant": PERSON,
    "participant_id": PERSON,
    "first": BEFORE,
    "initial_choice": BEFORE,
    "last": AFTER,
    "final_choice": AFTER,
    "condition": ARM,
}


def read_people(path: Path) -> pl.DataFrame:
    """Return the rows of a table of human answers, in order.

    Raises InputError if the file cannot be read or has no rows. Raises InputError if two columns
    have the same meaning.
    """
    # Other accepted names of known columns are replaced. Known columns are text without surrounding
    # spaces, and null if a cell is missing. Other columns are numbers if all of their cells are,
    # and otherwise text or truth values.
    return name_people_columns(read_frame(path), path)


def name_people_columns(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return a copy of the table that has the standard column names and cleaned cells."""
    names: dict[str, str] = {}
    for column in table.columns:
        cleaned = clean_name(column)
        meaning = ALSO_CALLED.get(cleaned, cleaned)
        name = meaning if meaning in COLUMNS else column
        if name in names.values():
            first = next(theirs for theirs, ours in names.items() if ours == name)
            problem = f"the columns {first} and {column} have the same meaning; remove one"
            raise InputError(Problem(problem, str(path), "1"))
        names[column] = name
    table = table.rename(names)
    if not table.height:
        raise InputError(Problem("there are no answers below the column names", str(path)))
    table = table.with_columns(
        _clean_text(table[column]) if column in COLUMNS else _parse_column(table[column])
        for column in table.columns
    )
    return _without_refusals(table)


def _without_refusals(table: pl.DataFrame) -> pl.DataFrame:
    # A refusal among ratings is a missing answer. Among options, "don't know" may be an option.
    columns = [table[name] for name in (BEFORE, AFTER) if name in table.columns]
    are_ratings = all(_holds_numbers(column) for column in columns)
    is_refusal = is_refused_answer if are_ratings else is_refused_choice
    return table.with_columns(_remove_texts(column, is_refusal) for column in columns)


def _remove_texts(column: pl.Series, is_removed: Callable[[str], bool]) -> pl.Series:
    texts = [None if text is None or is_removed(text) else text for text in column]
    return pl.Series(column.name, texts, pl.String)


def _holds_numbers(column: pl.Series) -> bool:
    texts = _remove_texts(column, is_refused_answer).drop_nulls()
    return all(is_number(text) or has_decimal_comma(text) for text in texts)


def list_unclear_rows(table: pl.DataFrame, path: Path) -> Iterator[Problem]:
    """Yield a problem for each row in which person, item or condition is missing or ambiguous."""
    # `table` is the result of `read_people`.
    ids = [name for name in (PERSON, ITEM) if name in table.columns]
    first_rows: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(table.select(ids).iter_rows(), first_line(path)):
        if not all(row):
            empty = next(name for name, cell in zip(ids, row, strict=True) if not cell)
            yield Problem("is empty", str(path), str(number), empty)
        elif PERSON in ids and (first_row := first_rows.setdefault(row, number)) != number:
            about = f" about {row[1]!r}" if ITEM in ids else ""
            problem = f"{row[0]} answers twice{about}, first in row {first_row}"
            yield Problem(problem, str(path), str(number), PERSON)
    yield from list_unclear_arms(table, path)


def list_unclear_arms(table: pl.DataFrame, path: Path, column: str = ARM) -> Iterator[Problem]:
    """Yield a problem for each row without a condition, and each condition with two spellings.

    - `column`: the column of the conditions.
    """
    # Two spellings of an arm differ only in case or spaces. A table without arms has no problem.
    if column not in table.columns or table[column].null_count() == table.height:
        return
    arms = table[column].cast(pl.String)
    for number, arm in enumerate(arms, first_line(path)):
        if arm is None:
            problem = "is empty, but other rows name an arm"
            yield Problem(problem, str(path), str(number), column)
    spellings: dict[str, str] = {}
    for arm in arms.drop_nulls().unique(maintain_order=True):
        first = spellings.setdefault(collapse_spaces(arm.casefold()), arm)
        if first != arm:
            problem = f"the arms {first!r} and {arm!r} differ only in case or spaces"
            yield Problem(problem, str(path), key=column)


def list_unclear_numbers(table: pl.DataFrame, path: Path, hint: str = "") -> Iterator[Problem]:
    """Yield a problem for each answer that is not a finite number.

    - `hint`: what to do, unless the number has a decimal comma.
    """
    # `table` is the result of `read_people`.
    for number, cells in enumerate(table.select(BEFORE, AFTER).iter_rows(), first_line(path)):
        for column, cell in zip((BEFORE, AFTER), cells, strict=True):
            value = parse_number(cell)
            if value is not None and not math.isfinite(value):
                problem = f"{cell!r} is not a finite number"
                advice = POINT_HINT if has_decimal_comma(cell) else hint
                yield Problem(problem, str(path), str(number), column, advice)


def is_number(cell: str) -> bool:
    """Return whether a cell is written as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def parse_number(cell: str | None) -> float | None:
    """Return the number in a cell.

    Returns None for a missing cell, and NaN for other text.
    """
    try:
        return None if cell is None else float(cell)
    except ValueError:
        return math.nan


def _clean_text(column: pl.Series) -> pl.Series:
    texts = [None if value is None else str(value).strip() for value in column.to_list()]
    return pl.Series(column.name, [None if text in MISSING else text for text in texts], pl.String)


def _parse_column(column: pl.Series) -> pl.Series:
    if column.dtype != pl.String:
        return column
    texts = _clean_text(column)
    # A refusal among numbers is missing. In other columns the words stay as they are written.
    answers = _remove_texts(texts, is_refused_answer)
    numbers = answers.cast(pl.Float64, strict=False)
    if answers.null_count() == numbers.null_count() < len(answers):
        return numbers.cast(pl.Int64) if are_whole(numbers) else numbers
    known = {text.casefold() for text in texts.drop_nulls()}
    if known and known <= {"true", "false"}:
        return texts.str.to_lowercase() == "true"
    return texts


def holds_answers(columns: Sequence[str]) -> bool:
    """Return True if the rows of a table are answers of people, and False if they are people."""
    cleaned = [clean_name(column) for column in columns]
    meanings = {ALSO_CALLED.get(name, name) for name in cleaned}
    return {PERSON, BEFORE} <= meanings


def people_in_answers(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return a table with one row for each person who answered.

    The column `first_answers` holds one sentence for each answered item.

    Raises InputError if a row names no person or contradicts an earlier row.
    """
    answers = name_people_columns(table, path)
    attributes = [name for name in answers.columns if name not in COLUMNS]
    people: dict[str, dict[str, object]] = {}
    sentences: dict[str, list[str]] = {}
    first_rows: dict[str, int] = {}
    # All problems are collected, so that one reading of the file names them all.
    problems: list[Problem] = []
    for number, row in enumerate(answers.iter_rows(named=True), first_line(path)):
        person = row[PERSON]
        if not person:
            problems.append(Problem("is empty", str(path), str(number), PERSON))
            continue
        known = people.setdefault(person, {name: row[name] for name in attributes})
        first_row = first_rows.setdefault(person, number)
        for name in attributes:
            if known[name] != row[name]:
                problem = f"{person} has {row[name]!r} here and {known[name]!r} in row {first_row}"
                hint = "an attribute of a person is the same in all rows"
                problems.append(Problem(problem, str(path), str(number), name, hint))
        if row[BEFORE] is not None:
            asked = f"Asked about “{row[ITEM]}”" if row.get(ITEM) else "Asked before"
            sentences.setdefault(person, []).append(f"{asked}, you answered {row[BEFORE]}.")
    if problems:
        raise InputError(problems)
    rows = [
        {"id": person, **known, FIRST_ANSWERS: " ".join(sentences.get(person, ()))}
        for person, known in people.items()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
