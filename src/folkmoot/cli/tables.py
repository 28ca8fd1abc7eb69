"""Findings and grids as rich tables: how numbers look in the terminal, for all study types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from folkmoot.cli.console import clean
from folkmoot.records.findings import Finding, Grid, cell_text, heading, is_number
from folkmoot.records.manifest import SYNTHETIC_NOTE

MOST_ROWS = 40
SHORT_NAME = 20  # characters
GAP = 2  # between columns


def finding_view(finding: Finding) -> RenderableType:
    """A finding: title, what it says, its numbers, its caveats."""
    parts: list[RenderableType] = [Text(clean(finding.title), style="bold")]
    if finding.says:
        parts.append(Text(clean(finding.says)))
    if finding.grid.rows:
        parts.append(Padding(grid_view(finding.grid), (1, 0, 1, 2)))
    parts.extend(Padding(Text(clean(n), style="dim"), (0, 0, 0, 2)) for n in finding.notes)
    return Group(*parts, Text(""))


@dataclass(frozen=True, slots=True)
class GridView:
    """A grid as a table: numbers to the right, low and high as one interval, shares as percent."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = _columns(self.grid)
        widths = _layout(columns, options.max_width - GAP * (len(columns) - 1))
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            padding=(0, 1, 0, 0),
        )
        for column, width in zip(columns, widths, strict=True):
            table.add_column(
                column.title,
                justify="right" if column.numeric else "left",
                overflow="fold",
                width=width,
            )
        for cells in zip(*(c.cells for c in columns), strict=True):
            table.add_row(*map(Text, cells))
        yield table
        left = len(self.grid.rows) - MOST_ROWS
        if left > 0:
            yield Text(f"… and {left} more", style="dim")
        if self.grid.caption:
            yield Text(clean(self.grid.caption), style="dim")


def grid_view(grid: Grid) -> RenderableType:
    """A grid as a table for the terminal."""
    return GridView(grid)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as it is printed."""

    title: str
    cells: tuple[str, ...]
    numeric: bool

    def least_width(self) -> int:
        """Titles may break between words; numbers and short names not at all."""
        longest = max((len(cell) for cell in self.cells), default=0)
        whole = longest if self.numeric else min(longest, SHORT_NAME)
        return max(_longest_word([self.title]), whole)

    def narrow_width(self) -> int:
        """The same, but names may break between words as well."""
        words = min(_longest_word([self.title, *self.cells]), SHORT_NAME)
        return self.least_width() if self.numeric else words

    def tight_width(self) -> int:
        """Numbers stay whole, titles may break anywhere."""
        longest = max((len(cell) for cell in self.cells), default=1)
        return longest if self.numeric else min(_longest_word(self.cells), SHORT_NAME)


def _layout(columns: Sequence[_Column], room: int) -> list[int]:
    """Widths that fit into the room: whole where they can be, else as narrow as reads well."""
    tiers = [
        [c.tight_width() for c in columns],
        [c.narrow_width() for c in columns],
        [c.least_width() for c in columns],
        [max(len(text) for text in (c.title, *c.cells)) for c in columns],
    ]
    widths = tiers[0]
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    for wanted in tiers[1:]:
        # The smallest wants first, so that as few columns as can be stay broken.
        for index in sorted(range(len(columns)), key=lambda i: wanted[i] - widths[i]):
            spare = room - sum(widths)
            widths[index] += max(0, min(wanted[index] - widths[index], spare))
    return widths


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=1)


def _columns(grid: Grid) -> list[_Column]:
    columns: list[_Column] = []
    shown = {
        name: tuple(clean(cell_text(row[i], name)) for row in grid.rows[:MOST_ROWS])
        for i, name in enumerate(grid.columns)
    }
    names = iter(zip(grid.columns, [*grid.columns[1:], ""], strict=True))
    for name, following in names:
        index = grid.columns.index(name)
        numeric = any(is_number(row[index]) for row in grid.rows)
        empty = all(row[index] is None for row in grid.rows)
        bound = numeric or empty
        if bound and "low" in name.split("_") and following == name.replace("low", "high"):
            cells = tuple(map(_interval, shown[name], shown[following]))
            columns.append(_Column("interval", cells, True))
            next(names)
        else:
            columns.append(_Column(clean(heading(name)), shown[name], numeric))
    return columns


def _interval(low: str, high: str) -> str:
    if low.endswith(" %") and high.endswith(" %"):
        low = low.removesuffix(" %")
    return low if low == high == "–" else f"{low} to {high}"


def synthetic_panel(
    planted: Mapping[str, Any] | None = None, note: str = SYNTHETIC_NOTE
) -> RenderableType:
    """The mark that stands over everything made with the embedded respondent.

    `planted`: what effects it was given, as `models.synthetic.planted` tells. `note`: the run's
    own, which says whom it answered where others had real models.
    """
    words = [note]
    if planted:
        kappa = ", ".join(f"{name.replace('_', ' ')} {x:g}" for name, x in planted["kappa"].items())
        faults = ", ".join(f"{name} {x:g}" for name, x in planted["pathologies"].items()) or "none"
        words.append(
            f"Strength of exposure (κ): {kappa}; noise {planted['noise_scale']:g}; faults: "
            f"{faults.replace('_', ' ')}."
        )
    return Panel(
        Text("\n".join(words)), title="SYNTHETIC · PLANTED", border_style="yellow", expand=False
    )
