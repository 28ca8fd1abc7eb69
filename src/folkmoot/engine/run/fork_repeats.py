"""Repeat a fork, to separate the effect of a reply from chance."""

# Each repeat has two forks: one with the changed reply, and one with the original reply. The models
# answer again in both. The second fork repeats every call that the first had to make. The forks are
# cells of a grid with the axis `reply`, so that reports and pages of grids can show them.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from folkmoot.engine.calls.progress import RunStarted
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions, relative_path
from folkmoot.engine.run.fork import (
    ReplyReplacement,
    build_reply_change,
    fork_change,
    resume_fork,
    start_fork,
    study_for_fork,
)
from folkmoot.engine.run.grid import (
    GridCell,
    RunGrid,
    build_cells,
    cell_folder,
    is_grid,
    read_grid,
    write_grid,
)
from folkmoot.engine.run.runner import create_router
from folkmoot.engine.session.folder_access import choose_folder, lock_folder
from folkmoot.engine.session.run_totals import spent_in
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import BudgetReachedError, InputError, Problem, RunExistsError
from folkmoot.files import storage_errors
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.run_folder import JOURNAL, RunFolder

AXIS, CHANGED, AS_IT_WAS = "reply", "changed", "as it was"


def repeat_fork(
    run: RunFolder,
    address: str,
    replacement: ReplyReplacement,
    repeats: int,
    options: RunOptions,
    stopper: RunStopper | None = None,
) -> RunGrid:
    """Fork a run 2 × `repeats` times: half with the changed reply, half with the original reply.

    Raises RunExistsError if the folder `options.out` is not empty. Also raises the errors of
    `fork_run`.
    """
    study_file = study_for_fork(run, options)
    folder = options.out or choose_folder(run.path.with_name(f"{run.id}_forks"), "new")[0]
    # A process that was killed before the first fork has left only the file of the grid. That file
    # does not hold the change, so these forks cannot be resumed and start again.
    is_unused = is_grid(folder) and not any(folder.rglob(JOURNAL))
    with storage_errors(folder):
        is_empty = not folder.exists() or not any(folder.iterdir())
    if not is_empty and not is_unused:
        raise RunExistsError(
            f"{folder} already exists; resume it with --resume, or choose another folder with --out"
        )
    axes = {AXIS: [CHANGED, AS_IT_WAS]}
    # A cell's seed is that of its providers. The embedded respondent draws with it, and no server
    # receives it. The protocol keeps the seed of the source run, so that personas and assignments
    # stay as they were.
    seed = run.manifest["seed"] + 1
    grid = RunGrid(folder, axes, repeats, tuple(build_cells(axes, repeats, seed)))
    change = build_reply_change(run, folder, study_file.study, address, replacement)
    with storage_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_grid(grid, study_file.path, seed)
    return _RepeatedFork(run, grid, study_file, options, stopper).run_cells(change)


def resume_repeats(folder: Path, options: RunOptions, stopper: RunStopper | None = None) -> RunGrid:
    """Resume repeated forks that stopped.

    Raises InputError if the grid holds no forks.
    """
    grid = read_grid(folder)
    # `grid.json` does not hold the change. The plan of the first cell does, with a path relative to
    # the cell and with the draw of its repeat.
    first_run = grid.run(grid.cells[0])
    change = fork_change(first_run) if first_run is not None else None
    if not has_forks(grid) or first_run is None or change is None:
        hint = "start new forks with folkmoot fork RUN ADDRESS … --repeats N"
        raise InputError(Problem(f"{folder}: contains no forks that can be resumed", hint=hint))
    run = RunFolder(first_run.path / change.run)
    change_of_forks = replace(change, run=relative_path(run.path, folder), draw=0)
    study_file = study_for_fork(run, options)
    return _RepeatedFork(run, grid, study_file, options, stopper).run_cells(change_of_forks)


def has_forks(grid: RunGrid) -> bool:
    """Return whether the cells of a grid are repeated forks."""
    return list(grid.axes) == [AXIS] and set(grid.axes[AXIS]) == {CHANGED, AS_IT_WAS}


def pairs_of(grid: RunGrid) -> Iterator[tuple[GridCell, GridCell]]:
    """Yield two forks for each repeat: one with the changed and one with the original reply."""
    by_repeat: dict[int, dict[str, GridCell]] = {}
    for cell in grid.cells:
        by_repeat.setdefault(cell.repeat, {})[cell.settings[AXIS]] = cell
    for cells in by_repeat.values():
        yield cells[CHANGED], cells[AS_IT_WAS]


@dataclass(frozen=True)
class _RepeatedFork:
    # The fork with the changed reply comes first.
    run: RunFolder
    grid: RunGrid
    found: StudyFile
    options: RunOptions
    stopper: RunStopper | None

    def run_cells(self, change: ReplyChange) -> RunGrid:
        with lock_folder(self.grid.path):
            # The first of these events names what has to be resumed: all forks, not one of them.
            self.options.progress(self._started_forks())
            for changed, as_it_was in pairs_of(self.grid):
                change_of_repeat = replace(change, draw=changed.repeat)
                changed_run = self._run_cell(changed, change_of_repeat)
                with JournalReader(changed_run.path / JOURNAL) as journal:
                    asked_addresses = [
                        asked_address
                        for asked_address in journal.calls(taken_over=False)
                        if asked_address != change.address
                    ]
                # With the original reply no request differs from the source run, so the fork would
                # take over all replies. The calls of the changed fork are therefore named here.
                unchanged = replace(change_of_repeat, reply=None, dropped=False, model=None)
                self._run_cell(as_it_was, replace(unchanged, asked_again=tuple(asked_addresses)))
        return self.grid

    def _started_forks(self) -> RunStarted:
        router = create_router(self.found, self.options)
        return RunStarted(
            f"{self.run.id}, {format_count(len(self.grid.cells), 'fork')}",
            str(self.grid.path),
            self.found.study.name,
            router.model_names_text,
            self.grid.cells[0].seed,
            any(self.grid.run(cell) for cell in self.grid.cells),
            router.is_synthetic_only,
        )

    def _run_cell(self, cell: GridCell, change: ReplyChange) -> RunFolder:
        try:
            return self._run_or_resume_cell(cell, change)
        except BudgetReachedError as error:
            # The message names the rest of the budget that this fork had.
            sentence = f"All forks share the budget of {self.options.budget:g} USD."
            raise error.with_sentence(sentence) from error

    def _run_or_resume_cell(self, cell: GridCell, change: ReplyChange) -> RunFolder:
        folder, study_file, options = cell_folder(self.grid.path, cell), self.found, self.options
        earlier_run = self.grid.run(cell)
        if earlier_run is not None and earlier_run.is_finished:
            return earlier_run
        # The budget covers all forks together, so a cell gets what the others have left.
        if options.budget is not None:
            spent = spent_in(path for path in self.grid.journal_folders() if path != folder)
            spent.require_known_cost(options.budget)
            usd_left = max(0.0, options.budget - spent.total.usd)
            study_file = replace(
                study_file, config=study_file.config.model_copy(update={"budget_usd": usd_left})
            )
            options = replace(options, budget=usd_left)
        if earlier_run is not None:
            return resume_fork(earlier_run, replace(options, out=folder), self.stopper)
        with storage_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        change = replace(change, run=relative_path(self.run.path, folder))
        cell_options = replace(options, out=folder, change=change)
        return start_fork(self.run, study_file, cell_options, self.stopper)
