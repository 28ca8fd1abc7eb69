"""`folkmoot personas fetch | build | migrate | list`: the pool of people outside any run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from folkmoot.cli.console import clean, err, out, warn
from folkmoot.cli.run import KEY_WARNING, TerminalProgress
from folkmoot.cli.study_files import print_models_note
from folkmoot.cli.tables import GridView
from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import from_python, run_study
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError
from folkmoot.hints import shortened
from folkmoot.kit.base_personas import BasePersonaRow
from folkmoot.people.enrichment import enrich, key_of
from folkmoot.people.persona import Persona
from folkmoot.people.pool import Pool, migrate
from folkmoot.people.sources import find_maker, makers, persona_hub, table
from folkmoot.people.sources.grounded import PersonaGenerator
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.randomness import digest, generator
from folkmoot.storage.findings import Grid
from folkmoot.storage.run_folder import OUTPUTS

PEOPLE = "personas.json"


class BuildConfig(StudyConfig):
    """The base lines that people are made from."""

    lines: tuple[str, ...] = Field(description="lines that people are made from")


def run_name(lines: Sequence[str]) -> str:
    """The same lines, the same run: running it again continues the first."""
    return f"personas-{digest(*lines, size=5).hex()}"


async def build(session: Session) -> None:
    """Two calls for each line; a persona that cannot be created is left out with a warning."""
    config = session.config
    assert isinstance(config, BuildConfig)

    async def one(scope: Scope, line: str) -> Persona | Missing:
        return await enrich(line, scope)

    lines = list(dict.fromkeys(config.lines))
    found = await session.at("enrichment").each(lines, one, key=key_of)
    people = [p for p in found.values() if isinstance(p, Persona)]
    if len(people) < len(lines):
        session.warn(f"{len(lines) - len(people)} of {len(lines)} could not be created")
    session.write_json(PEOPLE, {"personas": [p.to_json() for p in people]})


BUILD = Study("personas", "Personas from base lines", BuildConfig, build, tables=(BasePersonaRow,))


def fetch_command(url: str | None, refresh: bool) -> None:
    """Download base personas into the cache, with progress."""
    address = url or persona_hub.URL
    cached = persona_hub.cache_path(address)
    if cached.is_file() and not refresh:
        out().print(f"already downloaded: {escape(str(cached))} (--refresh downloads it again)")
        return
    console = err()
    console.print(f"downloading {escape(clean(address))}", soft_wrap=True)
    with Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=console) as bar:
        path = asyncio.run(persona_hub.fetch(address, progress=_shown(bar), refresh=refresh))
    out().print(f"wrote {escape(str(path))}", soft_wrap=True)


def build_command(
    n: int,
    source: str,
    file: Path | None,
    pool_path: Path,
    model: str | None,
    seed: int,
    key: str | None,
) -> None:
    """Create n personas and add them to the pool."""
    pool = Pool(pool_path)
    if source == "grounded" and file is not None:
        people = PersonaGenerator(panel=read_panel(file)).personas(
            n, generator(seed, ("personas", source))
        )
    elif source in makers():
        people = find_maker(source)(n, generator(seed, ("personas", source)))
    elif source == "table":
        people = _from_table(file, n)
    elif source == "persona_hub":
        if key:
            warn(KEY_WARNING)
        people = _enriched(n, file, pool, model, seed, key)
    else:
        known = ", ".join([*makers(), "persona_hub", "table"])
        raise InputError(f"--source {source}: must be one of {known}")
    added = pool.add(people)
    out().print(
        f"{added:,} added to {escape(str(pool_path))}, {len(people) - added:,} already in it, "
        f"{len(pool.load()):,} in total",
        soft_wrap=True,
    )


def migrate_command(folders: list[Path], pool_path: Path) -> None:
    """Add the personas of earlier runs to the pool."""
    runs = folders or sorted(p.parent for p in OUTPUTS.glob("*/participants.json"))
    if not runs:
        raise InputError("no run under outputs/ has a participants.json; name a run folder")
    result = migrate(runs, Pool(pool_path))
    for problem in result.problems:
        warn(str(problem))
    out().print(
        f"Runs read: {result.runs:,}. "
        f"Personas added to {escape(str(pool_path))}: {result.added:,}; "
        f"already in it: {result.known:,}; unusable records: {result.unfit:,}",
        soft_wrap=True,
    )


def list_command(pool_path: Path, limit: int) -> None:
    """Print the pool: how many, from where, and the first few."""
    people = Pool(pool_path).load()
    console = out()
    if not people:
        console.print(
            f"{escape(str(pool_path))} is empty; `folkmoot personas build 100` adds people"
        )
        return
    _print_people(console, people, limit)
    sources = {s: sum(p.source == s for p in people) for s in sorted({p.source for p in people})}
    counted = ", ".join(
        f"{count:,} from {source or 'unknown'}" for source, count in sources.items()
    )
    console.print(f"{len(people):,} in {escape(str(pool_path))}: {escape(clean(counted))}")


def _print_people(console: Console, people: list[Persona], limit: int) -> None:
    rows = [
        (
            p.id,
            str(p.demographics.get("age", "")),
            str(p.demographics.get("sex", "")),
            p.source,
            shortened(p.text, 90),
        )
        for p in people[:limit]
    ]
    console.print(
        GridView(Grid(("id", "age", "sex", "source", "description"), tuple(rows))), crop=False
    )


def _shown(bar: Progress) -> Callable[[int, int | None], None]:
    task = bar.add_task("downloading", total=None)

    def show(done: int, total: int | None) -> None:
        bar.update(task, completed=done, total=total)

    return show


def _from_table(file: Path | None, n: int) -> list[Persona]:
    if file is None:
        raise InputError("--source table needs --file with a CSV, Parquet or JSONL of profiles")
    people = table.read(file)
    if len(people) < n:
        warn(f"{file} holds {len(people):,} profiles, fewer than the {n:,} asked for")
    return people[:n]


def _enriched(
    n: int, file: Path | None, pool: Pool, model: str | None, seed: int, key: str | None
) -> list[Persona]:
    """Base lines, each made a whole person by two calls; a run of its own, so it can resume."""
    path = file if file is not None else asyncio.run(persona_hub.fetch())
    known = [p.key for p in pool.load()]
    lines, reading = persona_hub.sample(
        path, n, generator(seed, ("personas", "lines")), exclude=known
    )
    if reading.broken:
        warn(f"{path}: {reading}")
    out_folder = OUTPUTS / run_name(lines)
    with TerminalProgress(err()) as progress:
        options = RunOptions(
            model=model,
            out=out_folder,
            resume=out_folder.exists(),
            key=key,
            seed=seed,
            progress=progress,
        )
        found = from_python(BUILD, {"lines": lines}, options)
        print_models_note(err(), found)
        run = run_study(found, options)
    return [Persona.from_json(row) for row in run.json(PEOPLE)["personas"]]
