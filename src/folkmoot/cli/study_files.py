"""`folkmoot check`, `folkmoot new` and `folkmoot schema`, and the user's consent to a study
file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from folkmoot.authoring.schema import schema_file_name, schema_text
from folkmoot.authoring.template import new_files
from folkmoot.cli.console import (
    clean_and_redact,
    error_console,
    output_console,
    print_warning,
    remove_control_characters,
    resume_line,
)
from folkmoot.cli.tables import GridView
from folkmoot.engine.calls.model_routing import image_problems, price_problems
from folkmoot.engine.calls.progress import format_duration
from folkmoot.engine.run.dry_run import (
    ASSUMED_LATENCY,
    SYNTHETIC_LATENCY,
    RunEstimate,
    TokenRange,
    estimate_run,
)
from folkmoot.engine.run.execution import RunOptions, money_in
from folkmoot.engine.run.model_choice import choose_models
from folkmoot.engine.run.runner import create_router, run_folder_path
from folkmoot.engine.run.study_language import describe_language
from folkmoot.engine.session.folder_access import is_held
from folkmoot.engine.settings.author_errors import find_author_error
from folkmoot.engine.study.consent import (
    Consent,
    describe_destinations,
    describe_model_loading,
    model_files,
)
from folkmoot.engine.study.study import find_study, load_installed_studies, study_code_path
from folkmoot.engine.study.study_file import StudyFile, load_study_file
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.files import write_bytes
from folkmoot.kit.controls.pricing import add_controls
from folkmoot.kit.polis import read_polis
from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.models.api_keys import find_key
from folkmoot.models.catalog import LOCAL_MODEL, SYNTHETIC_MODEL, ModelSpec, resolve_model
from folkmoot.models.prices import estimate_cost, supports_batches
from folkmoot.models.wire.batches import PROMISED_HOURS
from folkmoot.storage.findings import ResultTable
from folkmoot.storage.run_folder import OUTPUTS

# `folkmoot new examples` writes the shipped examples instead of the template of a study type.
EXAMPLES = "examples"
# Lines that `folkmoot new --from` prints. A file beside the study has all of them.
MAX_PRINTED_NOTES = 60
EXAMPLE_SUFFIXES = (".yaml", ".csv", ".py", ".xlsx", ".ipynb")


def ask_consent(path: Path, given: bool = False) -> Consent:
    """Return the consent of the user to what a study file does.

    `given` is the option `--trust`. Without it, a question in the terminal asks for consent.
    """
    return Consent(given, _confirm_trust if sys.stdin.isatty() else None, _trust_command(path))


def _trust_command(path: Path) -> str:
    """Return this command with `--trust`, or a `check` command if this one lacks the option."""
    words = sys.argv[1:]
    if words[:1] not in (["run"], ["check"]):
        return shlex.join(["folkmoot", "check", str(path), "--trust"])
    line = resume_line([*words, "--trust"])
    return line if "--resume" in words else line.removesuffix(" --resume")


def _confirm_trust(sentences: Sequence[str]) -> bool:
    for sentence in sentences:
        error_console().print(
            f"[yellow]Caution:[/] {escape(clean_and_redact(sentence))}", soft_wrap=True
        )
    try:
        return typer.confirm("Do you trust it?", err=True)
    # The input has ended, so there is no consent.
    except typer.Abort:
        return False


def check_command(
    path: Path, model: str | None, overrides: tuple[str, ...], trust: bool, preview: bool
) -> None:
    """Print what a run of this file would do. Raises the errors of `print_check`."""
    agreed = ask_consent(path, trust)
    options = RunOptions(model=model, overrides=overrides)
    found = load_study_file(path, overrides, models=model is None, consent=agreed)
    found = choose_models(found, options, run_folder_path(found, options))
    print_check(
        output_console(), found, options, consent=agreed if trust else None, preview=preview
    )


def print_check(
    console: Console,
    found: StudyFile,
    options: RunOptions,
    *,
    consent: Consent | None = None,
    preview: bool = False,
) -> RunEstimate:
    """Print what a run of this study would do, and return the estimate.

    `consent` must cover everything that the file may do, as for a run. If it is None, nothing is
    required, and caution lines list what the file may do. Raises InputError with every problem,
    including those that only the dry run finds.
    """
    path, model, overrides = found.path, options.model, options.overrides
    providers = create_router(found, options)
    wishes = describe_destinations(found.config, providers, overrides)
    typed = (*overrides, f"model={model}")
    wishes += map(describe_model_loading, model_files(providers, typed))
    providers.require_encryption()
    names = list(dict.fromkeys(providers.list_models()))
    specs = [resolve_model(name, found.config.endpoints) for name in names]
    images = found.study.image_locations(found.config)
    if problems := image_problems(found.config, names, images, str(path)):
        raise InputError(problems)
    for spec in specs:
        if spec.provider == LOCAL_MODEL:
            # Opening a local provider raises InputError if its software is not installed.
            providers.open_provider(spec.name)
    if problems := price_problems(found.config, names):
        raise InputError(problems)
    if preview and found.study.preview is None:
        raise InputError(f"--preview: the study type {found.study.name} has none")
    embeds = [providers.embedding_model(str(path))] if found.study.uses_embeddings else []
    embedding = [resolve_model(name, found.config.endpoints) for name in embeds]
    # Consent is checked after all problems that cost nothing to find.
    if consent is not None:
        consent.require_network_access(path, found.config, providers, overrides)
        consent.require_model_files(path, providers, typed)
    print_models_note(console, found)
    for wish in wishes:
        console.print(
            f"[yellow]Caution:[/] this file {escape(remove_control_characters(wish))}",
            soft_wrap=True,
        )
    if language := describe_language(found, providers):
        console.print(f"[yellow]Language:[/] {escape(language)}", soft_wrap=True)
    _print_missing_keys(console, [*specs, *embedding])
    total = run_dry_run(found, model, embeds[0] if embeds else SYNTHETIC_MODEL)
    console.print(
        f"[green]No mistakes[/] in {escape(str(path))} ({escape(found.study.title)})",
        soft_wrap=True,
    )
    for note in found.study.notes(found.config):
        console.print(f"[cyan]Note:[/] {escape(remove_control_characters(note))}", soft_wrap=True)
    if preview:
        _print_preview(console, found)
    _print_estimate(console, found, total, specs, embedding)
    return total


def print_models_note(console: Console, found: StudyFile) -> None:
    """Print the note on the choice of models, if there is one."""
    if found.models_note:
        note = escape(remove_control_characters(found.models_note))
        console.print(f"[yellow]Models:[/] {note}", soft_wrap=True)


def _print_missing_keys(console: Console, specs: Sequence[ModelSpec]) -> None:
    lacking = [spec for spec in specs if spec.key_needed and not find_key(spec)]
    for variables in dict.fromkeys(spec.key_env for spec in lacking):
        console.print(
            f"[yellow]No key:[/] set {escape(' or '.join(variables))} in the environment or in "
            ".env before you run this study.",
            soft_wrap=True,
        )


def _print_preview(console: Console, found: StudyFile) -> None:
    """Print prompts as they would be sent, each under a line that names its speaker."""
    assert found.study.preview is not None
    for one in found.study.preview(found.config, found.prompt_library()):
        console.print(
            f"[bold cyan]{escape(remove_control_characters(one.title))}[/]", soft_wrap=True
        )
        for role, text in one.messages:
            console.print(
                f"[bold]{role}[/]\n{escape(remove_control_characters(text))}\n", soft_wrap=True
            )
        for image in one.images:
            console.print(
                f"[cyan]Sent as an image:[/] {escape(remove_control_characters(image))}",
                soft_wrap=True,
            )
        if one.note:
            console.print(
                f"[cyan]Note:[/] {escape(remove_control_characters(one.note))}", soft_wrap=True
            )
        console.print()


def _print_estimate(
    console: Console,
    found: StudyFile,
    total: RunEstimate,
    specs: Sequence[ModelSpec],
    embedding: Sequence[ModelSpec],
) -> None:
    config = found.config
    local = all(spec.local for spec in specs)
    stages = total.stages
    seconds = total.duration_seconds(
        concurrency=1 if local else config.concurrency,
        spacing=0.0 if local else config.api_sleep_seconds,
        latency=SYNTHETIC_LATENCY if local else ASSUMED_LATENCY,
    )
    if stages:
        console.print("", GridView(_stage_table(total)), "", sep="\n", crop=False)
    console.print(
        f"Model     {escape(remove_control_characters(', '.join(spec.name for spec in specs)))}"
    )
    for spec in embedding:
        console.print(f"Embedding {escape(remove_control_characters(spec.name))}")
    if stages:
        console.print(f"Calls     {_describe_calls(total)}", soft_wrap=True)
        if total.input_range and total.output_range:
            both = (
                _describe_token_range(total.input_range, "in"),
                _describe_token_range(total.output_range, "out"),
            )
            console.print(f"Tokens    {', '.join(both)}", soft_wrap=True)
        directly = " if asked directly" if config.batch else ""
        console.print(
            f"Cost      {escape(_describe_run_cost(total, specs, found))}{directly}", soft_wrap=True
        )
        if told := _describe_cache_savings(total, found):
            console.print(f"Cache     {escape(told)}", soft_wrap=True)
        if any(map(supports_batches, specs)):
            console.print(f"Batches   {escape(_by_batches(total, specs, found))}", soft_wrap=True)
        if any(spec.provider == LOCAL_MODEL for spec in specs):
            console.print("Time      unknown: this machine's processor computes every reply")
        elif not config.batch or not _batch_wave_sizes(total, found):
            console.print(
                f"Time      about {format_duration(seconds)}{_describe_pace(found, local)}"
            )
    else:
        console.print("Calls     unknown (a rehearsal with the embedded respondent made none)")
    folder = OUTPUTS / found.run_id
    console.print(f"Folder    {escape(remove_control_characters(str(folder)))}")
    # `run` and `verify` report problems of the journal in this folder.
    with suppress(StorageError):
        if not is_held(folder) and (told := money_in(folder)):
            console.print(f"So far    {escape(told)}", soft_wrap=True)


def run_dry_run(
    found: StudyFile, model: str | None, embedding: str = SYNTHETIC_MODEL
) -> RunEstimate:
    """Return the estimate of a dry run.

    A mistake in a user's study code is raised unchanged. If the dry run fails otherwise, raises
    InputError, because the run would fail too, after calls that cost money.
    """
    try:
        return add_controls(estimate_run(found, model, embedding), found, model)
    except (InputError, StorageError):
        raise
    except Exception as error:
        # The command line reports such an error with the file and line of the study code.
        if find_author_error(error) is not None:
            raise
        raise InputError(
            Problem(
                "the dry run failed, so the run would fail, too, after calls that cost money: "
                f"{type(error).__name__}: {error}",
                file=str(found.path),
                hint="nothing was asked; `folkmoot run` with --no-preflight makes no dry run",
            )
        ) from error


def _describe_calls(total: RunEstimate) -> str:
    """Describe the number of calls and the basis of the estimate."""
    low, high = total.calls_range or (total.calls, total.calls)
    text = f"about {total.calls:,}"
    if high > low:
        text += f" ({low:,} to {high:,})"
    if total.sampled is not None and total.sampled[1]:
        ran, items = total.sampled
        text += f": an estimate from a sample, since a dry run of {ran:,} of {items:,} items was"
        text += " as large as one may be"
    if total.incomplete:
        text += "; the dry run did not come to the end of the study, so there may be more"
    return text


def _describe_token_range(tokens: TokenRange, which: str) -> str:
    """Describe a range of tokens. Replies of the dry run are the lower end."""
    middle = (tokens.low + tokens.high) // 2
    return f"about {middle:,} {which} ({tokens.low:,} to {tokens.high:,})"


def _describe_cache_savings(total: RunEstimate, found: StudyFile) -> str:
    """Describe how much the caches of vendors may save on repeated beginnings of prompts."""
    repeated = sum(total.cacheable_tokens_by_model.values())
    saved = 0.0
    for name, again in total.cacheable_tokens_by_model.items():
        spec = resolve_model(name, found.config.endpoints)
        saved += (estimate_cost(spec, again, 0) or 0.0) - (
            estimate_cost(spec, again, 0, again) or 0.0
        )
    if not repeated or not saved or not total.input_tokens:
        return ""
    share = repeated / total.input_tokens
    return (
        f"up to {format_dollars(saved)} less: {share:.0%} of the input tokens repeat the beginning "
        "of an "
        "earlier prompt and cost less while the vendor still has it"
    )


def _by_batches(total: RunEstimate, specs: Sequence[ModelSpec], found: StudyFile) -> str:
    """Describe the cost of a run in batch mode, its waves and its longest duration."""
    config, large = found.config, _batch_wave_sizes(total, found)
    cost = _describe_run_cost(total, specs, found, batch=True)
    days = (
        f"each promised within {PROMISED_HOURS} h, all within {format_count(len(large), 'day')}; "
        "re-asks "
        "take further waves"
    )
    if config.batch != "auto":
        return f"{cost} (--batch): {format_count(len(large), 'wave')} of calls, {days}"
    enough = f"of at least {config.batch_at_least:,} calls (batch: auto)"
    if not large:
        return f"none: no wave {enough}"
    return (
        f"{sum(large):,} of {sum(total.batch_wave_sizes):,} calls, in "
        f"{format_count(len(large), 'wave')} {enough}, "
        f"{days}; {cost} if all went so"
    )


def _batch_wave_sizes(total: RunEstimate, found: StudyFile) -> list[int]:
    """Return the sizes of the waves that go through a batch API, or would with `--batch`."""
    least = found.config.batch_at_least if found.config.batch == "auto" else 1
    return [calls for calls in total.batch_wave_sizes if calls >= least]


def _describe_run_cost(
    total: RunEstimate, specs: Sequence[ModelSpec], found: StudyFile, *, batch: bool = False
) -> str:
    """Describe the cost of a run by model."""
    costs: dict[str, float | None] = {}
    embeds = {
        name for name in total.models if resolve_model(name, found.config.endpoints) not in specs
    }
    for name, tokens in total.models.items():
        spec = resolve_model(name, found.config.endpoints)
        costs[spec.name] = estimate_cost(spec, *tokens, batch=batch and name not in embeds)
    known = {name: cost for name, cost in costs.items() if cost is not None}
    unknown = [name for name in costs if name not in known]
    tail = f"; the price of {', '.join(unknown)} is unknown" if unknown else ""
    if not known:
        return "unknown (no price is known)"
    parts = ", ".join(f"{name} {format_dollars(cost)}" for name, cost in known.items() if cost)
    several = f" ({parts})" if parts.count("$") > 1 else ""
    low, high = total.cost_range(sum(known.values()))
    between = (
        f" ({format_dollars(low)} to {format_dollars(high)}, by how long replies are)"
        if high
        else ""
    )
    return f"about {format_dollars(sum(known.values()))}{several}{between}{tail}"


def _describe_pace(found: StudyFile, local: bool) -> str:
    if local:
        return ""
    spacing = found.config.api_sleep_seconds
    if spacing:
        return f" (calls at least {spacing:g} s apart: api_sleep_seconds)"
    return f" (at {ASSUMED_LATENCY:g} s a reply, {found.config.concurrency} at once)"


def _stage_table(total: RunEstimate) -> ResultTable:
    rows: list[tuple[str, int, int, int]] = [
        (
            stage_estimate.stage,
            stage_estimate.calls,
            stage_estimate.input_tokens,
            stage_estimate.output_tokens,
        )
        for stage_estimate in total.stages
    ]
    rows.append(("total", total.calls, total.input_tokens, total.output_tokens))
    return ResultTable(("stage", "calls", "input tokens", "output tokens"), tuple(rows))


def new_command(kind: str | None, folder: Path | None) -> None:
    """Write the template of a study type into a folder. Existing files are never overwritten."""
    if kind is None:
        _list_kinds()
        return
    if kind == EXAMPLES:
        _write_new(read_examples(), folder or Path())
        return
    study = find_study(kind)
    folder = folder or Path()
    code = study_code_path(kind)
    named = Path(os.path.relpath(code, folder)).as_posix() if code else study.name
    _write_new(new_files(study, named), folder)


def read_examples() -> dict[str, bytes]:
    """Return the shipped examples by path: `examples/…` and `config/pilot.yaml`.

    An installed package contains them as data. In a clone, they are in the repository.
    """
    package = Path(__file__).parents[1]
    carried = package / "shipped"
    root = carried if carried.is_dir() else package.parents[1]
    files = sorted(path for name in (EXAMPLES, "config") for path in (root / name).rglob("*"))
    found = {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in files
        if file.is_file() and file.suffix in EXAMPLE_SUFFIXES
    }
    if not found:
        raise InputError(f"this installation carries no examples (looked in {root})")
    return found


def schema_command(kind: str | None, folder: Path | None) -> None:
    """Write the JSON Schema of one study type, or of all.

    Existing files are replaced, because schemas are generated from the study types alone.
    """
    studies = load_installed_studies()[0] if kind is None else [find_study(kind)]
    for study in studies:
        path = (folder or Path()) / schema_file_name(study)
        write_bytes(path, schema_text(study).encode())
        output_console().print(f"wrote {escape(str(path))}", soft_wrap=True)


def polis_command(kind: str, folder: Path | None, polis: Path, statement: str | None) -> None:
    """Write a study made from a Polis conversation. Existing files are never overwritten."""
    study = find_study(kind)
    if study.from_polis is None:
        able = [study.name for study in load_installed_studies()[0] if study.from_polis is not None]
        raise InputError(
            f"--from-polis: participants of the study type {study.name} do not vote on statements "
            f"given beforehand; {', '.join(able)} can be made of a Polis conversation"
        )
    _write_new(study.from_polis(read_polis(polis), statement), folder or Path())


def import_command(kind: str, folder: Path | None, path: Path) -> None:
    """Write a study made from a file of another program, and print what it lacks.

    Existing files are never overwritten.
    """
    study = find_study(kind)
    importer = study.importers.get(path.suffix.lower())
    if importer is None:
        able = [
            f"{each.name} {suffix}"
            for each in load_installed_studies()[0]
            for suffix in each.importers
        ]
        hint = f"these can be: {', '.join(able)}"
        message = f"a study of the type {study.name} cannot be made from it"
        raise InputError(Problem(message, str(path), hint=hint))
    made = importer(path)
    _write_new(made.files, folder or Path())
    console = output_console()
    console.print()
    for note in made.notes[:MAX_PRINTED_NOTES]:
        console.print(escape(clean_and_redact(note)), soft_wrap=True)
    if (more := len(made.notes) - MAX_PRINTED_NOTES) > 0:
        console.print(f"and {format_count(more, 'more line')}: see the files")


def people_command(table: Path, folder: Path) -> None:
    """Write a study that replays the human experiment in a table."""
    from folkmoot.studies.replay.writing import files_of_replay

    _write_new(files_of_replay(table), folder)


def _write_new(files: Mapping[str, str | bytes], folder: Path) -> None:
    """Write files that must not exist yet, and print the next commands for the first study file."""
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise InputError(
            [
                Problem("already exists", str(folder / name), hint="name another folder")
                for name in there
            ]
        )
    console = output_console()
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        write_bytes(folder / name, data)
        console.print(f"wrote {escape(str(folder / name))}", soft_wrap=True)
    first = next(
        (file for file in files if file.endswith((".yaml", ".yml", ".xlsx"))), next(iter(files))
    )
    path = escape(str(folder / first))
    console.print(f"\nCheck it: folkmoot check {path}\nRun it:   folkmoot run {path}")


def _list_kinds() -> None:
    studies, problems = load_installed_studies()
    table = Table.grid(padding=(0, 3))
    for study in studies:
        table.add_row(escape(study.name), escape(remove_control_characters(study.title)))
    output_console().print(table)
    output_console().print("\nStart with one: folkmoot new KIND [FOLDER]")
    output_console().print("All examples of the documentation: folkmoot new examples [FOLDER]")
    for problem in problems:
        print_warning(str(problem))
