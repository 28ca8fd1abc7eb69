"""Reads the cells of an .xlsx file safely: bounded, never executed, empty space skipped.

A workbook is untrusted input. The rest of the study type sees only `Book`, plain cells by row and
column, and a list of problems with their addresses.
"""

from __future__ import annotations

import datetime as dt
import re
import warnings
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from openpyxl import load_workbook
from openpyxl.utils import get_column_letter, range_boundaries

from folkmoot.errors import InputError, Problem
from folkmoot.studies.workbook.opening import MAX_VISITED, check_file

MAX_MERGED = 20_000
MAX_RANGES = 20
_BLOCK = 1 << 16


@dataclass(slots=True)
class Look:
    """`merged`: (first column, first row, last column, last row), all from 1."""

    hidden: bool = False
    filtered: bool = False
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[tuple[int, int]] = field(default_factory=list)


def look_at(sheet: Any) -> Look:
    """The look of a sheet that openpyxl opened for reading; no tree is built of it."""
    look = Look(hidden=sheet.sheet_state != "visible")
    row = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal row
        tag = name.rpartition("}")[2]
        if tag == "row":
            row = int(attributes.get("r", row + 1))
            if _hidden(attributes, "ht"):
                look.rows.append(row)
        elif tag == "col" and _hidden(attributes, "width"):
            look.columns.append((int(attributes["min"]), int(attributes["max"])))
        elif tag == "filterColumn":
            look.filtered = True
        elif tag == "mergeCell":
            look.merged.append(_bounds(attributes["ref"]))
            if len(look.merged) > MAX_MERGED:
                raise InputError(
                    Problem(f"more than {MAX_MERGED:,} merged ranges", where=sheet.title)
                )

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = start
    with sheet._get_source() as source:  # openpyxl has no public way to a sheet's own XML
        while block := source.read(_BLOCK):
            parser.Parse(block)
        parser.Parse(b"", True)
    return look


def _hidden(attributes: dict[str, str], size: str) -> bool:
    return attributes.get("hidden") in ("1", "true") or float(attributes.get(size, 1)) == 0


def _bounds(ref: str) -> tuple[int, int, int, int]:
    left, top, right, bottom = range_boundaries(ref)
    if left is None or top is None or right is None or bottom is None:
        raise ValueError(f"{ref} is no range")
    return left, top, right, bottom


def hidden_notes(
    name: str, look: Look, filled: Collection[int], columns: Collection[int]
) -> Iterator[str]:
    """What is out of sight and read all the same, of the rows and columns that hold values."""
    if look.hidden:
        yield f"the sheet {name} is hidden in the spreadsheet; it is read all the same"
    rows = sorted(set(look.rows) & set(filled))
    if rows:
        by = "hidden by a filter" if look.filtered else "hidden"
        yield (
            f"{name}: {rows_in_words(rows)} {by} in the spreadsheet; read all the same "
            "(delete what should not take part)"
        )
    shut = [get_column_letter(c) for c in sorted(columns) if _within(c, look.columns)]
    if shut:
        what = f"column{'s' * (len(shut) > 1)} {', '.join(shut)}"
        yield f"{name}: {what} hidden in the spreadsheet; read all the same"


def _within(column: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= column <= last for first, last in ranges)


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


MAX_CELLS = 2_000_000  # that hold something
MAX_CHARACTERS = 100_000_000  # of all texts together
MAX_SHEETS = 50
MAX_MERGES_TOLD = 50
MAX_TEXT = 100_000  # characters in one cell; Excel itself stops at 32,767

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell that holds something. `text` is what a person sees in it."""

    value: Value
    text: str
    date: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """The cells of a sheet: row number → column number → cell, both from 1, blanks left out."""

    name: str
    rows: Mapping[int, Mapping[int, Cell]] = field(default_factory=dict)

    def at(self, row: int, column: int) -> str:
        """An address as Excel writes it."""
        return f"{self.name}!{get_column_letter(column)}{row}"


@dataclass(frozen=True, slots=True)
class Book:
    """All sheets in their order, what was wrong with single cells, what was read otherwise."""

    path: Path
    sheets: Mapping[str, Sheet]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()


def read_book(path: Path) -> Book:
    """The cells of a workbook. Raises InputError when the file as a whole cannot be used."""
    check_file(path)
    try:
        with warnings.catch_warnings():
            # openpyxl warns of drop-downs and styles that it drops; neither matters here.
            warnings.simplefilter("ignore")
            return _read(path)
    except InputError:
        raise
    # A damaged file can break the reader anywhere: XML, zip, numbers, styles, relations.
    except Exception as error:
        raise InputError(
            Problem(
                f"the file is no readable workbook ({type(error).__name__}: {error})"[:300],
                file=path.name,
                mend="open it in a spreadsheet program and save it again as .xlsx",
            )
        ) from error


def _read(path: Path) -> Book:
    problems: list[Problem] = []
    sheets: dict[str, Sheet] = {}
    formulas: list[tuple[str, int, int]] = []
    looks: dict[str, Look] = {}
    for name, row, column, cell in _cells(path, _Budget(path), cached=False, looks=looks):
        sheet = sheets.setdefault(name, Sheet(name, {}))
        if cell is None:
            continue
        if cell.data_type == "f":
            formulas.append((name, row, column))
        else:
            _put(sheet, row, column, cell, problems)
    if formulas:
        _read_cached(path, sheets, set(formulas), problems)
    notes = [note for sheet in sheets.values() for note in _shown(sheet)]
    for name, look in looks.items():
        rows = sheets[name].rows
        notes += hidden_notes(name, look, rows, {c for cells in rows.values() for c in cells})
        notes += _merge(sheets[name], look, problems)
    notes += [n for sheet in sheets.values() for n in _garbled(sheet)]
    hidden = frozenset(name for name, look in looks.items() if look.hidden)
    return Book(path, sheets, tuple(problems), tuple(notes), hidden)


def _merge(sheet: Sheet, look: Look, problems: list[Problem]) -> list[str]:
    """Gives the value of a merged range to all its rows, as a person reads it.

    Across columns a merged cell is only wide: it is refused where a column that it covers has
    values of its own, since nobody can tell which of them it stands for.
    """
    rows: dict[int, dict[int, Cell]] = sheet.rows  # type: ignore[assignment]
    own = sorted({column for cells in rows.values() for column in cells})
    filled = {row: set(cells) for row, cells in rows.items()}
    numbers = sorted(filled)
    notes: list[str] = []
    visited = 0
    for left, top, right, bottom in look.merged:
        cell = rows.get(top, {}).get(left)
        if cell is None:
            continue
        ref = f"{get_column_letter(left)}{top}:{get_column_letter(right)}{bottom}"
        within = numbers[bisect_right(numbers, top) : bisect_right(numbers, bottom)]
        visited += len(within)
        if visited > MAX_CELLS:  # only ranges that lie over each other can be so many
            raise InputError(
                Problem("too many merged cells", where=sheet.name, mend="unmerge them")
            )
        # A title over the whole table covers columns, but stands alone in its row.
        alone = top == bottom and filled[top] == {left}
        wide = bisect_right(own, right) > bisect_right(own, left) and not alone
        hides = any(left in filled[row] for row in within)
        if wide or hides:
            what = "merged across columns" if wide else "merged over other values"
            problems.append(
                Problem(
                    f"the cells {ref} are {what}",
                    where=sheet.at(top, left),
                    mend="unmerge them and fill in each cell",
                )
            )
            continue
        # Only rows that hold something else: others are no rows of the table.
        for row in within:
            rows[row][left] = cell
        if within:
            notes.append(
                f"{sheet.name}!{ref} is one merged cell: its value {_short(cell.text)!r} counts "
                f"for {rows_in_words([top, *within])}"
            )
    more = len(notes) - MAX_MERGES_TOLD
    if more > 0:
        notes[MAX_MERGES_TOLD:] = [f"{sheet.name}: {more} more merged cells are read like that"]
    return notes


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _shown(sheet: Sheet) -> Iterator[str]:
    """Columns with dates, and those whose numbers are shown with fewer digits than they have."""
    first: dict[tuple[int, str], str] = {}
    for row, cells in sorted(sheet.rows.items()):
        for column, cell in cells.items():
            if cell.date:
                what = f"holds dates; they are read as {cell.text}"
                first.setdefault((column, "date"), f"{what} ({sheet.at(row, column)})")
            elif _rounded(cell):
                what = f"is read as it is shown: {cell.text} for {cell.value}"
                first.setdefault((column, "digits"), f"{what} ({sheet.at(row, column)})")
    for (column, _), what in sorted(first.items()):
        yield f"{sheet.name}: column {get_column_letter(column)} {what}"


def _rounded(cell: Cell) -> bool:
    if not isinstance(cell.value, float) or cell.text.endswith("%"):
        return False
    return abs(float(cell.text) - cell.value) > 1e-9 * max(1.0, abs(cell.value))


def _garbled(sheet: Sheet) -> Iterator[str]:
    """Texts that were once saved in one encoding and opened in another."""
    found = [
        (sheet.at(row, column), cell.text, right)
        for row, cells in sorted(sheet.rows.items())
        for column, cell in sorted(cells.items())
        if isinstance(cell.value, str) and (right := _decoded(cell.value))
    ]
    if found:
        where, text, right = found[0]
        more = f" (and {len(found) - 1} more cells of this sheet)" if len(found) > 1 else ""
        yield (
            f"{where} looks like a text that was opened in the wrong encoding: {_short(text)!r} "
            f"was perhaps {_short(right)!r}{more}; it is read as it stands"
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


def _read_cached(
    path: Path,
    sheets: dict[str, Sheet],
    formulas: set[tuple[str, int, int]],
    problems: list[Problem],
) -> None:
    """Puts the values that the spreadsheet program last calculated in the place of formulas."""
    found = set()
    for name, row, column, cell in _cells(path, _Budget(path), cached=True):
        if cell is not None and (name, row, column) in formulas and cell.value is not None:
            found.add((name, row, column))
            _put(sheets[name], row, column, cell, problems)
    for name, row, column in sorted(formulas - found):
        problems.append(
            Problem(
                "the cell holds a formula that was never calculated",
                where=sheets[name].at(row, column),
                mend="open and save the file in a spreadsheet program, or type the value",
            )
        )


@dataclass(slots=True)
class _Budget:
    """Counts cells while one file is read, and stops at the limits."""

    path: Path
    visited: int = 0
    filled: int = 0
    characters: int = 0

    def visit(self, sheet: str, cells: int, filled: list[Any]) -> None:
        self.visited += cells + 1
        self.filled += len(filled)
        self.characters += sum(len(value) for value in filled if isinstance(value, str))
        what = ""
        if self.filled > MAX_CELLS:
            what = f"too many cells: the limit is {MAX_CELLS:,} filled ones"
        elif self.visited > MAX_VISITED:
            what = "the sheet reaches too far: most of its cells are empty"
        elif self.characters > MAX_CHARACTERS:  # one shared string can stand in every cell
            what = f"the texts have more than {MAX_CHARACTERS:,} characters"
        if what:
            raise InputError(
                Problem(
                    what,
                    file=self.path.name,
                    where=sheet,
                    mend="delete the rows and columns that are not used",
                )
            )


def _cells(
    path: Path, budget: _Budget, *, cached: bool, looks: dict[str, Look] | None = None
) -> Iterator[tuple[str, int, int, Any | None]]:
    """Every filled cell as (sheet, row, column, cell); once (sheet, 0, 0, None) per sheet."""
    book = load_workbook(path, read_only=True, data_only=cached, keep_links=False)
    try:
        if len(book.sheetnames) > MAX_SHEETS:
            raise InputError(
                Problem(f"more than {MAX_SHEETS} sheets", file=path.name, mend="keep six or seven")
            )
        for sheet in book.worksheets:
            yield sheet.title, 0, 0, None
            # Without this a stray format in the last column makes every row 16,384 cells wide.
            sheet.reset_dimensions()
            for number, row in enumerate(sheet.iter_rows(), 1):
                if not row and number % 1_000:
                    continue  # a gap of empty rows: counted by the thousand
                filled = [c for c in row if c.value is not None]
                budget.visit(sheet.title, len(row) or 1_000, [c.value for c in filled])
                for cell in filled:
                    yield sheet.title, cell.row, cell.column, cell
            if looks is not None:
                looks[sheet.title] = look_at(sheet)
        for other in book.sheetnames:
            yield other, 0, 0, None  # chart sheets have no cells, but they are extra sheets
    finally:
        book.close()


def _put(sheet: Sheet, row: int, column: int, cell: Any, problems: list[Problem]) -> None:
    where = sheet.at(row, column)
    if cell.data_type == "e":
        problems.append(
            Problem(f"the cell holds the error {cell.value}", where=where, mend="mend the formula")
        )
        return
    value = _plain(cell.value)
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            problems.append(
                Problem(
                    f"the text has {len(value):,} characters, the limit is {MAX_TEXT:,}",
                    where=where,
                    mend="shorten it",
                )
            )
            return
        # Excel writes characters that XML cannot hold as _x000D_ and the like.
        value = re.sub(r"_x000[dD]_", "", value).replace("\r\n", "\n").replace("\r", "\n")
        if not value.strip():
            return
    rows: dict[int, dict[int, Cell]] = sheet.rows  # type: ignore[assignment]
    rows.setdefault(row, {})[column] = Cell(
        value, _text(value, cell.number_format), isinstance(cell.value, (dt.date, dt.time))
    )


def _plain(value: Any) -> Value:
    """A cell's value as text, number or truth value; dates and times as ISO text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dt.datetime):
        midnight = value.time() == dt.time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def _text(value: Value, number_format: str | None) -> str:
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


def number_text(value: float) -> str:
    """A number as a person writes it: 4.0 is `4`, .1 + .2 is `0.3`."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.12g}"
