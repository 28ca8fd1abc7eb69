"""Findings and grids as rich tables: how numbers look in the terminal, for all study types."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from folkmoot.cli.console import clean
from folkmoot.records.findings import Cell, Finding, Grid
from folkmoot.records.manifest import SYNTHETIC_NOTE

PERCENT = ("_rate", "_share")
BOUNDS = ("_low", "_high")
MOST_ROWS = 40


def finding_view(finding: Finding) -> RenderableType:
    """A finding: title, what it says, its numbers, its caveats."""
    parts: list[RenderableType] = [Text(clean(finding.title), style="bold")]
    if finding.says:
        parts.append(Text(clean(finding.says)))
    if finding.grid.rows:
        parts.append(Padding(grid_view(finding.grid), (0, 0, 0, 2)))
    parts.extend(Text(f"  {clean(note)}", style="dim") for note in finding.notes)
    return Group(*parts, Text(""))


def grid_view(grid: Grid) -> RenderableType:
    """A grid as a table: numbers to the right, three significant digits, shares as percent."""
    caption = clean(grid.caption) or None
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", pad_edge=False)
    for index, column in enumerate(grid.columns):
        numeric = any(_is_number(row[index]) for row in grid.rows)
        table.add_column(heading(column), justify="right" if numeric else "left", overflow="fold")
    for row in grid.rows[:MOST_ROWS]:
        cells = zip(grid.columns, row, strict=True)
        table.add_row(*(Text(cell_text(value, column)) for column, value in cells))
    left = len(grid.rows) - MOST_ROWS
    return Group(table, Text(f"… and {left} more", style="dim")) if left > 0 else table


def synthetic_panel() -> RenderableType:
    """The mark that stands over everything made with the embedded respondent."""
    return Panel(
        Text(SYNTHETIC_NOTE), title="SYNTHETIC · PLANTED", border_style="yellow", expand=False
    )


def heading(column: str) -> str:
    """A column's name as people read it."""
    return clean(column).replace("_", " ")


def cell_text(value: Cell, column: str = "") -> str:
    """One cell. Missing is a dash, never zero or blank."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if is_percent(column):
            return f"{100 * value:.1f} %"
        return number_text(value)
    return clean(value)


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
        text = f"{value:#.3g}"
        return text.rstrip(".")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2e}"


def _is_number(value: Cell) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
