"""A run that goes on while its page is open: the page moves without being asked."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, expect

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.folder_access import open_run
from folkmoot.errors import StorageError
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    MANIFEST,
    PLAN,
    TABLES,
    RunFolder,
    RunSoFar,
)
from folkmoot.storage.table_buffer import read_recordings
from folkmoot.view.people import KEY_COLUMN, people_frame, people_of
from folkmoot.view.person import find_person
from folkmoot.view.rooms import find_rooms, in_room, room_columns
from folkmoot.view.talk import build_call_view
from tests.servers.pages import PageServer
from tests.view import tea
from tests.view.conftest import found_in, reader
from tests.view.growing import Growing
from tests.view.tea import PEOPLE
from tests.view.test_talk import PEOPLE as PEOPLE_OF
from tests.view.test_talk import ROOMS as ROOMS_OF
from tests.waiting import wait_until


class Held:
    """A run in a thread of its own, whose second stage waits until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting = threading.Event()
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.waiting.wait(30)
        wait_until(lambda: recorded(folder) >= 3 * len(PEOPLE))

    def let_go(self) -> None:
        self._let_go.set()
        self._thread.join(30)

    def _run(self) -> None:
        async def wait() -> None:
            self.waiting.set()
            await asyncio.to_thread(self._let_go.wait)

        tea.run(self.folder, wait)


def recorded(folder: Path) -> int:
    """How many answers another process could read."""
    try:
        found = read_recordings(folder).get("answers")
        return 0 if found is None else found.to_frame().lazy().collect().height
    except StorageError:  # it is being made
        return 0


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    run = Held(tmp_path / "outputs" / "tea")
    yield run
    run.let_go()


@pytest.mark.nightly(part="pages")
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


@pytest.mark.nightly(part="pages")
def test_eight_tabs_of_one_browser_follow_a_run(browser: Browser, held: Held) -> None:
    """A browser opens six connections to one server: no page may hold one while nothing happens."""
    with reader(held.folder.parent) as server, browser.new_context() as window:
        tabs = [window.new_page() for _ in range(8)]
        statuses: list[int] = []
        for number, tab in enumerate(tabs):
            tab.goto(f"{server.url}/run/tea/-/" if number % 4 else server.url)
            expect(tab.locator(".state.running").first).to_be_visible()
        tabs[-1].on("response", lambda reply: statuses.append(reply.status))
        with tabs[-1].expect_response(lambda reply: reply.status == 304):
            pass  # it asks again, and has nothing to show
        held.let_go()
        for tab in tabs:
            expect(tab.locator(".state.done").first).to_be_visible()
        expect(tabs[-1].locator("#findings")).not_to_contain_text("Reading the findings")
        assert set(statuses) <= {200, 286, 304}


def test_who_was_asked_so_far_can_be_read(held: Held) -> None:
    with reader(held.folder.parent) as server:
        people = server.get("/run/tea/-/people").text
        assert all(who in people for who in PEOPLE)
        one = server.get("/run/tea/-/person?id=p_3").text
        assert "tea" in one and "It is warm." in one
        own = one.split('class="said own"')
        assert len(own) == 3 and "Why tea &lt;b&gt;now" in one
        assert "8 replies" in found_in(server, "tea", "warm")
        assert "Nothing has been said in a room yet" in server.get("/run/tea/-/rooms").text
        call = server.get("/run/tea/-/call?at=first_vote/p_3/ask0").text
        assert "You are p_3." in call and "Which?" in call


def test_the_index_grows_with_the_run(held: Held) -> None:
    with reader(held.folder.parent) as server:
        assert "8 replies" in found_in(server, "tea", "warm")
        held.let_go()
        assert "16 replies" in found_in(server, "tea", "warm")


@pytest.mark.nightly(part="kills")  # daily, test_browser reads a run that stopped without a word
def test_a_run_that_is_killed_is_told_on_its_open_pages(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "tea"
    process = subprocess.Popen([sys.executable, "-m", "tests.view.tea", str(folder)])
    try:
        wait_until(lambda: recorded(folder) >= 3 * len(PEOPLE), process.poll)
        with reader(folder.parent) as server:
            page, runs = browser.new_page(), browser.new_page()
            runs.goto(server.url)
            page.goto(f"{server.url}/run/tea/-/")
            for shown in (runs, page):
                expect(shown.locator(".state.running").first).to_be_visible()
            process.send_signal(signal.SIGKILL)
            process.wait()
            for shown in (runs, page):
                said = shown.locator(".state.unfinished").first
                expect(said).to_have_text("stopped without a word, can be resumed")
            page.get_by_role("link", name="Participants").click()
            expect(page.locator("tbody tr")).to_have_count(len(PEOPLE))
            page.get_by_role("link", name="Report").click()
            expect(page.locator("main")).to_contain_text("nothing to report yet")
            page.close()
            runs.close()
    finally:
        process.kill()
        process.wait()


def without_tables(finished: RunFolder, folder: Path) -> RunFolder:
    """The same run as it lay on the disk before its tables were written."""
    run = Growing(finished.path, folder)
    run.begin()
    run.journal(10**6)
    run.record()
    return open_run(run.folder)


@pytest.mark.parametrize("study", PEOPLE_OF)
def test_participants_pages_are_the_same_before_the_tables_are_written(
    outputs: Path, tmp_path: Path, study: str
) -> None:
    finished = RunFolder(outputs / study)
    now = without_tables(finished, tmp_path / "x")
    keys = (
        people_frame(finished, people_of(finished))
        .select(KEY_COLUMN)
        .collect()[KEY_COLUMN]
        .to_list()
    )
    for key in keys[:: max(1, len(keys) // 4)]:
        known = {s.address for s in find_person(finished, key).talk if s.own}
        assert {s.address for s in find_person(now, key).talk if s.own} == known, key


@pytest.mark.parametrize("study", ROOMS_OF)
def test_a_room_is_the_same_before_the_tables_are_written(
    outputs: Path, tmp_path: Path, study: str
) -> None:
    finished = RunFolder(outputs / study)
    now = without_tables(finished, tmp_path / "x")
    columns = room_columns(now)
    assert isinstance(now, RunSoFar) and columns == room_columns(finished)
    assert find_rooms(now, columns) == find_rooms(finished, columns) != []
    with JournalReader(now.path / JOURNAL) as journal:
        for room in find_rooms(now, columns)[:3]:
            then, already = (in_room(r, journal, columns, room.key, {}) for r in (finished, now))
            # To whom a speaker responds is told when a study records it.
            assert [replace(line, reactions=()) for line in then] == already
            address = next(line.address for line in already if line.address)
            assert build_call_view(now, journal, address) == build_call_view(
                finished, journal, address
            )


# Daily, the pages of a run move until it is over.
@pytest.mark.nightly(part="pages")
def test_an_open_room_moves_but_not_under_who_reads_in_it(
    browser: Browser, outputs: Path, tmp_path: Path
) -> None:
    run = Growing(outputs / "focus_group", tmp_path / "outputs" / "x")
    run.begin()
    whole = run.journal(0)
    rows = 0

    def grow(enough: Callable[[], bool]) -> None:
        """Row by row: whose replies come first is another order in each run."""
        nonlocal rows
        while not enough() and rows < whole:
            rows += 1
            run.journal(rows)
            run.record()

    with reader(run.folder.parent) as server:
        grow(lambda: "group_001" in server.get("/run/x/-/rooms").text)
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.goto(f"{server.url}/run/x/-/rooms")
        page.get_by_role("link", name="group_001").first.click()
        expect(page.locator("#talk")).to_contain_text("so far")
        page.wait_for_load_state()
        said = page.locator("#talk article")
        room = page.url.removeprefix(server.url)
        few = said.count()
        grow(lambda: server.get(room).text.count("<article") > few)
        expect(said).not_to_have_count(few)
        expect(page.locator(".htmx-added")).to_have_count(0)  # what is new answers to clicks
        page.locator("details.call > summary").first.click()
        expect(page.locator("details.call[open]")).to_contain_text("Model served")
        some = said.count()
        run.journal(whole)
        run.record()
        expect(page.get_by_role("link", name="Show it")).to_be_visible()
        expect(said).to_have_count(some)  # the drawer stays open, and nothing moves
        page.get_by_role("link", name="Show it").click()
        expect(page.get_by_role("link", name="Show it")).to_be_hidden()
        expect(said).not_to_have_count(some)
        for _ in run.end():
            pass
        expect(page.locator("#talk")).not_to_contain_text("so far")
        assert errors == []
        page.close()


# --- a run's whole life ------------------------------------------------------------------------

ALWAYS = ("", "people", "people?q=a&sort=id", "rooms", "search?q=the")
# States in which it is killed as well, and found so.
KILLED = ("byte", "a table", "journal", PLAN, "replies", "answers", "utterances", CODEBOOK)
# What is there once stays there, whatever becomes of the tables meanwhile.
ONCE = {
    "focus_group": (
        "person?id=group_001/p_0002", "room?id=group_001&id=oven",
        "room?id=group_001&id=oven&private=1",
        "said?at=discussion/group_001/oven/warmup/q01/p_0002/says/ask0",
        "call?at=discussion/group_001/oven/warmup/q01/p_0002/says/ask0",
    ),
    "town_hall": (
        "person?id=set01_lv4/A02", "room?id=set01_lv4", "said?at=set01_lv4/before/A01/ask0",
    ),
    "negotiation": ("person?id=spouses_01/traveler_1", "room?id=spouses_01&id=C4"),
    "cross_pollination": ("person?id=p_0004", "said?at=initial_vote/p_0004/ask0"),
    "workbook": ("person?id=1.6", "room?id=public_goods&id=1"),
}  # fmt: skip


# Daily, the room of a focus group is watched in a browser while it grows (above).
DAILY = ("cross_pollination",)


@pytest.mark.parametrize(
    "study",
    [s if s in DAILY else pytest.param(s, marks=pytest.mark.nightly(part="pages")) for s in ONCE],
)
def test_every_page_can_be_read_at_every_moment_of_a_run(
    outputs: Path, tmp_path: Path, study: str
) -> None:
    run = Growing(outputs / study, tmp_path / "outputs" / "x")
    there: set[str] = set()
    with reader(run.folder.parent) as server:
        for state in run.life():
            _readable(server, there, study, state)
            if state.endswith(KILLED):
                run.let_go()
                _readable(server, there, study, f"killed at: {state}")
                run.hold()
    assert there == set(ONCE[study])


def _readable(server: PageServer, there: set[str], study: str, state: str) -> None:
    assert server.get("/").status == server.get("/search?q=a").status == 200, state
    if state.endswith("nothing"):
        return
    for page in (*ALWAYS, *ONCE[study]):
        got = server.get(f"/run/x/-/{page}")
        if page in ALWAYS or page in there:
            assert got.status == 200, (state, page, got.text)
        if got.status == 200 and page in ONCE[study]:
            there.add(page)
        assert "Cannot be read" not in got.text, (state, page)


def test_a_paused_run_that_goes_on_is_not_read_from_its_old_tables(
    outputs: Path, tmp_path: Path
) -> None:
    run = Growing(outputs / "cross_pollination", tmp_path / "outputs" / "x")
    for _ in run.life():
        pass
    table = run.folder / TABLES / "participants.parquet"
    pl.read_parquet(table).head(5).write_parquet(table)
    with reader(run.folder.parent) as server:
        assert "5 people" in server.get("/run/x/-/people").text
        run.hold()
        assert "36 people" in server.get("/run/x/-/people").text
        run.let_go()
        (run.folder / MANIFEST).unlink()  # killed while it wrote its tables for the first time
        assert "36 people" in server.get("/run/x/-/people").text
