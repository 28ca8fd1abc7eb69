"""The command line, `folkmoot`. No other package imports this package.

- `app`: the commands and their options. Start here.
- `results_app` and `personas_app`: the commands for finished runs and for personas.
- `results`, `show` and the other topics: the functions that the commands call.
"""

from __future__ import annotations

import atexit
import gc
import io
import sys


def main() -> None:
    """Run the `folkmoot` command."""
    # Objects that modules create at import live until the end of the process. The garbage collector
    # would scan them about twenty times during import and once at exit. That takes a third of a
    # second of a short run, so it runs rarely here and not at exit.
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        # Names and texts of models may hold characters that the encoding of the terminal lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Tests import `folkmoot.cli` as well and need no commands, so the import is not at module
    # level.
    from folkmoot.cli.app import app

    app()
