"""The event loop of a run: memory after many runs, and stops that no reply would end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Scope, Session, Speaker, Study, StudyConfig
from folkmoot.engine.run import event_loop
from folkmoot.engine.run.event_loop import ENDING_PROTOCOL, RunStopper, run_until_complete
from folkmoot.errors import RunInterruptedError
from folkmoot.models.scripted import ScriptedProvider


class Ring:
    """A reference cycle that only the garbage collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("when", ["before", "in"])
def test_garbage_of_a_small_run_is_collected(when: str) -> None:
    references: list[weakref.ref[Ring]] = []

    async def main(_: RunStopper) -> None:
        if when == "in":
            references.append(weakref.ref(Ring()))

    gc.disable()  # so that only the run itself can collect it
    try:
        if when == "before":
            references.append(weakref.ref(Ring()))
        run_until_complete(main)
    finally:
        gc.enable()
    assert references[0]() is None


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "IDLE_CHECK_SECONDS", 0.01)


async def wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("place", ["protocol", "item"])
@pytest.mark.usefixtures("quick_checks")
def test_one_stop_ends_a_run_whose_protocol_waits_for_something_else_than_a_reply(
    tmp_path: Path, place: str
) -> None:
    """The call and the computation that are in progress are journaled first."""
    stopper, calls, is_adding = RunStopper(), list[str](), threading.Event()

    def add_slowly(first: int, second: int) -> int:
        is_adding.set()
        time.sleep(0.4)
        return first + second

    async def answer(_request: Any, address: str) -> str:
        calls.append(address)
        if address.startswith("1/"):
            while not is_adding.is_set():
                await asyncio.sleep(0)
            stopper()
            # Much longer than the checks for an idle engine.
            await asyncio.sleep(0.2)
        return "Fine."

    async def ask(scope: Scope, number: int) -> None:
        await scope.ask(Speaker(f"p{number}"), "Well?")
        if number == 0:
            await scope.compute(add_slowly, 1, 2)
        if place == "item":
            await wait_for_ever()

    async def protocol(session: Session) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            await session.map(range(2), ask)
        await wait_for_ever()

    study = Study("small", "Small", StudyConfig, protocol)
    options = {"provider": ScriptedProvider(answer), "out": tmp_path / "run"}
    with pytest.raises(RunInterruptedError):
        folkmoot.run(study, {}, **options, stopper=stopper)
    run = folkmoot.load(tmp_path / "run", study=study)
    assert run.manifest["outcome"] == "interrupted" and "possibly_paid" not in run.manifest
    assert ENDING_PROTOCOL in (tmp_path / "run" / "run.log").read_text("utf-8")
    with sqlite3.connect(tmp_path / "run" / "journal.sqlite") as database:
        addresses = {address for (address,) in database.execute("SELECT address FROM entries")}
    assert addresses == {"0/ask0", "0/compute0", "1/ask0"}
    assert sorted(calls) == ["0/ask0", "1/ask0"]


@pytest.mark.usefixtures("quick_checks")
def test_a_failed_item_ends_a_run_of_which_another_item_waits_for_it(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        is_ready = asyncio.Event()

        async def meet(scope: Scope, number: int) -> None:
            await scope.ask(Speaker(f"p{number}"), "Well?")
            if number == 0:
                raise ValueError("nothing to say")
            await is_ready.wait()

        await session.map(range(2), meet)

    study = Study("small", "Small", StudyConfig, protocol)
    with pytest.raises(ValueError, match="nothing to say"):
        folkmoot.run(study, {}, provider=ScriptedProvider(lambda *_: "ok"), out=tmp_path / "run")
