"""The run viewer in a real browser: phone and desktop, light and dark, by keyboard, with axe."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from starlette.responses import HTMLResponse
from starlette.routing import Route

from folkmoot.engine.journal.integrity import digest_of_run
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.study.study import registered_studies
from folkmoot.storage.run_folder import JOURNAL, MANIFEST, RunFolder
from folkmoot.view.site import Guard, create_app
from tests.servers.pages import PageServer
from tests.sweeps import sample_daily
from tests.view.conftest import create_viewer_server, wait_for_search_results
from tests.view.growing import GrowingRun

SCREENSHOT_FOLDER = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them
PAGES = {
    "runs": "/",
    "run": "/run/cross_pollination/-/",
    "people": "/run/cross_pollination/-/people",
    "person": "/run/cross_pollination/-/person?id=p_0001",
    "rooms": "/run/town_hall/-/rooms",
    "room": "/run/town_hall/-/room?id=set01_lv4&private=1",
    "talk": "/run/focus_group/-/room?id=group_001&id=oven",
    "said": "/run/cross_pollination/-/said?at=initial_vote/p_0001/ask0",
    "search": "/run/cross_pollination/-/search?q=park",
    "beside": "/beside?a=cross_pollination&x=p_0001&b=cross_pollination&y=p_0002",
    "search_all": "/search?q=park",
    "missing": "/run/nothing/-/",
}
TABLES_WITHOUT_NAME = """[...document.querySelectorAll("table")]
    .filter(table => !table.caption?.textContent.trim() && !table.ariaLabel)
    .map(table => table.outerHTML.slice(0, 80))"""
Presentation = tuple[int, Literal["light", "dark"]]
DESKTOP: Presentation = (1280, "light")
PHONE: Presentation = (375, "dark")
PRESENTATIONS: tuple[Presentation, ...] = (DESKTOP, (1280, "dark"), (375, "light"), PHONE)
# Daily, axe checks every second page in one presentation, alternately on a dark phone.
PAGES_TO_CHECK = sample_daily(
    [(name, presentation) for name in PAGES for presentation in (DESKTOP, PHONE)],
    daily=[(name, (DESKTOP, PHONE)[number % 2]) for number, name in enumerate([*PAGES][::4])],
    part="pages",
)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if "Content Security" in message.text else None,
    )
    yield page
    page.close()
    assert errors == []


@pytest.mark.parametrize(("name", "axe_presentation"), PAGES_TO_CHECK)
def test_a_page_fits_and_is_accessible_at_every_size_and_in_the_dark(
    open_page: Page, page_server: PageServer, name: str, axe_presentation: Presentation
) -> None:
    wait_for_search_results(page_server, "cross_pollination", "park")
    requested_urls: list[str] = []
    open_page.on("request", lambda request: requested_urls.append(request.url))
    open_page.goto(page_server.url + PAGES[name])
    if name == "run":
        open_page.wait_for_selector(".finding, .alarm", timeout=60_000)
    if name == "search_all":
        open_page.wait_for_selector("text=5 runs were searched")
    check_page(open_page, name, axe_presentation)
    assert [url for url in requested_urls if not url.startswith(page_server.url)] == []


def check_page(page: Page, name: str, axe_presentation: Presentation = PHONE) -> None:
    """Check a page on a desktop and on a phone, light and dark: it fits the screen, every table has
    a name, and axe finds no violation in one of the four presentations. Take screenshots if
    FOLKMOOT_SCREENSHOTS is set."""
    page.wait_for_load_state("load")  # after a click the style sheet is not loaded yet
    assert page.evaluate(TABLES_WITHOUT_NAME) == []
    for width, scheme in PRESENTATIONS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        if (width, scheme) == axe_presentation:
            axe_results = Axe().run(page)
            assert axe_results.violations_count == 0, (width, scheme, axe_results.generate_report())
        if SCREENSHOT_FOLDER:
            page.screenshot(
                path=Path(SCREENSHOT_FOLDER) / f"view-{name}-{width}-{scheme}.png", full_page=True
            )


# `check_page` checks the tables of the other pages.
@pytest.mark.parametrize("name", sample_daily(["person", "run"], daily=1, part="pages"))
def test_every_table_has_a_name_for_a_screen_reader(
    open_page: Page, page_server: PageServer, name: str
) -> None:
    open_page.goto(page_server.url + PAGES[name])
    if name == "run":
        open_page.wait_for_selector(".finding, .alarm", timeout=60_000)
    assert open_page.evaluate(TABLES_WITHOUT_NAME) == []


def test_the_call_behind_an_utterance_opens_in_place(
    open_page: Page, page_server: PageServer
) -> None:
    open_page.goto(page_server.url + PAGES["person"])
    drawer = open_page.locator("details.call").first
    drawer.locator("summary").focus()
    open_page.keyboard.press("Enter")
    expect(drawer).to_contain_text("Parse step exact", use_inner_text=True)
    for label in ("Model served", "Tries", "Tokens in, out", "Cost", "Latency", "Reply"):
        expect(drawer).to_contain_text(label)
    link = open_page.locator(".said a.link").first.get_attribute("href")
    open_page.goto(page_server.url + str(link))
    expect(open_page.locator("h1")).to_contain_text("initial vote")


def find_prompt_with_most_sources(run: RunFolder) -> str:
    """Return the address of the call with texts from most kinds of sources, also utterances."""
    spans = run.read_table("provenance").filter(pl.col("message").count().over("address") < 60)
    has_utterances = (pl.col("kind") == "utterance").any()
    calls = spans.group_by("address").agg(pl.col("kind").n_unique(), has_utterances.alias("said"))
    return str(calls.sort("said", "kind", "address", descending=[True, True, False])["address"][0])


@pytest.mark.parametrize("study", sample_daily(sorted(registered_studies()), daily=2, part="pages"))
def test_a_prompt_by_source_is_accessible_and_leads_to_a_reply(
    open_page: Page, outputs: Path, page_server: PageServer, study: str
) -> None:
    address = find_prompt_with_most_sources(RunFolder(outputs / study))
    open_page.goto(f"{page_server.url}/run/{study}/-/said?at={quote(address, safe='')}")
    legend = open_page.locator(".legend")
    expect(legend).to_contain_text("unmarked: instructions of the study")
    check_page(open_page, f"prompt-{study}")
    passage = open_page.locator("pre a.src").first
    source_label = passage.locator("sup").inner_text()
    expect(legend).to_contain_text(source_label[-1])  # readable without colours as well
    passage_text = passage.inner_text().removeprefix(source_label).strip()
    target = unquote(str(passage.get_attribute("href")).partition("at=")[2])
    passage.focus()
    open_page.keyboard.press("Enter")
    expect(open_page.locator("main p > code").first).to_have_text(target)
    run = RunFolder(outputs / study)
    recorded_texts = [*run.read_table("utterances").filter(address=target)["text"]]
    recorded_texts += [*run.read_table("answers").filter(address=target)["value"]]
    assert any(passage_text.split("\n")[0] in text for text in recorded_texts if text)


def test_keyboard_shortcuts_move_open_search_and_show_help(
    open_page: Page, page_server: PageServer
) -> None:
    open_page.goto(page_server.url + PAGES["people"])
    for key, participant_id in (("j", "p_0001"), ("j", "p_0002"), ("k", "p_0001"), ("k", "p_0001")):
        open_page.keyboard.press(key)
        expect(open_page.locator("tbody th a", has_text=participant_id)).to_be_focused()
    open_page.keyboard.press("?")
    expect(open_page.locator("dialog")).to_be_visible()
    open_page.keyboard.press("j")  # has no effect while the dialog is open
    open_page.keyboard.press("Escape")
    expect(open_page.locator("dialog")).not_to_be_visible()
    open_page.keyboard.press("/")
    open_page.keyboard.type("jack")  # keys are ordinary letters in a field
    expect(open_page.locator("#find")).to_have_value("jack")
    open_page.keyboard.press("Escape")
    open_page.keyboard.press("j")
    open_page.keyboard.press("Enter")
    expect(open_page.locator("h1")).to_contain_text("p_000")


def test_participants_are_sorted_and_filtered_by_recorded_columns(
    open_page: Page, page_server: PageServer
) -> None:
    open_page.goto(page_server.url + PAGES["people"])
    rows = open_page.locator("tbody tr")
    participant_count = rows.count()
    open_page.fill("#q", "condition=acp")
    open_page.press("#q", "Enter")
    expect(open_page.locator("[role=status]")).to_have_text(f"6 of {participant_count} people")
    expect(rows).to_have_count(6)
    acp_ids = sorted(open_page.locator("tbody th").all_text_contents())
    for direction, ids in (("ascending", acp_ids), ("descending", acp_ids[::-1])):
        open_page.get_by_role("link", name="participant id").click()
        expect(open_page.locator("[aria-sort]")).to_have_attribute("aria-sort", direction)
        expect(open_page.locator("tbody th")).to_have_text(ids)
    open_page.locator("details.levels > summary").click()


def test_private_thoughts_are_shown_only_on_request(
    open_page: Page, page_server: PageServer
) -> None:
    open_page.goto(page_server.url + PAGES["talk"])
    expect(open_page.locator(".private")).to_have_count(0)
    open_page.get_by_role("link", name="Show what was only thought").click()
    expect(open_page.locator(".private").nth(4)).to_be_visible()
    open_page.wait_for_load_state()
    assert open_page.locator(".private >> text=coder").count() == 0


@pytest.mark.parametrize("study", sample_daily(sorted(registered_studies()), daily=2, part="pages"))
def test_rooms_and_participants_fit_a_page_enlarged_four_times(
    open_page: Page, page_server: PageServer, study: str
) -> None:
    open_page.set_viewport_size({"width": 320, "height": 256})
    for page_name in ("rooms", "people"):
        open_page.goto(f"{page_server.url}/run/{study}/-/{page_name}")
        open_page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert open_page.evaluate("document.documentElement.scrollWidth") <= 320, page_name


@pytest.mark.parametrize("scheme", sample_daily(["light", "dark"], daily=1, part="pages"))
def test_field_borders_have_enough_contrast(
    open_page: Page, page_server: PageServer, scheme: Literal["light", "dark"]
) -> None:
    open_page.emulate_media(color_scheme=scheme)
    open_page.goto(page_server.url + PAGES["people"])
    colours = open_page.locator("#q").evaluate(
        "field => [getComputedStyle(field).borderTopColor, getComputedStyle(field).backgroundColor]"
    )
    low, high = sorted(calculate_luminance(colour) for colour in colours)
    # WCAG 2.2, criterion 1.4.11.
    assert (high + 0.05) / (low + 0.05) >= 3


def calculate_luminance(colour: str) -> float:
    """Return the relative luminance (WCAG) of a colour such as `rgb(0, 90, 148)`."""
    channels = [int(channel) / 255 for channel in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_two_participants_are_shown_side_by_side(open_page: Page, page_server: PageServer) -> None:
    open_page.goto(page_server.url + PAGES["person"])
    open_page.fill("#other", "p_0002")
    open_page.get_by_role("button", name="Show both").click()
    expect(open_page.locator(".beside > section h1")).to_have_text(["p_0001", "p_0002"])


def test_the_same_participant_of_two_runs_is_shown_side_by_side(
    open_page: Page, outputs: Path, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        shutil.copytree(outputs / "cross_pollination", tmp_path / "outputs" / name)
    with create_viewer_server(tmp_path / "outputs") as server:
        open_page.goto(f"{server.url}/run/first/-/person?id=p_0001")
        open_page.get_by_label("Beside").select_option("second")
        open_page.get_by_role("button", name="Show both").click()
        sides = open_page.locator(".beside > section")
        expect(sides.locator("h1")).to_have_text(["p_0001", "p_0001"])
        expect(sides.locator("> p > a")).to_have_text(["first", "p_0001", "second", "p_0001"])
        sides.nth(1).locator("a.link").first.click()
        expect(open_page.locator(".here", has_text="second")).to_be_visible()


def test_without_scripts_everything_can_be_read(browser: Browser, page_server: PageServer) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(page_server.url + PAGES["person"])
    page.locator("details.call > summary").first.click()
    page.locator("details.call a").first.click()
    expect(page.locator("main h2").last).to_have_text("The call")
    page.close()


def test_a_link_with_its_token_opens_from_another_sites_page(
    browser: Browser, outputs: Path
) -> None:
    with create_viewer_server(outputs, Guard(token="secret")) as server:
        link = f"{server.url}/run/town_hall/-/rooms?token=secret"
        link_page = Route("/", lambda _: HTMLResponse(f'<a href="{link}">your runs</a>'))
        with PageServer(create_app([link_page], Guard())) as other_site:
            page = browser.new_page()
            # A different site than 127.0.0.1.
            page.goto(other_site.url.replace("127.0.0.1", "localhost"))
            page.get_by_role("link", name="your runs").click()
            expect(page.locator("h1")).to_have_text("Rooms")
            assert "secret" not in page.url
            page.close()


STATES = {"paused": "paused, can be resumed", "partial": "stopped without a word", "live": "under"}


@pytest.mark.nightly(part="pages")
@pytest.mark.parametrize("state", STATES)
def test_pages_of_an_unfinished_run_can_be_read(
    open_page: Page, outputs: Path, tmp_path: Path, state: str
) -> None:
    run = GrowingRun(outputs / "focus_group", tmp_path / "outputs" / state)
    run.copy_files()
    run.write_journal(run.write_journal(0) // 2)
    run.write_rows()
    if state == "paused":
        # A pause writes the tables and removes the file of rows.
        list(run.iterate_end_states())
        manifest = json.loads((outputs / "focus_group" / MANIFEST).read_text("utf-8"))
        with JournalReader(run.folder / JOURNAL) as journal:
            digest = digest_of_run(journal.record_digest(), RunFolder(run.folder).plan)
        manifest |= {"outcome": "paused", "record_digest": digest}
        (run.folder / MANIFEST).write_text(json.dumps(manifest))
    elif state != "live":
        run.release()
    with create_viewer_server(run.folder.parent) as server:
        open_page.goto(server.url)
        expect(open_page.locator(".state")).to_contain_text(STATES[state])
        open_page.get_by_role("link", name=state).click()
        expect(open_page.locator("#h-design")).to_be_visible()
        if state == "live":
            check_page(open_page, "run-live")
        open_page.get_by_role("link", name="Participants").click()
        expect(open_page.locator("tbody tr")).to_have_count(8)
        open_page.get_by_role("link", name="Leslie Powell").click()
        expect(open_page.locator(".said").first).to_be_visible()
        open_page.get_by_role("link", name="Rooms").click()
        open_page.get_by_role("link", name="group_001").first.click()
        expect(open_page.locator("#talk article").first).to_be_visible()
        if state == "live":
            check_page(open_page, "room-live")


@pytest.mark.nightly(part="pages")
def test_thousands_of_participants_are_paged_and_filtered(
    open_page: Page, outputs: Path, tmp_path: Path
) -> None:
    run = tmp_path / "outputs" / "huge"
    shutil.copytree(outputs / "cross_pollination", run)
    path = run / "tables" / "participants.parquet"
    people = pl.read_parquet(path)
    many_people = pl.concat([people] * 556).with_row_index("n", offset=1)
    numbered_ids = pl.format("p_{}", pl.col("n").cast(pl.String).str.zfill(5)).alias(
        "participant_id"
    )
    many_people.with_columns(numbered_ids).drop("n").write_parquet(path)
    with create_viewer_server(run.parent) as server:
        open_page.goto(f"{server.url}/run/huge/-/people")
        expect(open_page.locator("[role=status]")).to_have_text("20,016 people")
        open_page.get_by_role("link", name="Next").click()
        expect(open_page.locator("tbody th").first).to_have_text("p_00101")
        open_page.fill("#q", "p_19999")
        open_page.press("#q", "Enter")
        expect(open_page.locator("tbody tr")).to_have_count(1)
        check_page(open_page, "huge")
