"""The web form that edits a workbook, with a section for each sheet."""
# Notes of cells become the help of fields, and drop-downs become choices.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from openpyxl.utils import column_index_from_string, get_column_letter

from folkmoot.errors import Problem
from folkmoot.hints import capitalise
from folkmoot.studio.fields import FormSection, StudyField, name_by_labels, walk_fields
from folkmoot.studio.labels import FormWords, words_of
from folkmoot.studio.sheet_files import MAX_COLUMNS, MAX_ROWS, Rows, SheetCells, read_sheets

# Rows with more columns are folded, so that the rows of a sheet can be seen together.
MAX_OPEN_COLUMNS = 3
# The choices of a column for yes or no.
FLAG = ("0", "1")


@dataclass(frozen=True, slots=True)
class SheetForm:
    """The web form that edits a workbook: the sheets, and the values in the fields."""

    # `reason` is the reason if there is no form, or "".

    sheets: tuple[SheetCells, ...] = ()
    values: Rows = field(default_factory=dict)
    reason: str = ""

    @property
    def sections(self) -> tuple[FormSection, ...]:
        return make_sheet_form(self.sheets, self.values)

    @property
    def words(self) -> FormWords:
        """The words of the form for the names of sheets, columns and settings."""
        return _words_of_sheets(self.sheets, self.values)

    def with_cells(self, cells: Iterable[tuple[str, int, str]]) -> SheetForm:
        """Return a copy of the form with empty rows and columns added, so that `cells` fit in."""
        # A cell is (sheet, row number, column letters). A workbook does not store empty rows, so an
        # added row exists only on the page until one of its cells is filled.
        values = {name: [dict(row) for row in rows] for name, rows in self.values.items()}
        for name, number, letter in cells:
            is_inside = 0 <= number < MAX_ROWS and column_index_from_string(letter) <= MAX_COLUMNS
            if name not in values or not is_inside:
                continue
            rows = values[name]
            rows += [dict.fromkeys(rows[0], "") for _ in range(number + 1 - len(rows))]
            if letter not in rows[0]:
                for row in rows:
                    row[letter] = ""
        return SheetForm(self.sheets, values, self.reason)


def read_sheet_form(path: Path) -> SheetForm:
    """Return the web form that edits a workbook."""
    state = path.stat()
    return _cached_form(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _cached_form(path: Path, *_state: int) -> SheetForm:
    sheets = read_sheets(path)
    if isinstance(sheets, str):
        return SheetForm(reason=sheets)
    values = {sheet.name: _values_of(sheet) for sheet in sheets}
    return SheetForm(tuple(sheets), values)


def _values_of(sheet: SheetCells) -> list[dict[str, str]]:
    width = max((len(row) for row in sheet.rows), default=1)
    letters = [get_column_letter(column + 1) for column in range(width)]
    return [dict(zip(letters, [*row, *[""] * width], strict=False)) for row in sheet.rows]


def make_sheet_form(sheets: Sequence[SheetCells], values: Rows) -> tuple[FormSection, ...]:
    """Return the web form that edits a workbook, filled with `values`."""
    # There is a section for each sheet.
    words = _words_of_sheets(sheets, values)
    sections = []
    for sheet in sheets:
        rows = values[sheet.name]
        make = _settings_field if sheet.has_settings else _rows_field
        fields = name_by_labels([make(sheet, rows)], words)
        sections.append(FormSection(_title_of(sheet.name), tuple(fields)))
    return tuple(sections)


def _words_of_sheets(sheets: Sequence[SheetCells], values: Rows) -> FormWords:
    # Notes name sheets, settings and columns. Columns that the researcher names have no notes.
    labels = {sheet.name: _title_of(sheet.name) for sheet in sheets}
    for sheet in sheets:
        rows = values[sheet.name]
        if sheet.has_settings:
            names = [row.get("A", "") for row in rows[1:]]
        else:
            names = [] if sheet.has_open_columns or not rows else list(rows[0].values())
        for name in names:
            labels[name] = capitalise(words_of(name))
    offered = {choice for sheet in sheets for each in sheet.choices.values() for choice in each}
    return FormWords(labels, offered)


def _settings_field(sheet: SheetCells, rows: Sequence[Mapping[str, str]]) -> StudyField:
    settings = tuple(
        StudyField(
            (sheet.name, i),
            "group",
            is_set=True,
            inner=(_cell_field(sheet, i, "B", row.get("B", ""), row["A"], f"A{i + 1}"),),
        )
        for i, row in enumerate(rows)
        if i and row.get("A")
    )
    return StudyField(
        (sheet.name,), "rows", is_set=True, inner=settings, is_fixed=True,
        title=_title_of(sheet.name), is_sheet=True,
    )  # fmt: skip


def _rows_field(sheet: SheetCells, rows: Sequence[Mapping[str, str]]) -> StudyField:
    letters = list(rows[0]) if rows else ["A"]
    first = 0 if sheet.has_open_columns else 1
    inner = []
    for i, row in enumerate(rows[first:], first):
        cells = tuple(
            _cell_field(
                sheet,
                i,
                letter,
                row.get(letter, ""),
                (rows[0][letter] or f"column {letter}") if i else f"name of column {letter}",
                f"{letter}1" if first else "",
            )
            for letter in letters
        )
        is_folded = len(letters) > MAX_OPEN_COLUMNS
        inner.append(
            StudyField(
                (sheet.name, i),
                "group",
                is_set=True,
                inner=cells,
                title=f"row {i + 1}",
                is_folded=is_folded,
            )
        )
    return StudyField(
        (sheet.name,), "rows", is_set=True, inner=tuple(inner),
        help="" if first else sheet.notes.get("A1", "").rstrip("."),
        new_row=_new_row(sheet, letters), title=_title_of(sheet.name), is_sheet=True,
        has_columns=not first,
    )  # fmt: skip


def _title_of(sheet_name: str) -> str:
    return capitalise(sheet_name.replace("_", " "))


def _new_row(sheet: SheetCells, letters: Sequence[str]) -> dict[str, str]:
    # As in a new workbook, a flag is 0.
    return {letter: "0" if sheet.choices.get(f"{letter}2") == FLAG else "" for letter in letters}


def _cell_field(
    sheet: SheetCells, row: int, letter: str, text: str, title: str, note: str
) -> StudyField:
    # A drop-down of a column begins in row 2 and holds for all rows below.
    choices = sheet.choices.get(f"{letter}{row + 1}") or sheet.choices.get(f"{letter}2", ())
    has_choices = bool(choices) and row > 0
    return StudyField(
        (sheet.name, row, letter), "choice" if has_choices else "text", value=text,
        choices=choices if has_choices else (), is_set=True, title=words_of(title),
        help=sheet.notes.get(note, "").rstrip("."),
    )  # fmt: skip


def complete_rows(values: Mapping[str, Sequence[Mapping[str, str]]], before: Rows) -> Rows:
    """Return the submitted rows of each sheet, with a value for every column."""
    # Columns that occur only in the old rows, `before`, are added as empty cells.
    complete: Rows = {}
    for name, rows in values.items():
        # A new column is in the submitted rows only, and an emptied cell in the old rows only.
        letters = dict.fromkeys(letter for row in (*before[name], *rows) for letter in row)
        complete[name] = [
            {letter: str(row.get(letter, "")).rstrip("\n") for letter in letters} for row in rows
        ]
    return complete


def change_columns(values: Rows, action: str) -> Rows:
    """Return the values after the researcher has added a column to a sheet.

    `action`: `column SHEET`.
    """
    # `action` is `column SHEET`.
    verb, _, name = action.partition(" ")
    if verb != "column" or name not in values:
        return values
    rows = values[name] or [{}]
    letter = get_column_letter(len(rows[0]) + 1)
    return {**values, name: [{**row, letter: ""} for row in rows]}


def place_cell_problems(
    sections: Sequence[FormSection], problems: Sequence[Problem]
) -> tuple[dict[str, list[Problem]], list[Problem]]:
    """Return a map from field id to problems of the cell, and a list of all other problems."""
    ids: dict[str, str] = {}
    for section in sections:
        for each in walk_fields(section.fields):
            if len(each.path) == 3:
                name, row, letter = each.path
                ids[f"{name}!{letter}{int(row) + 1}"] = each.id
            ids.setdefault(str(each.path[0]), each.id)
    placed: dict[str, list[Problem]] = {}
    rest = []
    for problem in problems:
        # A cell that has no field yet belongs to its sheet.
        field_id = ids.get(problem.where) or ids.get(problem.where.partition("!")[0])
        if field_id is None:
            rest.append(problem)
        else:
            placed.setdefault(field_id, []).append(problem)
    return placed, rest
