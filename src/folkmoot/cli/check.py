"""`folkmoot check`: every mistake of a study file, then calls, cost and time, without a call."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.padding import Padding

from folkmoot.cli.console import clean, out
from folkmoot.cli.tables import grid_view
from folkmoot.engine.estimate import ASSUMED_LATENCY, SYNTHETIC_LATENCY, Estimate, estimate
from folkmoot.engine.progress import duration
from folkmoot.engine.providers import Providers
from folkmoot.engine.study_file import StudyFile, load_study_file
from folkmoot.models.catalog import resolve
from folkmoot.models.keys import find_key
from folkmoot.models.prices import cost_of
from folkmoot.records.findings import Grid


def check_command(path: Path, model: str | None, overrides: tuple[str, ...]) -> None:
    """Print what a run of this file would do. Raises InputError with every mistake."""
    found = load_study_file(path, overrides)
    console = out()
    console.print(
        f"[green]No mistakes[/] in {escape(str(path))} ({escape(found.study.title)})",
        soft_wrap=True,
    )
    for note in found.study.notes(found.config):
        console.print(f"[cyan]Note:[/] {escape(clean(note))}", soft_wrap=True)
    _print_estimate(found, model)


def _print_estimate(found: StudyFile, model: str | None) -> None:
    console = out()
    config = found.config
    providers = Providers(config, model)
    spec = resolve(providers.default, config.endpoints)
    stages = found.study.estimate(config)
    total = estimate(
        stages,
        lambda tokens_in, tokens_out: cost_of(spec, tokens_in, tokens_out),
        concurrency=1 if spec.local else config.concurrency,
        spacing=0.0 if spec.local else config.api_sleep_seconds,
        latency=SYNTHETIC_LATENCY if spec.local else ASSUMED_LATENCY,
    )
    if stages:
        console.print(Padding(grid_view(_grid(total)), (1, 0)))
    cost = "unknown (no price is known)" if total.cost_usd is None else f"${total.cost_usd:,.2f}"
    console.print(f"Model     {escape(clean(spec.name))}")
    if stages:
        console.print(f"Calls     about {total.calls:,}")
        console.print(f"Cost      about {cost}")
        console.print(f"Time      about {duration(total.seconds)}{_pace(found, spec.local)}")
    else:
        console.print("Calls     unknown (this study type gives no estimate)")
    console.print(f"Folder    outputs/{escape(clean(found.run_id))}")
    if spec.key_needed and find_key(spec) is None:
        console.print(
            f"[yellow]No key:[/] set {escape(' or '.join(spec.key_env))} in the environment or in "
            ".env before the run.",
            soft_wrap=True,
        )


def _pace(found: StudyFile, local: bool) -> str:
    if local:
        return ""
    spacing = found.config.api_sleep_seconds
    if spacing:
        return f" (calls at least {spacing:g} s apart: api_sleep_seconds)"
    return f" (at {ASSUMED_LATENCY:g} s a reply, {found.config.concurrency} at once)"


def _grid(total: Estimate) -> Grid:
    rows: list[tuple[str, int, int, int]] = [
        (s.stage, s.calls, s.input_tokens, s.output_tokens) for s in total.stages
    ]
    rows.append(("in all", total.calls, total.input_tokens, total.output_tokens))
    return Grid(("stage", "calls", "input tokens", "output tokens"), tuple(rows))
