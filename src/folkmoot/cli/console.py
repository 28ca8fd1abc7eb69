"""Where the command line prints, and where errors become exit codes."""

from __future__ import annotations

import functools
import itertools
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from folkmoot.errors import (
    EXIT_INPUT,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    BudgetReachedError,
    FolkmootError,
    InputError,
    Problem,
    RunInterruptedError,
    RunPausedError,
)
from folkmoot.hidden_characters import without_hidden

P = ParamSpec("P")
R = TypeVar("R")


def output_console() -> Console:
    """Results go to standard output."""
    return Console(highlight=False)


def error_console() -> Console:
    """Progress, warnings and errors go to standard error."""
    return Console(stderr=True, highlight=False)


def with_error_handling(command: Callable[P, R]) -> Callable[P, R]:
    """Run a command; what it raises becomes a message on standard error and an exit code.

    Expected errors show no traceback; that of an unexpected one goes into a file.
    """

    @functools.wraps(command)
    def run_with_error_handling(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except FolkmootError as error:
            _exit_if_authors_mistake(error)
            show_error(error)
            raise typer.Exit(error.exit_code) from error
        except RunInterruptedError as error:
            _say_interrupted()
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except KeyboardInterrupt as error:
            error_console().print("\n[yellow]Interrupted.[/]")
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            _exit_if_authors_mistake(error)
            _report_unforeseen_error(error)
            raise typer.Exit(EXIT_INTERNAL) from error

    return run_with_error_handling


def end_now() -> NoReturn:
    """End the process, whatever it is doing: what is journaled is safe at any moment."""
    with suppress(OSError):  # the terminal may be gone
        error_console().show_cursor()
        _say_interrupted()
        sys.stderr.flush()
    os._exit(EXIT_INTERRUPTED)


def _say_interrupted() -> None:
    with suppress(OSError):
        error_console().print("\n[yellow]Interrupted.[/] All answers so far are saved.")
        _resume_hint()


def show_error(error: FolkmootError) -> None:
    """Print an error: one line for each problem, and how to resume."""
    console = error_console()
    if isinstance(error, InputError):
        _show_problems(console, error.problems)
    elif isinstance(error, RunPausedError):
        console.print(f"[yellow]Paused:[/] {escape(clean_and_redact(str(error)))}", soft_wrap=True)
        _resume_hint(_budget_of(error))
        console.print(
            "The tables so far have been written; `folkmoot report` shows them, marked as partial.",
            soft_wrap=True,
        )
    else:
        console.print(f"[red]Error:[/] {escape(clean_and_redact(str(error)))}", soft_wrap=True)


def print_warning(message: str) -> None:
    """Print a warning."""
    error_console().print(
        f"[yellow]Warning:[/] {escape(remove_control_characters(message))}", soft_wrap=True
    )


def resume_line(argv: Sequence[str], more: Sequence[str] = ()) -> str:
    """The command that resumes the run that `argv` started. A key is never repeated.

    `more` are words that a used-up budget needs in place of the old one (`--budget MORE`, `--set
    budget_calls=MORE`).
    """
    dropped = ["--resume", "--key ", *([" ".join(more).removesuffix("MORE")] if more else ())]
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        option = [word, next(words, "")] if word in ("--key", "--budget", "--set") else [word]
        said = " ".join(option) if option[1:] else word.replace("=", " ", 1)
        if not said.startswith(tuple(dropped)):
            kept += option
    return shlex.join(["folkmoot", *kept, *more, "--resume"])


def _budget_of(error: RunPausedError) -> list[str]:
    """The option that must be raised before a run without budget can resume."""
    if not isinstance(error, BudgetReachedError):
        return []
    if "budget_calls" in str(error):
        return ["--set", "budget_calls=MORE"]
    return ["--budget", "MORE"]


def remove_control_characters(text: str) -> str:
    """Text without the characters by which a model or a file could move the cursor or turn the
    direction of reading."""
    return without_hidden(text)


def clean_and_redact(text: str) -> str:
    """`remove_control_characters`, and without any API key, be it from the environment or from
    `--key`."""
    from folkmoot.models.api_keys import redact_keys

    words = sys.argv[1:]
    given = [after for word, after in itertools.pairwise(words) if word == "--key"]
    given += [word.removeprefix("--key=") for word in words if word.startswith("--key=")]
    return remove_control_characters(redact_keys(text, given))


def _show_problems(console: Console, problems: Sequence[Problem]) -> None:
    count = len(problems)
    console.print("[red]1 mistake:[/]" if count == 1 else f"[red]{count} mistakes:[/]")
    for problem in problems:
        line = Text("  ")
        place = ":".join(part for part in (problem.file, problem.where) if part)
        if place:
            line.append(remove_control_characters(place), style="cyan").append(": ")
        if problem.key:
            line.append(remove_control_characters(problem.key), style="bold").append(": ")
        line.append(clean_and_redact(problem.message))
        if problem.hint:
            line.append(f" ({clean_and_redact(problem.hint)})", style="green")
        console.print(line, soft_wrap=True)


def _resume_hint(more: Sequence[str] = ()) -> None:
    if len(sys.argv) > 1 and sys.argv[1] in ("run", "codes"):
        line = resume_line(sys.argv[1:], more)
        if sys.argv[1] == "codes":  # the same command resumes a coding
            line = line.removesuffix(" --resume")
        line = escape(line)
        error_console().print(f"Resume with:\n  [bold]{line}[/]", soft_wrap=True)


def _exit_if_authors_mistake(error: Exception) -> None:
    """Exit with 2 for a mistake in a user's own study code, and say where its traceback is."""
    from folkmoot.engine.settings.author_errors import (
        find_author_error,  # slow to import, needed after errors only
    )

    if (mistake := find_author_error(error)) is None:
        return
    _show_problems(error_console(), [mistake])
    error_console().print(f"The traceback is in {_traceback_file(error)}.", soft_wrap=True)
    raise typer.Exit(EXIT_INPUT) from error


def _traceback_file(error: Exception) -> Path:
    with tempfile.NamedTemporaryFile(
        "w", prefix="folkmoot-error-", suffix=".log", delete=False, encoding="utf-8"
    ) as file:
        file.write(clean_and_redact("".join(traceback.format_exception(error))))
    return Path(file.name)


def _report_unforeseen_error(error: Exception) -> None:
    file = _traceback_file(error)
    what = clean_and_redact(f"{type(error).__name__}: {error}")
    console = error_console()
    console.print(f"[red]Internal error:[/] {escape(what)}", soft_wrap=True)
    console.print(f"Please report it, with the file {file}.", soft_wrap=True)
