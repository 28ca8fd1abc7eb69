"""What a study found, as plain data: studies make findings, the terminal and the report draw them.

A finding is a title, a sentence in plain words, a table of numbers, and perhaps a chart. Charts
are declared here (what is shown), never drawn here (how it looks), so that all study types share
one visual language and a study outside this project gets its charts for free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table of numbers: columns, rows in the same order, an optional caption.

    Floats are shown with three significant digits; a column named `…_rate` or `…_share` as a
    percentage.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], caption: str = "") -> Grid:
        """A grid from records that share their keys."""
        columns = tuple(rows[0]) if rows else ()
        return cls(columns, tuple(tuple(r.get(c) for c in columns) for r in rows), caption)


@dataclass(frozen=True, slots=True)
class Flow:
    """How many moved from where to where, per panel (condition).

    `links`: (panel, from, to, count).
    """

    links: tuple[tuple[str, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Estimates with intervals, one line each: (label, estimate, low, high).

    `zero` draws the line of no effect; `unit` is the axis title; `bands` are human ranges
    (label, low, high) drawn behind.
    """

    items: tuple[tuple[str, float, float, float], ...]
    unit: str = ""
    zero: float | None = None
    bands: tuple[tuple[str, float, float], ...] = ()
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Counts or shares by category and series: (category, series, value)."""

    items: tuple[tuple[str, str, float], ...]
    unit: str = ""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Trajectories: (series, x, y). `panels` maps a series to a panel, if there are several."""

    items: tuple[tuple[str, float, float], ...]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class Heat:
    """A matrix: (row, column, value). Rows and columns in order of first mention."""

    items: tuple[tuple[str, str, float], ...]
    row: str = ""
    column: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Points:
    """A 2-D map: (x, y, group, label)."""

    items: tuple[tuple[float, float, str, str], ...]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """Decisions in a grid of cards: (row, column, headline, small print)."""

    items: tuple[tuple[str, str, str, str], ...]
    row: str = ""
    column: str = ""


Chart = Flow | Intervals | Bars | Lines | Heat | Points | Board


@dataclass(frozen=True, slots=True)
class Finding:
    """One result. `says` states the numbers with their uncertainty in plain words.

    `headline` findings are printed at the end of a run; all are in the report. `section` groups
    them (`Effects`, `Noise`, `Attrition`, `Human bands`, …). `notes` are caveats and sources,
    `alarms` what makes the run not what it says it is: they are shown in red.
    """

    key: str
    title: str
    says: str
    grid: Grid
    chart: Chart | None = None
    notes: tuple[str, ...] = ()
    section: str = "Effects"
    headline: bool = False
    alarms: tuple[str, ...] = ()


PERCENT = ("_rate", "_share")
BOUNDS = ("_low", "_high")


def heading(column: str) -> str:
    """A column's name as people read it."""
    return column.replace("_", " ")


def cell_text(value: Cell, column: str = "") -> str:
    """One cell. Missing is a dash, never zero or blank."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if column.rsplit("_", 1)[-1] == "p":
            return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
        return f"{100 * value:.1f} %" if is_percent(column) else number_text(value)
    return value


def is_percent(column: str) -> bool:
    """Whether a column holds shares; the bounds of a share's interval are shares as well."""
    for bound in BOUNDS:
        column = column.removesuffix(bound)
    return column.endswith(PERCENT)


def number_text(value: float) -> str:
    """Three significant digits, without exponents in the range that people read."""
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 1000:
        return f"{value:#.3g}".rstrip(".")
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.5f}" if abs(value) >= 0.0001 else f"{value:.2e}"


def numeric_columns(grid: Grid) -> list[bool]:
    """Which columns hold numbers: most of what stands in them is one."""
    return [_mostly_numbers([row[i] for row in grid.rows]) for i in range(len(grid.columns))]


def _mostly_numbers(cells: list[Cell]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return sum(map(is_number, known)) * 2 > len(known)


def is_number(value: Cell) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
