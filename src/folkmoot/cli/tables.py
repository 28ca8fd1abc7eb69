"""Findings and result tables in the terminal, in the same form for all study types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from folkmoot.hidden_characters import without_hidden
from folkmoot.storage.findings import Finding, ResultTable, column_heading, format_cell, is_number
from folkmoot.storage.manifest import SYNTHETIC_MARK, SYNTHETIC_NOTE

MAX_ROWS = 40
# A column of sentences needs at least this number of characters. In other columns a longer word
# may be broken.
SENTENCE_WIDTH = 24
# Characters between two columns, and in a terminal that is too narrow for them.
GAP, NARROW_GAP = 2, 1


def finding_view(finding: Finding) -> RenderableType:
    """Return a finding in the form for the terminal: title, statement, table and notes."""
    parts: list[RenderableType] = [Text(without_hidden(finding.title), style="bold")]
    if finding.says:
        parts.append(Text(without_hidden(finding.says)))
    parts += [Text(without_hidden(alarm), style="bold red") for alarm in finding.alarms]
    if finding.grid.rows:
        parts += [Text(""), GridView(finding.grid), Text("")]
    notes = filter(None, (finding.independent, *finding.notes))
    parts += [Text(without_hidden(note), style="dim") for note in notes]
    return Group(*parts, Text(""))


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Print findings."""
    # A table that is too wide for the terminal is wrapped and not cut.
    for finding in findings:
        console.print(finding_view(finding), crop=False)


class GridView:
    """A result table in the terminal."""

    # Numbers are aligned to the right, an interval is in one column, and shares are in percent. If
    # the table has too many columns for the terminal, each row becomes a list with one value per
    # line.

    def __init__(self, grid: ResultTable) -> None:
        self.grid = grid
        self.columns = _format_columns(grid)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        for gap, breaks_titles in ((GAP, False), (NARROW_GAP, False), (NARROW_GAP, True)):
            available = options.max_width - gap * (len(self.columns) - 1)
            if widths := self._fit_widths(available, breaks_titles):
                yield self._as_table(widths, gap)
                break
        else:
            yield from self._as_records()
        rows_left = len(self.grid.rows) - MAX_ROWS
        lines_below = [f"… and {rows_left} more"] if rows_left > 0 else []
        lines_below += [without_hidden(self.grid.caption)] if self.grid.caption else []
        yield from (Text(line, style="dim") for line in lines_below)

    def _fit_widths(self, available: int, breaks_titles: bool) -> list[int]:
        # One width per column, at most `available` together, or [] if the columns do not fit. Rich
        # would make columns narrower than their longest word. The titles of a
        # matrix are broken inside words, because they are wider than its numbers.
        widths = [
            _readable_width("" if breaks_titles else title, cells, numeric)
            for title, cells, numeric in self.columns
        ]
        spare = available - sum(widths)
        if spare < 0:
            return []
        # First whole numbers and intervals, as far as they fit.
        for i, (_, cells, numeric) in enumerate(self.columns):
            wanted = _widest(cells) - widths[i]
            if numeric and 0 < wanted <= spare:
                widths[i] += wanted
                spare -= wanted
        full_widths = [_widest([title, *cells]) for title, cells, _ in self.columns]
        for _ in range(min(spare, sum(full_widths) - sum(widths))):
            # The column with the most lines in a row gets the next character.
            most_wrapped = max(range(len(widths)), key=lambda i: full_widths[i] / widths[i])
            widths[most_wrapped] += 1
        return widths

    def _as_table(self, widths: list[int], gap: int) -> Table:
        # The box itself draws one of the characters between two columns.
        padding = (0, gap - 1, 0, 0)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)
        for (title, _, numeric), width in zip(self.columns, widths, strict=True):
            justify: JustifyMethod = "right" if numeric else "left"
            table.add_column(title, justify=justify, width=width, overflow="fold")
        for row in zip(*(cells for _, cells, _ in self.columns), strict=True):
            table.add_row(*map(Text, row))
        return table

    def _as_records(self) -> Iterator[RenderableType]:
        titles = [title for title, _, _ in self.columns]
        for first, *rest in zip(*(cells for _, cells, _ in self.columns), strict=True):
            yield Text(first, style="bold")
            titled_cells = zip(titles[1:], rest, strict=True)
            for title, cell in (
                (column_title, cell_text)
                for column_title, cell_text in titled_cells
                if cell_text not in ("", "–")
            ):
                yield Padding(Text(f"{title}: {cell}"), (0, 0, 0, 2))


def _readable_width(title: str, cells: list[str], numeric: bool) -> int:
    # The smallest width at which no number and no word of usual length is broken.
    title_width = max(1, _widest(title.split(" ")))
    if numeric:
        # An interval may be broken before its upper bound.
        lines = (line for cell in cells for line in cell.replace(" to ", " to\n").split("\n"))
        return max(title_width, _widest(lines))
    if _widest(cells) > 2 * SENTENCE_WIDTH:
        return SENTENCE_WIDTH
    longest_word = _widest(word for cell in cells for word in cell.split(" "))
    return min(max(title_width, longest_word), SENTENCE_WIDTH)


def _widest(texts: Iterable[str]) -> int:
    # In columns of the terminal. A Chinese or Korean character takes two.
    return max(map(cell_len, texts), default=0)


def _format_columns(grid: ResultTable) -> list[tuple[str, list[str], bool]]:
    columns: list[tuple[str, list[str], bool]] = []
    cells_by_column = {
        name: [without_hidden(format_cell(row[i], name)) for row in grid.rows[:MAX_ROWS]]
        for i, name in enumerate(grid.columns)
    }
    names = iter(zip(grid.columns, [*grid.columns[1:], ""], strict=True))
    for name, next_name in names:
        values = [row[grid.columns.index(name)] for row in grid.rows]
        numeric = any(map(is_number, values))
        is_bound = numeric or all(value is None for value in values)
        if is_bound and "low" in name.split("_") and next_name == name.replace("low", "high"):
            columns.append(
                (
                    # Also "joint interval", of the columns `joint_low` and `joint_high`.
                    column_heading(name.partition("low")[0] + "interval"),
                    list(map(_format_interval, cells_by_column[name], cells_by_column[next_name])),
                    True,
                )
            )
            next(names)
        else:
            columns.append((without_hidden(column_heading(name)), cells_by_column[name], numeric))
    return columns


def _format_interval(low: str, high: str) -> str:
    for unit in (" %", " points"):
        if low.endswith(unit) and high.endswith(unit):
            low = low.removesuffix(unit)
    return low if low == high == "–" else f"{low} to {high}"


def synthetic_panel(
    planted: Mapping[str, Any] | None = None,
    note: str = SYNTHETIC_NOTE,
    mark: str = SYNTHETIC_MARK,
) -> RenderableType:
    """Return the panel above printed results that says who answered in place of a model.

    - `planted`: the effects that are built into the simulated answers, or None.
    - `note`: the text of the panel.
    - `mark`: the title of the panel.
    """
    # `planted` holds the built-in effects of the embedded respondent.
    words = [note]
    if planted:
        kappa = ", ".join(
            f"{name.replace('_', ' ')} {value:g}" for name, value in planted["kappa"].items()
        )
        faults = (
            ", ".join(f"{name} {value:g}" for name, value in planted["pathologies"].items())
            or "none"
        )
        words.append(
            f"Strength of exposure (κ): {kappa}; noise {planted['noise_scale']:g}; faults: "
            f"{faults.replace('_', ' ')}."
        )
    return Panel(
        Text("\n".join(words)),
        title=f"{mark} · SIMULATED RESPONDENT · BUILT-IN EFFECTS"
        if mark == SYNTHETIC_MARK
        else mark,
        border_style="yellow",
        expand=False,
    )
