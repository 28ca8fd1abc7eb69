"""One study run many times: repeats with seeds of their own, and settings crossed with each other.

A grid is a folder with `grid.json` and a run folder for each cell under `cells/`. Cells run side by
side under one limiter and one budget and resume as one. The cells of one repeat share its seed, so
they draw the same people into the same conditions wherever the settings leave the design alone.

A preflight of a grid has a journal of its own beside `grid.json`, which holds what it showed.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import Providers
from folkmoot.engine.calls.progress import (
    AnswerMissing,
    CallDone,
    CallRetried,
    Checked,
    Event,
    ItemDone,
    Notice,
    Outcome,
    Preflight,
    Progress,
    RunEnded,
    RunStarted,
    StageStarted,
)
from folkmoot.engine.calls.retries import Allowance, Halted
from folkmoot.engine.journal.journal import Journal, JournalReader, as_part
from folkmoot.engine.limits.budget import NOTHING, Budget
from folkmoot.engine.run.event_loop import Stopper, run_to_end
from folkmoot.engine.run.execution import (
    Execution,
    RunOptions,
    design_of,
    execute,
    unknown_cost,
    unpriced_in,
)
from folkmoot.engine.run.preflight import (
    EMBEDDED,
    Tried,
    asked_once,
    hosted_embedding,
    refuse_unworkable,
)
from folkmoot.engine.run.runner import folder_of, load, providers_of
from folkmoot.engine.session.folder_access import held_folder, open_folder, settle
from folkmoot.engine.session.plan import Plan
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import (
    FatalModelError,
    InputError,
    Problem,
    RunInterrupted,
    RunPaused,
    StorageError,
)
from folkmoot.models.catalog import ON_THIS_MACHINE
from folkmoot.models.request import Request
from folkmoot.storage.json_files import read_json, write_json
from folkmoot.storage.run_folder import JOURNAL, PLAN, RunFolder

GRID = "grid.json"
CELLS = "cells"
PREFLIGHT = "preflight"  # the key of `grid.json` that says what it showed
AT_ONCE = 8  # cells under way: more would take memory and win no time
MOST_CELLS = 1000
LONGEST_NAME = 200  # bytes; file systems take 255

Axes = Mapping[str, Sequence[str]]
# What runs would ask first, one by one, if a preflight of them all is wanted; none where it is not.
# Told how many repeats there are, and whether any of these runs has yet to begin.
Samples = Callable[[Sequence[tuple[StudyFile, RunOptions]], int, bool], list[tuple[Request, ...]]]


@dataclass(frozen=True)
class Cell:
    """One run of a grid. `settings`: axis → value."""

    name: str
    settings: Mapping[str, str]
    repeat: int
    seed: int

    @property
    def specification(self) -> str:
        """The settings in words; empty in a grid of repeats alone."""
        return ", ".join(f"{key} {value}" for key, value in self.settings.items())


@dataclass(frozen=True)
class RunGrid:
    """A grid on the disk: its cells, and the run folder of each that has begun."""

    path: Path
    axes: Axes
    repeats: int
    cells: tuple[Cell, ...]

    def run(self, cell: Cell) -> RunFolder | None:
        """The run of a cell, finished or not; None before it began."""
        folder = cell_folder(self.path, cell)
        return RunFolder(folder) if (folder / JOURNAL).exists() else None

    def finished(self) -> dict[str, tuple[Cell, RunFolder]]:
        """The cells that came to their end, by name."""
        runs = ((cell, self.run(cell)) for cell in self.cells)
        return {cell.name: (cell, run) for cell, run in runs if run and run.finished}


def is_grid(folder: Path) -> bool:
    """Whether this is the folder of a grid."""
    return (folder / GRID).exists()


def read_grid(folder: Path) -> RunGrid:
    """The grid in a folder. Raises StorageError where there is none."""
    found = read_json(folder / GRID)
    try:
        axes = {str(k): [str(v) for v in values] for k, values in found["axes"].items()}
        repeats, seed = int(found["repeats"]), int(found["seed"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{folder / GRID}: not the file of a grid; left as it is") from error
    return RunGrid(folder, axes, repeats, tuple(cells_of(axes, repeats, seed)))


def axes_of(given: Sequence[str]) -> dict[str, list[str]]:
    """`model=a,b` → {"model": ["a", "b"]}. Raises InputError."""
    axes: dict[str, list[str]] = {}
    for text in given:
        key, equals, listed = text.partition("=")
        values = [value.strip() for value in listed.split(",")]
        if not (key and equals and all(values)):
            hint = "write --grid key=value,value with no value empty"
            raise InputError(Problem(f"--grid: {text!r} is not key=value,value", hint=hint))
        if key in axes or len(set(values)) < len(values):
            raise InputError(f"--grid: {key} is given twice, or holds a duplicate value")
        if key == "random_seed":
            raise InputError("--grid: seeds are what --repeats varies")
        if key in ("budget_usd", "budget_calls"):
            raise InputError(f"--grid: {key}: all cells share one budget")
        axes[key] = values
    return axes


def cells_of(axes: Axes, repeats: int, seed: int) -> list[Cell]:
    """Every combination of the values, in each repeat. Repeat r has the seed `seed` + r − 1.

    Raises InputError for more cells than anyone can mean.
    """
    count = repeats
    for values in axes.values():
        count *= len(values)
    if repeats < 1 or count > MOST_CELLS:
        raise InputError(f"a grid has 1 to {MOST_CELLS:,} cells; this one would have {count:,}")
    cells = []
    for repeat in range(1, repeats + 1):
        for values in itertools.product(*axes.values()):
            settings = dict(zip(axes, values, strict=True))
            parts = [f"{key}={_plain(value)}" for key, value in settings.items()]
            # Without leading zeros, whose number would change where a grid grows.
            name = "_".join([*parts, f"r{repeat}"])
            cells.append(Cell(name, settings, repeat, seed + repeat - 1))
    named = {cell.name.casefold() for cell in cells}
    if len(named) < len(cells):
        raise InputError("--grid: two values look alike once they name folders; rename one")
    if max(len(name.encode()) for name in named) > LONGEST_NAME:
        hint = "shorten the values, or put long texts into files of their own"
        raise InputError(Problem("--grid: the values are too long to name folders", hint=hint))
    return cells


def cell_folder(grid: Path, cell: Cell) -> Path:
    return grid / CELLS / cell.name


def run_grid(
    source: Path,
    options: RunOptions,
    given: Axes,
    repeats: int | None,
    stopper: Stopper | None = None,
    samples: Samples = lambda runs, repeats, new: [],
) -> RunGrid:
    """Run (or resume) every cell of a grid that is not finished.

    `given` and `repeats` may be left empty on a resume. `samples` gives what a preflight asks.
    Raises InputError before anything is spent if any cell has a mistake; what stops one cell for
    all (budget, quota, a wrong key, a preflight) stops the grid, which resumes; the error of a
    single cell is raised when the others are done.
    """
    first = load(source, replace(options, budget=None))
    if first.config.seats is not None:
        raise InputError(Problem("people take part in one run, not in a grid", key="seats"))
    folder = folder_of(first, options)
    axes, repeats = _design(folder, options, given, repeats)
    grid = RunGrid(folder, axes, repeats, tuple(cells_of(axes, repeats, first.config.random_seed)))
    found = {cell.name: _load(source, options, cell, folder) for cell in grid.cells}
    budget = options.budget if options.budget is not None else first.config.budget_usd
    providers = {}
    for name, (file, how) in found.items():
        config = file.config.model_copy(update={"budget_usd": budget})  # which prices must keep
        providers[name] = providers_of(replace(file, config=config), how)
        images = file.study.images(file.config)
        providers[name].check(embeds=file.study.embeds, images=images, file=str(file.path))
    work = _Work(grid, found, providers, options, (budget, first.config.budget_calls))
    work.rehearse(samples)
    open_folder(folder, resume=options.resume)
    if options.resume and not is_grid(folder):
        raise StorageError(f"{folder}: not a grid; leave out --grid and --repeats to resume it")
    with held_folder(folder):
        work.check_designs()
        write_grid(grid, source, first.config.random_seed)
        run_to_end(work.run, stopper)
    return grid


def _plain(value: str) -> str:
    """A value as part of a folder's name."""
    return re.sub(r"[^\w.+-]+", "-", value).strip("-.") or "-"


def _design(
    folder: Path, options: RunOptions, given: Axes, repeats: int | None
) -> tuple[Axes, int]:
    """Axes and repeats, on a resume those of the grid; a grid may grow and never lose a cell."""
    if not (options.resume and is_grid(folder)):
        return given, repeats or 1
    before = read_grid(folder)
    axes, repeats = given or before.axes, repeats or before.repeats
    kept = all(set(before.axes[key]) <= set(axes.get(key, ())) for key in before.axes)
    if not kept or list(axes) != list(before.axes) or repeats < before.repeats:
        raise InputError(
            f"{folder / GRID} holds another grid: leave out --grid and --repeats to resume it, or "
            "add values and repeats to those it has"
        )
    return axes, repeats


def _load(
    source: Path, options: RunOptions, cell: Cell, folder: Path
) -> tuple[StudyFile, RunOptions]:
    """The study of a cell of the grid in this folder, and how it is run. The grid's budget is not
    the cell's."""
    model = cell.settings.get("model", options.model)
    overrides = [f"{k}={v}" for k, v in cell.settings.items() if k != "model"]
    own = replace(
        options,
        model=model,
        seed=cell.seed,
        budget=None,
        overrides=(*options.overrides, *overrides),
    )
    try:
        found = load(source, own, _sealed_cell(folder, cell))
    except InputError as error:
        if not cell.settings:
            raise
        where = f"in the cell {cell.specification}: "
        problems = [replace(p, message=where + p.message) for p in error.problems]
        raise InputError(problems) from error
    config = found.config.model_copy(update={"budget_usd": None, "budget_calls": None})
    return replace(found, config=config), own


def _sealed_cell(grid: Path, cell: Cell) -> Path:
    """The folder of the cell, or of one that began: its sealed plan names the models of all."""
    own = cell_folder(grid, cell)
    if (own / PLAN).exists():
        return own
    begun = sorted((grid / CELLS).glob(f"*/{PLAN}"))
    return begun[0].parent if begun else own


def write_grid(grid: RunGrid, source: Path, seed: int) -> None:
    """Write `grid.json`; what a preflight showed stays in it."""
    path = grid.path / GRID
    kept = read_json(path).get(PREFLIGHT, []) if path.exists() else []
    write_json(
        path,
        {
            "study_file": source.name,
            "axes": {key: list(values) for key, values in grid.axes.items()},
            "repeats": grid.repeats,
            "seed": seed,
            "cells": [
                {"name": c.name, "settings": dict(c.settings), "repeat": c.repeat, "seed": c.seed}
                for c in grid.cells
            ],
            PREFLIGHT: kept,
        },
    )


@dataclass
class _Work:
    """One process of a grid."""

    grid: RunGrid
    found: Mapping[str, tuple[StudyFile, RunOptions]]
    providers: Mapping[str, Providers]
    options: RunOptions
    limits: tuple[float | None, int | None]
    samples: Sequence[tuple[Cell, tuple[Request, ...]]] = ()  # for the preflight, by cell

    def rehearse(self, samples: Samples) -> None:
        """Learn what the cells of the first repeat would ask first."""
        cells = [cell for cell in self.grid.cells if cell.repeat == 1]
        new = any(self.grid.run(cell) is None for cell in cells)
        runs = [self.found[cell.name] for cell in cells]
        self.samples = list(zip(cells, samples(runs, self.grid.repeats, new), strict=False))

    def check_designs(self) -> None:
        """Raises DriftError where a cell that has begun would go on, or stand beside new ones, as
        another study than it was: with other settings, seeds, models or prompts."""
        for cell in self.grid.cells:
            run = self.grid.run(cell)
            if run is None or self.options.accept_changes:
                continue
            plan = Plan(run.path / PLAN, started_at="")  # sealed for comparison and never written
            file, _ = self.found[cell.name]
            plan.seal("design", design_of(file, self.providers[cell.name], plan.sealed("design")))

    async def run(self, stopper: Stopper) -> None:
        tell = self.options.progress
        allowance = self._allowance(tell)
        stops: list[Stopper] = []
        failures: dict[str, Exception] = {}
        pending = iter(self.grid.cells)

        def halt() -> None:
            for each in stops:
                each.calls += 1
                if each.halt is not None:
                    each.halt()
            allowance.stop(Halted("the run is stopping"), everybody=True)

        def over() -> bool:
            everybody = (RunPaused, FatalModelError, StorageError)
            return bool(stopper.calls) or any(isinstance(e, everybody) for e in failures.values())

        async def worker() -> None:
            for cell in pending:
                if over():
                    return
                stops.append(Stopper())
                try:
                    await self._cell(cell, stops[-1], allowance)
                except RunInterrupted:
                    return  # by the stop of all
                except Exception as error:
                    failures[cell.name] = error
                    tell(Notice(f"{cell.name}: {error}", "error"))
                else:
                    tell(ItemDone(CELLS))

        stopper.halt = halt
        tell(self._started())
        tell(StageStarted(CELLS, len(self.grid.cells)))
        outcome: Outcome = "failed"
        try:
            if any(requests for _, requests in self.samples):
                await self._preflight(allowance)
            await asyncio.gather(*(worker() for _ in range(self._at_once())))
            if stopper.calls:
                raise RunInterrupted
            for error in sorted(failures.values(), key=lambda e: not isinstance(e, RunPaused)):
                raise error
            outcome = "done"
        except RunPaused:
            outcome = "paused"
            raise
        except Halted:
            raise RunInterrupted from None
        finally:
            stopper.halt = None
            tell(RunEnded(outcome))

    async def _preflight(self, allowance: Allowance) -> None:
        """One real call for each model, role, kind of answer and way of asking in the cells of the
        first repeat, and for each model that embeds. Raises FatalModelError where a cell cannot
        work, and what stops a run."""
        path, tell = self.grid.path / GRID, self.options.progress
        noted = read_json(path)
        before = [Checked(**row) for row in noted[PREFLIGHT]]
        checked: list[Checked] = []
        with Journal(self.grid.path / JOURNAL) as journal:
            for cell, requests, embedding in self._each_once():
                config, providers = self.found[cell.name][0].config, self.providers[cell.name]
                gateway = Gateway(journal, providers.open, config, tell, allowance)
                try:
                    at = f"{EMBEDDED}/{as_part(embedding)}"
                    tried = await asked_once(gateway, requests, embedding, at)
                    checked += [_told(one, cell, before) for one in tried]
                finally:
                    await gateway.drain()
                    await gateway.close()
        write_json(path, {**noted, PREFLIGHT: [asdict(one) for one in (*before, *checked)]})
        tell(Preflight(tuple(checked)))
        refuse_unworkable(checked)

    def _each_once(self) -> Iterator[tuple[Cell, list[Request], str]]:
        """What is asked for each cell, and which hosted model embeds there, less what is asked for
        a cell before it."""
        seen: set[object] = {""}
        for cell, requests in self.samples:
            file, _ = self.found[cell.name]
            first = [r for r in requests if _way(r) not in seen]
            embeds = hosted_embedding(self.providers[cell.name], file.config)
            embeds = embeds if file.study.embeds and embeds not in seen else ""
            seen |= {embeds, *map(_way, first)}
            if first or embeds:
                yield cell, first, embeds

    async def _cell(self, cell: Cell, stopper: Stopper, allowance: Allowance) -> None:
        run = self.grid.run(cell)
        if run is not None and run.finished and not self.options.accept_changes:
            return
        file, how = self.found[cell.name]
        folder = cell_folder(self.grid.path, cell)
        resume = folder.exists()
        how = replace(how, resume=resume, out=folder, progress=_named(cell, how.progress))
        open_folder(folder, resume=resume)
        with held_folder(folder):
            settle(folder, file.config, resume=resume)
            await execute(
                Execution(
                    file, how, self.providers[cell.name], folder, stopper, allowance=allowance
                )
            )
        gc.collect()  # what this cell held, before the next ones need as much

    def _allowance(self, tell: Progress) -> Allowance:
        """One budget for all cells, of which earlier processes have spent what journals say."""
        usd, calls, possible = 0.0, 0, NOTHING
        unpriced: set[str] = set()
        folders = (cell_folder(self.grid.path, cell) for cell in self.grid.cells)
        for path in (folder / JOURNAL for folder in (self.grid.path, *folders)):
            if path.exists():
                with JournalReader(path) as journal:
                    made, spent, _ = journal.spent()
                    possible = possible.plus(journal.possibly_paid())
                    unpriced.update(unpriced_in(journal))
                usd, calls = usd + spent, calls + made
        if self.limits[0] is not None and unpriced:
            raise InputError(unknown_cost(sorted(unpriced)))
        budget = Budget(
            *self.limits,
            spent_usd=usd,
            spent_calls=calls,
            warn=lambda message: tell(Notice(message, "warning")),
        )
        budget.count_possible(possible)
        config = next(iter(self.found.values()))[0].config
        return Allowance(budget, config.concurrency, shared=True)

    def _at_once(self) -> int:
        """A model on this machine is one process for each cell, so those go one at a time."""
        names = (name for p in self.providers.values() for name in p.named())
        return 1 if any(name.split(":")[0] == ON_THIS_MACHINE for name in names) else AT_ONCE

    def _started(self) -> Event:
        file, _ = next(iter(self.found.values()))
        who = dict.fromkeys(p.who for p in self.providers.values())
        cells = len(self.grid.cells)
        return RunStarted(
            f"{file.run_id}, {cells} cell{'s' * (cells > 1)}",
            str(self.grid.path),
            file.study.name,
            ", ".join(who),
            self.grid.cells[0].seed,
            self.options.resume,
            all(p.synthetic for p in self.providers.values()),
        )


def _way(request: Request) -> tuple[object, ...]:
    """What a preflight tries once, whatever the words."""
    asked = request.asked
    return request.model, asked.role, asked.kind, request.temperature, request.max_tokens


def _told(tried: Tried, cell: Cell, before: list[Checked]) -> Checked:
    """What a call showed, with its cell; what was noted of it before, where a journal told of it,
    which is taken out of there."""
    one = tried.checked
    names = (one.model, one.role, one.answer)
    for noted in before if tried.replayed else ():
        if (noted.model, noted.role, noted.answer) == names:
            before.remove(noted)
            return noted
    if not (one.problem and cell.settings):
        return one
    return replace(one, problem=f"{one.problem} (in the cell {cell.specification})")


def _named(cell: Cell, tell: Progress) -> Progress:
    """What a cell adds to the grid's own progress: calls and warnings; the rest is in its log."""

    def pass_on(event: Event) -> None:
        if isinstance(event, Notice) and event.level != "info":
            tell(replace(event, message=f"{cell.name}: {event.message}"))
        elif isinstance(event, (CallDone, CallRetried, AnswerMissing)):
            tell(event)

    return pass_on
