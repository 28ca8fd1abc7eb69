"""Read and write the cells of a workbook in a child process with limits."""
# A workbook may come from any source. If it has formulas, images or other content that would be
# lost, it is not edited here. This module imports little, so that a child process starts quickly.

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from openpyxl import Workbook, load_workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE, Cell, MergedCell
from openpyxl.styles.numbers import is_date_format
from openpyxl.utils import column_index_from_string, get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from folkmoot.child_process import Limits, run_in_child
from folkmoot.errors import FolkmootError, InputError, LimitReached, Problem
from folkmoot.files import write_bytes
from folkmoot.spreadsheet_cells import format_date, format_number, read_spreadsheet

LIMITS = Limits(seconds=60, memory_bytes=2_000_000_000)
# A sheet with more rows or columns is edited in a spreadsheet program. Each cell is a form field.
MAX_ROWS, MAX_COLUMNS = 200, 60
# Formatted empty rows count as rows of a sheet. A sheet with more of them is not looked at.
MAX_FORMATTED_ROWS = 5_000
# Parts of an .xlsx file that are lost if openpyxl writes the file again.
LOST_PARTS = {"xl/media/": "images", "xl/charts/": "charts", "xl/pivotTables/": "pivot tables",
              "xl/embeddings/": "embedded files", "xl/drawings/drawing": "drawings",
              "xl/threadedComments/": "comments with replies"}  # fmt: skip
_IN_PROGRAM = "download it, edit it in a spreadsheet program, and upload it again"

# Excel stores 15 digits of a number. A longer one stays a text, so that no digit is lost.
MAX_DIGITS = 15
# openpyxl cuts a longer text without a word.
MAX_CELL_CHARACTERS = 32_767
# XML has no such characters. openpyxl knows only some of them, and writes a file that cannot be
# read again.
NO_XML_CHARACTERS = re.compile("[\\ud800-\\udfff\\ufffe\\uffff]")

# Sheet → rows. A row maps the letter of a column → the text of the cell.
Rows = dict[str, list[dict[str, str]]]


class SheetCells(NamedTuple):
    """The cells of a sheet as texts."""

    name: str
    # `rows[0]` is row 1 of the sheet.
    rows: list[list[str]]
    # Maps the address of a cell, such as `B2`, to its note.
    notes: dict[str, str]
    # Maps the address of a cell to the choices of its drop-down list.
    choices: dict[str, tuple[str, ...]]

    @property
    def has_settings(self) -> bool:
        """True if the sheet lists settings."""
        # A fixed name is in column A, its value in column B.
        names = [f"A{i}" for i, row in enumerate(self.rows[1:], 2) if row and row[0]]
        return not self._has_fixed_columns and self._are_described(names)

    @property
    def has_open_columns(self) -> bool:
        """True if the researcher may rename the columns of the sheet."""
        return not self.has_settings and not self._has_fixed_columns

    @property
    def _has_fixed_columns(self) -> bool:
        # The column of IDs is fixed in a sheet of open columns too.
        header = self.rows[0] if self.rows else []
        names = [f"{get_column_letter(i)}1" for i, name in enumerate(header, 1) if name]
        return "B1" in self.notes and self._are_described(names)

    def _are_described(self, addresses: Sequence[str]) -> bool:
        # Cells with a fixed meaning have notes. A person may add a note to any cell, and names
        # without one.
        return 2 * sum(address in self.notes for address in addresses) > len(addresses)


def read_sheets(path: Path) -> list[SheetCells] | str:
    """Return the sheets of a workbook, or the reason why a web form cannot edit the workbook."""
    try:
        sheets = run_in_child(load_sheets, (str(path),), limits=LIMITS)
    except LimitReached:
        return f"The workbook is too large for a form: {_IN_PROGRAM}."
    except FolkmootError:
        return f"The workbook cannot be read as a form: {_IN_PROGRAM}."
    assert isinstance(sheets, (list, str))
    return sheets


def require_version(workbook: Path, file_name: str, content: bytes) -> None:
    """Check that a file is another version of a workbook.

    Raises InputError if it cannot be read, or has no sheet of the workbook. The content of its
    sheets is not checked.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / file_name
        path.write_bytes(content)
        names = {sheet.name for sheet in read_spreadsheet(path)}
    try:
        own_names = {sheet.name for sheet in read_spreadsheet(workbook)}
    except InputError:
        # A damaged workbook can only be replaced.
        return
    if names.isdisjoint(own_names):
        hint = f"give its sheets the names of {workbook.name}: {', '.join(sorted(own_names))}"
        raise InputError(Problem("has no sheet of this study", file_name, hint=hint))


def load_sheets(path: str) -> list[SheetCells] | str:
    """Return the sheets of a workbook, or the reason why saving a web form would lose content."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for prefix, content in LOST_PARTS.items():
        if any(name.startswith(prefix) for name in names):
            return f"The workbook has {content}, which a form would lose: {_IN_PROGRAM}."
    book = load_workbook(path)
    sheets = []
    for sheet in book.worksheets:
        if problem := _sheet_problem(sheet):
            return f"The sheet {sheet.title} {problem}: {_IN_PROGRAM}."
        rows = _trimmed([[_text_of_cell(cell) for cell in row] for row in sheet.iter_rows()])
        if len(rows) > MAX_ROWS:
            return f"The sheet {sheet.title} has more than {MAX_ROWS} rows: {_IN_PROGRAM}."
        notes = {
            cell.coordinate: cell.comment.text
            for row in sheet.iter_rows()
            for cell in row
            if cell.comment is not None
        }
        sheets.append(SheetCells(sheet.title, rows, notes, _drop_downs(sheet)))
    return sheets


def _sheet_problem(sheet: Worksheet) -> str:
    if sheet.max_row > MAX_FORMATTED_ROWS or sheet.max_column > MAX_COLUMNS:
        return f"has more than {MAX_FORMATTED_ROWS} rows or {MAX_COLUMNS} columns"
    if sheet.merged_cells.ranges:
        return "has merged cells"
    if any(cell.data_type == "f" for row in sheet.iter_rows() for cell in row):
        return "has formulas"
    return ""


def _text_of_cell(cell: Cell | MergedCell) -> str:
    # The text that the study reads, because a row that moves takes this text along.
    if cell.value is None:
        return ""
    if isinstance(cell.value, str):
        return cell.value.rstrip("\n")
    if isinstance(cell.value, (int, float)):
        return format_number(cell.value, cell.number_format)
    return format_date(cell.value)


def _trimmed(rows: list[list[str]]) -> list[list[str]]:
    while len(rows) > 1 and not any(rows[-1]):
        rows.pop()
    return rows


def _drop_downs(sheet: Worksheet) -> dict[str, tuple[str, ...]]:
    # By cell address. A drop-down for a range of cells is under the address of its first cell.
    choices: dict[str, tuple[str, ...]] = {}
    for rule in sheet.data_validations.dataValidation:
        formula = str(rule.formula1 or "")
        # Only a list that is written into the rule. Others refer to cells of the workbook.
        if rule.type == "list" and formula.startswith('"') and formula.endswith('"'):
            words = tuple(formula.strip('"').split(","))
            choices |= {str(cells).partition(":")[0]: words for cells in rule.sqref.ranges}
    return choices


def write_sheet_values(path: Path, before: Rows, after: Rows) -> None:
    """Write the changed cells into a workbook.

    Raises InputError if the workbook cannot be written.
    """
    # A cell has changed if its text in `after` differs from that in `before`.
    changes = {name: rows for name, rows in after.items() if rows != before.get(name)}
    too_long = [
        Problem(
            f"this text has {len(text):,} characters, and a cell holds {MAX_CELL_CHARACTERS:,}",
            str(path),
            f"{name}!{letter}{row + 1}",
            hint="shorten it",
        )
        for name, rows in changes.items()
        for row, letter, text in _changed_cells(before.get(name, []), rows)
        if len(text) > MAX_CELL_CHARACTERS
    ]
    if too_long:
        raise InputError([*too_long])
    try:
        run_in_child(save_cells, (str(path), before, changes), limits=LIMITS)
    except FolkmootError as error:
        raise InputError(f"{path.name} could not be saved: {_IN_PROGRAM}") from error


def save_cells(path: str, before: Rows, changes: Rows) -> None:
    """Write the changed cells into the sheets of a workbook."""
    book: Workbook = load_workbook(path)
    for name, rows in changes.items():
        for row, letter, text in _changed_cells(before.get(name, []), rows):
            cell = book[name].cell(row + 1, column_index_from_string(letter))
            cell.value = _value_of_text(text, cell.number_format)
            # A text that starts with = is text here and no formula.
            if cell.data_type == "f":
                cell.data_type = "s"
    content = io.BytesIO()
    book.save(content)
    write_bytes(Path(path), content.getvalue())


def _changed_cells(
    before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]
) -> Iterator[tuple[int, str, str]]:
    for i in range(max(len(before), len(after))):
        old = before[i] if i < len(before) else {}
        new = after[i] if i < len(after) else {}
        for letter in {**old, **new}:
            if old.get(letter, "") != new.get(letter, ""):
                yield i, letter, new.get(letter, "")


def _value_of_text(text: str, number_format: str) -> str | int | float | None:
    # A number is written only if the cell would show it exactly as the text. Others, such as 007 or
    # 40% in a cell without a format, stay texts.
    text = NO_XML_CHARACTERS.sub("\ufffd", ILLEGAL_CHARACTERS_RE.sub("\ufffd", text))
    if not text:
        return None
    # In a cell for dates, 5 would be a day of the year 1900.
    if sum(map(str.isdigit, text)) > MAX_DIGITS or is_date_format(number_format):
        return text
    for convert in (int, float):
        try:
            number = convert(text)
        except ValueError:
            continue
        if math.isfinite(number) and format_number(number, number_format) == text:
            return number
    return text
