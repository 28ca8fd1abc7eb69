"""One link for a class: who gets which seat, how people return, and what nobody else learns."""

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
from tests.default_signals import add_default_signals
from tests.sweeps import SCREEN_WIDTHS
from tests.view.asking import asking, served
from tests.view.conftest import CHROMIUM
from tests.view.test_seat import SHOTS, Table

VOTES = """
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
SHOWS, QUESTION = re.compile(r'data-shows="(\w*)"'), re.compile(r'name="question" value="(\w+)"')
STATE, CODE = re.compile(r'name="state" value="(\w+)"'), re.compile(r">(\w{5}-\w{5})<")
VISIT = re.compile(r'name="visit" value="([\w-]+)"')
POLL_SECONDS = 0.25


class Visitor:
    """One browser, without its scripts: it keeps its cookies and follows redirects."""

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
        where = str(reply.url)
        if found := re.match(r".*/seat/[\w-]+", where):
            self.seat = found[0]
        return unescape(await reply.text())

    async def enter(self, name: str = "", times: int = 1) -> str:
        """Agree, with a double click where `times` is 2, and note the return code."""
        page = await self.get(self.link)
        visit = VISIT.search(page)
        if visit is None:
            return page
        sent = {"visit": visit[1], "name": name}
        pages = await asyncio.gather(*(self.post(self.link, **sent) for _ in range(times)))
        if found := CODE.search(pages[0]):
            self.code = found[1]
            return await self.post(f"{self.seat}/noted")
        return pages[0]

    async def leave(self) -> str:
        page = await self.get(f"{self.seat}/leave")
        state = STATE.search(page)
        assert state is not None, page
        return await self.post(f"{self.seat}/leave", state=state[1], sure="yes")

    async def take_part(self, answers: int = 1_000) -> int:
        """Answer so many questions, or all of them, and return the number of answers."""
        given = 0
        while given < answers:
            page = await self.get(self.seat)
            shows = SHOWS.search(page)
            assert shows is not None, page
            if shows[1] == "end":
                break
            question = QUESTION.search(page)
            if question is None:
                await asyncio.sleep(POLL_SECONDS)
                continue
            chosen = 'type="radio" name="a"' in page
            place = "1" if self.second_at in page else "0"
            words = place if chosen else "Children could walk to school alone."
            # A form of several fields has no field `a`, and is declined as a whole.
            sent = {"a": words} if 'name="a"' in page else {"a~out": "~0"}
            async with self.session.post(
                f"{self.seat}/answer", data={"question": question[1], **sent}
            ) as reply:
                assert reply.status in (200, 409), await reply.text()
            given += 1
        return given


@asynccontextmanager
async def visitors(entry: str, *queries: str) -> AsyncIterator[list[Visitor]]:
    """Browsers that share no cookie."""
    sessions = [
        aiohttp.ClientSession(
            # The jar keeps cookies of numeric addresses only if told so.
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
    """`folkmoot run` in a process of its own, with its entry link and the researcher's."""

    def __init__(self, study: Path, out: Path, *more: str) -> None:
        command = [sys.executable, "-m", "folkmoot", "run", str(study), "--out", str(out)]
        self.process = subprocess.Popen(
            add_default_signals(*command, "--model", "synthetic", *more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
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
                self.said.append(line)
        self._reading = threading.Thread(target=self._listen, daemon=True)
        self._reading.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said += self.process.stderr

    async def over(self) -> int:
        code = await asyncio.to_thread(self.process.wait, 300)
        self._reading.join(60)
        return code

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.over()

    async def begin(self, visitor: Visitor) -> None:
        """Begin the study, as the researcher."""
        page = await visitor.get(f"{self.researcher}/start")
        state = STATE.search(page)
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


def taken_seats(out: Path) -> set[str]:
    seats = json.loads((out / "seats.json").read_text())["seats"]
    return {name for name, seat in seats.items() if seat["visit"]}


@pytest.mark.nightly(part="scale")
@pytest.mark.parametrize("count", [14, 60])
async def test_sixty_people_enter_by_one_link_and_ten_of_them_leave(
    tmp_path: Path, count: int
) -> None:
    """Each has one seat and nobody two, whether they have an id, a name, or a name that somebody
    else has too. Who leaves before the start was never there; who leaves later takes their words
    along."""
    study, out = tmp_path / "class.yaml", tmp_path / "run"
    study.write_text(VOTES.format(share=count // 2, minutes=10))
    queries = [f"?PROLIFIC_PID=5f{n:022x}" if n % 3 == 0 else "" for n in range(count)]
    names = ["" if query else f"Kim Secretname{n // 12}" for n, query in enumerate(queries)]
    with open_run(study, out) as run:
        async with visitors(run.entry, *queries) as people:
            early, late, staying = people[:5], people[5:10], people[10:]
            pages = await asyncio.gather(
                *(one.enter(name, times=2) for one, name in zip(people[:-1], names, strict=False))
            )
            assert all("Lobby" in page for page in pages)
            assert f"{count - 1} of {count} seats are taken" in await people[0].get(people[0].seat)
            assert len({one.code for one in people[:-1]}) == count - 1
            assert len({one.seat for one in people[:-1]}) == count - 1
            # Five leave before the start. Their seats are free again, and one of them is taken.
            gone = await asyncio.gather(*(one.leave() for one in early))
            assert all("You have left" in page for page in gone)
            # They have written nothing that could be deleted or shown to others.
            assert all("Your seat is free again" in page for page in gone)
            assert not any("where others were shown it" in page for page in gone)
            taken = await people[-1].enter(names[-1])
            assert f"{count - 5} of {count} seats are taken" in taken
            # Coming back by the link leads to the same seat, by the id or the cookie.
            seats = [one.seat for one in people[5:]]
            assert len(set(seats)) == count - 5
            await asyncio.gather(*(one.get(one.link) for one in people[5:]))
            assert [one.seat for one in people[5:]] == seats
            await run.begin(staying[0])
            async with visitors(run.entry, "", "?PROLIFIC_PID=stranger") as strangers:
                for stranger in strangers:
                    assert "the study has begun" in (await stranger.enter("Kim")).lower()
                    assert stranger.seat == ""
            # Five leave after their first answer.
            assert set(await asyncio.gather(*(one.take_part(1) for one in late))) == {1}
            gone = await asyncio.gather(*(one.leave() for one in late))
            assert all("You have left" in page for page in gone)
            overview = await staying[0].get(run.researcher)
            assert f"{count} seats: " in overview and "5 withdrawn" in overview
            assert re.search(
                rf'<option value="p_\d+">p_\d+ Kim Secretname{(count - 1) // 12}<', overview
            )
            given = await asyncio.gather(*(one.take_part() for one in staying))
            assert min(given) >= 1
        assert await run.over() == 0
    answers = RunFolder(out).read_table("answers")
    humans = answers.filter(answered_by="human")
    assert len(taken_seats(out)) == humans["speaker_id"].n_unique() == count - 5
    # Models have answered for the five seats that were free, and for nobody else.
    participants = answers.filter(role="participant")
    assert participants["speaker_id"].n_unique() == count
    assert participants.filter(answered_by="synthetic")["speaker_id"].n_unique() == 5
    assert len({found.data["seat"] for found in read_withdrawals(out)}) == 5
    _nothing_is_told(out, run, people)


def _nothing_is_told(out: Path, run: OpenRun, people: list[Visitor]) -> None:
    """Tokens, ids, codes and names stand in two files that only their owner can read."""
    secrets = {urlsplit(one.seat).path.split("/")[-1] for one in people}
    secrets |= {urlsplit(run.entry).path.split("/")[-1], run.researcher.split("/")[-1]}
    secrets |= {one.link.partition("=")[2] for one in people} - {""}
    secrets |= {one.code for one in people} | {one.code.replace("-", "") for one in people}
    secrets.add("Secretname")
    private = {"seats.json", "people.json"}
    for file in (file for file in out.rglob("*") if file.is_file() and file.name not in private):
        held = file.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in held], file
    assert not [line for line in run.said if any(secret in line for secret in secrets)]
    for name in private:
        assert (out / name).stat().st_mode & 0o077 == 0
    # The codes themselves are nowhere, not even there.
    kept = (out / "seats.json").read_text() + (out / "people.json").read_text()
    assert not [one.code for one in people if one.code.replace("-", "") in kept]


# Daily, a resumed run asks no human the same question twice.
@pytest.mark.nightly(part="kills")
async def test_killed_and_resumed_the_same_people_have_the_same_seats(tmp_path: Path) -> None:
    """By the id of the platform, by the cookie, and by the return code: killed in the lobby, and
    killed again in the middle of the study. The replay of the whole run gives the same tables."""
    study, out = tmp_path / "class.yaml", tmp_path / "run"
    study.write_text(VOTES.format(share=3, minutes=10))
    id = "?PROLIFIC_PID=5f01"
    with open_run(study, out) as run:
        async with visitors(run.entry, id, "", "") as people:
            await asyncio.gather(*(one.enter("Kim") for one in people))
            cookies = people[1].session.cookie_jar.filter_cookies(URL(run.entry))
        taken, names, code = [one.seat for one in people], taken_seats(out), people[2].code
        await run.kill()
    with open_run(study, out, "--resume") as again:
        assert (again.entry, again.researcher) == (run.entry, run.researcher)
        assert taken_seats(out) == names
        # The second person still has the cookie. The third one comes with another browser, and the
        # fourth one has the same name and is somebody else.
        async with visitors(again.entry, id, "", "", "") as people:
            people[1].session.cookie_jar.update_cookies(cookies, URL(again.entry))
            wrong = await people[2].post(f"{again.entry}/return", code="AAAAA-AAAAA")
            assert "No seat has this code" in wrong
            await people[2].post(f"{again.entry}/return", code=code.lower())
            await asyncio.gather(*(one.enter("Kim") for one in people))
            assert [one.seat for one in people[:3]] == taken
            assert people[3].seat not in taken
            taken.append(people[3].seat)
            await again.begin(people[0])
            assert set(await asyncio.gather(*(one.take_part(1) for one in people))) == {1}
        await again.kill()
    with JournalReader(out / JOURNAL) as journal:  # every answer that a page acknowledged
        kept = [e.address for e in journal.read_entries("ask") if e.model_asked == HUMAN_MODEL]
    assert len(kept) == 4
    with open_run(study, out, "--resume") as last:
        async with visitors(last.entry, id, "", "", "") as people:
            assert "the study has begun" in (await people[3].get(last.entry)).lower()
            await people[0].get(people[0].link)
            assert people[0].seat == taken[0]
            for one, seat in zip(people, taken, strict=True):
                one.seat = seat
            await asyncio.gather(*(one.take_part() for one in people))
        assert await last.over() == 0
    assert len(taken_seats(out)) == 4
    humans = RunFolder(out).read_table("answers").filter(answered_by="human")
    assert humans["speaker_id"].n_unique() == 4
    found = verify_run(RunFolder(out))
    assert found.is_consistent, (found.differences, found.not_compared)


async def test_when_the_time_is_over_models_take_the_free_seats_of_the_group(
    tmp_path: Path,
) -> None:
    """Two of four come to a focus group. The clock starts with the first one, and both are in one
    group with two models."""
    study, out = tmp_path / "talk.yaml", tmp_path / "run"
    study.write_text(
        "study: focus_group\ncategory: coffee\nnum_personas: 4\nquestions_per_phase: 1\n"
        "product_concept: A reusable cup that keeps coffee hot for six hours.\n"
        "seats: {lobby_minutes: 10, minutes: 5}\n"
    )
    table = Table(study, out, "open")
    async with visitors(table.links["One link for all"], "", "") as people:
        await asyncio.gather(*(one.enter(f"Kim {n}") for n, one in enumerate(people)))
        assert "lobby" in await people[0].get(people[0].seat)
        table.now += 600
        given = await asyncio.gather(*(one.take_part() for one in people))
    assert min(given) >= 3
    await table.over()
    speakers = RunFolder(out).read_table("utterances").filter(speaker_role="participant")
    assert speakers["speaker_id"].n_unique() == 4
    answers = RunFolder(out).read_table("answers").filter(role="participant")
    assert answers.filter(answered_by="human")["speaker_id"].n_unique() == 2
    assert answers.filter(answered_by="synthetic")["speaker_id"].n_unique() == 2


async def test_who_fails_a_check_amid_an_open_study_leaves_and_the_others_finish(
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
    table = Table(study, out)
    async with visitors(table.links["One link for all"], "", "") as people:
        await asyncio.gather(*(one.enter(f"Kim {n}") for n, one in enumerate(people)))
        people[1].second_at = "Name the drink."
        given = await asyncio.gather(*(one.take_part() for one in people))
        assert "C0DEOUT" in await people[1].get(people[1].seat)
        assert "C0DEOUT" not in await people[0].get(people[0].seat)
    # One answer before the stage is over, the check, and nothing after it.
    assert 2 <= given[1] < given[0]
    await table.over()
    run = RunFolder(out)
    outcomes = dict(run.read_table("checks").select("seat", "outcome").rows())
    assert sorted(outcomes.values()) == ["passed", "screened out"]
    gone = next(seat for seat, outcome in outcomes.items() if outcome == "screened out")
    answers = run.read_table("answers").filter(
        role="participant", speaker_id=gone.rpartition("/")[2]
    )
    # Nobody speaks for them afterwards.
    assert set(answers["answered_by"]) == {"human"}
    assert answers["missing"].to_list()[-1] == "screened out"
    found = verify_run(run)
    assert found.is_consistent, (found.differences, found.not_compared)


async def test_a_placeholder_is_no_id_and_another_host_is_no_entry(tmp_path: Path) -> None:
    """A link whose id was never filled in would give one seat to everybody."""
    places = [Seat("p_1"), Seat("p_2")]
    async with served(tmp_path, SeatSettings(open=True), *places) as (desk, links):
        entry = links["One link for all"]
        async with visitors(entry, "?PROLIFIC_PID={{%PROLIFIC_PID%}}", "") as (one, two):
            assert "no usable id" in await one.get(one.link)
            assert "no usable id" in await one.post(one.link, visit="x" * 32)
            assert "no such study" in await two.get(entry[:-1] + "_")
            # The seats of an open entry have no link before they are given out.
            for chair in desk:
                link = entry.partition("/enter")[0] + f"/seat/{chair.token}"
                assert "no such seat" in await two.get(link)
            elsewhere = {"Host": "attacker.example"}
            async with two.session.get(entry, headers=elsewhere) as reply:
                assert reply.status == 421
            async with two.session.get(entry) as reply:
                policy = reply.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy and "default-src 'none'" in policy
            async with two.session.post(entry, data={"visit": "x" * 32, "name": " "}) as reply:
                assert reply.status == 422
            page = await two.enter("Kim")
            assert "1 of 2 seats is taken" in page
            cookie = next(iter(two.session.cookie_jar))
            assert cookie["httponly"] and cookie["samesite"] == "lax"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("width", SCREEN_WIDTHS)
async def test_entry_lobby_consent_and_return_by_code_are_for_everybody(
    async_browser: Browser, tmp_path: Path, width: int
) -> None:
    """From the link to the first question and back by the code, in a browser: axe finds nothing,
    nothing is wider than the screen, and no other host is asked."""
    settings = SeatSettings(open=True, consent="We study how people decide together.")
    places = [Seat(f"p_{n}", ("group_001",)) for n in range(1, 4)]
    hosts: set[str] = set()
    async with served(tmp_path, settings, *places) as (desk, links):
        entry = links["One link for all"]

        async def look(page: Page, name: str) -> None:
            page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
            scroll, inner = "document.documentElement.scrollWidth", "window.innerWidth"
            assert await page.evaluate(scroll) <= await page.evaluate(inner), name
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            if SHOTS:
                await page.screenshot(path=f"{SHOTS}/{name}-{width}.png", full_page=True)

        async def arrive() -> Page:
            context = await async_browser.new_context(viewport={"width": width, "height": 800})
            page = await context.new_page()
            await page.goto(entry)
            return page

        page = await arrive()
        await expect(page.locator("main")).to_contain_text("We study how people decide together.")
        await expect(page.locator("main")).to_contain_text("openai/gpt-4o")
        await look(page, "entry")
        await page.get_by_label("Your name").fill("Kim")
        await page.get_by_role("button", name="I agree and take part").click()
        await expect(page.get_by_role("heading", name="You have a seat")).to_be_visible()
        await look(page, "code")
        code = await page.locator("strong.code").text_content() or ""
        seat = page.url
        await page.get_by_role("button", name="I have noted it").click()
        await expect(page.locator("#taken")).to_have_text("1 of 3 seats is taken.")
        await look(page, "lobby")
        # Somebody of the same name is somebody else. The first page hears of it by itself.
        other = await arrive()
        await other.get_by_label("Your name").fill("Kim")
        await other.get_by_label("Your name").press("Enter")
        await other.get_by_role("button", name="I have noted it").click()
        assert other.url != seat
        await expect(page.locator("#taken")).to_have_text("2 of 3 seats are taken.")
        # Another browser has no cookie. A wrong code leads nowhere, and the right one to the seat.
        again = await arrive()
        await again.get_by_text("I was here before").click()
        await again.get_by_label("Return code").fill("AAAAA-AAAAA")
        await again.get_by_role("button", name="Go to my seat").click()
        await expect(again.get_by_role("alert")).to_contain_text("No seat has this code")
        await look(again, "wrong-code")
        await again.get_by_label("Return code").fill(code.lower())
        await again.get_by_role("button", name="Go to my seat").click()
        await again.wait_for_url(seat)
        # The link leads the browser to its seat from now on.
        await again.goto(entry)
        assert again.url == seat
        # The researcher sees who is there and begins.
        researcher = await async_browser.new_page(viewport={"width": width, "height": 800})
        await researcher.goto(links["All seats, for you alone"])
        await expect(researcher.locator("main")).to_contain_text("2 of 3 seats are taken.")
        await expect(researcher.get_by_role("row")).to_have_count(4)
        await look(researcher, "seats")
        await researcher.get_by_role("link", name="Begin now").click()
        await look(researcher, "begin")
        await researcher.get_by_role("checkbox").check()
        await researcher.get_by_role("button", name="Begin").click()
        await expect(researcher.locator("tbody")).to_contain_text(PLAYED_BY_MODEL)
        assert not desk.lobby or not desk.lobby.is_open
        await expect(page.get_by_role("heading", name="Please wait")).to_be_visible()
        chair = next(chair for chair in desk if seat.endswith(chair.token))
        question = asking(desk, chair, "Well?", "text")
        await expect(page.get_by_role("heading", name="Your turn")).to_be_visible()
        await expect(page).to_have_title("Your turn · Folkmoot")
        await expect(page.locator(".progress")).to_contain_text("Question 1")
        await expect(researcher.locator("tbody")).to_contain_text("reading")  # by itself
        await look(page, "question")
        desk.withdraw_question(question, stored=False)
        late = await arrive()
        await expect(late.locator("main")).to_contain_text("The study has begun")
        await look(late, "late")
    assert {host.rpartition(":")[0] for host in hosts} <= {"127.0.0.1"}
