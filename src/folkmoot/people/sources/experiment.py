"""Read the human answers of an experiment from a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.errors import InputError, Problem
from folkmoot.people.sources.missing_answers import is_answer
from folkmoot.people.sources.people_table import (
    AFTER,
    ARM,
    BEFORE,
    COLUMNS,
    ITEM,
    PERSON,
    TEXT_SHOWN,
    list_unclear_numbers,
    list_unclear_rows,
    parse_number,
    read_people,
)
from folkmoot.people.sources.table import describe_person
from folkmoot.people.sources.table_files import clean_name, first_line, group_problems

# The condition of a table without conditions.
EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class HumanAnswer:
    """The two answers of one person about one item: before and after reading a text."""

    person: str
    item: str
    before: float
    # The second answer, or None if it is unknown.
    after: float | None
    # The condition.
    arm: str = EVERYBODY
    text_shown: str = ""
    # The other columns about the person.
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
    """Read a table of numeric answers and return all its rows, in order.

    Raises InputError for these problems, and names the row of each problem:

    - a column is missing
    - a cell is empty or not a number
    - a person answers twice about one item
    - a row has no condition, although other rows have conditions
    """
    table = read_people(path)
    if lacking := [name for name in (PERSON, ITEM, BEFORE, AFTER) if name not in table.columns]:
        hint = f"columns: {', '.join(table.columns)}"
        raise InputError(
            [Problem(f"no column {name!r}", file=str(path), hint=hint) for name in lacking]
        )
    problems = [*list_unclear_rows(table, path)]
    unclear_rows = {problem.where for problem in problems if problem.key != ARM}
    problems += [
        problem
        for problem in list_unclear_numbers(table, path)
        if problem.where not in unclear_rows
    ]
    answers: list[HumanAnswer] = []
    attribute_names = {name: clean_name(name) for name in table.columns if name not in COLUMNS}
    for number, row in enumerate(table.iter_rows(named=True), first_line(path)):
        if str(number) in unclear_rows:
            continue
        before, after = (parse_number(row[name]) for name in (BEFORE, AFTER))
        # Without a first answer there is no change to replay.
        if before is None:
            problems.append(Problem("is empty", str(path), str(number), BEFORE))
            continue
        attributes = {
            cleaned: row[name] for name, cleaned in attribute_names.items() if is_answer(row[name])
        }
        person, item, arm = row[PERSON], row[ITEM], row.get(ARM) or EVERYBODY
        text = row.get(TEXT_SHOWN) or ""
        answers.append(HumanAnswer(person, item, before, after, arm, text, attributes))
    if problems:
        problems.sort(key=lambda problem: int(problem.where or 0))
        raise InputError(group_problems(problems))
    return answers
