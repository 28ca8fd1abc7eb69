"""`folkmoot new workbook`: a blank workbook with drop-downs and notes, and a filled example.

Both are made here cell by cell from `template.yaml`, so that they always fit what `reading.py`
accepts. The same input gives the same bytes.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from openpyxl import Workbook as Book
from openpyxl.cell import Cell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet

from folkmoot.files import packaged_yaml
from folkmoot.studies.workbook.config import (
    COMPUTED_SCOPES,
    FACILITATOR,
    STRATEGIES,
    TASK_TYPES,
    VAR_TYPES,
    Scalar,
)
from folkmoot.studies.workbook.layouts import (
    AGENT_ROLES,
    COLUMNS,
    COMPUTED,
    NOTES_SHEET,
    SETTINGS,
    Layout,
)

BLANK_NAME = "experiment.xlsx"
EXAMPLE_NAME = "public_goods.xlsx"
FLAGS = (
    *("is_adapted", "randomize_response_order", "validate_response"),
    *("generate_speculation_score", "format_response"),
)
_DAY = dt.datetime(2025, 1, 1)
_LAST_ROW = 500  # drop-downs reach so far down
_WIDTHS = {"llm_text": 70, "human_text": 40, "role_description": 90, "treatment_description": 90}
_CHOICES: Mapping[str, Sequence[str]] = {
    "type": TASK_TYPES,
    "var_type": VAR_TYPES,
    "scope": COMPUTED_SCOPES,
    **dict.fromkeys(FLAGS, ("0", "1")),
}

Rows = Sequence[Sequence[Scalar | None]]


def template() -> dict[str, str | bytes]:
    """File name → content for `folkmoot new workbook`."""
    return {BLANK_NAME: blank(), EXAMPLE_NAME: example()}


@cache
def _words() -> dict[str, Any]:
    words: dict[str, Any] = packaged_yaml(__file__, "template.yaml")
    return words


def blank() -> bytes:
    """The six sheets with headers, notes and drop-downs, and the one role that must be there."""
    facilitator = (FACILITATOR, "You lead the session and pose the questions.")
    return workbook_bytes(
        {
            "settings": [(key, None) for key in SETTINGS],
            "roles": [facilitator],
            "profiles": [("ID",), ("ID",)],
        }
    )


def example() -> bytes:
    """A public goods game with payoffs that are computed."""
    rows = _words()["example"]
    none = dict.fromkeys(FLAGS, 0)
    tasks = [[{**none, **task}.get(c) for c in COLUMNS["tasks"]] for task in rows["tasks"]]
    settings = list(rows["settings"].items())
    return workbook_bytes({**rows, "settings": settings, "tasks": tasks})


def workbook_bytes(
    content: Mapping[str, Rows], layout: Layout = AGENT_ROLES, notes: Sequence[str] = ()
) -> bytes:
    """A workbook of a layout; rows in the order of our columns. `notes` get a sheet."""
    book = Book()
    book.remove(book.active)
    book.properties.creator = "folkmoot"
    for ours, title in layout.sheets.items():
        sheet = book.create_sheet(title)
        rows = content.get(ours, ())
        if ours == "settings":
            _settings(sheet, rows, layout.settings_header)
        elif ours == "profiles":
            _profiles(sheet, rows)
        else:
            _table(sheet, ours, rows, layout)
    if COMPUTED in content:
        _table(book.create_sheet(COMPUTED), COMPUTED, content[COMPUTED], layout)
    if notes:
        sheet = book.create_sheet(NOTES_SHEET)
        sheet.column_dimensions["A"].width = 120
        for number, note in enumerate(notes, 1):
            _write(sheet, number, 1, note)
    book.properties.created = book.properties.modified = _DAY
    out = io.BytesIO()
    book.save(out)
    return _timeless(out.getvalue())


def _settings(sheet: Worksheet, rows: Rows, title: str) -> None:
    _header(sheet, (title, "value"))
    for number, (key, value) in enumerate(rows, 2):
        sheet.cell(number, 1, key)
        cell = _write(sheet, number, 2, value)
        cell.alignment = Alignment(horizontal="left")
        _note(sheet.cell(number, 1), f"settings.{key}")
        if key in STRATEGIES:
            _drop_down(sheet, STRATEGIES[str(key)], f"B{number}")
    sheet.column_dimensions["A"].width = 32
    sheet.column_dimensions["B"].width = 32


def _profiles(sheet: Worksheet, rows: Rows) -> None:
    for number, row in enumerate(rows, 1):
        for column, value in enumerate(row, 1):
            cell = _write(sheet, number, column, value)
            if column == 1:
                cell.number_format = "@"  # so that 3.10 stays 3.10
    for column in range(1, len(rows[0]) + 1 if rows else 2):
        _head(sheet.cell(1, column))
        sheet.cell(2, column).alignment = Alignment(wrap_text=True, vertical="top")
        sheet.column_dimensions[get_column_letter(column)].width = 24
    sheet.column_dimensions["A"].number_format = "@"
    _note(sheet["A1"], "profiles.ID")
    sheet.freeze_panes = "B3"


def _write(sheet: Worksheet, row: int, column: int, value: Scalar | None) -> Cell:
    if isinstance(value, str):
        value = ILLEGAL_CHARACTERS_RE.sub("\ufffd", value)
    cell = sheet.cell(row, column, value)
    if cell.data_type == "f":  # a text that begins with = is no formula
        cell.data_type = "s"
    return cast("Cell", cell)


def _table(sheet: Worksheet, ours: str, rows: Rows, layout: Layout) -> None:
    columns = COLUMNS[ours]
    _header(sheet, [layout.column(ours, name) for name in columns])
    for number, name in enumerate(columns, 1):
        _note(sheet.cell(1, number), f"{ours}.{name}")
        letter = get_column_letter(number)
        sheet.column_dimensions[letter].width = _WIDTHS.get(name, 22)
        if name in _CHOICES:
            _drop_down(sheet, _CHOICES[name], f"{letter}2:{letter}{_LAST_ROW}")
    for number, row in enumerate(rows, 2):
        for column, value in enumerate(row, 1):
            cell = _write(sheet, number, column, value)
            cell.alignment = Alignment(wrap_text=True, vertical="top")


def _header(sheet: Worksheet, titles: Sequence[str]) -> None:
    for column, title in enumerate(titles, 1):
        _head(sheet.cell(1, column, title))
    sheet.freeze_panes = "A2"


def _head(cell: object) -> None:
    cell.font = Font(bold=True, color="FFFFFF")  # type: ignore[attr-defined]
    cell.fill = PatternFill("solid", fgColor="33415C")  # type: ignore[attr-defined]


def _note(cell: object, key: str) -> None:
    text = _words()["notes"].get(key)
    if text:
        note = Comment(text, "folkmoot", width=340, height=40 + 18 * (1 + len(text) // 50))
        cell.comment = note  # type: ignore[attr-defined]


def _drop_down(sheet: Worksheet, choices: Sequence[str], cells: str) -> None:
    rule = DataValidation("list", formula1=f'"{",".join(choices)}"', allow_blank=True)
    rule.error = f"one of {', '.join(choices)}"
    rule.showErrorMessage = True
    sheet.add_data_validation(rule)
    rule.add(cells)


def _timeless(data: bytes) -> bytes:
    """The same archive without the time of day at which it was written."""
    out = io.BytesIO()
    day = b">" + _DAY.strftime("%Y-%m-%dT%H:%M:%SZ").encode() + rb"\1"
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in sorted(old.namelist()):
            entry = zipfile.ZipInfo(name, _DAY.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            content = old.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb">[^<]*(</dcterms:)", day, content)
            new.writestr(entry, content)
    return out.getvalue()
