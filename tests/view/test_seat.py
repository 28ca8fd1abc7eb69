"""People in seats, in a real browser: from the link to the completion code."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import polars as pl
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect
from playwright.async_api import Error as PlaywrightError

import folkmoot
from folkmoot import Run
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view import seat
from tests.default_signals import add_default_signals
from tests.view.conftest import CHROMIUM
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]
SHOTS = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them
PATIENCE = 60_000  # milliseconds, on a machine that does much else
OPINION = "Children could walk to school on their own if the lanes were calm and quiet again."

VOTES = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: 3
conditions: [clarified_passive, acp]
max_clarification_exchanges: 2
max_socratic_exchanges: 2
min_responses_for_threshold: 50
personas: {source: quota}
"""
TALK = """
study: focus_group
category: coffee
product_concept: A reusable cup that keeps coffee hot for six hours.
num_personas: 4
questions_per_phase: 1
"""
HALL = """
study: town_hall
topic:
  title: Should the quarter be redeveloped?
  background: The city proposes to pull down the old blocks and to build higher ones.
sets: 1
rounds: 2
levels: ["2-1"]
residents: {general: 2}
max_vote_items: 2
"""


class Table:
    """A run with people in its seats, on a thread of its own."""

    def __init__(self, study: Path, out: Path, *seats: str, **options: object) -> None:
        self.links: dict[str, str] = {}
        self.desk: SeatManager | None = None
        self.now = 0.0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        serving = seat.build_seat_host(print_line=self._say)

        @asynccontextmanager
        async def host(desk: SeatManager) -> AsyncIterator[None]:
            self.desk, self._loop = desk, asyncio.get_running_loop()
            desk.clock = lambda: self.now
            desk.advance_clock()
            async with serving(desk):
                self._ready.set()
                yield

        self._pool = ThreadPoolExecutor(1)
        self.done: Future[Run] = self._pool.submit(
            folkmoot.run,
            study,
            out=out,
            seats=seats,
            seat_host=host,
            model="synthetic",
            **options,  # type: ignore[arg-type]
        )
        assert self._ready.wait(60) or self.done.result()

    def _say(self, line: str) -> None:
        name, _, link = line.removeprefix("Seat ").partition(": ")
        self.links[name] = link

    def use_up_time(self, name: str) -> None:
        """Let the time of one person's question pass."""
        passed = threading.Event()

        def tick() -> None:
            assert self.desk is not None
            (chair,) = (c for c in self.desk if c.seat.name == name)
            question = self.desk.current_question(chair)
            if question is not None:
                question.left = 0.0
            self.desk.advance_clock()
            passed.set()

        assert self._loop is not None
        self._loop.call_soon_threadsafe(tick)
        assert passed.wait(60)

    async def over(self) -> Run:
        run = await asyncio.wrap_future(self.done)
        self._pool.shutdown()
        return run


async def shows(page: Page) -> str:
    return await page.locator("#seat").get_attribute("data-shows", timeout=PATIENCE) or ""


async def changed(page: Page, before: str) -> None:
    """Wait until the page shows something else than before, across reloads."""
    await page.locator(f'#seat:not([data-shows="{before}"])').wait_for(timeout=PATIENCE)
    await page.wait_for_load_state("load")


async def fill(page: Page, words: str = OPINION) -> None:
    """Answer what is asked, in whatever form, and send it."""
    for box in await page.locator("form.answer textarea:visible").all():
        await box.fill(words)
    for box in await page.locator("form.answer input[type=number]:visible").all():
        await box.fill(await box.get_attribute("min") or "1")
    for group in await page.locator("form.answer fieldset.options:visible").all():
        if await group.locator("input[type=radio]").count():
            await group.locator("input").first.check()
    await page.locator("form.answer button.primary").click()


async def sits(
    page: Page,
    link: str,
    answer: Callable[[Page], Awaitable[None]] = fill,
    texts: list[str] | None = None,
) -> None:
    """A person who answers whatever comes, to the end. `texts` takes in all that the page held."""
    await page.goto(link, timeout=PATIENCE)
    while True:
        now = await shows(page)
        held = await page.locator("#seat").text_content() or ""
        if texts is not None and held not in texts[-1:]:  # the page may have moved on meanwhile
            texts.append(held)
        if now == "end":
            return
        if now == "welcome":
            await page.locator("button.primary").click()
        elif now:
            await answer(page)
        await changed(page, now)


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    path = tmp_path / "centre.yaml"
    path.write_text(VOTES, "utf-8")
    return path


def others_words(run: Path) -> list[str]:
    """Sentences that models said, which the one person in a run was never sent."""
    with JournalReader(run / "journal.sqlite") as journal:
        asked = list(journal.read_entries("ask"))
    seen = "\n".join(
        m["content"] for e in asked if e.model_asked == HUMAN_MODEL for m in e.request["messages"]
    )
    others = (e.reply for e in asked if e.model_asked != HUMAN_MODEL)
    said = [s for reply in others for s in re.split(r"(?<=[.!?])\s", reply)]
    return [s for s in said if len(s.split()) > 5 and s not in seen]


@pytest.mark.nightly(part="pages")
async def test_from_vote_to_vote_in_the_adversarial_arm(
    votes: Path, async_browser: Browser
) -> None:
    """One person from the link to the code: what they see is theirs to see, and no more."""
    votes.write_text(
        VOTES
        + "seats: {condition: acp, count: 1, completion_code: C-17, consent: We study votes., "
        "debriefing: The others were models.}\n"
    )
    table = Table(votes, votes.parent / "run")
    (name,) = (n for n in table.links if n != "All seats, for you alone")
    texts: list[str] = []
    page = await async_browser.new_page()
    await sits(page, table.links[name] + "?PROLIFIC_PID=5f3a&else=no", texts=texts)
    assert "We study votes." in texts[0]
    for last in ("C-17", "The others were models."):
        assert [n for n, text in enumerate(texts) if last in text] == [len(texts) - 1]
    assert texts[-1].rstrip().endswith("You can close this page.")
    run = await table.over()
    mine = run.table("answers").filter(pl.col("speaker_id") == name)
    assert set(mine["answered_by"]) == {"human"}
    assert mine["missing"].null_count() == mine.height >= 4
    assert {"initial_vote", "adversarial_dialogue"} <= set(mine["stage"])
    person = run.table("participants").filter(pl.col("participant_id") == name)
    assert person["final_choice"][0]
    assert json.loads((run.path / "people.json").read_text()) == {name: {"PROLIFIC_PID": "5f3a"}}
    page_text = "\n".join(texts)
    hidden = others_words(run.path)
    assert len(hidden) > 20 and [s for s in hidden if s in page_text] == []
    shown = run.table("exposure").filter(
        (pl.col("participant_id") == name) & pl.col("expected").fill_null(False)
    )
    assert shown.height and (shown["share"] > 0.5).all()
    with JournalReader(run.path / "journal.sqlite") as journal:
        sent = {
            e.address: [m["content"] for m in e.request["messages"]]
            for e in journal.read_entries("ask")
            if e.address in set(mine["address"])
        }
    flat = " ".join(page_text.split())
    spans = run.table("provenance").filter(pl.col("address").is_in(list(sent)))
    assert spans.height > 10
    # Nothing less than a model would get: every text of somebody or something. Instructions to
    # models on the form of an answer are none.
    for span in spans.iter_rows(named=True):
        text = sent[span["address"]][span["message"]][span["start"] : span["end"]]
        assert " ".join(text.split()) in flat


# Daily, one person goes from vote to vote, and test_entry has four people.
@pytest.mark.nightly(part="pages")
async def test_three_people_in_a_focus_group(tmp_path: Path, async_browser: Browser) -> None:
    """One reloads and has two tabs, one is out of time, one withdraws; the others go on."""
    study = tmp_path / "cup.yaml"
    study.write_text(TALK + "seats: {ids: [p_0001, p_0002, p_0003], minutes: 2}\n")
    table = Table(study, tmp_path / "run")
    first, late, leaver = (table.links[f"group_001/p_000{n}"] for n in (1, 2, 3))

    async def reloads(page: Page) -> None:
        """Types, reloads, finds the draft, and clicks twice, with a second tab open."""
        box = page.locator("form.answer textarea").first
        if not await box.count():
            await fill(page)
            return
        await box.fill(OPINION)
        await page.reload()
        assert await page.locator("form.answer textarea").first.input_value() == OPINION
        other = await page.context.new_page()
        await other.goto(first)
        assert await shows(other) == await shows(page)
        await other.close()
        for number in await page.locator("form.answer input[type=number]").all():
            await number.fill("0.5")
        await page.locator("form.answer button.primary").dblclick()

    async def lets_time_pass(page: Page) -> None:
        await page.locator("#clock", has_text="Time left").wait_for(timeout=PATIENCE)
        table.use_up_time("group_001/p_0002")

    async def leaves(page: Page) -> None:
        if not leaves.answered:  # type: ignore[attr-defined]
            leaves.answered = True  # type: ignore[attr-defined]
            await fill(
                page, "My late grandmother kept her porcelain in a locked cupboard for years."
            )
            return
        await page.get_by_text("Leave and withdraw").click()
        await page.get_by_role("checkbox").check()
        await page.locator("button.danger").click()
        await page.locator('#seat[data-shows="end"]').wait_for(timeout=PATIENCE)

    leaves.answered = False  # type: ignore[attr-defined]
    people = [(first, reloads), (late, lets_time_pass), (leaver, leaves)]
    pages = [(await (await async_browser.new_context()).new_page(), *p) for p in people]
    await asyncio.gather(*(sits(page, link, how) for page, link, how in pages))
    run = await table.over()
    answers = run.table("answers")
    by = {n: answers.filter(pl.col("speaker_id") == f"p_000{n}") for n in (1, 2, 3, 4)}
    assert by[1]["address"].n_unique() == by[1].height
    assert "timed out" in set(by[2]["missing"])
    assert set(by[3]["missing"]) == {"withdrawn"}
    assert by[4]["missing"].null_count() == by[4].height
    with JournalReader(run.path / "journal.sqlite") as journal:
        everything = json.dumps([[e.reply, dict(e.request)] for e in journal.read_entries("ask")])
    assert "porcelain" not in everything and OPINION in everything


@pytest.mark.nightly(part="pages")  # daily, test_hall_privacy reads everything that is sent
async def test_a_person_in_a_town_hall_sees_no_private_thoughts(
    tmp_path: Path, async_browser: Browser
) -> None:
    study = tmp_path / "hall.yaml"
    study.write_text(HALL)
    table = Table(study, tmp_path / "run", "set01_lv2-1/A01")
    texts: list[str] = []
    await sits(await async_browser.new_page(), table.links["set01_lv2-1/A01"], texts=texts)
    run = await table.over()
    page_text = "\n".join(texts)
    hidden = others_words(run.path)
    assert hidden and [s for s in hidden if s in page_text] == []
    mine = run.table("answers").filter(pl.col("speaker_id") == "A01")
    assert mine["missing"].null_count() == mine.height > 3


@pytest.mark.nightly(part="kills")  # daily, test_entry kills a run with four people twice
async def test_an_answer_that_was_sent_survives_kill_9_and_the_link_stays(
    votes: Path, async_browser: Browser
) -> None:
    out = votes.parent / "run"

    def start(*more: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "folkmoot", "run", str(votes), "--out", str(out)]
        process = subprocess.Popen(
            [*command, "--seat", "p_0003", *more],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Seat "):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return process, line.split(": ", 1)[1].strip()
        raise AssertionError("no link was printed")

    process, link = start()
    page = await async_browser.new_page()
    await page.goto(link)
    await page.locator("button.primary").click()
    await changed(page, "welcome")
    await page.locator('#seat:not([data-shows=""])').wait_for(timeout=PATIENCE)
    question = await shows(page)
    option = page.locator("form.answer label.option").first
    chosen = (await option.inner_text()).strip()
    await option.click()
    async with page.expect_response(lambda r: r.request.method == "POST") as sent:
        await page.locator("form.answer button.primary").click()
    assert (await sent.value).status == 303
    process.send_signal(signal.SIGKILL)
    process.wait()
    with JournalReader(out / "journal.sqlite") as journal:
        (kept,) = (e for e in journal.read_entries("ask") if e.model_asked == "human")
    assert kept.reply == chosen
    process, again = start("--resume")
    assert again == link
    await page.goto(link)
    assert await shows(page) != question  # what was answered is not asked again
    await sits(page, link)
    await asyncio.to_thread(process.wait, 60)
    assert process.returncode == 0


@pytest.mark.nightly(part="pages")  # a whole study in a browser each
async def test_the_draft_is_there_while_the_server_is_not(
    votes: Path, async_browser: Browser
) -> None:
    table = Table(votes, votes.parent / "run", "p_0001")
    page = await async_browser.new_page()

    async def offline_for_a_while(page: Page) -> None:
        box = page.locator("form.answer textarea").first
        if await box.count() and not page.context.seen_offline:  # type: ignore[attr-defined]
            page.context.seen_offline = True  # type: ignore[attr-defined]
            await box.fill(OPINION)
            await page.context.set_offline(True)
            assert await box.input_value() == OPINION
            await page.context.set_offline(False)
            await page.reload()
            assert await box.input_value() == OPINION
        await fill(page)

    page.context.seen_offline = False  # type: ignore[attr-defined]
    await sits(page, table.links["p_0001"], offline_for_a_while)
    await table.over()


@pytest.mark.nightly(part="pages")  # a whole study in a browser each
async def test_a_researcher_closes_a_seat_and_the_others_go_on(
    votes: Path, async_browser: Browser
) -> None:
    table = Table(votes, votes.parent / "run", "p_0001", "p_0002")
    overview = table.links["All seats, for you alone"]
    page = await async_browser.new_page()
    await page.goto(overview)
    await expect(page.locator("tr", has_text="not here yet")).to_have_count(2)
    row = page.locator("tr", has_text="p_0002")
    await row.get_by_role("link", name="Close").click()
    await page.get_by_role("checkbox").check()
    await page.get_by_role("button", name="Close the seat").click()
    await expect(row.get_by_text("seat closed")).to_be_visible()
    await sits(await async_browser.new_page(), table.links["p_0001"])
    run = await table.over()
    closed = run.table("answers").filter(pl.col("speaker_id") == "p_0002")
    assert set(closed["missing"]) == {"seat closed"}


@pytest.mark.nightly(part="pages")  # a whole study in a browser each
async def test_pages_are_for_everybody_and_load_nothing_from_elsewhere(
    votes: Path, async_browser: Browser
) -> None:
    """axe finds nothing, nothing is wider than the screen, and no other host is asked."""
    table = Table(votes, votes.parent / "run", "p_0001")
    page = await async_browser.new_page(viewport={"width": 375, "height": 700})
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url.split("/")[2]))

    async def looked_at(page: Page) -> None:
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        await fill(page)

    await sits(page, table.links["p_0001"], looked_at)
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert len(asked) == 1
    await table.over()


@pytest.mark.nightly(part="pages")  # a whole study; `test_seat_pages` tries every place
async def test_hostile_words_are_words(votes: Path, async_browser: Browser) -> None:
    """What a study or another participant says is shown as text, in every place."""
    bad = "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
    votes.write_text(VOTES.replace("[Close it", f'["{bad}"').replace("closes its", f"{bad} its"))
    table = Table(votes, votes.parent / "run", "p_0001")
    alerts, texts = list[str](), list[str]()
    page = await async_browser.new_page()
    page.on("dialog", lambda dialog: alerts.append(dialog.message))
    await sits(page, table.links["p_0001"], texts=texts)
    run = await table.over()
    assert alerts == [] and bad in "\n".join(texts)
    chosen = run.table("answers").filter(pl.col("speaker_id") == "p_0001")["value"].drop_nulls()
    assert bad in set(chosen) | {"Keep it open"} and set(chosen) <= {bad, "Keep it open"}


EXAMPLES = Path(__file__).parents[2] / "examples"
SOME = 4  # questions


class Enough(Exception):
    """Whoever tries a study has seen what they wanted to see."""


@pytest.mark.nightly(part="pages")  # a browser and a process for each
@pytest.mark.parametrize(
    ("study", "more"),
    [
        ("cross_pollination.yaml", []), ("focus_group.yaml", []), ("public_goods.xlsx", []),
        # In the example's other conditions the mediator speaks for its members, which `try` says.
        ("negotiation.yaml", ["--set", "conditions=[C1, C2]"]),
        ("town_hall.yaml", ["--set", "sets=1"]),
    ],
)  # fmt: skip
async def test_a_newcomer_tries_each_example(
    study: str, more: list[str], tmp_path: Path, async_browser: Browser
) -> None:
    """`folkmoot try` as it is typed: the first questions come, can be answered, and the page holds
    nothing that others said for themselves."""
    process = subprocess.Popen(
        add_default_signals(sys.executable, "-m", "folkmoot", "try", EXAMPLES / study, *more),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stderr is not None
    link = next(line.split(": ", 1)[1].strip() for line in process.stderr if "Seat " in line)
    threading.Thread(target=process.stderr.read, daemon=True).start()
    texts: list[str] = []
    answered = 0

    async def some(page: Page) -> None:
        nonlocal answered
        if SHOTS:
            shot = Path(SHOTS) / f"try_{Path(study).stem}_{answered}.png"
            await page.screenshot(path=shot, full_page=True)
        if answered == SOME:
            texts.pop()  # the journal does not hold yet what is asked here
            raise Enough
        await fill(page)
        answered += 1

    try:
        with suppress(Enough):
            await sits(await async_browser.new_page(), link, some, texts)
    finally:
        process.terminate()
        process.wait()
    (run,) = tmp_path.glob("folkmoot-try-*/run")
    hidden, page_text = others_words(run), "\n".join(texts)
    assert answered >= 1 and hidden and [s for s in hidden if s in page_text] == []


class Killable:
    """A run with people in a process of its own (see `killable.py`)."""

    def __init__(self, study: Path) -> None:
        self.study, self.out = study, study.parent / "run"
        self.late = study.parent / "late"
        self.links: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.view.killable", str(self.study), str(self.out)]
        self.process = subprocess.Popen(
            [*command, str(self.late)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout is not None
        before, self.links = self.links, {}
        for line in self.process.stdout:
            name, _, link = line.strip().removeprefix("Seat ").partition(": ")
            self.links[name] = link
            if line.startswith("All seats"):
                break
        assert before in ({}, self.links)  # the same links after a crash

    def kill_and_resume(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()


THREE = {
    "focus_group": (TALK, [f"group_001/p_000{n}" for n in (1, 2, 3)]),
    "town_hall": (HALL, [f"set01_lv2-1/A0{n}" for n in (1, 2, 3)]),
}


@pytest.mark.nightly(part="pages")  # three people each through a whole discussion
@pytest.mark.parametrize("kind", THREE)
async def test_three_people_sit_through_a_crash_a_reload_a_time_limit_and_a_withdrawal(
    async_browser: Browser, kind: str, tmp_path: Path
) -> None:
    """One reloads with a draft, one is out of time, one withdraws, and the server is killed with
    `kill -9` in the middle: nothing that was sent is asked again, and the rest goes on."""
    text, names = THREE[kind]
    study = tmp_path / "study.yaml"
    study.write_text(f"{text}seats: {{ids: {json.dumps(names)}, minutes: 30}}\n", "utf-8")
    table, up = Killable(study), asyncio.Lock()
    seen: dict[str, list[str]] = {name: [] for name in names}
    done = {"kill": False, "late": False}

    async def sent(page: Page, name: str, words: str) -> None:
        """Answer, and wait until the answer is acknowledged."""
        async with up, page.expect_navigation(timeout=PATIENCE):
            await fill(page, words)
        seen[name].append(words)

    async def first(page: Page, name: str) -> None:
        box = page.locator("form.answer textarea").first
        if await box.count() and not done["kill"]:
            await box.fill(OPINION)
            await page.reload()
            assert await box.input_value() == OPINION
        await sent(page, name, OPINION)
        if len(seen[name]) == 3 and not done["kill"]:
            async with up:
                done["kill"] = True
                await asyncio.to_thread(table.kill_and_resume)

    async def second(page: Page, name: str) -> None:
        if done["kill"] and not done["late"]:
            done["late"] = True
            async with up:  # whoever reads it is there
                table.late.write_text(name)
                await asyncio.to_thread(wait_until, lambda: not table.late.exists())
            return
        await sent(page, name, "I would rather hear the others before I say more about that.")

    async def third(page: Page, name: str) -> None:
        if done["kill"] and len(seen[name]) >= 3:
            async with up:
                await page.goto(f"{table.links[name]}/leave")
                await page.get_by_role("checkbox").check()
                await page.locator("button.danger").click()
            return
        await sent(page, name, "My late grandmother kept porcelain in a locked cupboard.")

    async def person(
        async_browser: Browser, name: str, act: Callable[..., Awaitable[None]]
    ) -> None:
        page = await (await async_browser.new_context()).new_page()
        async with up:
            await page.goto(table.links[name])
        while True:
            try:
                now = await page.locator("#seat").get_attribute("data-shows", timeout=5_000)
            except PlaywrightError:  # loaded while nobody was there: people press reload
                async with up:
                    await page.goto(table.links[name])
                continue
            if now == "end":
                return
            if now == "welcome":
                async with up, page.expect_navigation(timeout=PATIENCE):
                    await page.locator("button.primary").click()
            elif now:
                await page.wait_for_load_state()
                await act(page, name)
            waits = page.locator(f'#seat:not([data-shows="{now}"])')
            with suppress(PlaywrightError):
                await waits.wait_for(timeout=10_000)

    await asyncio.gather(
        *(
            person(async_browser, name, act)
            for name, act in zip(names, (first, second, third), strict=True)
        )
    )
    await asyncio.to_thread(table.process.wait, 120)
    run = RunFolder(table.out)
    assert table.process.returncode == 0 and done == {"kill": True, "late": True}
    answers = run.read_table("answers").filter(answered_by="human")
    by = {n: answers.filter(speaker_id=n.split("/")[1]) for n in names}
    one, two, three = (by[n] for n in names)
    assert one["missing"].null_count() == one.height > 3
    assert two["missing"].drop_nulls().to_list() == ["timed out"]
    assert set(three["missing"]) == {"withdrawn"}
    with JournalReader(run.path / "journal.sqlite") as journal:
        asked = [e.address for e in journal.read_entries("ask") if e.model_asked == "human"]
        assert len(asked) == len(set(asked))
        everything = json.dumps([[e.reply, dict(e.request)] for e in journal.read_entries("ask")])
    assert "porcelain" not in everything and OPINION in everything
    assert len(seen[names[0]]) == one.height  # every answer was sent once, and kept
