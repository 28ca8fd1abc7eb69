"""Setup: who takes part. Personas from a source (and the pool), conditions by an equal draw.

The people of a run are written to `personas.json` in its folder and sealed; a resume reads them
there, so that a pool that has grown since cannot change a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from folkmoot.conversation.answers import Answer, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope, Session
from folkmoot.errors import InputError
from folkmoot.people.assignment import assign_conditions
from folkmoot.people.enrichment import enrich
from folkmoot.people.makers import find_maker
from folkmoot.people.persona import Persona
from folkmoot.people.pool import Pool, pool_target, select
from folkmoot.people.sources import persona_hub, quota, table
from folkmoot.randomness import digest
from folkmoot.records.run_folder import PERSONAS
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import Participant, State

T = TypeVar("T")

RECRUITER = Speaker("recruiter", "Recruiter", "recruiter")


async def recruit(session: Session, config: CrossPollinationConfig) -> State:
    """Participants `p_0001` … with condition and persona."""
    ids = [f"p_{k:04d}" for k in range(1, config.n + 1)]
    arms = assign_conditions(ids, config.conditions, session.at("assignment").rng)
    await session.seal("assignment", arms)
    personas = await _people(session, config)
    await session.seal("personas", {p.id: digest(p.text).hex() for p in personas})
    people = {}
    for who, persona in zip(ids, personas, strict=True):
        people[who] = Participant(
            who,
            arms[who],
            persona.base,
            persona.demographics,
            persona.text,
        )
    return State(people)


async def _people(session: Session, config: CrossPollinationConfig) -> list[Persona]:
    """The personas of this run: those of an earlier process, or newly drawn and written down."""
    saved = session.run_dir / PERSONAS
    if saved.exists():
        rows = json.loads(saved.read_text("utf-8"))["personas"]
        return [Persona.from_json(row) for row in rows]
    personas = await _drawn(session, config)
    session.write_json(PERSONAS, {"personas": [p.to_json() for p in personas]})
    return personas


async def _drawn(session: Session, config: CrossPollinationConfig) -> list[Persona]:
    source, n = config.personas.source, config.n
    scope = session.at("recruitment")
    if config.personas.made:
        return find_maker(source)(n, scope.rng)
    if source == "table":
        return select(table.read(_file(session, config)), n, scope.rng)
    try:
        return await _from_persona_hub(session, scope, config)
    except InputError as error:
        if source == "persona_hub" or config.personas.file or not _synthetic(session):
            raise
        session.warn(f"{error} Personas are made from quotas instead (personas: source: quota).")
        return quota.make(n, session.at("quota").rng)


def _file(session: Session, config: CrossPollinationConfig) -> Path:
    if config.personas.file is None:
        raise InputError("personas.file: the source `table` needs a file of profiles")
    return session.study_dir / Path(config.personas.file).expanduser()


async def _from_persona_hub(
    session: Session, scope: Scope, config: CrossPollinationConfig
) -> list[Persona]:
    """n personas from the pool, filled up first to 1.5 × n; or n fresh ones without a pool."""
    n = config.n
    if not config.use_persona_storage:
        return (await _enriched(session, scope, config, n, ()))[:n]
    pool = Pool(_pool_path(session, config))
    lacking = pool.lacking(n)
    if lacking:
        scope.log(f"the pool {pool.path} lacks {lacking} of {pool_target(n)} personas")
        known = [p.key for p in pool.load()]
        pool.add(await _enriched(session, scope, config, lacking, known))
    return select(pool.load(), n, session.at("selection").rng)


def _pool_path(session: Session, config: CrossPollinationConfig) -> Path:
    """Portraits by the embedded respondent get a pool of their own: they are no real ones."""
    path = Path(config.personas.pool).expanduser()
    return path.with_suffix(f".synthetic{path.suffix}") if _synthetic(session) else path


def _synthetic(session: Session) -> bool:
    return session.synthetic(RECRUITER.role)


async def _enriched(
    session: Session,
    scope: Scope,
    config: CrossPollinationConfig,
    n: int,
    known: Sequence[str],
) -> list[Persona]:
    """n raw lines, each with demographics and a portrait by the model."""
    named = config.personas
    path = (
        _file(session, config)
        if named.file is not None
        else await persona_hub.fetch(named.url or persona_hub.URL)
    )
    lines, reading = persona_hub.sample(path, n, scope.rng, exclude=known)
    if reading.broken:
        scope.warn(f"{path}: {reading.broken} of {reading.lines} lines are broken and skipped")
    scope.log(f"{reading.not_english} of {reading.examined} lines examined are not in English")
    overrides = session.study_dir / config.prompts if config.prompts else None

    async def one(scope: Scope, line: str) -> Persona | Missing:
        return await enrich(line, _Asker(scope), prompts=overrides)

    found = await scope.each(lines, one, key=lambda line: digest(line, size=8).hex())
    personas = [p for p in found.values() if isinstance(p, Persona)]
    if len(personas) < n:
        spare, _ = persona_hub.sample(
            path, n - len(personas), session.at("spare").rng, exclude=[*known, *lines]
        )
        scope.warn(f"{n - len(personas)} personas could not be enriched; others are drawn")
        more = await session.at("spare_recruitment").each(
            spare, one, key=lambda line: digest(line, size=8).hex()
        )
        personas += [p for p in more.values() if isinstance(p, Persona)]
    if len(personas) < n:
        raise InputError(
            f"personas: {n} are needed, only {len(personas)} could be enriched; see run.log"
        )
    return personas


class _Asker:
    """Lets the persona engine put its prompts to the recruiter's model."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def ask(self, prompt: str, answer: Answer[T]) -> T | Missing:
        return await self._scope.ask(RECRUITER, prompt, answer=answer)
