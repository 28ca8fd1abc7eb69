"""Run a study many times: with different seeds and all combinations of settings."""

# A grid is a folder with `grid.json` and one run folder for each cell below `cells/`. Cells run
# concurrently under one rate limiter and one budget, and the grid resumes as a whole. The cells of
# one repeat share a seed. So they have the same participants in the same conditions, unless a
# setting changes the design. The preflight of a grid has a separate journal beside `grid.json`,
# which holds its results.

from __future__ import annotations

import asyncio
import gc
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import (
    AnswerMissing,
    CallDone,
    CallRetried,
    Event,
    ItemDone,
    Notice,
    Outcome,
    Preflight,
    PreflightCheck,
    Progress,
    ReplyLost,
    RunEnded,
    RunStarted,
    StageStarted,
)
from folkmoot.engine.calls.retries import OtherRunStoppedError, RunHaltedError, SharedLimits
from folkmoot.engine.journal.journal import Journal, escape_address_part
from folkmoot.engine.limits.budget import Budget
from folkmoot.engine.run.event_loop import RunStopper, run_until_complete
from folkmoot.engine.run.execution import (
    Execution,
    RunOptions,
    build_design,
    execute_study,
)
from folkmoot.engine.run.preflight import (
    EMBEDDING_ADDRESS,
    PreflightResult,
    ask_each_once,
    find_hosted_embedding_model,
    raise_on_problems,
)
from folkmoot.engine.run.runner import create_router, load_study_with_options, run_folder_path
from folkmoot.engine.session.folder_access import (
    lock_folder,
    open_folder,
    open_run,
    prepare_folder,
)
from folkmoot.engine.session.plan import Plan
from folkmoot.engine.session.run_totals import spent_in
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import (
    FatalModelError,
    InputError,
    Problem,
    RunInterruptedError,
    RunPausedError,
    StorageError,
)
from folkmoot.models.catalog import LOCAL_MODEL
from folkmoot.models.request import ModelRequest
from folkmoot.storage.json_files import read_json, write_json
from folkmoot.storage.run_folder import JOURNAL, PLAN, RunFolder

GRID_FILE = "grid.json"
CELLS_FOLDER = "cells"
# The key of `grid.json` with the results of the preflight.
PREFLIGHT_KEY = "preflight"
# More cells at a time would need more memory and save no time: they share one rate limiter.
MAX_CONCURRENT_CELLS = 8
MAX_CELLS = 1000
# File systems allow 255 bytes. The rest is left for temporary names made from a cell's name.
MAX_NAME_BYTES = 200
# These errors would stop every other cell as well.
_ERRORS_OF_ALL_CELLS = (RunPausedError, FatalModelError, StorageError)

# The setting of each axis → its values, as texts of the command line.
Axes = Mapping[str, Sequence[str]]
# Returns the preflight requests of each run, or an empty list if no preflight is wanted. Its
# arguments are the runs of the first repeat, the number of repeats, and whether any run is new.
Samples = Callable[
    [Sequence[tuple[StudyFile, RunOptions]], int, bool], list[tuple[ModelRequest, ...]]
]


@dataclass(frozen=True)
class GridCell:
    """One run of a grid.

    `settings`: the value of each axis in this cell.
    """

    name: str
    settings: Mapping[str, str]
    repeat: int
    seed: int

    @property
    def settings_text(self) -> str:
        """The settings in words. Empty if the grid has no axes."""
        return ", ".join(f"{key} {value}" for key, value in self.settings.items())


@dataclass(frozen=True)
class RunGrid:
    """A grid on disk: its cells, and the runs that have started."""

    path: Path
    axes: Axes
    repeats: int
    cells: tuple[GridCell, ...]

    def run(self, cell: GridCell) -> RunFolder | None:
        """Return the run of a cell, or None if the cell has not started."""
        folder = cell_folder(self.path, cell)
        return open_run(folder) if (folder / JOURNAL).exists() else None

    def finished_cells(self) -> dict[str, tuple[GridCell, RunFolder]]:
        """Return a map from cell name to cell and run, for the finished cells."""
        runs = ((cell, self.run(cell)) for cell in self.cells)
        return {cell.name: (cell, run) for cell, run in runs if run and run.is_finished}

    def journal_folders(self) -> list[Path]:
        """Return the folders with the journals of the grid: its own, then those of all cells."""
        # The journal of the grid itself holds the preflight.
        return [self.path, *(cell_folder(self.path, cell) for cell in self.cells)]


def is_grid(folder: Path) -> bool:
    """Return whether this is the folder of a grid."""
    return (folder / GRID_FILE).exists()


def read_grid(folder: Path) -> RunGrid:
    """Read the grid in a folder.

    Raises StorageError if the folder holds no valid grid.
    """
    grid_data = read_json(folder / GRID_FILE)
    try:
        axes = {
            str(key): [str(value) for value in values] for key, values in grid_data["axes"].items()
        }
        repeats, seed = int(grid_data["repeats"]), int(grid_data["seed"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{folder / GRID_FILE}: not the file of a grid; it was not changed"
        ) from error
    return RunGrid(folder, axes, repeats, tuple(build_cells(axes, repeats, seed)))


def parse_axes(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each axis in `--grid` arguments such as `model=a,b`.

    Raises InputError for a wrong form, a duplicate, and a key that no axis may have.
    """
    axes: dict[str, list[str]] = {}
    for text in arguments:
        key, equals_sign, value_list = text.partition("=")
        values = [value.strip() for value in value_list.split(",")]
        if not (key and equals_sign and all(values)):
            hint = "write --grid key=value,value with no value empty"
            raise InputError(Problem(f"--grid: {text!r} is not key=value,value", hint=hint))
        if key in axes or len(set(values)) < len(values):
            raise InputError(f"--grid: {key} is given twice, or holds a duplicate value")
        if key == "random_seed":
            raise InputError("--grid: seeds are what --repeats varies")
        if key in ("budget_usd", "budget_calls"):
            raise InputError(f"--grid: {key} cannot vary, because all cells share one budget")
        axes[key] = values
    return axes


def build_cells(axes: Axes, repeats: int, seed: int) -> list[GridCell]:
    """Return one cell for every combination of values in each repeat.

    Raises InputError for too many cells, and for values that cannot be used in folder names.
    """
    # The repeat with number r (from 1) has the seed `seed` + r − 1.
    count = repeats
    for values in axes.values():
        count *= len(values)
    if repeats < 1 or count > MAX_CELLS:
        raise InputError(f"a grid has 1 to {MAX_CELLS:,} cells; this one would have {count:,}")
    cells = []
    for repeat in range(1, repeats + 1):
        for values in itertools.product(*axes.values()):
            settings = dict(zip(axes, values, strict=True))
            parts = [f"{key}={_folder_name_part(value)}" for key, value in settings.items()]
            # The number has no leading zeros. Their count would change when a grid grows, and the
            # folders of finished cells would not be found.
            name = "_".join([*parts, f"r{repeat}"])
            cells.append(GridCell(name, settings, repeat, seed + repeat - 1))
    # Some file systems ignore case in names.
    folded_names = {cell.name.casefold() for cell in cells}
    if len(folded_names) < len(cells):
        raise InputError("--grid: two values would give the same folder name; rename one")
    if max(len(name.encode()) for name in folded_names) > MAX_NAME_BYTES:
        hint = "shorten the values, or put long texts into files"
        raise InputError(Problem("--grid: the values are too long to name folders", hint=hint))
    return cells


def cell_folder(grid: Path, cell: GridCell) -> Path:
    return grid / CELLS_FOLDER / cell.name


def run_grid(
    source: Path,
    options: RunOptions,
    axis_arguments: Axes,
    repeats: int | None,
    stopper: RunStopper | None = None,
    samples: Samples = lambda runs, repeats, new: [],
) -> RunGrid:
    """Run or resume every unfinished cell of a grid.

    - `axis_arguments`, `repeats`: may be empty on a resume.
    - `samples`: a function that returns, for each run of the first repeat, the requests to send as
      test calls before the grid starts.

    Raises InputError before any call if a cell has a problem.
    Raises the error of a cell after all other cells have ended.
    """
    # An error that concerns all cells (budget, quota, a wrong key, the preflight) stops the grid at
    # once. It can then be resumed.
    first_file = load_study_with_options(source, replace(options, budget=None))
    if first_file.config.seats is not None:
        raise InputError(
            Problem("humans can take part in a single run, not in a grid", key="seats")
        )
    folder = run_folder_path(first_file, options)
    axes, repeats = _resolve_design(folder, options, axis_arguments, repeats)
    grid = RunGrid(
        folder, axes, repeats, tuple(build_cells(axes, repeats, first_file.config.random_seed))
    )
    files_by_cell = {cell.name: _load_cell(source, options, cell, folder) for cell in grid.cells}
    budget = options.budget if options.budget is not None else first_file.config.budget_usd
    providers = {}
    for name, (file, cell_options) in files_by_cell.items():
        # A cell has no budget itself. The check of its models needs the grid's budget, because a
        # budget in USD requires a known price for each model.
        config = file.config.model_copy(update={"budget_usd": budget})
        providers[name] = create_router(replace(file, config=config), cell_options)
        images = file.study.image_locations(file.config)
        providers[name].check_models(
            uses_embeddings=file.study.uses_embeddings, images=images, file=str(file.path)
        )
    execution = _GridExecution(
        grid, files_by_cell, providers, options, (budget, first_file.config.budget_calls)
    )
    # The requests come from dry runs, which find mistakes of the study. So this comes before the
    # folder of the grid is made.
    execution.collect_preflight_requests(samples)
    open_folder(folder, resume=options.resume)
    if options.resume and not is_grid(folder):
        raise StorageError(f"{folder}: not a grid; leave out --grid and --repeats to resume it")
    with lock_folder(folder):
        execution.require_same_designs()
        write_grid(grid, source, first_file.config.random_seed)
        run_until_complete(execution.run, stopper)
    return grid


def _folder_name_part(value: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", value).strip("-.") or "-"


def _resolve_design(
    folder: Path, options: RunOptions, given_axes: Axes, repeats: int | None
) -> tuple[Axes, int]:
    # A resume may only add to them. Raises InputError if the arguments would remove a cell.
    if not (options.resume and is_grid(folder)):
        return given_axes, repeats or 1
    grid_before = read_grid(folder)
    axes, repeats = given_axes or grid_before.axes, repeats or grid_before.repeats
    keeps_values = all(
        set(grid_before.axes[key]) <= set(axes.get(key, ())) for key in grid_before.axes
    )
    if not keeps_values or list(axes) != list(grid_before.axes) or repeats < grid_before.repeats:
        raise InputError(
            f"{folder / GRID_FILE} describes another grid: leave out --grid and --repeats to "
            "resume that grid, or add values and repeats to it"
        )
    return axes, repeats


def _load_cell(
    source: Path, options: RunOptions, cell: GridCell, folder: Path
) -> tuple[StudyFile, RunOptions]:
    # Study and options get no budget here, because all cells share the budget of the grid.
    model = cell.settings.get("model", options.model)
    overrides = [f"{key}={setting}" for key, setting in cell.settings.items() if key != "model"]
    cell_options = replace(
        options,
        model=model,
        seed=cell.seed,
        budget=None,
        overrides=(*options.overrides, *overrides),
    )
    try:
        study_file = load_study_with_options(source, cell_options, _sealed_cell(folder, cell))
    except InputError as error:
        if not cell.settings:
            raise
        where = f"in the cell {cell.settings_text}: "
        problems = [replace(problem, message=where + problem.message) for problem in error.problems]
        raise InputError(problems) from error
    config = study_file.config.model_copy(update={"budget_usd": None, "budget_calls": None})
    return replace(study_file, config=config), cell_options


def _sealed_cell(grid: Path, cell: GridCell) -> Path:
    # Any started cell will do: all cells have the same models in `plan.json`, unless an axis sets
    # the model.
    folder = cell_folder(grid, cell)
    if (folder / PLAN).exists():
        return folder
    plan_files = sorted((grid / CELLS_FOLDER).glob(f"*/{PLAN}"))
    return plan_files[0].parent if plan_files else folder


def write_grid(grid: RunGrid, source: Path, seed: int) -> None:
    """Write `grid.json`.

    Preflight results in an existing file are kept.
    """
    path = grid.path / GRID_FILE
    preflight_rows = read_json(path).get(PREFLIGHT_KEY, []) if path.exists() else []
    write_json(
        path,
        {
            "study_file": source.name,
            "axes": {key: list(values) for key, values in grid.axes.items()},
            "repeats": grid.repeats,
            "seed": seed,
            "cells": [
                {
                    "name": cell.name,
                    "settings": dict(cell.settings),
                    "repeat": cell.repeat,
                    "seed": cell.seed,
                }
                for cell in grid.cells
            ],
            PREFLIGHT_KEY: preflight_rows,
        },
    )


@dataclass
class _GridExecution:
    grid: RunGrid
    # Name of the cell → its study file and options.
    studies_by_cell: Mapping[str, tuple[StudyFile, RunOptions]]
    # Name of the cell → its models.
    providers: Mapping[str, ModelRouter]
    options: RunOptions
    # The budget in USD and in calls.
    limits: tuple[float | None, int | None]
    # The preflight requests of the cells of the first repeat.
    samples: Sequence[tuple[GridCell, tuple[ModelRequest, ...]]] = ()

    def collect_preflight_requests(self, samples: Samples) -> None:
        # Other repeats differ only in their seed, so they need no preflight.
        cells = [cell for cell in self.grid.cells if cell.repeat == 1]
        has_new_cells = any(self.grid.run(cell) is None for cell in cells)
        runs = [self.studies_by_cell[cell.name] for cell in cells]
        # Not strict: without a preflight, `samples` returns an empty list.
        self.samples = list(
            zip(cells, samples(runs, self.grid.repeats, has_new_cells), strict=False)
        )

    def require_same_designs(self) -> None:
        # Cells with different settings, seeds, models or prompts could not be compared.
        for cell in self.grid.cells:
            run = self.grid.run(cell)
            if run is None or self.options.accept_changes:
                continue
            # The plan is opened for a comparison and never written.
            plan = Plan(run.path / PLAN, started_at="")
            file, _ = self.studies_by_cell[cell.name]
            plan.seal_part(
                "design", build_design(file, self.providers[cell.name], plan.sealed_part("design"))
            )

    async def run(self, stopper: RunStopper) -> None:
        progress = self.options.progress
        shared_limits = self._shared_limits(progress)
        stoppers: list[RunStopper] = []
        failures: dict[str, Exception] = {}
        # All workers below take their next cell from this one iterator.
        pending = iter(self.grid.cells)

        def stop_cells() -> None:
            for cell_stopper in stoppers:
                cell_stopper.calls += 1
                if cell_stopper.halt is not None:
                    cell_stopper.halt()
            shared_limits.stop_calls(RunHaltedError("the run is stopping"), stop_all_runs=True)

        def is_over() -> bool:
            return bool(stopper.calls or shared_limits.is_stopped) or any(
                isinstance(failure, _ERRORS_OF_ALL_CELLS) for failure in failures.values()
            )

        async def run_pending_cells() -> None:
            for cell in pending:
                if is_over():
                    return
                stoppers.append(RunStopper())
                try:
                    await self._run_cell(cell, stoppers[-1], shared_limits)
                # The stop of the whole grid has interrupted this cell.
                except RunInterruptedError:
                    return
                except Exception as error:
                    failures[cell.name] = error
                    progress(_failure_notice(cell, error))
                else:
                    progress(ItemDone(CELLS_FOLDER))

        stopper.halt = stop_cells
        progress(self._started_cells())
        progress(StageStarted(CELLS_FOLDER, len(self.grid.cells)))
        outcome: Outcome = "failed"
        try:
            if any(requests for _, requests in self.samples):
                await self._run_preflight(shared_limits)
            await asyncio.gather(
                *(run_pending_cells() for _ in range(self._max_concurrent_cells()))
            )
            if stopper.calls:
                raise RunInterruptedError
            if failures:
                # All others were reported as notices.
                raise min(failures.values(), key=_rank_error)
            outcome = "done"
        except RunPausedError:
            outcome = "paused"
            raise
        except RunHaltedError:
            outcome = "interrupted"
            raise RunInterruptedError from None
        # A second Ctrl-C cancels the grid.
        except (RunInterruptedError, asyncio.CancelledError):
            outcome = "interrupted"
            raise
        finally:
            stopper.halt = None
            progress(RunEnded(outcome))

    async def _run_preflight(self, shared_limits: SharedLimits) -> None:
        # One real call for each distinct kind of request (see `_preflight_key`). Raises
        # FatalModelError if a cell cannot work, and every error that stops a run.
        path, progress = self.grid.path / GRID_FILE, self.options.progress
        grid_data = read_json(path)
        checks_before = [PreflightCheck(**row) for row in grid_data[PREFLIGHT_KEY]]
        checks: list[PreflightCheck] = []
        with Journal(self.grid.path / JOURNAL) as journal:
            for cell, requests, embedding in self._unique_preflight_requests():
                config, providers = (
                    self.studies_by_cell[cell.name][0].config,
                    self.providers[cell.name],
                )
                gateway = Gateway(journal, providers.open_provider, config, progress, shared_limits)
                try:
                    embedding_address = f"{EMBEDDING_ADDRESS}/{escape_address_part(embedding)}"
                    results = await ask_each_once(gateway, requests, embedding, embedding_address)
                    checks += [
                        _merge_preflight_result(result, cell, checks_before) for result in results
                    ]
                # Calls in flight are paid for, so they are journaled before the journal is closed.
                finally:
                    await gateway.wait_for_calls_in_flight()
                    await gateway.close()
        write_json(
            path,
            {**grid_data, PREFLIGHT_KEY: [asdict(check) for check in (*checks_before, *checks)]},
        )
        progress(Preflight(tuple(checks)))
        raise_on_problems(checks)

    def _unique_preflight_requests(self) -> Iterator[tuple[GridCell, list[ModelRequest], str]]:
        # The empty string means: no hosted embedding model.
        seen_keys: set[object] = {""}
        for cell, requests in self.samples:
            file, _ = self.studies_by_cell[cell.name]
            first_requests = [
                request for request in requests if _preflight_key(request) not in seen_keys
            ]
            embedding_model = find_hosted_embedding_model(self.providers[cell.name], file.config)
            embedding_model = (
                embedding_model
                if file.study.uses_embeddings and embedding_model not in seen_keys
                else ""
            )
            seen_keys |= {embedding_model, *map(_preflight_key, first_requests)}
            if first_requests or embedding_model:
                yield cell, first_requests, embedding_model

    async def _run_cell(
        self, cell: GridCell, stopper: RunStopper, shared_limits: SharedLimits
    ) -> None:
        run = self.grid.run(cell)
        if run is not None and run.is_finished and not self.options.accept_changes:
            return
        file, cell_options = self.studies_by_cell[cell.name]
        folder = cell_folder(self.grid.path, cell)
        resume = folder.exists()
        cell_options = replace(
            cell_options,
            resume=resume,
            out=folder,
            progress=_cell_progress(cell, cell_options.progress),
        )
        open_folder(folder, resume=resume)
        with lock_folder(folder):
            prepare_folder(folder, file.config, resume=resume)
            await execute_study(
                Execution(
                    file,
                    cell_options,
                    self.providers[cell.name],
                    folder,
                    stopper,
                    shared_limits=shared_limits,
                )
            )
        # Free the objects of this cell before the next cell needs as much memory. During a run the
        # garbage collector is relaxed.
        gc.collect()

    def _shared_limits(self, progress: Progress) -> SharedLimits:
        # The budget counts what earlier processes spent. Raises InputError if it is in USD and this
        # cost is unknown.
        spent = spent_in(self.grid.journal_folders())
        spent.require_known_cost(self.limits[0])
        budget = Budget(*self.limits, warn=lambda message: progress(Notice(message, "warning")))
        budget.concurrent_runs = min(self._max_concurrent_cells(), len(self.grid.cells))
        budget.count_earlier(spent)
        # All cells share one limiter, so the concurrency of the first cell counts.
        config = next(iter(self.studies_by_cell.values()))[0].config
        return SharedLimits(budget, config.concurrency, shared=True)

    def _max_concurrent_cells(self) -> int:
        # Each cell with a local model needs a server process, so such cells run one by one.
        names = (name for router in self.providers.values() for name in router.list_models())
        return (
            1 if any(name.split(":")[0] == LOCAL_MODEL for name in names) else MAX_CONCURRENT_CELLS
        )

    def _started_cells(self) -> Event:
        file, _ = next(iter(self.studies_by_cell.values()))
        model_descriptions = dict.fromkeys(
            router.model_names_text for router in self.providers.values()
        )
        cells = len(self.grid.cells)
        return RunStarted(
            f"{file.run_id}, {cells} cell{'s' * (cells > 1)}",
            str(self.grid.path),
            file.study.name,
            ", ".join(model_descriptions),
            self.grid.cells[0].seed,
            self.options.resume,
            all(router.is_synthetic_only for router in self.providers.values()),
        )


def _failure_notice(cell: GridCell, error: Exception) -> Notice:
    is_own = not isinstance(error, OtherRunStoppedError)
    return Notice(f"{cell.name}: {error}", "error" if is_own else "warning")


def _rank_error(error: Exception) -> tuple[bool, bool]:
    # Only one error of a grid can be raised, the smallest. One that pauses the run comes first,
    # because a resume can remove it. A cell that another cell stopped does not know the cause.
    return isinstance(error, OtherRunStoppedError), not isinstance(error, RunPausedError)


def _preflight_key(request: ModelRequest) -> tuple[object, ...]:
    # The preflight sends only one request with each key.
    hints = request.hints
    return request.model, hints.role, hints.kind, request.temperature, request.max_tokens


def _merge_preflight_result(
    result: PreflightResult, cell: GridCell, checks_before: list[PreflightCheck]
) -> PreflightCheck:
    # A reply from the journal does not show what the model can do, so an earlier result of the call
    # is returned instead, and removed from `checks_before`.
    check = result.check
    check_key = (check.model, check.role, check.answer)
    for earlier_check in checks_before if result.replayed else ():
        if (earlier_check.model, earlier_check.role, earlier_check.answer) == check_key:
            checks_before.remove(earlier_check)
            return earlier_check
    if not (check.problem and cell.settings):
        return check
    return replace(check, problem=f"{check.problem} (in the cell {cell.settings_text})")


def _cell_progress(cell: GridCell, progress: Progress) -> Progress:
    # The log of the cell holds all other events.
    def forward_event(event: Event) -> None:
        if isinstance(event, Notice) and event.level != "info":
            progress(replace(event, message=f"{cell.name}: {event.message}"))
        elif isinstance(event, (CallDone, CallRetried, ReplyLost, AnswerMissing)):
            progress(event)

    return forward_event
