"""Read the table of a human experiment: one row for each answer of a person about an item.

Columns: `person`, `item` (the rated statement), `before` and `after` (numbers), `arm` (the
condition), `text_shown` (the text that the person read before the second answer), and attributes of
the person. `after` may be empty. `arm`, `text_shown` and attributes are optional. The study type
`replay` uses this table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.errors import InputError, Problem
from folkmoot.people.sources.table import clean_name, describe_person, first_line, read_frame

# The condition of a table without conditions.
EVERYBODY = "everybody"
COLUMNS = ("person", "item", "before", "after", "arm", "text_shown")


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
    """Return all rows of the table in order.

    Raises InputError with all problems: missing columns, cells that are not numbers, and
    contradictory rows. A row is contradictory if an earlier row has the same person and item.
    """
    table = read_frame(path)
    table = table.rename({column: clean_name(column) for column in table.columns})
    if lacking := [name for name in ("person", "item", "before", "after") if name not in table]:
        hint = f"columns: {', '.join(table.columns)}"
        raise InputError(
            [Problem(f"no column {name!r}", file=str(path), hint=hint) for name in lacking]
        )
    problems: list[Problem] = []
    answers: list[HumanAnswer] = []
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(table.iter_rows(named=True), first_line(path)):

        def tell(column: str, message: str, line: int = number) -> None:
            problems.append(Problem(message, str(path), str(line), column))

        cells = {key: str(value).strip() for key, value in row.items() if value is not None}
        person, item = cells.get("person", ""), cells.get("item", "")
        if not person or not item:
            tell("item" if person else "person", "is empty")
            continue
        if (person, item) in seen:
            tell("person", f"{person} answers twice about {item!r}")
            continue
        seen.add((person, item))
        before, after = (_number(cells.get(name, "")) for name in ("before", "after"))
        for column, value in (("before", before), ("after", after)):
            if value is not None and not math.isfinite(value):
                tell(column, f"{cells[column]!r} is not a finite number")
        # Without a first answer there is no change to replay.
        if before is None:
            tell("before", "is empty")
            continue
        attributes = {
            key: value for key, value in row.items() if key not in COLUMNS and key in cells
        }
        arm, text = cells.get("arm") or EVERYBODY, cells.get("text_shown", "")
        answers.append(HumanAnswer(person, item, before, after, arm, text, attributes))
    if not answers and not problems:
        problems.append(Problem("no rows", file=str(path)))
    if problems:
        raise InputError(problems)
    return answers


def _number(cell: str) -> float | None:
    """Return the number in a cell, None if the cell is empty, or NaN if it holds other text."""
    if cell in ("", "NA", "NaN"):
        return None
    try:
        return float(cell)
    except ValueError:
        return math.nan
