"""`folkmoot fork`: a run repeated with one reply changed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.console import clean, end_now, err, out, warn
from folkmoot.cli.results import find_grid, find_run
from folkmoot.cli.run import KEY_WARNING, TerminalProgress, print_results
from folkmoot.cli.study_files import consent
from folkmoot.cli.tables import print_findings, synthetic_panel
from folkmoot.engine.run.event_loop import Stopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import Replacement, fork_change, fork_run, resume_fork
from folkmoot.engine.run.fork_repeats import repeat_fork, resume_repeats
from folkmoot.engine.run.grid import RunGrid
from folkmoot.engine.study.study import study_of_run
from folkmoot.errors import NothingUsable
from folkmoot.measures.inference.estimates import plural
from folkmoot.storage.run_folder import STUDY_FILE


def fork_command(
    name: str,
    address: str | None,
    replacement: Replacement | None,
    options: RunOptions,
    *,
    trust: bool,
    repeats: int | None = None,
) -> None:
    """Fork a run at an address (once, or so many times), or continue the forks of this name; print
    what it found and what it asked."""
    if address is None and (grid := find_grid(name)) is not None:
        _repeats_command(grid.path, options, trust=trust)
        return
    run = find_run(name)
    if options.key:
        warn(KEY_WARNING)
    progress = TerminalProgress(err())
    options = replace(options, progress=progress, consent=consent(run.path / STUDY_FILE, trust))
    if repeats is not None and address is not None and replacement is not None:
        with progress:
            grid = repeat_fork(run, address, replacement, repeats, options, Stopper(end_now))
        _print_repeats(grid)
        return
    with progress:
        if address is None or replacement is None:
            done = resume_fork(run, options, Stopper(end_now))
        else:
            done = fork_run(run, address, replacement, options, Stopper(end_now))
    print_results(study_of_run(done), done, out())
    change, told = fork_change(done), done.manifest["fork"]
    assert change is not None
    out().print(
        f"\n[bold]A fork of {escape(clean(change.run_id))}[/] at {escape(clean(change.address))}: "
        f"{plural(told['asked'], 'call')} asked, {told['taken_over']:,} taken over\n"
        f"Both talks side by side   folkmoot compare "
        f"{escape(os.path.normpath(done.path / change.run))} {escape(str(done.path))}",
        soft_wrap=True,
    )
    if done.unusable:
        raise NothingUsable(f"the fork has finished, but nothing is usable: {done.unusable}")


def _repeats_command(folder: Path, options: RunOptions, *, trust: bool) -> None:
    progress = TerminalProgress(err())
    cells = (folder / "cells").glob(f"*/{STUDY_FILE}")
    asked = consent(next(cells, folder / STUDY_FILE), trust)
    with progress:
        grid = resume_repeats(folder, replace(options, progress=progress, consent=asked))
    _print_repeats(grid)


def _print_repeats(grid: RunGrid) -> None:
    from folkmoot.report.comparison.pooled import pooled

    if any(run.synthetic for _, run in grid.finished().values()):
        out().print(synthetic_panel())
    print_findings(out(), [f for f in pooled(grid) if f.headline])
    where = escape(str(grid.path))
    out().print(f"\n[bold]{where}[/]\nWrite the report      folkmoot report {where}")
