"""`folkmoot personas fetch | build | migrate | list`: manage the pool of personas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from folkmoot.cli.console import (
    error_console,
    output_console,
    print_warning,
)
from folkmoot.cli.run import KEY_WARNING, TerminalProgress, summarise_folder
from folkmoot.cli.study_files import print_models_note
from folkmoot.cli.tables import GridView
from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import run_study, study_from_settings
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError, Problem
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import join_words, shorten
from folkmoot.kit.base_personas import BasePersonaRow
from folkmoot.people.enrichment import enrich_persona, key_of
from folkmoot.people.persona import Persona
from folkmoot.people.pool import Pool, migrate_personas
from folkmoot.people.sources import find_persona_source, installed_sources, persona_hub, table
from folkmoot.people.sources.grounded import PersonaGenerator
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.randomness import digest, generator
from folkmoot.storage.findings import ResultTable
from folkmoot.storage.run_folder import OUTPUTS

PEOPLE = "personas.json"


class BuildConfig(StudyConfig):
    """The settings of the run that creates personas: the base lines."""

    lines: tuple[str, ...] = Field(description="lines from which personas are made")


def run_name(lines: Sequence[str]) -> str:
    """Return the name of the run that creates personas from `lines`."""
    # Equal lines give equal names, so that a second call of the command resumes the first run.
    return f"personas-{digest(*lines, size=5).hex()}"


async def build_personas(session: Session) -> None:
    """Create one persona from each base line, with two model calls per line."""
    # If a call fails, the persona is left out with a warning.
    config = session.config
    assert isinstance(config, BuildConfig)

    async def build_persona(scope: Scope, line: str) -> Persona | Missing:
        return await enrich_persona(line, scope)

    lines = list(dict.fromkeys(config.lines))
    personas_or_missing = await session.child("enrichment").map(lines, build_persona, key=key_of)
    personas = [persona for persona in personas_or_missing.values() if isinstance(persona, Persona)]
    if len(personas) < len(lines):
        session.warn(f"{len(lines) - len(personas)} of {len(lines)} personas could not be created")
    session.write_json(PEOPLE, {"personas": [persona.to_json() for persona in personas]})


BUILD = Study(
    "personas", "Personas from base lines", BuildConfig, build_personas, tables=(BasePersonaRow,)
)


def fetch_command(url: str | None, refresh: bool) -> None:
    """Download base lines for personas into the cache, and show the progress."""
    address = url or persona_hub.URL
    cached = persona_hub.cache_path(address)
    if cached.is_file() and not refresh:
        output_console().print(
            f"already downloaded: {escape(str(cached))} (--refresh downloads it again)"
        )
        return
    console = error_console()
    console.print(f"downloading {escape(without_hidden(address))}", soft_wrap=True)
    with Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=console) as bar:
        path = asyncio.run(
            persona_hub.fetch_file(address, progress=_progress_callback(bar), refresh=refresh)
        )
    output_console().print(f"wrote {escape(str(path))}", soft_wrap=True)


def build_command(
    count: int,
    source: str,
    file: Path | None,
    pool_path: Path,
    options: RunOptions,
) -> None:
    """Create personas and add them to the pool."""
    pool, seed = Pool(pool_path), options.seed or 0
    if source in (*installed_sources(), "table"):
        _warn_of_options_without_effect(source, options)
    if source == "grounded" and file is not None:
        personas = PersonaGenerator(panel=read_panel(file)).personas(
            count, generator(seed, ("personas", source))
        )
    elif source in installed_sources():
        # Personas without any row of the file would look like the people in it.
        if file is not None:
            hint = "leave it out, or add --source grounded, table or persona_hub"
            raise InputError(Problem(f"--file: the source {source} reads no file", hint=hint))
        personas = find_persona_source(source)(count, generator(seed, ("personas", source)))
    elif source == "table":
        personas = _from_table(file, count)
    elif source == "persona_hub":
        if options.key:
            print_warning(KEY_WARNING)
        personas = _create_enriched_personas(count, file, pool, options)
    else:
        known_sources = ", ".join([*installed_sources(), "persona_hub", "table"])
        raise InputError(f"--source {source}: must be one of {known_sources}")
    added_count = pool.add_personas(personas)
    output_console().print(
        f"{added_count:,} added to {escape(str(pool_path))}, {len(personas) - added_count:,} "
        "left out because the same persona is in it, "
        f"{len(pool.load_personas()):,} in total",
        soft_wrap=True,
    )


def _warn_of_options_without_effect(source: str, options: RunOptions) -> None:
    given = {"--model": options.model, "--budget": options.budget, "--key": options.key}
    names = [name for name, value in given.items() if value is not None]
    if names:
        have = "has" if len(names) == 1 else "have"
        print_warning(f"{join_words(names)} {have} no effect: the source {source} asks no model")


def migrate_command(folders: list[Path], pool_path: Path) -> None:
    """Add the personas of earlier runs to the pool."""
    runs = folders or sorted(path.parent for path in OUTPUTS.glob("*/participants.json"))
    if not runs:
        raise InputError("no run under outputs/ has a participants.json; name a run folder")
    result = migrate_personas(runs, Pool(pool_path))
    if not result.runs:
        raise InputError(list(result.problems))
    for problem in result.problems:
        print_warning(str(problem))
    output_console().print(
        f"Runs read: {result.runs:,}. "
        f"Personas added to {escape(str(pool_path))}: {result.added:,}; "
        f"already in it: {result.known:,}; unusable records: {result.unfit:,}",
        soft_wrap=True,
    )


def list_command(pool_path: Path, limit: int) -> None:
    """Print the number of personas in the pool, their sources, and the first few personas."""
    personas = Pool(pool_path).load_personas()
    console = output_console()
    if not personas:
        console.print(
            f"{escape(str(pool_path))} is empty; `folkmoot personas build 100` adds personas"
        )
        return
    _print_people(console, personas, limit)
    count_by_source = {
        source: sum(persona.source == source for persona in personas)
        for source in sorted({persona.source for persona in personas})
    }
    counts_text = ", ".join(
        f"{count:,} from {source or 'unknown'}" for source, count in count_by_source.items()
    )
    console.print(
        f"{len(personas):,} in {escape(str(pool_path))}: {escape(without_hidden(counts_text))}"
    )


def _print_people(console: Console, personas: list[Persona], limit: int) -> None:
    rows = [
        (
            persona.id,
            str(persona.demographics.get("age", "")),
            str(persona.demographics.get("sex", "")),
            persona.source,
            shorten(persona.text, 90),
        )
        for persona in personas[:limit]
    ]
    console.print(
        GridView(ResultTable(("id", "age", "sex", "source", "description"), tuple(rows))),
        crop=False,
    )


def _progress_callback(bar: Progress) -> Callable[[int, int | None], None]:
    task = bar.add_task("downloading", total=None)

    def update_progress(completed_bytes: int, total_bytes: int | None) -> None:
        bar.update(task, completed=completed_bytes, total=total_bytes)

    return update_progress


def _from_table(file: Path | None, count: int) -> list[Persona]:
    if file is None:
        raise InputError("--source table needs --file with a CSV, Parquet or JSONL of profiles")
    personas = table.read_personas(file)
    if weights := table.describe_unused_weights(personas, file):
        print_warning(weights)
    if len(personas) < count:
        print_warning(
            f"{file} holds {len(personas):,} profiles, fewer than the {count:,} asked for"
        )
    return personas[:count]


def _create_enriched_personas(
    count: int, file: Path | None, pool: Pool, options: RunOptions
) -> list[Persona]:
    path = file if file is not None else asyncio.run(persona_hub.fetch_file())
    # Lines of the pool are excluded, because a second persona from the same line would be a
    # duplicate.
    known_keys = [persona.key for persona in pool.load_personas()]
    lines, line_reader = persona_hub.sample_lines(
        path, count, generator(options.seed or 0, ("personas", "lines")), exclude=known_keys
    )
    if line_reader.broken:
        print_warning(f"{path}: {line_reader}")
    out_folder = OUTPUTS / run_name(lines)
    with TerminalProgress(error_console()) as progress:
        # The name of the folder depends on the lines, so an existing folder holds the same run.
        run_options = replace(
            options, out=out_folder, resume=out_folder.exists(), progress=progress
        )
        study_file = study_from_settings(BUILD, {"lines": lines}, run_options)
        print_models_note(error_console(), study_file)
        run = run_study(study_file, run_options)
    output_console().print(f"{escape(str(run.path))}  {summarise_folder(run)}", soft_wrap=True)
    return [Persona.from_json(row) for row in run.read_json(PEOPLE)["personas"]]
