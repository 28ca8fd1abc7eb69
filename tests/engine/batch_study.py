"""The study of test_batches. A module without the imports of the tests, which take a second in a
process of its own."""

from __future__ import annotations

from typing import Any

from folkmoot import Session, Speaker, Study, StudyConfig

PEOPLE = 6


async def talk(session: Session) -> None:
    """Two questions that build on each other: two waves."""

    async def one(scope: Any, number: int) -> None:
        who = Speaker(f"p{number}", system="You are a cook.")
        said = await scope.ask(who, f"What matters to you, {number}?")
        await scope.ask(who, f"You said {said!r}. Why?")

    await session.map(range(PEOPLE), one)


STUDY = Study(name="talk", title="Talk", config=StudyConfig, protocol=talk)
