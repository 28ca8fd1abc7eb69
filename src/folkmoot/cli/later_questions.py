"""`folkmoot controls` and `folkmoot codes`: later questions about a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.console import end_now, output_console
from folkmoot.cli.results import find_run, print_later_spending
from folkmoot.cli.run import prepare_options
from folkmoot.cli.tables import print_findings
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.kit.coding import coding_finding
from folkmoot.kit.coding.post_hoc import code_finished_run
from folkmoot.kit.coding.results import count_replaced, no_texts_error, read_codings
from folkmoot.kit.coding.sheet import read_sheet, write_sheet
from folkmoot.kit.controls.asking import run_controls
from folkmoot.kit.controls.findings import LONG, control_findings
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.run_folder import STUDY_FILE_NAME, RunFolder


def controls_command(
    name: str, settings: Mapping[str, object], options: RunOptions, *, trust: bool
) -> None:
    """Ask the control questions of a finished run and print the findings."""
    # Interrupted controls are resumed.
    run = find_run(name)
    options, progress = prepare_options(run.path / STUDY_FILE_NAME, options, trust)
    with progress:
        run_controls(run, settings, options, RunStopper(end_now))
    findings = control_findings(RunFolder(run.path))
    print_findings(output_console(), [finding for finding in findings if finding.key not in LONG])
    print_later_spending(run)


def show_codes_command(name: str) -> None:
    """Print which coders coded the texts of a run, and how well the coders agree."""
    _print_coding_finding(find_run(name))


def code_command(name: str, coder: str, options: RunOptions, *, sample: bool, trust: bool) -> None:
    """Let a model code the texts of a finished run.

    - `sample`: True to code only a sample of the texts.
    """
    # An interrupted coding is resumed. `sample` codes only the random part that a second coder
    # would get.
    run = find_run(name)
    options, progress = prepare_options(run.path / STUDY_FILE_NAME, options, trust)
    with progress:
        code_finished_run(run, coder, options, sample=sample, stopper=RunStopper(end_now))
    _print_coding_finding(RunFolder(run.path))
    print_later_spending(run)


def write_sheet_command(name: str, path: Path, *, blind: bool) -> None:
    """Write the texts of a run to a sheet that a human coder fills in.

    - `blind`: True to write only a sample of the texts, and without codes.
    """
    line_count = write_sheet(find_run(name), path, blind=blind)
    output_console().print(
        f"wrote {escape(str(path))} ({format_count(line_count, 'line')})", soft_wrap=True
    )


def read_sheet_command(name: str, path: Path, by: str) -> None:
    """Read a sheet that a human coder filled in, and store the codes in the run.

    - `by`: the name of the coder.
    """
    # `by` is the name of the coder.
    run = find_run(name)
    earlier = read_codings(run)
    amendments = read_sheet(run, path, by)
    output_console().print(
        f"{format_count(len(amendments), 'amendment')} by {escape(by)}", soft_wrap=True
    )
    for author, count in count_replaced(earlier, amendments).items():
        output_console().print(
            f"{format_count(count, 'code')} by {escape(author)} replaced by other codes of "
            f"{escape(by)}. Findings use the codes of the last human who read a sheet.",
            soft_wrap=True,
        )
    _print_coding_finding(RunFolder(run.path))


def _print_coding_finding(run: RunFolder) -> None:
    finding = coding_finding(run)
    if finding is None:
        raise no_texts_error(run)
    print_findings(output_console(), [finding])
