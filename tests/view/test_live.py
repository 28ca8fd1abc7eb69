"""Pages of a running run update without a reload."""

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
from tests.view.conftest import create_viewer_server, wait_for_search_results
from tests.view.growing import GrowingRun
from tests.view.tea import PARTICIPANT_IDS
from tests.view.test_talk import PARTICIPANT_KEY_COLUMNS as KEYS_OF_PARTICIPANTS
from tests.view.test_talk import ROOM_KEY_COLUMNS as KEYS_OF_ROOMS
from tests.waiting import wait_until


class WaitingRun:
    """A run in a separate thread. Its second stage waits until `release` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting = threading.Event()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.waiting.wait(30)
        wait_until(lambda: count_recorded_answers(folder) >= 3 * len(PARTICIPANT_IDS))

    def release(self) -> None:
        self._released.set()
        self._thread.join(30)

    def _run(self) -> None:
        async def wait() -> None:
            self.waiting.set()
            await asyncio.to_thread(self._released.wait)

        tea.run(self.folder, wait)


def count_recorded_answers(folder: Path) -> int:
    """Return the number of answers that another process could read."""
    try:
        answers = read_recordings(folder).get("answers")
        return 0 if answers is None else answers.to_frame().lazy().collect().height
    except StorageError:  # the file is being created
        return 0


@pytest.fixture
def waiting_run(tmp_path: Path) -> Iterator[WaitingRun]:
    run = WaitingRun(tmp_path / "outputs" / "tea")
    yield run
    run.release()


@pytest.mark.nightly(part="pages")
def test_pages_of_a_run_update_until_it_ends(browser: Browser, waiting_run: WaitingRun) -> None:
    with create_viewer_server(waiting_run.folder.parent) as server:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        runs = browser.new_page()
        runs.goto(server.url)
        page.goto(f"{server.url}/run/tea/-/")
        for open_page in (runs, page):
            expect(open_page.locator(".state.running").first).to_be_visible()
        expect(page.locator("#progress")).to_contain_text("8 of 8")
        expect(page.locator("#progress")).to_contain_text("half of the tea is gone")
        waiting_run.release()
        for open_page in (runs, page):
            expect(open_page.locator(".state.done").first).to_be_visible(timeout=15_000)
        expect(runs.locator("td.num").nth(1)).to_have_text("48")
        assert errors == []
        page.close()
        runs.close()


@pytest.mark.nightly(part="pages")
def test_eight_tabs_of_one_browser_follow_a_run(browser: Browser, waiting_run: WaitingRun) -> None:
    """A browser opens six connections to one server: an idle page must not hold one."""
    with create_viewer_server(waiting_run.folder.parent) as server, browser.new_context() as window:
        tabs = [window.new_page() for _ in range(8)]
        statuses: list[int] = []
        for number, tab in enumerate(tabs):
            tab.goto(f"{server.url}/run/tea/-/" if number % 4 else server.url)
            expect(tab.locator(".state.running").first).to_be_visible()
        tabs[-1].on("response", lambda reply: statuses.append(reply.status))
        with tabs[-1].expect_response(lambda reply: reply.status == 304):
            pass  # the page polls, and there is nothing new
        waiting_run.release()
        for tab in tabs:
            expect(tab.locator(".state.done").first).to_be_visible()
        expect(tabs[-1].locator("#findings")).not_to_contain_text("Reading the findings")
        assert set(statuses) <= {200, 286, 304}


def test_participants_of_a_running_run_can_be_read(waiting_run: WaitingRun) -> None:
    with create_viewer_server(waiting_run.folder.parent) as server:
        people_page = server.get("/run/tea/-/people").text
        assert all(participant_id in people_page for participant_id in PARTICIPANT_IDS)
        person_page = server.get("/run/tea/-/person?id=p_3").text
        assert "tea" in person_page and "It is warm." in person_page
        own_utterances = person_page.split('class="said own"')
        assert len(own_utterances) == 3 and "Why tea &lt;b&gt;now" in person_page
        assert "8 replies" in wait_for_search_results(server, "tea", "warm")
        assert "Nothing has been said in a room yet" in server.get("/run/tea/-/rooms").text
        call = server.get("/run/tea/-/call?at=first_vote/p_3/ask0").text
        assert "You are p_3." in call and "Which?" in call


def test_the_index_grows_with_the_run(waiting_run: WaitingRun) -> None:
    with create_viewer_server(waiting_run.folder.parent) as server:
        assert "8 replies" in wait_for_search_results(server, "tea", "warm")
        waiting_run.release()
        assert "16 replies" in wait_for_search_results(server, "tea", "warm")


@pytest.mark.nightly(part="kills")  # daily, test_browser reads a run that stopped without a word
def test_a_killed_run_is_shown_as_stopped_on_its_open_pages(
    browser: Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "outputs" / "tea"
    process = subprocess.Popen([sys.executable, "-m", "tests.view.tea", str(folder)])
    try:
        wait_until(lambda: count_recorded_answers(folder) >= 3 * len(PARTICIPANT_IDS), process.poll)
        with create_viewer_server(folder.parent) as server:
            page, runs = browser.new_page(), browser.new_page()
            runs.goto(server.url)
            page.goto(f"{server.url}/run/tea/-/")
            for open_page in (runs, page):
                expect(open_page.locator(".state.running").first).to_be_visible()
            process.send_signal(signal.SIGKILL)
            process.wait()
            for open_page in (runs, page):
                state_label = open_page.locator(".state.unfinished").first
                expect(state_label).to_have_text("stopped without a word, can be resumed")
            page.get_by_role("link", name="Participants").click()
            expect(page.locator("tbody tr")).to_have_count(len(PARTICIPANT_IDS))
            page.get_by_role("link", name="Report").click()
            expect(page.locator("main")).to_contain_text("nothing to report yet")
            page.close()
            runs.close()
    finally:
        process.kill()
        process.wait()


def copy_without_tables(finished: RunFolder, folder: Path) -> RunFolder:
    """Return the same run as it was on the disk before its tables were written."""
    run = GrowingRun(finished.path, folder)
    run.copy_files()
    run.write_journal(10**6)
    run.write_rows()
    return open_run(run.folder)


@pytest.mark.parametrize("study", KEYS_OF_PARTICIPANTS)
def test_participants_pages_are_the_same_before_the_tables_are_written(
    outputs: Path, tmp_path: Path, study: str
) -> None:
    finished = RunFolder(outputs / study)
    unfinished = copy_without_tables(finished, tmp_path / "x")
    keys = (
        people_frame(finished, people_of(finished))
        .select(KEY_COLUMN)
        .collect()[KEY_COLUMN]
        .to_list()
    )
    for key in keys[:: max(1, len(keys) // 4)]:
        finished_addresses = {line.address for line in find_person(finished, key).talk if line.own}
        assert {
            line.address for line in find_person(unfinished, key).talk if line.own
        } == finished_addresses, key


@pytest.mark.parametrize("study", KEYS_OF_ROOMS)
def test_a_room_is_the_same_before_the_tables_are_written(
    outputs: Path, tmp_path: Path, study: str
) -> None:
    finished = RunFolder(outputs / study)
    unfinished = copy_without_tables(finished, tmp_path / "x")
    columns = room_columns(unfinished)
    assert isinstance(unfinished, RunSoFar) and columns == room_columns(finished)
    assert find_rooms(unfinished, columns) == find_rooms(finished, columns) != []
    with JournalReader(unfinished.path / JOURNAL) as journal:
        for room in find_rooms(unfinished, columns)[:3]:
            finished_lines, unfinished_lines = (
                in_room(run, journal, columns, room.key, {}) for run in (finished, unfinished)
            )
            # Responses to other speakers are known only after the study records them.
            assert [replace(line, reactions=()) for line in finished_lines] == unfinished_lines
            address = next(line.address for line in unfinished_lines if line.address)
            assert build_call_view(unfinished, journal, address) == build_call_view(
                finished, journal, address
            )


# Daily, the pages of a run move until it is over.
@pytest.mark.nightly(part="pages")
def test_an_open_room_updates_unless_a_drawer_is_open(
    browser: Browser, outputs: Path, tmp_path: Path
) -> None:
    run = GrowingRun(outputs / "focus_group", tmp_path / "outputs" / "x")
    run.copy_files()
    row_count = run.write_journal(0)
    rows = 0

    def grow(is_enough: Callable[[], bool]) -> None:
        """Add single rows, because the order of replies differs between runs."""
        nonlocal rows
        while not is_enough() and rows < row_count:
            rows += 1
            run.write_journal(rows)
            run.write_rows()

    with create_viewer_server(run.folder.parent) as server:
        grow(lambda: "group_001" in server.get("/run/x/-/rooms").text)
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server.url}/run/x/-/rooms")
        page.get_by_role("link", name="group_001").first.click()
        expect(page.locator("#talk")).to_contain_text("so far")
        page.wait_for_load_state()
        articles = page.locator("#talk article")
        room = page.url.removeprefix(server.url)
        first_count = articles.count()
        grow(lambda: server.get(room).text.count("<article") > first_count)
        expect(articles).not_to_have_count(first_count)
        expect(page.locator(".htmx-added")).to_have_count(0)  # new elements react to clicks
        page.locator("details.call > summary").first.click()
        expect(page.locator("details.call[open]")).to_contain_text("Model served")
        second_count = articles.count()
        run.write_journal(row_count)
        run.write_rows()
        expect(page.get_by_role("link", name="Show it")).to_be_visible()
        # The drawer stays open, and the page does not change.
        expect(articles).to_have_count(second_count)
        page.get_by_role("link", name="Show it").click()
        expect(page.get_by_role("link", name="Show it")).to_be_hidden()
        expect(articles).not_to_have_count(second_count)
        for _ in run.iterate_end_states():
            pass
        expect(page.locator("#talk")).not_to_contain_text("so far")
        assert errors == []
        page.close()


# --- all states of a run -----------------------------------------------------------------------

PAGES_OF_EVERY_STATE = ("", "people", "people?q=a&sort=id", "rooms", "search?q=the")
# States in which the run is also killed and read.
KILLED_STATES = ("byte", "a table", "journal", PLAN, "replies", "answers", "utterances", CODEBOOK)
# A page that exists once must remain readable in all later states.
PAGES_AFTER_FIRST_REPLY = {
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


# Daily, a growing room of a focus group is checked in a browser (above).


@pytest.mark.nightly(part="pages")
@pytest.mark.parametrize("study", PAGES_AFTER_FIRST_REPLY)
def test_every_page_can_be_read_in_every_state_of_a_run(
    outputs: Path, tmp_path: Path, study: str
) -> None:
    run = GrowingRun(outputs / study, tmp_path / "outputs" / "x")
    readable_pages: set[str] = set()
    with create_viewer_server(run.folder.parent) as server:
        for state in run.iterate_states():
            check_pages_are_readable(server, readable_pages, study, state)
            if state.endswith(KILLED_STATES):
                run.release()
                check_pages_are_readable(server, readable_pages, study, f"killed at: {state}")
                run.hold()
    assert readable_pages == set(PAGES_AFTER_FIRST_REPLY[study])


def check_pages_are_readable(
    server: PageServer, readable_pages: set[str], study: str, state: str
) -> None:
    assert server.get("/").status == server.get("/search?q=a").status == 200, state
    if state.endswith("nothing"):
        return
    for page in (*PAGES_OF_EVERY_STATE, *PAGES_AFTER_FIRST_REPLY[study]):
        response = server.get(f"/run/x/-/{page}")
        if page in PAGES_OF_EVERY_STATE or page in readable_pages:
            assert response.status == 200, (state, page, response.text)
        if response.status == 200 and page in PAGES_AFTER_FIRST_REPLY[study]:
            readable_pages.add(page)
        assert "Cannot be read" not in response.text, (state, page)


def test_a_resumed_run_is_not_read_from_its_old_tables(outputs: Path, tmp_path: Path) -> None:
    run = GrowingRun(outputs / "cross_pollination", tmp_path / "outputs" / "x")
    for _ in run.iterate_states():
        pass
    table = run.folder / TABLES / "participants.parquet"
    pl.read_parquet(table).head(5).write_parquet(table)
    with create_viewer_server(run.folder.parent) as server:
        assert "5 people" in server.get("/run/x/-/people").text
        run.hold()
        assert "36 people" in server.get("/run/x/-/people").text
        run.release()
        (run.folder / MANIFEST).unlink()  # killed while it wrote its tables for the first time
        assert "36 people" in server.get("/run/x/-/people").text
