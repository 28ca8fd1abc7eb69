"""`folkmoot view` and `folkmoot studio`: serve pages on this machine until Ctrl-C."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.console import err, out
from folkmoot.storage.run_folder import OUTPUTS
from folkmoot.studio.serving import serve_studio
from folkmoot.view.server import serve_reader


def view_command(folder: Path | None, host: str, port: int, token: bool) -> None:
    """Serve a folder of runs until Ctrl-C; print the address."""
    path = folder or OUTPUTS
    if not path.exists() and (OUTPUTS / path).is_dir():
        path = OUTPUTS / path

    def tell(address: str) -> None:
        out().print(f"Reading {escape(str(path))} at {escape(address)}", soft_wrap=True)
        err().print("[dim]Ctrl-C ends it. Nothing in the folder is changed.[/]")

    with suppress(KeyboardInterrupt):  # the way in which it ends
        serve_reader(path, host, port, token=token, tell=tell)


def studio_command(folder: Path | None, host: str, port: int, is_opened: bool) -> None:
    """Serve a folder of studies until Ctrl-C; print the address, which holds the token."""
    path = folder or Path()

    def tell(address: str) -> None:
        where = escape(str(path.resolve()))
        out().print(f"The studio of {where} is at {escape(address)}", soft_wrap=True)
        err().print("[dim]Ctrl-C ends it. Runs that it started go on.[/]")
        if is_opened:
            webbrowser.open(address)

    with suppress(KeyboardInterrupt):  # the way in which it ends
        serve_studio(path, host, port, tell)
