"""Runs from async code: the caller's loop goes on, and to cancel is to let replies come home."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.models.scripted import ScriptedProvider


async def protocol(session: Session) -> None:
    async def one(scope: folkmoot.Scope, n: int) -> None:
        scope.record("said", {"text": await scope.ask(Speaker(f"p{n}"), "Well?")})

    await session.map(range(3), one)


STUDY = Study("small", "Small", StudyConfig, protocol)


async def test_the_loop_of_the_caller_goes_on(tmp_path: Path) -> None:
    loop, heard = asyncio.get_running_loop(), asyncio.Event()

    async def answer(_request: Any, _address: str) -> str:
        loop.call_soon_threadsafe(heard.set)  # and the run waits for what only this loop can do
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(heard.wait(), loop))
        return "Fine."

    done = await folkmoot.arun(STUDY, {}, provider=ScriptedProvider(answer), out=tmp_path / "run")
    assert done.table("said")["text"].to_list() == ["Fine."] * 3


async def test_run_says_that_it_blocks_the_loop(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"await folkmoot\.arun"):
        folkmoot.run(STUDY, {}, provider=ScriptedProvider(lambda *_: "ok"), out=tmp_path / "run")


async def test_what_is_cancelled_keeps_its_replies_and_goes_on_later(tmp_path: Path) -> None:
    loop, asked, answers = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def answer(_request: Any, address: str) -> str:
        calls.append(address)
        loop.call_soon_threadsafe(asked.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answers.wait(), loop))
        return "Fine."

    options: dict[str, Any] = {"provider": ScriptedProvider(answer), "out": tmp_path / "run"}
    task = asyncio.ensure_future(folkmoot.arun(STUDY, {}, **options, concurrency=1))
    await asked.wait()
    task.cancel()
    answers.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert folkmoot.load(tmp_path / "run").manifest["outcome"] == "interrupted"
    await folkmoot.arun(STUDY, {}, **options)
    assert sorted(calls) == ["0/ask0", "1/ask0", "2/ask0"]
