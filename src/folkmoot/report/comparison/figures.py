"""The estimates in the findings of a grid, with the value of each estimate in each run."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.engine.run.grid import GridCell


@dataclass(frozen=True)
class MeasuredFigure:
    """One estimate in one run of a grid, with the interval from `low` to `high`."""

    cell: GridCell
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Figure:
    """One estimate in a finding, with the value in each run of a grid."""

    finding: str
    title: str
    label: str
    percent: bool
    # The value that means no effect, or None for a rate.
    zero: float | None
    cells: tuple[MeasuredFigure, ...]
    # The name and number of the independent units within a cell (`unit`, `units`).
    unit: str = ""
    units: int = 0
    # True if it is a primary claim in any cell.
    is_primary: bool = False
