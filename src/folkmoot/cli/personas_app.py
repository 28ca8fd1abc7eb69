"""The commands of `folkmoot personas`, with the options of these commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.console import with_error_handling
from folkmoot.cli.options import EXIT_CODES, POOL, BudgetOpt, KeyOpt, ModelOpt, PoolOpt, SeedOpt

app = typer.Typer(
    name="personas",
    help="Manage the pool of personas: fetch, build, migrate, list.",
    no_args_is_help=True,
)


@app.command("fetch")
@with_error_handling
def personas_fetch(
    url: Annotated[str | None, typer.Option("--url", help="Download from this address.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Download again.")] = False,
) -> None:
    """Download the base personas of persona-hub into the cache."""
    from folkmoot.cli.personas import fetch_command

    fetch_command(url, refresh)


@app.command("build", epilog=EXIT_CODES)
@with_error_handling
def personas_build(
    count: Annotated[int, typer.Argument(min=1, help="How many personas to create.")],
    source: Annotated[
        str, typer.Option("--source", help="Source: quota, grounded, table or persona_hub.")
    ] = "quota",
    file: Annotated[
        Path | None, typer.Option("--file", help="Table of people, or a local persona-hub file.")
    ] = None,
    pool: PoolOpt = POOL,
    model: ModelOpt = None,
    seed: SeedOpt = None,
    budget: BudgetOpt = None,
    key: KeyOpt = None,
) -> None:
    """Create personas and add them to the pool."""
    from folkmoot.cli.personas import build_command
    from folkmoot.engine.run.execution import RunOptions

    options = RunOptions(model=model, seed=42 if seed is None else seed, budget=budget, key=key)
    build_command(count, source, file, pool, options)


@app.command("migrate")
@with_error_handling
def personas_migrate(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders; omit them for all under outputs/.")
    ] = None,
    pool: PoolOpt = POOL,
) -> None:
    """Add the personas of earlier runs to the pool."""
    from folkmoot.cli.personas import migrate_command

    migrate_command(list(runs or ()), pool)


@app.command("list")
@with_error_handling
def personas_list(
    pool: PoolOpt = POOL,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many to list.")] = 20,
) -> None:
    """List the personas of the pool."""
    from folkmoot.cli.personas import list_command

    list_command(pool, limit)
