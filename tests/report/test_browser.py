"""The page in a real browser: desktop, phone, dark, printed, by keyboard, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from folkmoot.engine.study.study import registered_studies
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily
from tests.view.test_browser import calculate_luminance

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
SHOTS = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()


def address_of(run: RunFolder) -> str:
    return (run.path / "report.html").as_uri()


DESK, PHONE = (1280, "light"), (375, "dark")
# axe takes three seconds of the processor for a report. Daily, it looks at one of them.
LOOKS = sample_daily(
    [(study, *how) for study in sorted(registered_studies()) for how in (DESK, PHONE)],
    daily=[("town_hall", *PHONE)],
    part="pages",
)


@pytest.mark.parametrize(("finished", "width", "scheme"), LOOKS, indirect=["finished"])
def test_the_page_fits_asks_for_nothing_and_has_no_fault_that_axe_finds(
    browser: Browser,
    finished: RunFolder,
    width: int,
    scheme: Literal["light", "dark"],
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address_of(finished))
    assert [url for url in asked if not url.startswith("file:")] == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for box in (d.bounding_box() for d in page.locator("svg").all()):
        assert box is not None and box["width"] > 100 and box["height"] > 20
    off = """[...document.querySelectorAll('svg text')].filter(t => {
        const box = t.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth;
    }).map(t => t.textContent)"""
    assert page.evaluate(off) == []
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
    if SHOTS:
        shot = Path(SHOTS) / f"report-{finished.study}-{width}-{scheme}.png"
        page.screenshot(path=shot, full_page=True)
    page.close()


@pytest.mark.nightly(part="pages")
def test_a_long_title_without_a_space_stays_on_the_page(browser: Browser, pilot: RunFolder) -> None:
    """In every place that names the run, a finding or an arm."""
    page = browser.new_page(viewport={"width": 375, "height": 900})
    page.goto(address_of(pilot))
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
def test_text_in_drawings_can_be_read_on_a_dark_page(browser: Browser, pilot: RunFolder) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(address_of(pilot))
    assert _lightness(page, "svg text", "fill") > 0.7
    assert _lightness(page, "body", "background-color") < 0.3
    page.close()


@pytest.mark.parametrize("finished", ["cross_pollination", "negotiation"], indirect=True)
def test_every_table_of_a_report_has_a_name_for_a_screen_reader(
    browser: Browser, finished: RunFolder
) -> None:
    page = browser.new_page()
    page.goto(address_of(finished))
    without_name = """[...document.querySelectorAll("table")]
        .filter(table => !table.caption?.textContent.trim() && !table.ariaLabel)
        .map(table => table.outerHTML.slice(0, 80))"""
    assert page.locator("table").count() > 5
    assert page.evaluate(without_name) == []
    page.close()


def test_tables_open_by_keyboard(browser: Browser, pilot: RunFolder) -> None:
    page = browser.new_page()
    page.goto(address_of(pilot))
    closed = page.locator("details:not([open]) > summary").first
    closed.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details[open] > summary:focus")).to_have_count(1)
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_focus_can_be_seen_at_every_stop_of_the_tab_key(
    browser: Browser, pilot: RunFolder, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(address_of(pilot))
    paper = calculate_luminance(
        page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    )
    stops = 0
    while True:
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """(({outlineStyle, outlineColor}) => [document.activeElement.tagName, outlineStyle,
                outlineColor])(getComputedStyle(document.activeElement))"""
        )
        if focused[0] == "BODY":
            break
        stops += 1
        low, high = sorted([paper, calculate_luminance(focused[2])])
        # WCAG 2.2, criterion 1.4.11.
        assert focused[1] == "solid" and (high + 0.05) / (low + 0.05) >= 3, focused
    assert stops > 30
    page.close()


def test_on_paper_every_table_is_open_and_the_mark_stands_on_each_page(
    browser: Browser, pilot: RunFolder
) -> None:
    page = browser.new_page()
    page.goto(address_of(pilot))
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


def _lightness(page: Page, selector: str, what: str) -> float:
    """Mean of the channels of a computed colour, 0 to 1."""
    found = page.locator(selector).first.evaluate(f"e => getComputedStyle(e)['{what}']")
    channels = [int(c) for c in found.removeprefix("rgb(").removesuffix(")").split(",")[:3]]
    return sum(channels) / 3 / 255
