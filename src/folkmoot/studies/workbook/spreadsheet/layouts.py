"""Find the layout of a workbook, read its sheets as tables, and write new workbooks."""
# `layouts.yaml` holds names of sheets, settings and columns that differ from the default ones.
# Equal input gives identical bytes.

from __future__ import annotations

import datetime as dt
import io
import re
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypedDict, TypeVar, cast

from openpyxl import Workbook as Book
from openpyxl.cell import Cell as WrittenCell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet
from pydantic import BaseModel

from folkmoot.errors import Problem
from folkmoot.files import packaged_yaml
from folkmoot.hidden_characters import hidden_in
from folkmoot.hints import closest_name, did_you_mean
from folkmoot.studies.workbook.config import (
    COMPUTED_KINDS,
    COMPUTED_SCOPES,
    FACILITATOR,
    STRATEGIES,
    TASK_TYPES,
    VAR_TYPES,
    Computed,
    Constant,
    Problems,
    Role,
    Scalar,
    Settings,
    Task,
    Treatment,
    Workbook,
)
from folkmoot.studies.workbook.spreadsheet.sheets import Cell, Sheet, rows_in_words

COMPUTED = "computed"
# Text for people, which is not read.
NOTES_SHEET = "notes"


@dataclass(frozen=True)
class Layout:
    """The names of sheets, settings and columns in one layout."""

    # Names that the layout does not change are the default ones, as in `COLUMNS`.

    name: str
    title: str
    sheets: Mapping[str, str]
    settings_header: str = "experimental_setting"
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    # Settings that only this layout has.
    more_settings: Sequence[str] = ()
    # Settings that may be absent.
    optional: Sequence[str] = ()
    # Settings that the layout implies.
    fixed: Mapping[str, bool] = field(default_factory=dict)
    # True if treatments and roles may have attributes.
    texts_may_be_dicts: bool = False

    def sheet_name(self, own_name: str) -> str:
        return self.sheets.get(own_name, own_name)

    def setting_name(self, own_name: str) -> str:
        return self.settings.get(own_name, own_name)

    def column_name(self, sheet: str, own_name: str) -> str:
        return self.columns.get(f"{sheet}.{own_name}", own_name)

    @property
    def setting_keys(self) -> tuple[str, ...]:
        return (*SETTINGS, *self.more_settings)


class _Names(TypedDict):
    # The content of `layouts.yaml`.
    settings: list[str]
    columns: dict[str, list[str]]
    # Each entry lists different names of one column.
    aliases: list[list[str]]
    optional_columns: list[str]
    layouts: dict[str, dict[str, Any]]


_NAMES: _Names = packaged_yaml(__file__, "layouts.yaml")
LAYOUTS = tuple(Layout(name, **parts) for name, parts in _NAMES["layouts"].items())
# In the order of the file. The first layout is the documented one.
AGENT_ROLES, ROLES, SHORT = LAYOUTS
SHEETS = tuple(AGENT_ROLES.sheets)
SETTINGS = tuple(_NAMES["settings"])
COLUMNS: Mapping[str, tuple[str, ...]] = {
    key: tuple(value) for key, value in _NAMES["columns"].items()
}


OPTIONAL_COLUMNS = frozenset(_NAMES["optional_columns"])


def names_for(name: str) -> tuple[str, ...]:
    """Return a name, followed by its aliases in other layouts."""
    group = next((names for names in _NAMES["aliases"] if name in names), (name,))
    return (name, *(other for other in group if other != name))


def detect_layout(sheet_names: Collection[str]) -> tuple[Layout, Mapping[str, str]]:
    """Return the layout that fits the sheets best, and the name of each sheet in the file."""

    def count_matching_sheets(layout: Layout) -> int:
        return sum(name in sheet_names for name in layout.sheets.values())

    # `max` returns the first maximum, so the documented layout wins a tie.
    best = max(LAYOUTS, key=count_matching_sheets)
    sheets_found: dict[str, str] = {}
    # A sheet may have its name from another layout, since people mix templates.
    for own_name in SHEETS:
        candidates = [best.sheet_name(own_name), *(other.sheet_name(own_name) for other in LAYOUTS)]
        match = next((name for name in candidates if name in sheet_names), None)
        if match is not None:
            sheets_found[own_name] = match
    if COMPUTED in sheet_names:
        sheets_found[COMPUTED] = COMPUTED
    return best, sheets_found


def sheet_problems(
    layout: Layout,
    found: Mapping[str, str],
    sheet_names: Collection[str],
    hidden: Collection[str] = (),
) -> list[Problem]:
    """Return a problem for each missing, unknown or hidden sheet."""
    # `found` maps canonical names to the names of existing sheets.
    unexpected = [
        sheet_name
        for sheet_name in sheet_names
        if sheet_name not in found.values() and sheet_name != NOTES_SHEET
    ]
    problems = Problems()
    for own_name in SHEETS:
        if own_name in found:
            continue
        expected = layout.sheet_name(own_name)
        hint = f"add a sheet named {expected!r}"
        # The unknown sheet is then explained, so it is not reported a second time.
        if guess := closest_name(expected, unexpected):
            hint = f"rename {guess!r} to {expected!r}"
            unexpected.remove(guess)
        problems.add_problem(f"the sheet {expected} is missing", hint=hint)
    # In quotes, as a form keeps the names that have to be typed in a spreadsheet program.
    own_names = ", ".join(map(repr, layout.sheets.values()))
    known = f"{own_names} and, if wanted, {COMPUTED!r} and {NOTES_SHEET!r}"
    for name in unexpected:
        kind, first_step = ("hidden sheet", "unhide it, then ") if name in hidden else ("sheet", "")
        hint = f"{first_step}delete or rename it; sheets are {known}"
        problems.add_problem(f"the {kind} {name!r} does not belong here", name, hint)
    return problems.found


def describe_layout(layout: Layout, found: Mapping[str, str]) -> str:
    """Return the note to the researcher that names the detected layout."""
    foreign_names = [
        name
        for own_name, name in found.items()
        if own_name != COMPUTED and name != layout.sheet_name(own_name)
    ]
    mixed_text = f"; from another layout: {', '.join(foreign_names)}" if foreign_names else ""
    computed_text = "; with computed values" if COMPUTED in found else ""
    return f"layout: {layout.title}{mixed_text}{computed_text}"


# Maximum number of problems that are listed for columns without a name.
MAX_ROWS_LISTED = 5
# Number of filled rows in which the header is searched.
MAX_ABOVE = 20

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    sheet: Sheet
    number: int
    # Canonical name of a column → cell.
    cells: Mapping[str, Cell]
    # Canonical name of a column → column number.
    columns: Mapping[str, int]
    titles: Mapping[str, str]

    def address_of(self, column: str) -> str:
        return self.sheet.cell_address(self.number, self.columns.get(column, 1))

    def cell_addresses(self) -> dict[str, str]:
        return {column: self.address_of(column) for column in self.columns}

    def text(self, column: str) -> str:
        """Return the text of a cell.

        Returns "" if the cell is blank.
        """
        cell = self.cells.get(column)
        return cell.text if cell else ""

    def long_text(self, column: str) -> str:
        """Return the text of a cell with its spaces and line breaks.

        Returns "" if the cell is blank.
        """
        cell = self.cells.get(column)
        if cell is None:
            return ""
        return cell.value if isinstance(cell.value, str) else cell.text

    def required(self, column: str, problems: Problems, default: str = "") -> str:
        text = self.text(column)
        # A missing column is reported once, not in each row.
        if not text and column in self.columns:
            title = self.titles.get(column, column)
            problems.add_problem(f"{title} is blank", self.address_of(column), "fill in the cell")
        return text or default

    def parse_boolean(self, column: str, problems: Problems) -> bool:
        return bool(self._parse_typed(column, as_bool, problems, "write 0 or 1"))

    def parse_integer(self, column: str, problems: Problems, default: int) -> int:
        value = self._parse_typed(column, as_integer, problems, "write a whole number")
        return default if value is None else value

    def _parse_typed(
        self, column: str, parse: Callable[[Cell | None], T | None], problems: Problems, hint: str
    ) -> T | None:
        # The caller gets None for a blank cell and uses a default, so that reading goes on.
        cell = self.cells.get(column)
        value = parse(cell)
        # A missing column is reported once, not in each row.
        if value is None and column in self.columns:
            state = "is blank" if cell is None else f"is {cell.text!r}"
            problems.add_problem(
                f"{self.titles.get(column, column)} {state}", self.address_of(column), hint
            )
        return value


def header_row(sheet: Sheet, names: Collection[str], problems: Problems) -> int:
    """Return the row number of the header, which is the row with the most column names."""
    # Row 1 wins a tie. Rows above the header are not read, and a note says so.
    match_counts = {
        row: sum(text in names for text in sheet.texts(row).values())
        for row in [1, *sorted(sheet.rows)[:MAX_ABOVE]]
    }
    row = max(match_counts, key=lambda row_number: (match_counts[row_number], -row_number))
    warn_header_offset(sheet, row, problems)
    return row


def warn_header_offset(sheet: Sheet, row: int, problems: Problems) -> None:
    """Add a note if the header is not in row 1."""
    if row > 1:
        above = [number for number in sheet.rows if number < row]
        above_text = f"{rows_in_words(above)} above not read" if above else "nothing stands above"
        problems.notes.append(f"{sheet.name}: the column names are in row {row}; {above_text}")


def warn_empty_rows(sheet: Sheet, rows: Collection[int], problems: Problems) -> None:
    """Add a note on empty rows between filled rows."""
    gaps = (
        [number for number in range(min(rows), max(rows)) if number not in sheet.rows]
        if rows
        else []
    )
    if gaps:
        problems.notes.append(f"{sheet.name}: {rows_in_words(gaps)} empty, between others")


def read_table(sheet: Sheet, columns: Mapping[str, str], problems: Problems) -> list[Row]:
    """Return the rows of a sheet below its header."""
    # Missing, repeated and unknown columns are reported.
    known_titles = {name for title in columns.values() for name in names_for(title)}
    header = header_row(sheet, known_titles, problems)
    remaining = sheet.texts(header)
    unnamed: dict[int, str] = {}
    # The first filled cell of each column that has no name.
    for row, column, _ in sheet.iterate_cells():
        if row > header and column not in remaining:
            unnamed.setdefault(column, sheet.cell_address(row, column))
    column_of: dict[str, int] = {}
    for own_name, title in columns.items():
        numbers = [column for column, text in remaining.items() if text in names_for(title)]
        if len(numbers) > 1:
            problems.add_problem(
                f"duplicate column {title}",
                sheet.cell_address(header, numbers[1]),
                "keep one of them",
            )
        if numbers:
            column_of[own_name] = numbers[0]
        for number in numbers:
            del remaining[number]
    for own_name, title in columns.items():
        if own_name in column_of or own_name in OPTIONAL_COLUMNS:
            continue
        hint = f"add a column named {title}"
        if guess := closest_name(title, remaining.values()):
            number = next(column for column, text in remaining.items() if text == guess)
            hint = f"rename {guess!r} in {sheet.cell_address(header, number)} to {title}"
            del remaining[number]
        problems.add_problem(f"the column {title} is missing", sheet.name, hint)
        problems.structural = True
    hint = f"delete it; columns are {', '.join(columns.values())}"
    for number, text in remaining.items():
        problems.add_problem(
            f"the column {text!r} does not belong here", sheet.cell_address(header, number), hint
        )
    for where in [unnamed[column] for column in sorted(unnamed)][:MAX_ROWS_LISTED]:
        problems.add_problem("the column has values but no name", where, "name it or clear it")
    rows = [
        Row(
            sheet,
            number,
            {name: cells[column] for name, column in column_of.items() if column in cells},
            column_of,
            columns,
        )
        for number, cells in sorted(sheet.rows.items())
        if number > header and any(column in cells for column in column_of.values())
    ]
    warn_empty_rows(sheet, [row.number for row in rows], problems)
    return rows


def report_hidden(sheet: Sheet, row: int, column: int, problems: Problems) -> None:
    """Report an invisible character in a cell of a table."""
    cell = sheet.rows.get(row, {}).get(column)
    if cell is not None and isinstance(cell.value, str) and (found := hidden_in(cell.value)):
        message = f"the cell contains {found}, which is invisible"
        problems.add_problem(message, sheet.cell_address(row, column), "delete it")


def check_unique(rows: Sequence[Row], column: str, problems: Problems) -> None:
    """Report values that occur more than once in a column."""
    seen: dict[str, Row] = {}
    for row in rows:
        text = row.text(column)
        if text and seen.setdefault(text, row) is not row:
            hint = f"it is in {seen[text].address_of(column)} too; choose different values"
            title = row.titles.get(column, column)
            problems.add_problem(f"duplicate {title} {text!r}", row.address_of(column), hint)


def parse_choice(
    text: str, choices: Sequence[str], title: str, where: str, problems: Problems
) -> str | None:
    """Return the allowed value that a text names, ignoring case and spaces.

    Returns None and adds a problem if there is no such value.
    """
    # People write "Complete random" or "complete-random" for complete_random.
    folded = text.strip().casefold().replace(" ", "_").replace("-", "_")
    match = next((choice for choice in choices if choice.casefold() == folded), None)
    if match is None:
        hint = did_you_mean(text, choices, f"write one of {', '.join(choices)}")
        problems.add_problem(f"{title} is {text!r}", where, hint)
    return match


def as_bool(cell: Cell | None) -> bool | None:
    """Return a cell such as 0, 1, 1.0, True, "TRUE" or "false" as a boolean.

    Returns None for any other cell.
    """
    if cell is None:
        return None
    if isinstance(cell.value, bool):
        return cell.value
    text = str(cell.value).strip().casefold()
    if text in ("1", "1.0", "true"):
        return True
    return False if text in ("0", "0.0", "false") else None


def as_integer(cell: Cell | None) -> int | None:
    """Return a cell such as 4, 4.0, "4" or "4.0" as a whole number.

    Returns None for any other cell.
    """
    number = as_number(cell)
    # Beyond 1e15 neighbouring whole numbers are the same float.
    if number is None or not number.is_integer() or abs(number) > 1e15:
        return None
    return int(number)


def as_number(cell: Cell | None) -> float | None:
    """Return the finite number in a cell.

    Returns None for a boolean or any other cell without a finite number.
    """
    if cell is None or isinstance(cell.value, bool):
        return None
    # Python reads 1_0 as 10.
    if isinstance(cell.value, str) and "_" in cell.value:
        return None
    try:
        number = float(cell.value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


BLANK_NAME = "experiment.xlsx"
EXAMPLE_NAME = "public_goods.xlsx"
FLAGS = (
    *("is_adapted", "randomize_response_order", "validate_response"),
    *("generate_speculation_score", "format_response"),
)
# The time stamp of all written workbooks, which keeps their bytes equal.
_DAY = dt.datetime(2025, 1, 1)
# Drop-downs reach down to this row.
_LAST_ROW = 500
_WIDTHS = {"llm_text": 70, "human_text": 40, "role_description": 90, "treatment_description": 90}
_CHOICES: Mapping[str, Sequence[str]] = {
    "type": TASK_TYPES,
    "var_type": VAR_TYPES,
    "scope": COMPUTED_SCOPES,
    "kind": COMPUTED_KINDS,
    **dict.fromkeys(FLAGS, ("0", "1")),
}

Rows = Sequence[Sequence[Scalar | None]]


def template_files() -> dict[str, str | bytes]:
    """Return the files that `folkmoot new workbook` writes, as a map from file name to content."""
    return {BLANK_NAME: blank_workbook(), EXAMPLE_NAME: example_workbook()}


class _Example(TypedDict):
    settings: dict[str, Scalar]
    treatments: list[list[Scalar]]
    roles: list[list[Scalar]]
    tasks: list[dict[str, Scalar]]
    profiles: list[list[Scalar]]
    constants: list[list[Scalar]]
    computed: list[list[Scalar]]


@cache
def _load_example() -> _Example:
    example: _Example = packaged_yaml(__file__, "template.yaml")["example"]
    return example


_DESCRIBED: Mapping[str, tuple[type[BaseModel], str]] = {
    "settings": (Settings, ""),
    "treatments": (Treatment, "treatment_"),
    "roles": (Role, "role_"),
    "tasks": (Task, ""),
    "constants": (Constant, ""),
    "computed": (Computed, ""),
}


def note_of(sheet: str, column: str) -> str:
    """Return the description of a setting or column, which becomes the note on a cell.

    Returns "" if there is no description.
    """
    if sheet == "profiles":
        return Workbook.model_fields[sheet].description or ""
    model, prefix = _DESCRIBED[sheet]
    name = "values" if column == "value" else column.removeprefix(prefix)
    field = model.model_fields.get(name)
    return (field.description or "") if field else ""


def blank_workbook() -> bytes:
    """Return a workbook with headers, notes, drop-downs and the required role Facilitator."""
    facilitator = (FACILITATOR, "You lead the session and pose the questions.")
    return workbook_bytes(
        {
            "settings": [(key, None) for key in SETTINGS],
            "roles": [facilitator],
            "profiles": [("ID",), ("ID",)],
        }
    )


def example_workbook() -> bytes:
    """Return the example workbook: a public goods game with computed payoffs."""
    rows = _load_example()
    no_flags: dict[str, Scalar] = dict.fromkeys(FLAGS, 0)
    tasks = [
        [{**no_flags, **task}.get(column) for column in COLUMNS["tasks"]] for task in rows["tasks"]
    ]
    return workbook_bytes(
        {
            "settings": list(rows["settings"].items()),
            "treatments": rows["treatments"],
            "roles": rows["roles"],
            "tasks": tasks,
            "profiles": rows["profiles"],
            "constants": rows["constants"],
            "computed": rows["computed"],
        }
    )


def workbook_bytes(
    content: Mapping[str, Rows], layout: Layout = AGENT_ROLES, notes: Sequence[str] = ()
) -> bytes:
    """Return the bytes of an .xlsx file.

    - `content`: a map from sheet name to the rows of the sheet.
    - `notes`: the lines of an additional sheet with notes.
    """
    # Rows hold values in the column order of `COLUMNS`.
    book = Book()
    book.remove(book.active)
    book.properties.creator = "folkmoot"
    for own_name, title in layout.sheets.items():
        sheet = book.create_sheet(title)
        rows = content.get(own_name, ())
        if own_name == "settings":
            _write_settings(sheet, rows, layout.settings_header)
        elif own_name == "profiles":
            _write_profiles(sheet, rows)
        else:
            _write_table(sheet, own_name, rows, layout)
    if COMPUTED in content:
        _write_table(book.create_sheet(COMPUTED), COMPUTED, content[COMPUTED], layout)
    if notes:
        sheet = book.create_sheet(NOTES_SHEET)
        sheet.column_dimensions["A"].width = 120
        for number, note in enumerate(notes, 1):
            _write_cell(sheet, number, 1, note)
    book.properties.created = book.properties.modified = _DAY
    buffer = io.BytesIO()
    book.save(buffer)
    return _remove_timestamps(buffer.getvalue())


def _write_settings(sheet: Worksheet, rows: Rows, title: str) -> None:
    _write_header(sheet, (title, "value"))
    for number, (key, value) in enumerate(rows, 2):
        sheet.cell(number, 1, key)
        cell = _write_cell(sheet, number, 2, value)
        cell.alignment = Alignment(horizontal="left")
        _attach_note(sheet.cell(number, 1), note_of("settings", str(key)))
        if key in STRATEGIES:
            _drop_down(sheet, STRATEGIES[str(key)], f"B{number}")
    sheet.column_dimensions["A"].width = 32
    sheet.column_dimensions["B"].width = 32


def _write_profiles(sheet: Worksheet, rows: Rows) -> None:
    for number, row in enumerate(rows, 1):
        for column, value in enumerate(row, 1):
            cell = _write_cell(sheet, number, column, value)
            if column == 1:
                # Format as text, so that the ID 3.10 stays 3.10.
                cell.number_format = "@"
    for column in range(1, len(rows[0]) + 1 if rows else 2):
        _style_head(sheet.cell(1, column))
        sheet.cell(2, column).alignment = Alignment(wrap_text=True, vertical="top")
        sheet.column_dimensions[get_column_letter(column)].width = 24
    sheet.column_dimensions["A"].number_format = "@"
    _attach_note(sheet["A1"], note_of("profiles", "ID"))
    sheet.freeze_panes = "B3"


def _write_cell(sheet: Worksheet, row: int, column: int, value: Scalar | None) -> WrittenCell:
    # openpyxl refuses control characters, which XML cannot hold.
    if isinstance(value, str):
        value = ILLEGAL_CHARACTERS_RE.sub("\ufffd", value)
    cell = sheet.cell(row, column, value)
    # A text that starts with = is text here and no formula.
    if cell.data_type == "f":
        cell.data_type = "s"
    return cast("WrittenCell", cell)


def _write_table(sheet: Worksheet, own_name: str, rows: Rows, layout: Layout) -> None:
    columns = COLUMNS[own_name]
    _write_header(sheet, [layout.column_name(own_name, name) for name in columns])
    for number, name in enumerate(columns, 1):
        _attach_note(sheet.cell(1, number), note_of(own_name, name))
        letter = get_column_letter(number)
        sheet.column_dimensions[letter].width = _WIDTHS.get(name, 22)
        if name in _CHOICES:
            _drop_down(sheet, _CHOICES[name], f"{letter}2:{letter}{_LAST_ROW}")
    for number, row in enumerate(rows, 2):
        for column, value in enumerate(row, 1):
            cell = _write_cell(sheet, number, column, value)
            cell.alignment = Alignment(wrap_text=True, vertical="top")


def _write_header(sheet: Worksheet, titles: Sequence[str]) -> None:
    for column, title in enumerate(titles, 1):
        _style_head(sheet.cell(1, column, title))
    sheet.freeze_panes = "A2"


def _style_head(cell: object) -> None:
    cell.font = Font(bold=True, color="FFFFFF")  # type: ignore[attr-defined]
    cell.fill = PatternFill("solid", fgColor="33415C")  # type: ignore[attr-defined]


def _attach_note(cell: object, text: str) -> None:
    if text:
        note = Comment(text, "folkmoot", width=340, height=40 + 18 * (1 + len(text) // 50))
        cell.comment = note  # type: ignore[attr-defined]


def _drop_down(sheet: Worksheet, choices: Sequence[str], cells: str) -> None:
    # Excel allows at most 255 characters in such a list.
    rule = DataValidation("list", formula1=f'"{",".join(choices)}"', allow_blank=True)
    rule.error = f"one of {', '.join(choices)}"
    rule.showErrorMessage = True
    sheet.add_data_validation(rule)
    rule.add(cells)


def _remove_timestamps(data: bytes) -> bytes:
    buffer = io.BytesIO()
    day = b">" + _DAY.strftime("%Y-%m-%dT%H:%M:%SZ").encode() + rb"\1"
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        # ZIP entries carry times, and openpyxl writes the current time into the core properties.
        for name in sorted(old.namelist()):
            entry = zipfile.ZipInfo(name, _DAY.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            content = old.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb">[^<]*(</dcterms:)", day, content)
            new.writestr(entry, content)
    return buffer.getvalue()
