"""Whole people made of base lines, as a small study: journaled, resumable, priced like any run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from folkmoot.conversation.answers import Answer, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.config import StudyConfig
from folkmoot.engine.session import Scope, Session
from folkmoot.engine.study import Study
from folkmoot.people.enrichment import enrich
from folkmoot.people.persona import Persona
from folkmoot.randomness import digest

PEOPLE = "personas.json"
RECRUITER = Speaker("recruiter", "Recruiter", "recruiter")


class BuildConfig(StudyConfig):
    """The base lines to make people of."""

    lines: tuple[str, ...]


def run_name(lines: Sequence[str]) -> str:
    """The same lines, the same run: a second try goes on where the first stopped."""
    return f"personas-{digest(*lines, size=5).hex()}"


async def build(session: Session) -> None:
    """Two calls for each line; whoever cannot be made is left out and told of."""
    config = session.config
    assert isinstance(config, BuildConfig)

    async def one(scope: Scope, line: str) -> Persona | Missing:
        return await enrich(line, _Asker(scope))

    lines = list(dict.fromkeys(config.lines))
    found = await session.at("enrichment").each(lines, one, key=lambda x: digest(x, size=8).hex())
    people = [p for p in found.values() if isinstance(p, Persona)]
    if len(people) < len(lines):
        session.warn(f"{len(lines) - len(people)} of {len(lines)} could not be made")
    session.write_json(PEOPLE, {"personas": [p.to_json() for p in people]})


BUILD = Study("personas", "Personas from base lines", BuildConfig, build)


class _Asker:
    """Puts the prompts of the persona engine to the recruiter's model."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def ask(self, prompt: str, answer: Answer[Any]) -> Any:
        return await self._scope.ask(RECRUITER, prompt, answer=answer)
