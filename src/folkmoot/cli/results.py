"""The functions behind `folkmoot verify, withdraw, report, export, compare, plan, power`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markup import escape
from rich.progress import track

from folkmoot.cli.console import (
    error_console,
    output_console,
    print_warning,
)
from folkmoot.cli.tables import print_findings, synthetic_panel
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.grid import RunGrid, cell_folder, is_grid, read_grid
from folkmoot.engine.run.repair import plan_repair, repair_journal
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.engine.run.verify import Verification, verify_run
from folkmoot.engine.seats.personal_texts import describe_texts, find_personal_texts
from folkmoot.engine.seats.seat_manager import read_seats
from folkmoot.engine.seats.withdrawal import (
    describe_pending_withdrawals,
    describe_unredacted_files,
    find_unredacted_files,
    read_withdrawals,
    withdraw_texts,
)
from folkmoot.engine.session.folder_access import (
    is_held,
    lock_folder,
    open_run,
    require_no_later_questions,
)
from folkmoot.engine.session.run_totals import (
    describe_later_spending,
    describe_spending,
    money_in,
    spent_below,
)
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import analysed_parts, find_study_of_run, with_derived_tables
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import EXIT_DIFFERS, InputError, Problem, StorageError
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import command_line
from folkmoot.kit.coding.post_hoc import verify_codings
from folkmoot.kit.controls.asking import verify_controls
from folkmoot.kit.exposure import describe_deviations
from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.storage.json_files import write_text
from folkmoot.storage.run_folder import JOURNAL, OUTPUTS, STUDY_FILE_NAME, RunFolder


def find_run(name: str) -> RunFolder:
    """Return the run folder at this path, or with this name under `outputs/`.

    Raises InputError if the folder holds a grid.
    Raises StorageError if the folder is not a run folder.
    """
    path = Path(name)
    if not path.exists() and (OUTPUTS / name).is_dir():
        path = OUTPUTS / name
    if path.is_file():
        raise StorageError(f"{path}: this is a file; name the folder of the run, e.g. outputs/<id>")
    if is_grid(path):
        cells = ", ".join(str(cell_folder(path, cell)) for cell in read_grid(path).cells[:2])
        hint = f"name one of its runs ({cells}, …), or pool them: {command_line('report', path)}"
        raise InputError(Problem("this is a grid of runs", str(path), hint=hint))
    return RunFolder(path)


def find_grid(name: str) -> RunGrid | None:
    """Return the grid (a group of runs) at this path, or with this name under `outputs/`.

    Returns None if there is no such grid.
    """
    folders = (Path(name), OUTPUTS / name)
    return next((read_grid(folder) for folder in folders if is_grid(folder)), None)


def show_grid(grid: RunGrid) -> None:
    """Print the runs of a grid with their states."""
    output_console().print(
        f"[bold]{escape(str(grid.path))}[/] · {format_count(len(grid.cells), 'cell')}"
    )
    for cell in grid.cells:
        run = grid.run(cell)
        state = "not started" if run is None else run.state
        output_console().print(
            f"  {escape(cell.name)}  [dim]seed {cell.seed} · {state}[/]", soft_wrap=True
        )
    print_grid_total(grid)


def print_money(folder: Path) -> None:
    """Print the cost of a stopped run or grid, if the outcome of some calls is unknown."""
    # The calls of an active process are not settled yet.
    if not is_held(folder) and (payment_note := money_in(folder)):
        output_console().print(escape(payment_note), soft_wrap=True)


def print_grid_total(grid: RunGrid) -> None:
    """Print what all cells of a grid have cost together, with their controls."""
    if not is_held(grid.path):
        total = describe_spending(spent_below(grid.path))
        output_console().print(f"All cells together. Paid {escape(total)}", soft_wrap=True)


def warn_of_pending_withdrawals(run: RunFolder) -> None:
    """Print a warning if humans withdrew and their texts are still in the run."""
    if pending := describe_pending_withdrawals(run):
        print_warning(pending)


def print_later_spending(run: RunFolder) -> None:
    """Print what the controls and codings of a run have cost, and the total of the run."""
    if spending := describe_later_spending(run.path):
        output_console().print(f"[dim]{escape(spending)}[/]", soft_wrap=True)


def verify_command(name: str, digest: str | None) -> None:
    """Compare the files of a run with its journal, and print all differences.

    - `digest`: a published digest with which the run must agree, or None.

    Exits with code 4 if there are differences.
    """
    # `digest` is a digest of the run that was published elsewhere.
    if digest is not None and not digest.strip():
        raise InputError("--digest: is empty")
    grid = find_grid(name)
    if grid is not None and digest is not None:
        raise InputError("--digest belongs to one run; name a cell of the grid")
    runs = [find_run(name)] if grid is None else [run for _, run in grid.finished_cells().values()]
    consistent = [_print_verification(run, digest or "") for run in runs]
    if grid is not None and not runs:
        output_console().print(
            f"{escape(str(grid.path))}: no cell has finished yet. Resume the grid with --resume.",
            soft_wrap=True,
        )
        print_money(grid.path)
    elif grid is not None and (missing := len(grid.cells) - len(runs)):
        output_console().print(
            f"{escape(str(grid.path))}: {format_count(missing, 'cell')} of {len(grid.cells)} "
            "without a finished run; not verified.",
            soft_wrap=True,
        )
    if not consistent or not all(consistent):
        raise typer.Exit(EXIT_DIFFERS)


def _print_verification(run: RunFolder, digest: str) -> bool:
    verification = verify_run(run, published=digest)
    # Codings and controls have separate journals in subfolders of the run.
    for folder, inner_verification in (*verify_codings(run), *verify_controls(run)):
        verification.differences += [
            f"{folder}: {difference}" for difference in inner_verification.differences
        ]
        verification.not_compared += [
            f"{folder}: {difference}" for difference in inner_verification.not_compared
        ]
    console = output_console()
    for title, lines in (
        (
            f"[red]{format_count(len(verification.differences), 'difference')}:[/]",
            verification.differences,
        ),
        ("[yellow]Not compared:[/]", verification.not_compared),
        ("Amended since the run:", verification.amendments),
        ("Note:", verification.notes),
    ):
        if lines:
            console.print(title)
        for line in lines:
            console.print(f"  {escape(without_hidden(line))}", soft_wrap=True)
    for line in _deviations(run, verification):
        console.print(f"[bold red]{escape(without_hidden(line))}[/]", soft_wrap=True)
    compared_counts = ", ".join(
        (
            format_count(verification.entries, "journal entry", "journal entries"),
            format_count(verification.tables, "table"),
            format_count(verification.files, "file"),
        )
    )
    verdict = "Compared"
    if verification.is_consistent:
        verdict = "[green]Verified[/]" if verification.is_verified else "[green]Consistent[/]"
    console.print(f"{verdict}: {escape(str(run.path))}, {compared_counts}.", soft_wrap=True)
    if verification.content_digest:
        console.print(f"Content digest: {verification.content_digest}", soft_wrap=True)
    if verification.record_digest:
        console.print(f"Record digest:  {verification.record_digest}", soft_wrap=True)
    if not verification.differences:
        print_money(run.path)
    if verification.is_consistent and not verification.is_verified:
        console.print(
            "The files in the folder agree with each other. Anyone who can change the folder "
            "can also change its digests: compare with a published digest by --digest.",
            soft_wrap=True,
        )
    if verification.is_verified and digest.strip().lower() == verification.content_digest:
        console.print(
            "The content digest covers requests and replies. Only the record digest also covers "
            "usage, cost, times and the plan.",
            soft_wrap=True,
        )
    return verification.is_consistent


def _deviations(run: RunFolder, verification: Verification) -> list[str]:
    try:
        return list(describe_deviations(run))
    except StorageError:
        # A table that cannot be read is one of the printed differences.
        if verification.is_consistent:
            raise
        return []


def repair_command(name: str, yes: bool) -> None:
    """Print the damaged answers, and remove them from the run if the user agrees."""
    # A resume then asks the removed questions again. The old journal is kept as a copy.
    run = find_run(name)
    with lock_folder(run.path):
        # The lock keeps another process from resuming the run while its journal is replaced.
        plan = plan_repair(run)
        console = output_console()
        if not plan.problems:
            console.print(f"{escape(str(run.path))}: nothing in {JOURNAL} is damaged.")
            return
        for problem in plan.problems:
            console.print(f"  {escape(without_hidden(problem))}", soft_wrap=True)
        console.print(
            f"{format_count(plan.damaged_entries, 'answer')} would be set aside and asked "
            f"again: {_describe_cost(plan.damaged_usd, 'about ')}. Later requests that change "
            "as a result are asked again too: at most "
            f"{format_count(plan.max_later_calls, 'call')}, "
            f"{_describe_cost(plan.max_later_usd, 'at most ')}.",
            soft_wrap=True,
        )
        if not yes and not typer.confirm("Set the damaged answers aside?", err=True):
            raise typer.Exit(EXIT_DIFFERS)
        damaged_copy = repair_journal(run, plan, "researcher")
    study = run.manifest.get("study_file") or STUDY_FILE_NAME
    model = run.manifest.get("override")
    model_option = ("--model", model) if model else ()
    resume_command = command_line(
        "run", run.path / str(study), "--out", run.path, *model_option, "--resume"
    )
    console.print(
        f"The damaged answers are set aside. {damaged_copy.name} keeps the old journal. Ask "
        f"them again: {escape(resume_command)}. Add the other options of the command that "
        "started the run, such as --set, --limit, --seed and --seat.",
        soft_wrap=True,
    )


def _describe_cost(usd: float | None, bound: str) -> str:
    return "at an unknown cost" if usd is None else f"{bound}{format_dollars(usd)}"


def withdraw_command(name: str, seat: str, *, yes: bool) -> None:
    """Delete the texts of the human in a seat, if the user agrees."""
    # The texts and the speakers who quoted them are listed first.
    run = find_run(name)
    # A killed withdrawal has prepared new files and left the old ones in place.
    with lock_folder(run.path) as completed_withdrawal:
        if completed_withdrawal:
            output_console().print("A withdrawal that was interrupted is now complete.")
        require_no_later_questions(run.path)
        seats = tuple(read_seats(run.path))
        matching_seats = [
            candidate for candidate in seats if seat in (candidate.name, candidate.id)
        ]
        if len(matching_seats) != 1:
            names = ", ".join(candidate.name for candidate in matching_seats or seats) or "none"
            raise InputError(
                Problem(f"{run.path}: there is no seat {seat}", hint=f"seats: {names}")
            )
        if matching_seats[0].name in {
            withdrawal.data["seat"] for withdrawal in read_withdrawals(run.path)
        }:
            output_console().print(
                f"{escape(matching_seats[0].name)} has withdrawn from this run already."
            )
            return
        personal = find_personal_texts(run, matching_seats[0])
        files = find_unredacted_files(run.path)
        for line in (*describe_texts(personal), *describe_unredacted_files(files)):
            output_console().print(escape(without_hidden(line)), soft_wrap=True)
        if not yes and not sys.stdin.isatty():
            output_console().print("Nothing was deleted. Add --yes to delete all of this.")
            raise typer.Exit(EXIT_DIFFERS)
        if not yes and not typer.confirm("Delete all of this for good?", err=True):
            raise typer.Exit(EXIT_DIFFERS)
        withdraw_texts(run, personal, "researcher")
    output_console().print(
        f"All texts of {escape(matching_seats[0].name)} are deleted. Reports, exports, coding "
        "sheets, controls and later codings were deleted too, because they may quote them: make "
        "them again."
        + (" The files listed as not searched are unchanged." if files.unsearched else ""),
        soft_wrap=True,
    )


def report_command(name: str, pdf: bool, figures: Path | None = None) -> None:
    """Write the report of a run and print the path of the report.

    - `figures`: the folder for charts as separate files, or None.
    """
    # If `figures` is given, the charts are written there too.
    from folkmoot.report.document.html import write_grid_report, write_report

    grid = find_grid(name)
    if grid is not None:
        if pdf:
            raise InputError("there is no PDF of a grid; write the PDF of a cell instead")
        if figures is not None:
            raise InputError("--figures belongs to one run; name a cell of the grid")
        output_console().print(f"wrote {escape(str(write_grid_report(grid)))}", soft_wrap=True)
        return
    run = open_run(find_run(name).path)
    covered_run = analysed_parts(find_study_of_run(run), run)
    path = write_report(covered_run, pdf=pdf, figures=figures)
    if covered_run.partial:
        print_warning(covered_run.partial)
    warn_of_pending_withdrawals(run)
    output_console().print(f"wrote {escape(str(path))}", soft_wrap=True)
    if figures is not None:
        output_console().print(f"wrote {escape(str(figures))}", soft_wrap=True)


def export_command(
    name: str, export_format: str, target: Path | None, *, with_ids: bool = False
) -> None:
    """Write the data of a run in the format `export_format`, and print the folder."""
    from folkmoot.report.export import export_run

    run = with_derived_tables(open_run(find_run(name).path))
    folder = target if target is not None else run.path / f"export-{export_format}"
    export_run(run, export_format, folder, with_ids=with_ids)
    warn_of_pending_withdrawals(run)
    output_console().print(f"wrote {escape(str(folder))}", soft_wrap=True)


def compare_command(names: Sequence[str], margin: float) -> None:
    """Print how runs differ from each other, or from human answers.

    - `names`: runs, and files with human answers.
    - `margin`: values that differ by at most this margin count as equal.
    """
    # Two values count as equal if the whole interval of their difference lies within ± `margin`.
    from folkmoot.report.comparison.compare import compare_runs

    if len(names) < 2:
        raise InputError("compare needs at least two runs, or a run and a file of answers")
    # A path to a file names human answers, and all other names are runs.
    runs = [Path(name) if Path(name).is_file() else open_run(find_run(name).path) for name in names]
    if any(isinstance(run, RunFolder) and run.is_synthetic for run in runs):
        output_console().print(synthetic_panel())
    print_findings(output_console(), compare_runs(runs, margin))


def bands_command(table: Path | None, scale: tuple[float, float] | None) -> None:
    """Print results of human studies.

    - `table`: a table of human answers from which the results are computed. None prints published
      results.
    - `scale`: the lowest and the highest possible rating in the table.
    """
    # `scale` holds the lowest and the highest possible rating in the table.
    from folkmoot.report.comparison.bands import computed_bands, published_bands

    if table is None and scale is not None:
        raise InputError("--scale goes with a table of human answers")
    finding = published_bands() if table is None else computed_bands(table, scale)
    print_findings(output_console(), [finding])


def plan_command(path: Path, options: RunOptions, target: Path | None, *, pdf: bool) -> None:
    """Write the preregistration of a study, and print the path and the digest of the plan.

    Raises InputError if `target` is a folder, or a file that holds a different text.
    """
    from folkmoot.report.preregistration import as_markdown, build_preregistration

    text = build_preregistration(load_study_with_options(path, options), options)
    default_name = f"{path.stem}_preregistration.md"
    target = Path(default_name) if target is None else target
    content = as_markdown(text)
    if target.is_dir():
        hint = f"name a file, for example --out {target / default_name}"
        raise InputError(Problem("is a folder", str(target), hint=hint))
    if target.exists() and target.read_text("utf-8", "replace") != content:
        hint = "name another with --out, or move it"
        raise InputError(Problem("holds another text", str(target), hint=hint))
    write_text(target, content)
    output_console().print(f"wrote {escape(str(target))}", soft_wrap=True)
    if pdf:
        from folkmoot.report.document.pdf import write_registration_pdf

        pdf_path = write_registration_pdf(text, target.with_suffix(".pdf"))
        output_console().print(f"wrote {escape(str(pdf_path))}", soft_wrap=True)
    if text.note:
        print_warning(text.note)
    output_console().print(f"Digest of the sealed plan: {text.digest}", soft_wrap=True)


def power_command(
    path: Path, overrides: tuple[str, ...], iccs: Sequence[float], width: float, consent: Consent
) -> None:
    """Print the smallest effect that a study's design can detect, and the needed sample size."""
    from folkmoot.report.comparison.power import power_of

    study_file = load_study_file(path, overrides, consent=consent)
    print_findings(output_console(), power_of(study_file, iccs, width))


def simulate_command(
    path: Path, overrides: tuple[str, ...], sizes: str | None, runs: int, consent: Consent
) -> None:
    """Print how often simulated runs of a study support the study's primary hypotheses."""
    from folkmoot.report.comparison.simulated_power import Trials, simulated_power

    trials = Trials.from_study_file(path, overrides, sizes, runs, consent)
    error_console().print(f"{format_count(len(trials.jobs), 'run')} of the embedded respondent")
    finished_trials = track(
        trials.run_trials(), "simulating", len(trials.jobs), console=error_console()
    )
    print_findings(output_console(), [simulated_power(trials, finished_trials)])
