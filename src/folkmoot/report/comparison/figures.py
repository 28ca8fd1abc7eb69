"""Estimates of the cells of a grid: what a finding draws, in each cell that has it."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.engine.run.grid import GridCell


@dataclass(frozen=True)
class MeasuredFigure:
    """One estimate in one cell, with its interval from `low` to `high`."""

    cell: GridCell
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Figure:
    """One estimate in all cells that have it.

    `zero` is the value that means no effect, or None for a rate. `unit` and `units` name and count
    the independent units within a cell.
    """

    finding: str
    title: str
    label: str
    percent: bool
    zero: float | None
    cells: tuple[MeasuredFigure, ...]
    unit: str = ""
    units: int = 0
