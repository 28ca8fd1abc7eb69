"""Checks, messages, the review and the last questions in a real browser, by keyboard alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.view.conftest import CHROMIUM
from tests.view.test_seat import SHOTS, Table, changed, shows

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]

STUDY = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open, Close it on Sundays]
participants_per_condition: 2
conditions: [simple_voting]
revote: true
ranking: true
min_responses_for_threshold: 50
personas: {source: quota}
seats:
  ids: [p_0001]
  checks:
    - question: How often do you vote?
      options: [Once, Twice]
      right: Twice
      on_failure: again
      hint: You vote before and after you read.
  review: true
  afterwards:
    - What was this study about?
    - {question: "How hard was it, from 1 to 7?", scale: [1, 7]}
  completion_code: C-17
"""


async def look(page: Page, name: str, *, rules: bool = True) -> None:
    """Nothing is too wide on a telephone and on a desk, and there is a picture of each. axe finds
    nothing on the page as wide as it was opened."""
    opened = page.viewport_size
    assert opened is not None
    for width in (1280, 375):
        await page.set_viewport_size({"width": width, "height": 800})
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not await page.evaluate(wide)
        if SHOTS:
            await page.screenshot(path=f"{SHOTS}/{name}_{width}.png", full_page=True)
    await page.set_viewport_size(opened)
    if rules:
        found = await Axe().run(page)
        assert found.violations_count == 0, (name, opened["width"], found.generate_report())


async def send(page: Page) -> None:
    """Press Send by keyboard, and wait for the page that follows."""
    before = await shows(page)
    button = page.locator("form.answer button.primary")
    for _ in range(40):
        if await button.evaluate("button => button === document.activeElement"):
            break
        await page.keyboard.press("Tab")
    await page.wait_for_timeout(600)  # a form takes nothing in its first half second
    await page.keyboard.press("Enter")
    await changed(page, before)


async def question(page: Page) -> str:
    await page.locator("#question").wait_for()
    return await page.locator("section.question").inner_text()


@pytest.mark.nightly(part="pages")  # daily, the same without a browser in tests/engine
@pytest.mark.parametrize("width", [375, 1280])
async def test_a_person_is_checked_told_and_asked_afterwards(
    tmp_path: Path, async_browser: Browser, width: int
) -> None:
    study = tmp_path / "centre.yaml"
    study.write_text(STUDY, "utf-8")
    table = Table(study, tmp_path / "run")
    page, researcher = [
        await async_browser.new_page(viewport={"width": width, "height": 800}) for _ in range(2)
    ]
    await page.goto(table.links["p_0001"])
    await look(page, "1_welcome", rules=False)
    await page.locator("button.primary").focus()
    await page.wait_for_timeout(600)
    await page.keyboard.press("Enter")
    await changed(page, "welcome")

    assert "A check" in await question(page)
    await look(page, "2_check", rules=False)
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("Space")
    await send(page)
    assert "You vote before and after you read." in await question(page)
    await look(page, "3_check_again")
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("ArrowDown")
    await send(page)

    text = await question(page)
    assert "Question 1" in text and text.count("Keep it open") == 1
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("Space")
    # A message appears beside what the person has chosen, which stays.
    await researcher.goto(table.links["All seats, for you alone"])
    await researcher.get_by_label("Remind p_0001").click()
    await expect(researcher.locator("#to")).to_have_value("p_0001")
    await researcher.locator("#text").fill("Five minutes are left. <b>Thank you.</b>")
    await look(researcher, "4_researcher")
    await researcher.locator("form button.primary").click()
    await researcher.locator(".sent li").wait_for()
    message = page.locator("#messages p")
    await expect(message).to_have_text("Five minutes are left. <b>Thank you.</b>")
    assert await page.locator("form.answer input[type=radio]").first.is_checked()
    await look(page, "5_vote", rules=False)
    await send(page)

    assert "Your ranking" in await question(page)
    for number, box in enumerate(await page.locator("input[type=number]").all()):
        await box.focus()
        await page.keyboard.type(str(3 - number))
    await look(page, "6_ranking")
    await send(page)
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("Space")
    await send(page)
    for number, box in enumerate(await page.locator("input[type=number]").all()):
        await box.focus()
        await page.keyboard.type(str(number + 1))
    await send(page)

    assert "Your answers" in await question(page)
    said = await page.locator("ol.talk").inner_text()
    assert said.count("Close it\n") >= 2 and "JSON" not in said and "declined" not in said
    await look(page, "7_review")
    await page.locator("form.answer textarea").focus()
    await page.keyboard.type("I would vote the same again.")
    await send(page)
    assert "Before you go" in await question(page)
    await page.locator("form.answer textarea").focus()
    await page.keyboard.type("About cars.")
    await send(page)
    await look(page, "8_afterwards")
    await page.locator("form.answer input[type=number]").focus()
    await page.keyboard.type("3")
    await send(page)
    await expect(page.locator("strong.code")).to_have_text("C-17")
    await look(page, "9_end", rules=False)
    run = await table.over()
    assert run.table("checks")["outcome"].to_list() == ["again", "passed"]
    assert run.table("afterwards")["answer"].to_list() == [
        "I would vote the same again.",
        "About cars.",
        "3",
    ]
    (sent,) = run.table("announcements").to_dicts()
    assert sent["seat"] == "p_0001" and sent["text"].startswith("Five minutes")
    assert sent["time"].startswith("20")
    before, after = (
        json.loads(run.table("participants").filter(participant_id="p_0001")[column][0])
        for column in ("ranking_before", "ranking_after")
    )
    assert before == after[::-1] and before[0] == "Close it on Sundays"
