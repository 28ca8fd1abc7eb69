"""`folkmoot controls`: ask control questions about a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from folkmoot.cli.console import end_now, error_console, output_console, print_warning
from folkmoot.cli.results import find_run
from folkmoot.cli.run import KEY_WARNING, TerminalProgress
from folkmoot.cli.study_files import ask_consent
from folkmoot.cli.tables import print_findings
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.kit.controls.asking import run_controls
from folkmoot.kit.controls.findings import LONG, control_findings
from folkmoot.storage.run_folder import STUDY_FILE_NAME, RunFolder


def controls_command(
    name: str, settings: Mapping[str, object], options: RunOptions, *, trust: bool
) -> None:
    """Ask the controls of a finished run and print their findings. Interrupted controls are
    resumed."""
    run = find_run(name)
    if options.key:
        print_warning(KEY_WARNING)
    progress = TerminalProgress(error_console())
    options = replace(
        options, progress=progress, consent=ask_consent(run.path / STUDY_FILE_NAME, trust)
    )
    with progress:
        run_controls(run, settings, options, RunStopper(end_now))
    findings = control_findings(RunFolder(run.path))
    print_findings(output_console(), [finding for finding in findings if finding.key not in LONG])
