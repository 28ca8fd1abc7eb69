"""The list of runs, comparisons and grids in the run viewer."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from typer.testing import CliRunner

from folkmoot.cli.app import app
from tests.servers.pages import PageServer
from tests.sweeps import SCREEN_WIDTHS
from tests.view.conftest import create_viewer_server

STUDY = """\
study: cross_pollination
pilot_id: funds
topic: {description: "What should the city fund?", options: [Park, Jobs, Streets]}
participants_per_condition: 4
conditions: [simple_voting, clarified_passive]
personas: {source: quota}
revote: true
model: synthetic
coding: {enabled: false}
controls: {negative: false, retest: false}
"""


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a grid of two settings and two repeats."""
    folder = tmp_path_factory.mktemp("grids")
    (folder / "funds.yaml").write_text(STUDY, "utf-8")
    command = ["run", "funds.yaml", "--repeats", "2", "--out", "outputs/orders"]
    with contextlib.chdir(folder):
        result = CliRunner().invoke(app, [*command, "--grid", "option_order=fixed,random"])
    assert result.exit_code == 0, result.output
    return folder / "outputs"


def list_run_names(text: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/run/([^"]+)/-/"', text)


def test_the_list_is_sorted_and_filtered(page_server: PageServer) -> None:
    names = list_run_names(page_server.get("/?sort=run").text)
    assert names == sorted(names) and len(names) == 5
    assert list_run_names(page_server.get("/?sort=-run").text) == names[::-1]
    assert list_run_names(page_server.get("/?q=focus+finished").text) == ["focus_group"]
    assert "No run matches" in page_server.get("/?q=nothing+like+it").text
    # The list reloads itself every two seconds, and keeps its order and filter.
    assert list_run_names(page_server.get("/live?sort=-run&q=group").text) == ["focus_group"]


def check_page(page: Page) -> None:
    """Check that the page fits at both widths, and that axe finds no violation at the width at
    which it was opened."""
    page.wait_for_load_state("load")  # after a click the style sheet is not loaded yet
    opened_size = page.viewport_size
    assert opened_size is not None
    for width in (1280, 375):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.set_viewport_size(opened_size)
    assert Axe().run(page).response["violations"] == []


@pytest.mark.nightly(part="pages")
@pytest.mark.parametrize("width", SCREEN_WIDTHS)
def test_the_list_of_runs_and_a_comparison_are_accessible(
    browser: Browser, outputs: Path, tmp_path: Path, width: int
) -> None:
    for name in ("first", "second"):
        shutil.copytree(outputs / "cross_pollination", tmp_path / "outputs" / name)
    with create_viewer_server(tmp_path / "outputs") as server:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(server.url)
        expect(page.get_by_role("link", name="first", exact=True)).to_be_visible()
        check_page(page)
        page.goto(f"{server.url}/compare?run=first&run=second")
        expect(page.get_by_text("Measures of the claims, run by run")).to_be_visible()
        check_page(page)
        page.close()


def test_selected_runs_are_compared(outputs: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        shutil.copytree(outputs / "cross_pollination", tmp_path / "outputs" / name)
    with create_viewer_server(tmp_path / "outputs") as server:
        page = server.get("/compare?run=first&run=second").text
        assert "Measures of the claims, run by run" in page and "<table>" in page
        assert "Select two to 8 runs" in server.get("/compare?run=first").text
        assert server.get("/compare?run=first&run=no").status == 404


@pytest.mark.nightly(part="pages")
@pytest.mark.parametrize("width", SCREEN_WIDTHS)
def test_a_grid_has_a_page_with_its_cells_and_a_finding(
    browser: Browser, grid: Path, width: int
) -> None:
    with create_viewer_server(grid) as server:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(server.url)
        page.get_by_role("link", name="orders", exact=True).click()
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.locator("tbody td a")).to_have_count(4)
        expect(page.locator("tbody th").first).to_have_text("option_order fixed")
        claims = page.get_by_label("Finding").locator("option").all_text_contents()
        cell_texts = page.locator("tbody td").all_text_contents()
        assert all(re.search(r"\d", text) for text in cell_texts), cell_texts
        page.get_by_label("Finding").select_option(claims[-1])
        page.get_by_role("button", name="Show").click()
        expect(page.locator("caption")).to_have_text(claims[-1])
        check_page(page)
        page.locator("tbody td a").first.click()
        expect(page.locator("h1")).to_be_visible()
        page.close()
