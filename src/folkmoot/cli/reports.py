"""`folkmoot report | export | compare | power`: thin calls into the report layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.consent import consent
from folkmoot.cli.console import out, warn
from folkmoot.cli.show import find_run
from folkmoot.cli.tables import finding_view, synthetic_panel
from folkmoot.engine.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.records.findings import Finding
from folkmoot.records.run_folder import RunFolder


def report_command(name: str, pdf: bool) -> None:
    """Write the report and say where."""
    from folkmoot.report.html import write_report

    run = find_run(name)
    path = write_report(run, pdf=pdf)
    if run.partial:
        warn(run.partial)
    out().print(f"wrote {escape(str(path))}", soft_wrap=True)


def export_command(name: str, to: str, target: Path | None) -> None:
    """Write a run's data in another format and say where."""
    from folkmoot.report.export import export

    run = find_run(name)
    folder = target if target is not None else run.path / f"export-{to}"
    export(run, to, folder)
    out().print(f"wrote {escape(str(folder))}", soft_wrap=True)


def compare_command(names: Sequence[str]) -> None:
    """Print what differs between runs."""
    from folkmoot.report.compare import compare

    if len(names) < 2:
        raise InputError("folkmoot compare needs two or more runs, or a run and a file of answers")
    # A file holds the answers of people, to put beside those of a model.
    runs = [Path(name) if Path(name).is_file() else find_run(name) for name in names]
    if any(isinstance(run, RunFolder) and run.synthetic for run in runs):
        out().print(synthetic_panel())
    for run in runs:
        if isinstance(run, RunFolder) and run.partial:
            warn(f"{run.id}: {run.partial}")
    _print(compare(runs))


def power_command(path: Path, overrides: tuple[str, ...], iccs: Sequence[float]) -> None:
    """Print the smallest effect that a study of this size can detect."""
    from folkmoot.report.power import power_report

    found = load_study_file(path, overrides, consent=consent(path))
    if iccs:
        _print(power_report(found.config, found.study, iccs=tuple(iccs)))
    else:
        _print(power_report(found.config, found.study))


def _print(findings: Sequence[Finding]) -> None:
    console = out()
    for finding in findings:
        console.print(finding_view(finding))
