"""`folkmoot view` and `folkmoot studio`: serve pages on this machine until Ctrl-C."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path

from rich.markup import escape

from folkmoot.cli.console import error_console, output_console
from folkmoot.storage.run_folder import OUTPUTS
from folkmoot.studio.serving import serve_studio
from folkmoot.view.pages import serve_reader


def view_command(folder: Path | None, host: str, port: int, token: bool) -> None:
    """Print an address, and serve the pages of a folder of runs there until Ctrl-C."""
    path = folder or OUTPUTS
    if not path.exists() and (OUTPUTS / path).is_dir():
        path = OUTPUTS / path

    def print_address(address: str) -> None:
        output_console().print(f"Reading {escape(str(path))} at {escape(address)}", soft_wrap=True)
        error_console().print(
            "[dim]Press Ctrl-C to stop. The viewer changes nothing in the folder.[/]"
        )

    # Ctrl-C is the normal end of the server, so it is no error.
    with suppress(KeyboardInterrupt):
        serve_reader(path, host, port, token=token, tell=print_address)


def studio_command(folder: Path | None, host: str, port: int, open_in_browser: bool) -> None:
    """Print an address, and serve the studio for a folder of studies there until Ctrl-C."""
    # The address contains the token.
    path = folder or Path()

    def print_address(address: str) -> None:
        path_text = escape(str(path.resolve()))
        output_console().print(f"The studio of {path_text} is at {escape(address)}", soft_wrap=True)
        error_console().print(
            "[dim]Press Ctrl-C to stop. Runs that the studio started continue.[/]"
        )
        if open_in_browser:
            webbrowser.open(address)

    # Ctrl-C is the normal end of the server, so it is no error.
    with suppress(KeyboardInterrupt):
        serve_studio(path, host, port, print_address)
