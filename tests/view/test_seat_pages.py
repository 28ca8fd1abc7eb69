"""The single pages of a seat in a real browser, without a running study."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.seats.seat_manager import SEAT_CLOSED, WITHDRAWN
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.models.request import JsonObject
from folkmoot.view.seat.confirmation import NOT_TICKED
from tests.browsers import CHROMIUM_PATH
from tests.view.asking import enqueue_question, serve_seats

pytestmark = [
    pytest.mark.skipif(CHROMIUM_PATH is None, reason="no Chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]
SCREENSHOT_FOLDER = os.environ.get("FOLKMOOT_SCREENSHOTS")
MARKUP_TEXT = "<img src=x onerror=alert(1)><script>alert(2)</script>{{ 7 * 7 }}\u202e</textarea>"
OPTIONS = ("Close the centre to cars", "Keep it open, with fewer parking places", "Neither")
TURN_SCHEMA: JsonObject = {
    "title": "Turn",
    "type": "object",
    "properties": {
        "overall_stance": {
            "type": "string",
            "enum": ["strong_support", "neutral", "strong_oppose"],
            "description": "where you stand",
        },
        "key_concerns": {"type": "array", "items": {"type": "string"}},
        "references": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"target": {"type": "string"}, "content": {"type": "string"}},
            },
        },
        "agree_level": {"type": "integer", "minimum": 1, "maximum": 5},
        "full_statement": {"type": "string", "maxLength": 2000},
    },
    "required": ["overall_stance", "full_statement"],
}


async def check_no_markup(page: Page, alerts: list[str]) -> None:
    """Check that no text has become an element or run as a script."""
    assert alerts == []
    assert await page.locator("img, iframe, body script").count() == 0
    assert "\u202e" not in await page.content()


async def test_markup_is_shown_as_text_in_every_place(
    tmp_path: Path, async_browser: Browser
) -> None:
    """Markup of the study, its settings, another participant, or the human is shown as text."""
    settings = SeatSettings(
        consent=MARKUP_TEXT, debriefing=MARKUP_TEXT, completion_code=MARKUP_TEXT
    )
    bad_form: JsonObject = {
        "title": MARKUP_TEXT,
        "type": "object",
        "properties": {
            MARKUP_TEXT: {"type": "string", "description": MARKUP_TEXT},
            "b": {"type": "string", "enum": [MARKUP_TEXT, "x"]},
        },
        "required": [MARKUP_TEXT],
    }
    alerts: list[str] = []
    seat = Seat("p_1", condition=MARKUP_TEXT)
    async with serve_seats(tmp_path, settings, seat) as (seat_manager, links):
        page = await async_browser.new_page()
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        page.on("pageerror", lambda error: alerts.append(str(error)))
        (seat_state,) = seat_manager
        await page.goto(links["p_1"] + f"?PROLIFIC_PID={'a' * 300}<b>")
        await check_no_markup(page, alerts)
        await expect(page.locator("main")).to_contain_text("vendors process it: openai/gpt-4o.")
        seat_manager.record_consent(seat_state)
        utterances = tuple(
            Utterance(speaker_id, MARKUP_TEXT, MARKUP_TEXT) for speaker_id in ("A", "B", "p_1")
        )
        kinds = (("text", (), None), ("choice", (MARKUP_TEXT, "x"), None), ("json", (), bad_form))
        for kind, options, schema in kinds:
            question = enqueue_question(
                seat_manager,
                seat_state,
                MARKUP_TEXT,
                kind,
                options,
                utterances=utterances,
                system=MARKUP_TEXT,
                schema=schema,
                problem=MARKUP_TEXT,
            )
            await page.goto(links["p_1"])
            await check_no_markup(page, alerts)
            assert "{{ 7 * 7 }}" in (await page.locator("main").text_content() or "")
            for box in await page.locator("form.answer textarea").all():
                await box.fill(MARKUP_TEXT)
            for group in await page.locator("form.answer fieldset").all():
                await group.locator("input").first.check()
            await page.locator("form.answer button").click()
            await page.get_by_role(
                "alert"
            ).wait_for()  # the form with the refused answer and the problem
            await check_no_markup(page, alerts)
            await page.goto("about:blank")  # an open page would update by itself
            seat_manager.withdraw_question(question, stored=True)
        await page.goto(links["All seats, for you alone"])
        await check_no_markup(page, alerts)
        seat_manager.close_seat(seat_state, "done")
        await page.goto(links["p_1"])
        await check_no_markup(page, alerts)
        assert await page.locator("strong.code").text_content() == MARKUP_TEXT.replace("\u202e", "")
    stored_people = (tmp_path / "people.json").read_text()
    assert "a" * 200 in stored_people and "a" * 201 not in stored_people


async def test_a_picture_is_shown_and_nothing_else_is_loaded(
    tmp_path: Path, async_browser: Browser
) -> None:
    """Only images that models are shown as images are loaded. An address in an utterance is
    text."""
    requested_paths: list[str] = []

    async def serve_picture(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        requested_paths.append(line.split()[1])
        svg = b"<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'/>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: image/svg+xml\r\nContent-Length: {len(svg)}"
        writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + svg)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve_picture, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    picture_url, other_url = (
        f"http://127.0.0.1:{port}/plan,1.png",
        f"http://127.0.0.1:{port}/other.png",
    )
    utterances = (Utterance("A", f"Look at ![this]({other_url})", "Mara"),)
    timed_settings = SeatSettings(minutes=3)
    async with serve_seats(tmp_path, timed_settings, Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        question = enqueue_question(
            seat_manager,
            seat_state,
            f"Here is the plan: {picture_url} Well?",
            "text",
            utterances=utterances,
            images=(picture_url,),
        )
        page = await async_browser.new_page()
        await page.goto(links["p_1"])
        assert await page.locator("img").count() == 1
        await expect(page.locator("#clock")).to_contain_text("Time left")
        await expect(page.locator("#nudge")).to_be_hidden()
        question.left = 20.0
        await page.goto(links["p_1"])
        await expect(page.locator("#nudge")).to_be_visible()
        assert await page.evaluate("document.querySelector('img').naturalWidth") > 0
        # A different image, inserted by a script, is not loaded.
        await page.evaluate(
            "url => new Promise(on => "
            "{ const i = new Image(); i.onload = i.onerror = on; i.src = url })",
            other_url,
        )
        assert {path for path in requested_paths if path != "/favicon.ico"} == {"/plan,1.png"}
        assert other_url in (await page.locator("ol.talk").text_content() or "")
        assert await page.locator("figure a").get_attribute("href") == picture_url
    server.close()


@pytest.mark.nightly(part="pages")  # daily, test_entry checks one change
async def test_the_overview_updates_by_itself(tmp_path: Path, async_browser: Browser) -> None:
    """The states of all seats update without a reload until all seats have ended."""
    seats = (Seat("p_1"), Seat("p_2", condition="acp"))
    async with serve_seats(tmp_path, SeatSettings(), *seats) as (seat_manager, links):
        first, second = seat_manager
        page = await async_browser.new_page()
        await page.goto(links["All seats, for you alone"])
        rows = page.locator("tbody tr")
        await expect(rows.nth(0)).to_contain_text("not here yet")
        seat_manager.record_consent(first)
        await expect(rows.nth(0)).to_contain_text("page is closed")
        human = await async_browser.new_page()
        await human.goto(links["p_1"])
        await expect(rows.nth(0)).to_contain_text("waiting")
        question = enqueue_question(seat_manager, first, "Well?", "text")
        await expect(rows.nth(0)).to_contain_text("reading")
        await human.get_by_role("textbox").fill("Well")
        await expect(rows.nth(0)).to_contain_text("writing")
        answering = asyncio.ensure_future(seat_manager.answer(first, question, "Well."))
        await expect(rows.nth(0).locator("td").nth(2)).to_have_text("1")
        seat_manager.withdraw_question(question, stored=True)
        assert await answering
        await rows.nth(1).get_by_role("link", name="Close").click()
        await page.get_by_role("button", name="Close the seat").click()
        await expect(page.get_by_role("alert")).to_have_text(NOT_TICKED)
        assert second.ended == ""
        await page.get_by_role("checkbox").check()
        await page.get_by_role("button", name="Close the seat").click()
        await expect(rows.nth(1)).to_contain_text(SEAT_CLOSED)
        seat_manager.close_seat(first, WITHDRAWN)
        await expect(rows.nth(0)).to_contain_text(WITHDRAWN)
        assert second.ended == SEAT_CLOSED


async def test_a_guessed_link_leads_to_no_seat(tmp_path: Path, async_browser: Browser) -> None:
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (_, links):
        page = await async_browser.new_page()
        link = links["p_1"]
        for wrong_link in (link[:-1], link + "x", link.replace("/seat/", "/seats/")):
            reply = await page.goto(wrong_link)
            assert reply is not None and reply.status == 404
        elsewhere = await page.request.get(link, headers={"Host": "evil.example"})
        assert elsewhere.status == 421


@pytest.mark.nightly(part="pages")  # follows five reloads that the page makes by itself
async def test_a_draft_survives_a_restart_and_is_cleared_by_an_answer(
    tmp_path: Path, async_browser: Browser
) -> None:
    """While the run replays, humans wait; then the same question appears with the typed draft. The
    next question and the end of the run clear the draft."""
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        page = await async_browser.new_page()
        question = enqueue_question(seat_manager, seat_state, "Well?", "text")
        await page.goto(links["p_1"])
        box = page.locator("form.answer textarea")
        await box.fill("Half a thou")
        seat_manager.withdraw_question(question, stored=False)
        await page.get_by_role("heading", name="Please wait").wait_for()
        repeated_question = seat_manager.enqueue(question.address, question.request)
        await expect(box).to_have_value("Half a thou")
        seat_manager.withdraw_question(repeated_question, stored=True)
        await page.get_by_role("heading", name="Please wait").wait_for()
        enqueue_question(seat_manager, seat_state, "And then?", "text")
        await expect(box).to_have_value("")
        stored_drafts_script = "Object.values(localStorage).join()"
        await page.wait_for_load_state()  # the script of the page clears the draft before that
        assert "Half a thou" not in await page.evaluate(stored_drafts_script)
        await box.fill("Half a word")
        seat_manager.close_seat(seat_state, "done")
        await page.get_by_role("heading", name="Thank you").wait_for()
        await page.wait_for_load_state()
        assert await page.evaluate(stored_drafts_script) == ""


# Whether the last character of an element is shown to the left of its first.
ENDS_LEFT_SCRIPT = """element => {
  const nodes = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const text = nodes.nextNode(), length = text.data.trimEnd().length;
  const leftOf = (at) => {
    const range = document.createRange();
    range.setStart(text, at), range.setEnd(text, at + 1);
    return range.getBoundingClientRect().left;
  };
  return leftOf(length - 1) < leftOf(text.data.search(/\\S/));
}"""


async def test_texts_from_right_to_left_end_at_the_left(
    tmp_path: Path, async_browser: Browser
) -> None:
    """A full stop at the wrong side, or brackets around the wrong words, change what is read."""
    question_text, options = "هل توافق؟ اختر واحدًا.", ("نعم، أوافق.", "No, I do not.")
    utterances = (Utterance("A", "الحافلات مجانية.", "Mara"),)
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        enqueue_question(
            seat_manager, seat_state, question_text, "choice", options, utterances=utterances
        )
        page = await async_browser.new_page()
        await page.goto(links["p_1"])
        for text in (question_text, options[0], utterances[0].text):
            assert await page.get_by_text(text).evaluate(ENDS_LEFT_SCRIPT), text
        assert not await page.get_by_text(options[1]).evaluate(ENDS_LEFT_SCRIPT)


@pytest.mark.nightly(part="pages")
async def test_a_long_persona_leaves_the_first_question_visible_on_a_phone(
    tmp_path: Path, async_browser: Browser
) -> None:
    """On a phone a long persona is folded to its first words and opens by a click. On a desktop and
    without scripts it is shown completely."""
    persona = "You are Ines. " + "You bake bread in the old town and rise at three. " * 12
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        enqueue_question(
            seat_manager,
            seat_state,
            "What should the town do?",
            "choice",
            OPTIONS,
            utterances=(),
            system=persona,
        )

        async def open_seat_page(width: int, height: int, *, scripts: bool = True) -> Page:
            context = await async_browser.new_context(
                viewport={"width": width, "height": height}, java_script_enabled=scripts
            )
            page = await context.new_page()
            await page.goto(links["p_1"])
            return page

        phone = await open_seat_page(375, 667)
        opening, whole_persona = phone.locator(".card .opening"), phone.locator(".card > .prose")
        await expect(opening).to_contain_text("You are Ines. You bake")
        await expect(whole_persona).to_be_hidden()
        for text in (*OPTIONS, "What should the town do?"):
            box = await phone.get_by_text(text, exact=True).bounding_box()
            assert box is not None and box["y"] + box["height"] <= 667, (text, box)
        await phone.locator(".card summary").click()
        await expect(whole_persona).to_have_text(persona, use_inner_text=True)
        await expect(opening).to_be_hidden()
        for page in (
            await open_seat_page(1280, 720),
            await open_seat_page(375, 667, scripts=False),
        ):
            await expect(page.locator(".card > .prose")).to_be_visible()
            await expect(page.locator(".card .opening")).to_be_hidden()
        # A short persona stays open, because the question is visible below it.
        question = enqueue_question(
            seat_manager, seat_state, "And then?", "text", utterances=(), system="You are Ines."
        )
        await phone.close()
        seat_manager.withdraw_question(
            seat_manager.current_question(seat_state) or question, stored=True
        )
        short_page = await open_seat_page(375, 667)
        await expect(short_page.locator(".card > .prose")).to_have_text("You are Ines.")
        await expect(short_page.locator(".card > .prose")).to_be_visible()


@pytest.mark.nightly(part="pages")  # forty-four checks with axe
async def test_every_page_of_a_seat_fits_and_is_accessible(
    tmp_path: Path, async_browser: Browser
) -> None:
    """axe finds no violation and the page fits the screen: phone and desktop, light and dark."""
    settings = SeatSettings(
        consent="We study how people decide together.\n\nIt takes about 20 minutes.",
        debriefing="The others at the table were language models. Write to us with questions.",
        completion_code="C17XPQ",
        minutes=3,
    )
    folder = Path(SCREENSHOT_FOLDER) if SCREENSHOT_FOLDER else tmp_path
    async with serve_seats(tmp_path, settings, Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        page = await async_browser.new_page()

        async def check_page(name: str, link: str = links["p_1"]) -> None:
            for width in (375, 1280):
                await page.set_viewport_size({"width": width, "height": 800})
                for scheme in ("light", "dark"):
                    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                    await page.goto(link)
                    screenshot_path = folder / f"seat_{name}_{width}_{scheme}.png"
                    await page.screenshot(path=screenshot_path, full_page=True)
                    axe_results = await Axe().run(page)
                    assert axe_results.violations_count == 0, (name, axe_results.generate_report())
                    fits_script = "document.documentElement.scrollWidth <= window.innerWidth"
                    assert await page.evaluate(fits_script), (name, width)
            await page.goto("about:blank")  # an open page would update by itself

        await check_page("welcome")
        seat_manager.record_consent(seat_state)
        await check_page("waiting")
        questions = {
            "text": ("What would change in your street?", (), None),
            "choice": ("What should the town do?", OPTIONS, None),
            "number": ("How sure are you, from 0 to 100?", ("0", "100"), None),
            "json": ("Think about it, and then speak to the hall.", (), TURN_SCHEMA),
        }
        for kind, (prompt, options, schema) in questions.items():
            question = enqueue_question(
                seat_manager, seat_state, prompt, kind, options, schema=schema
            )
            await check_page(kind)
            seat_manager.withdraw_question(question, stored=True)
        question = enqueue_question(
            seat_manager, seat_state, "One line on what matters most.", "text"
        )
        question.left = 20.0
        await check_page("nudge")
        await check_page("leave", links["p_1"] + "/leave")
        await check_page("overview", links["All seats, for you alone"])
        await check_page("close", f"{links['All seats, for you alone']}/close?seat=p_1")
        seat_manager.close_seat(seat_state, "done")
        await check_page("end")
        seat_state.ended = WITHDRAWN
        await check_page("withdrawn")
