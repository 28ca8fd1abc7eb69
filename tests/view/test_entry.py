"""One link for a class: how seats are assigned, how humans return, and what stays private."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect
from yarl import URL

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.seats.seat_manager import PLAYED_BY_MODEL
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.engine.seats.withdrawal import read_withdrawals
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.browsers import CHROMIUM_PATH
from tests.default_signals import add_default_signals
from tests.view.asking import enqueue_question, serve_seats
from tests.view.test_seat import SCREENSHOT_FOLDER, SeatedRun

VOTE_STUDY = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: {share}
conditions: [simple_voting, clarified_passive]
max_clarification_exchanges: 2
min_responses_for_threshold: 50
personas: {{source: quota}}
seats:
  open: true
  lobby_minutes: {minutes}
"""
SHOWN_PATTERN, QUESTION_PATTERN = (
    re.compile(r'data-shows="(\w*)"'),
    re.compile(r'name="question" value="(\w+)"'),
)
STATE_PATTERN, CODE_PATTERN = (
    re.compile(r'name="state" value="(\w+)"'),
    re.compile(r">(\w{5}-\w{5})<"),
)
VISIT_PATTERN = re.compile(r'name="visit" value="([\w-]+)"')
POLL_SECONDS = 0.25


class Visitor:
    """A browser without scripts: it keeps cookies and follows redirects."""

    def __init__(self, session: aiohttp.ClientSession, entry: str, query: str = "") -> None:
        self.session = session
        self.entry = entry
        self.link = entry + query
        self.seat = ""
        self.code = ""
        # To this question the visitor gives the second option, and to all others the first.
        self.second_at = "no such question"

    async def get(self, address: str) -> str:
        async with self.session.get(address) as reply:
            return await self._read(reply)

    async def post(self, address: str, **sent: str) -> str:
        async with self.session.post(address, data=sent) as reply:
            return await self._read(reply)

    async def _read(self, reply: aiohttp.ClientResponse) -> str:
        url = str(reply.url)
        if match := re.match(r".*/seat/[\w-]+", url):
            self.seat = match[0]
        return unescape(await reply.text())

    async def enter(self, name: str = "", times: int = 1) -> str:
        """Agree, with a double click where `times` is 2, and note the return code."""
        page = await self.get(self.link)
        visit = VISIT_PATTERN.search(page)
        if visit is None:
            return page
        form = {"visit": visit[1], "name": name}
        pages = await asyncio.gather(*(self.post(self.link, **form) for _ in range(times)))
        if match := CODE_PATTERN.search(pages[0]):
            self.code = match[1]
            return await self.post(f"{self.seat}/noted")
        return pages[0]

    async def leave(self) -> str:
        page = await self.get(f"{self.seat}/leave")
        state = STATE_PATTERN.search(page)
        assert state is not None, page
        return await self.post(f"{self.seat}/leave", state=state[1], sure="yes")

    async def take_part(self, answers: int = 1_000) -> int:
        """Answer at most `answers` questions and return the number of answers."""
        answer_count = 0
        while answer_count < answers:
            page = await self.get(self.seat)
            shows = SHOWN_PATTERN.search(page)
            assert shows is not None, page
            if shows[1] == "end":
                break
            question = QUESTION_PATTERN.search(page)
            if question is None:
                await asyncio.sleep(POLL_SECONDS)
                continue
            is_choice = 'type="radio" name="a"' in page
            option_index = "1" if self.second_at in page else "0"
            answer_text = option_index if is_choice else "Children could walk to school alone."
            # A form of several fields has no field `a`, and is declined as a whole.
            form = {"a": answer_text} if 'name="a"' in page else {"a~out": "~0"}
            async with self.session.post(
                f"{self.seat}/answer", data={"question": question[1], **form}
            ) as reply:
                assert reply.status in (200, 409), await reply.text()
            answer_count += 1
        return answer_count


@asynccontextmanager
async def open_visitors(entry: str, *queries: str) -> AsyncIterator[list[Visitor]]:
    """Browsers that share no cookie."""
    sessions = [
        aiohttp.ClientSession(
            # With `unsafe` the jar also keeps cookies of numeric addresses.
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            connector=aiohttp.TCPConnector(limit=2),
            timeout=aiohttp.ClientTimeout(120),
        )
        for _ in queries
    ]
    try:
        yield [
            Visitor(session, entry, query) for session, query in zip(sessions, queries, strict=True)
        ]
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


class OpenRun:
    """`folkmoot run` in a separate process, with its entry link and the link of the researcher."""

    def __init__(self, study: Path, out: Path, *more: str) -> None:
        command = [sys.executable, "-m", "folkmoot", "run", str(study), "--out", str(out)]
        self.process = subprocess.Popen(
            add_default_signals(*command, "--model", "synthetic", *more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.output_lines: list[str] = []
        self.entry = self.researcher = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            name, _, link = line.strip().partition(": ")
            if name == "One link for all":
                self.entry = link
            elif name == "All seats, for you alone":
                self.researcher = link
                break
            else:
                self.output_lines.append(line)
        self._reading = threading.Thread(target=self._listen, daemon=True)
        self._reading.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.output_lines += self.process.stderr

    async def wait_for_exit(self) -> int:
        code = await asyncio.to_thread(self.process.wait, 300)
        self._reading.join(60)
        return code

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.wait_for_exit()

    async def start_study(self, visitor: Visitor) -> None:
        """Start the study as the researcher."""
        page = await visitor.get(f"{self.researcher}/start")
        state = STATE_PATTERN.search(page)
        assert state is not None, page
        await visitor.post(f"{self.researcher}/start", state=state[1], sure="yes")


@contextmanager
def open_run(study: Path, out: Path, *more: str) -> Iterator[OpenRun]:
    run = OpenRun(study, out, *more)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()


def read_taken_seats(out: Path) -> set[str]:
    seats = json.loads((out / "seats.json").read_text())["seats"]
    return {name for name, seat in seats.items() if seat["visit"]}


@pytest.mark.parametrize("count", [14, pytest.param(60, marks=pytest.mark.nightly(part="scale"))])
async def test_sixty_people_enter_by_one_link_and_ten_of_them_leave(
    tmp_path: Path, count: int
) -> None:
    """Each visitor gets exactly one seat, with an id, with a name, or with a name that another
    visitor has too. A visitor who leaves before the start leaves no trace. The words of a visitor
    who leaves later are removed."""
    study, out = tmp_path / "class.yaml", tmp_path / "run"
    study.write_text(VOTE_STUDY.format(share=count // 2, minutes=10))
    queries = [f"?PROLIFIC_PID=5f{n:022x}" if n % 3 == 0 else "" for n in range(count)]
    names = ["" if query else f"Kim Secretname{n // 12}" for n, query in enumerate(queries)]
    with open_run(study, out) as run:
        async with open_visitors(run.entry, *queries) as visitors:
            leaving_early, leaving_late, staying = (
                visitors[:5],
                visitors[5:10],
                visitors[10:],
            )
            pages = await asyncio.gather(
                *(
                    visitor.enter(name, times=2)
                    for visitor, name in zip(visitors[:-1], names, strict=False)
                )
            )
            assert all("Lobby" in page for page in pages)
            assert f"{count - 1} of {count} seats are taken" in await visitors[0].get(
                visitors[0].seat
            )
            assert len({visitor.code for visitor in visitors[:-1]}) == count - 1
            assert len({visitor.seat for visitor in visitors[:-1]}) == count - 1
            # Five leave before the start. Their seats are free again, and one of these is taken.
            pages_after_leaving = await asyncio.gather(
                *(visitor.leave() for visitor in leaving_early)
            )
            assert all("You have left" in page for page in pages_after_leaving)
            # They had written nothing that could be deleted or shown to others.
            assert all("Your seat is free again" in page for page in pages_after_leaving)
            assert not any("where others were shown it" in page for page in pages_after_leaving)
            page_of_last = await visitors[-1].enter(names[-1])
            assert f"{count - 5} of {count} seats are taken" in page_of_last
            # A return by the link leads to the same seat, by the id or the cookie.
            seats = [visitor.seat for visitor in visitors[5:]]
            assert len(set(seats)) == count - 5
            await asyncio.gather(*(visitor.get(visitor.link) for visitor in visitors[5:]))
            assert [visitor.seat for visitor in visitors[5:]] == seats
            await run.start_study(staying[0])
            async with open_visitors(run.entry, "", "?PROLIFIC_PID=stranger") as strangers:
                for stranger in strangers:
                    assert "the study has begun" in (await stranger.enter("Kim")).lower()
                    assert stranger.seat == ""
            # Five leave after their first answer.
            assert set(
                await asyncio.gather(*(visitor.take_part(1) for visitor in leaving_late))
            ) == {1}
            pages_after_leaving = await asyncio.gather(
                *(visitor.leave() for visitor in leaving_late)
            )
            assert all("You have left" in page for page in pages_after_leaving)
            overview = await staying[0].get(run.researcher)
            assert f"{count} seats: " in overview and "5 withdrawn" in overview
            assert re.search(
                rf'<option value="p_\d+">p_\d+ Kim Secretname{(count - 1) // 12}<', overview
            )
            answer_counts = await asyncio.gather(*(visitor.take_part() for visitor in staying))
            assert min(answer_counts) >= 1
        assert await run.wait_for_exit() == 0
    answers = RunFolder(out).read_table("answers")
    humans = answers.filter(answered_by="human")
    assert len(read_taken_seats(out)) == humans["speaker_id"].n_unique() == count - 5
    # Models have answered only for the five seats that were free.
    participants = answers.filter(role="participant")
    assert participants["speaker_id"].n_unique() == count
    assert participants.filter(answered_by="synthetic")["speaker_id"].n_unique() == 5
    assert len({withdrawal.data["seat"] for withdrawal in read_withdrawals(out)}) == 5
    check_secrets_are_private(out, run, visitors)


def check_secrets_are_private(out: Path, run: OpenRun, visitors: list[Visitor]) -> None:
    """Tokens, ids, codes and names are only in two files, which only their owner can read."""
    secrets = {urlsplit(visitor.seat).path.split("/")[-1] for visitor in visitors}
    secrets |= {urlsplit(run.entry).path.split("/")[-1], run.researcher.split("/")[-1]}
    secrets |= {visitor.link.partition("=")[2] for visitor in visitors} - {""}
    secrets |= {visitor.code for visitor in visitors} | {
        visitor.code.replace("-", "") for visitor in visitors
    }
    secrets.add("Secretname")
    private = {"seats.json", "people.json"}
    for file in (file for file in out.rglob("*") if file.is_file() and file.name not in private):
        content = file.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], file
    assert not [line for line in run.output_lines if any(secret in line for secret in secrets)]
    for name in private:
        assert (out / name).stat().st_mode & 0o077 == 0
    # The codes themselves are in no file, not even in these two.
    private_text = (out / "seats.json").read_text() + (out / "people.json").read_text()
    assert not [
        visitor.code for visitor in visitors if visitor.code.replace("-", "") in private_text
    ]


async def test_name_of_a_human_who_withdraws_is_deleted_at_once(tmp_path: Path) -> None:
    """The id of a recruitment site still leads back to the last page of the seat."""
    seats = Seat("p_1"), Seat("p_2")
    async with serve_seats(tmp_path, SeatSettings(open=True), *seats) as (_, links):
        entry, researcher = links["One link for all"], links["All seats, for you alone"]
        async with open_visitors(entry, "", "?PROLIFIC_PID=5f3a") as visitors:
            for visitor, name in zip(visitors, ("Kim Secretname", "Bo Secretname"), strict=True):
                await visitor.enter(name)
            overview = await visitors[0].get(researcher)
            assert "Kim Secretname" in overview and "Bo Secretname" in overview
            for visitor in visitors:
                assert "You have left" in await visitor.leave()
            assert "You have left" in await visitors[1].get(visitors[1].link)
            overview = await visitors[0].get(researcher)
            assert "2 withdrawn" in overview and "Secretname" not in overview
            assert "Secretname" not in (tmp_path / "people.json").read_text()


# Daily, a resumed run asks no human the same question twice.
@pytest.mark.nightly(part="kills")
async def test_visitors_have_the_same_seats_after_a_kill_and_resume(tmp_path: Path) -> None:
    """Visitors return by the platform id, the cookie, and the return code. The run is killed in the
    lobby and in the middle of the study. A replay of the whole run gives the same tables."""
    study, out = tmp_path / "class.yaml", tmp_path / "run"
    study.write_text(VOTE_STUDY.format(share=3, minutes=10))
    id_query = "?PROLIFIC_PID=5f01"
    with open_run(study, out) as run:
        async with open_visitors(run.entry, id_query, "", "") as visitors:
            await asyncio.gather(*(visitor.enter("Kim") for visitor in visitors))
            cookies = visitors[1].session.cookie_jar.filter_cookies(URL(run.entry))
        seat_links, taken_names, code = (
            [visitor.seat for visitor in visitors],
            read_taken_seats(out),
            visitors[2].code,
        )
        await run.kill()
    with open_run(study, out, "--resume") as resumed_run:
        assert (resumed_run.entry, resumed_run.researcher) == (run.entry, run.researcher)
        assert read_taken_seats(out) == taken_names
        # The second visitor still has the cookie. The third one comes with another browser. The
        # fourth one is another person with the same name.
        async with open_visitors(resumed_run.entry, id_query, "", "", "") as visitors:
            visitors[1].session.cookie_jar.update_cookies(cookies, URL(resumed_run.entry))
            wrong = await visitors[2].post(f"{resumed_run.entry}/return", code="AAAAA-AAAAA")
            assert "No seat has this code" in wrong
            await visitors[2].post(f"{resumed_run.entry}/return", code=code.lower())
            await asyncio.gather(*(visitor.enter("Kim") for visitor in visitors))
            assert [visitor.seat for visitor in visitors[:3]] == seat_links
            assert visitors[3].seat not in seat_links
            seat_links.append(visitors[3].seat)
            await resumed_run.start_study(visitors[0])
            assert set(await asyncio.gather(*(visitor.take_part(1) for visitor in visitors))) == {1}
        await resumed_run.kill()
    with JournalReader(out / JOURNAL) as journal:  # every answer that a page acknowledged
        human_addresses = [
            entry.address
            for entry in journal.read_entries("ask")
            if entry.model_asked == HUMAN_MODEL
        ]
    assert len(human_addresses) == 4
    with open_run(study, out, "--resume") as last_run:
        async with open_visitors(last_run.entry, id_query, "", "", "") as visitors:
            assert "the study has begun" in (await visitors[3].get(last_run.entry)).lower()
            await visitors[0].get(visitors[0].link)
            assert visitors[0].seat == seat_links[0]
            for visitor, seat in zip(visitors, seat_links, strict=True):
                visitor.seat = seat
            await asyncio.gather(*(visitor.take_part() for visitor in visitors))
        assert await last_run.wait_for_exit() == 0
    assert len(read_taken_seats(out)) == 4
    humans = RunFolder(out).read_table("answers").filter(answered_by="human")
    assert humans["speaker_id"].n_unique() == 4
    verification = verify_run(RunFolder(out))
    assert verification.is_consistent, (verification.differences, verification.not_compared)


async def test_when_the_time_is_over_models_take_the_free_seats_of_the_group(
    tmp_path: Path,
) -> None:
    """Two of four come to a focus group. The clock starts with the first one. Both are in one group
    with two models."""
    study, out = tmp_path / "talk.yaml", tmp_path / "run"
    study.write_text(
        "study: focus_group\ncategory: coffee\nnum_personas: 4\nquestions_per_phase: 1\n"
        "product_concept: A reusable cup that keeps coffee hot for six hours.\n"
        "seats: {lobby_minutes: 10, minutes: 5}\n"
    )
    seated_run = SeatedRun(study, out, "open")
    async with open_visitors(seated_run.links["One link for all"], "", "") as visitors:
        await asyncio.gather(*(visitor.enter(f"Kim {n}") for n, visitor in enumerate(visitors)))
        assert "lobby" in await visitors[0].get(visitors[0].seat)
        seated_run.now += 600
        answer_counts = await asyncio.gather(*(visitor.take_part() for visitor in visitors))
    assert min(answer_counts) >= 3
    await seated_run.wait_for_run()
    speakers = RunFolder(out).read_table("utterances").filter(speaker_role="participant")
    assert speakers["speaker_id"].n_unique() == 4
    answers = RunFolder(out).read_table("answers").filter(role="participant")
    assert answers.filter(answered_by="human")["speaker_id"].n_unique() == 2
    assert answers.filter(answered_by="synthetic")["speaker_id"].n_unique() == 2


async def test_a_human_who_fails_a_check_leaves_an_open_study_and_the_others_finish(
    tmp_path: Path,
) -> None:
    study, out = tmp_path / "talk.yaml", tmp_path / "run"
    study.write_text(
        "study: focus_group\ncategory: coffee\nnum_personas: 4\nquestions_per_phase: 1\n"
        "product_concept: A reusable cup that keeps coffee hot for six hours.\n"
        "seats:\n  open: true\n  count: 2\n  minutes: 5\n  screen_out_code: C0DEOUT\n  checks:\n"
        "    - {question: Name the drink., options: [Coffee, Tea], right: Coffee,\n"
        "       after_stage: before, on_failure: end}\n"
    )
    seated_run = SeatedRun(study, out)
    async with open_visitors(seated_run.links["One link for all"], "", "") as visitors:
        await asyncio.gather(*(visitor.enter(f"Kim {n}") for n, visitor in enumerate(visitors)))
        visitors[1].second_at = "Name the drink."
        answer_counts = await asyncio.gather(*(visitor.take_part() for visitor in visitors))
        assert "C0DEOUT" in await visitors[1].get(visitors[1].seat)
        assert "C0DEOUT" not in await visitors[0].get(visitors[0].seat)
    # One answer before the stage is over, the check, and nothing after it.
    assert 2 <= answer_counts[1] < answer_counts[0]
    await seated_run.wait_for_run()
    run = RunFolder(out)
    outcomes = dict(run.read_table("checks").select("seat", "outcome").rows())
    assert sorted(outcomes.values()) == ["passed", "screened out"]
    screened_out_seat = next(
        seat for seat, outcome in outcomes.items() if outcome == "screened out"
    )
    answers = run.read_table("answers").filter(
        role="participant", speaker_id=screened_out_seat.rpartition("/")[2]
    )
    # No model speaks for them afterwards.
    assert set(answers["answered_by"]) == {"human"}
    assert answers["missing"].to_list()[-1] == "screened out"
    verification = verify_run(run)
    assert verification.is_consistent, (verification.differences, verification.not_compared)


async def test_a_placeholder_id_and_another_host_are_refused(tmp_path: Path) -> None:
    """A link with an unfilled id placeholder would give one seat to all visitors."""
    seats = [Seat("p_1"), Seat("p_2")]
    async with serve_seats(tmp_path, SeatSettings(open=True), *seats) as (seat_manager, links):
        entry = links["One link for all"]
        async with open_visitors(entry, "?PROLIFIC_PID={{%PROLIFIC_PID%}}", "") as (first, second):
            assert "no usable id" in await first.get(first.link)
            assert "no usable id" in await first.post(first.link, visit="x" * 32)
            assert "no such study" in await second.get(entry[:-1] + "_")
            # The seats of an open entry have no link before they are assigned.
            for seat_state in seat_manager:
                link = entry.partition("/enter")[0] + f"/seat/{seat_state.token}"
                assert "no such seat" in await second.get(link)
            elsewhere = {"Host": "attacker.example"}
            async with second.session.get(entry, headers=elsewhere) as reply:
                assert reply.status == 421
            async with second.session.get(entry) as reply:
                policy = reply.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy and "default-src 'none'" in policy
            async with second.session.post(entry, data={"visit": "x" * 32, "name": " "}) as reply:
                assert reply.status == 422
            page = await second.enter("Kim")
            assert "1 of 2 seats is taken" in page
            cookie = next(iter(second.session.cookie_jar))
            assert cookie["httponly"] and cookie["samesite"] == "lax"


@pytest.mark.nightly(part="pages")
@pytest.mark.skipif(CHROMIUM_PATH is None, reason="no Chromium on this machine")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("width", [375, 1280])
async def test_entry_lobby_consent_and_return_by_code_are_accessible(
    async_browser: Browser, tmp_path: Path, width: int
) -> None:
    """From the link to the first question and back by the code, in a browser: axe finds no
    violation, nothing is wider than the screen, and there are no requests to other hosts."""
    settings = SeatSettings(open=True, consent="We study how people decide together.")
    seats = [Seat(f"p_{n}", ("group_001",)) for n in range(1, 4)]
    hosts: set[str] = set()
    async with serve_seats(tmp_path, settings, *seats) as (seat_manager, links):
        entry = links["One link for all"]

        async def check_page(page: Page, name: str) -> None:
            page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
            scroll, inner = "document.documentElement.scrollWidth", "window.innerWidth"
            assert await page.evaluate(scroll) <= await page.evaluate(inner), name
            axe_results = await Axe().run(page)
            assert axe_results.violations_count == 0, axe_results.generate_report()
            if SCREENSHOT_FOLDER:
                await page.screenshot(
                    path=f"{SCREENSHOT_FOLDER}/{name}-{width}.png", full_page=True
                )

        async def open_entry_page() -> Page:
            context = await async_browser.new_context(viewport={"width": width, "height": 800})
            page = await context.new_page()
            await page.goto(entry)
            return page

        page = await open_entry_page()
        await expect(page.locator("main")).to_contain_text("We study how people decide together.")
        await expect(page.locator("main")).to_contain_text("openai/gpt-4o")
        await check_page(page, "entry")
        await page.get_by_label("Your name").fill("Kim")
        await page.get_by_role("button", name="I agree and take part").click()
        await expect(page.get_by_role("heading", name="You have a seat")).to_be_visible()
        await check_page(page, "code")
        code = await page.locator("strong.code").text_content() or ""
        seat = page.url
        await page.get_by_role("button", name="I have noted it").click()
        await expect(page.locator("#taken")).to_have_text("1 of 3 seats is taken.")
        await check_page(page, "lobby")
        # A visitor with the same name is another person. The first page updates by itself.
        second_page = await open_entry_page()
        await second_page.get_by_label("Your name").fill("Kim")
        await second_page.get_by_label("Your name").press("Enter")
        await second_page.get_by_role("button", name="I have noted it").click()
        assert second_page.url != seat
        await expect(page.locator("#taken")).to_have_text("2 of 3 seats are taken.")
        # Another browser has no cookie. A wrong code is refused, the right one leads to the seat.
        returning_page = await open_entry_page()
        await returning_page.get_by_text("I was here before").click()
        await returning_page.get_by_label("Return code").fill("AAAAA-AAAAA")
        await returning_page.get_by_role("button", name="Go to my seat").click()
        await expect(returning_page.get_by_role("alert")).to_contain_text("No seat has this code")
        await check_page(returning_page, "wrong-code")
        await returning_page.get_by_label("Return code").fill(code.lower())
        await returning_page.get_by_role("button", name="Go to my seat").click()
        await returning_page.wait_for_url(seat)
        # The link leads the browser to its seat from now on.
        await returning_page.goto(entry)
        assert returning_page.url == seat
        # The researcher sees the taken seats and starts the study.
        researcher = await async_browser.new_page(viewport={"width": width, "height": 800})
        await researcher.goto(links["All seats, for you alone"])
        await expect(researcher.locator("main")).to_contain_text("2 of 3 seats are taken.")
        await expect(researcher.get_by_role("row")).to_have_count(4)
        await check_page(researcher, "seats")
        await researcher.get_by_role("link", name="Begin now").click()
        await check_page(researcher, "begin")
        await researcher.get_by_role("checkbox").check()
        await researcher.get_by_role("button", name="Begin").click()
        await expect(researcher.locator("tbody")).to_contain_text(PLAYED_BY_MODEL)
        assert not seat_manager.lobby or not seat_manager.lobby.is_open
        await expect(page.get_by_role("heading", name="Please wait")).to_be_visible()
        seat_state = next(
            seat_state for seat_state in seat_manager if seat.endswith(seat_state.token)
        )
        question = enqueue_question(seat_manager, seat_state, "Well?", "text")
        await expect(page.get_by_role("heading", name="Your turn")).to_be_visible()
        await expect(page).to_have_title("Your turn · Folkmoot")
        await expect(page.locator(".progress")).to_contain_text("Question 1")
        await expect(researcher.locator("tbody")).to_contain_text("reading")  # by itself
        await check_page(page, "question")
        seat_manager.withdraw_question(question, stored=False)
        late_page = await open_entry_page()
        await expect(late_page.locator("main")).to_contain_text("The study has begun")
        await check_page(late_page, "late")
    assert {host.rpartition(":")[0] for host in hosts} <= {"127.0.0.1"}
