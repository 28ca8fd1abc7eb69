"""A run that goes on while its page is open: the page moves without being asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import folkmoot
from folkmoot import Choice, Scope, Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal import JournalReader
from folkmoot.models.request import Request
from folkmoot.models.scripted import Scripted
from folkmoot.storage.run_folder import JOURNAL
from tests.view.conftest import found_in, reader
from tests.waiting import wait_until

PEOPLE = [f"p_{n}" for n in range(8)]


async def protocol(session: Session[StudyConfig]) -> None:
    async def one(scope: Scope, who: str) -> None:
        speaker = Speaker(who, who.upper(), "participant", f"You are {who}.")
        await scope.ask(speaker, "Which?", answer=Choice(["tea", "milk"]))
        await scope.ask(Speaker("host", system="You ask."), "Ask why.")
        await scope.ask(speaker, "Why?")

    await session.at("first_vote").each(PEOPLE, one)
    session.warn("half of the tea is gone")
    await session.at("second_vote").each(PEOPLE, one)


class Held:
    """A run in a thread of its own, whose second stage waits until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting = threading.Event()
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.waiting.wait(30)
        wait_until(lambda: self._journaled() >= 3 * len(PEOPLE))  # commits are made in groups

    def _journaled(self) -> int:
        with JournalReader(self.folder / JOURNAL) as journal:
            return len(journal)

    def let_go(self) -> None:
        self._let_go.set()
        self._thread.join(30)

    def _run(self) -> None:
        async def answer(_request: Request, address: str) -> str:
            if address.startswith("second_vote"):
                self.waiting.set()
                await asyncio.to_thread(self._let_go.wait)
            said = {"0": "tea", "1": "Why tea <b>now</b>?", "2": "It is warm."}
            return said[address[-1]]

        study = Study("tea", "Tea", StudyConfig, protocol)
        folkmoot.run(study, {}, out=self.folder, provider=Scripted(answer))


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    run = Held(tmp_path / "outputs" / "tea")
    yield run
    run.let_go()


def test_the_pages_of_a_run_move_until_it_is_over(browser: Browser, held: Held) -> None:
    with reader(held.folder.parent) as server:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        runs = browser.new_page()
        runs.goto(server.url)
        page.goto(f"{server.url}/run/tea/-/")
        for shown in (runs, page):
            expect(shown.locator(".state.running").first).to_be_visible()
        expect(page.locator("#progress")).to_contain_text("8 of 8")
        expect(page.locator("#progress")).to_contain_text("half of the tea is gone")
        held.let_go()
        for shown in (runs, page):
            expect(shown.locator(".state.done").first).to_be_visible(timeout=15_000)
        expect(runs.locator("td.num").nth(1)).to_have_text("48")
        assert errors == []
        page.close()
        runs.close()


def test_who_was_asked_so_far_can_be_read(held: Held) -> None:
    with reader(held.folder.parent) as server:
        people = server.get("/run/tea/-/people").text
        assert all(who in people for who in PEOPLE)
        one = server.get("/run/tea/-/person?id=p_3").text
        assert "tea" in one and "It is warm." in one
        # Whose words they are is told by whose instructions were sent.
        own = one.split('class="said own"')
        assert len(own) == 3 and "somebody else" in one and "Why tea &lt;b&gt;now" in one
        assert "8 replies" in found_in(server, "tea", "warm")
        assert "here when the run has come" in server.get("/run/tea/-/rooms").text
        call = server.get("/run/tea/-/call?at=first_vote/p_3/ask0").text
        assert "You are p_3." in call and "Which?" in call


def test_the_index_grows_with_the_run(held: Held) -> None:
    with reader(held.folder.parent) as server:
        assert "8 replies" in found_in(server, "tea", "warm")
        held.let_go()
        assert "16 replies" in found_in(server, "tea", "warm")
