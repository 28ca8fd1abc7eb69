"""What is made beside the server: findings, design, lights; also of runs that have not ended."""

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
from folkmoot.errors import RunPausedError
from folkmoot.kit.controls.asking import run_controls
from folkmoot.report.document.front import DesignLane, Step
from folkmoot.storage.run_folder import MANIFEST, TABLES, RunFolder
from folkmoot.view.making import make_pages
from folkmoot.view.overview import FINDINGS
from folkmoot.view.run_list import read_run_status
from folkmoot.view.site import template_environment
from tests.contract.small import small_study
from tests.servers.pages import PageServer
from tests.view.conftest import found_in, made_in, reader
from tests.view.test_pages import Page


def made(run: Path, folder: Path) -> str:
    make_pages(RunFolder(run), folder)
    return (folder / FINDINGS).read_text("utf-8")


def test_a_finished_run_has_its_findings_design_and_lights(outputs: Path, tmp_path: Path) -> None:
    text = made(outputs / "cross_pollination", tmp_path)
    assert Page(text).runs == [] and "<svg" in text
    assert "who saw what before each decision" in text and "summaries" in text
    assert "Answered by the embedded respondent" in text and "No deviation" in text
    assert (tmp_path / "report.html").stat().st_size > 10_000


# Daily, test_saved_figures saves the figures of a workbook.
@pytest.mark.nightly(part="pages")
def test_a_chart_is_saved_as_svg_and_as_png(
    outputs: Path, served: PageServer, tmp_path: Path
) -> None:
    text = made(outputs / "cross_pollination", tmp_path)
    vector, image = re.findall(r'href="figure\?name=([^"]+)"', text)[:2]
    link = "/run/cross_pollination/-/figure?name="
    got = served.get(link + vector)
    assert got.status == 200 and got.text.startswith("<svg")
    got = served.get(link + image)
    assert got.headers["Content-Type"] == "image/png" and "PNG" in got.text[:8]
    assert got.headers["Content-Disposition"].endswith(image)
    for wrong in (f"{image}x", "none.png", "../findings.html", "../../study.yaml", ""):
        assert served.get(link + wrong).status == 404


def test_the_overview_shows_the_validity_card_and_the_controls(copy: Path, tmp_path: Path) -> None:
    before = made(copy, tmp_path / "before")
    assert "Validity card" in before and "User drift" in before and 'id="h-controls"' not in before
    run_controls(RunFolder(copy), {"participants": 2}, RunOptions())
    text = made(copy, tmp_path / "after")
    assert 'id="h-controls"' in text and 'href="report#section-controls"' in text
    assert "Would the same people decide the same again?" in text
    assert 'id="section-controls"' in (tmp_path / "after" / "report.html").read_text("utf-8")


def test_of_a_run_without_tables_the_design_is_drawn_from_the_plan(
    outputs: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(outputs / "cross_pollination", run)
    shutil.rmtree(run / TABLES)
    (run / MANIFEST).unlink()
    text = made(run, tmp_path)
    assert "who is in which arm" in text and text.count("6 participants") == 6
    assert not (tmp_path / "report.html").exists()


@pytest.mark.nightly(part="pages")
def test_a_deviation_from_the_plan_is_told(outputs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(outputs / "cross_pollination", run)
    manifest = json.loads((run / MANIFEST).read_text("utf-8"))
    manifest["hashes"]["summary.json"] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    text = made(run, tmp_path)
    assert "summary.json" in text and "No deviation" not in text


@pytest.fixture
def paused(tmp_path: Path) -> Path:
    source = small_study("cross_pollination", tmp_path)
    folder = tmp_path / "outputs" / "paused"
    with pytest.raises(RunPausedError):
        folkmoot.run(source, model="synthetic", out=folder, overrides=("budget_calls=100",))
    return folder


def test_a_paused_run_is_partial_and_can_be_read(paused: Path, tmp_path: Path) -> None:
    found = read_run_status(paused, "paused")
    assert found.state == "paused" and "budget" in found.why
    text = made(paused, tmp_path)
    assert "the run is paused, figures cover 0 of 36 participants" in text
    with reader(paused.parent) as server:
        assert "paused, can be resumed" in server.get("/").text
        overview = server.get("/run/paused/-/").text
        assert "budget" in overview and "every 2s" not in overview
        people = server.get("/run/paused/-/people").text
        assert "36 people" in people and "simple_passive" in people
        person = server.get("/run/paused/-/person?id=p_0001").text
        assert "initial vote" in person
        assert "replies" in found_in(server, "paused", "park")


def test_code_of_the_users_own_that_is_not_trusted_is_not_run(
    paused: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOLKMOOT_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    touched = tmp_path / "touched"
    code = tmp_path / "evil.py"
    code.write_text(f"open({str(touched)!r}, 'w').close()\n")
    settings = (paused / "study.yaml").read_text("utf-8")
    changed = settings.replace("study: cross_pollination", f"study: {code}")
    assert changed != settings
    (paused / "study.yaml").write_text(changed)
    with reader(paused.parent) as server:
        for page in ("", "people", "rooms", "person?id=p_0001"):
            assert server.get(f"/run/paused/-/{page}").status == 200
        told = made_in(server, "/run/paused/-/findings", **{"hx-request": "true"})
        assert told.status == 200 and told.text.startswith('<p class="alarm">')
        assert "could not be computed" in told.text  # where the page shows findings
    assert not touched.exists()


def test_while_findings_are_made_the_rest_of_the_page_is_there(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def long(*_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr("folkmoot.view.overview._make_overview", long)
    monkeypatch.setenv("XDG_CACHE_HOME", str(outputs.parent / "fresh"))
    with reader(outputs) as server:
        waiting = threading.Thread(target=server.get, args=("/run/town_hall/-/findings",))
        waiting.start()
        assert begun.wait(60)
        page = server.get("/run/town_hall/-/").text
        assert "Reading the findings" in page and "Downloads" in page and "finished" in page
        assert "Making the report" in server.get("/run/town_hall/-/report").text
        for other in ("/run/town_hall/-/people", "/run/focus_group/-/", "/"):
            assert server.get(other).status == 200
    waiting.join(60)
    assert ended.wait(60)  # nothing goes on when the server has ended


def test_an_arm_in_which_nobody_is_asked_says_so() -> None:
    lanes = [
        DesignLane("C1, C2", "5 groups each", ()),
        DesignLane("C3", "", (Step("decision", ("wishes",)),)),
    ]
    macro = '{% import "_parts.html.j2" as parts %}{{ parts.lanes(lanes, true) }}'
    drawn = template_environment().from_string(macro).render(lanes=lanes)
    first, second = drawn.split("<li>")[1:]
    assert "nothing is asked of participants" in first and "wishes" not in first
    assert "nothing is asked" not in second and "wishes" in second
