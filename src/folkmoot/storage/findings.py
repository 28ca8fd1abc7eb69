"""The findings of a study as plain data.

A finding is a title, a sentence, a table of numbers and an optional chart.
"""

# This module declares charts, and other modules draw them. So all study types look alike, and
# external study types need no code for charts.

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    MOST_PRINTED_P,
    format_p_digits,
    format_percent,
    round_half_away,
)
from folkmoot.measures.wording import ILLUSTRATION_LABEL, label_illustration

TableCell = str | int | float | bool | None
# Columns with the bounds of an interval or with p-values. Published ranges of humans (`people_…`)
# are no intervals of this run.
_BOUND_COLUMN_PATTERN = re.compile(r"(?!people_)(?:.*_)?(?:low|high)(?:_rate|_share|_points)?")
_P_VALUE_COLUMN_PATTERN = re.compile(r"(?:.*_)?p")


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A small table of numbers in a finding.

        ResultTable(("option", "vote_share"), (("Park", 0.6), ("Library", 0.4)))

    The name of a column decides how the numbers in the column are shown:

    - `…_rate` and `…_share`: in percent.
    - `…_points`: in percentage points with a sign. The cells are differences between shares.
    - `…_distance_points`: in percentage points without a sign.
    - All other names: with three significant digits.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                cells = f"{len(row)} cells in place of {len(self.columns)}"
                raise ValueError(f"row {number} of a ResultTable has {cells}")
            for column, cell in zip(self.columns, row, strict=True):
                if cell is not None and not isinstance(cell, (str, int, float, np.generic)):
                    raise ValueError(
                        f"row {number}, column {column} of a ResultTable is a "
                        f"{type(cell).__name__}; pass a text, a number, True, False or None"
                    )

    def cells_of(self, column: str) -> list[TableCell]:
        """Return the cells of a column, or an empty list if there is no such column."""
        if column not in self.columns:
            return []
        place = self.columns.index(column)
        return [row[place] for row in self.rows]

    @classmethod
    def from_records(
        cls, rows: Sequence[Mapping[str, TableCell]], caption: str = ""
    ) -> ResultTable:
        """Return a table from records. All keys are columns, in the order of their first use.

        A record without one of the keys has an empty cell.
        """
        columns = tuple(dict.fromkeys(name for row in rows for name in row))
        return cls(
            columns, tuple(tuple(row.get(column) for column in columns) for row in rows), caption
        )


@dataclass(frozen=True, slots=True)
class AlluvialChart:
    """A chart of the flows from old to new values, with one panel for each condition.

    - `links`: (panel, old value, new value, count), such as ("control", "Park", "Library", 4).
    """

    links: tuple[tuple[str, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """A chart of intervals, one per line.

    - `items`: (label, estimate, low, high) of each interval.
    """

    items: tuple[tuple[str, float, float, float], ...]
    # Title of the axis.
    unit: str = ""
    # Value of the line of no effect.
    reference_line: float | None = None
    # Human benchmarks (label, low, high), drawn behind the intervals.
    bands: tuple[tuple[str, float, float], ...] = ()
    percent: bool = False
    # Values of single independent units (label, value), drawn on the line with this label.
    unit_values: tuple[tuple[str, float], ...] = ()
    # True for a logarithmic scale.
    ratios: bool = False
    # Values of dotted lines, such as the smallest difference that matters.
    margins: tuple[float, ...] = ()
    # True if `low` and `high` are the extremes that an assumption allows, such as worst and best
    # case. They are no intervals of sampling, and the estimates belong to another finding.
    are_bounds: bool = False


@dataclass(frozen=True, slots=True)
class BarChart:
    """A chart of counts or shares.

    - `items`: (category, series, value) of each bar.
    """

    items: tuple[tuple[str, str, float], ...]
    unit: str = ""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class LineChart:
    """A chart of lines over time.

    - `items`: (name of the line, x, y) of each point.
    """

    items: tuple[tuple[str, float, float], ...]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A chart of a matrix.

    - `items`: (row, column, value) of each cell.
    """

    # Rows and columns are in the order in which `items` first names them.

    items: tuple[tuple[str, str, float], ...]
    row: str = ""
    column: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """A two-dimensional map of points.

    - `items`: (x, y, group, label) of each point.
    """

    items: tuple[tuple[float, float, str, str], ...]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, slots=True)
class CardBoard:
    """A grid of cards, one for each decision.

    - `items`: (row, column, headline, small print) of each card.
    """

    items: tuple[tuple[str, str, str, str], ...]
    row: str = ""
    column: str = ""


Chart = AlluvialChart | IntervalChart | BarChart | LineChart | Heatmap | ScatterChart | CardBoard


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a study.

        Finding("votes", "Votes", "The park won.", ResultTable(("option", "votes"), (("Park", 6),)))

    Raises ValueError if a part has a wrong class, or if the finding has an interval but no `unit`.
    If there are fewer than five units, the finding's intervals and p-values are removed.
    """

    # Such a finding is an illustration, and its sentence then says so.

    key: str
    title: str
    # The sentence that states the numbers with their uncertainty.
    says: str
    grid: ResultTable
    chart: Chart | None = None
    # Caveats and sources.
    notes: tuple[str, ...] = ()
    # Group of the finding in the report (`Effects`, `Noise`, `Attrition`, …).
    section: str = "Effects"
    # True if the finding is printed at the end of a run. The report shows all findings.
    headline: bool = False
    # Reasons why the run differs from the intended run, shown in red.
    alarms: tuple[str, ...] = ()
    # Unit of analysis, beginning with its noun ("participant", "group", "session").
    unit: str = ""
    # Number of these units.
    units: int = 0
    # The conclusion if no interval or test states it, such as the most voted option. Its wording
    # changes only with the conclusion.
    conclusion: str = ""
    # True if the finding states primary claims. The first page of a report shows each of these
    # claims separately.
    primary: bool = False

    def __post_init__(self) -> None:
        for name in ("key", "title", "says", "section", "unit"):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name}= of a Finding is a {type(value).__name__}; pass a text")
        for name in ("notes", "alarms"):
            texts = getattr(self, name)
            # A text would be taken apart into its letters.
            is_list = isinstance(texts, (tuple, list))
            if not is_list or not all(isinstance(text, str) for text in texts):
                raise ValueError(f'{name}= of a Finding is no list of texts; pass ("…",)')
        if not isinstance(self.grid, ResultTable):
            raise ValueError(
                f"grid= of a Finding is a {type(self.grid).__name__}; pass a ResultTable"
            )
        if not (self.unit and self.units) and _has_intervals(self):
            raise ValueError(
                f"the finding {self.key} has an interval but no independent unit: "
                'Finding(…, unit="group", units=3)'
            )
        if self.illustrates and not self.says.startswith(ILLUSTRATION_LABEL):
            _remove_inference(self)

    @property
    def illustrates(self) -> bool:
        """True if the finding has fewer than five independent units."""
        return bool(self.unit) and 0 < self.units < FEWEST_UNITS

    @property
    def counted(self) -> str:
        """The number of units as text, such as "3 groups"."""
        # The unit begins with its noun, so "draw of the summaries" becomes "2 draws of the
        # summaries".
        noun, space, rest = self.unit.partition(" ")
        return f"{self.units:,} {noun}{'s' * (self.units != 1)}{space}{rest}"

    @property
    def independent(self) -> str:
        """The sentence that names the unit of analysis, or "" if the finding has no unit."""
        # Of rows with different units, "group or participant", the table has the numbers, and also
        # of rows with different numbers of one unit. A unit that says where another one counts, in
        # brackets, has several numbers too.
        counts = {count for count in self.grid.cells_of("units") if count}
        is_in_table = " or " in self.unit or len(counts) > 1
        number = " (numbers in the table)" if is_in_table else f" ({self.units:,})"
        number *= not self.unit.endswith(")")
        return f"Independent unit: {self.unit}{number}." if self.unit else ""


def without_p_values(finding: Finding) -> Finding:
    """Return a finding without the columns of p-values, for a run or grid that goes on."""
    # A look before the end tests nothing.
    table = finding.grid
    kept = [
        i for i, name in enumerate(table.columns) if not _P_VALUE_COLUMN_PATTERN.fullmatch(name)
    ]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    columns = tuple(table.columns[i] for i in kept)
    notes = tuple(note for note in finding.notes if not note.lower().startswith("adjusted p"))
    return replace(finding, grid=replace(table, columns=columns, rows=rows), notes=notes)


def _has_intervals(finding: Finding) -> bool:
    chart = finding.chart
    # An estimate without an interval is drawn with low equal to high.
    if isinstance(chart, IntervalChart) and any(low < high for _, _, low, high in chart.items):
        return True
    bounds = [
        i for i, name in enumerate(finding.grid.columns) if _BOUND_COLUMN_PATTERN.fullmatch(name)
    ]
    return any(row[i] is not None for row in finding.grid.rows for i in bounds)


def _remove_inference(finding: Finding) -> None:
    # The values of the single units take the place of intervals and p-values.
    columns = finding.grid.columns
    is_hidden = [
        bool(_BOUND_COLUMN_PATTERN.fullmatch(name) or _P_VALUE_COLUMN_PATTERN.fullmatch(name))
        for name in columns
    ]
    rows = tuple(
        tuple(
            None if is_hidden_column else cell
            for cell, is_hidden_column in zip(row, is_hidden, strict=True)
        )
        for row in finding.grid.rows
    )
    notes = finding.notes
    chart = finding.chart
    if isinstance(chart, IntervalChart):
        items = tuple((label, value, value, value) for label, value, _, _ in chart.items)
        chart = replace(chart, items=items)
        # Values are printed in the unit of the chart: shares in per cent, differences in points.
        is_difference = chart.reference_line is not None
        column = (POINTS if is_difference else "_share") if chart.percent else ""
        values_by_label = {
            label: [
                format_cell(value, column)
                for item_label, value in chart.unit_values
                if item_label == label
            ]
            for label, *_ in items
        }
        value_texts = [
            f"{label} {', '.join(values)}" for label, values in values_by_label.items() if values
        ]
        notes += (
            (f"Each {finding.unit.split()[0]}: {'; '.join(value_texts)}.",) if value_texts else ()
        )
    for name, value in {
        "says": label_illustration(finding.counted, finding.says),
        "grid": replace(finding.grid, rows=rows),
        "chart": chart,
        "notes": notes,
    }.items():
        # The dataclass is frozen. This runs inside its `__post_init__`, before others see the
        # finding.
        object.__setattr__(finding, name, value)


# The end of a column's name decides how its cells are shown, so studies need no formats.
SHARE_SUFFIXES = ("_rate", "_share")
POINTS = "_points"
DISTANCE = "_distance_points"
BOUND_SUFFIXES = ("_low", "_high")


class Points(float):
    """A difference between shares, in a table column that also holds numbers in other units."""

    # The cell is shown in percentage points, as in the text. In data files it stays a number.


def cell_in_points(value: float | None, in_points: bool) -> float | None:
    """Return `value` as a table cell.

    - `in_points`: True to show the cell in percentage points.
    """
    return Points(value) if in_points and value is not None else value


class RunName(str):
    """The name of a run as the name of a table column. It is displayed as it is written."""

    __slots__ = ()


def column_heading(column: str) -> str:
    """Return the heading under which a column is displayed."""
    if isinstance(column, RunName):
        return column
    # Reports call p values that Holm's method adjusts "adjusted p". The key is that of data files.
    return "adjusted p" if column == "holm_p" else column.replace("_", " ")


def format_cell(value: TableCell, column: str = "") -> str:
    """Return one cell as text. A missing value becomes a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    # A hyphen is half as wide as a digit, so that signs of a column would not line up.
    return _format_numeric_cell(value, column).replace("-", "−")


def _format_numeric_cell(value: int | float, column: str) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Points):
        return f"{round_half_away(100 * value, 1):+.1f} points"
    # APA style omits the zero before the decimal point of a p-value.
    if column.rsplit("_", 1)[-1] == "p":
        if value > MOST_PRINTED_P:
            return "> .99"
        return "< .001" if value < 0.001 else format_p_digits(value)
    if column.endswith(POINTS):
        # A distance has no direction, so it has no sign.
        sign = "" if column.endswith(DISTANCE) else "+"
        return f"{round_half_away(100 * value, 1):{sign}.1f}"
    return format_percent(value, 1) if is_share_column(column) else format_number(value)


def is_share_column(column: str) -> bool:
    """Return True if a column holds shares or the bounds of a share."""
    for bound in BOUND_SUFFIXES:
        column = column.removesuffix(bound)
    return column.endswith(SHARE_SUFFIXES)


def format_number(value: float) -> str:
    """Return a number as text with three significant digits."""
    if value == 0:
        return "0"
    # Very small numbers need an exponent.
    if not 0.0001 <= abs(value) < math.inf:
        return f"{value:.2e}"
    # Rounding may add a digit before the point: 9.996 becomes 10.0.
    rounded = round_half_away(value, _significant_decimals(value))
    return f"{rounded:,.{_significant_decimals(rounded)}f}"


def _significant_decimals(value: float) -> int:
    # The decimals of three significant digits, from 0 to 5.
    return min(5, max(0, 2 - math.floor(math.log10(abs(value)))))


def numeric_columns(grid: ResultTable) -> list[bool]:
    """Return, for each column, True if most of its known cells are numbers, or none is known."""
    return [_is_mostly_numeric([row[i] for row in grid.rows]) for i in range(len(grid.columns))]


def _is_mostly_numeric(cells: list[TableCell]) -> bool:
    known_cells = [cell for cell in cells if cell is not None]
    # A column of numbers may hold single words such as "none", and is still aligned as numbers.
    # What is missing in all rows is usually a number, such as the bounds of an interval.
    return not known_cells or sum(map(is_number, known_cells)) * 2 > len(known_cells)


def is_number(value: TableCell) -> bool:
    # In Python, True is an int.
    return isinstance(value, (int, float)) and not isinstance(value, bool)
