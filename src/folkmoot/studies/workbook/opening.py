"""Whether a workbook may be opened at all: what would fill the memory is refused beforehand.

openpyxl builds trees of styles, shared strings and rows before anybody can count them. So each part
is first unpacked in blocks and its elements counted. Nothing of it is kept but how a sheet looks
beyond its cells, which openpyxl does not tell when it reads row by row.
"""

from __future__ import annotations

import copy
import math
import zipfile
import zlib
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.parsers import expat

from openpyxl import load_workbook

from folkmoot.errors import InputError, Problem

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
