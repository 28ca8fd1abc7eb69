"""The commands of `folkmoot` and their options, apart from those for finished runs and personas."""
# A command imports other modules when it is called, which keeps `folkmoot --help` fast.

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli import personas_app, results_app
from folkmoot.cli.console import with_error_handling
from folkmoot.cli.options import (
    EXIT_CODES,
    BatchOpt,
    BudgetOpt,
    KeyOpt,
    LimitOpt,
    ModelOpt,
    PortOpt,
    RunArg,
    SeedOpt,
    SetOpt,
    StudyArg,
    TrustOpt,
)
from folkmoot.errors import InputError, Problem
from folkmoot.hints import command_line

app = typer.Typer(
    name="folkmoot",
    help="A laboratory for simulated deliberation: personas played by language models vote, "
    "argue, and vote again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(personas_app.app)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"folkmoot {version('folkmoot')}")
        raise typer.Exit


@app.callback()
def _root_options(
    _show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command(epilog=EXIT_CODES)
@with_error_handling
def run(
    study: Annotated[
        Path | None, typer.Argument(help="Study file (YAML or workbook).", show_default=False)
    ] = None,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE,VALUE]...", hidden=True)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The study file, given as an option.")
    ] = None,
    model: ModelOpt = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the run to this folder (default: outputs/<id>)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted or paused run.")
    ] = False,
    set_: SetOpt = None,
    limit: LimitOpt = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, help="Limit the number of simultaneous calls."),
    ] = None,
    budget: BudgetOpt = None,
    seed: SeedOpt = None,
    batch: BatchOpt = False,
    executor: Annotated[
        str | None,
        typer.Option(
            "--executor",
            metavar="ray|ray://HOST:PORT",
            help="Run on several processors or machines, with Ray.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="Start this many workers (default: one per processor)."
        ),
    ] = None,
    preflight: Annotated[
        bool | None,
        typer.Option(
            "--preflight/--no-preflight",
            help=(
                "Test each model, role and kind of answer with one call first (default: if the "
                "run may cost more than $5)."
            ),
            show_default=False,
        ),
    ] = None,
    key: KeyOpt = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", help="When resuming, ask again if the request has changed."
        ),
    ] = False,
    trust: TrustOpt = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", min=1, help="Run it this many times, each time with its own seed."
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            help="Run it with each of these values, e.g. model=a,b temperature=0,1.",
            metavar="KEY=VALUE,VALUE",
        ),
    ] = None,
    seat: Annotated[
        list[str] | None,
        typer.Option(
            "--seat",
            metavar="PARTICIPANT",
            help="Let a human play this participant; repeatable. `open`: one link for all.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Serve the pages of human participants at this address.")
    ] = "127.0.0.1",
    port: PortOpt = None,
    public_url: Annotated[
        str,
        typer.Option(
            "--public-url", help="Print participant links with this base URL (of a proxy)."
        ),
    ] = "",
) -> None:
    """Run a study, or resume one (--resume)."""
    from folkmoot.cli.run import Serving, grid_command, run_command
    from folkmoot.engine.run.execution import RunOptions

    options = RunOptions(
        model=model,
        out=out,
        resume=resume,
        overrides=tuple(set_ or ()),
        limit=limit,
        concurrency=concurrency,
        budget=budget,
        seed=seed,
        batch=batch,
        key=key,
        accept_changes=accept_changes,
        seats=tuple(seat or ()),
        executor=executor,
        workers=workers,
    )
    if config is not None and study is not None and "=" in str(study):
        # In `run --config FILE --grid a=1 b=2`, the parser takes `b=2` for the study file.
        study, more = None, [str(study), *(more or ())]
    path, axis_arguments = _one_file(study, config), [*(grid or ()), *(more or ())]
    if more and not grid:
        raise InputError(f"{more[0]}: name one study file; settings follow --set or --grid")
    if seat and (grid or repeats is not None):
        raise InputError("--seat: humans can take part in a single run, not in a grid")
    if executor and (grid or repeats is not None):
        raise InputError(
            "--executor: a grid runs on this machine only; leave out --executor, or run a "
            "single study"
        )
    if grid or repeats is not None:
        grid_command(path, options, axis_arguments, repeats, trust, preflight)
    else:
        run_command(path, options, trust, Serving(host, port, public_url), preflight)


@app.command("try")
@with_error_handling
def try_(
    study: StudyArg,
    seat: Annotated[
        str | None,
        typer.Option(
            "--seat", metavar="PARTICIPANT", help="Take this seat (default: the first one)."
        ),
    ] = None,
    set_: SetOpt = None,
    limit: LimitOpt = None,
    port: PortOpt = None,
    trust: TrustOpt = False,
) -> None:
    """Answer the questions of a study yourself, in a temporary run."""
    from folkmoot.cli.run import Serving, try_command
    from folkmoot.engine.run.execution import RunOptions

    options = RunOptions(overrides=tuple(set_ or ()), limit=limit)
    try_command(study, options, trust, Serving("127.0.0.1", port, ""), seat)


@app.command()
@with_error_handling
def withdraw(
    run: RunArg,
    seat: Annotated[
        str, typer.Argument(metavar="SEAT", help="Participant who withdraws, e.g. p_0003.")
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete without confirmation, quotations included.")
    ] = False,
) -> None:
    """Delete from a finished run what a human participant wrote, after listing who quoted it."""
    from folkmoot.cli.results import withdraw_command

    withdraw_command(run, seat, yes=yes)


def _one_file(study: Path | None, config: Path | None) -> Path:
    if study is not None and config is not None and study != config:
        raise InputError(f"two study files are named: {study} and --config {config}")
    path = study or config
    if path is None:
        hint = "folkmoot run my_study.yaml; `folkmoot new` writes one"
        raise InputError(Problem("no study file is named", hint=hint))
    return path


@app.command()
@with_error_handling
def check(
    study: StudyArg,
    model: ModelOpt = None,
    set_: SetOpt = None,
    batch: BatchOpt = False,
    trust: TrustOpt = False,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview", help="Print the first prompt of every role, treatment, and permutation."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, and all problems, as JSON.")
    ] = False,
) -> None:
    """Check a study file and estimate calls, cost and time without calling a model."""
    from folkmoot.cli.study_files import check_command

    overrides = (*(set_ or ()), *(["batch=true"] if batch else []))
    check_command(study, model, overrides, trust, preview=preview, as_json=as_json)


@app.command()
@with_error_handling
def new(
    kind: Annotated[
        str | None, typer.Argument(help="Study type; omit it to list all.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder to write to.", show_default=False)
    ] = None,
    polis: Annotated[
        Path | None,
        typer.Option("--from-polis", help="Make the study from this exported Polis conversation."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Make the study from this file: a Qualtrics survey (.qsf)."),
    ] = None,
    people: Annotated[
        Path | None,
        typer.Option("--from-people", help="Replay the human experiment in this table."),
    ] = None,
    statement: Annotated[
        str | None,
        typer.Option("--statement", help="Ask about this comment-id; default: the most divided."),
    ] = None,
) -> None:
    """Write a study file to start from."""
    from folkmoot.cli.study_files import (
        import_command,
        new_command,
        people_command,
        polis_command,
    )

    if statement is not None and polis is None:
        raise InputError("--statement goes with --from-polis")
    if source is not None:
        if kind is None or polis is not None or people is not None:
            raise InputError("write folkmoot new workbook --from survey.qsf [FOLDER]")
        import_command(kind, folder, source)
        return
    if people is not None:
        if polis is not None or (kind is not None and folder is not None):
            raise InputError("write: folkmoot new --from-people TABLE FOLDER")
        people_command(people, folder or Path(kind or people.stem))
        return
    if polis is not None:
        if kind is None:
            raise InputError("write: folkmoot new cross_pollination --from-polis DIR")
        polis_command(kind, folder, polis, statement)
        return
    new_command(kind, folder)


@app.command()
@with_error_handling
def schema(
    kind: Annotated[
        str | None, typer.Argument(help="Study type; omit it for all.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder to write to.", show_default=False)
    ] = None,
) -> None:
    """Write the JSON Schema of study files, for editors and validators."""
    from folkmoot.cli.study_files import schema_command

    schema_command(kind, folder)


@app.command()
@with_error_handling
def show(
    run: RunArg,
    id: Annotated[
        str | None,
        typer.Argument(
            help="Conversation, participant or address of a call; omit it to list all.",
            show_default=False,
        ),
    ] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Print the prompts with the source of each text.")
    ] = False,
    addresses: Annotated[
        bool, typer.Option("--addresses", help="Print the id of each utterance, for folkmoot fork.")
    ] = False,
) -> None:
    """Show the participants of a run, one conversation, one participant, or prompts by source."""
    from folkmoot.cli.show import show_command

    show_command(run, id, prompts=prompts, addresses=addresses)


@app.command(epilog=EXIT_CODES)
@with_error_handling
def fork(
    run: RunArg,
    address: Annotated[
        str | None,
        typer.Argument(help="Address of the reply, or id of the utterance.", show_default=False),
    ] = None,
    say: Annotated[
        str | None, typer.Option("--say", metavar="TEXT", help="Replace the reply by this text.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave the reply out.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="Let this model write the reply.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the fork to this folder (default: RUN_fork)."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the fork in RUN.")] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", min=1, help="Fork this many times with the change, and without it."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, help="Limit the number of simultaneous calls."),
    ] = None,
    budget: BudgetOpt = None,
    key: KeyOpt = None,
    trust: TrustOpt = False,
) -> None:
    """Repeat a run with one reply changed, and ask only the questions that depend on it."""
    from folkmoot.cli.fork import fork_command
    from folkmoot.engine.run.execution import RunOptions
    from folkmoot.engine.run.fork import ReplyReplacement

    options = RunOptions(out=out, concurrency=concurrency, budget=budget, key=key)
    if resume:
        if address is not None or say is not None or drop or model is not None or out is not None:
            raise InputError(
                "--resume: give only the folder of the fork; its plan holds the other settings"
            )
        fork_command(run, None, None, options, trust=trust)
        return
    if address is None:
        hint = f"{command_line('show', run, 'ID', '--addresses')} lists them"
        raise InputError(Problem("name the address of a reply", hint=hint))
    fork_command(
        run, address, ReplyReplacement(say, drop, model), options, trust=trust, repeats=repeats
    )


@app.command()
@with_error_handling
def verify(
    run: RunArg,
    digest: Annotated[
        str | None,
        typer.Option("--digest", metavar="HEX", help="Compare the run with this published digest."),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Set damaged answers aside, so that --resume asks them again."
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --repair: do not ask for confirmation.")
    ] = False,
) -> None:
    """Rebuild a run from its journal and compare it with its files."""
    from folkmoot.cli.results import repair_command, verify_command

    if repair:
        repair_command(run, yes)
    else:
        verify_command(run, digest)


@app.command()
@with_error_handling
def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...", help="Models; omit them to list all that have a short name."
        ),
    ] = None,
    try_: Annotated[
        bool, typer.Option("--try", help="Make one small call to each model with a key.")
    ] = False,
    key: KeyOpt = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Base URL of your own server.")
    ] = None,
) -> None:
    """List models with their prices and keys, or try them."""
    from folkmoot.cli.models import models_command

    models_command(list(names or ()), try_, key, base_url)


# The commands for finished runs. `--help` lists the commands in the order in which they are added.
app.registered_commands += results_app.app.registered_commands


@app.command()
@with_error_handling
def plan(
    study: StudyArg,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write to this file (default: STUDY_preregistration.md here)."),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write a PDF beside it.")] = False,
    model: ModelOpt = None,
    set_: SetOpt = None,
    limit: LimitOpt = None,
    budget: BudgetOpt = None,
    seed: SeedOpt = None,
    trust: TrustOpt = False,
) -> None:
    """Write the preregistration of a study, with the digest of the plan that its run will seal."""
    from folkmoot.cli.results import plan_command
    from folkmoot.cli.study_files import ask_consent
    from folkmoot.engine.run.execution import RunOptions

    options = RunOptions(
        model=model,
        overrides=tuple(set_ or ()),
        limit=limit,
        budget=budget,
        seed=seed,
        consent=ask_consent(study, trust),
    )
    plan_command(study, options, out, pdf=pdf)


@app.command()
@with_error_handling
def power(
    study: StudyArg,
    set_: SetOpt = None,
    icc: Annotated[
        list[float] | None,
        typer.Option(
            "--icc", min=0, max=1, help="Assume this correlation within groups; repeatable."
        ),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            "--width",
            help=(
                "Width of the interval of an estimate that human answers correct (0.1: ±5 points)."
            ),
        ),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Run the study with the embedded respondent many times."),
    ] = False,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="[KEY=]N,N",
            help="Simulate these sizes (default: half, one and two times the size in the file).",
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, help="Simulate this many runs of each size (40).")
    ] = None,
    trust: TrustOpt = False,
) -> None:
    """Compute the smallest effect that this design can detect, and the power of its claims."""
    from folkmoot.cli.results import power_command, simulate_command
    from folkmoot.cli.study_files import ask_consent

    consent, overrides = ask_consent(study, trust), tuple(set_ or ())
    if width is not None and not 0 < width < 1:
        raise InputError(f"--width {width}: must lie between 0 and 1, such as 0.1")
    if simulate:
        if width is not None:
            raise InputError("--width cannot be simulated; leave out --simulate")
        if icc:
            raise InputError("--icc: a simulation needs no assumption about groups; leave it out")
        simulate_command(study, overrides, sizes, runs or 40, consent)
        return
    if sizes or runs:
        raise InputError("--sizes and --runs go with --simulate")
    power_command(study, overrides, tuple(icc or ()), 0.1 if width is None else width, consent)


@app.command()
@with_error_handling
def view(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of runs, or one run (default: outputs).", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Listen at this address; other machines need a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Listen at this port; 0: a free one.")
    ] = 4270,
    token: Annotated[
        bool, typer.Option("--token", help="Require a token on this machine too.")
    ] = False,
) -> None:
    """Show runs in the browser, to watch, read and search them."""
    from folkmoot.cli.pages import view_command

    view_command(folder, host, port, token)


@app.command()
@with_error_handling
def studio(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of your studies, created if missing (default: the current folder).",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Listen at this address of this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Listen at this port; 0: a free one.")
    ] = 4271,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the studio in the browser of this machine.")
    ] = False,
) -> None:
    """Create, try and run studies in the browser."""
    from folkmoot.cli.pages import studio_command

    studio_command(folder, host, port, open_)
