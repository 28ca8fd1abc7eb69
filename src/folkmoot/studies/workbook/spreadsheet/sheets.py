"""Reads the cells of an .xlsx file safely: bounded, never executed, empty space skipped.

A workbook is untrusted input. openpyxl builds trees of styles, shared strings and rows before
anybody can count them, so each part is first unpacked in blocks and its elements counted. Nothing
of that is kept but how a sheet looks beyond its cells, which openpyxl does not tell when it reads
row by row. The rest of the study type sees only `Book`: plain cells by row and column, and the
mistakes with their addresses. A person reads a merged cell as one value for all its rows, and takes
hidden rows for gone: the first is read so, the second is not; a note says either.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
import re
import warnings
import zipfile
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from openpyxl import load_workbook
from openpyxl.utils import get_column_letter, range_boundaries

from folkmoot.errors import InputError, Problem
from folkmoot.hints import shortened
from folkmoot.studies.workbook.config import MAX_TEXT, Problems, Scalar, number_text

MAX_FILE_BYTES = 50_000_000
MAX_UNPACKED_BYTES = 300_000_000
MAX_PARTS = 5_000
MAX_SHEETS = 50
MAX_MERGED = 20_000  # ranges of a sheet
MAX_VISITED = 8_000_000  # cells, counting the empty ones that a stray format leaves behind
MAX_ROWS = 1_048_576  # Excel's own limits for a sheet
MAX_COLUMNS = 16_384
MAX_STRINGS = 1_000_000
MAX_ELEMENTS = 200_000  # of styles and everything else that is not a cell
MAX_FORMULAS = 20_000
MAX_FORMULA = 8_192  # characters, as in Excel
MAX_INSIDE = 1_000  # elements within one cell or shared string
MAX_DEPTH = 50
MAX_TAG = 1_000_000  # bytes
MAX_RUN = 1_000_000  # characters of text within one element
MAX_DIGITS = 300
MAX_LISTED = 20
_BLOCK = 1 << 16
_CELLS_ONLY = "delete the formats, rows and columns that are not used"
_AGAIN = "save it again as .xlsx"


@dataclass(slots=True)
class Look:
    """What is hidden or merged in a sheet, by rows and columns from 1.

    `columns`: (first, last); `merged`: ranges as Excel writes them.
    """

    filtered: bool = False
    rows: array[int] = field(default_factory=lambda: array("I"))
    columns: list[tuple[int, int]] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)


def check_file(path: Path) -> dict[str, Look]:
    """How the sheets look, by the name of their part.

    Raises InputError for what is not a workbook, is damaged, or is too large in any way.
    """
    if path.name.startswith("~$"):
        raise _refusal(
            path,
            "this is the lock file that Excel leaves while a workbook is open",
            f"give the workbook itself, {path.name[2:]}",
        )
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_FILE_BYTES and path.is_file() else b""
    except OSError as error:
        raise _refusal(
            path, f"the file cannot be read: {error.strerror}", "check the path; close it in Excel"
        ) from error
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise _refusal(
            path,
            "the file is an old .xls or is protected by a password",
            "save it as .xlsx without a password",
        )
    if size > MAX_FILE_BYTES:
        raise _refusal(
            path,
            f"the file has {size:,} bytes, the limit is {MAX_FILE_BYTES:,}",
            "remove pictures and rows that are not used",
        )
    if not zipfile.is_zipfile(path):
        raise _refusal(path, "the file is not an .xlsx workbook", "save it as .xlsx")
    if data.count(b"PK\x01\x02") > MAX_PARTS:
        raise _refusal(path, f"the file has more than {MAX_PARTS:,} parts", _AGAIN)
    del data
    try:
        with zipfile.ZipFile(path) as archive:
            counts = _check_parts(path, archive)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError) as error:
        raise _refusal(path, f"the file is damaged: {error}", _AGAIN) from error
    bad = {count.part: count.bad for count in counts if count.bad}
    if bad:
        raise InputError(_numbers(path, bad))
    return {count.part: count.look for count in counts}


def _refusal(path: Path, message: str, hint: str) -> InputError:
    return InputError(Problem(message, file=path.name, hint=hint))


def _check_parts(path: Path, archive: zipfile.ZipFile) -> list[_Count]:
    """Counts every part."""
    unpacked = sum(part.file_size for part in archive.infolist())
    counts: list[_Count] = []
    sheets = 0
    for part in archive.infolist():
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refusal(
                path, f"{part.filename} is compressed in a way that workbooks do not use", _AGAIN
            )
        if unpacked > MAX_UNPACKED_BYTES:
            break
        # What a part says of its own size is not believed.
        unsized = copy.copy(part)
        unsized.file_size = 2 * MAX_UNPACKED_BYTES
        count = _Count(path, part.filename)
        with archive.open(unsized) as source:
            size = count.read(source)
        unpacked += size - part.file_size
        counts.append(count)
        sheets += count.root == "worksheet"
        if sheets > MAX_SHEETS:
            raise _refusal(path, f"more than {MAX_SHEETS} sheets", "keep six or seven")
    if unpacked > MAX_UNPACKED_BYTES:
        raise _refusal(
            path,
            f"the file unpacks to {unpacked:,} bytes or more, the limit is {MAX_UNPACKED_BYTES:,}",
            "delete the empty rows and columns below and beside the data",
        )
    return counts


@dataclass(slots=True)
class _Count:
    """What one part holds, counted while it goes by. `bad`: cells whose numbers are none."""

    path: Path
    part: str
    bad: list[str] = field(default_factory=list)
    look: Look = field(default_factory=Look)
    row: int = 0
    root: str = ""
    depth: int = 0
    rows: int = 0
    in_row: int = 0
    cells: int = 0
    strings: int = 0
    open: int = 0  # the depth of the cell or shared string that is open
    inside: int = 0
    others: int = 0
    formulas: int = 0
    cell: str = ""
    kind: str = ""
    run: int = 0
    number: list[str] | None = None
    formula: bool = False

    def read(self, source: IO[bytes]) -> int:
        """Go through a part to its end; its size. What is not XML is only measured."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype
        size, is_xml = 0, True
        while block := source.read(_BLOCK):
            size += len(block)
            if size > MAX_UNPACKED_BYTES:
                break
            try:
                if is_xml:
                    parser.Parse(block)
            except expat.ExpatError:
                is_xml = False  # openpyxl stops at the same byte
            if is_xml and size - max(parser.CurrentByteIndex, 0) > MAX_TAG + _BLOCK:
                raise self._too_much("a tag that does not end", _AGAIN)
        return size

    def _too_much(self, what: str, hint: str = _CELLS_ONLY) -> InputError:
        where = f" ({self.part})"
        return _refusal(self.path, f"the file holds {what}{where}", hint)

    def _doctype(self, *_: object) -> None:
        raise self._too_much("XML entities, which no workbook needs", _AGAIN)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(":")[2]
        self.root = self.root or tag
        self.depth += 1
        self.run = 0
        if self.depth > MAX_DEPTH:
            raise self._too_much(f"elements nested deeper than {MAX_DEPTH}", _AGAIN)
        if self.root == "worksheet" and tag == "row":
            self.rows += 1
            self.in_row = 0
            at = attributes.get("r", "1")
            if self.rows > MAX_ROWS or not at.isdecimal() or len(at) > 7 or int(at) > MAX_ROWS:
                raise self._too_much(f"more than {MAX_ROWS:,} rows")
            self._looks(tag, attributes)
        elif self.root == "worksheet" and tag == "c":
            self.cells += 1
            self.in_row += 1
            self.inside, self.open = 0, self.depth
            self.cell, self.kind = attributes.get("r", ""), attributes.get("t", "n")
            letters = self.cell.rstrip("0123456789")
            if self.in_row > MAX_COLUMNS or len(letters) > 3 or len(self.cell) - len(letters) > 7:
                raise self._too_much(f"more than {MAX_COLUMNS:,} columns")
            if self.cells > MAX_VISITED:
                raise self._too_much(f"more than {MAX_VISITED:,} cells")
        elif self.root == "sst" and tag == "si":
            self.strings += 1
            self.inside, self.open = 0, self.depth
            if self.strings > MAX_STRINGS:
                raise self._too_much(f"more than {MAX_STRINGS:,} shared strings")
        elif self.open:
            self._within(tag)
        else:
            self.others += 1
            if self.others > MAX_ELEMENTS:
                raise self._too_much(f"more than {MAX_ELEMENTS:,} styles or other settings")
            if self.root == "worksheet":
                self._looks(tag, attributes)

    def _looks(self, tag: str, attributes: dict[str, str]) -> None:
        look = self.look
        if tag == "row":
            self.row = int(attributes.get("r", self.row + 1))
            if _hidden(attributes, "ht"):
                look.rows.append(self.row)
        elif tag == "col" and _hidden(attributes, "width") and len(look.columns) < MAX_COLUMNS:
            look.columns.append((int(attributes.get("min", "")), int(attributes.get("max", ""))))
        elif tag == "filterColumn":
            look.filtered = True
        elif tag == "mergeCell" and len(look.merged) <= MAX_MERGED:
            look.merged.append(attributes.get("ref", ""))

    def _within(self, tag: str) -> None:
        """An element in a cell or a shared string."""
        self.inside += 1
        if self.inside > MAX_INSIDE:
            raise self._too_much(f"more than {MAX_INSIDE:,} pieces in one cell")
        if tag == "v" and self.kind in ("n", "b", "s"):
            self.number = []
        elif tag == "f":
            self.formula = True
            self.formulas += 1
            if self.formulas > MAX_FORMULAS:
                raise self._too_much(f"more than {MAX_FORMULAS:,} formulas", "paste their values")

    def _end(self, _name: str) -> None:
        if self.depth == self.open:
            self.open = 0
        self.depth -= 1
        self.run = 0
        self.formula = False
        if self.number is not None:
            if not _is_number("".join(self.number)) and len(self.bad) < MAX_LISTED:
                self.bad.append(self.cell)
            self.number = None

    def _text(self, text: str) -> None:
        self.run += len(text)
        if self.run > MAX_RUN:
            raise self._too_much(f"a text of more than {MAX_RUN:,} characters", "shorten it")
        if self.formula and self.run > MAX_FORMULA:
            raise self._too_much(f"a formula of more than {MAX_FORMULA:,} characters", "shorten it")
        if self.number is not None and len(self.number) <= MAX_DIGITS:
            self.number.append(text)


def _hidden(attributes: dict[str, str], size: str) -> bool:
    return attributes.get("hidden") in ("1", "true") or float(attributes.get(size, 1)) == 0


def _is_number(text: str) -> bool:
    try:
        return len(text) <= MAX_DIGITS and math.isfinite(float(text or 0))
    except ValueError:
        return False


def _numbers(path: Path, bad: dict[str, list[str]]) -> list[Problem]:
    """Cells that should hold a number and do not, by sheet."""
    book = load_workbook(path, read_only=True, keep_links=False)
    titles = {sheet._worksheet_path.lstrip("/"): sheet.title for sheet in book.worksheets}
    book.close()
    return [
        Problem(
            f"the cell holds a number of more than {MAX_DIGITS} digits, or not a number",
            file=path.name,
            where=f"{titles.get(part, part)}!{cell}",
            hint="type the number again, or format the cell as text",
        )
        for part, cells in bad.items()
        for cell in cells
    ]


MAX_CELLS = 2_000_000  # that hold something
MAX_CHARACTERS = 100_000_000  # of all texts together
MAX_MERGES_TOLD = 50
MAX_RANGES = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell that holds something. `text` is what a person sees in it."""

    value: Scalar
    text: str
    date: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """The cells of a sheet: row number → column number → cell, both from 1, blanks left out."""

    name: str
    rows: dict[int, dict[int, Cell]] = field(default_factory=dict)

    def at(self, row: int, column: int) -> str:
        """An address as Excel writes it."""
        return f"{self.name}!{get_column_letter(column)}{row}"

    def cells(self) -> Iterator[tuple[int, int, Cell]]:
        """Row, column and cell, row by row."""
        for row, cells in sorted(self.rows.items()):
            for column, cell in sorted(cells.items()):
                yield row, column, cell

    def texts(self, row: int) -> dict[int, str]:
        """Column → text of a row."""
        return {column: cell.text for column, cell in self.rows.get(row, {}).items()}


@dataclass(frozen=True, slots=True)
class Book:
    """All sheets in their order, what is wrong with single cells, what was read otherwise."""

    sheets: dict[str, Sheet]
    problems: Problems
    hidden: frozenset[str]


def read_book(path: Path) -> Book:
    """The cells of a workbook. Raises InputError when the file as a whole cannot be used."""
    looks = check_file(path)
    try:
        with warnings.catch_warnings():
            # openpyxl warns of drop-downs and styles that it drops; neither matters here.
            warnings.simplefilter("ignore")
            return _read(path, looks)
    except InputError:
        raise
    # A damaged file can break the reader anywhere: XML, zip, numbers, styles, relations.
    except Exception as error:
        raise InputError(
            Problem(
                f"the workbook cannot be read ({type(error).__name__}: {error})"[:300],
                file=path.name,
                hint="open it in a spreadsheet program and save it again as .xlsx",
            )
        ) from error


def _read(path: Path, looks: dict[str, Look]) -> Book:
    problems = Problems()
    sheets: dict[str, Sheet] = {}
    formulas: set[tuple[str, int, int]] = set()
    seen: dict[str, Look] = {}
    hidden: set[str] = set()
    for source, cells in _sheets(path, cached=False):
        sheet = sheets.setdefault(source.title, Sheet(source.title))
        for cell in cells:
            if cell.data_type == "f":
                formulas.add((sheet.name, cell.row, cell.column))
            else:
                _put(sheet, cell, problems)
        if source.sheet_state != "visible":
            hidden.add(sheet.name)
        if hasattr(source, "_worksheet_path"):  # openpyxl has no public name for a sheet's part
            seen[sheet.name] = looks.get(source._worksheet_path.lstrip("/"), Look())
    if formulas:
        _read_cached(path, sheets, formulas, problems)
    for sheet in sheets.values():
        problems.notes += _shown(sheet)
    for name, look in seen.items():
        problems.notes += _hidden_notes(sheets[name], look, name in hidden)
        problems.notes += _merge(sheets[name], look, problems)
    for sheet in sheets.values():
        problems.notes += _garbled(sheet)
    return Book(sheets, problems, frozenset(hidden & set(seen)))


def _read_cached(
    path: Path, sheets: dict[str, Sheet], formulas: set[tuple[str, int, int]], problems: Problems
) -> None:
    """Puts the values that the spreadsheet program last calculated in the place of formulas."""
    found = set()
    for source, cells in _sheets(path, cached=True):
        for cell in cells:
            if (source.title, cell.row, cell.column) in formulas:
                found.add((source.title, cell.row, cell.column))
                _put(sheets[source.title], cell, problems)
    for name, row, column in sorted(formulas - found):
        problems.add(
            "the cell holds a formula that was never calculated",
            sheets[name].at(row, column),
            "open and save the file in a spreadsheet program, or type the value",
        )


def _sheets(path: Path, *, cached: bool) -> Iterator[tuple[Any, Iterable[Any]]]:
    """Every sheet with its filled cells; chart sheets, which have none, last."""
    book = load_workbook(path, read_only=True, data_only=cached, keep_links=False)
    try:
        if len(book.sheetnames) > MAX_SHEETS:  # several can name the same part
            raise InputError(
                Problem(f"more than {MAX_SHEETS} sheets", file=path.name, hint="keep six or seven")
            )
        budget = _Budget(path)
        for sheet in book.worksheets:
            yield sheet, budget.filled_cells(sheet)
        for chart in book.chartsheets:
            yield chart, ()
    finally:
        book.close()


@dataclass(slots=True)
class _Budget:
    """Counts cells while one file is read, and stops at the limits."""

    path: Path
    visited: int = 0
    filled: int = 0
    characters: int = 0

    def filled_cells(self, sheet: Any) -> Iterator[Any]:
        # Without this a stray format in the last column makes every row 16,384 cells wide.
        sheet.reset_dimensions()
        for number, row in enumerate(sheet.iter_rows(), 1):
            if not row and number % 1_000:
                continue  # a gap of empty rows: counted by the thousand
            filled = [cell for cell in row if cell.value is not None]
            self.visited += (len(row) or 1_000) + 1
            self.filled += len(filled)
            self.characters += sum(len(c.value) for c in filled if isinstance(c.value, str))
            self._check(sheet.title)
            yield from filled

    def _check(self, sheet: str) -> None:
        what = ""
        if self.filled > MAX_CELLS:
            what = f"too many cells: the limit is {MAX_CELLS:,} filled ones"
        elif self.visited > MAX_VISITED:
            what = "the sheet reaches too far: most of its cells are empty"
        elif self.characters > MAX_CHARACTERS:  # one shared string can stand in every cell
            what = f"the texts have more than {MAX_CHARACTERS:,} characters"
        if what:
            hint = "delete the rows and columns that are not used"
            raise InputError(Problem(what, file=self.path.name, where=sheet, hint=hint))


# --- one cell ----------------------------------------------------------------------------------


def _put(sheet: Sheet, cell: Any, problems: Problems) -> None:
    where = sheet.at(cell.row, cell.column)
    if cell.data_type == "e":
        problems.add(f"the cell holds the error {cell.value}", where, "correct the formula")
        return
    value = _plain(cell.value)
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            message = f"the text has {len(value):,} characters, the limit is {MAX_TEXT:,}"
            problems.add(message, where, "shorten it")
            return
        # Excel writes characters that XML cannot hold as _x000D_ and the like.
        value = re.sub(r"_x000[dD]_", "", value).replace("\r\n", "\n").replace("\r", "\n")
        if not value.strip():
            return
    date = isinstance(cell.value, (dt.date, dt.time))
    row = sheet.rows.setdefault(cell.row, {})
    row[cell.column] = Cell(value, _text(value, cell.number_format), date)


def _plain(value: object) -> Scalar:
    """A cell's value as text, number or truth value; dates and times as ISO text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dt.datetime):
        midnight = value.time() == dt.time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def _text(value: Scalar, number_format: str | None) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    shown = (number_format or "")[:40].split(";")[0]  # one of a million zeros is a bomb
    decimals = re.fullmatch(r"#?,?#*0(?:\.(0+))?(%?)", shown)
    if decimals and (decimals[1] or decimals[2]):
        percent = decimals[2]
        return f"{value * (100 if percent else 1):.{len(decimals[1] or '')}f}{percent}"
    if re.fullmatch("00+", shown) and value >= 0 and float(value).is_integer():
        return f"{int(value):0{min(len(shown), 30)}d}"
    return number_text(value)


# --- what a person sees ------------------------------------------------------------------------


def _shown(sheet: Sheet) -> Iterator[str]:
    """Columns with dates, and those whose numbers are shown with fewer digits than they have."""
    first: dict[tuple[int, str], str] = {}
    for row, column, cell in sheet.cells():
        if cell.date:
            what = f"holds dates; they are read as {cell.text}"
            first.setdefault((column, "date"), f"{what} ({sheet.at(row, column)})")
        elif isinstance(cell.value, float) and _rounded(cell.value, cell.text):
            what = f"is read as it is shown: {cell.text} for {cell.value}"
            first.setdefault((column, "digits"), f"{what} ({sheet.at(row, column)})")
    for (column, _), what in sorted(first.items()):
        yield f"{sheet.name}: column {get_column_letter(column)} {what}"


def _rounded(value: float, text: str) -> bool:
    return not text.endswith("%") and abs(float(text) - value) > 1e-9 * max(1.0, abs(value))


def _hidden_notes(sheet: Sheet, look: Look, hidden: bool) -> Iterator[str]:
    """What is out of sight and read all the same, of the rows and columns that hold values."""
    if hidden:
        yield f"the sheet {sheet.name} is hidden in the spreadsheet; it is read all the same"
    if rows := sorted({row for row in look.rows if row in sheet.rows}):
        by = "hidden by a filter" if look.filtered else "hidden"
        yield (
            f"{sheet.name}: {rows_in_words(rows)} {by} in the spreadsheet; read all the same "
            "(delete what should not take part)"
        )
    columns = sorted({column for _, column, _ in sheet.cells()}) if look.columns else []
    shut = [get_column_letter(c) for c in columns if any(a <= c <= b for a, b in look.columns)]
    if shut:
        what = f"column{'s' * (len(shut) > 1)} {', '.join(shut)}"
        yield f"{sheet.name}: {what} hidden in the spreadsheet; read all the same"


def _merge(sheet: Sheet, look: Look, problems: Problems) -> list[str]:
    """Gives the value of a merged range to all its rows, as a person reads it.

    Across columns a merged cell is only wide: it is refused where a column that it covers has
    values of its own, since nobody can tell which of them it stands for.
    """
    if len(look.merged) > MAX_MERGED:
        raise InputError(Problem(f"more than {MAX_MERGED:,} merged ranges", where=sheet.name))
    rows = sheet.rows
    own = sorted({column for cells in rows.values() for column in cells})
    filled = {row: set(cells) for row, cells in rows.items()}
    numbers = sorted(filled)
    notes: list[str] = []
    visited = 0
    for ref in look.merged:
        left, top, right, bottom = range_boundaries(ref)
        cell = rows.get(top, {}).get(left)
        if cell is None:
            continue
        # Only rows that hold something else: others are no rows of the table.
        within = numbers[bisect_right(numbers, top) : bisect_right(numbers, bottom)]
        visited += len(within)
        if visited > MAX_CELLS:  # only ranges that lie over each other can be so many
            raise InputError(
                Problem("too many merged cells", where=sheet.name, hint="unmerge them")
            )
        # A title over the whole table covers columns, but stands alone in its row.
        alone = top == bottom and filled[top] == {left}
        wide = bisect_right(own, right) > bisect_right(own, left) and not alone
        if wide or any(left in filled[row] for row in within):
            what = "merged across columns" if wide else "merged over other values"
            hint = "unmerge them and fill in each cell"
            problems.add(f"the cells {ref} are {what}", sheet.at(top, left), hint)
            continue
        for row in within:
            rows[row][left] = cell
        if within:
            notes.append(
                f"{sheet.name}!{ref} is one merged cell: its value {shortened(cell.text, 40)!r} "
                f"counts for {rows_in_words([top, *within])}"
            )
    if (more := len(notes) - MAX_MERGES_TOLD) > 0:
        notes[MAX_MERGES_TOLD:] = [f"{sheet.name}: {more} more merged cells are read like that"]
    return notes


def _garbled(sheet: Sheet) -> Iterator[str]:
    """Texts that were once saved in one encoding and opened in another."""
    found = [
        (sheet.at(row, column), cell.text, right)
        for row, column, cell in sheet.cells()
        if isinstance(cell.value, str) and (right := _decoded(cell.value))
    ]
    if found:
        where, text, right = found[0]
        more = f" (and {len(found) - 1} more cells of this sheet)" if len(found) > 1 else ""
        yield (
            f"{where} looks like a text that was opened in the wrong encoding: "
            f"{shortened(text, 40)!r} was perhaps {shortened(right, 40)!r}{more}; it is read as it "
            "stands"
        )


def _decoded(text: str) -> str:
    """What a garbled text was before; "" where there is no sign of that."""
    if text.isascii():
        return ""
    if "\ufffd" in text:
        return text.replace("\ufffd", "?")
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return ""


def rows_in_words(rows: Iterable[int], most: int = MAX_RANGES) -> str:
    """Row numbers as `row 3` or `rows 3–5, 9`; of more ranges than `most` the first are named."""
    ranges: list[list[int]] = []
    for row in sorted(rows):
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1][1] = row
        else:
            ranges.append([row, row])
    shown = [str(a) if a == b else f"{a}–{b}" for a, b in ranges[:most]]
    more = sum(b - a + 1 for a, b in ranges[most:])
    tail = f" and {more:,} more" if more else ""
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'row' if one else 'rows'} {', '.join(shown)}{tail}"
