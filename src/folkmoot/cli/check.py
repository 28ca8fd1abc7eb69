"""`folkmoot check`: every mistake of a study file, then calls, cost and time, without a call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.padding import Padding

from folkmoot.cli.consent import consent
from folkmoot.cli.console import clean, out, warn
from folkmoot.cli.tables import grid_view
from folkmoot.engine.estimate import ASSUMED_LATENCY, SYNTHETIC_LATENCY, Estimate, rehearsed
from folkmoot.engine.execution import RunOptions
from folkmoot.engine.progress import duration
from folkmoot.engine.providers import unpriced
from folkmoot.engine.runner import providers_of
from folkmoot.engine.study_file import StudyFile, load_study_file
from folkmoot.engine.trust import sending
from folkmoot.errors import InputError
from folkmoot.models.catalog import LOCAL, ModelSpec, resolve
from folkmoot.models.keys import find_key
from folkmoot.models.prices import cost_of
from folkmoot.records.findings import Grid


def check_command(path: Path, model: str | None, overrides: tuple[str, ...], trust: bool) -> None:
    """Print what a run of this file would do. Raises InputError with every mistake."""
    agreed = consent(path, trust)
    found = load_study_file(path, overrides, models=model is None, consent=agreed)
    providers = providers_of(found, RunOptions(model=model))
    wishes = sending(found.config, providers, overrides)
    providers.refuse_unencrypted()
    specs = [resolve(name, found.config.endpoints) for name in _models(found, model)]
    if problems := unpriced(found.config, _models(found, model)):
        raise InputError(problems)
    console = out()
    for wish in wishes:
        console.print(f"[yellow]Mind:[/] this file {escape(clean(wish))}", soft_wrap=True)
    embeds = [providers.embedding_model(str(path))] if found.study.embeds else []
    embedding = [resolve(name, found.config.endpoints) for name in embeds]
    console.print(
        f"[green]No mistakes[/] in {escape(str(path))} ({escape(found.study.title)})",
        soft_wrap=True,
    )
    for note in found.study.notes(found.config):
        console.print(f"[cyan]Note:[/] {escape(clean(note))}", soft_wrap=True)
    if trust:
        agreed.require_sending(path, found.config, providers, overrides)
    _print_estimate(found, model, specs, embedding)


def _print_estimate(
    found: StudyFile,
    model: str | None,
    specs: Sequence[ModelSpec],
    embedding: Sequence[ModelSpec],
) -> None:
    console = out()
    config = found.config
    local = all(spec.local for spec in specs)
    total = _estimate(found, model, embedding)
    stages = total.stages
    seconds = total.seconds(
        concurrency=1 if local else config.concurrency,
        spacing=0.0 if local else config.api_sleep_seconds,
        latency=SYNTHETIC_LATENCY if local else ASSUMED_LATENCY,
    )
    if stages:
        console.print(Padding(grid_view(_grid(total)), (1, 0)))
    console.print(f"Model     {escape(clean(', '.join(spec.name for spec in specs)))}")
    for spec in embedding:
        console.print(f"Embedding {escape(clean(spec.name))}")
    if stages:
        console.print(f"Calls     about {total.calls:,}")
        console.print(f"Cost      {escape(_cost(total, specs, found))}", soft_wrap=True)
        console.print(f"Time      about {duration(seconds)}{_pace(found, local)}")
    else:
        console.print(
            "Calls     unknown (nothing was asked in a rehearsal with the embedded respondent)"
        )
    console.print(f"Folder    outputs/{escape(clean(found.run_id))}")
    lacking = [s for s in (*specs, *embedding) if s.key_needed and not find_key(s)]
    for variables in dict.fromkeys(s.key_env for s in lacking):
        console.print(
            f"[yellow]No key:[/] set {escape(' or '.join(variables))} in the environment or in "
            ".env before the run.",
            soft_wrap=True,
        )


def _models(found: StudyFile, override: str | None) -> list[str]:
    """Every model that a run of this file would call for answers."""
    if override:
        return [override]
    config = found.config
    seats = [*config.models.values(), *found.study.seat_models(config)]
    if config.model or not found.study.seat_models(config):
        seats.insert(0, config.model or LOCAL)
    return list(dict.fromkeys(seats))


def _estimate(found: StudyFile, model: str | None, embedding: Sequence[ModelSpec]) -> Estimate:
    """What the study type says itself, or what its rehearsal comes to."""
    said = found.study.estimate(found.config)
    if said:
        return Estimate(tuple(said), sum(s.longest_chain for s in said))
    try:
        return rehearsed(found, model, embedding[0].name if embedding else LOCAL)
    except InputError:
        raise
    except Exception as error:  # the study's own code, before the embedded respondent's answers
        warn(f"a rehearsal of the study stopped: {type(error).__name__}: {error}")
        return Estimate(())


def _cost(total: Estimate, specs: Sequence[ModelSpec], found: StudyFile) -> str:
    """What the run costs, by the models that answer; where only totals are known and several models
    answer, the range from all-cheapest to all-dearest."""
    each = total.models or {s.name: (total.input_tokens, total.output_tokens) for s in specs}
    costs: dict[str, float | None] = {}
    for name, tokens in each.items():
        spec = resolve(name, found.config.endpoints)
        costs[spec.name] = cost_of(spec, *tokens)
    known = {name: cost for name, cost in costs.items() if cost is not None}
    unknown = [name for name in costs if name not in known]
    tail = f"; the price of {', '.join(unknown)} is unknown" if unknown else ""
    if not known:
        return "unknown (no price is known)"
    if total.models:
        parts = ", ".join(f"{name} {_usd(cost)}" for name, cost in known.items() if cost)
        several = f" ({parts})" if parts.count("$") > 1 else ""
        return f"about {_usd(sum(known.values()))}{several}{tail}"
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    if low == high:
        return f"about {_usd(known[low])}{tail}"
    return f"{_usd(known[low])} if all were {low}, {_usd(known[high])} if all were {high}{tail}"


def _usd(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 0.01 or not cost else f"${cost:.4f}"


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
