"""The consoles of the command line, and the translation of errors into exit codes."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from folkmoot.cli import raise_interrupts
from folkmoot.errors import (
    EXIT_INPUT,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    BudgetReachedError,
    FatalModelError,
    FolkmootError,
    InputError,
    NothingUsableError,
    Problem,
    RunInterruptedError,
    RunPausedError,
    StorageError,
    UnknownCostError,
)
from folkmoot.files import explain_file_error
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import command_line

P = ParamSpec("P")
R = TypeVar("R")

# The options that resume a run without its budget in USD. A budget of calls takes its place.
NO_USD_BUDGET = ("--set", "budget_usd=null", "--set", "budget_calls=MORE")


def output_console() -> Console:
    """Return the console for results, which writes to standard output."""
    return Console(highlight=False)


def error_console() -> Console:
    """Return the console for progress, warnings and errors, which writes to standard error."""
    return Console(stderr=True, highlight=False)


class _StartedRun:
    # The folder of the run or grid that the present command has started, or None.
    folder: Path | None = None
    # True for a grid, which has tables only in its cells.
    is_grid: bool = False


def note_started_run(folder: Path, *, is_grid: bool) -> None:
    """Record which run or grid the command has started, for messages when it stops."""
    # Runs that follow, such as those of cells and controls, are inside this folder.
    if _StartedRun.folder is None:
        _StartedRun.folder, _StartedRun.is_grid = folder, is_grid


def with_error_handling(command: Callable[P, R]) -> Callable[P, R]:
    """Decorate a command: the command then prints its errors and ends with an exit code."""
    # Expected errors show no traceback. The traceback of an unexpected error is written to a file.

    @functools.wraps(command)
    def run_with_error_handling(*args: P.args, **kwargs: P.kwargs) -> R:
        _StartedRun.folder = None
        try:
            raise_interrupts()
            return command(*args, **kwargs)
        except FolkmootError as error:
            _exit_on_author_error(error)
            show_error(error)
            # The results of a finished run tell its cost.
            if not isinstance(error, NothingUsableError):
                _print_spending()
            raise typer.Exit(error.exit_code) from error
        except RunInterruptedError as error:
            _print_interrupted()
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except KeyboardInterrupt as error:
            error_console().print("\n[yellow]Interrupted.[/]")
            raise typer.Exit(EXIT_INTERRUPTED) from error
        # Typer turns these into exit codes itself.
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            _exit_on_author_error(error)
            if (file_error := explain_file_error(error)) is not None:
                show_error(file_error)
                raise typer.Exit(file_error.exit_code) from error
            _report_internal_error(error)
            raise typer.Exit(EXIT_INTERNAL) from error

    return run_with_error_handling


def end_now() -> NoReturn:
    """End the process at once, without waiting for calls in flight."""
    # No reply is lost, because the journal already holds all replies.
    # The terminal may be gone.
    with suppress(OSError):
        error_console().show_cursor()
        _print_interrupted()
        sys.stderr.flush()
    # A normal exit would wait for threads that may be blocked in a call.
    os._exit(EXIT_INTERRUPTED)


def _print_interrupted() -> None:
    with suppress(OSError):
        spent = _read_spending()
        lost_calls = "" if spent is None else spent[1]
        saved = "All answers that arrived are saved." if lost_calls else _ALL_SAVED
        error_console().print(f"\n[yellow]Interrupted.[/] {saved}", soft_wrap=True)
        if spent is not None:
            _print_amount(spent[0])
        _resume_hint()


_ALL_SAVED = "All answers so far are saved."


def _print_spending() -> None:
    # What the run, its cells and its controls have cost, if they have cost anything.
    spent = _read_spending()
    if spent is not None:
        _print_amount(spent[0])


def _print_amount(spending: str) -> None:
    error_console().print(f"Paid so far: {escape(spending)}.", soft_wrap=True)


def _read_spending() -> tuple[str, str] | None:
    # The cost of the run that the command has started, in words, and the part of it that is
    # uncertain. None if it has cost nothing.
    folder = _StartedRun.folder
    if folder is None:
        return None
    # This module is slow to import and needed only if a run has stopped.
    from folkmoot.engine.session.run_totals import (
        describe_spending,
        describe_uncertain_calls,
        spent_below,
    )

    # The message is more important than a complete sum.
    with suppress(FolkmootError, OSError):
        spent = spent_below(folder)
        uncertain = describe_uncertain_calls(spent)
        if uncertain or spent.usd > 0 or spent.unpriced:
            return describe_spending(spent), uncertain
    return None


def show_error(error: FolkmootError) -> None:
    """Print an error, its problems, and the command to resume the run."""
    console = error_console()
    if isinstance(error, InputError):
        _show_problems(console, error.problems)
    elif isinstance(error, RunPausedError):
        console.print(f"[yellow]Paused:[/] {escape(clean_and_redact(str(error)))}", soft_wrap=True)
        _resume_hint(_budget_of(error))
        console.print(_describe_report(error), soft_wrap=True)
    else:
        console.print(f"[red]Error:[/] {escape(clean_and_redact(str(error)))}", soft_wrap=True)
        # A key may be revoked in the middle of a run that was paid for.
        if isinstance(error, FatalModelError) and _StartedRun.folder is not None:
            console.print(f"{_ALL_SAVED} The run can go on when the cause is removed.")
            # The budget in USD is the cause. A resume with it is refused.
            _resume_hint(NO_USD_BUDGET if isinstance(error, UnknownCostError) else ())
        # A full disk may have lost replies, but the run goes on where the files end.
        elif isinstance(error, StorageError) and _StartedRun.folder is not None:
            _resume_hint()


def _describe_report(error: RunPausedError) -> str:
    if not error.has_partial_report:
        return "`folkmoot report` shows controls and codings when they are complete."
    if _StartedRun.is_grid and _StartedRun.folder is not None:
        return "The cells keep their answers. `folkmoot report` shows the cells that have finished."
    return "The tables hold the results so far. `folkmoot report` shows them, marked as partial."


def print_warning(message: str) -> None:
    error_console().print(f"[yellow]Warning:[/] {escape(without_hidden(message))}", soft_wrap=True)


def resume_line(argv: Sequence[str], added_options: Sequence[str] = ()) -> str:
    """Return the command that resumes a run.

    - `argv`: the arguments of the command that started the run.
    - `added_options`: options with new values, such as a larger budget. They replace the same
      options in `argv`.
    """
    # The API key is left out.
    dropped_options = ["--resume", "--key "]
    for name, value in _split_options(added_options):
        key = value.partition("=")[0]
        # `--budget` and the key `budget_usd` set the same budget.
        if name == "--budget" or key == "budget_usd":
            dropped_options += ["--budget ", "--set budget_usd="]
        else:
            dropped_options.append(f"{name} {key}=")
    kept_words: list[str] = []
    for option in _split_options(argv):
        option_text = " ".join(option) if option[1:] else option[0].replace("=", " ", 1)
        if not option_text.startswith(tuple(dropped_options)):
            kept_words += option
    # Of the commands that can be resumed, only `run` has the option `--set`.
    can_add = argv[0] == "run" or "--set" not in added_options
    return command_line(*kept_words, *(added_options if can_add else ()), "--resume")


def _split_options(argv: Sequence[str]) -> Iterator[list[str]]:
    # These options take the next word as their value, so both are kept or dropped together.
    words = iter(argv)
    for word in words:
        has_value = word in ("--key", "--budget", "--set", "--concurrency")
        yield [word, next(words, "")] if has_value else [word]


def _budget_of(error: RunPausedError) -> list[str]:
    if not isinstance(error, BudgetReachedError):
        return []
    if error.is_of_calls:
        return ["--set", "budget_calls=MORE"]
    return ["--budget", "MORE"]


def clean_and_redact(text: str) -> str:
    """Return a text without control characters and API keys."""
    # The API keys are those in the environment and that of the option `--key`.
    from folkmoot.models.api_keys import redact_keys

    words = sys.argv[1:]
    keys = [next_word for word, next_word in itertools.pairwise(words) if word == "--key"]
    keys += [word.removeprefix("--key=") for word in words if word.startswith("--key=")]
    return without_hidden(redact_keys(text, keys))


def _show_problems(console: Console, problems: Sequence[Problem]) -> None:
    count = len(problems)
    console.print("[red]1 problem:[/]" if count == 1 else f"[red]{count} problems:[/]")
    for problem in problems:
        line = Text("  ")
        location = ":".join(part for part in (problem.file, problem.where) if part)
        if location:
            line.append(without_hidden(location), style="cyan").append(": ")
        if problem.key:
            line.append(without_hidden(problem.key), style="bold").append(": ")
        line.append(clean_and_redact(problem.message))
        if problem.hint:
            line.append(f" ({clean_and_redact(problem.hint)})", style="green")
        console.print(line, soft_wrap=True)


def _resume_hint(added_options: Sequence[str] = ()) -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "fork" and _StartedRun.folder is not None:
        # The plan of the fork holds the address and the change. It holds no budget.
        words = ["fork", str(_StartedRun.folder), *_call_options(sys.argv[1:])]
        line = escape(resume_line(words, added_options))
        error_console().print(f"Resume with:\n  [bold]{line}[/]", soft_wrap=True)
    elif len(sys.argv) > 1 and sys.argv[1] in ("run", "codes", "controls", "personas"):
        line = resume_line(sys.argv[1:], added_options)
        # The same command resumes a coding, controls or the making of personas.
        if sys.argv[1] != "run":
            line = line.removesuffix(" --resume")
        line = escape(line)
        error_console().print(f"Resume with:\n  [bold]{line}[/]", soft_wrap=True)
    elif len(sys.argv) > 1 and sys.argv[1] == "try" and _StartedRun.folder is not None:
        # A trial has no command that goes on with it.
        line = escape(command_line("show", _StartedRun.folder))
        error_console().print(
            f"A trial cannot be resumed. Its answers are in a temporary folder:\n  [bold]{line}[/]",
            soft_wrap=True,
        )


def _call_options(argv: Sequence[str]) -> list[str]:
    # The options that a resumed fork needs again.
    return [
        word
        for option in _split_options(argv)
        if option[0].partition("=")[0] in ("--budget", "--concurrency")
        for word in option
    ]


def _exit_on_author_error(error: Exception) -> None:
    # A mistake in a user's study code ends with code 2, like a wrong study file.
    # This module is slow to import and needed only after an error.
    from folkmoot.engine.settings.author_errors import find_author_error

    if (problem := find_author_error(error)) is None:
        return
    _show_problems(error_console(), [problem])
    error_console().print(f"The traceback is in {_traceback_file(error)}.", soft_wrap=True)
    _print_spending()
    raise typer.Exit(EXIT_INPUT) from error


def _traceback_file(error: Exception) -> Path:
    # The file must outlive the process, so that the user can attach it to a bug report.
    with tempfile.NamedTemporaryFile(
        "w", prefix="folkmoot-error-", suffix=".log", delete=False, encoding="utf-8"
    ) as file:
        file.write(clean_and_redact("".join(traceback.format_exception(error))))
    return Path(file.name)


def _report_internal_error(error: Exception) -> None:
    file = _traceback_file(error)
    description = clean_and_redact(f"{type(error).__name__}: {error}")
    console = error_console()
    console.print(f"[red]Internal error:[/] {escape(description)}", soft_wrap=True)
    console.print(f"Please report it, with the file {file}.", soft_wrap=True)
    _print_spending()
