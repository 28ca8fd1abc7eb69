"""Sheets as tables: header, rows, typed cells. Every mistake becomes a Problem with its address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rapidfuzz import fuzz, process

from folkmoot.errors import Problem
from folkmoot.studies.workbook.layouts import names_for
from folkmoot.studies.workbook.sheets import Cell, Sheet

MAX_ROWS_LISTED = 5


@dataclass
class Problems:
    """Collects mistakes while a workbook is read; `structural` means that a part is not there."""

    found: list[Problem] = field(default_factory=list)
    structural: bool = False

    def add(self, message: str, where: str = "", key: str = "", mend: str = "") -> None:
        self.found.append(Problem(message, where=where, key=key, mend=mend))


@dataclass(frozen=True)
class Row:
    """One row of a table: cells by our column name, and where they stand."""

    sheet: Sheet
    number: int
    cells: Mapping[str, Cell]
    columns: Mapping[str, int]
    titles: Mapping[str, str]

    def at(self, column: str) -> str:
        return self.sheet.at(self.number, self.columns.get(column, 1))

    def addresses(self) -> dict[str, str]:
        return {column: self.at(column) for column in self.columns}

    def text(self, column: str) -> str:
        """The text of a cell, "" when it is blank."""
        cell = self.cells.get(column)
        return cell.text if cell else ""

    def long_text(self, column: str) -> str:
        """The text of a cell with its own spaces and line breaks, "" when it is blank."""
        cell = self.cells.get(column)
        if cell is None:
            return ""
        return cell.value if isinstance(cell.value, str) else cell.text

    def required(self, column: str, problems: Problems, default: str = "") -> str:
        text = self.text(column)
        if not text:
            title = self.titles.get(column, column)
            problems.add(f"{title} is blank", self.at(column), mend="fill in the cell")
            return default
        return text

    def boolean(self, column: str, problems: Problems) -> bool:
        cell = self.cells.get(column)
        value = as_bool(cell)
        if value is None:
            title = self.titles.get(column, column)
            what = "is blank" if cell is None else f"is {cell.text!r}"
            problems.add(f"{title} {what}", self.at(column), mend="write 0 or 1")
            return False
        return value

    def integer(self, column: str, problems: Problems, default: int) -> int:
        cell = self.cells.get(column)
        value = as_integer(cell)
        if value is None:
            title = self.titles.get(column, column)
            what = "is blank" if cell is None else f"is {cell.text!r}"
            problems.add(f"{title} {what}", self.at(column), mend="write a whole number")
            return default
        return value

    def choice(
        self, column: str, choices: Sequence[str], problems: Problems, default: str
    ) -> str | None:
        """One of the choices; blank is an error here (see `optional_choice`)."""
        text = self.required(column, problems)
        if not text:
            return default
        return one_of(text, choices, self.titles.get(column, column), self.at(column), problems)


def read_table(
    sheet: Sheet, columns: Mapping[str, str], problems: Problems, *, optional: Sequence[str] = ()
) -> list[Row]:
    """The rows of a sheet whose header stands in row 1.

    `columns`: our name → the name in the header. Missing, repeated and extra columns are
    reported; columns without a name are ignored while they are empty.
    """
    header = {number: cell.text for number, cell in sheet.rows.get(1, {}).items()}
    found: dict[str, int] = {}
    used: set[int] = set()
    for ours, title in columns.items():
        numbers = [n for n, text in header.items() if text in names_for(title)]
        if len(numbers) > 1:
            problems.add(
                f"the column {title} stands there twice",
                sheet.at(1, numbers[1]),
                mend="keep one of them",
            )
        if numbers:
            found[ours] = numbers[0]
            used.update(numbers)
    _report_columns(sheet, header, used, found, columns, problems, optional)
    return [
        Row(
            sheet,
            number,
            {ours: cells[c] for ours, c in found.items() if c in cells},
            found,
            columns,
        )
        for number, cells in sorted(sheet.rows.items())
        if number > 1 and any(c in cells for c in found.values())
    ]


def _report_columns(
    sheet: Sheet,
    header: Mapping[int, str],
    used: set[int],
    found: Mapping[str, int],
    columns: Mapping[str, str],
    problems: Problems,
    optional: Sequence[str],
) -> None:
    extra = {n: text for n, text in header.items() if n not in used}
    for ours, title in columns.items():
        if ours in found or ours in optional:
            continue
        guess = process.extractOne(
            title, extra, scorer=fuzz.ratio, processor=str.casefold, score_cutoff=75
        )
        mend = f"add a column named {title}"
        if guess:
            mend = f"rename {guess[0]!r} in {sheet.at(1, guess[2])} to {title}"
            del extra[guess[2]]
        problems.add(f"the column {title} is missing", sheet.name, mend=mend)
        problems.structural = True
    for number, text in extra.items():
        problems.add(
            f"the column {text!r} does not belong here",
            sheet.at(1, number),
            mend=f"delete it; columns are {', '.join(columns.values())}",
        )
    for where in _unnamed(sheet, header):
        problems.add("the column has values but no name", where, mend="name it or clear it")


def _unnamed(sheet: Sheet, header: Mapping[int, str]) -> list[str]:
    """The first filled cell of each column that has no name."""
    first: dict[int, int] = {}
    for number, cells in sorted(sheet.rows.items()):
        for column in cells:
            if column not in header:
                first.setdefault(column, number)
    return [sheet.at(row, column) for column, row in sorted(first.items())][:MAX_ROWS_LISTED]


def unique(rows: Sequence[Row], column: str, problems: Problems) -> None:
    """Reports values that stand in a column twice."""
    seen: dict[str, Row] = {}
    for row in rows:
        text = row.text(column)
        if not text:
            continue
        if text in seen:
            title = row.titles.get(column, column)
            problems.add(
                f"{title} {text!r} stands there twice",
                row.at(column),
                mend=f"it is in {seen[text].at(column)} as well; make them differ",
            )
        else:
            seen[text] = row


def one_of(
    text: str, choices: Sequence[str], title: str, where: str, problems: Problems
) -> str | None:
    """The choice that a text names (case and spaces do not matter), or None with a Problem."""
    folded = text.strip().casefold().replace(" ", "_").replace("-", "_")
    match = next((c for c in choices if c.casefold() == folded), None)
    if match is None:
        guess = process.extractOne(folded, choices, scorer=fuzz.WRatio, score_cutoff=70)
        mend = f"did you mean {guess[0]}?" if guess else f"write one of {', '.join(choices)}"
        problems.add(f"{title} is {text!r}", where, mend=mend)
    return match


def as_bool(cell: Cell | None) -> bool | None:
    """0, 1, 1.0, True, "TRUE", "false" … as a truth value; None for anything else."""
    if cell is None:
        return None
    if isinstance(cell.value, bool):
        return cell.value
    text = str(cell.value).strip().casefold()
    if text in ("1", "1.0", "true"):
        return True
    return False if text in ("0", "0.0", "false") else None


def as_integer(cell: Cell | None) -> int | None:
    """4, 4.0, "4" or "4.0" as 4; None for anything else."""
    number = as_number(cell)
    if number is None or not number.is_integer() or abs(number) > 1e15:
        return None
    return int(number)


def as_number(cell: Cell | None) -> float | None:
    """A cell as a finite number; None for anything else (truth values are no numbers)."""
    if cell is None or isinstance(cell.value, bool):
        return None
    try:
        number = float(cell.value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None
