"""Pages that are computed outside the server: findings and design, also of unfinished runs."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.session.run_totals import describe_later_spending
from folkmoot.errors import RunPausedError
from folkmoot.kit.controls.asking import run_controls
from folkmoot.report.document.front import NOTHING_ASKED, DesignLane, Step
from folkmoot.storage.run_folder import MANIFEST, TABLES, RunFolder
from folkmoot.view.making import make_pages
from folkmoot.view.overview import FINDINGS
from folkmoot.view.run_list import read_run_status
from folkmoot.view.site import template_environment
from tests.contract.small import small_study
from tests.servers.pages import PageServer
from tests.view.conftest import (
    create_viewer_server,
    wait_for_computed_page,
    wait_for_search_results,
)
from tests.view.test_pages import Page


def make_findings_page(run: Path, folder: Path) -> str:
    make_pages(RunFolder(run), folder)
    return (folder / FINDINGS).read_text("utf-8")


def test_a_finished_run_has_findings_design_and_status_marks(outputs: Path, tmp_path: Path) -> None:
    text = make_findings_page(outputs / "cross_pollination", tmp_path)
    assert Page(text).executable_parts == [] and "<svg" in text
    assert "who saw what before each decision" in text and "summaries" in text
    assert "Answered by the embedded respondent" in text and "No deviation" in text
    assert (tmp_path / "report.html").stat().st_size > 10_000


# Daily, test_saved_figures saves the figures of a workbook.
@pytest.mark.nightly(part="pages")
def test_a_chart_is_saved_as_svg_and_as_png(
    outputs: Path, page_server: PageServer, tmp_path: Path
) -> None:
    text = make_findings_page(outputs / "cross_pollination", tmp_path)
    vector, image = re.findall(r'href="figure\?name=([^"]+)"', text)[:2]
    link = "/run/cross_pollination/-/figure?name="
    response = page_server.get(link + vector)
    assert response.status == 200 and response.text.startswith("<svg")
    response = page_server.get(link + image)
    assert response.headers["Content-Type"] == "image/png" and "PNG" in response.text[:8]
    assert response.headers["Content-Disposition"].endswith(image)
    for wrong_name in (f"{image}x", "none.png", "../findings.html", "../../study.yaml", ""):
        assert page_server.get(link + wrong_name).status == 404


def test_the_overview_shows_the_validity_card_and_the_controls(
    run_copy: Path, tmp_path: Path
) -> None:
    before = make_findings_page(run_copy, tmp_path / "before")
    assert "Validity card" in before and "User drift" in before and 'id="h-controls"' not in before
    run_controls(RunFolder(run_copy), {"participants": 2}, RunOptions())
    text = make_findings_page(run_copy, tmp_path / "after")
    assert 'id="h-controls"' in text and 'href="report#section-controls"' in text
    assert "Would the same people decide the same again?" in text
    assert 'id="section-controls"' in (tmp_path / "after" / "report.html").read_text("utf-8")


def test_the_page_of_a_run_tells_calls_and_cost_of_its_controls(
    run_copy: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "viewed" / "run"
    folder.parent.mkdir()
    run_copy.rename(folder)
    with create_viewer_server(folder.parent) as server:
        assert "Controls and codings of the run" not in server.get("/run/run/-/").text
        run_controls(RunFolder(folder), {"participants": 2}, RunOptions())
        assert describe_later_spending(folder) in server.get("/run/run/-/").text


def test_the_design_of_a_run_without_tables_is_drawn_from_the_plan(
    outputs: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(outputs / "cross_pollination", run)
    shutil.rmtree(run / TABLES)
    (run / MANIFEST).unlink()
    text = make_findings_page(run, tmp_path)
    assert "who is in which arm" in text and text.count("6 participants") == 6
    assert not (tmp_path / "report.html").exists()


@pytest.mark.nightly(part="pages")
def test_a_deviation_from_the_plan_is_shown(outputs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(outputs / "cross_pollination", run)
    manifest = json.loads((run / MANIFEST).read_text("utf-8"))
    manifest["hashes"]["summary.json"] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    text = make_findings_page(run, tmp_path)
    assert "summary.json" in text and "No deviation" not in text


@pytest.fixture
def paused_run(tmp_path: Path) -> Path:
    source = small_study("cross_pollination", tmp_path)
    folder = tmp_path / "outputs" / "paused"
    with pytest.raises(RunPausedError):
        folkmoot.run(source, model="synthetic", out=folder, overrides=("budget_calls=100",))
    return folder


def test_a_paused_run_is_partial_and_can_be_read(paused_run: Path, tmp_path: Path) -> None:
    status = read_run_status(paused_run, "paused")
    assert status.state == "paused" and "budget" in status.why
    text = make_findings_page(paused_run, tmp_path)
    assert "the run is paused, figures cover 0 of 36 participants" in text
    with create_viewer_server(paused_run.parent) as server:
        assert "paused, can be resumed" in server.get("/").text
        overview = server.get("/run/paused/-/").text
        assert "budget" in overview and "every 2s" not in overview
        people_page = server.get("/run/paused/-/people").text
        assert "36 people" in people_page and "simple_passive" in people_page
        person_page = server.get("/run/paused/-/person?id=p_0001").text
        assert "initial vote" in person_page
        assert "replies" in wait_for_search_results(server, "paused", "park")


def test_untrusted_study_code_is_not_run(
    paused_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOLKMOOT_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    marker_file = tmp_path / "touched"
    code_file = tmp_path / "evil.py"
    code_file.write_text(f"open({str(marker_file)!r}, 'w').close()\n")
    settings = (paused_run / "study.yaml").read_text("utf-8")
    changed_settings = settings.replace("study: cross_pollination", f"study: {code_file}")
    assert changed_settings != settings
    (paused_run / "study.yaml").write_text(changed_settings)
    with create_viewer_server(paused_run.parent) as server:
        for page in ("", "people", "rooms", "person?id=p_0001"):
            assert server.get(f"/run/paused/-/{page}").status == 200
        response = wait_for_computed_page(
            server, "/run/paused/-/findings", **{"hx-request": "true"}
        )
        assert response.status == 200 and response.text.startswith('<p class="alarm">')
        assert "could not be computed" in response.text  # shown in place of the findings
    assert not marker_file.exists()


def test_the_rest_of_the_page_is_shown_while_findings_are_computed(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait_forever(*_: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr("folkmoot.view.overview._make_overview", wait_forever)
    monkeypatch.setenv("XDG_CACHE_HOME", str(outputs.parent / "fresh"))
    with create_viewer_server(outputs) as server:
        waiting_thread = threading.Thread(target=server.get, args=("/run/town_hall/-/findings",))
        waiting_thread.start()
        assert started.wait(60)
        page = server.get("/run/town_hall/-/").text
        assert "Reading the findings" in page and "Downloads" in page and "finished" in page
        assert "Making the report" in server.get("/run/town_hall/-/report").text
        for other_page in ("/run/town_hall/-/people", "/run/focus_group/-/", "/"):
            assert server.get(other_page).status == 200
    waiting_thread.join(60)
    assert cancelled.wait(60)  # the computation ends with the server


def test_a_condition_without_questions_is_labelled() -> None:
    lanes = [
        DesignLane("C1, C2", "5 groups each", (), NOTHING_ASKED),
        DesignLane("C3", "", (Step("decision", ("wishes",)),), NOTHING_ASKED),
    ]
    macro = '{% import "_parts.html.j2" as parts %}{{ parts.lanes(lanes, true) }}'
    rendered = template_environment().from_string(macro).render(lanes=lanes)
    first, second = rendered.split("<li>")[1:]
    assert "nothing is asked of participants" in first and "wishes" not in first
    assert "nothing is asked" not in second and "wishes" in second
