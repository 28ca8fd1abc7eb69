"""A study of each type, from an empty form to its report, in a browser: by clicks, and by keys."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import openpyxl
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.studio.conftest import StudioProcess
from tests.studio.test_studio import download_and_look, look, page, run_to_report
from tests.waiting import wait_until

__all__ = ["page"]

# Each day a sheet of a workbook gets a row, and a town hall with rows and mappings is checked. A
# vote is made and comes to its report each day by keyboard.
NIGHTLY = pytest.mark.nightly(part="pages")


# Daily, test_odd_values sets cells of a workbook.
@pytest.mark.nightly(part="pages")
def test_rows_and_cells_of_a_form_are_those_of_its_workbook(
    page: Page, studio: StudioProcess
) -> None:
    """What is entered stands in the file, and what is missing or wrong is told by its label."""
    make(page, studio, "workbook", "prices")
    add(page, "Treatments")
    enter(page, "Treatment label", "plain")
    file = studio.folder / "prices" / "experiment.xlsx"
    wait_until(
        lambda: "plain" in cells_of(file, "treatments"), lambda: cells_of(file, "treatments")
    )
    status = page.locator("#status")
    expect(status).to_contain_text("to correct")
    expect(status).to_contain_text("Experiment ID")
    expect(status).to_contain_text("Number of sessions")
    enter(page, "Experiment ID", "prices")
    enter(page, "Number of sessions", "two")
    expect(status).not_to_contain_text("Experiment ID")
    expect(status).to_contain_text("Number of sessions")


def cells_of(file: Path, sheet: str) -> list[object]:
    """All values of a sheet of a workbook."""
    with closing(openpyxl.load_workbook(file)) as book:
        return [value for row in book[sheet].iter_rows(values_only=True) for value in row]


@NIGHTLY
def test_an_experiment_is_written_in_the_form_of_its_workbook(
    page: Page, studio: StudioProcess
) -> None:
    fill_in_workbook(page, studio, "prices")


@NIGHTLY
def test_an_experiment_that_was_written_in_a_form_runs(page: Page, studio: StudioProcess) -> None:
    fill_in_workbook(page, studio, "coffee")
    run_to_report(page, "coffee")
    download_and_look(page, studio, "coffee")


def fill_in_workbook(page: Page, studio: StudioProcess, name: str) -> None:
    """Fill in the workbook that `folkmoot new` writes, which is empty, until it has no mistake."""
    make(page, studio, "workbook", name)
    enter(page, "Experiment ID", "prices")
    enter(page, "Model info", "synthetic")
    enter(page, "Temperature", "1")
    enter(page, "Number of agents per session", "2")
    enter(page, "Number of sessions", "1")
    enter(page, "Maximum conversation length", "20")
    for strategy, value in (("Treatment", "simple_random"), ("Session", "random"),
                            ("Role", "random")):  # fmt: skip
        page.get_by_label(f"{strategy} assignment strategy").select_option(value)
    add(page, "Treatments")
    enter(page, "Treatment label", "plain")
    enter(page, "Treatment description", "Nothing is said about the price.")
    add(page, "Agent roles")
    role = row(page, "Row 3")
    enter(role, "Role label", "Buyer")
    enter(role, "Role description", "You buy coffee for your household.")
    add(page, "Interview prompts")
    add(page, "Interview prompts")
    tasks = page.locator("details.folded").filter(has=page.get_by_label("LLM text"))
    asked = (("context", "You buy coffee for your household."),
             ("private_question", "Would you pay 9 dollars for this coffee?"))  # fmt: skip
    for number, (kind, words) in enumerate(asked):
        task = tasks.nth(number)
        enter(task, "Task ID", str(number))
        task.get_by_label("Type", exact=True).select_option(kind)
        enter(task, "Task order", str(number))
        enter(task, "LLM text", words)
        enter(task, "Variable name", f"task_{number}")
    enter(task, "Response options", '["yes", "no"]')
    task.get_by_label("Validate response").select_option("1")
    page.get_by_role("button", name="Add a column to Agent profiles").click()
    enter(row(page, "Row 1"), "Name of column B", "age")
    for number, age in ((3, "34"), (4, "61")):
        add(page, "Agent profiles")
        enter(row(page, f"Row {number}").last, "ID", str(number))
        enter(row(page, f"Row {number}").last, "Age", age)
    enter(row(page, "Row 2").last, "Age", "How old are you?")
    expect(page.locator("#status")).to_contain_text("No mistake")
    look(page, "workbook")


# Daily, test_study_text sets rows and mappings, and test_studio fills in a form.
@pytest.mark.nightly(part="pages")
def test_a_town_hall_is_made_with_rows_and_mappings(page: Page, studio: StudioProcess) -> None:
    make_town_hall(page, studio, "streets")
    expect(page.locator(".estimate .facts")).to_contain_text("Calls")
    look(page, "town_hall")


@NIGHTLY
def test_a_town_hall_that_was_made_in_a_form_runs(page: Page, studio: StudioProcess) -> None:
    make_town_hall(page, studio, "library")
    run_to_report(page, "library")


def make_town_hall(page: Page, studio: StudioProcess, name: str) -> None:
    """Make a town hall with two levels and a contribution of its own."""
    make(page, studio, "town_hall", name)
    enter(page, "Title", "Should the library open on Sundays?")
    enter(page, "Sets of residents", "1")
    enter(page, "Rounds", "1")
    page.get_by_role("button", name="Remove levels 4").click()
    page.get_by_role("button", name="Remove levels 3").click()
    expect(page.get_by_role("button", name="Remove levels 3")).to_have_count(0)
    page.get_by_text("Further settings").click()
    enter(page, "General residents in a set", "4")
    page.get_by_role("button", name="Add to contributions").click()
    key = page.get_by_label("Name of a row of contributions")
    expect(key).to_be_focused()
    key.fill("owner")
    enter(page, "contributions new", "a fee of 40 a year")
    file = studio.folder / name / "town_hall.yaml"
    wait_until(lambda: "owner: a fee of 40 a year" in file.read_text(), file.read_text)


@NIGHTLY
def test_a_vote_is_made_with_options_of_ones_own(page: Page, studio: StudioProcess) -> None:
    make(page, studio, "cross_pollination", "funds")
    enter(page, "Description", "The school has 5,000 euros left. What should they be spent on?")
    for number, option in enumerate(("Trees", "Books", "A roof"), 1):
        enter(page, f"options {number}", option)
    page.get_by_role("button", name="Add to options").click()
    expect(page.get_by_label("options 4", exact=True)).to_be_focused()
    page.keyboard.type("A pond")
    page.get_by_role("button", name="Move options 4 up").click()
    expect(page.get_by_label("options 3", exact=True)).to_have_value("A pond")
    enter(page, "Participants per condition", "4")
    run_to_report(page, "funds")


@NIGHTLY
def test_a_negotiation_is_made_with_members_of_ones_own(page: Page, studio: StudioProcess) -> None:
    make(page, studio, "negotiation", "trip")
    for number in (5, 4, 3):
        page.get_by_role("button", name=f"Remove conditions {number}").click()
        expect(page.get_by_role("button", name=f"Remove conditions {number}")).to_have_count(0)
    enter(page, "Days", "1")
    page.get_by_text("Further settings").click()
    page.get_by_role("button", name="Enter Your own groups as rows").click()
    enter(page, "Kind of group", "family")
    for number, role in enumerate(("parent", "child"), 1):
        page.get_by_role("button", name="Add to members", exact=True).click()
        member = page.get_by_role("group", name=f"Row {number}").last
        enter(member, "Role", role)
        enter(member, "Persona", f"A {role} who likes the sea.")
    look(page, "negotiation")
    run_to_report(page, "trip")


def make(page: Page, studio: StudioProcess, kind: str, name: str) -> None:
    """Make a study by clicks. The calls of its template are not waited for."""
    page.goto(studio.link)
    page.locator(f"input[value={kind}]").check()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Make it").click()
    expect(page.locator("#fields")).to_be_visible()


def enter(where: Page | Locator, label: str, value: str) -> None:
    shown = re.compile(rf"^{re.escape(label)}( \(needed\))?$")
    where.get_by_label(shown).first.fill(value)


def add(page: Page, sheet: str) -> None:
    """Add a row to a sheet of a workbook, and wait for it."""
    rows = page.locator(".sheet").filter(has=page.locator(f"legend:text-is('{sheet}')"))
    count = rows.locator("> .row").count()
    page.get_by_role("button", name=f"Add to {sheet}", exact=True).click()
    expect(rows.locator("> .row")).to_have_count(count + 1)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=name, exact=True)
