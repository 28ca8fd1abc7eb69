"""Checks, messages, the review and the last questions in a real browser, only by keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.browsers import CHROMIUM_PATH
from tests.view.test_seat import SCREENSHOT_FOLDER, SeatedRun, read_shown_state, wait_for_change

pytestmark = [
    pytest.mark.skipif(CHROMIUM_PATH is None, reason="no Chromium on this machine"),
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


async def check_page(page: Page, name: str, *, rules: bool = True) -> None:
    """Check that the page fits a phone and a desktop, and take screenshots if asked for. axe finds
    no violation at the width at which the page was opened."""
    opened_size = page.viewport_size
    assert opened_size is not None
    for width in (1280, 375):
        await page.set_viewport_size({"width": width, "height": 800})
        is_too_wide_script = (
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        assert not await page.evaluate(is_too_wide_script)
        if SCREENSHOT_FOLDER:
            await page.screenshot(path=f"{SCREENSHOT_FOLDER}/{name}_{width}.png", full_page=True)
    await page.set_viewport_size(opened_size)
    if rules:
        axe_results = await Axe().run(page)
        assert axe_results.violations_count == 0, (
            name,
            opened_size["width"],
            axe_results.generate_report(),
        )


async def send_by_keyboard(page: Page) -> None:
    """Press Send by keyboard and wait for the next page."""
    before = await read_shown_state(page)
    button = page.locator("form.answer button.primary")
    for _ in range(40):
        if await button.evaluate("button => button === document.activeElement"):
            break
        await page.keyboard.press("Tab")
    await page.wait_for_timeout(600)  # a form ignores input in its first half second
    await page.keyboard.press("Enter")
    await wait_for_change(page, before)


async def read_question(page: Page) -> str:
    await page.locator("#question").wait_for()
    return await page.locator("section.question").inner_text()


@pytest.mark.nightly(part="pages")  # daily, the same without a browser in tests/engine
@pytest.mark.parametrize("width", [375, 1280])
async def test_a_human_gets_checks_messages_and_last_questions(
    tmp_path: Path, async_browser: Browser, width: int
) -> None:
    study = tmp_path / "centre.yaml"
    study.write_text(STUDY, "utf-8")
    seated_run = SeatedRun(study, tmp_path / "run")
    page, researcher = [
        await async_browser.new_page(viewport={"width": width, "height": 800}) for _ in range(2)
    ]
    await page.goto(seated_run.links["p_0001"])
    await check_page(page, "1_welcome", rules=False)
    await page.locator("button.primary").focus()
    await page.wait_for_timeout(600)
    await page.keyboard.press("Enter")
    await wait_for_change(page, "welcome")

    assert "A check" in await read_question(page)
    await check_page(page, "2_check", rules=False)
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("Space")
    await send_by_keyboard(page)
    assert "You vote before and after you read." in await read_question(page)
    await check_page(page, "3_check_again")
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("ArrowDown")
    await send_by_keyboard(page)

    text = await read_question(page)
    assert "Question 1" in text and text.count("Keep it open") == 1
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("Space")
    # A message appears on the page, and the chosen option stays selected.
    await researcher.goto(seated_run.links["All seats, for you alone"])
    await researcher.get_by_label("Remind p_0001").click()
    await expect(researcher.locator("#to")).to_have_value("p_0001")
    await researcher.locator("#text").fill("Five minutes are left. <b>Thank you.</b>")
    await check_page(researcher, "4_researcher")
    await researcher.locator("form button.primary").click()
    await researcher.locator(".sent li").wait_for()
    message = page.locator("#messages p")
    await expect(message).to_have_text("Five minutes are left. <b>Thank you.</b>")
    assert await page.locator("form.answer input[type=radio]").first.is_checked()
    await check_page(page, "5_vote", rules=False)
    await send_by_keyboard(page)

    assert "Your ranking" in await read_question(page)
    for number, box in enumerate(await page.locator("input.number").all()):
        await box.focus()
        await page.keyboard.type(str(3 - number))
    await check_page(page, "6_ranking")
    await send_by_keyboard(page)
    await page.locator("form.answer input[type=radio]").first.focus()
    await page.keyboard.press("Space")
    await send_by_keyboard(page)
    for number, box in enumerate(await page.locator("input.number").all()):
        await box.focus()
        await page.keyboard.type(str(number + 1))
    await send_by_keyboard(page)

    assert "Your answers" in await read_question(page)
    review_text = await page.locator("ol.talk").inner_text()
    assert (
        review_text.count("Close it\n") >= 2
        and "JSON" not in review_text
        and "declined" not in review_text
    )
    await check_page(page, "7_review")
    await page.locator("form.answer textarea").focus()
    await page.keyboard.type("I would vote the same again.")
    await send_by_keyboard(page)
    assert "Before you go" in await read_question(page)
    await page.locator("form.answer textarea").focus()
    await page.keyboard.type("About cars.")
    await send_by_keyboard(page)
    await check_page(page, "8_afterwards")
    await page.locator("form.answer input.number").focus()
    await page.keyboard.type("3")
    await send_by_keyboard(page)
    await expect(page.locator("strong.code")).to_have_text("C-17")
    await check_page(page, "9_end", rules=False)
    run = await seated_run.wait_for_run()
    assert run.table("checks")["outcome"].to_list() == ["again", "passed"]
    assert run.table("afterwards")["answer"].to_list() == [
        "I would vote the same again.",
        "About cars.",
        "3",
    ]
    (announcement,) = run.table("announcements").to_dicts()
    assert announcement["seat"] == "p_0001" and announcement["text"].startswith("Five minutes")
    assert announcement["time"].startswith("20")
    before, after = (
        json.loads(run.table("participants").filter(participant_id="p_0001")[column][0])
        for column in ("ranking_before", "ranking_after")
    )
    assert before == after[::-1] and before[0] == "Close it on Sundays"
