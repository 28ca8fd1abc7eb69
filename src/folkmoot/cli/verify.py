"""`folkmoot verify RUN`: what of a run is not as the run left it."""

from __future__ import annotations

import typer
from rich.markup import escape

from folkmoot.cli.console import clean, out
from folkmoot.cli.show import find_run
from folkmoot.engine.verify import verify_run
from folkmoot.errors import EXIT_DIFFERS
from folkmoot.measures.estimates import plural


def verify_command(name: str) -> None:
    """Print what differs and what could not be compared; exit 4 if there is any of it."""
    run = find_run(name)
    found = verify_run(run)
    console = out()
    for title, lines in (
        (f"[red]{plural(len(found.differences), 'difference')}:[/]", found.differences),
        ("[yellow]Not compared:[/]", found.not_compared),
    ):
        if lines:
            console.print(title)
        for line in lines:
            console.print(f"  {escape(clean(line))}", soft_wrap=True)
    compared = ", ".join(
        (
            plural(found.entries, "journal entry", "journal entries"),
            plural(found.tables, "table"),
            plural(found.files, "file"),
        )
    )
    said = "[green]Verified[/]" if found.verified else "Compared"
    console.print(f"{said}: {escape(str(run.path))}, {compared}.", soft_wrap=True)
    if found.journal_digest:
        console.print(f"Digest of the journal: {found.journal_digest}", soft_wrap=True)
    if not found.verified:
        raise typer.Exit(EXIT_DIFFERS)
