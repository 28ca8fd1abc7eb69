"""The studio in a real browser: a study from an empty form to its report, by mouse and keyboard."""

from __future__ import annotations

import http.client
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, Route, expect

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.studio.pages import trial_size
from tests.studio.conftest import StudioProcess
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
# The page that waits for a report has another title, and a quick report is shown without it.
REPORT_TITLE = re.compile(" – Folkmoot report$")
SCREENSHOT_FOLDER = os.environ.get("FOLKMOOT_SCREENSHOTS")  # a folder for them


@pytest.fixture
def page(browser: Browser, screen_width: int) -> Iterator[Page]:
    new_page = browser.new_page(viewport={"width": screen_width, "height": 900})
    errors: list[str] = []
    new_page.on("pageerror", lambda error: errors.append(str(error)))
    new_page.on(
        "console",
        lambda message: errors.append(message.text) if "Content Security" in message.text else None,
    )
    yield new_page
    new_page.close()
    assert errors == []


def check_page(page: Page, name: str) -> None:
    """Check that the page fits at both widths, and that axe finds no violation at the width at
    which it was opened."""
    # After a click the next page may have no document or no style sheet yet.
    expect(page.locator("body")).to_be_visible()
    page.wait_for_load_state("load")
    opened_size = page.viewport_size
    assert opened_size is not None
    for width in (1280, 375):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        if SCREENSHOT_FOLDER:
            path = Path(SCREENSHOT_FOLDER) / f"studio-{name}-{width}.png"
            # To hide the caret, Playwright would add a style that the content policy forbids.
            page.screenshot(path=path, full_page=True, caret="initial")
    page.set_viewport_size(opened_size)
    axe_results = Axe().run(page)
    assert axe_results.violations_count == 0, (
        name,
        opened_size["width"],
        axe_results.generate_report(),
    )


def make_study(page: Page, studio: StudioProcess, kind: str, name: str) -> None:
    """Create a study by clicks, and wait until its fields are checked and its calls are counted."""
    make_form(page, studio, kind, name)
    expect(page.locator(".estimate .facts")).to_contain_text("Calls")


def make_form(page: Page, studio: StudioProcess, kind: str, name: str) -> None:
    """Create a study by clicks, and wait until its fields are checked."""
    page.goto(studio.link)
    page.locator(f"input[value={kind}]").check()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Make it").click()
    expect(page.locator("#status")).to_contain_text("No mistake")


def run_to_report(page: Page, name: str) -> None:
    """Start the run and follow it to its report."""
    page.get_by_role("link", name="Set a budget and run").click()
    # The form of a negotiation also has a field for the budget of the trip.
    page.wait_for_url("**/-/run")
    expect(page.get_by_label("Budget")).to_be_visible()
    check_page(page, f"{name}-budget")
    page.get_by_label("Budget").fill("")
    expect(page.get_by_label("Budget")).to_have_attribute("required", "")
    page.get_by_label("Budget").fill("1.50")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/run/**", timeout=120_000)
    # The page that showed the run from its start shows the results at its end.
    expect(page.locator("#files")).to_contain_text("codebook.json", timeout=120_000)
    page.get_by_role("link", name="Read the report").click(timeout=120_000)
    expect(page).to_have_title(REPORT_TITLE, timeout=120_000)


def download_and_check(page: Page, studio: StudioProcess, name: str) -> None:
    """Download all files of a run and check its page."""
    with page.expect_download() as download:
        page.goto(f"{studio.url}/run/{name}/-/")
        page.get_by_role("link", name="Download all as zip").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert {f"{name}/study.yaml", f"{name}/journal.sqlite"} <= set(archive.namelist())
    check_page(page, "run")


# Daily, `test_odd_values` fills in the same forms without a browser.
@pytest.mark.nightly(part="pages")
def test_a_form_writes_the_study_file_and_shows_problems(page: Page, studio: StudioProcess) -> None:
    """Fill in a study from an empty form, by clicks. `test_studio_types` follows runs to their
    reports."""
    page.goto(studio.link)
    assert "token" not in page.url
    check_page(page, "home")
    make_study(page, studio, "focus_group", "ovens")
    check_page(page, "study")

    group_size = page.get_by_label("Participants in a group")
    group_size.fill("four")
    problem = page.locator("#m-f-num_personas")
    expect(problem).to_contain_text("whole number")
    expect(page.locator("#status a")).to_have_text("Participants in a group")
    expect(group_size).to_have_attribute("aria-invalid", "true")
    check_page(page, "mistake")
    page.reload()
    expect(group_size).to_have_attribute("aria-invalid", "true")
    group_size.fill("4")
    expect(problem).to_be_empty()
    expect(group_size).not_to_have_attribute("aria-invalid", re.compile(""))
    page.get_by_label("Material to show").fill("Two lines:\nof an oven")
    page.get_by_text("Further settings").click()
    page.get_by_role("button", name="Add to Price ladder").click()
    page.get_by_label("Price ladder 1", exact=True).fill("199 dollars")
    file = studio.folder / "ovens" / "focus_group.yaml"
    wait_until(lambda: "199 dollars" in file.read_text(), file.read_text)
    written_text = file.read_text()
    assert "num_personas: 4                     # participants in a group" in written_text
    assert "stimulus_material: |\n  Two lines:\n  of an oven\n" in written_text
    page.get_by_role("button", name="Remove Price ladder 1").click()
    expect(page.locator(".estimate .facts")).to_contain_text("Calls")
    assert "199" not in file.read_text().replace("#prices: [199", "")


# Daily, studies are created with the mouse, and axe checks the pages.
@pytest.mark.nightly(part="pages")
def test_a_study_is_created_tried_and_run_by_keyboard(page: Page, studio: StudioProcess) -> None:
    page.goto(studio.link)

    def tab_to(role: str, name: str) -> None:
        target = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
        for _ in range(200):
            if target.evaluate("element => element === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"the Tab key does not lead to {name}")

    for _ in range(3):
        page.keyboard.press("Tab")  # past the links at the top to the study types
        if page.evaluate("document.activeElement.type") == "radio":
            break
    tab_to("textbox", "Name")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    expect(page.locator(".estimate .facts")).to_contain_text("Calls")
    tab_to("button", "Try it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/try_keys/**", timeout=120_000)
    expect(page.get_by_role("link", name="Read the transcripts")).to_be_visible(timeout=120_000)
    tab_to("link", "Read the transcripts")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr").first).to_be_visible()
    tab_to("link", "Overview")
    page.keyboard.press("Enter")
    tab_to("link", "Change the study")
    page.keyboard.press("Enter")
    expect(page.locator("#fields")).to_be_visible()

    # Use a smaller study, because this test is not about its run.
    file = studio.folder / "keys" / "cross_pollination.yaml"
    text, count = re.subn("(?<=participants_per_condition: )30", "4", file.read_text("utf-8"))
    assert count == 1
    file.write_text(text, "utf-8")
    tab_to("link", "Folkmoot")
    page.keyboard.press("Enter")
    study = page.locator(".studies a", has_text="keys")
    expect(study).to_have_count(1)
    tab_to("link", study.inner_text())
    page.keyboard.press("Enter")
    expect(page.locator("#fields")).to_be_visible()
    tab_to("link", "Set a budget and run")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Budget")).to_be_visible()
    tab_to("button", "Run")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/keys/**", timeout=120_000)
    expect(page.get_by_role("link", name="Read the report")).to_be_visible(timeout=120_000)
    tab_to("link", "Read the report")
    page.keyboard.press("Enter")
    expect(page).to_have_title(REPORT_TITLE, timeout=120_000)
    download_and_check(page, studio, "keys")


@pytest.mark.parametrize(
    ("example", "size"),
    [
        ("cross_pollination.yaml", (3, "participant")),
        ("focus_group.yaml", (1, "group")),
        ("negotiation.yaml", (1, "group")),
        ("town_hall.yaml", (1, "set")),
        ("public_goods.xlsx", (1, "session")),
    ],
)
def test_a_trial_has_three_participants_or_one_conversation(
    example: str, size: tuple[int, str]
) -> None:
    assert trial_size(load_study_file(EXAMPLES / example)) == size


def test_requests_without_the_token_or_from_another_site_are_refused(studio: StudioProcess) -> None:
    host = studio.url.removeprefix("http://")
    token = studio.link.partition("token=")[2]

    def send_request(
        path: str, method: str = "GET", body: str = "", **headers: str
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(host, timeout=60)
        if body:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        cookie = response.headers.get("Set-Cookie", "").partition(";")[0]
        response.read()
        connection.close()
        return response.status, cookie

    assert send_request("/")[0] == 401
    assert send_request("/?token=wrong")[0] == 401
    assert send_request("/", Host="elsewhere.example")[0] == 421
    status, cookie = send_request(f"/?token={quote(token)}")
    assert status == 303 and send_request("/", Cookie=cookie)[0] == 200
    form_body = urlencode({"kind": "focus_group", "name": "foreign", "form_token": "guessed"})
    assert send_request("/new", "POST", form_body, Cookie=cookie)[0] == 403
    assert send_request("/new", "POST", form_body)[0] == 401
    assert not (studio.folder / "foreign").exists()
    for path in ("/study/..%2F..%2Fetc%2Fpasswd/-/", "/study/nothing.yaml/-/", "/starting/..%2Fx"):
        assert send_request(path, Cookie=cookie)[0] == 404


STUDY_WITH_CHECK = """study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: 4
conditions: [simple_voting]
min_responses_for_threshold: 50
personas: {source: quota}
seats:
  count: 1
  checks:
    - question: Which town is it?
      right: Ours
      after_stage: interview
"""


# Daily, a problem of a field is shown beside it (above).
@pytest.mark.nightly(part="pages")
def test_a_problem_found_by_a_dry_run_is_shown_beside_its_field(
    page: Page, studio: StudioProcess
) -> None:
    file = studio.folder / "centre.yaml"
    file.write_text(STUDY_WITH_CHECK, "utf-8")
    page.goto(studio.link)
    page.get_by_role("link", name="centre.yaml").click()
    mistake = page.locator("#m-f-seats-checks-0-after_stage")
    expect(mistake).to_contain_text("no human is asked anything in a stage 'interview'")
    expect(mistake).to_contain_text("the stages are: initial_vote")
    expect(page.locator(".estimate")).to_contain_text("cannot run yet")
    check_page(page, "stage")
    page.get_by_label("After the stage").fill("initial_vote")
    expect(page.locator(".estimate .facts")).to_contain_text("Calls")
    expect(mistake).to_be_empty()


def test_a_button_pressed_slowly_after_typing_adds_one_row(
    page: Page, studio: StudioProcess
) -> None:
    """The field sends its value when it loses the focus, here while the button is pressed."""
    study = "study: focus_group\ncategory: ovens\nproduct_concept: An oven\nnum_personas: 3\n"
    (studio.folder / "slow.yaml").write_text(study, "utf-8")
    page.goto(studio.link)
    page.get_by_role("link", name="slow.yaml").click()
    page.get_by_text("Further settings").click()
    page.get_by_label("Participants in a group").fill("5")
    page.get_by_role("button", name="Add to Price ladder").hover()
    with page.expect_response(lambda response: response.request.method == "POST"):
        page.mouse.down()
    with page.expect_response(lambda response: "action=add" in (response.request.post_data or "")):
        page.mouse.up()
    expect(page.get_by_label("Price ladder 1", exact=True)).to_have_count(1)
    expect(page.get_by_label("Price ladder 2", exact=True)).to_have_count(0)
    expect(page.get_by_label("Participants in a group")).to_have_value("5")


def test_later_input_is_saved_in_the_rows_that_the_page_shows(
    page: Page, studio: StudioProcess
) -> None:
    """A renamed row keeps its place, and a text that became rows is drawn as rows."""
    study = "study: focus_group\ncategory: ovens\nproduct_concept: An oven\nnum_personas: 3\n"
    models = "models:\n  coder: local\n  moderator: synthetic\n"
    file = studio.folder / "rename.yaml"
    file.write_text(f"{study}{models}", "utf-8")
    page.goto(studio.link)
    page.get_by_role("link", name="rename.yaml").click()

    def enter_value(field: str, value: str, saved_text: str) -> None:
        page.locator(f"[name='{field}']").fill(value)
        wait_until(lambda: saved_text in file.read_text("utf-8"))

    page.wait_for_load_state()
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    enter_value('key ["models", 0]', "participant", "participant: ")
    enter_value('["num_personas"]', "4", "num_personas: 4\n")
    renamed = f"{study}{models}".replace("coder:", "participant:").replace(": 3", ": 4")
    assert file.read_text("utf-8") == renamed
    enter_value('["controls", "confounders"]', "[age]", "- age\n")
    enter_value('["controls", "confounders", 0]', "region", "- region\n")


def test_what_is_typed_before_the_scripts_have_started_is_saved(
    page: Page, studio: StudioProcess
) -> None:
    file = studio.folder / "early.yaml"
    file.write_text("study: focus_group\ncategory: ovens\nproduct_concept: An oven\n", "utf-8")
    page.goto(studio.link)
    late_scripts: list[Route] = []

    def hold_back(script: Route) -> None:
        late_scripts.append(script)

    page.route("**/htmx*.js", hold_back)
    page.get_by_role("link", name="early.yaml").click(no_wait_after=True)
    page.locator("""[name='["category"]']""").fill("kettles")
    assert page.evaluate("typeof htmx") == "undefined"
    for script in late_scripts:
        script.continue_()
    wait_until(lambda: bool(page.evaluate("1")) and "kettles" in file.read_text("utf-8"))


@pytest.mark.parametrize("leave", ["close", "back"])
def test_what_was_typed_last_is_saved_when_the_page_is_left(
    leave: str, browser: Browser, studio: StudioProcess
) -> None:
    file = studio.folder / "left.yaml"
    study = "study: focus_group\ncategory: ovens\nproduct_concept: An oven\nnum_personas: 3\n"
    file.write_text(study, "utf-8")
    page = browser.new_page()
    page.goto(studio.link)
    page.get_by_role("link", name="left.yaml").click()
    expect(page.locator("#status")).to_contain_text("No mistake")
    page.get_by_label("Participants in a group").fill("7")
    if leave == "back":
        page.go_back()
    page.close(run_before_unload=True)
    wait_until(lambda: "num_personas: 7\n" in file.read_text("utf-8"))


def test_a_text_that_is_not_saved_is_not_lost_without_a_question(
    page: Page, studio: StudioProcess
) -> None:
    """The page *Text* is saved by its button alone."""
    file = studio.folder / "unsaved.yaml"
    file.write_text("study: focus_group\ncategory: ovens\nproduct_concept: An oven\n", "utf-8")
    page.goto(studio.link)
    page.get_by_role("link", name="unsaved.yaml").click()
    page.get_by_role("link", name="Text", exact=True).click()
    asked: list[str] = []

    def stay_here(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay_here)
    text = page.get_by_label("Study file")
    words = text.input_value() + "# My own words\n"
    text.fill(words)
    with page.expect_event("dialog"):
        page.get_by_role("link", name="Prompts").click(no_wait_after=True)
    assert asked == ["beforeunload"]
    assert text.input_value() == words
    page.get_by_role("button", name="Save and check").click()
    wait_until(lambda: file.read_text("utf-8") == words)
    page.get_by_role("link", name="Prompts").click()
    expect(page.get_by_role("heading", name="Prompts", exact=True)).to_be_visible()
    assert asked == ["beforeunload"]


@pytest.mark.nightly(part="pages")
def test_the_focus_moves_to_the_element_that_a_button_changed(
    page: Page, studio: StudioProcess
) -> None:
    # To count the calls of a negotiation takes long, and nothing here needs them.
    make_form(page, studio, "negotiation", "moves")
    page.get_by_text("Further settings").click()

    def press_button(name: str) -> None:
        page.get_by_role("button", name=name, exact=True).focus()
        page.keyboard.press("Enter")

    press_button("Enter Your own groups as rows")
    expect(page.get_by_label("Name of the group")).to_be_focused()
    for number, role in enumerate(("parent", "child", "child"), 1):
        press_button("Add to members")
        focused = page.get_by_role("group", name=f"Row {number}").last.get_by_label("Role")
        expect(focused).to_be_focused()
        page.keyboard.type(role)
    press_button("Move members 3 up")
    expect(page.get_by_role("button", name="Move members 2 up", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    # The first row cannot move up.
    first = page.get_by_role("group", name="Row 1").last
    expect(first.get_by_label("Role")).to_be_focused()
    expect(first.get_by_label("Role")).to_have_value("child")
    press_button("Remove Your own groups 1")
    expect(page.get_by_role("button", name="Enter Your own groups as rows")).to_be_focused()


@pytest.mark.nightly(part="pages")
def test_a_file_changed_by_an_editor_is_not_overwritten(page: Page, studio: StudioProcess) -> None:
    file = studio.folder / "centre.yaml"
    file.write_text(STUDY_WITH_CHECK.partition("seats:")[0], "utf-8")
    page.goto(studio.link)
    page.get_by_role("link", name="centre.yaml").click()
    expect(page.locator(".estimate .facts")).to_be_visible()
    edited = file.read_text("utf-8").replace("condition: 4", "condition: 6") + "# by an editor\n"
    file.write_text(edited, "utf-8")
    page.get_by_label("Description").fill("Should the town open its centre?")
    status = page.locator("#status")
    expect(status).to_contain_text("changed by another program in the meantime")
    assert file.read_text("utf-8") == edited
    # Further input without a reload does not overwrite the file either.
    with page.expect_response(lambda response: response.request.method == "POST"):
        page.get_by_label("Participants per condition").fill("8")
    expect(status).to_contain_text("changed by another program in the meantime")
    assert file.read_text("utf-8") == edited
    # The text page does not overwrite it either, and a reload shows the edited text.
    page.get_by_role("link", name="Text").click()
    text = page.get_by_role("textbox", name="Study file")
    expect(text).to_have_value(re.compile("by an editor"))
    check_page(page, "text")
    file.write_text(f"{edited}# and again\n", "utf-8")
    text.fill("study: cross_pollination")
    page.get_by_role("button", name="Save and check").click()
    expect(page.locator("body")).to_contain_text("changed by another program in the meantime")
    assert file.read_text("utf-8") == f"{edited}# and again\n"
    expect(text).to_have_value("study: cross_pollination")
    check_page(page, "refused")
    page.goto(f"{studio.url}/study/centre.yaml/-/prompts")
    expect(page.get_by_label("Prompt", exact=True)).to_be_visible()
    check_page(page, "prompts")
    page.goto(f"{studio.url}/study/centre.yaml/-/")
    expect(page.get_by_label("Participants per condition")).to_have_value("6")
