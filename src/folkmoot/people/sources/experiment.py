"""Read a table of human answers as the answers of an experiment.

The study type `replay` asks the same questions again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.errors import InputError, Problem
from folkmoot.people.sources.people_table import (
    AFTER,
    ARM,
    BEFORE,
    COLUMNS,
    ITEM,
    PERSON,
    TEXT_SHOWN,
    read_people,
)
from folkmoot.people.sources.table import describe_person
from folkmoot.people.sources.table_files import clean_name, first_line

# The condition of a table without conditions.
EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class HumanAnswer:
    """The answers of one person about one item, before and after reading a text.

    `arm`: the condition. `after`: the second answer, or None if it is unknown. `attributes`: the
    other columns about the person.
    """

    person: str
    item: str
    before: float
    after: float | None
    arm: str = EVERYBODY
    text_shown: str = ""
    attributes: Mapping[str, object] = field(default_factory=dict)

    @property
    def persona(self) -> str:
        """The description of the person, which completes "You are …"."""
        known = {
            key: attribute
            for key, attribute in self.attributes.items()
            if key in ("age", "sex", "occupation")
        }
        rest = {key: attribute for key, attribute in self.attributes.items() if key not in known}
        return describe_person("", known, rest)


def read_experiment(path: Path) -> list[HumanAnswer]:
    """Return all rows of a table with numeric answers, in order.

    A person may answer about several items, also in different arms. Raises InputError with the row
    of each problem: missing columns, cells that are empty or not numbers, a person who answers
    twice about one item (in one arm or two), and arms that are stated in some rows only.
    """
    table = read_people(path)
    if lacking := [name for name in (PERSON, ITEM, BEFORE, AFTER) if name not in table.columns]:
        hint = f"columns: {', '.join(table.columns)}"
        raise InputError(
            [Problem(f"no column {name!r}", file=str(path), hint=hint) for name in lacking]
        )
    problems: list[Problem] = []
    answers: list[HumanAnswer] = []
    rows_by_answer: dict[tuple[str, str], int] = {}
    attribute_names = {name: clean_name(name) for name in table.columns if name not in COLUMNS}
    has_arms = ARM in table.columns and table[ARM].null_count() < table.height
    for number, row in enumerate(table.iter_rows(named=True), first_line(path)):

        def tell(column: str, message: str, line: int = number) -> None:
            problems.append(Problem(message, str(path), str(line), column))

        person, item, arm = row[PERSON], row[ITEM], row.get(ARM)
        if not person or not item:
            tell(ITEM if person else PERSON, "is empty")
            continue
        first_row = rows_by_answer.setdefault((person, item), number)
        if first_row != number:
            tell(PERSON, f"{person} answers twice about {item!r}, first in row {first_row}")
            continue
        if has_arms and not arm:
            tell(ARM, "is empty, but other rows name an arm")
        before, after = (_number(row[name]) for name in (BEFORE, AFTER))
        for column, value in ((BEFORE, before), (AFTER, after)):
            if value is not None and not math.isfinite(value):
                tell(column, f"{row[column]!r} is not a finite number")
        # Without a first answer there is no change to replay.
        if before is None:
            tell(BEFORE, "is empty")
            continue
        attributes = {
            cleaned: row[name]
            for name, cleaned in attribute_names.items()
            if row[name] is not None and str(row[name]).strip()
        }
        text = row.get(TEXT_SHOWN) or ""
        answers.append(HumanAnswer(person, item, before, after, arm or EVERYBODY, text, attributes))
    problems += _similar_arms(answers, path)
    if problems:
        raise InputError(problems)
    return answers


def _similar_arms(answers: list[HumanAnswer], path: Path) -> Iterator[Problem]:
    """Yield a problem for two arms that differ only in case or spaces, which is a slip."""
    spellings: dict[str, str] = {}
    for arm in dict.fromkeys(answer.arm for answer in answers):
        first = spellings.setdefault(" ".join(arm.casefold().split()), arm)
        if first != arm:
            yield Problem(
                f"the arms {first!r} and {arm!r} differ only in case or spaces", str(path), key=ARM
            )


def _number(cell: str | None) -> float | None:
    """Return the number in a cell, None if the cell is missing, or NaN if it holds other text."""
    try:
        return None if cell is None else float(cell)
    except ValueError:
        return math.nan
