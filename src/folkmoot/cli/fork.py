"""`folkmoot fork`: repeat a run with one reply changed."""

from __future__ import annotations

import os
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.console import (
    end_now,
    output_console,
)
from folkmoot.cli.results import find_grid, find_run, print_grid_total
from folkmoot.cli.run import prepare_options, print_results
from folkmoot.cli.tables import print_findings, synthetic_panel
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import ReplyReplacement, fork_change, fork_run, resume_fork
from folkmoot.engine.run.fork_repeats import repeat_fork, resume_repeats
from folkmoot.engine.run.grid import RunGrid
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import NothingUsableError
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import command_line
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.run_folder import STUDY_FILE_NAME


def fork_command(
    name: str,
    address: str | None,
    replacement: ReplyReplacement | None,
    options: RunOptions,
    *,
    trust: bool,
    repeats: int | None = None,
) -> None:
    """Repeat a run with one reply changed, and print the results of the new run (the fork)."""
    # `repeats` is the number of forks. If `address` is None, `name` is the fork to resume.
    if address is None and (grid := find_grid(name)) is not None:
        _repeats_command(grid.path, options, trust=trust)
        return
    run = find_run(name)
    options, progress = prepare_options(run.path / STUDY_FILE_NAME, options, trust)
    if repeats is not None and address is not None and replacement is not None:
        with progress:
            grid = repeat_fork(run, address, replacement, repeats, options, RunStopper(end_now))
        _print_repeats(grid)
        return
    with progress:
        if address is None or replacement is None:
            forked_run = resume_fork(run, options, RunStopper(end_now))
        else:
            forked_run = fork_run(run, address, replacement, options, RunStopper(end_now))
    print_results(find_study_of_run(forked_run), forked_run, output_console())
    change, fork_facts = fork_change(forked_run), forked_run.manifest["fork"]
    assert change is not None
    copied = change.count_copied(fork_facts["taken_over"])
    source = Path(os.path.normpath(forked_run.path / change.run))
    compare = escape(command_line("compare", source, forked_run.path))
    output_console().print(
        f"\n[bold]Fork of {escape(without_hidden(change.run_id))}[/] at "
        f"{escape(without_hidden(change.address))}: "
        f"{format_count(fork_facts['asked'], 'new call')}, {copied:,} copied "
        f"from it\nCompare the conversations   {compare}",
        soft_wrap=True,
    )
    if forked_run.unusable_reason:
        raise NothingUsableError(
            f"the fork has finished, but has no usable result: {forked_run.unusable_reason}"
        )


def _repeats_command(folder: Path, options: RunOptions, *, trust: bool) -> None:
    # All cells have the same study file, so consent to one of them covers all.
    cells = (folder / "cells").glob(f"*/{STUDY_FILE_NAME}")
    study_path = next(cells, folder / STUDY_FILE_NAME)
    options, progress = prepare_options(study_path, options, trust)
    with progress:
        grid = resume_repeats(folder, options, RunStopper(end_now))
    _print_repeats(grid)


def _print_repeats(grid: RunGrid) -> None:
    from folkmoot.report.comparison.pooled import pooled_findings

    if any(run.is_synthetic for _, run in grid.finished_cells().values()):
        output_console().print(synthetic_panel())
    print_findings(
        output_console(), [finding for finding in pooled_findings(grid) if finding.headline]
    )
    report = escape(command_line("report", grid.path))
    output_console().print(f"\n[bold]{escape(str(grid.path))}[/]\nWrite the report      {report}")
    print_grid_total(grid)
