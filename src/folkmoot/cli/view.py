"""`folkmoot view`: serve the pages on which runs are read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.console import error_console, output_console
from folkmoot.storage.run_folder import OUTPUTS
from folkmoot.view.server import serve_reader


def view_command(folder: Path | None, host: str, port: int, token: bool) -> None:
    """Serve a folder of runs until Ctrl-C; print the address."""
    path = folder or OUTPUTS
    if not path.exists() and (OUTPUTS / path).is_dir():
        path = OUTPUTS / path

    def print_address(address: str) -> None:
        output_console().print(f"Reading {escape(str(path))} at {escape(address)}", soft_wrap=True)
        error_console().print("[dim]Ctrl-C ends it. Nothing in the folder is changed.[/]")

    with suppress(KeyboardInterrupt):  # the way in which it ends
        serve_reader(path, host, port, token=token, tell=print_address)
