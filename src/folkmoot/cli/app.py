"""The commands and their options. Each imports what it needs when it is called, so that
`folkmoot --help` is there at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.console import guarded

app = typer.Typer(
    name="folkmoot",
    help="A laboratory for simulated deliberation: personas played by language models vote, "
    "argue and vote again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
personas = typer.Typer(
    name="personas",
    help="The people who take part: fetch, build, migrate, list.",
    no_args_is_help=True,
)
app.add_typer(personas)

StudyArg = Annotated[
    Path, typer.Argument(help="Study file (YAML or workbook).", show_default=False)
]
RunArg = Annotated[
    str, typer.Argument(metavar="RUN", help="Run folder, or its name under outputs/.")
]
SetOpt = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the study file; repeatable."),
]
ModelOpt = Annotated[
    str | None, typer.Option("--model", help="Model that answers, e.g. gpt-4o or synthetic.")
]
TrustOpt = Annotated[
    bool,
    typer.Option("--trust", help="Run the code and use the addresses that the file names."),
]
LimitOpt = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many participants or sessions.")
]
SeedOpt = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of all random draws.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"folkmoot {version('folkmoot')}")
        raise typer.Exit


@app.callback()
def _root(
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


EXIT_CODES = (
    "Exit codes: 0 done; 1 internal error; 2 bad input; 3 done, but nothing in it is usable; "
    "75 paused, resumable; 130 interrupted, resumable."
)


@app.command(epilog=EXIT_CODES)
@guarded
def run(
    study: Annotated[
        Path | None, typer.Argument(help="Study file (YAML or workbook).", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The study file, given as an option.")
    ] = None,
    model: ModelOpt = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run folder; without it outputs/<id>.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was interrupted or paused.")
    ] = False,
    set_: SetOpt = None,
    limit: LimitOpt = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Most calls in flight at once.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", min=0, help="Pause when so many USD are spent.")
    ] = None,
    seed: SeedOpt = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="API key; the environment is the safer place.", metavar="KEY"),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="On resume: ask again where the study was changed."),
    ] = False,
    trust: TrustOpt = False,
) -> None:
    """Run a study, or go on with one (--resume)."""
    from folkmoot.cli.run import RunFlags, run_command

    run_command(
        RunFlags(
            study=study,
            config=config,
            model=model,
            out=out,
            resume=resume,
            overrides=tuple(set_ or ()),
            limit=limit,
            concurrency=concurrency,
            budget=budget,
            seed=seed,
            key=key,
            accept_changes=accept_changes,
            trust=trust,
        )
    )


@app.command()
@guarded
def check(
    study: StudyArg,
    model: ModelOpt = None,
    set_: SetOpt = None,
    trust: TrustOpt = False,
) -> None:
    """Find every mistake in a study file; count calls, estimate cost and time. Asks nothing."""
    from folkmoot.cli.check import check_command

    check_command(study, model, tuple(set_ or ()), trust)


@app.command()
@guarded
def new(
    kind: Annotated[
        str | None, typer.Argument(help="Study type; none: list them.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="Where to write.", show_default=False)
    ] = None,
    old: Annotated[
        Path | None,
        typer.Option("--from", help="Convert an older workbook; write it beside the old one."),
    ] = None,
) -> None:
    """Write a study file to begin with."""
    from folkmoot.cli.new import new_command

    new_command(kind, folder, old)


@app.command()
@guarded
def show(
    run: RunArg,
    participant: Annotated[
        str | None, typer.Argument(help="Participant or session; none: list them.")
    ] = None,
) -> None:
    """Read a run in the terminal: who took part, or one whole conversation."""
    from folkmoot.cli.show import show_command

    show_command(run, participant)


@app.command()
@guarded
def verify(run: RunArg) -> None:
    """Rebuild a run from its journal and compare it with what lies in its folder."""
    from folkmoot.cli.verify import verify_command

    verify_command(run)


@app.command()
@guarded
def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Models; none: those known by a bare name."),
    ] = None,
    try_: Annotated[
        bool, typer.Option("--try", help="Make one small call to each whose key is set.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", help="API key.", metavar="KEY")] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Base URL of a server of your own.")
    ] = None,
) -> None:
    """List models, their prices and whether their key is set; try them."""
    from folkmoot.cli.models import models_command

    models_command(list(names or ()), try_, key, base_url)


@app.command()
@guarded
def report(
    run: RunArg,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write a PDF as well.")] = False,
) -> None:
    """Write the report of a run (report.html in its folder)."""
    from folkmoot.cli.reports import report_command

    report_command(run, pdf)


@app.command()
@guarded
def export(
    run: RunArg,
    to: Annotated[str, typer.Option("--to", help="csv, parquet, json or polis.")] = "csv",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where to write; without it export-FORMAT in the run."),
    ] = None,
) -> None:
    """Write a run's data in another format."""
    from folkmoot.cli.reports import export_command

    export_command(run, to, out)


@app.command()
@guarded
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs; a CSV or Parquet file: answers by people."),
    ],
) -> None:
    """Compare runs with each other, or with the answers of people."""
    from folkmoot.cli.reports import compare_command

    compare_command(runs)


@app.command()
@guarded
def power(
    study: StudyArg,
    set_: SetOpt = None,
    icc: Annotated[
        list[float] | None,
        typer.Option(
            "--icc", min=0, max=1, help="Correlation within groups to reckon with; repeatable."
        ),
    ] = None,
) -> None:
    """Say how large an effect a study of this size can see."""
    from folkmoot.cli.reports import power_command

    power_command(study, tuple(set_ or ()), tuple(icc or ()))


@personas.command("fetch")
@guarded
def personas_fetch(
    url: Annotated[str | None, typer.Option("--url", help="Another address.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Fetch again.")] = False,
) -> None:
    """Download persona-hub's base personas into the cache."""
    from folkmoot.cli.personas import fetch_command

    fetch_command(url, refresh)


@personas.command("build")
@guarded
def personas_build(
    n: Annotated[int, typer.Argument(min=1, help="How many personas to make.")],
    source: Annotated[
        str, typer.Option("--source", help="quota, grounded, table or persona_hub.")
    ] = "quota",
    file: Annotated[
        Path | None, typer.Option("--file", help="Table, or local persona-hub file.")
    ] = None,
    pool: Annotated[Path, typer.Option("--pool", help="The pool to add to.")] = Path(
        "data/personas.json"
    ),
    model: ModelOpt = None,
    seed: SeedOpt = None,
    key: Annotated[str | None, typer.Option("--key", help="API key.", metavar="KEY")] = None,
) -> None:
    """Make personas and add them to the pool."""
    from folkmoot.cli.personas import build_command

    build_command(n, source, file, pool, model, 42 if seed is None else seed, key)


@personas.command("migrate")
@guarded
def personas_migrate(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders; none: all under outputs/.")
    ] = None,
    pool: Annotated[Path, typer.Option("--pool", help="The pool to add to.")] = Path(
        "data/personas.json"
    ),
) -> None:
    """Take personas of earlier runs over into the pool."""
    from folkmoot.cli.personas import migrate_command

    migrate_command(list(runs or ()), pool)


@personas.command("list")
@guarded
def personas_list(
    pool: Annotated[Path, typer.Option("--pool", help="The pool.")] = Path("data/personas.json"),
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many to show.")] = 20,
) -> None:
    """List the personas of the pool."""
    from folkmoot.cli.personas import list_command

    list_command(pool, limit)
