"""A small study whose second stage waits; `python -m tests.view.tea FOLDER` runs it until it is
killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import folkmoot
from folkmoot import Choice, Scope, Session, Speaker, Study, StudyConfig
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider

PEOPLE = [f"p_{n}" for n in range(8)]


async def protocol(session: Session[StudyConfig]) -> None:
    async def one(scope: Scope, who: str) -> None:
        speaker = Speaker(who, who.upper(), "participant", f"You are {who}.")
        await scope.ask(speaker, "Which?", answer_type=Choice(["tea", "milk"]))
        await scope.ask(Speaker("host", role="host", system="You ask."), "Ask why.")
        await scope.ask(speaker, "Why?")

    await session.child("first_vote").map(PEOPLE, one)
    session.warn("half of the tea is gone")
    await session.child("second_vote").map(PEOPLE, one)


def run(folder: Path, wait: Callable[[], Awaitable[object]]) -> None:
    """Run the study; its second stage goes on when `wait` is over."""

    async def answer(_request: ModelRequest, address: str) -> str:
        if address.startswith("second_vote"):
            await wait()
        said = {"0": "tea", "1": "Why tea <b>now</b>?", "2": "It is warm."}
        return said[address[-1]]

    study = Study("tea", "Tea", StudyConfig, protocol)
    folkmoot.run(study, {}, out=folder, provider=ScriptedProvider(answer))


if __name__ == "__main__":
    run(Path(sys.argv[1]), asyncio.Event().wait)
