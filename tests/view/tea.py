"""A small study with a second stage that waits; `python -m tests.view.tea FOLDER` runs it until it
is killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import folkmoot
from folkmoot import Choice, Scope, Session, Speaker, Study, StudyConfig
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider

PARTICIPANT_IDS = [f"p_{n}" for n in range(8)]


async def protocol(session: Session[StudyConfig]) -> None:
    async def ask_participant(scope: Scope, participant_id: str) -> None:
        speaker = Speaker(
            participant_id, participant_id.upper(), "participant", f"You are {participant_id}."
        )
        await scope.ask(speaker, "Which?", answer_type=Choice(["tea", "milk"]))
        await scope.ask(Speaker("host", role="host", system="You ask."), "Ask why.")
        await scope.ask(speaker, "Why?")

    await session.child("first_vote").map(PARTICIPANT_IDS, ask_participant)
    session.warn("half of the tea is gone")
    await session.child("second_vote").map(PARTICIPANT_IDS, ask_participant)


def run(folder: Path, wait: Callable[[], Awaitable[object]]) -> None:
    """Run the study. The second stage continues when `wait` returns."""

    async def answer(_request: ModelRequest, address: str) -> str:
        if address.startswith("second_vote"):
            await wait()
        replies = {"0": "tea", "1": "Why tea <b>now</b>?", "2": "It is warm."}
        return replies[address[-1]]

    study = Study("tea", "Tea", StudyConfig, protocol)
    folkmoot.run(study, {}, out=folder, provider=ScriptedProvider(answer))


if __name__ == "__main__":
    run(Path(sys.argv[1]), asyncio.Event().wait)
