"""The command line, `folkmoot`. Commands are thin: they parse, call, and print."""

from __future__ import annotations

import atexit
import gc
import io
import sys


def main() -> None:
    """Entry point of the `folkmoot` command."""
    # What modules make as they load lives until the end. Walking it, some twenty times while they
    # load and once more at exit, would take a third of a second of a short run.
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names and models' words hold any character
            stream.reconfigure(errors="replace")
    from folkmoot.cli.app import app  # not at import: `folkmoot.cli` is imported by tests too

    app()
