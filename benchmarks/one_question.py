"""Ask a million personas one question: a study in one file without state."""

from __future__ import annotations

from folkmoot import (
    Choice,
    Missing,
    Persona,
    Scope,
    Session,
    Speaker,
    Study,
    StudyConfig,
    find_persona_source,
)

OPTIONS = ("Parks", "Jobs", "Streets")
QUESTION = f"Which of {', '.join(OPTIONS)} should the city fund? Name one."


class Config(StudyConfig):
    """The number of personas, which are drawn from quotas."""

    participants: int = 1000


async def protocol(session: Session[Config]) -> None:
    """Ask all participants for their choice and record it."""
    people = find_persona_source("quota")(session.config.participants, session.rng)

    async def one(scope: Scope, persona: Persona) -> None:
        who = Speaker(persona.id, system=f"You are {persona.text}")
        said = await scope.ask(who, QUESTION, answer_type=Choice(OPTIONS))
        choice = None if isinstance(said, Missing) else said
        scope.record("votes", {"participant_id": persona.id, "choice": choice})

    await session.map(people, one)


STUDY = Study(name="one_question", title="One question", config=Config, protocol=protocol)
