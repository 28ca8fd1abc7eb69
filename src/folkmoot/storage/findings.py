"""What a study found, as plain data: studies make findings, the terminal and the report draw them.

A finding is a title, a sentence in plain words, a table of numbers, and perhaps a chart. Charts
are declared here (what is shown), never drawn here (how it looks), so that all study types share
one visual language and a study outside this project gets its charts for free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from folkmoot.measures.inference.estimates import FEWEST_UNITS

TableCell = str | int | float | bool | None
ILLUSTRATION_LABEL = "An illustration, not evidence"
# Columns that hold the bounds of an interval, but for those of people's ranges, and p-values.
_BOUND_COLUMN_PATTERN = re.compile(r"(?!people_)(?:.*_)?(?:low|high)(?:_rate|_share|_points)?")
_P_VALUE_COLUMN_PATTERN = re.compile(r"(?:.*_)?p")


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A small table of numbers: columns, rows in the same order, an optional caption.

    Floats are shown with three significant digits; a column named `…_rate` or `…_share` as a
    percentage, and one named `…_points`, a difference of shares, in points.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    caption: str = ""

    @classmethod
    def from_records(
        cls, rows: Sequence[Mapping[str, TableCell]], caption: str = ""
    ) -> ResultTable:
        """A grid from records that share their keys."""
        columns = tuple(rows[0]) if rows else ()
        return cls(
            columns, tuple(tuple(row.get(column) for column in columns) for row in rows), caption
        )


@dataclass(frozen=True, slots=True)
class AlluvialChart:
    """How many moved from where to where, per panel (condition).

    `links`: (panel, from, to, count).
    """

    links: tuple[tuple[str, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """Estimates with intervals, one line each: (label, estimate, low, high).

    `reference_line` draws the line of no effect; `unit` is the axis title; `bands` are human ranges
    (label, low, high) drawn behind; `unit_values` are the values of single independent units, drawn
    on the line of their label (label, value); `ratios` are drawn on a
    logarithmic scale.
    """

    items: tuple[tuple[str, float, float, float], ...]
    unit: str = ""
    reference_line: float | None = None
    bands: tuple[tuple[str, float, float], ...] = ()
    percent: bool = False
    unit_values: tuple[tuple[str, float], ...] = ()
    ratios: bool = False


@dataclass(frozen=True, slots=True)
class BarChart:
    """Counts or shares by category and series: (category, series, value)."""

    items: tuple[tuple[str, str, float], ...]
    unit: str = ""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class LineChart:
    """Trajectories: (series, x, y). `panels` maps a series to a panel, if there are several."""

    items: tuple[tuple[str, float, float], ...]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A matrix: (row, column, value). Rows and columns in order of first mention."""

    items: tuple[tuple[str, str, float], ...]
    row: str = ""
    column: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """A 2-D map: (x, y, group, label)."""

    items: tuple[tuple[float, float, str, str], ...]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class CardBoard:
    """Decisions in a grid of cards: (row, column, headline, small print)."""

    items: tuple[tuple[str, str, str, str], ...]
    row: str = ""
    column: str = ""


Chart = AlluvialChart | IntervalChart | BarChart | LineChart | Heatmap | ScatterChart | CardBoard


@dataclass(frozen=True, slots=True)
class Finding:
    """One result. `says` states the numbers with their uncertainty in plain words.

    `headline` findings are printed at the end of a run; all are in the report. `section` groups
    them (`Effects`, `Noise`, `Attrition`, `Human bands`, …). `notes` are caveats and sources,
    `alarms` what makes the run not what it says it is: they are shown in red.

    `conclusion` is what the finding concludes where neither an interval nor a test says it (the
    most voted option, say), in words that change only with it.

    `unit` names what is independent of each other in this finding ("participant", "group",
    "session"), its noun first, and `units` counts it. Whoever gives an interval must name it
    (ValueError). With fewer than five units a finding is an illustration: it says so, and keeps
    neither interval nor p.
    """

    key: str
    title: str
    says: str
    grid: ResultTable
    chart: Chart | None = None
    notes: tuple[str, ...] = ()
    section: str = "Effects"
    headline: bool = False
    alarms: tuple[str, ...] = ()
    unit: str = ""
    units: int = 0
    conclusion: str = ""

    def __post_init__(self) -> None:
        if not (self.unit and self.units) and _has_intervals(self):
            raise ValueError(
                f"the finding {self.key} has an interval but no independent unit: "
                'Finding(…, unit="group", units=3)'
            )
        if self.illustrates and not self.says.startswith(ILLUSTRATION_LABEL):
            _remove_inference(self)

    @property
    def illustrates(self) -> bool:
        """Whether it has too few independent units to be evidence."""
        return bool(self.unit) and 0 < self.units < FEWEST_UNITS

    @property
    def counted(self) -> str:
        """ "3 groups", "1 draw of the summaries"."""
        noun, space, rest = self.unit.partition(" ")
        return f"{self.units:,} {noun}{'s' * (self.units != 1)}{space}{rest}"

    @property
    def independent(self) -> str:
        """The line that names the independent unit; empty where none is named."""
        return f"Independent unit: {self.unit} ({self.units:,})." if self.unit else ""


def _has_intervals(finding: Finding) -> bool:
    chart = finding.chart
    if isinstance(chart, IntervalChart) and any(low < high for _, _, low, high in chart.items):
        return True
    bounds = [
        i for i, name in enumerate(finding.grid.columns) if _BOUND_COLUMN_PATTERN.fullmatch(name)
    ]
    return any(row[i] is not None for row in finding.grid.rows for i in bounds)


def _remove_inference(finding: Finding) -> None:
    """Take intervals and tests away from a finding that is being made, and show its units."""
    columns = finding.grid.columns
    hidden = [
        bool(_BOUND_COLUMN_PATTERN.fullmatch(name) or _P_VALUE_COLUMN_PATTERN.fullmatch(name))
        for name in columns
    ]
    rows = tuple(
        tuple(None if hide else cell for cell, hide in zip(row, hidden, strict=True))
        for row in finding.grid.rows
    )
    notes = finding.notes
    chart = finding.chart
    if isinstance(chart, IntervalChart):
        items = tuple((label, value, value, value) for label, value, _, _ in chart.items)
        chart = replace(chart, items=items)
        own = {
            label: [format_number(value) for at, value in chart.unit_values if at == label]
            for label, *_ in items
        }
        shown = [f"{label} {', '.join(values)}" for label, values in own.items() if values]
        notes += (f"Each {finding.unit.split()[0]}: {'; '.join(shown)}.",) if shown else ()
    for name, value in {
        "says": f"{ILLUSTRATION_LABEL}: {finding.counted}. {finding.says}".strip(),
        "grid": replace(finding.grid, rows=rows),
        "chart": chart,
        "notes": notes,
    }.items():
        object.__setattr__(finding, name, value)


SHARE_SUFFIXES = ("_rate", "_share")
POINTS = "_points"
BOUND_SUFFIXES = ("_low", "_high")


def column_heading(column: str) -> str:
    """A column's name as people read it."""
    return column.replace("_", " ")


def format_cell(value: TableCell, column: str = "") -> str:
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
        if column.endswith(POINTS):
            return f"{100 * value:+.1f}".replace("-", "−")
        return f"{100 * value:.1f} %" if is_share_column(column) else format_number(value)
    return value


def is_share_column(column: str) -> bool:
    """Whether a column holds shares; the bounds of a share's interval are shares as well."""
    for bound in BOUND_SUFFIXES:
        column = column.removesuffix(bound)
    return column.endswith(SHARE_SUFFIXES)


def format_number(value: float) -> str:
    """Three significant digits, without exponents in the range that people read."""
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 1000:
        return f"{value:#.3g}".rstrip(".")
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.5f}" if abs(value) >= 0.0001 else f"{value:.2e}"


def numeric_columns(grid: ResultTable) -> list[bool]:
    """Which columns hold numbers: most of what stands in them is one."""
    return [_is_mostly_numeric([row[i] for row in grid.rows]) for i in range(len(grid.columns))]


def _is_mostly_numeric(cells: list[TableCell]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return sum(map(is_number, known)) * 2 > len(known)


def is_number(value: TableCell) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
