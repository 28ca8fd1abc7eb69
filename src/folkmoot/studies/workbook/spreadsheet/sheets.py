"""Read the sheets of a workbook as a human sees them, and collect problems."""
# The value of a merged cell counts for all rows of the cell. Hidden rows are read too. Notes tell
# the researcher about both.

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from openpyxl.utils import get_column_letter, range_boundaries

from folkmoot.errors import InputError, Problem
from folkmoot.hints import shorten
from folkmoot.spreadsheet_cells import (
    EXACT_BELOW,
    MAX_DIGITS,
    RawCell,
    RawSheet,
    format_number,
    is_format_followed,
    read_spreadsheet,
)
from folkmoot.studies.workbook.config import MAX_TEXT, Problems, Scalar

# Limits on the merged ranges of a sheet, and on the rows that all of them cover. No real workbook
# reaches them. They keep a damaged or hostile file from taking minutes.
MAX_MERGED = 20_000
MAX_MERGED_ROWS = 2_000_000
MAX_MERGES_TOLD = 50
# Problems of single cells that are listed per sheet.
MAX_MISTAKES = 1_000
MAX_RANGES = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is not blank."""

    value: Scalar
    # The text that a spreadsheet program shows.
    text: str
    date: bool = False
    # False if a spreadsheet program shows a number otherwise, for example with a currency.
    is_as_shown: bool = True


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet. `rows` maps row numbers to rows, and each row maps column numbers to cells."""

    # Both numbers start at 1. Blank cells are left out.

    name: str
    rows: dict[int, dict[int, Cell]] = field(default_factory=dict)

    def cell_address(self, row: int, column: int) -> str:
        """Return the address of a cell in Excel's notation."""
        return f"{self.name}!{get_column_letter(column)}{row}"

    def iterate_cells(self) -> Iterator[tuple[int, int, Cell]]:
        """Yield (row number, column number, cell) for each cell, row by row."""
        for row, cells in sorted(self.rows.items()):
            for column, cell in sorted(cells.items()):
                yield row, column, cell

    def texts(self, row: int) -> dict[int, str]:
        """Return the texts of the cells in a row, as a map from column number to text."""
        return {column: cell.text for column, cell in self.rows.get(row, {}).items()}


@dataclass(frozen=True, slots=True)
class Book:
    """A whole spreadsheet: its sheets in order, with problems and notes."""

    sheets: dict[str, Sheet]
    problems: Problems
    # The names of hidden sheets, and of sheets with pictures or text boxes.
    hidden: frozenset[str]
    with_drawings: frozenset[str]


def read_book(path: Path) -> Book:
    """Read a spreadsheet file.

    Raises InputError if the file cannot be used at all.
    """
    raw_sheets = read_spreadsheet(path)
    problems = Problems()
    sheets: dict[str, Sheet] = {}
    for raw in raw_sheets:
        sheet = sheets.setdefault(raw.name, Sheet(raw.name))
        # Each sheet has a limit of problems, so that a broken sheet does not hide the others.
        sheet_problems = Problems()
        for cell in raw.cells:
            _set_cell(sheet, cell, sheet_problems)
        problems.found += sheet_problems.found[:MAX_MISTAKES]
        if (more := len(sheet_problems.found) - MAX_MISTAKES) > 0:
            problems.add_problem(f"{more:,} more cells of the sheet cannot be read", sheet.name)
        problems.notes += _display_precision(sheet)
    try:
        for raw in raw_sheets:
            problems.notes += _hidden_notes(sheets[raw.name], raw)
            problems.notes += _spread_merged_values(sheets[raw.name], raw, problems)
    except InputError as error:
        raise InputError(
            [replace(problem, file=path.name) for problem in error.problems]
        ) from error
    for sheet in sheets.values():
        problems.notes += _garbled_texts(sheet)
    hidden = frozenset(raw.name for raw in raw_sheets if raw.is_hidden)
    with_drawings = frozenset(raw.name for raw in raw_sheets if raw.has_drawings)
    return Book(sheets, problems, hidden, with_drawings)


# --- one cell ----------------------------------------------------------------------------------


def _set_cell(sheet: Sheet, cell: RawCell, problems: Problems) -> None:
    where, value = sheet.cell_address(cell.row, cell.column), cell.value
    if cell.kind == "error":
        problems.add_problem(f"the cell holds the error {value}", where, "correct the formula")
    elif cell.kind == "formula":
        hint = (
            "open and save the file in a spreadsheet program, or type the value; an expression of "
            "this study is typed without the = at its start"
        )
        problems.add_problem("the cell holds a formula that was never calculated", where, hint)
    elif cell.kind == "number":
        message = f"the cell holds a number of more than {MAX_DIGITS} digits, or not a number"
        problems.add_problem(message, where, "type the number again, or format the cell as text")
    elif isinstance(value, str) and len(value) > MAX_TEXT:
        message = f"the text has {len(value):,} characters, the limit is {MAX_TEXT:,}"
        problems.add_problem(message, where, "shorten it")
    else:
        if isinstance(value, str):
            # Excel writes characters that XML cannot hold as _x000D_ and the like.
            value = re.sub(r"_x000[dD]_", "", value).replace("\r\n", "\n").replace("\r", "\n")
            if not value.strip():
                return
        row = sheet.rows.setdefault(cell.row, {})
        text = value.strip() if isinstance(value, str) else format_number(value, cell.number_format)
        is_as_shown = isinstance(value, str) or is_format_followed(value, cell.number_format)
        row[cell.column] = Cell(value, text, cell.kind == "date", is_as_shown)


# --- what a person sees ------------------------------------------------------------------------


def _display_precision(sheet: Sheet) -> Iterator[str]:
    first_notes: dict[tuple[int, str], str] = {}
    for row, column, cell in sheet.iterate_cells():
        if cell.date:
            note = f"holds dates; they are read as {cell.text}"
            first_notes.setdefault((column, "date"), f"{note} ({sheet.cell_address(row, column)})")
        elif isinstance(cell.value, (int, float)) and abs(cell.value) >= EXACT_BELOW:
            note = (
                "has numbers of more than 15 digits, which spreadsheet programs round; they are "
                f"read as {cell.text} (type them as text)"
            )
            first_notes.setdefault((column, "long"), f"{note} ({sheet.cell_address(row, column)})")
        elif not cell.is_as_shown:
            note = f"has numbers in a format that is not read; they are read as {cell.text}"
            first_notes.setdefault(
                (column, "format"), f"{note} ({sheet.cell_address(row, column)})"
            )
        elif isinstance(cell.value, float) and _is_rounded(cell.value, cell.text):
            note = f"is read as it is shown: {cell.text} for {cell.value}"
            first_notes.setdefault(
                (column, "digits"), f"{note} ({sheet.cell_address(row, column)})"
            )
    for (column, _), note in sorted(first_notes.items()):
        yield f"{sheet.name}: column {get_column_letter(column)} {note}"


def _is_rounded(value: float, text: str) -> bool:
    shown = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    return abs(shown - value) > 1e-9 * max(1.0, abs(value))


def _hidden_notes(sheet: Sheet, raw: RawSheet) -> Iterator[str]:
    if rows := sorted({row for row in raw.hidden_rows if row in sheet.rows}):
        hidden_text = "hidden by a filter" if raw.is_filtered else "hidden"
        yield (
            f"{sheet.name}: {rows_in_words(rows)} {hidden_text} in the spreadsheet; "
            "read all the same "
            "(delete what should not take part)"
        )
    columns = (
        sorted({column for _, column, _ in sheet.iterate_cells()}) if raw.hidden_columns else []
    )
    hidden_letters = [
        get_column_letter(column)
        for column in columns
        if any(first <= column <= last for first, last in raw.hidden_columns)
    ]
    if hidden_letters:
        columns_text = f"column{'s' * (len(hidden_letters) > 1)} {', '.join(hidden_letters)}"
        yield f"{sheet.name}: {columns_text} hidden in the spreadsheet; read all the same"


def _spread_merged_values(sheet: Sheet, raw: RawSheet, problems: Problems) -> list[str]:
    # Returns notes on the merged ranges.
    if len(raw.merged) > MAX_MERGED:
        raise InputError(Problem(f"more than {MAX_MERGED:,} merged ranges", where=sheet.name))
    rows = sheet.rows
    used_columns = sorted({column for cells in rows.values() for column in cells})
    filled_columns = {row: set(cells) for row, cells in rows.items()}
    row_numbers = sorted(filled_columns)
    notes: list[str] = []
    visited = 0
    for ref in raw.merged:
        left, top, right, bottom = range_boundaries(ref)
        cell = rows.get(top, {}).get(left)
        if cell is None:
            continue
        # Only rows with other values count. The rest are no rows of the table.
        covered_rows = row_numbers[
            bisect_right(row_numbers, top) : bisect_right(row_numbers, bottom)
        ]
        visited += len(covered_rows)
        # Only ranges that overlap can cover this many rows.
        if visited > MAX_MERGED_ROWS:
            raise InputError(
                Problem("too many merged cells", where=sheet.name, hint="unmerge them")
            )
        # A title above the table covers columns, but is the only value of its row.
        is_single_cell = top == bottom and filled_columns[top] == {left}
        is_wide = (
            bisect_right(used_columns, right) > bisect_right(used_columns, left)
            and not is_single_cell
        )
        if is_wide or any(left in filled_columns[row] for row in covered_rows):
            problem_text = "merged across columns" if is_wide else "merged over other values"
            hint = "unmerge them and fill in each cell"
            problems.add_problem(
                f"the cells {ref} are {problem_text}", sheet.cell_address(top, left), hint
            )
            continue
        for row in covered_rows:
            rows[row][left] = cell
        if covered_rows:
            notes.append(
                f"{sheet.name}!{ref} is one merged cell: its value {shorten(cell.text, 40)!r} "
                f"counts for {rows_in_words([top, *covered_rows])}"
            )
    if (more := len(notes) - MAX_MERGES_TOLD) > 0:
        notes[MAX_MERGES_TOLD:] = [f"{sheet.name}: {more} more merged cells are read like that"]
    return notes


def _garbled_texts(sheet: Sheet) -> Iterator[str]:
    # Such a text was saved in one encoding and opened in another.
    garbled = [
        (sheet.cell_address(row, column), cell.text, corrected)
        for row, column, cell in sheet.iterate_cells()
        if isinstance(cell.value, str) and (corrected := _decode_garbled(cell.value))
    ]
    if garbled:
        where, text, corrected = garbled[0]
        more = f" (and {len(garbled) - 1} more cells of this sheet)" if len(garbled) > 1 else ""
        yield (
            f"{where} looks like a text that was opened in the wrong encoding: "
            f"{shorten(text, 40)!r} was perhaps {shorten(corrected, 40)!r}{more}; it is read as it "
            "stands"
        )


def _decode_garbled(text: str) -> str:
    if text.isascii():
        return ""
    if "\ufffd" in text:
        return text.replace("\ufffd", "?")
    # UTF-8 that was opened as Windows-1252 ("Ã©" for "é") encodes back without an error. Other
    # texts almost never do.
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return ""


def rows_in_words(rows: Iterable[int], max_ranges: int = MAX_RANGES) -> str:
    """Return row numbers as `row 3` or `rows 3–5, 9`."""
    # At most `max_ranges` ranges are listed.
    ranges: list[list[int]] = []
    for row in sorted(rows):
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1][1] = row
        else:
            ranges.append([row, row])
    shown = [
        str(first) if first == last else f"{first}–{last}" for first, last in ranges[:max_ranges]
    ]
    more = sum(last - first + 1 for first, last in ranges[max_ranges:])
    tail = f" and {more:,} more" if more else ""
    is_single_row = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'row' if is_single_row else 'rows'} {', '.join(shown)}{tail}"
