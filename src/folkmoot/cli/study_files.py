"""`folkmoot check`, `new` and `schema`, and asking for consent to run code of a study file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    resume_line,
)
from folkmoot.cli.tables import GridView
from folkmoot.engine.run.dry_run import RunEstimate
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.model_choice import choose_models
from folkmoot.engine.run.runner import run_folder_path
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import find_study, load_installed_studies, study_code_path
from folkmoot.engine.study.study_file import StudyFile, load_study_file
from folkmoot.errors import FolkmootError, InputError, Problem
from folkmoot.files import write_bytes
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import command_line
from folkmoot.measures.inference.estimates import format_count
from folkmoot.models.api_keys import redact_keys
from folkmoot.report.study_check import check_study_file, problems_to_json, read_notices
from folkmoot.storage.findings import ResultTable

# `folkmoot new examples` writes the shipped examples instead of the template of a study type.
EXAMPLES = "examples"
# Lines that `folkmoot new --from` prints. A file beside the study has all of them.
MAX_PRINTED_NOTES = 60
EXAMPLE_SUFFIXES = (".yaml", ".csv", ".py", ".xlsx", ".ipynb")
# A name with one of these is not meant as the name of a folder.
FILE_SUFFIXES = (".yaml", ".yml", ".json", ".xlsx")
# The commands that have the option `--trust`. A test compares them with the options, which take
# long to read at the start of each command.
TRUSTING_COMMANDS = ("check", "codes", "controls", "fork", "plan", "power", "run", "try")


def ask_consent(path: Path, is_granted: bool = False) -> Consent:
    """Return an object that asks the user for consent before a study file runs code or sends data.

    `is_granted`: True if the user has consented already, so that no question is asked.
    """
    # If `is_granted` is True, as with the option `--trust`, the user is not asked.
    return Consent(is_granted, _confirm_trust if sys.stdin.isatty() else None, _trust_command(path))


def _trust_command(path: Path) -> str:
    words = sys.argv[1:]
    if not words or words[0] not in TRUSTING_COMMANDS:
        return command_line("check", path, "--trust")
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
    path: Path,
    model: str | None,
    overrides: tuple[str, ...],
    trust: bool,
    *,
    preview: bool = False,
    as_json: bool = False,
) -> None:
    """Print what a run of this study file would do.

    Raises the same errors as `print_check`.
    """
    consent = ask_consent(path, trust)
    options = RunOptions(model=model, overrides=overrides)
    if as_json:
        _print_check_as_json(path, options, consent, trust)
        return
    study_file = _load_for_check(path, options, consent)
    print_check(
        output_console(), study_file, options, consent=consent if trust else None, preview=preview
    )


def _load_for_check(path: Path, options: RunOptions, consent: Consent) -> StudyFile:
    study_file = load_study_file(
        path, options.overrides, models=options.model is None, consent=consent
    )
    return choose_models(study_file, options, run_folder_path(study_file, options))


def _print_check_as_json(path: Path, options: RunOptions, consent: Consent, trust: bool) -> None:
    # For programs such as the studio.
    exit_code, result = 0, dict[str, Any]()
    try:
        study_file = _load_for_check(path, options, consent)
        notices = read_notices(study_file, options, consent if trust else None)
        result = check_study_file(study_file, options, notices).to_json()
    except FolkmootError as error:
        problems = (
            error.problems if isinstance(error, InputError) else [Problem(str(error), str(path))]
        )
        exit_code = error.exit_code
        result = {"file": str(path), "problems": problems_to_json(problems)}
    # Not through rich, which would wrap lines.
    typer.echo(redact_keys(json.dumps(result, ensure_ascii=False, indent=2)))
    if exit_code:
        raise typer.Exit(exit_code)


def print_check(
    console: Console,
    study_file: StudyFile,
    options: RunOptions,
    *,
    consent: Consent | None = None,
    preview: bool = False,
) -> RunEstimate:
    """Print what a run of this study would do, and return the estimate.

    Raises InputError with every problem, including those that only the dry run finds.
    """
    # If `consent` is None, the actions of the study file are only listed.
    if preview and study_file.study.preview is None:
        raise InputError(f"--preview: the study type {study_file.study.name} has no preview")
    notices = read_notices(study_file, options, consent)
    # These lines come before the dry run, so that they are seen even if it fails.
    print_models_note(console, study_file)
    for action in notices.cautions:
        console.print(f"[yellow]Caution:[/] this file {_terminal_text(action)}", soft_wrap=True)
    if notices.language:
        console.print(f"[yellow]Language:[/] {_terminal_text(notices.language)}", soft_wrap=True)
    for variables in notices.missing_keys:
        console.print(
            f"[yellow]No key:[/] set {_terminal_text(variables)} in the environment or in .env "
            "before you run this study.",
            soft_wrap=True,
        )
    check = check_study_file(study_file, options, notices)
    # Settings that were given in Python have the path of a file that does not exist.
    place = _terminal_text(check.file) if study_file.path.is_file() else "the settings"
    title = _terminal_text(check.title)
    console.print(f"[green]No problems[/] in {place} ({title})", soft_wrap=True)
    for warning in check.warnings:
        console.print(f"[yellow]Warning:[/] {_terminal_text(str(warning))}", soft_wrap=True)
    for note in check.notes:
        console.print(f"[cyan]Note:[/] {_terminal_text(note)}", soft_wrap=True)
    if preview:
        _print_preview(console, study_file)
    if check.estimate.stages:
        console.print("", GridView(_stage_table(check.estimate)), "", sep="\n", crop=False)
    for fact in check.facts:
        console.print(f"{fact.name:<10}{_terminal_text(fact.text)}", soft_wrap=True)
    return check.estimate


def _terminal_text(text: str) -> str:
    return escape(without_hidden(text))


def print_models_note(console: Console, study_file: StudyFile) -> None:
    """Print the note on which models were chosen for the study, if there is such a note."""
    # Prints nothing if there is no note.
    if study_file.models_note:
        console.print(
            f"[yellow]Models:[/] {_terminal_text(study_file.models_note)}", soft_wrap=True
        )


def _print_preview(console: Console, study_file: StudyFile) -> None:
    assert study_file.study.preview is not None
    for preview in study_file.study.preview(study_file.config, study_file.prompt_library()):
        console.print(f"[bold cyan]{_terminal_text(preview.title)}[/]", soft_wrap=True)
        for role, text in preview.messages:
            console.print(f"[bold]{role}[/]\n{_terminal_text(text)}\n", soft_wrap=True)
        for image in preview.images:
            console.print(
                f"[cyan]Sent as an image:[/] {_terminal_text(image)}",
                soft_wrap=True,
            )
        if preview.note:
            console.print(f"[cyan]Note:[/] {_terminal_text(preview.note)}", soft_wrap=True)
        console.print()


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
    """Write the template of a study type into a folder."""
    # Existing files are never overwritten.
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
    """Return the shipped example files, as a map from path to content.

    The paths are `examples/…` and `config/pilot.yaml`.
    """
    # They are read from the installed package, or from the repository in a clone.
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
    """Write the JSON Schema of one study type, or of all study types."""
    # Existing files are replaced.
    folder = folder or Path()
    _require_folder_name(folder)
    studies = load_installed_studies()[0] if kind is None else [find_study(kind)]
    for study in studies:
        path = folder / schema_file_name(study)
        write_bytes(path, schema_text(study).encode())
        output_console().print(f"wrote {escape(str(path))}", soft_wrap=True)


def polis_command(kind: str, folder: Path | None, polis: Path, statement: str | None) -> None:
    """Write a study that is made from an exported Polis conversation.

    - `statement`: the comment on which participants vote, or None for the most divisive comment.
    """
    from folkmoot.kit.polis import read_polis

    # Existing files are never overwritten.
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
    """Convert a file of a different program, such as a Qualtrics survey, into a study.

    Prints the parts of the file that the study lacks.
    """
    # Existing files are never overwritten.
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
    """Write a study that replays an experiment with humans. `table` holds the humans' answers."""
    from folkmoot.studies.replay.writing import files_of_replay

    _write_new(files_of_replay(table), folder)


def _require_folder_name(folder: Path) -> None:
    # A folder called `mine.yaml` would be taken for the study file in it.
    if folder.suffix.lower() in FILE_SUFFIXES and not folder.is_dir():
        hint = f"name the folder, such as {folder.with_suffix('')}"
        raise InputError(
            Problem("is the name of a file; a folder is needed", str(folder), hint=hint)
        )


def _write_new(files: Mapping[str, str | bytes], folder: Path) -> None:
    _require_folder_name(folder)
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
    check, run = (escape(command_line(name, folder / first_file)) for name in ("check", "run"))
    console.print(f"\nCheck it: {check}\nRun it:   {run}")


def _list_kinds() -> None:
    studies, problems = load_installed_studies()
    table = Table.grid(padding=(0, 3))
    for study in studies:
        table.add_row(escape(study.name), _terminal_text(study.question or study.title))
    output_console().print(table)
    output_console().print("\nStart with one: folkmoot new KIND [FOLDER]")
    output_console().print("All examples of the documentation: folkmoot new examples [FOLDER]")
    for problem in problems:
        print_warning(str(problem))
