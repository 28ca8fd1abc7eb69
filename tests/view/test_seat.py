"""Humans in seats, in a real browser: from the link to the completion code."""

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
from tests.browsers import BUSY_MACHINE_TIMEOUT_MS, CHROMIUM_PATH
from tests.default_signals import add_default_signals
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(CHROMIUM_PATH is None, reason="no Chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]
SCREENSHOT_FOLDER = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them
OPINION_TEXT = "Children could walk to school on their own if the lanes were calm and quiet again."

VOTE_STUDY = """
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
FOCUS_GROUP_STUDY = """
study: focus_group
category: coffee
product_concept: A reusable cup that keeps coffee hot for six hours.
num_personas: 4
questions_per_phase: 1
"""
TOWN_HALL_STUDY = """
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


class SeatedRun:
    """A run with humans in its seats, in a separate thread."""

    def __init__(self, study: Path, out: Path, *seats: str, **options: object) -> None:
        self.links: dict[str, str] = {}
        self.seat_manager: SeatManager | None = None
        self.now = 0.0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        serve_seats = seat.build_seat_host(print_line=self._store_link)

        @asynccontextmanager
        async def host_seats(seat_manager: SeatManager) -> AsyncIterator[None]:
            self.seat_manager, self._loop = seat_manager, asyncio.get_running_loop()
            seat_manager.clock = lambda: self.now
            seat_manager.advance_clock()
            async with serve_seats(seat_manager):
                self._ready.set()
                yield

        self._pool = ThreadPoolExecutor(1)
        self.future: Future[Run] = self._pool.submit(
            folkmoot.run,
            study,
            out=out,
            seats=seats,
            seat_host=host_seats,
            model="synthetic",
            **options,  # type: ignore[arg-type]
        )
        assert self._ready.wait(60) or self.future.result()

    def _store_link(self, line: str) -> None:
        name, _, link = line.removeprefix("Seat ").partition(": ")
        self.links[name] = link

    def use_up_time(self, name: str) -> None:
        """Let the time for the question of one seat run out."""
        is_done = threading.Event()

        def end_question_time() -> None:
            assert self.seat_manager is not None
            (seat_state,) = (state for state in self.seat_manager if state.seat.name == name)
            question = self.seat_manager.current_question(seat_state)
            if question is not None:
                question.left = 0.0
            self.seat_manager.advance_clock()
            is_done.set()

        assert self._loop is not None
        self._loop.call_soon_threadsafe(end_question_time)
        assert is_done.wait(60)

    async def wait_for_run(self) -> Run:
        run = await asyncio.wrap_future(self.future)
        self._pool.shutdown()
        return run


async def read_shown_state(page: Page) -> str:
    return (
        await page.locator("#seat").get_attribute("data-shows", timeout=BUSY_MACHINE_TIMEOUT_MS)
        or ""
    )


async def wait_for_change(page: Page, before: str) -> None:
    """Wait, also across reloads, until the page no longer shows `before`."""
    await page.locator(f'#seat:not([data-shows="{before}"])').wait_for(
        timeout=BUSY_MACHINE_TIMEOUT_MS
    )
    await page.wait_for_load_state("load", timeout=BUSY_MACHINE_TIMEOUT_MS)


async def fill_and_send(page: Page, answer_text: str = OPINION_TEXT) -> None:
    """Fill in the answer form of any kind and send it."""
    boxes = await page.locator("form.answer textarea:visible").all()
    names = [await box.get_attribute("name") or "" for box in boxes]
    # Parts of a form about another speaker stay empty: without a name, the page asks for it.
    about_others = tuple(
        f"{part}."
        for part, _, field in (name.rpartition(".") for name in names)
        if field in ("target", "target_agent", "agent_id")
    )
    for box, name in zip(boxes, names, strict=True):
        if not name.startswith(about_others):
            await box.fill(answer_text)
    for box in await page.locator("form.answer input.number:visible").all():
        if (await box.get_attribute("name") or "").startswith(about_others):
            continue
        # The lowest number, where the form tells one.
        described_by = await box.get_attribute("aria-describedby") or ""
        range_id = next((name for name in described_by.split() if name.endswith("-range")), "")
        range_text = await page.locator(f'[id="{range_id}"]').inner_text() if range_id else "from 1"
        await box.fill(range_text.split()[1])
    for group in await page.locator("form.answer fieldset.options:visible").all():
        choice = group.locator("input").first
        if (await choice.get_attribute("name") or "").startswith(about_others):
            continue
        if await group.locator("input[type=radio]").count():
            await choice.check()
    await page.locator("form.answer button.primary").click()


async def take_seat(
    page: Page,
    link: str,
    answer: Callable[[Page], Awaitable[None]] = fill_and_send,
    texts: list[str] | None = None,
) -> None:
    """Answer all questions of a seat to the end. All texts of the page are appended to `texts`."""
    await page.goto(link, timeout=BUSY_MACHINE_TIMEOUT_MS)
    while True:
        shown_state = await read_shown_state(page)
        page_text = await page.locator("#seat").text_content() or ""
        if texts is not None and page_text not in texts[-1:]:  # the page may have changed meanwhile
            texts.append(page_text)
        if shown_state == "end":
            return
        if shown_state == "welcome":
            await page.locator("button.primary").click()
        elif shown_state:
            await answer(page)
        await wait_for_change(page, shown_state)


@pytest.fixture
def vote_study_file(tmp_path: Path) -> Path:
    path = tmp_path / "centre.yaml"
    path.write_text(VOTE_STUDY, "utf-8")
    return path


def list_hidden_sentences(run: Path) -> list[str]:
    """Return sentences of models that were never sent to the one human in a run."""
    with JournalReader(run / "journal.sqlite") as journal:
        entries = list(journal.read_entries("ask"))
    text_sent_to_human = "\n".join(
        message["content"]
        for entry in entries
        if entry.model_asked == HUMAN_MODEL
        for message in entry.request["messages"]
    )
    model_replies = (entry.reply for entry in entries if entry.model_asked != HUMAN_MODEL)
    sentences = [
        sentence for reply in model_replies for sentence in re.split(r"(?<=[.!?])\s", reply)
    ]
    return [
        sentence
        for sentence in sentences
        if len(sentence.split()) > 5 and sentence not in text_sent_to_human
    ]


@pytest.mark.nightly(part="pages")
async def test_one_human_goes_through_all_votes_of_the_adversarial_condition(
    vote_study_file: Path, async_browser: Browser
) -> None:
    """One human goes from the link to the code and sees only texts meant for their seat."""
    vote_study_file.write_text(
        VOTE_STUDY
        + "seats: {condition: acp, count: 1, completion_code: C-17, consent: We study votes., "
        "debriefing: The others were models.}\n"
    )
    seated_run = SeatedRun(vote_study_file, vote_study_file.parent / "run")
    (name,) = (
        seat_name for seat_name in seated_run.links if seat_name != "All seats, for you alone"
    )
    texts: list[str] = []
    page = await async_browser.new_page()
    await take_seat(page, seated_run.links[name] + "?PROLIFIC_PID=5f3a&else=no", texts=texts)
    assert "We study votes." in texts[0]
    for final_text in ("C-17", "The others were models."):
        assert [number for number, text in enumerate(texts) if final_text in text] == [
            len(texts) - 1
        ]
    assert texts[-1].rstrip().endswith("You can close this page.")
    run = await seated_run.wait_for_run()
    own_answers = run.table("answers").filter(pl.col("speaker_id") == name)
    assert set(own_answers["answered_by"]) == {"human"}
    assert own_answers["missing"].null_count() == own_answers.height >= 4
    assert {"initial_vote", "adversarial_dialogue"} <= set(own_answers["stage"])
    person = run.table("participants").filter(pl.col("participant_id") == name)
    assert person["final_choice"][0]
    assert json.loads((run.path / "people.json").read_text()) == {name: {"PROLIFIC_PID": "5f3a"}}
    page_text = "\n".join(texts)
    hidden_sentences = list_hidden_sentences(run.path)
    assert (
        len(hidden_sentences) > 20
        and [sentence for sentence in hidden_sentences if sentence in page_text] == []
    )
    exposure = run.table("exposure").filter(
        (pl.col("participant_id") == name) & pl.col("expected").fill_null(False)
    )
    assert exposure.height and (exposure["share"] > 0.5).all()
    with JournalReader(run.path / "journal.sqlite") as journal:
        sent_messages = {
            entry.address: [message["content"] for message in entry.request["messages"]]
            for entry in journal.read_entries("ask")
            if entry.address in set(own_answers["address"])
        }
    page_words = " ".join(page_text.split())
    spans = run.table("provenance").filter(pl.col("address").is_in(list(sent_messages)))
    assert spans.height > 10
    # The page shows every text with a source that a model would get. Instructions to models on the
    # answer format have no source.
    for span in spans.iter_rows(named=True):
        text = sent_messages[span["address"]][span["message"]][span["start"] : span["end"]]
        assert " ".join(text.split()) in page_words


# Daily, test_entry covers four humans.
@pytest.mark.nightly(part="pages")
async def test_three_humans_in_a_focus_group(tmp_path: Path, async_browser: Browser) -> None:
    """One reloads and has two tabs, one runs out of time, one withdraws; the others continue."""
    study = tmp_path / "cup.yaml"
    study.write_text(FOCUS_GROUP_STUDY + "seats: {ids: [p_0001, p_0002, p_0003], minutes: 2}\n")
    seated_run = SeatedRun(study, tmp_path / "run")
    first_link, late_link, leaver_link = (
        seated_run.links[f"group_001/p_000{number}"] for number in (1, 2, 3)
    )

    async def reload_and_answer(page: Page) -> None:
        """Type, reload, find the draft, and click twice, with a second tab open."""
        box = page.locator("form.answer textarea").first
        if not await box.count():
            await fill_and_send(page)
            return
        await box.fill(OPINION_TEXT)
        await page.reload()
        assert await page.locator("form.answer textarea").first.input_value() == OPINION_TEXT
        second_tab = await page.context.new_page()
        await second_tab.goto(first_link)
        assert await read_shown_state(second_tab) == await read_shown_state(page)
        await second_tab.close()
        for number in await page.locator("form.answer input.number").all():
            await number.fill("0.5")
        await page.locator("form.answer button.primary").dblclick()

    async def let_time_pass(page: Page) -> None:
        await page.locator("#clock", has_text="Time left").wait_for(timeout=BUSY_MACHINE_TIMEOUT_MS)
        seated_run.use_up_time("group_001/p_0002")

    async def answer_then_leave(page: Page) -> None:
        if not answer_then_leave.answered:  # type: ignore[attr-defined]
            answer_then_leave.answered = True  # type: ignore[attr-defined]
            await fill_and_send(
                page, "My late grandmother kept her porcelain in a locked cupboard for years."
            )
            return
        await page.get_by_text("Leave and withdraw").click()
        await page.get_by_role("checkbox").check()
        await page.locator("button.danger").click()
        await page.locator('#seat[data-shows="end"]').wait_for(timeout=BUSY_MACHINE_TIMEOUT_MS)

    answer_then_leave.answered = False  # type: ignore[attr-defined]
    visitors = [
        (first_link, reload_and_answer),
        (late_link, let_time_pass),
        (leaver_link, answer_then_leave),
    ]
    pages = [
        (await (await async_browser.new_context()).new_page(), *visitor) for visitor in visitors
    ]
    await asyncio.gather(*(take_seat(page, link, answer) for page, link, answer in pages))
    run = await seated_run.wait_for_run()
    answers = run.table("answers")
    answers_by_number = {
        number: answers.filter(pl.col("speaker_id") == f"p_000{number}") for number in (1, 2, 3, 4)
    }
    assert answers_by_number[1]["address"].n_unique() == answers_by_number[1].height
    assert "timed out" in set(answers_by_number[2]["missing"])
    assert set(answers_by_number[3]["missing"]) == {"withdrawn"}
    assert answers_by_number[4]["missing"].null_count() == answers_by_number[4].height
    with JournalReader(run.path / "journal.sqlite") as journal:
        journal_text = json.dumps(
            [[entry.reply, dict(entry.request)] for entry in journal.read_entries("ask")]
        )
    assert "porcelain" not in journal_text and OPINION_TEXT in journal_text


@pytest.mark.nightly(part="pages")  # daily, test_hall_privacy reads all requests
async def test_a_human_in_a_town_hall_sees_no_private_thoughts(
    tmp_path: Path, async_browser: Browser
) -> None:
    study = tmp_path / "hall.yaml"
    study.write_text(TOWN_HALL_STUDY)
    seated_run = SeatedRun(study, tmp_path / "run", "set01_lv2-1/A01")
    texts: list[str] = []
    await take_seat(
        await async_browser.new_page(), seated_run.links["set01_lv2-1/A01"], texts=texts
    )
    run = await seated_run.wait_for_run()
    page_text = "\n".join(texts)
    hidden_sentences = list_hidden_sentences(run.path)
    assert (
        hidden_sentences
        and [sentence for sentence in hidden_sentences if sentence in page_text] == []
    )
    own_answers = run.table("answers").filter(pl.col("speaker_id") == "A01")
    assert own_answers["missing"].null_count() == own_answers.height > 3


@pytest.mark.nightly(part="kills")  # daily, test_entry kills a run with four people twice
async def test_a_sent_answer_and_the_link_survive_kill_9(
    vote_study_file: Path, async_browser: Browser
) -> None:
    out = vote_study_file.parent / "run"

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "folkmoot", "run", str(vote_study_file), "--out", str(out)]
        process = subprocess.Popen(
            [*command, "--seat", "p_0003", *options],
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
    await wait_for_change(page, "welcome")
    await page.locator('#seat:not([data-shows=""])').wait_for(timeout=BUSY_MACHINE_TIMEOUT_MS)
    question = await read_shown_state(page)
    option = page.locator("form.answer label.option").first
    chosen = (await option.inner_text()).strip()
    await option.click()
    async with page.expect_response(
        lambda response: response.request.method == "POST"
    ) as response_info:
        await page.locator("form.answer button.primary").click()
    assert (await response_info.value).status == 303
    process.send_signal(signal.SIGKILL)
    process.wait()
    with JournalReader(out / "journal.sqlite") as journal:
        (human_entry,) = (
            entry for entry in journal.read_entries("ask") if entry.model_asked == "human"
        )
    assert human_entry.reply == chosen
    process, link_after_resume = start("--resume")
    assert link_after_resume == link
    await page.goto(link)
    assert await read_shown_state(page) != question  # an answered question is not asked again
    await take_seat(page, link)
    await asyncio.to_thread(process.wait, 60)
    assert process.returncode == 0


@pytest.mark.nightly(part="pages")  # a whole study in a browser each
async def test_a_draft_is_kept_while_the_browser_is_offline(
    vote_study_file: Path, async_browser: Browser
) -> None:
    seated_run = SeatedRun(vote_study_file, vote_study_file.parent / "run", "p_0001")
    page = await async_browser.new_page()

    async def go_offline_and_answer(page: Page) -> None:
        box = page.locator("form.answer textarea").first
        if await box.count() and not page.context.seen_offline:  # type: ignore[attr-defined]
            page.context.seen_offline = True  # type: ignore[attr-defined]
            await box.fill(OPINION_TEXT)
            await page.context.set_offline(True)
            assert await box.input_value() == OPINION_TEXT
            await page.context.set_offline(False)
            await page.reload()
            assert await box.input_value() == OPINION_TEXT
        await fill_and_send(page)

    page.context.seen_offline = False  # type: ignore[attr-defined]
    await take_seat(page, seated_run.links["p_0001"], go_offline_and_answer)
    await seated_run.wait_for_run()


@pytest.mark.nightly(part="pages")  # a whole study in a browser each
async def test_the_other_seats_continue_after_one_is_closed(
    vote_study_file: Path, async_browser: Browser
) -> None:
    seated_run = SeatedRun(vote_study_file, vote_study_file.parent / "run", "p_0001", "p_0002")
    overview = seated_run.links["All seats, for you alone"]
    page = await async_browser.new_page()
    await page.goto(overview)
    await expect(page.locator("tr", has_text="not here yet")).to_have_count(2)
    row = page.locator("tr", has_text="p_0002")
    await row.get_by_role("link", name="Close").click()
    await page.get_by_role("checkbox").check()
    await page.get_by_role("button", name="Close the seat").click()
    await expect(row.get_by_text("seat closed")).to_be_visible()
    await take_seat(await async_browser.new_page(), seated_run.links["p_0001"])
    run = await seated_run.wait_for_run()
    closed = run.table("answers").filter(pl.col("speaker_id") == "p_0002")
    assert set(closed["missing"]) == {"seat closed"}


@pytest.mark.nightly(part="pages")  # a whole study in a browser each
async def test_pages_are_accessible_and_load_nothing_from_other_hosts(
    vote_study_file: Path, async_browser: Browser
) -> None:
    """axe finds no violation, the page fits the screen, and no other host gets a request."""
    seated_run = SeatedRun(vote_study_file, vote_study_file.parent / "run", "p_0001")
    page = await async_browser.new_page(viewport={"width": 375, "height": 700})
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))

    async def check_and_fill(page: Page) -> None:
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            axe_results = await Axe().run(page)
            assert axe_results.violations_count == 0, axe_results.generate_report()
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        await fill_and_send(page)

    await take_seat(page, seated_run.links["p_0001"], check_and_fill)
    axe_results = await Axe().run(page)
    assert axe_results.violations_count == 0, axe_results.generate_report()
    assert len(hosts) == 1
    await seated_run.wait_for_run()


@pytest.mark.nightly(part="pages")  # a whole study; `test_seat_pages` covers every place
async def test_markup_in_texts_is_shown_as_text(
    vote_study_file: Path, async_browser: Browser
) -> None:
    """Words of a study or of another participant are shown as text in every place."""
    markup = "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
    vote_study_file.write_text(
        VOTE_STUDY.replace("[Close it", f'["{markup}"').replace("closes its", f"{markup} its")
    )
    seated_run = SeatedRun(vote_study_file, vote_study_file.parent / "run", "p_0001")
    alerts, texts = list[str](), list[str]()
    page = await async_browser.new_page()
    page.on("dialog", lambda dialog: alerts.append(dialog.message))
    await take_seat(page, seated_run.links["p_0001"], texts=texts)
    run = await seated_run.wait_for_run()
    assert alerts == [] and markup in "\n".join(texts)
    choices = run.table("answers").filter(pl.col("speaker_id") == "p_0001")["value"].drop_nulls()
    assert markup in set(choices) | {"Keep it open"} and set(choices) <= {markup, "Keep it open"}


EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_TRIED_QUESTIONS = 4


class EnoughQuestionsError(Exception):
    """Enough questions of the study have been tried."""


@pytest.mark.nightly(part="pages")  # a browser and a process for each
@pytest.mark.parametrize(
    ("study", "options"),
    [
        ("cross_pollination.yaml", []), ("focus_group.yaml", []), ("public_goods.xlsx", []),
        # In the other conditions of the example the mediator speaks for its members.
        ("negotiation.yaml", ["--set", "conditions=[C1, C2]"]),
        ("town_hall.yaml", ["--set", "sets=1"]),
    ],
)  # fmt: skip
async def test_a_newcomer_tries_each_example(
    study: str, options: list[str], tmp_path: Path, async_browser: Browser
) -> None:
    """`folkmoot try` as a newcomer types it: the first questions can be answered, and the page
    contains no private words of other participants."""
    process = subprocess.Popen(
        add_default_signals(sys.executable, "-m", "folkmoot", "try", EXAMPLES / study, *options),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stderr is not None
    link = next(line.split(": ", 1)[1].strip() for line in process.stderr if "Seat " in line)
    threading.Thread(target=process.stderr.read, daemon=True).start()
    texts: list[str] = []
    answered = 0

    async def answer_until_limit(page: Page) -> None:
        nonlocal answered
        if SCREENSHOT_FOLDER:
            shot = Path(SCREENSHOT_FOLDER) / f"try_{Path(study).stem}_{answered}.png"
            await page.screenshot(path=shot, full_page=True)
        if answered == MAX_TRIED_QUESTIONS:
            texts.pop()  # the journal does not contain this open question yet
            raise EnoughQuestionsError
        await fill_and_send(page)
        answered += 1

    try:
        with suppress(EnoughQuestionsError):
            await take_seat(await async_browser.new_page(), link, answer_until_limit, texts)
    finally:
        process.terminate()
        process.wait()
    (run,) = tmp_path.glob("folkmoot-try-*/run")
    hidden_sentences, page_text = list_hidden_sentences(run), "\n".join(texts)
    assert (
        answered >= 1
        and hidden_sentences
        and [sentence for sentence in hidden_sentences if sentence in page_text] == []
    )


class Killable:
    """A run with humans in a separate process (see `killable.py`)."""

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
        previous_links, self.links = self.links, {}
        for line in self.process.stdout:
            name, _, link = line.strip().removeprefix("Seat ").partition(": ")
            self.links[name] = link
            if line.startswith("All seats"):
                break
        assert previous_links in ({}, self.links)  # the same links after a crash

    def kill_and_resume(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()


STUDIES_WITH_THREE_SEATS = {
    "focus_group": (FOCUS_GROUP_STUDY, [f"group_001/p_000{n}" for n in (1, 2, 3)]),
    "town_hall": (TOWN_HALL_STUDY, [f"set01_lv2-1/A0{n}" for n in (1, 2, 3)]),
}


@pytest.mark.nightly(part="pages")  # three humans go through a whole discussion
@pytest.mark.parametrize("kind", STUDIES_WITH_THREE_SEATS)
async def test_three_humans_continue_through_a_crash_a_reload_a_time_limit_and_a_withdrawal(
    async_browser: Browser, kind: str, tmp_path: Path
) -> None:
    """One reloads with a draft, one runs out of time, one withdraws, and the server is killed with
    `kill -9` in the middle. Answered questions are not asked again, and the run continues."""
    text, names = STUDIES_WITH_THREE_SEATS[kind]
    study = tmp_path / "study.yaml"
    study.write_text(f"{text}seats: {{ids: {json.dumps(names)}, minutes: 30}}\n", "utf-8")
    seated_run, server_lock = Killable(study), asyncio.Lock()
    sent_texts: dict[str, list[str]] = {name: [] for name in names}
    done_events = {"kill": False, "late": False}

    async def answer_and_wait(page: Page, name: str, answer_text: str) -> None:
        """Answer, and wait until the answer is acknowledged."""
        async with server_lock, page.expect_navigation(timeout=BUSY_MACHINE_TIMEOUT_MS):
            await fill_and_send(page, answer_text)
        sent_texts[name].append(answer_text)

    async def reload_with_draft(page: Page, name: str) -> None:
        box = page.locator("form.answer textarea").first
        if await box.count() and not done_events["kill"]:
            await box.fill(OPINION_TEXT)
            await page.reload()
            assert await box.input_value() == OPINION_TEXT
        await answer_and_wait(page, name, OPINION_TEXT)
        if len(sent_texts[name]) == 3 and not done_events["kill"]:
            async with server_lock:
                done_events["kill"] = True
                await asyncio.to_thread(seated_run.kill_and_resume)

    async def run_out_of_time(page: Page, name: str) -> None:
        if done_events["kill"] and not done_events["late"]:
            done_events["late"] = True
            async with server_lock:  # the process that reads the file is running
                seated_run.late.write_text(name)
                await asyncio.to_thread(wait_until, lambda: not seated_run.late.exists())
            return
        await answer_and_wait(
            page, name, "I would rather hear the others before I say more about that."
        )

    async def leave_after_three(page: Page, name: str) -> None:
        if done_events["kill"] and len(sent_texts[name]) >= 3:
            async with server_lock:
                await page.goto(f"{seated_run.links[name]}/leave")
                await page.get_by_role("checkbox").check()
                await page.locator("button.danger").click()
            return
        await answer_and_wait(
            page, name, "My late grandmother kept porcelain in a locked cupboard."
        )

    async def take_part(
        async_browser: Browser, name: str, answer: Callable[..., Awaitable[None]]
    ) -> None:
        page = await (await async_browser.new_context()).new_page()
        async with server_lock:
            await page.goto(seated_run.links[name])
        while True:
            try:
                shown_state = await page.locator("#seat").get_attribute("data-shows", timeout=5_000)
            except PlaywrightError:  # loaded while the server was down: a human presses reload
                async with server_lock:
                    await page.goto(seated_run.links[name])
                continue
            if shown_state == "end":
                return
            if shown_state == "welcome":
                async with server_lock, page.expect_navigation(timeout=BUSY_MACHINE_TIMEOUT_MS):
                    await page.locator("button.primary").click()
            elif shown_state:
                await page.wait_for_load_state()
                await answer(page, name)
            next_state = page.locator(f'#seat:not([data-shows="{shown_state}"])')
            with suppress(PlaywrightError):
                await next_state.wait_for(timeout=10_000)

    await asyncio.gather(
        *(
            take_part(async_browser, name, answer)
            for name, answer in zip(
                names, (reload_with_draft, run_out_of_time, leave_after_three), strict=True
            )
        )
    )
    await asyncio.to_thread(seated_run.process.wait, 120)
    run = RunFolder(seated_run.out)
    assert seated_run.process.returncode == 0 and done_events == {"kill": True, "late": True}
    answers = run.read_table("answers").filter(answered_by="human")
    answers_by_seat = {name: answers.filter(speaker_id=name.split("/")[1]) for name in names}
    first_answers, late_answers, leaver_answers = (answers_by_seat[name] for name in names)
    assert first_answers["missing"].null_count() == first_answers.height > 3
    assert late_answers["missing"].drop_nulls().to_list() == ["timed out"]
    assert set(leaver_answers["missing"]) == {"withdrawn"}
    with JournalReader(run.path / "journal.sqlite") as journal:
        human_addresses = [
            entry.address for entry in journal.read_entries("ask") if entry.model_asked == "human"
        ]
        assert len(human_addresses) == len(set(human_addresses))
        journal_text = json.dumps(
            [[entry.reply, dict(entry.request)] for entry in journal.read_entries("ask")]
        )
    assert "porcelain" not in journal_text and OPINION_TEXT in journal_text
    # Every answer was sent once and stored.
    assert len(sent_texts[names[0]]) == first_answers.height
