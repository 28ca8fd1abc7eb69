"""`folkmoot check`, `new` and `schema`, and the user's consent to the code of a study file."""

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
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.model_choice import choose_models
from folkmoot.engine.run.runner import create_router, run_folder_path
from folkmoot.engine.run.study_language import describe_language
from folkmoot.engine.session.folder_access import is_held
from folkmoot.engine.session.run_totals import money_in
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


def ask_consent(path: Path, is_granted: bool = False) -> Consent:
    """Return an object that obtains the user's consent to the actions of a study file.

    If `is_granted` is True (the option `--trust`), the user consents. Otherwise the object asks the
    user in the terminal.
    """
    return Consent(is_granted, _confirm_trust if sys.stdin.isatty() else None, _trust_command(path))


def _trust_command(path: Path) -> str:
    """Return the present command with `--trust` added.

    If the present command does not have the option `--trust`, return a `check` command.
    """
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
    """Print what a run of this study file would do. Raises the same errors as `print_check`."""
    consent = ask_consent(path, trust)
    options = RunOptions(model=model, overrides=overrides)
    study_file = load_study_file(path, overrides, models=model is None, consent=consent)
    study_file = choose_models(study_file, options, run_folder_path(study_file, options))
    print_check(
        output_console(), study_file, options, consent=consent if trust else None, preview=preview
    )


def print_check(
    console: Console,
    study_file: StudyFile,
    options: RunOptions,
    *,
    consent: Consent | None = None,
    preview: bool = False,
) -> RunEstimate:
    """Print what a run of this study would do, and return the estimate.

    `consent` obtains the user's consent to the actions of the study file. If `consent` is None, the
    output lists the actions instead. Raises InputError with every problem, including problems that
    only the dry run finds.
    """
    path, model, overrides = study_file.path, options.model, options.overrides
    providers = create_router(study_file, options)
    requested_actions = describe_destinations(study_file.config, providers, overrides)
    typed_values = (*overrides, f"model={model}")
    requested_actions += map(describe_model_loading, model_files(providers, typed_values))
    providers.require_encryption()
    names = list(dict.fromkeys(providers.list_models()))
    specs = [resolve_model(name, study_file.config.endpoints) for name in names]
    images = study_file.study.image_locations(study_file.config)
    if problems := image_problems(study_file.config, names, images, str(path)):
        raise InputError(problems)
    for spec in specs:
        if spec.provider == LOCAL_MODEL:
            # Opening a local provider raises InputError if its software is not installed.
            providers.open_provider(spec.name)
    if problems := price_problems(study_file.config, names):
        raise InputError(problems)
    if preview and study_file.study.preview is None:
        raise InputError(f"--preview: the study type {study_file.study.name} has no preview")
    embedding_names = (
        [providers.embedding_model(str(path))] if study_file.study.uses_embeddings else []
    )
    embedding_specs = [resolve_model(name, study_file.config.endpoints) for name in embedding_names]
    # Consent is checked after all problems that cost nothing to find.
    if consent is not None:
        consent.require_network_access(path, study_file.config, providers, overrides)
        consent.require_model_files(path, providers, typed_values)
    print_models_note(console, study_file)
    for action in requested_actions:
        console.print(
            f"[yellow]Caution:[/] this file {escape(remove_control_characters(action))}",
            soft_wrap=True,
        )
    if language := describe_language(study_file, providers):
        console.print(f"[yellow]Language:[/] {escape(language)}", soft_wrap=True)
    _print_missing_keys(console, [*specs, *embedding_specs])
    estimate = run_dry_run(
        study_file, model, embedding_names[0] if embedding_names else SYNTHETIC_MODEL
    )
    console.print(
        f"[green]No problems[/] in {escape(str(path))} ({escape(study_file.study.title)})",
        soft_wrap=True,
    )
    for note in study_file.study.notes(study_file.config):
        console.print(f"[cyan]Note:[/] {escape(remove_control_characters(note))}", soft_wrap=True)
    if preview:
        _print_preview(console, study_file)
    _print_estimate(console, study_file, estimate, specs, embedding_specs)
    return estimate


def print_models_note(console: Console, study_file: StudyFile) -> None:
    """Print the study file's note on the choice of models, if there is a note."""
    if study_file.models_note:
        note = escape(remove_control_characters(study_file.models_note))
        console.print(f"[yellow]Models:[/] {note}", soft_wrap=True)


def _print_missing_keys(console: Console, specs: Sequence[ModelSpec]) -> None:
    specs_without_key = [spec for spec in specs if spec.key_needed and not find_key(spec)]
    for variables in dict.fromkeys(spec.key_env for spec in specs_without_key):
        console.print(
            f"[yellow]No key:[/] set {escape(' or '.join(variables))} in the environment or in "
            ".env before you run this study.",
            soft_wrap=True,
        )


def _print_preview(console: Console, study_file: StudyFile) -> None:
    """Print prompts as a model would receive them. A line above each prompt names its speaker."""
    assert study_file.study.preview is not None
    for preview in study_file.study.preview(study_file.config, study_file.prompt_library()):
        console.print(
            f"[bold cyan]{escape(remove_control_characters(preview.title))}[/]", soft_wrap=True
        )
        for role, text in preview.messages:
            console.print(
                f"[bold]{role}[/]\n{escape(remove_control_characters(text))}\n", soft_wrap=True
            )
        for image in preview.images:
            console.print(
                f"[cyan]Sent as an image:[/] {escape(remove_control_characters(image))}",
                soft_wrap=True,
            )
        if preview.note:
            console.print(
                f"[cyan]Note:[/] {escape(remove_control_characters(preview.note))}", soft_wrap=True
            )
        console.print()


def _print_estimate(
    console: Console,
    study_file: StudyFile,
    estimate: RunEstimate,
    specs: Sequence[ModelSpec],
    embedding_specs: Sequence[ModelSpec],
) -> None:
    config = study_file.config
    is_local = all(spec.local for spec in specs)
    stages = estimate.stages
    seconds = estimate.duration_seconds(
        concurrency=1 if is_local else config.concurrency,
        spacing=0.0 if is_local else config.api_sleep_seconds,
        latency=SYNTHETIC_LATENCY if is_local else ASSUMED_LATENCY,
    )
    if stages:
        console.print("", GridView(_stage_table(estimate)), "", sep="\n", crop=False)
    console.print(
        f"Model     {escape(remove_control_characters(', '.join(spec.name for spec in specs)))}"
    )
    for spec in embedding_specs:
        console.print(f"Embedding {escape(remove_control_characters(spec.name))}")
    if stages:
        console.print(f"Calls     {_describe_calls(estimate)}", soft_wrap=True)
        if estimate.input_range and estimate.output_range:
            token_ranges = (
                _describe_token_range(estimate.input_range, "in"),
                _describe_token_range(estimate.output_range, "out"),
            )
            console.print(f"Tokens    {', '.join(token_ranges)}", soft_wrap=True)
        cost_suffix = " if asked directly" if config.batch else ""
        console.print(
            f"Cost      {escape(_describe_run_cost(estimate, specs, study_file))}{cost_suffix}",
            soft_wrap=True,
        )
        if payment_note := _describe_cache_savings(estimate, study_file):
            console.print(f"Cache     {escape(payment_note)}", soft_wrap=True)
        if any(map(supports_batches, specs)):
            console.print(
                f"Batches   {escape(_describe_batches(estimate, specs, study_file))}",
                soft_wrap=True,
            )
        if any(spec.provider == LOCAL_MODEL for spec in specs):
            console.print("Time      unknown: this machine's processor computes every reply")
        elif not config.batch or not _batch_wave_sizes(estimate, study_file):
            console.print(
                f"Time      about {format_duration(seconds)}{_describe_pace(study_file, is_local)}"
            )
    else:
        console.print("Calls     unknown (the dry run with the embedded respondent made no calls)")
    folder = OUTPUTS / study_file.run_id
    console.print(f"Folder    {escape(remove_control_characters(str(folder)))}")
    # `run` and `verify` report problems of the journal in this folder.
    with suppress(StorageError):
        if not is_held(folder) and (payment_note := money_in(folder)):
            console.print(f"So far    {escape(payment_note)}", soft_wrap=True)


def run_dry_run(
    study_file: StudyFile, model: str | None, embedding: str = SYNTHETIC_MODEL
) -> RunEstimate:
    """Return the estimate of a dry run.

    A mistake in a user's study code is raised unchanged. Any other failure raises InputError. The
    real run would fail in the same way, after calls that cost money.
    """
    try:
        return add_controls(estimate_run(study_file, model, embedding), study_file, model)
    except (InputError, StorageError):
        raise
    except Exception as error:
        # The command line reports such an error with the file and line of the study code.
        if find_author_error(error) is not None:
            raise
        raise InputError(
            Problem(
                f"the dry run failed ({type(error).__name__}: {error}); the run would fail too, "
                "after calls that cost money",
                file=str(study_file.path),
                hint="no model was asked; `folkmoot run --no-preflight` skips the dry run",
            )
        ) from error


def _describe_calls(estimate: RunEstimate) -> str:
    low, high = estimate.calls_range or (estimate.calls, estimate.calls)
    text = f"about {estimate.calls:,}"
    if high > low:
        text += f" ({low:,} to {high:,})"
    if estimate.sampled is not None and estimate.sampled[1]:
        run_count, item_count = estimate.sampled
        text += f", estimated from {run_count:,} of {item_count:,} items, the maximum of a dry run"
    if estimate.incomplete:
        text += "; the dry run did not reach the end of the study, so there may be more"
    return text


def _describe_token_range(tokens: TokenRange, direction: str) -> str:
    middle = (tokens.low + tokens.high) // 2
    return f"about {middle:,} {direction} ({tokens.low:,} to {tokens.high:,})"


def _describe_cache_savings(estimate: RunEstimate, study_file: StudyFile) -> str:
    """Return a text on the money that vendors' prompt caches may save."""
    repeated_tokens = sum(estimate.cacheable_tokens_by_model.values())
    saved_usd = 0.0
    for name, tokens in estimate.cacheable_tokens_by_model.items():
        spec = resolve_model(name, study_file.config.endpoints)
        saved_usd += (estimate_cost(spec, tokens, 0) or 0.0) - (
            estimate_cost(spec, tokens, 0, tokens) or 0.0
        )
    if not repeated_tokens or not saved_usd or not estimate.input_tokens:
        return ""
    share = repeated_tokens / estimate.input_tokens
    return (
        f"saves up to {format_dollars(saved_usd)}: {share:.0%} of the input tokens repeat the "
        "beginning of an earlier prompt and cost less while the vendor caches it"
    )


def _describe_batches(
    estimate: RunEstimate, specs: Sequence[ModelSpec], study_file: StudyFile
) -> str:
    """Return a text on the cost, the waves and the longest duration of a run in batch mode.

    A wave consists of calls that do not depend on each other and can be submitted in one batch.
    """
    config, wave_sizes = study_file.config, _batch_wave_sizes(estimate, study_file)
    cost = _describe_run_cost(estimate, specs, study_file, batch=True)
    deadline_text = (
        f"each completed within {PROMISED_HOURS} h, all within "
        f"{format_count(len(wave_sizes), 'day')}; re-asks need further waves"
    )
    if config.batch != "auto":
        return (
            f"{cost} (--batch): {format_count(len(wave_sizes), 'wave')} of calls, {deadline_text}"
        )
    condition_text = f"of at least {config.batch_at_least:,} calls (batch: auto)"
    if not wave_sizes:
        return f"none: no wave {condition_text}"
    return (
        f"{sum(wave_sizes):,} of {sum(estimate.batch_wave_sizes):,} calls, in "
        f"{format_count(len(wave_sizes), 'wave')} {condition_text}, {deadline_text}; {cost} if "
        "all calls were submitted so"
    )


def _batch_wave_sizes(estimate: RunEstimate, study_file: StudyFile) -> list[int]:
    """Return the numbers of calls of the waves that are large enough for a batch.

    A wave consists of calls that do not depend on each other.
    """
    min_calls = study_file.config.batch_at_least if study_file.config.batch == "auto" else 1
    return [calls for calls in estimate.batch_wave_sizes if calls >= min_calls]


def _describe_run_cost(
    estimate: RunEstimate, specs: Sequence[ModelSpec], study_file: StudyFile, *, batch: bool = False
) -> str:
    costs: dict[str, float | None] = {}
    embedding_models = {
        name
        for name in estimate.models
        if resolve_model(name, study_file.config.endpoints) not in specs
    }
    for name, tokens in estimate.models.items():
        spec = resolve_model(name, study_file.config.endpoints)
        costs[spec.name] = estimate_cost(
            spec, *tokens, batch=batch and name not in embedding_models
        )
    known_costs = {name: cost for name, cost in costs.items() if cost is not None}
    unpriced_models = [name for name in costs if name not in known_costs]
    unknown_text = (
        f"; the price of {', '.join(unpriced_models)} is unknown" if unpriced_models else ""
    )
    if not known_costs:
        return "unknown (no price is known)"
    parts = ", ".join(
        f"{name} {format_dollars(cost)}" for name, cost in known_costs.items() if cost
    )
    parts_text = f" ({parts})" if parts.count("$") > 1 else ""
    low, high = estimate.cost_range(sum(known_costs.values()))
    range_text = (
        f" ({format_dollars(low)} to {format_dollars(high)}, depending on the length of replies)"
        if high
        else ""
    )
    return (
        f"about {format_dollars(sum(known_costs.values()))}{parts_text}{range_text}{unknown_text}"
    )


def _describe_pace(study_file: StudyFile, is_local: bool) -> str:
    if is_local:
        return ""
    spacing = study_file.config.api_sleep_seconds
    if spacing:
        return f" (calls at least {spacing:g} s apart: api_sleep_seconds)"
    return f" (at {ASSUMED_LATENCY:g} s a reply, {study_file.config.concurrency} at once)"


def _stage_table(estimate: RunEstimate) -> ResultTable:
    rows: list[tuple[str, int, int, int]] = [
        (
            stage.stage,
            stage.calls,
            stage.input_tokens,
            stage.output_tokens,
        )
        for stage in estimate.stages
    ]
    rows.append(("total", estimate.calls, estimate.input_tokens, estimate.output_tokens))
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
    code_path = study_code_path(kind)
    study_reference = (
        Path(os.path.relpath(code_path, folder)).as_posix() if code_path else study.name
    )
    _write_new(new_files(study, study_reference), folder)


def read_examples() -> dict[str, bytes]:
    """Return the shipped examples by path: `examples/…` and `config/pilot.yaml`.

    The examples are read from the installed package, or from the repository in a clone.
    """
    package = Path(__file__).parents[1]
    shipped_folder = package / "shipped"
    root = shipped_folder if shipped_folder.is_dir() else package.parents[1]
    files = sorted(path for name in (EXAMPLES, "config") for path in (root / name).rglob("*"))
    contents = {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in files
        if file.is_file() and file.suffix in EXAMPLE_SUFFIXES
    }
    if not contents:
        raise InputError(f"this installation contains no examples (searched {root})")
    return contents


def schema_command(kind: str | None, folder: Path | None) -> None:
    """Write the JSON Schema of one study type, or of all study types.

    Existing files are replaced.
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
        suitable_names = [
            study.name for study in load_installed_studies()[0] if study.from_polis is not None
        ]
        raise InputError(
            f"--from-polis: participants of the study type {study.name} do not vote on given "
            f"statements; use {', '.join(suitable_names)}"
        )
    _write_new(study.from_polis(read_polis(polis), statement), folder or Path())


def import_command(kind: str, folder: Path | None, path: Path) -> None:
    """Write a study made from a file of another program, and print its missing parts.

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
    """Write new files, and print the next commands for the first study file.

    Existing files are never overwritten.
    """
    existing_files = [name for name in files if (folder / name).exists()]
    if existing_files:
        raise InputError(
            [
                Problem("already exists", str(folder / name), hint="name another folder")
                for name in existing_files
            ]
        )
    console = output_console()
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        write_bytes(folder / name, data)
        console.print(f"wrote {escape(str(folder / name))}", soft_wrap=True)
    first_file = next(
        (file for file in files if file.endswith((".yaml", ".yml", ".xlsx"))), next(iter(files))
    )
    path = escape(str(folder / first_file))
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
