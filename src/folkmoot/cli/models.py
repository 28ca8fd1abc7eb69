"""`folkmoot models`: list models with prices and keys, or try each model with one call."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from folkmoot.cli.console import (
    error_console,
    output_console,
    print_warning,
)
from folkmoot.cli.run import KEY_WARNING
from folkmoot.errors import EXIT_INPUT, FolkmootError, InputError
from folkmoot.hidden_characters import without_hidden
from folkmoot.models.api_keys import redact_keys
from folkmoot.models.call_llm import (
    DEFAULT_LISTED_MODELS,
    ModelListing,
    call_llm,
    list_models,
    try_models,
)
from folkmoot.models.catalog import (
    KNOWN_MODELS,
    LOCAL_MODEL,
    SYNTHETIC_MODEL,
    VENDORS,
    resolve_model,
)
from folkmoot.models.prices import find_price

QUESTION = "Which is larger, the sun or the moon? Answer with one word."


def models_command(
    names: Sequence[str], is_trying: bool, key: str | None, base_url: str | None
) -> None:
    """List the named models, or try each named model with one call."""
    # Without names, all models with a short name are listed.
    endpoints = dict.fromkeys(names, base_url) if base_url else {}
    if base_url and not names:
        raise InputError("--base-url needs the name of a model, e.g. openai/my-model")
    if key:
        print_warning(KEY_WARNING)
    if is_trying and len(names) == 1:
        _ask_one(names[0], key, base_url)
    elif is_trying:
        error_console().print("[dim]Making one small call to each model with a key …[/]")
        _print_tried(try_models(names or DEFAULT_LISTED_MODELS, endpoints))
    else:
        _print_list(
            list_models(
                names or tuple(dict.fromkeys((*DEFAULT_LISTED_MODELS, *KNOWN_MODELS))), endpoints
            )
        )


def _print_list(listings: Sequence[ModelListing]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    table.add_column("$ in", justify="right")
    table.add_column("$ out", justify="right")
    table.add_column("key")
    for listing in listings:
        table.add_row(escape(listing.name), *_format_price(listing), _format_key_state(listing))
    console = output_console()
    console.print(table)
    console.print("$: US dollars per million tokens. All others are [bold]provider/model[/], with:")
    console.print("  " + ", ".join(VENDORS))
    console.print(
        "Your own server: [bold]openai/<model>[/], with its URL under `endpoints:` in the study "
        "file.\nTry all: folkmoot models --try. Try one: folkmoot models MODEL --try",
        soft_wrap=True,
    )


def _print_tried(listings: Sequence[ModelListing]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    table.add_column("asked at", overflow="fold")
    table.add_column("result", overflow="fold")
    for listing in listings:
        table.add_row(escape(listing.name), escape(listing.base_url), _format_result(listing))
    output_console().print(table)
    if any(listing.ok is False for listing in listings):
        raise typer.Exit(EXIT_INPUT)


def _format_result(listing: ModelListing) -> Text:
    if listing.ok is None:
        return Text(
            f"not tried: {listing.error or f'{listing.key_variable} is not set'}", style="dim"
        )
    if listing.ok:
        return Text(f"answers, {listing.latency_s or 0:.2f} s", style="green")
    return Text(without_hidden(redact_keys(listing.error)), style="red")


def _format_price(listing: ModelListing) -> tuple[str, str]:
    rate = find_price(resolve_model(listing.canonical))
    if rate is None:
        return "unknown", "unknown"
    if resolve_model(listing.canonical).provider in (SYNTHETIC_MODEL, LOCAL_MODEL):
        return "0", "0"
    return f"{rate.input_usd * 1e6:,.2f}", f"{rate.output_usd * 1e6:,.2f}"


def _format_key_state(listing: ModelListing) -> str:
    if listing.key_set:
        return f"[green]{escape(listing.key_variable)} is set[/]"
    if listing.usable:
        return "[green]none needed[/]"
    if listing.error:
        return f"[dim]{escape(listing.error)}[/]"
    return f"[dim]{escape(listing.key_variable)} is not set[/]"


def _ask_one(name: str, key: str | None, base_url: str | None) -> None:
    console = output_console()
    console.print(f"[dim]Asking {escape(name)}:[/] {escape(QUESTION)}", soft_wrap=True)
    try:
        text = call_llm(name, [], QUESTION, base_url=base_url, api_key=key)
    except InputError:
        raise
    except FolkmootError as error:
        console.print(
            f"[red]{escape(without_hidden(redact_keys(str(error), [key])))}[/]",
            soft_wrap=True,
        )
        raise typer.Exit(EXIT_INPUT) from error
    console.print(f"[bold]{escape(without_hidden(text))}[/]")
