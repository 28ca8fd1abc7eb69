"""Runs from async code: the event loop of the caller continues, and cancelled runs keep replies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.models.scripted import ScriptedProvider


async def protocol(session: Session) -> None:
    async def ask_about_plan(scope: folkmoot.Scope, number: int) -> None:
        scope.record("said", {"text": await scope.ask(Speaker(f"p{number}"), "Well?")})

    await session.map(range(3), ask_about_plan)


STUDY = Study("small", "Small", StudyConfig, protocol)


async def test_event_loop_of_caller_continues_during_a_run(tmp_path: Path) -> None:
    loop, call_received = asyncio.get_running_loop(), asyncio.Event()

    async def answer(_request: Any, _address: str) -> str:
        # The run waits for a callback that only this loop can run.
        loop.call_soon_threadsafe(call_received.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call_received.wait(), loop))
        return "Fine."

    finished_run = await folkmoot.arun(
        STUDY, {}, provider=ScriptedProvider(answer), out=tmp_path / "run"
    )
    assert finished_run.table("said")["text"].to_list() == ["Fine."] * 3


async def test_run_warns_that_it_blocks_the_event_loop(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"await folkmoot\.arun"):
        folkmoot.run(STUDY, {}, provider=ScriptedProvider(lambda *_: "ok"), out=tmp_path / "run")


async def test_cancelled_run_keeps_its_replies_and_can_be_resumed(tmp_path: Path) -> None:
    loop, first_call_started, answers = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def answer(_request: Any, address: str) -> str:
        calls.append(address)
        loop.call_soon_threadsafe(first_call_started.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answers.wait(), loop))
        return "Fine."

    options: dict[str, Any] = {"provider": ScriptedProvider(answer), "out": tmp_path / "run"}
    task = asyncio.ensure_future(folkmoot.arun(STUDY, {}, **options, concurrency=1))
    await first_call_started.wait()
    task.cancel()
    answers.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert folkmoot.load(tmp_path / "run").manifest["outcome"] == "interrupted"
    await folkmoot.arun(STUDY, {}, **options)
    assert sorted(calls) == ["0/ask0", "1/ask0", "2/ask0"]
