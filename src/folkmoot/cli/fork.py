"""`folkmoot fork`: a run repeated with one reply changed."""

from __future__ import annotations

import os
from dataclasses import replace

from rich.markup import escape

from folkmoot.cli.console import clean, end_now, err, out, warn
from folkmoot.cli.results import find_run
from folkmoot.cli.run import KEY_WARNING, TerminalProgress, print_results
from folkmoot.cli.study_files import consent
from folkmoot.engine.run.event_loop import Stopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import Replacement, fork_change, fork_run, resume_fork
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
) -> None:
    """Fork a run at an address, or continue the fork of this name; print what it found and what it
    asked."""
    run = find_run(name)
    if options.key:
        warn(KEY_WARNING)
    progress = TerminalProgress(err())
    options = replace(options, progress=progress, consent=consent(run.path / STUDY_FILE, trust))
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
