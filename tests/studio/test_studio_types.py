"""A study of each type, from an empty form to its report, in a browser: by mouse and keyboard."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import openpyxl
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.studio.conftest import StudioProcess
from tests.studio.test_studio import check_page, download_and_check, page, run_to_report
from tests.waiting import wait_until

__all__ = ["page"]

# Daily, other tests fill in a workbook and a town hall with rows and mappings, and test_studio
# follows a vote to its report by keyboard.
nightly_pages = pytest.mark.nightly(part="pages")


# Daily, test_odd_values sets cells of a workbook.
@pytest.mark.nightly(part="pages")
def test_a_form_edits_the_rows_and_cells_of_its_workbook(page: Page, studio: StudioProcess) -> None:
    """Entered values are saved in the file; missing and wrong ones are reported by their label."""
    create_study(page, studio, "workbook", "prices")
    add_row(page, "Treatments")
    enter_value(page, "Treatment label", "plain")
    file = studio.folder / "prices" / "experiment.xlsx"
    wait_until(
        lambda: "plain" in read_cells(file, "treatments"), lambda: read_cells(file, "treatments")
    )
    status = page.locator("#status")
    expect(status).to_contain_text("to correct")
    expect(status).to_contain_text("Experiment ID")
    expect(status).to_contain_text("Number of sessions")
    enter_value(page, "Experiment ID", "prices")
    enter_value(page, "Number of sessions", "two")
    expect(status).not_to_contain_text("Experiment ID")
    expect(status).to_contain_text("Number of sessions")


def read_cells(file: Path, sheet: str) -> list[object]:
    """Return all values of a sheet of a workbook."""
    with closing(openpyxl.load_workbook(file)) as book:
        return [value for find_row in book[sheet].iter_rows(values_only=True) for value in find_row]


@nightly_pages
def test_an_experiment_is_written_in_the_form_of_its_workbook(
    page: Page, studio: StudioProcess
) -> None:
    fill_in_workbook(page, studio, "prices")


@nightly_pages
def test_an_experiment_written_in_a_form_runs(page: Page, studio: StudioProcess) -> None:
    fill_in_workbook(page, studio, "coffee")
    run_to_report(page, "coffee")
    download_and_check(page, studio, "coffee")


def fill_in_workbook(page: Page, studio: StudioProcess, name: str) -> None:
    """Fill in the empty workbook of `folkmoot new` until it has no mistake."""
    create_study(page, studio, "workbook", name)
    enter_value(page, "Experiment ID", "prices")
    enter_value(page, "Model info", "synthetic")
    enter_value(page, "Temperature", "1")
    enter_value(page, "Number of agents per session", "2")
    enter_value(page, "Number of sessions", "1")
    enter_value(page, "Maximum conversation length", "20")
    for strategy, value in (("Treatment", "simple_random"), ("Session", "random"),
                            ("Role", "random")):  # fmt: skip
        page.get_by_label(f"{strategy} assignment strategy").select_option(value)
    add_row(page, "Treatments")
    enter_value(page, "Treatment label", "plain")
    enter_value(page, "Treatment description", "Nothing is said about the price.")
    add_row(page, "Agent roles")
    role = find_row(page, "Row 3")
    enter_value(role, "Role label", "Buyer")
    enter_value(role, "Role description", "You buy coffee for your household.")
    add_row(page, "Interview prompts")
    add_row(page, "Interview prompts")
    tasks = page.locator("details.folded").filter(has=page.get_by_label("LLM text"))
    task_texts = (("context", "You buy coffee for your household."),
             ("private_question", "Would you pay 9 dollars for this coffee?"))  # fmt: skip
    for number, (kind, task_text) in enumerate(task_texts):
        task = tasks.nth(number)
        enter_value(task, "Task ID", str(number))
        task.get_by_label("Type", exact=True).select_option(kind)
        enter_value(task, "Task order", str(number))
        enter_value(task, "LLM text", task_text)
        enter_value(task, "Variable name", f"task_{number}")
    enter_value(task, "Response options", '["yes", "no"]')
    task.get_by_label("Validate response").select_option("1")
    page.get_by_role("button", name="Add a column to Agent profiles").click()
    enter_value(find_row(page, "Row 1"), "Name of column B", "age")
    for number, age in ((3, "34"), (4, "61")):
        add_row(page, "Agent profiles")
        enter_value(find_row(page, f"Row {number}").last, "ID", str(number))
        enter_value(find_row(page, f"Row {number}").last, "Age", age)
    enter_value(find_row(page, "Row 2").last, "Age", "How old are you?")
    expect(page.locator("#status")).to_contain_text("No mistake")
    check_page(page, "workbook")


# Daily, test_study_text sets rows and mappings, and test_studio fills in a form.
@pytest.mark.nightly(part="pages")
def test_a_town_hall_is_created_with_rows_and_mappings(page: Page, studio: StudioProcess) -> None:
    create_town_hall(page, studio, "streets")
    expect(page.locator(".estimate .facts")).to_contain_text("Calls")
    check_page(page, "town_hall")


@nightly_pages
def test_a_town_hall_created_in_a_form_runs(page: Page, studio: StudioProcess) -> None:
    create_town_hall(page, studio, "library")
    run_to_report(page, "library")


def create_town_hall(page: Page, studio: StudioProcess, name: str) -> None:
    """Create a town hall with two levels and a custom contribution."""
    create_study(page, studio, "town_hall", name)
    enter_value(page, "Title", "Should the library open on Sundays?")
    enter_value(page, "Sets of residents", "1")
    enter_value(page, "Rounds", "1")
    page.get_by_role("button", name="Remove levels 4").click()
    page.get_by_role("button", name="Remove levels 3").click()
    expect(page.get_by_role("button", name="Remove levels 3")).to_have_count(0)
    page.get_by_text("Further settings").click()
    enter_value(page, "General residents in a set", "4")
    page.get_by_role("button", name="Add to contributions").click()
    key = page.get_by_label("Name of a row of contributions")
    expect(key).to_be_focused()
    key.fill("owner")
    enter_value(page, "contributions new", "a fee of 40 a year")
    file = studio.folder / name / "town_hall.yaml"
    wait_until(lambda: "owner: a fee of 40 a year" in file.read_text(), file.read_text)


@nightly_pages
def test_a_vote_is_created_with_custom_options(page: Page, studio: StudioProcess) -> None:
    create_study(page, studio, "cross_pollination", "funds")
    enter_value(
        page, "Description", "The school has 5,000 euros left. What should they be spent on?"
    )
    for number, option in enumerate(("Trees", "Books", "A roof"), 1):
        enter_value(page, f"options {number}", option)
    page.get_by_role("button", name="Add to options").click()
    expect(page.get_by_label("options 4", exact=True)).to_be_focused()
    page.keyboard.type("A pond")
    page.get_by_role("button", name="Move options 4 up").click()
    expect(page.get_by_label("options 3", exact=True)).to_have_value("A pond")
    enter_value(page, "Participants per condition", "4")
    run_to_report(page, "funds")


@nightly_pages
def test_a_negotiation_is_created_with_custom_members(page: Page, studio: StudioProcess) -> None:
    create_study(page, studio, "negotiation", "trip")
    for number in (5, 4, 3):
        page.get_by_role("button", name=f"Remove conditions {number}").click()
        expect(page.get_by_role("button", name=f"Remove conditions {number}")).to_have_count(0)
    enter_value(page, "Days", "1")
    page.get_by_text("Further settings").click()
    page.get_by_role("button", name="Enter Your own groups as rows").click()
    enter_value(page, "Kind of group", "family")
    for number, role in enumerate(("parent", "child"), 1):
        page.get_by_role("button", name="Add to members", exact=True).click()
        member = page.get_by_role("group", name=f"Row {number}").last
        enter_value(member, "Role", role)
        enter_value(member, "Persona", f"A {role} who likes the sea.")
    check_page(page, "negotiation")
    run_to_report(page, "trip")


def create_study(page: Page, studio: StudioProcess, kind: str, name: str) -> None:
    """Create a study by clicks, without waiting for the estimate of its calls."""
    page.goto(studio.link)
    page.locator(f"input[value={kind}]").check()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Make it").click()
    expect(page.locator("#fields")).to_be_visible()


def enter_value(parent: Page | Locator, label: str, value: str) -> None:
    label_pattern = re.compile(rf"^{re.escape(label)}( \(needed\))?$")
    parent.get_by_label(label_pattern).first.fill(value)


def add_row(page: Page, sheet: str) -> None:
    """Add a row to a sheet of a workbook and wait for it."""
    rows = page.locator(".sheet").filter(has=page.locator(f"legend:text-is('{sheet}')"))
    count = rows.locator("> .row").count()
    page.get_by_role("button", name=f"Add to {sheet}", exact=True).click()
    expect(rows.locator("> .row")).to_have_count(count + 1)


def find_row(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=name, exact=True)
