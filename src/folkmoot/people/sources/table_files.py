"""Read a file with one table: CSV, Parquet, JSON lines or xlsx."""
# All modules read tables about people with these functions. So each file format has the same limits
# and messages everywhere.

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from openpyxl.utils import get_column_letter

from folkmoot.errors import InputError, Problem
from folkmoot.files import READ_CSV_OPTIONS, header_problem
from folkmoot.spreadsheet_cells import RawCell, RawSheet, read_spreadsheet

MAX_BYTES = 500_000_000
MAX_PEOPLE = 1_000_000
# Far more than any survey has. Each column costs separate work.
MAX_COLUMNS = 10_000
# A sheet with two filled cells can be a million rows high and ten thousand columns wide.
MAX_SHEET_AREA = 20_000_000
# A column of formulas that were never calculated has the same problem in each row.
MAX_LISTED_PROBLEMS = 20
# If a workbook has several sheets, the table is on the sheet of this name.
SHEET = "people"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_JSON_LINES = (".jsonl", ".ndjson")
# What to do about a table above a limit.
_SMALLER = "delete the rows and columns that are not used"
# Names of a column with survey weights.
WEIGHT_COLUMNS = ("weight", "weights")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
POINT_HINT = "write decimals with a point, such as 2.5"
# Qualtrics writes the texts of the questions and their ids into the rows below the names.
_QUALTRICS_ID = '{"ImportId"'


def first_line(path: Path) -> int:
    """Return the number of the line in which a file's first person is."""
    return 2 if path.suffix.lower() in (*_SEPARATORS, ".xlsx") else 1


def name_line(path: Path, row: int) -> str:
    """Return the line of a file in which a row of its table is, such as "line 3".

    - `row`: counts from 0.
    """
    # A Parquet file has no lines.
    kind = "row" if path.suffix.lower() in _PARQUET else "line"
    return f"{kind} {row + first_line(path)}"


def clean_name(column: str) -> str:
    """Return the name of a column in lower case, with underscores in place of spaces."""
    # Two spellings of a letter, such as an accent of its own, give the same name.
    name = unicodedata.normalize("NFKC", column).strip().lower().replace(" ", "_")
    # A range such as "1-5" or "-3 to 3" keeps its signs, because a description shows the name.
    return re.sub(r"(?<=[^\W\d_])-|-(?!\d)", "_", name)


def is_weight_column(column: str) -> bool:
    """Return whether a column of a table of people holds their survey weights."""
    return clean_name(column) in WEIGHT_COLUMNS


def has_decimal_comma(cell: object) -> bool:
    """Return whether a cell is a number with a comma in place of the decimal point."""
    return isinstance(cell, str) and bool(_DECIMAL_COMMA.fullmatch(cell.strip()))


def read_frame(path: Path) -> pl.DataFrame:
    """Return the table in a file.

    Raises InputError if the file cannot be read, or if rows below the names are no people.
    """
    table = _read_cells(path)
    for number, row in enumerate(table.head(2).iter_rows(), 1):
        if any(str(cell).strip().startswith(_QUALTRICS_ID) for cell in row):
            problem = "Qualtrics wrote its question ids here, which are no answers"
            hint = "delete the rows between the column names and the first person"
            raise InputError(
                Problem(problem, str(path), str(number + first_line(path) - 1), "", hint)
            )
    return table


def _read_cells(path: Path) -> pl.DataFrame:
    # Cells keep their spelling: a text column becomes numeric only if each number would be written
    # exactly as in its cell.
    kind = path.suffix.lower()
    try:
        if path.stat().st_size > MAX_BYTES:
            problem = f"larger than {MAX_BYTES:,} bytes"
            raise InputError(Problem(problem, file=str(path), hint=_SMALLER))
        # A few bytes of Parquet can encode any number of rows, so check before reading.
        if kind in _PARQUET:
            # polars takes brackets in a path for a pattern and reads the files that match it.
            rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
            if rows > MAX_PEOPLE:
                problem = f"{rows:,} rows, the limit is {MAX_PEOPLE:,}"
                raise InputError(Problem(problem, str(path), hint=_SMALLER))
            _check_columns(path, len(pl.scan_parquet(path, glob=False).collect_schema()))
            return _without_nan_and_fractions(pl.read_parquet(path, glob=False))
        if kind in _SEPARATORS:
            return _read_separated_file(path, _SEPARATORS[kind])
        if kind in _JSON_LINES:
            with path.open("rb") as file:
                table = pl.read_ndjson(file, infer_schema_length=None)
            _check_columns(path, table.width)
            return _without_nan_and_fractions(table)
        if kind == ".xlsx":
            return _read_sheet(path)
    except FileNotFoundError as error:
        raise InputError(Problem("no such file", file=str(path))) from error
    except (OSError, pl.exceptions.PolarsError) as error:
        # The first line of the library's message names the problem. The other lines are hints for
        # programmers.
        ragged = _ragged_line(path, _SEPARATORS[kind]) if kind in _SEPARATORS else ""
        reason = _undecodable_line(path, kind) or ragged or str(error).strip().splitlines()[0]
        hint = READ_CSV_OPTIONS if kind in _SEPARATORS else ""
        raise InputError(
            Problem(f"cannot be read as a table: {reason}", file=str(path), hint=hint)
        ) from error
    raise InputError(
        Problem(
            f"cannot read a table from a {kind or 'nameless'} file",
            file=str(path),
            hint="give .csv, .tsv, .xlsx, .parquet or .jsonl",
        )
    )


def _check_columns(path: Path, count: int) -> None:
    if count > MAX_COLUMNS:
        problem = f"{count:,} columns, the limit is {MAX_COLUMNS:,}"
        raise InputError(Problem(problem, str(path), hint=_SMALLER))


def _read_separated_file(path: Path, mark: str) -> pl.DataFrame:
    # Read the header first, because a file with very many columns is slow to parse.
    header = pl.read_csv(path, separator=mark, infer_schema=False, n_rows=0, glob=False)
    # polars refuses cells that are not UTF-8, but replaces such characters in the header.
    if any("\ufffd" in column or "\0" in column for column in header.columns):
        raise InputError(Problem("is not UTF-8", str(path), "1", hint=READ_CSV_OPTIONS))
    # Excel for Mac once wrote such files. The whole file is then one line.
    if any("\r" in column and "\n" not in column for column in header.columns):
        problem = "its lines end with a carriage return (CR) alone"
        raise InputError(Problem(problem, str(path), "1", hint=READ_CSV_OPTIONS))
    _check_columns(path, header.width)
    cells = pl.read_csv(path, separator=mark, infer_schema=False, glob=False)
    if wrong := header_problem(cells.columns, mark):
        raise InputError(Problem(wrong, str(path), "1"))
    # Editors leave blank lines at the end of a file.
    filled = cells.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    cells = _without_nameless_columns(cells.head(int(filled[-1]) + 1 if len(filled) else 0), path)
    return cells.with_columns(_parse_number_column(column) for column in cells)


def _without_nameless_columns(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    # Spreadsheet programs write columns that have neither a name nor cells.
    nameless = [name for name in table.columns if not name.partition("_duplicated_")[0].strip()]
    for name in nameless:
        filled = table[name].is_not_null().arg_true()
        if len(filled):
            position, row = table.columns.index(name) + 1, filled[0] + first_line(path)
            hint = "write the names into row 1"
            problem = f"column {position} has a cell, but no name"
            raise InputError(Problem(problem, str(path), str(row), hint=hint))
    return table.drop(nameless)


def _without_nan_and_fractions(table: pl.DataFrame) -> pl.DataFrame:
    # R and pandas store whole numbers as floats if one is missing, and the missing one as NaN. A
    # persona should be 31 years old, not 31.0.
    table = table.with_columns(pl.selectors.float().fill_nan(None))
    return table.with_columns(
        column.cast(pl.Int64) if column.dtype.is_float() and are_whole(column) else column
        for column in table
    )


def are_whole(column: pl.Series) -> bool:
    """Return True if a column holds only whole numbers and missing cells."""
    known = column.drop_nulls()
    # Above 2 ** 53 a float does not tell one whole number from the next.
    return bool((known.is_finite() & (known == known.floor()) & (known.abs() < 2**53)).all())


def _undecodable_line(path: Path, kind: str) -> str:
    if kind not in _SEPARATORS or not path.is_file():
        return ""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"line {number}: not UTF-8"
    return ""


def _ragged_line(path: Path, mark: str) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter=mark)
            width = len(next(rows, []))
            ragged = next((rows.line_num for row in rows if len(row) > width), 0)
    except (OSError, ValueError, csv.Error):
        return ""
    return f"line {ragged}: more fields than columns" if ragged else ""


def _parse_number_column(column: pl.Series) -> pl.Series:
    # 007 and 1.10 would become 7 and 1.1, so their columns stay text.
    for kind in (pl.Int64, pl.Float64):
        numbers = column.cast(kind, strict=False)
        if numbers.cast(pl.String).eq_missing(column).all():
            # Among decimals "NaN" is read as a number, and it is a missing cell.
            return numbers.fill_nan(None)
    return column


def _read_sheet(path: Path) -> pl.DataFrame:
    sheet = _find_sheet(path)
    problems = [*_find_gaps(sheet), *_find_unreadable_cells(sheet)]
    if problems:
        raise InputError(
            [
                Problem(text, str(path), where, hint=hint)
                for text, where, hint in problems[:MAX_LISTED_PROBLEMS]
            ]
        )
    header = {cell.column: _cell_text(cell) for cell in sheet.cells if cell.row == 1}
    if wrong := header_problem([*header.values()]):
        raise InputError(Problem(wrong, str(path), f"{sheet.name}!1"))
    _check_columns(path, len(header))
    height = max(cell.row for cell in sheet.cells) - 1
    if height * len(header) > MAX_SHEET_AREA or height > MAX_PEOPLE:
        problem = f"the table has {height:,} rows"
        raise InputError(Problem(problem, str(path), sheet.name, hint=_SMALLER))
    columns: dict[int, list[str | None]] = {column: [None] * height for column in header}
    for cell in sheet.cells:
        if cell.row > 1:
            columns[cell.column][cell.row - 2] = _cell_text(cell)
    series = (pl.Series(header[number], cells, pl.String) for number, cells in columns.items())
    return pl.DataFrame([_parse_number_column(column) for column in series])


def _find_sheet(path: Path) -> RawSheet:
    filled = [sheet for sheet in read_spreadsheet(path) if sheet.cells]
    named = [sheet for sheet in filled if clean_name(sheet.name) == SHEET]
    if len(filled) != 1 and len(named) != 1:
        names = ", ".join(sheet.name for sheet in filled[:5])
        problem = f"{len(filled)} sheets have cells: {names}" if filled else "all sheets are empty"
        hint = f"call the sheet of the table {SHEET!r}" if filled else ""
        raise InputError(Problem(problem, str(path), hint=hint))
    return (named or filled)[0]


def _find_gaps(sheet: RawSheet) -> list[tuple[str, str, str]]:
    problems = [
        ("these cells are merged", f"{sheet.name}!{area}", "unmerge them and fill in each cell")
        for area in sheet.merged
    ]
    hidden = [str(row) for row in sorted(sheet.hidden_rows)] + [
        get_column_letter(first) for first, _ in sheet.hidden_columns
    ]
    if hidden:
        hint = "show hidden rows and columns, or delete them"
        problems.append(("this row or column is hidden", f"{sheet.name}!{hidden[0]}", hint))
    header = {cell.column for cell in sheet.cells if cell.row == 1}
    nameless = next((cell for cell in sheet.cells if cell.column not in header), None)
    if nameless is not None:
        where = f"{sheet.name}!{get_column_letter(nameless.column)}{nameless.row}"
        problems.append(("no column name above this cell", where, "write the names into row 1"))
    return problems


def _find_unreadable_cells(sheet: RawSheet) -> list[tuple[str, str, str]]:
    meanings = {
        "error": ("this cell is an error", "correct it, or clear the cell"),
        "formula": ("this formula was never calculated", "open the file and save it again"),
        "number": ("this is not a valid number", "write it again"),
    }
    return [
        (
            meanings[cell.kind][0],
            f"{sheet.name}!{get_column_letter(cell.column)}{cell.row}",
            meanings[cell.kind][1],
        )
        for cell in sheet.cells
        if cell.kind in meanings
    ]


def _cell_text(cell: RawCell) -> str:
    # Excel stores 3 as 3.0, so a whole number loses its fraction.
    if isinstance(cell.value, bool):
        return str(cell.value).lower()
    if isinstance(cell.value, float) and cell.value.is_integer():
        return str(int(cell.value))
    return str(cell.value)


# At most this many problems of one kind are listed one by one. More are grouped into one.
FEW_PROBLEMS = 3
LISTED_EXAMPLES = 5


def group_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems, with many problems of one kind merged into one problem."""
    # Problems of one kind have the same file, column and hint.
    kinds: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.file, problem.key, problem.hint), []).append(problem)
    grouped: list[Problem] = []
    for similar_problems in kinds.values():
        if len(similar_problems) <= FEW_PROBLEMS:
            grouped += similar_problems
            continue
        lines: dict[str, list[str]] = {}
        for problem in similar_problems:
            lines.setdefault(problem.message, []).append(problem.where)
        examples = [
            f"{message} (line {where[0]}{f' and {len(where) - 1} more' * (len(where) > 1)})"
            for message, where in list(lines.items())[:LISTED_EXAMPLES]
        ]
        rest = len(lines) - LISTED_EXAMPLES
        more = f"; and {rest} more values" if rest > 0 else ""
        message = f"{len(similar_problems)} rows: {'; '.join(examples)}{more}"
        grouped.append(replace(similar_problems[0], message=message))
    return grouped
