"""`folkmoot models`: what can answer, at what price, with which key; `--try` asks one."""

from __future__ import annotations

import asyncio
import time

from rich import box
from rich.markup import escape
from rich.table import Table

from folkmoot.cli.console import clean, out, warn
from folkmoot.cli.run import KEY_WARNING
from folkmoot.models.catalog import KNOWN, LOCAL, VENDORS, ModelSpec, open_provider, resolve
from folkmoot.models.keys import environment, find_key, key_for
from folkmoot.models.prices import cost_of, rate_for
from folkmoot.models.request import Message, ProviderSettings, Reply, Request

QUESTION = "Please answer with one word: which is larger, the sun or the moon?"


def models_command(name: str | None, key: str | None, base_url: str | None) -> None:
    """List models, or try one."""
    if name is None:
        _list_models()
        return
    if key:
        warn(KEY_WARNING)
    _try_model(name, key, base_url)


def _list_models() -> None:
    environ = environment()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    table.add_column("$ in", justify="right")
    table.add_column("$ out", justify="right")
    table.add_column("key", no_wrap=True)
    table.add_row(LOCAL, "0", "0", "[green]none needed[/]")
    for name in KNOWN:
        spec = resolve(name, {}, environ)
        table.add_row(name, *_price(spec), _key(spec, environ))
    console = out()
    console.print(table)
    console.print("$: US dollars per million tokens. Also known, as [bold]provider/model[/]:")
    console.print("  " + ", ".join(VENDORS))
    console.print(
        "A server of your own: [bold]openai/<model>[/] with its URL under `endpoints:` in the study"
        " file.\nTry one: folkmoot models --try MODEL [--base-url URL]",
        soft_wrap=True,
    )


def _price(spec: ModelSpec) -> tuple[str, str]:
    rate = rate_for(spec)
    if rate is None:
        return "unknown", "unknown"
    return f"{rate.input_usd * 1e6:,.2f}", f"{rate.output_usd * 1e6:,.2f}"


def _key(spec: ModelSpec, environ: dict[str, str]) -> str:
    found = find_key(spec, environ)
    if found is not None:
        return f"[green]{escape(found[0])} is set[/]"
    return f"[dim]{escape(spec.key_env[0])} is not set[/]" if spec.key_env else ""


def _try_model(name: str, key: str | None, base_url: str | None) -> None:
    spec = resolve(name, {name: base_url} if base_url else {})
    secret = None if spec.local else key_for(spec, key)
    began = time.perf_counter()
    reply = asyncio.run(_ask(spec, secret))
    seconds = time.perf_counter() - began
    usage = reply.usage
    cost = cost_of(spec, usage.input_tokens, usage.output_tokens)
    console = out()
    console.print(f"[dim]{escape(spec.name)} is asked:[/] {escape(QUESTION)}", soft_wrap=True)
    console.print(f"[bold]{escape(clean(reply.text)) or '(nothing)'}[/]")
    money = "cost unknown" if cost is None else f"${cost:.6f}"
    served = f"served as {reply.model_served}, " if reply.model_served else ""
    console.print(
        f"[dim]{escape(clean(served))}{usage.input_tokens} tokens in, {usage.output_tokens} out, "
        f"{seconds:.2f} s, {money}[/]"
    )


async def _ask(spec: ModelSpec, key: str | None) -> Reply:
    settings = ProviderSettings(base_url=spec.base_url, api_key=key, timeout=60.0)
    provider = open_provider(spec, settings)
    try:
        request = Request(spec.name, (Message("user", QUESTION),), max_tokens=200)
        return await provider.complete(request, address="try")
    finally:
        await provider.close()
