"""Read the cells of an .xlsx file as plain values."""
# A spreadsheet may come from any source, and openpyxl can use much memory before it reports the
# size. Every file is therefore read in a child process with limits on memory and time. Formulas are
# not executed. The value of a formula is its last calculated result.

from __future__ import annotations

import datetime as dt
import math
import posixpath
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.parsers.expat import errors

from openpyxl.reader.excel import ExcelReader, apply_stylesheet
from openpyxl.styles.numbers import BUILTIN_FORMATS, BUILTIN_FORMATS_MAX_SIZE
from openpyxl.utils.cell import coordinate_to_tuple
from openpyxl.worksheet._reader import FORMULA_TAG, VALUE_TAG, WorkSheetParser

from folkmoot.child_process import Limits, run_in_child
from folkmoot.errors import InputError, LimitReached, Problem
from folkmoot.hints import number_text

MAX_FILE_BYTES = 50_000_000
MAX_UNPACKED_BYTES = 300_000_000
# Filled cells of all sheets together.
MAX_CELLS = 2_000_000
# Characters of all texts together. One shared string can be in every cell, so the file size does
# not bound them.
MAX_CHARACTERS = 100_000_000
# The limit of Excel.
MAX_ROW = 1_048_576
# Digits of a number. A longer number has no finite float.
MAX_DIGITS = 300
# Spreadsheet programs keep 15 digits of a number. Longer identifiers have 20 digits at most.
EXACT_BELOW = 10**15
MAX_WHOLE = 10**20
# Of the child process that reads a spreadsheet or a survey.
LIMITS = Limits(seconds=120, memory_bytes=2_000_000_000)
_NO_MEMORY = errors.codes[errors.XML_ERROR_NO_MEMORY]
# A format with fixed decimals or of percentages.
_DECIMALS = re.compile(r"#?,?#*0(?:\.(0+))?(%?)")
# The parts of a sheet that hold drawings, and a picture or a text in such a part.
_DRAWING = re.compile(r'Target="([^"]{0,500}drawings/[^"]{1,500}\.xml)"')
_DRAWN = re.compile(rb"<(?:\w+:)?(?:pic|t)[\s>]")
_SAVE_AGAIN_HINT = "open it in a spreadsheet program and save it again as .xlsx"

Kind = Literal["", "date", "error", "formula", "number"]


class RawCell(NamedTuple):
    """One filled cell of a sheet."""

    row: int
    column: int
    value: str | int | float | bool
    # "date" (the value is a date or time as ISO text), "error", "formula" (never calculated),
    # "number" (not a valid number), or "" for all other cells. Formulas and invalid numbers have no
    # value.
    kind: Kind
    number_format: str


@dataclass
class RawSheet:
    """One sheet: the filled cells in order, the merged ranges, and the hidden rows and columns."""

    # Rows and columns are counted from 1.

    name: str
    is_hidden: bool
    is_filtered: bool = False
    cells: list[RawCell] = field(default_factory=list)
    # Ranges such as `A1:B3`.
    merged: list[str] = field(default_factory=list)
    hidden_rows: list[int] = field(default_factory=list)
    # (first, last) of each hidden range.
    hidden_columns: list[tuple[int, int]] = field(default_factory=list)
    # True if pictures or text boxes lie on the sheet. They belong to no cell.
    has_drawings: bool = False


def read_spreadsheet(path: Path) -> list[RawSheet]:
    """Return the sheets of a file in order.

    Raises InputError if the file cannot be read.
    """
    _check_kind(path)
    bounds = (MAX_UNPACKED_BYTES, MAX_CELLS, MAX_CHARACTERS)
    try:
        sheets_or_problem = run_in_child(
            _read_sheets,
            (str(path.absolute()), *bounds),
            limits=LIMITS,
            # To import numpy, which openpyxl needs for cells of its types only, takes 0.1 s.
            blocked_modules=("numpy",),
        )
    except LimitReached as error:
        message = (
            f"the file takes more than {LIMITS.seconds} seconds or "
            f"{LIMITS.memory_bytes // 1_000_000:,} MB to read"
        )
        hint = "delete the formats, rows, columns and pictures that are not used"
        raise InputError(Problem(message, path.name, hint=hint)) from error
    if isinstance(sheets_or_problem, Problem):
        raise InputError(
            Problem(
                sheets_or_problem.message,
                path.name,
                sheets_or_problem.where,
                hint=sheets_or_problem.hint,
            )
        )
    assert isinstance(sheets_or_problem, list)
    return sheets_or_problem


def _check_kind(path: Path) -> None:
    problem = hint = ""
    try:
        size = path.stat().st_size
        head = b""
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(4)
    except OSError as error:
        problem, hint = (
            f"the file cannot be read: {error.strerror}",
            "check the path; close it in Excel",
        )
        raise InputError(Problem(problem, path.name, hint=hint)) from error
    if path.name.startswith("~$"):
        problem = "this is the lock file that Excel leaves while a workbook is open"
        hint = f"give the workbook itself, {path.name[2:]}"
    # The signature of OLE files: old .xls files, and encrypted .xlsx files.
    elif head == b"\xd0\xcf\x11\xe0":
        problem = "the file is an old .xls or is protected by a password"
        hint = "save it as .xlsx without a password"
    elif size > MAX_FILE_BYTES:
        problem = f"the file has {size:,} bytes, the limit is {MAX_FILE_BYTES:,}"
        hint = "remove pictures and rows that are not used"
    elif not zipfile.is_zipfile(path):
        problem, hint = "the file is not an .xlsx workbook", "save it as .xlsx"
    if problem:
        raise InputError(Problem(problem, path.name, hint=hint))


# --- in the process with limits ----------------------------------------------------------------


def _read_sheets(
    path: str, max_unpacked: int, max_cells: int, max_characters: int
) -> list[RawSheet] | Problem:
    try:
        with warnings.catch_warnings():
            # openpyxl warns of drop-downs and styles that it ignores. Neither matters here.
            warnings.simplefilter("ignore")
            with zipfile.ZipFile(path) as archive:
                # A forged part can state a wrong size. The memory limit of the process stops it.
                unpacked = sum(part.file_size for part in archive.infolist())
            if unpacked > max_unpacked:
                message = f"the file unpacks to {unpacked:,} bytes, the limit is {max_unpacked:,}"
                hint = "delete the empty rows and columns below and beside the data"
                return Problem(message, hint=hint)
            return _collect_cells(path, max_cells, max_characters)
    # A damaged file can cause any exception in the reader: XML, zip, numbers, styles, relations.
    except Exception as error:
        if isinstance(error, MemoryError) or getattr(error, "code", None) == _NO_MEMORY:
            # The parent recognises a MemoryError as a limit and gives another hint.
            raise MemoryError from error
        message = f"the workbook cannot be read ({type(error).__name__}: {error})"
        return Problem(message[:300], hint=_SAVE_AGAIN_HINT)


def _collect_cells(path: str, max_cells: int, max_characters: int) -> list[RawSheet] | Problem:
    reader = ExcelReader(path, read_only=True, keep_links=False)
    reader.read_manifest()
    reader.read_strings()
    reader.read_workbook()
    apply_stylesheet(reader.archive, reader.wb)
    sheets: list[RawSheet] = []
    cells = characters = 0
    for part, relation in reader.parser.find_sheets():
        sheet = RawSheet(part.name, part.state != "visible")
        sheets.append(sheet)
        if "chartsheet" in relation.Type or relation.target not in reader.valid_files:
            continue
        sheet.has_drawings = _has_drawings(reader.archive, relation.target)
        with reader.archive.open(relation.target) as source:
            for cell in _SheetReader(source, reader).filled_cells(sheet):
                cells += 1
                characters += len(cell.value) if isinstance(cell.value, str) else 0
                problem = ""
                if cells > max_cells:
                    problem = f"too many cells: the limit is {max_cells:,} filled ones"
                elif characters > max_characters:
                    problem = f"the texts have more than {max_characters:,} characters"
                if problem:
                    hint = "delete the rows and columns that are not used"
                    return Problem(problem, where=sheet.name, hint=hint)
                sheet.cells.append(cell)
    if not sheets:
        message = "no sheet can be read; perhaps the file was saved as Strict Open XML"
        return Problem(message, hint="save it as Excel Workbook (.xlsx)")
    return sheets


def _has_drawings(archive: zipfile.ZipFile, sheet_part: str) -> bool:
    # Only pictures and texts count. A chart shows what the cells hold.
    folder, name = posixpath.split(sheet_part)
    parts = archive.namelist()
    relations = f"{folder}/_rels/{name}.rels"
    targets = (
        _DRAWING.findall(archive.read(relations).decode(errors="replace"))
        if relations in parts
        else ()
    )
    drawings = {posixpath.normpath(posixpath.join("/", folder, target))[1:] for target in targets}
    return any(_DRAWN.search(archive.read(part)) for part in sorted(drawings.intersection(parts)))


class _SheetReader(WorkSheetParser):  # type: ignore[misc]
    def __init__(self, source: Any, reader: ExcelReader) -> None:
        book = reader.wb
        super().__init__(
            source,
            reader.shared_strings,
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
        )
        self.book: Any = book
        self.row_counter: int
        self.col_counter: int

    def filled_cells(self, sheet: RawSheet) -> Iterator[RawCell]:
        for number, cells in self.parse():
            if not 1 <= number <= MAX_ROW:
                raise ValueError(f"row {number} is not between 1 and {MAX_ROW:,}")
            yield from filter(None, cells)
        for row, attributes in self.row_dimensions.items():
            if _is_hidden(attributes, "ht"):
                sheet.hidden_rows.append(int(row))
        for attributes in self.column_dimensions.values():
            if _is_hidden(attributes, "width"):
                sheet.hidden_columns.append((int(attributes["min"]), int(attributes["max"])))
        merged = self.merged_cells.mergeCell if self.merged_cells else ()
        sheet.merged += [str(merged_range.ref) for merged_range in merged]
        auto_filter = getattr(self, "auto_filter", None)
        sheet.is_filtered = bool(auto_filter and auto_filter.filterColumn)

    def parse_cell(self, element: Any) -> RawCell | None:
        written_value = element.findtext(VALUE_TAG) or ""
        # openpyxl would fail at an invalid number. Here it becomes a cell, so that the problem can
        # be reported with its position.
        is_number = element.get("t", "n") in ("n", "b", "s") and written_value
        if is_number and not _is_finite(written_value):
            row, column = self.row_counter, self.col_counter + 1
            if reference := element.get("r"):
                row, column = coordinate_to_tuple(reference)
            self.col_counter = column
            return RawCell(row, column, "", "number", "")
        cell = super().parse_cell(element)
        row, column, value = cell["row"], cell["column"], cell["value"]
        if value is None:
            # The result of a calculated formula can be an empty text, which is a blank cell.
            is_empty_text = element.get("t") == "str" and element.find(VALUE_TAG) is not None
            is_formula = element.find(FORMULA_TAG) is not None and not is_empty_text
            return RawCell(row, column, "", "formula", "") if is_formula else None
        kind: Kind = "error" if cell["data_type"] == "e" else ""
        if not isinstance(value, (bool, int, float, str)):
            value, kind = format_date(value), "date"
        return RawCell(row, column, value, kind, self._format_of(cell["style_id"]))

    def _format_of(self, style: int) -> str:
        # A forged format can have millions of characters, which would be copied into each cell.
        number = self.book._cell_styles[style].numFmtId
        if number < BUILTIN_FORMATS_MAX_SIZE:
            return str(BUILTIN_FORMATS.get(number, ""))
        return str(self.book._number_formats[number - BUILTIN_FORMATS_MAX_SIZE])[:40]


def _is_hidden(attributes: Mapping[str, str], size: str) -> bool:
    return attributes.get("hidden") in ("1", "true") or float(attributes.get(size, 1)) == 0


def _is_finite(text: str) -> bool:
    try:
        return len(text) <= MAX_DIGITS and math.isfinite(float(text))
    except ValueError:
        return False


def format_date(value: object) -> str:
    """Return a date or time as ISO text, without the time if it is midnight."""
    if isinstance(value, dt.datetime):
        midnight = value.time() == dt.time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    # Python writes 27 hours as "1 day, 3:00:00". A spreadsheet program counts the hours.
    if isinstance(value, dt.timedelta) and value >= dt.timedelta(days=1):
        hours, seconds = divmod(round(value.total_seconds()), 3600)
        return f"{hours}:{seconds // 60:02d}:{seconds % 60:02d}"
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else str(value)


def is_format_followed(value: bool | int | float, number_format: str) -> bool:
    """Return True if `format_number` writes the number as a spreadsheet program shows it.

    Separators of thousands do not count.
    """
    sections = number_format.split(";")
    if isinstance(value, bool) or sections[0].lower() in ("", "general", "@"):
        return True
    # The second part of a format is for negative numbers, as in `0.00;(0.00)`.
    if value < 0 and len(sections) > 1 and sections[1].removeprefix("[Red]") != f"-{sections[0]}":
        return False
    return bool(_DECIMALS.fullmatch(sections[0]) or re.fullmatch("00+", sections[0]))


def format_number(value: bool | int | float, number_format: str) -> str:
    """Return a number or a boolean as a spreadsheet program shows it.

    Of the formats, percentages, fixed decimals and leading zeros are followed.
    """
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    format_section = number_format.split(";", maxsplit=1)[0]
    # Cells are texts for participants, so 0.5 in the format `0%` is read as "50%", as it is shown.
    decimals = _DECIMALS.fullmatch(format_section)
    if decimals:
        percent = decimals[2]
        # Spreadsheet programs round a 5 up, and they round the decimal digits of the number.
        shown = Decimal(repr(value)) * (100 if percent else 1)
        step = Decimal(1).scaleb(-len(decimals[1] or ""))
        with localcontext(prec=400):
            shown = shown.quantize(step, ROUND_HALF_UP)
        # A spreadsheet program shows no negative zero.
        return f"{shown if shown else abs(shown):f}{percent}"
    if re.fullmatch("00+", format_section) and value >= 0 and float(value).is_integer():
        return f"{int(value):0{min(len(format_section), 30)}d}"
    # A long identifier is a whole number with all its digits.
    if float(value).is_integer() and abs(value) < MAX_WHOLE:
        return str(int(value))
    return number_text(value)
