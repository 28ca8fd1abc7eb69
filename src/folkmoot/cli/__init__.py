"""The command line, `folkmoot`. No other package imports this package.

- `app`: the commands and their options. Start here.
- `results_app` and `personas_app`: the commands for finished runs and for personas.
- `results`, `show` and the other topics: the functions that the commands call.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from contextlib import suppress

# See `folkmoot/__init__.py`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# `folkmoot.errors` has the same number, but takes long to import.
_EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the `folkmoot` command."""
    # Before a command begins and after it has ended, there is nothing to clean up. An exception in
    # the middle of imports would print a traceback.
    _set_interrupt_handler(signal.default_int_handler, _end_quietly)
    _require_utf8_mode()
    try:
        _run_command()
    finally:
        _set_interrupt_handler(signal.default_int_handler, _end_quietly)


def raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt in the command that begins now."""
    _set_interrupt_handler(_end_quietly, signal.default_int_handler)


def _set_interrupt_handler(before: object, after: Callable[..., object]) -> None:
    # Only in place of the handler `before`: in a job of a script, Ctrl-C is ignored, and programs
    # that use this package have their own handlers.
    if signal.getsignal(signal.SIGINT) is before:
        signal.signal(signal.SIGINT, after)


def _end_quietly(_number: int, _frame: object) -> None:
    for stream in (sys.stdout, sys.stderr):
        # The signal may have come in the middle of a write.
        with suppress(Exception):
            stream.flush()
    os._exit(_EXIT_INTERRUPTED)


def _require_utf8_mode() -> None:
    # With another encoding of file names, Python and the libraries for tables disagree on them, and
    # the words of a command are read as other characters. Child processes inherit the mode.
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _run_command() -> None:
    # Objects that modules create at import live until the end of the process. The garbage collector
    # would scan them about twenty times during import and once at exit. That takes a third of a
    # second of a short run, so it runs rarely here and not at exit.
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        # Names and texts of models may hold characters that the encoding of the terminal lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Tests import `folkmoot.cli` as well and need no commands, so the import is not at module
    # level.
    from folkmoot.cli.app import app

    app()
