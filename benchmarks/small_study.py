"""The smallest study that uses the whole engine: every participant is asked, and recorded."""

from __future__ import annotations

from folkmoot import Choice, Missing, Scope, Session, Speaker, Study, StudyConfig

OPTIONS = ("Parks", "Jobs", "Streets")
PERSONA = (
    "You are participant {n}, a person with a life of some length, who is {age} years old and "
    "lives in a quarter with opinions of its own about trees, work and traffic. "
) * 5


class Config(StudyConfig):
    """So many participants, asked so many times one after another."""

    participants: int = 1000
    turns: int = 10


async def protocol(session: Session) -> None:
    """Ask everybody, several times in a row; record each answer."""
    config: Config = session.config

    async def talk(scope: Scope, n: int) -> None:
        who = Speaker(f"p{n}", system=PERSONA.format(n=n, age=18 + n % 70))
        for turn in range(config.turns):
            prompt = f"Turn {turn}. Which of {', '.join(OPTIONS)} should the city fund? Name one."
            choice = await scope.ask(who, prompt, answer=Choice(OPTIONS))
            value = None if isinstance(choice, Missing) else choice
            scope.record("votes", {"participant": who.id, "turn": turn, "choice": value})

    await session.each(range(config.participants), talk)


STUDY = Study(name="benchmark", title="A study to measure", config=Config, protocol=protocol)
