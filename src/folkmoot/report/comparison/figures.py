"""Figures of the cells of a grid: what a finding draws, in each cell that has it."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.engine.run.grid import GridCell


@dataclass(frozen=True)
class MeasuredFigure:
    """One figure of one cell."""

    cell: GridCell
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Figure:
    """One figure in all cells that have it. `zero`: the value of no effect, None for a rate.
    `unit` and `units`: what is independent within a cell."""

    finding: str
    title: str
    label: str
    percent: bool
    zero: float | None
    cells: tuple[MeasuredFigure, ...]
    unit: str = ""
    units: int = 0
