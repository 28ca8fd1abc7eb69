"""The command line, `folkmoot`. Commands are thin: they parse, call, and print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `folkmoot` command."""
    from folkmoot.cli.app import app  # not at import: `folkmoot.cli` is imported by tests too

    app()
