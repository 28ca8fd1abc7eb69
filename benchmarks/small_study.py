"""The smallest study that uses the whole engine: it asks all participants and records answers."""

from __future__ import annotations

from folkmoot import Choice, Missing, Scope, Session, Speaker, Study, StudyConfig, Text

OPTIONS = ("Parks", "Jobs", "Streets")
PERSONA = (
    "You are participant {n}, a person with a life of some length, who is {age} years old and "
    "lives in a quarter with opinions of its own about trees, work and traffic. "
) * 5


class Config(StudyConfig):
    """The number of participants and of successive questions, for a choice or a text."""

    participants: int = 1000
    turns: int = 10
    choose: bool = True


def speaker(n: int) -> Speaker:
    """Return the n-th participant."""
    return Speaker(f"p{n}", system=PERSONA.format(n=n, age=18 + n % 70))


def question(turn: int) -> str:
    """Return the question of a turn."""
    return f"Turn {turn}. Which of {', '.join(OPTIONS)} should the city fund? Name one."


async def protocol(session: Session) -> None:
    """Ask all participants several times in a row and record each answer."""
    config: Config = session.config
    answer = Choice(OPTIONS) if config.choose else Text()

    async def talk(scope: Scope, n: int) -> None:
        who = speaker(n)
        for turn in range(config.turns):
            said = await scope.ask(who, question(turn), answer_type=answer)
            value = None if isinstance(said, Missing) else said
            scope.record("votes", {"participant": who.id, "turn": turn, "said": value})

    await session.map(range(config.participants), talk)


STUDY = Study(name="benchmark", title="A study to measure", config=Config, protocol=protocol)
