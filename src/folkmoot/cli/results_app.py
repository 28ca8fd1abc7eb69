"""The commands for finished runs, with the options of these commands."""
# `app` adds these commands to its own commands.

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.console import with_error_handling
from folkmoot.cli.options import EXIT_CODES, BudgetOpt, KeyOpt, RunArg, TrustOpt
from folkmoot.errors import InputError

app = typer.Typer()


@app.command()
@with_error_handling
def report(
    run: RunArg,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write a PDF.")] = False,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="FOLDER",
            help="Also save all charts as SVG and PNG files in this folder.",
        ),
    ] = None,
) -> None:
    """Write the report of a run to report.html in its folder."""
    from folkmoot.cli.results import report_command

    report_command(run, pdf, figures)


@app.command("controls", epilog=EXIT_CODES)
@with_error_handling
def control_run(
    run: RunArg,
    participants: Annotated[
        int,
        typer.Option(
            "--participants", help="Ask at most this many participants of each condition.", min=1
        ),
    ] = 200,
    language: Annotated[
        str, typer.Option("--language", help="Language of the shipped questions: en or de.")
    ] = "en",
    negative: Annotated[
        bool, typer.Option("--negative/--no-negative", help="Ask the negative controls.")
    ] = True,
    questions: Annotated[
        Path | None,
        typer.Option("--questions", help="File with your own negative controls (a YAML list)."),
    ] = None,
    retest: Annotated[
        bool, typer.Option("--retest/--no-retest", help="Ask first decisions again.")
    ] = True,
    no_persona: Annotated[
        bool, typer.Option("--no-persona", help="Ask decisions again without a persona.")
    ] = False,
    same_length: Annotated[
        bool,
        typer.Option(
            "--same-length", help="Ask decisions again with neutral texts in place of treatments."
        ),
    ] = False,
    order: Annotated[
        bool,
        typer.Option("--order", help="Ask decisions again with options and material reversed."),
    ] = False,
    budget: BudgetOpt = None,
    key: KeyOpt = None,
    trust: TrustOpt = False,
) -> None:
    """Ask control questions about a finished run: did the treatment cause the effect?"""
    from folkmoot.cli.later_questions import controls_command
    from folkmoot.engine.run.execution import RunOptions

    settings = {
        "participants": participants,
        "language": language,
        "negative": str(questions.resolve()) if questions is not None else negative,
        "retest": retest,
        "no_persona": no_persona,
        "same_length": same_length,
        "order": order,
    }
    controls_command(run, settings, RunOptions(budget=budget, key=key), trust=trust)


@app.command("codes", epilog=EXIT_CODES)
@with_error_handling
def code_texts(
    run: RunArg,
    coder: Annotated[
        str | None,
        typer.Option("--coder", metavar="MODEL", help="Let this model code the run's texts."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="With --coder: code only the sample.")
    ] = False,
    sheet: Annotated[
        Path | None,
        typer.Option("--sheet", help="Write text, code, and quote to a sheet to correct (.xlsx)."),
    ] = None,
    blind: Annotated[
        bool, typer.Option("--blind", help="With --sheet: write the sample without its codes.")
    ] = False,
    read: Annotated[
        Path | None,
        typer.Option("--read", help="Read a completed sheet and store its codes as amendments."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", help="With --read: name of the person who coded the sheet.", metavar="NAME"
        ),
    ] = None,
    budget: BudgetOpt = None,
    key: KeyOpt = None,
    trust: TrustOpt = False,
) -> None:
    """Show how free text was coded, code it with a model, or let a human check the codes."""
    from folkmoot.cli import later_questions
    from folkmoot.engine.run.execution import RunOptions

    if sum(x is not None for x in (coder, sheet, read)) > 1:
        raise InputError("give one of --coder, --sheet, and --read")
    if (sample and coder is None) or (blind and sheet is None):
        raise InputError("--sample goes with --coder, and --blind with --sheet")
    if (read is None) != (by is None):
        raise InputError(
            "--read and --by go together: the sheet, and the name of the person who completed it"
        )
    if coder is not None:
        options = RunOptions(budget=budget, key=key)
        later_questions.code_command(run, coder, options, sample=sample, trust=trust)
    elif sheet is not None:
        later_questions.write_sheet_command(run, sheet, blind=blind)
    elif read is not None and by is not None:
        later_questions.read_sheet_command(run, read, by)
    else:
        later_questions.show_codes_command(run)


@app.command()
@with_error_handling
def export(
    run: RunArg,
    to: Annotated[str, typer.Option("--to", help="Format: csv, parquet, json or polis.")] = "csv",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write to (default: export-FORMAT in the run)."),
    ] = None,
    with_ids: Annotated[
        bool,
        typer.Option(
            "--with-ids", help="Include the ids from the links of human participants (people.csv)."
        ),
    ] = False,
) -> None:
    """Export the data of a run in another format."""
    from folkmoot.cli.results import export_command

    export_command(run, to, out, with_ids=with_ids)


@app.command()
@with_error_handling
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs, or tables with answers of humans."),
    ],
    people: Annotated[
        list[Path] | None,
        typer.Option(
            "--people", help="Table with answers of humans: person, arm, before, after, …"
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", help="Treat shares within this difference as equivalent.")
    ] = 0.05,
) -> None:
    """Compare runs with each other, or with human answers."""
    from folkmoot.cli.results import compare_command

    compare_command([*runs, *map(str, people or ())], margin)


@app.command()
@with_error_handling
def bands(
    people: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="Table with answers of humans; omit it to list published figures.",
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--scale",
            metavar="LOW HIGH",
            help="Lowest and highest possible rating (default: those of the table).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show figures of humans to compare a run with, published or computed from a table."""
    from folkmoot.cli.results import bands_command

    bands_command(people, scale)
