"""The runs of a grid as a matrix, with one claim's effect in each finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from folkmoot.engine.run.grid import GridCell, RunGrid, cell_folder, read_grid
from folkmoot.errors import FolkmootError
from folkmoot.measures.inference.claims import Result
from folkmoot.report.comparison.between_runs import effects_by_claim
from folkmoot.report.comparison.compare import claimed_measures
from folkmoot.report.comparison.samples import load_samples


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One run of a grid, with the effect of one claim."""

    cell: GridCell
    folder: Path
    # None if the cell is not finished or lacks a condition of the claim.
    effect: Result | None


@dataclass(frozen=True, slots=True)
class GridMatrix:
    """A grid as a matrix. Each row is a combination of settings, each column is a repeat."""

    grid: RunGrid
    # The claims that can be shown.
    claims: tuple[str, ...]
    # The claim that is shown.
    claim: str
    rows: tuple[tuple[str, tuple[MatrixCell, ...]], ...]
    # The reason why no effect can be shown, or empty.
    problem: str


def read_matrix(folder: Path, claim: str) -> GridMatrix:
    """Return the matrix of a grid. Each cell holds the effect of one claim in one run.

    `claim`: the claim in words. Empty: the first claim of the grid.

    Raises StorageError if the folder holds no valid grid.
    """
    # If the grid has no such claim, the matrix shows the first claim.
    grid = read_grid(folder)
    finished = grid.finished_cells()
    effects: dict[str, dict[str, Result]] = {}
    names: dict[str, str] = {}
    problem = ""
    try:
        samples = load_samples([run for _, run in finished.values()]) if finished else []
        names = dict(zip(finished, (sample.name for sample in samples), strict=True))
        effects = effects_by_claim(samples, claimed_measures(samples))
    except FolkmootError as error:
        problem = str(error)
    chosen = claim if claim in effects else next(iter(effects), "")
    rows: dict[str, list[MatrixCell]] = {}
    for cell in grid.cells:
        effect = effects.get(chosen, {}).get(names.get(cell.name, ""))
        shown = MatrixCell(cell, cell_folder(folder, cell), effect)
        rows.setdefault(cell.settings_text or "all cells", []).append(shown)
    matrix = tuple((settings, tuple(cells)) for settings, cells in rows.items())
    return GridMatrix(grid, tuple(effects), chosen, matrix, problem)
