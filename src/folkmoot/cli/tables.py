"""Findings and grids as rich tables: how numbers look in the terminal, for all study types."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from folkmoot.cli.console import clean
from folkmoot.records.display import cell_text, heading, is_number
from folkmoot.records.findings import Finding, Grid
from folkmoot.records.manifest import SYNTHETIC_NOTE

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
        numeric = any(is_number(row[index]) for row in grid.rows)
        table.add_column(
            clean(heading(column)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in grid.rows[:MOST_ROWS]:
        cells = zip(grid.columns, row, strict=True)
        table.add_row(*(Text(clean(cell_text(value, column))) for column, value in cells))
    left = len(grid.rows) - MOST_ROWS
    return Group(table, Text(f"… and {left} more", style="dim")) if left > 0 else table


def synthetic_panel() -> RenderableType:
    """The mark that stands over everything made with the embedded respondent."""
    return Panel(
        Text(SYNTHETIC_NOTE), title="SYNTHETIC · PLANTED", border_style="yellow", expand=False
    )
