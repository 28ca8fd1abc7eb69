"""The reader in a real browser: phone and desk, light and dark, by keyboard, for screen readers."""

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
from tests.view.conftest import found_in, reader
from tests.view.growing import Growing

SHOTS = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them
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
DESK: Presentation = (1280, "light")
PHONE: Presentation = (375, "dark")
PRESENTATIONS: tuple[Presentation, ...] = (DESK, (1280, "dark"), (375, "light"), PHONE)
# Daily, axe looks at every second page in one presentation, in turn on a phone in the dark.
HEARD = sample_daily(
    [(name, how) for name in PAGES for how in (DESK, PHONE)],
    daily=[(name, (DESK, PHONE)[number % 2]) for number, name in enumerate([*PAGES][::2])],
    part="pages",
)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("console", lambda m: errors.append(m.text) if "Content Security" in m.text else None)
    yield page
    page.close()
    assert errors == []


@pytest.mark.parametrize(("name", "heard"), HEARD)
def test_a_page_fits_and_is_accessible_at_every_size_and_in_the_dark(
    open_page: Page, served: PageServer, name: str, heard: Presentation
) -> None:
    found_in(served, "cross_pollination", "park")
    asked: list[str] = []
    open_page.on("request", lambda request: asked.append(request.url))
    open_page.goto(served.url + PAGES[name])
    if name == "run":
        open_page.wait_for_selector(".finding, .alarm", timeout=60_000)
    if name == "search_all":
        open_page.wait_for_selector("text=5 runs were searched")
    look(open_page, name, heard)
    assert [url for url in asked if not url.startswith(served.url)] == []


def look(page: Page, name: str, heard: Presentation = PHONE) -> None:
    """Check a page on a desk and on a phone, light and dark: it fits the screen, every table has a
    name, and axe finds no violation in one of the four presentations. Take screenshots where the
    developer asks for them."""
    page.wait_for_load_state("load")  # a click leads to a page that has no style sheet yet
    assert page.evaluate(TABLES_WITHOUT_NAME) == []
    for width, scheme in PRESENTATIONS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        if (width, scheme) == heard:
            found = Axe().run(page)
            assert found.violations_count == 0, (width, scheme, found.generate_report())
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"view-{name}-{width}-{scheme}.png", full_page=True)


# `look` checks the tables of the other pages.
@pytest.mark.parametrize("name", ["run", "person"])
def test_every_table_has_a_name_for_a_screen_reader(
    open_page: Page, served: PageServer, name: str
) -> None:
    open_page.goto(served.url + PAGES[name])
    if name == "run":
        open_page.wait_for_selector(".finding, .alarm", timeout=60_000)
    assert open_page.evaluate(TABLES_WITHOUT_NAME) == []


def test_the_call_behind_an_utterance_opens_in_place(open_page: Page, served: PageServer) -> None:
    open_page.goto(served.url + PAGES["person"])
    drawer = open_page.locator("details.call").first
    drawer.locator("summary").focus()
    open_page.keyboard.press("Enter")
    expect(drawer).to_contain_text("Parse step exact", use_inner_text=True)
    for told in ("Model served", "Tries", "Tokens in, out", "Cost", "Latency", "Reply"):
        expect(drawer).to_contain_text(told)
    link = open_page.locator(".said a.link").first.get_attribute("href")
    open_page.goto(served.url + str(link))
    expect(open_page.locator("h1")).to_contain_text("initial vote")


def prompt_with_most_sources(run: RunFolder) -> str:
    """The address of a call with texts of many kinds, other speakers' among them."""
    spans = run.read_table("provenance").filter(pl.col("message").count().over("address") < 60)
    said = (pl.col("kind") == "utterance").any()
    calls = spans.group_by("address").agg(pl.col("kind").n_unique(), said.alias("said"))
    return str(calls.sort("said", "kind", "address", descending=[True, True, False])["address"][0])


@pytest.mark.parametrize("study", sample_daily(sorted(registered_studies()), daily=2, part="pages"))
def test_a_prompt_by_source_is_accessible_and_leads_to_a_reply(
    open_page: Page, outputs: Path, served: PageServer, study: str
) -> None:
    address = prompt_with_most_sources(RunFolder(outputs / study))
    open_page.goto(f"{served.url}/run/{study}/-/said?at={quote(address, safe='')}")
    legend = open_page.locator(".legend")
    expect(legend).to_contain_text("unmarked: instructions of the study")
    look(open_page, f"prompt-{study}")
    passage = open_page.locator("pre a.src").first
    key = passage.locator("sup").inner_text()
    expect(legend).to_contain_text(key[-1])  # with colours switched off it is told all the same
    words = passage.inner_text().removeprefix(key).strip()
    target = unquote(str(passage.get_attribute("href")).partition("at=")[2])
    passage.focus()
    open_page.keyboard.press("Enter")
    expect(open_page.locator("main p > code").first).to_have_text(target)
    run = RunFolder(outputs / study)
    recorded = [*run.read_table("utterances").filter(address=target)["text"]]
    recorded += [*run.read_table("answers").filter(address=target)["value"]]
    assert any(words.split("\n")[0] in text for text in recorded if text)


def test_keys_walk_open_search_and_explain(open_page: Page, served: PageServer) -> None:
    open_page.goto(served.url + PAGES["people"])
    for key, who in (("j", "p_0001"), ("j", "p_0002"), ("k", "p_0001"), ("k", "p_0001")):
        open_page.keyboard.press(key)
        expect(open_page.locator("tbody th a", has_text=who)).to_be_focused()
    open_page.keyboard.press("?")
    expect(open_page.locator("dialog")).to_be_visible()
    open_page.keyboard.press("j")  # is not a key while the dialog is open
    open_page.keyboard.press("Escape")
    expect(open_page.locator("dialog")).not_to_be_visible()
    open_page.keyboard.press("/")
    open_page.keyboard.type("jack")  # letters typed are letters
    expect(open_page.locator("#find")).to_have_value("jack")
    open_page.keyboard.press("Escape")
    open_page.keyboard.press("j")
    open_page.keyboard.press("Enter")
    expect(open_page.locator("h1")).to_contain_text("p_000")


def test_people_are_sorted_and_filtered_by_what_was_recorded(
    open_page: Page, served: PageServer
) -> None:
    open_page.goto(served.url + PAGES["people"])
    rows = open_page.locator("tbody tr")
    everybody = rows.count()
    open_page.fill("#q", "condition=acp")
    open_page.press("#q", "Enter")
    expect(open_page.locator("[role=status]")).to_have_text(f"6 of {everybody} people")
    expect(rows).to_have_count(6)
    acp = sorted(open_page.locator("tbody th").all_text_contents())
    for direction, ids in (("ascending", acp), ("descending", acp[::-1])):
        open_page.get_by_role("link", name="participant id").click()
        expect(open_page.locator("[aria-sort]")).to_have_attribute("aria-sort", direction)
        expect(open_page.locator("tbody th")).to_have_text(ids)
    open_page.locator("details.levels > summary").click()


def test_private_thoughts_are_shown_on_request_alone(open_page: Page, served: PageServer) -> None:
    open_page.goto(served.url + PAGES["talk"])
    expect(open_page.locator(".private")).to_have_count(0)
    open_page.get_by_role("link", name="Show what was only thought").click()
    expect(open_page.locator(".private").nth(4)).to_be_visible()
    open_page.wait_for_load_state()
    assert open_page.locator(".private >> text=coder").count() == 0


@pytest.mark.parametrize("study", sample_daily(sorted(registered_studies()), daily=2, part="pages"))
def test_rooms_and_participants_fit_a_page_enlarged_four_times(
    open_page: Page, served: PageServer, study: str
) -> None:
    open_page.set_viewport_size({"width": 320, "height": 256})
    for part in ("rooms", "people"):
        open_page.goto(f"{served.url}/run/{study}/-/{part}")
        open_page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert open_page.evaluate("document.documentElement.scrollWidth") <= 320, part


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_edge_of_a_field_can_be_seen(
    open_page: Page, served: PageServer, scheme: Literal["light", "dark"]
) -> None:
    open_page.emulate_media(color_scheme=scheme)
    open_page.goto(served.url + PAGES["people"])
    colours = open_page.locator("#q").evaluate(
        "field => [getComputedStyle(field).borderTopColor, getComputedStyle(field).backgroundColor]"
    )
    low, high = sorted(luminance_of(colour) for colour in colours)
    # WCAG 2.2, criterion 1.4.11.
    assert (high + 0.05) / (low + 0.05) >= 3


def luminance_of(colour: str) -> float:
    """The relative luminance of WCAG of a colour such as `rgb(0, 90, 148)`."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_two_people_stand_side_by_side(open_page: Page, served: PageServer) -> None:
    open_page.goto(served.url + PAGES["person"])
    open_page.fill("#other", "p_0002")
    open_page.get_by_role("button", name="Show both").click()
    expect(open_page.locator(".beside > section h1")).to_have_text(["p_0001", "p_0002"])


def test_the_same_participant_of_two_runs_stands_side_by_side(
    open_page: Page, outputs: Path, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        shutil.copytree(outputs / "cross_pollination", tmp_path / "outputs" / name)
    with reader(tmp_path / "outputs") as server:
        open_page.goto(f"{server.url}/run/first/-/person?id=p_0001")
        open_page.get_by_label("Beside").select_option("second")
        open_page.get_by_role("button", name="Show both").click()
        sides = open_page.locator(".beside > section")
        expect(sides.locator("h1")).to_have_text(["p_0001", "p_0001"])
        expect(sides.locator("> p > a")).to_have_text(["first", "p_0001", "second", "p_0001"])
        sides.nth(1).locator("a.link").first.click()
        expect(open_page.locator(".here", has_text="second")).to_be_visible()


def test_without_scripts_everything_can_be_read(browser: Browser, served: PageServer) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(served.url + PAGES["person"])
    page.locator("details.call > summary").first.click()
    page.locator("details.call a").first.click()
    expect(page.locator("main h2").last).to_have_text("The call")
    page.close()


def test_a_link_with_its_token_opens_from_another_sites_page(
    browser: Browser, outputs: Path
) -> None:
    with reader(outputs, Guard(token="secret")) as server:
        link = f"{server.url}/run/town_hall/-/rooms?token=secret"
        there = Route("/", lambda _: HTMLResponse(f'<a href="{link}">your runs</a>'))
        with PageServer(create_app([there], Guard())) as mail:
            page = browser.new_page()
            page.goto(mail.url.replace("127.0.0.1", "localhost"))  # another site than 127.0.0.1
            page.get_by_role("link", name="your runs").click()
            expect(page.locator("h1")).to_have_text("Rooms")
            assert "secret" not in page.url
            page.close()


STATES = {"paused": "paused, can be resumed", "partial": "stopped without a word", "live": "under"}


@pytest.mark.parametrize("state", sample_daily(STATES, ["partial"], "pages"))
def test_a_run_that_has_not_come_to_its_end_reads_as_well(
    open_page: Page, outputs: Path, tmp_path: Path, state: str
) -> None:
    run = Growing(outputs / "focus_group", tmp_path / "outputs" / state)
    run.begin()
    run.journal(run.journal(0) // 2)
    run.record()
    if state == "paused":
        # A pause writes the tables and removes the file of rows.
        list(run.end())
        manifest = json.loads((outputs / "focus_group" / MANIFEST).read_text("utf-8"))
        with JournalReader(run.folder / JOURNAL) as journal:
            digest = digest_of_run(journal.record_digest(), RunFolder(run.folder).plan)
        manifest |= {"outcome": "paused", "record_digest": digest}
        (run.folder / MANIFEST).write_text(json.dumps(manifest))
    elif state != "live":
        run.let_go()
    with reader(run.folder.parent) as server:
        open_page.goto(server.url)
        expect(open_page.locator(".state")).to_contain_text(STATES[state])
        open_page.get_by_role("link", name=state).click()
        expect(open_page.locator("#h-design")).to_be_visible()
        if state == "live":
            look(open_page, "run-live")
        open_page.get_by_role("link", name="Participants").click()
        expect(open_page.locator("tbody tr")).to_have_count(8)
        open_page.get_by_role("link", name="Leslie Powell").click()
        expect(open_page.locator(".said").first).to_be_visible()
        open_page.get_by_role("link", name="Rooms").click()
        open_page.get_by_role("link", name="group_001").first.click()
        expect(open_page.locator("#talk article").first).to_be_visible()
        if state == "live":
            look(open_page, "room-live")


def test_thousands_of_people_are_turned_over_and_filtered(
    open_page: Page, outputs: Path, tmp_path: Path
) -> None:
    run = tmp_path / "outputs" / "huge"
    shutil.copytree(outputs / "cross_pollination", run)
    path = run / "tables" / "participants.parquet"
    people = pl.read_parquet(path)
    many = pl.concat([people] * 556).with_row_index("n", offset=1)
    named = pl.format("p_{}", pl.col("n").cast(pl.String).str.zfill(5)).alias("participant_id")
    many.with_columns(named).drop("n").write_parquet(path)
    with reader(run.parent) as server:
        open_page.goto(f"{server.url}/run/huge/-/people")
        expect(open_page.locator("[role=status]")).to_have_text("20,016 people")
        open_page.get_by_role("link", name="Next").click()
        expect(open_page.locator("tbody th").first).to_have_text("p_00101")
        open_page.fill("#q", "p_19999")
        open_page.press("#q", "Enter")
        expect(open_page.locator("tbody tr")).to_have_count(1)
        look(open_page, "huge")
