"""How cells of a grid read to people, in the terminal and in the report alike."""

from __future__ import annotations

from folkmoot.records.findings import Cell, Grid

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
