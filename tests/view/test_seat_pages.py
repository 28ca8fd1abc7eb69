"""Each page of a seat by itself, in a real browser, without a study behind it."""

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
from tests.view.asking import asking, served
from tests.view.conftest import CHROMIUM

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]
SHOTS = os.environ.get("FOLKMOOT_SCREENSHOTS")
BAD = "<img src=x onerror=alert(1)><script>alert(2)</script>{{ 7 * 7 }}\u202e</textarea>"
OPTIONS = ("Close the centre to cars", "Keep it open, with fewer parking places", "Neither")
FORM: JsonObject = {
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


async def no_markup(page: Page, alerts: list[str]) -> None:
    """Nothing of what was said has become an element, or run."""
    assert alerts == []
    assert await page.locator("img, iframe, body script").count() == 0
    assert "\u202e" not in await page.content()


async def test_hostile_words_are_words_in_every_place(
    tmp_path: Path, async_browser: Browser
) -> None:
    """Whoever wrote it: the study, its settings, another participant, or the person."""
    settings = SeatSettings(consent=BAD, debriefing=BAD, completion_code=BAD)
    bad_form: JsonObject = {
        "title": BAD,
        "type": "object",
        "properties": {
            BAD: {"type": "string", "description": BAD},
            "b": {"type": "string", "enum": [BAD, "x"]},
        },
        "required": [BAD],
    }
    alerts: list[str] = []
    place = Seat("p_1", condition=BAD)
    async with served(tmp_path, settings, place) as (desk, links):
        page = await async_browser.new_page()
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        page.on("pageerror", lambda error: alerts.append(str(error)))
        (chair,) = desk
        await page.goto(links["p_1"] + f"?PROLIFIC_PID={'a' * 300}<b>")
        await no_markup(page, alerts)
        await expect(page.locator("main")).to_contain_text("vendors process it: openai/gpt-4o.")
        desk.record_consent(chair)
        said = tuple(Utterance(who, BAD, BAD) for who in ("A", "B", "p_1"))
        kinds = (("text", (), None), ("choice", (BAD, "x"), None), ("json", (), bad_form))
        for kind, offered, schema in kinds:
            question = asking(
                desk, chair, BAD, kind, offered, said=said, system=BAD, schema=schema, problem=BAD
            )
            await page.goto(links["p_1"])
            await no_markup(page, alerts)
            assert "{{ 7 * 7 }}" in (await page.locator("main").text_content() or "")
            for box in await page.locator("form.answer textarea").all():
                await box.fill(BAD)
            for group in await page.locator("form.answer fieldset").all():
                await group.locator("input").first.check()
            await page.locator("form.answer button").click()
            await page.get_by_role("alert").wait_for()  # the form with what was sent, and why not
            await no_markup(page, alerts)
            await page.goto("about:blank")  # a page that is open follows the desk by itself
            desk.withdraw_question(question, stored=True)
        await page.goto(links["All seats, for you alone"])
        await no_markup(page, alerts)
        desk.close_seat(chair, "done")
        await page.goto(links["p_1"])
        await no_markup(page, alerts)
        assert await page.locator("strong.code").text_content() == BAD.replace("\u202e", "")
    kept = (tmp_path / "people.json").read_text()
    assert "a" * 200 in kept and "a" * 201 not in kept


async def test_a_picture_is_shown_and_nothing_else_is_loaded(
    tmp_path: Path, async_browser: Browser
) -> None:
    """Of what models are shown as images, exactly that is loaded; an address that somebody said
    is text."""
    asked: list[str] = []

    async def picture(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        asked.append(line.split()[1])
        svg = b"<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'/>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: image/svg+xml\r\nContent-Length: {len(svg)}"
        writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + svg)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(picture, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    shown, other = f"http://127.0.0.1:{port}/plan,1.png", f"http://127.0.0.1:{port}/other.png"
    said = (Utterance("A", f"Look at ![this]({other})", "Mara"),)
    timed = SeatSettings(minutes=3)
    async with served(tmp_path, timed, Seat("p_1")) as (desk, links):
        (chair,) = desk
        desk.record_consent(chair)
        put = asking(
            desk, chair, f"Here is the plan: {shown} Well?", "text", said=said, images=(shown,)
        )
        page = await async_browser.new_page()
        await page.goto(links["p_1"])
        assert await page.locator("img").count() == 1
        await expect(page.locator("#clock")).to_contain_text("Time left")
        await expect(page.locator("#nudge")).to_be_hidden()
        put.left = 20.0
        await page.goto(links["p_1"])
        await expect(page.locator("#nudge")).to_be_visible()
        assert await page.evaluate("document.querySelector('img').naturalWidth") > 0
        # A page that was made to hold another picture does not get it.
        await page.evaluate(
            "url => new Promise(on => "
            "{ const i = new Image(); i.onload = i.onerror = on; i.src = url })",
            other,
        )
        assert {path for path in asked if path != "/favicon.ico"} == {"/plan,1.png"}
        assert other in (await page.locator("ol.talk").text_content() or "")
        assert await page.locator("figure a").get_attribute("href") == shown
    server.close()


@pytest.mark.nightly(part="pages")  # daily, test_entry sees one change
async def test_the_overview_moves_by_itself(tmp_path: Path, async_browser: Browser) -> None:
    """Who comes, is asked, answers and leaves is seen without a reload, until nobody is left."""
    places = (Seat("p_1"), Seat("p_2", condition="acp"))
    async with served(tmp_path, SeatSettings(), *places) as (desk, links):
        one, two = desk
        page = await async_browser.new_page()
        await page.goto(links["All seats, for you alone"])
        rows = page.locator("tbody tr")
        await expect(rows.nth(0)).to_contain_text("not here yet")
        desk.record_consent(one)
        await expect(rows.nth(0)).to_contain_text("page is closed")
        human = await async_browser.new_page()
        await human.goto(links["p_1"])
        await expect(rows.nth(0)).to_contain_text("waiting")
        question = asking(desk, one, "Well?", "text")
        await expect(rows.nth(0)).to_contain_text("reading")
        await human.get_by_role("textbox").fill("Well")
        await expect(rows.nth(0)).to_contain_text("writing")
        handed_in = asyncio.ensure_future(desk.answer(one, question, "Well."))
        await expect(rows.nth(0).locator("td").nth(2)).to_have_text("1")
        desk.withdraw_question(question, stored=True)
        assert await handed_in
        await rows.nth(1).get_by_role("link", name="Close").click()
        await page.get_by_role("button", name="Close the seat").click()
        await expect(page.get_by_role("alert")).to_have_text(NOT_TICKED)
        assert two.ended == ""
        await page.get_by_role("checkbox").check()
        await page.get_by_role("button", name="Close the seat").click()
        await expect(rows.nth(1)).to_contain_text(SEAT_CLOSED)
        desk.close_seat(one, WITHDRAWN)
        await expect(rows.nth(0)).to_contain_text(WITHDRAWN)
        assert two.ended == SEAT_CLOSED


async def test_a_link_that_was_guessed_is_no_seat(tmp_path: Path, async_browser: Browser) -> None:
    async with served(tmp_path, SeatSettings(), Seat("p_1")) as (_, links):
        page = await async_browser.new_page()
        link = links["p_1"]
        for wrong in (link[:-1], link + "x", link.replace("/seat/", "/seats/")):
            reply = await page.goto(wrong)
            assert reply is not None and reply.status == 404
        elsewhere = await page.request.get(link, headers={"Host": "evil.example"})
        assert elsewhere.status == 421


@pytest.mark.nightly(part="pages")  # follows five reloads that the page makes by itself
async def test_a_draft_outlives_a_run_that_starts_again_and_no_answer(
    tmp_path: Path, async_browser: Browser
) -> None:
    """While the run replays what it knows people wait; then the same question comes with what was
    typed. Another question, and the end, clear it."""
    async with served(tmp_path, SeatSettings(), Seat("p_1")) as (desk, links):
        (chair,) = desk
        desk.record_consent(chair)
        page = await async_browser.new_page()
        question = asking(desk, chair, "Well?", "text")
        await page.goto(links["p_1"])
        box = page.locator("form.answer textarea")
        await box.fill("Half a thou")
        desk.withdraw_question(question, stored=False)
        await page.get_by_role("heading", name="Please wait").wait_for()
        again = desk.enqueue(question.address, question.request)
        await expect(box).to_have_value("Half a thou")
        desk.withdraw_question(again, stored=True)
        await page.get_by_role("heading", name="Please wait").wait_for()
        asking(desk, chair, "And then?", "text")
        await expect(box).to_have_value("")
        kept = "Object.values(localStorage).join()"
        await page.wait_for_load_state()  # the page's script clears before that
        assert "Half a thou" not in await page.evaluate(kept)
        await box.fill("Half a word")
        desk.close_seat(chair, "done")
        await page.get_by_role("heading", name="Thank you").wait_for()
        await page.wait_for_load_state()
        assert await page.evaluate(kept) == ""


@pytest.mark.nightly(part="pages")
async def test_a_long_part_leaves_the_first_question_of_a_phone_in_view(
    tmp_path: Path, async_browser: Browser
) -> None:
    """On a telephone a long part is folded to its first words, and opens by a click. On a desk, and
    without scripts, all of it can be read at once."""
    part = "You are Ines. " + "You bake bread in the old town and rise at three. " * 12
    async with served(tmp_path, SeatSettings(), Seat("p_1")) as (desk, links):
        (chair,) = desk
        desk.record_consent(chair)
        asking(desk, chair, "What should the town do?", "choice", OPTIONS, said=(), system=part)

        async def arrive(width: int, height: int, *, scripts: bool = True) -> Page:
            context = await async_browser.new_context(
                viewport={"width": width, "height": height}, java_script_enabled=scripts
            )
            page = await context.new_page()
            await page.goto(links["p_1"])
            return page

        phone = await arrive(375, 667)
        opening, whole = phone.locator(".card .opening"), phone.locator(".card > .prose")
        await expect(opening).to_contain_text("You are Ines. You bake")
        await expect(whole).to_be_hidden()
        for text in (*OPTIONS, "What should the town do?"):
            box = await phone.get_by_text(text, exact=True).bounding_box()
            assert box is not None and box["y"] + box["height"] <= 667, (text, box)
        await phone.locator(".card summary").click()
        await expect(whole).to_have_text(part, use_inner_text=True)
        await expect(opening).to_be_hidden()
        for page in (await arrive(1280, 720), await arrive(375, 667, scripts=False)):
            await expect(page.locator(".card > .prose")).to_be_visible()
            await expect(page.locator(".card .opening")).to_be_hidden()
        # A short part stays open, because the question is in view below it.
        question = asking(desk, chair, "And then?", "text", said=(), system="You are Ines.")
        await phone.close()
        desk.withdraw_question(desk.current_question(chair) or question, stored=True)
        short = await arrive(375, 667)
        await expect(short.locator(".card > .prose")).to_have_text("You are Ines.")
        await expect(short.locator(".card > .prose")).to_be_visible()


@pytest.mark.nightly(part="pages")  # forty-four looks with axe
async def test_every_page_of_a_seat_fits_and_is_for_everybody(
    tmp_path: Path, async_browser: Browser
) -> None:
    """axe finds nothing and nothing is wider than the screen: phone and desk, light and dark."""
    settings = SeatSettings(
        consent="We study how people decide together.\n\nIt takes about 20 minutes.",
        debriefing="The others at the table were language models. Write to us with questions.",
        completion_code="C17XPQ",
        minutes=3,
    )
    folder = Path(SHOTS) if SHOTS else tmp_path
    async with served(tmp_path, settings, Seat("p_1")) as (desk, links):
        (chair,) = desk
        page = await async_browser.new_page()

        async def look(name: str, link: str = links["p_1"]) -> None:
            for width in (375, 1280):
                await page.set_viewport_size({"width": width, "height": 800})
                for scheme in ("light", "dark"):
                    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                    await page.goto(link)
                    shot = folder / f"seat_{name}_{width}_{scheme}.png"
                    await page.screenshot(path=shot, full_page=True)
                    found = await Axe().run(page)
                    assert found.violations_count == 0, (name, found.generate_report())
                    fits = "document.documentElement.scrollWidth <= window.innerWidth"
                    assert await page.evaluate(fits), (name, width)
            await page.goto("about:blank")  # a page that is open follows the desk by itself

        await look("welcome")
        desk.record_consent(chair)
        await look("waiting")
        asked = {
            "text": ("What would change in your street?", (), None),
            "choice": ("What should the town do?", OPTIONS, None),
            "number": ("How sure are you, from 0 to 100?", ("0", "100"), None),
            "json": ("Think about it, and then speak to the hall.", (), FORM),
        }
        for kind, (prompt, offered, schema) in asked.items():
            question = asking(desk, chair, prompt, kind, offered, schema=schema)
            await look(kind)
            desk.withdraw_question(question, stored=True)
        question = asking(desk, chair, "One line on what matters most.", "text")
        question.left = 20.0
        await look("nudge")
        await look("leave", links["p_1"] + "/leave")
        await look("overview", links["All seats, for you alone"])
        await look("close", f"{links['All seats, for you alone']}/close?seat=p_1")
        desk.close_seat(chair, "done")
        await look("end")
        chair.ended = WITHDRAWN
        await look("withdrawn")
