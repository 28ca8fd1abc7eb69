"""The report in a browser: desktop, phone, dark, printed, by keyboard, without a network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import folkmoot
from folkmoot import Finding, ResultTable, Session, Speaker, Study, StudyConfig
from folkmoot.engine.study.study import registered_studies
from folkmoot.storage.run_folder import RunFolder
from tests.browsers import CHROMIUM_PATH, launch_browser
from tests.sweeps import sample_daily
from tests.view.test_browser import calculate_luminance
from tests.view.test_seat_pages import ENDS_LEFT_SCRIPT

SCREENSHOT_FOLDER = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them

pytestmark = pytest.mark.skipif(CHROMIUM_PATH is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_browser() as launched_browser:
        yield launched_browser


def report_url(run: RunFolder) -> str:
    return (run.path / "report.html").as_uri()


DESKTOP, PHONE = (1280, "light"), (375, "dark")
# axe takes three seconds of processor time per report. Daily, it checks one of them.
PAGE_VARIANTS = sample_daily(
    [(study, *how) for study in sorted(registered_studies()) for how in (DESKTOP, PHONE)],
    daily=[("town_hall", *PHONE)],
    part="pages",
)


@pytest.mark.parametrize(
    ("finished_run", "width", "scheme"), PAGE_VARIANTS, indirect=["finished_run"]
)
def test_the_page_fits_is_accessible_and_makes_no_requests(
    browser: Browser,
    finished_run: RunFolder,
    width: int,
    scheme: Literal["light", "dark"],
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    page.goto(report_url(finished_run))
    assert [url for url in requested_urls if not url.startswith("file:")] == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for box in (drawing.bounding_box() for drawing in page.locator("svg").all()):
        assert box is not None and box["width"] > 100 and box["height"] > 20
    find_cut_text = """[...document.querySelectorAll('svg text')].filter(t => {
        const box = t.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth;
    }).map(t => t.textContent)"""
    assert page.evaluate(find_cut_text) == []
    violations = Axe().run(page).response["violations"]
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in violations] == []
    if SCREENSHOT_FOLDER:
        screenshot = Path(SCREENSHOT_FOLDER) / f"report-{finished_run.study}-{width}-{scheme}.png"
        page.screenshot(path=screenshot, full_page=True)
    page.close()


@pytest.mark.nightly(part="pages")
def test_a_long_title_without_a_space_does_not_overflow(
    browser: Browser, pilot_run: RunFolder
) -> None:
    """The title is long in every place with a name of the run, a finding or a condition."""
    page = browser.new_page(viewport={"width": 375, "height": 900})
    page.goto(report_url(pilot_run))
    long = "Donaudampfschifffahrtsgesellschaftskapitän" * 4
    page.evaluate(
        """long => document.querySelectorAll(
            "h1, h2, h3, .brand, .subtitle, .question, .says, .note, .arm strong, .chip, li, p"
        ).forEach(e => { if (!e.children.length) e.textContent = long; })""",
        long,
    )
    assert page.locator("h1").text_content() == long
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.close()


@pytest.mark.nightly(part="pages")
def test_text_in_charts_is_light_on_a_dark_page(browser: Browser, pilot_run: RunFolder) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(report_url(pilot_run))
    assert _measure_lightness(page, "svg text", "fill") > 0.7
    assert _measure_lightness(page, "body", "background-color") < 0.3
    page.close()


@pytest.mark.parametrize("finished_run", ["cross_pollination", "negotiation"], indirect=True)
def test_every_table_of_a_report_has_a_name_for_a_screen_reader(
    browser: Browser, finished_run: RunFolder
) -> None:
    page = browser.new_page()
    page.goto(report_url(finished_run))
    without_name = """[...document.querySelectorAll("table")]
        .filter(table => !table.caption?.textContent.trim() && !table.ariaLabel)
        .map(table => table.outerHTML.slice(0, 80))"""
    assert page.locator("table").count() > 5
    assert page.evaluate(without_name) == []
    page.close()


def test_tables_open_by_keyboard(browser: Browser, pilot_run: RunFolder) -> None:
    page = browser.new_page()
    page.goto(report_url(pilot_run))
    closed = page.locator("details:not([open]) > summary").first
    closed.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details[open] > summary:focus")).to_have_count(1)
    page.close()


@pytest.mark.parametrize("scheme", sample_daily(["light", "dark"], daily=1, part="pages"))
def test_the_keyboard_focus_is_visible_at_every_element(
    browser: Browser, pilot_run: RunFolder, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(report_url(pilot_run))
    background = calculate_luminance(
        page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    )
    stop_count = 0
    while True:
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """(({outlineStyle, outlineColor}) => [document.activeElement.tagName, outlineStyle,
                outlineColor])(getComputedStyle(document.activeElement))"""
        )
        if focused[0] == "BODY":
            break
        stop_count += 1
        low, high = sorted([background, calculate_luminance(focused[2])])
        # WCAG 2.2, criterion 1.4.11.
        assert focused[1] == "solid" and (high + 0.05) / (low + 0.05) >= 3, focused
    assert stop_count > 30
    page.close()


@pytest.mark.nightly(part="pages")
def test_in_print_all_tables_are_open_and_each_page_has_the_mark(
    browser: Browser, pilot_run: RunFolder
) -> None:
    page = browser.new_page()
    page.goto(report_url(pilot_run))
    closed = page.locator("article details:not([open]) td").first
    expect(closed).to_be_hidden()
    page.emulate_media(media="print")
    expect(closed).to_be_visible()
    mark = page.evaluate(
        "(s => [s.content, s.position])(getComputedStyle(document.body, '::before'))"
    )
    assert "SYNTHETIC" in mark[0] and mark[1] == "fixed"  # fixed: repeated on every sheet
    assert page.pdf(format="A4").count(b"/Type /Page\n") > 2
    page.close()


def _measure_lightness(page: Page, selector: str, property_name: str) -> float:
    """Return the mean of the channels of a computed colour, from 0 to 1."""
    colour = page.locator(selector).first.evaluate(f"e => getComputedStyle(e)['{property_name}']")
    channels = [
        int(channel) for channel in colour.removeprefix("rgb(").removesuffix(")").split(",")[:3]
    ]
    return sum(channels) / 3 / 255


# Playwright has an event loop in this thread.
@pytest.mark.filterwarnings("ignore:folkmoot.run blocks the event loop")
def test_texts_from_right_to_left_end_at_the_left(browser: Browser, tmp_path: Path) -> None:
    """A full stop at the wrong side, or brackets around the wrong words, change what is read."""
    words, says = "نعم، أوافق.", "قال الجميع: نعم (بلا استثناء)."

    async def ask(session: Session[StudyConfig]) -> None:
        await session.child("vote").ask(Speaker("p_1", system="You are Mara."), words)

    def findings(_run: RunFolder) -> list[Finding]:
        table = ResultTable(("option", "votes"), ((words, 3), ("No, I do not.", 4)))
        return [Finding("votes", words, says, table, headline=True)]

    study = Study("direction", "Direction", StudyConfig, ask, findings=findings)
    run = folkmoot.run(study, out=tmp_path / "run", model="synthetic")
    page = browser.new_page()
    page.goto(run.report().as_uri())
    page.locator("#votes details").evaluate("details => { details.open = true; }")
    for element in (
        page.locator("#votes td").get_by_text(words),
        page.locator("#votes .says"),
        page.locator("#votes h3"),
    ):
        assert element.evaluate(ENDS_LEFT_SCRIPT)
    assert not page.locator("#votes td").get_by_text("No, I do not.").evaluate(ENDS_LEFT_SCRIPT)
