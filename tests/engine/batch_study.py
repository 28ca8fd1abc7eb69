"""The study of test_batches.

The module does not import the tests, because their imports take a second in a new process."""

from __future__ import annotations

from typing import Any

from folkmoot import Session, Speaker, Study, StudyConfig

PEOPLE = 6


async def ask_all_participants(session: Session) -> None:
    """Ask two questions that build on each other. They need two waves."""

    async def answer_two_questions(scope: Any, number: int) -> None:
        speaker = Speaker(f"p{number}", system="You are a cook.")
        reply = await scope.ask(speaker, f"What matters to you, {number}?")
        await scope.ask(speaker, f"You said {reply!r}. Why?")

    await session.map(range(PEOPLE), answer_two_questions)


STUDY = Study(name="talk", title="Talk", config=StudyConfig, protocol=ask_all_participants)
