"""Runs of a studio that is killed and restarted. API keys reach only the model server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.studio.conftest import StudioProcess
from tests.studio.test_studio import REPORT_TITLE, check_page, page
from tests.waiting import wait_until

__all__ = ["page"]

API_KEY = "not-a-real-key-4711"
STUDY = """\
study: focus_group
category: kitchen appliances
product_concept: An oven that reads barcodes
num_personas: 3
questions_per_phase: 1
phases: [warmup, reaction]
model: openai/gpt-4o-mini
coding: {enabled: false}
controls: {negative: false, retest: false}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """A model server that answers five calls and holds all others. It requires the key."""
    plan = FaultPlan(hold_after=5, key=API_KEY)
    with ServerThread(plan, answers="respondent") as server_thread:
        monkeypatch.setenv("OPENAI_BASE_URL", server_thread.openai)
        yield server_thread


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ovens").mkdir()
    (tmp_path / "ovens" / "ovens.yaml").write_text(STUDY, "utf-8")
    return tmp_path


def enter_key(page: Page, studio: StudioProcess) -> None:
    """Enter the key on the page of keys."""
    page.goto(studio.link)
    page.get_by_role("link", name="API keys").click()
    page.get_by_label("OPENAI_API_KEY missing").fill(API_KEY)
    page.get_by_role("button", name="Keep OPENAI_API_KEY until the studio ends").click()
    expect(page.get_by_text("entered here")).to_be_visible()


# Daily, the sentence is in the estimate of `check` (tests/engine/test_estimate.py).
@pytest.mark.nightly(part="pages")
def test_the_page_of_a_study_says_what_its_cost_assumes(page: Page, folder: Path) -> None:
    with StudioProcess(folder) as studio:
        page.goto(studio.link)
        page.get_by_role("link", name="ovens.yaml").click()
        facts = page.locator(".estimate .facts")
        expect(facts).to_contain_text("Calls")
        assert "Not included: reasoning tokens" in facts.inner_text()


def release_calls(server: ServerThread) -> None:
    """Let the server answer all waiting and later calls."""
    server.model.plan = FaultPlan(key=API_KEY)


def find_process(run: Path) -> int:
    """Return the process id of a run, or 0."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run).encode() in arguments and b"run" in arguments:
            return int(folder.name)
    return 0


def kill_while_run_waits(studio: StudioProcess, server: ServerThread) -> None:
    """Kill a studio as soon as its run waits for the server."""
    wait_until(lambda: server.model.answering > 0)
    os.kill(studio.process.pid, signal.SIGKILL)
    studio.process.wait()


reads_proc = pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="processes are read in /proc"
)


# Daily, commands are killed and resumed, and every file is searched for their keys.
@reads_proc
@pytest.mark.nightly(part="pages")
def test_a_run_continues_without_its_studio_and_its_key_is_in_no_file(
    page: Page, server: ServerThread, folder: Path
) -> None:
    start_run_and_kill_studio(page, server, folder)
    with StudioProcess(folder) as second_studio:
        pause_and_resume(page, second_studio, server, folder)
        finish_run(server, folder)
        read_pages_and_report(page, second_studio)
    assert_key_in_no_file(server, folder)


# The same run, but the second studio is killed as well.
@reads_proc
@pytest.mark.nightly(part="pages")
def test_a_resumed_run_ends_without_its_studio(
    page: Page, server: ServerThread, folder: Path
) -> None:
    start_run_and_kill_studio(page, server, folder)
    with StudioProcess(folder) as second_studio:
        pause_and_resume(page, second_studio, server, folder)
        kill_while_run_waits(second_studio, server)
    # The run ends while no studio is running. The next studio shows it as finished.
    finish_run(server, folder)
    with StudioProcess(folder) as third_studio:
        enter_key(page, third_studio)
        read_pages_and_report(page, third_studio)
    assert_key_in_no_file(server, folder)


def start_run_and_kill_studio(page: Page, server: ServerThread, folder: Path) -> None:
    """Start a run in a studio and kill the studio. The run continues."""
    with StudioProcess(folder) as studio:
        page.goto(f"{studio.link}")
        page.get_by_role("link", name="API keys").click()
        check_page(page, "keys")
        enter_key(page, studio)
        page.goto(f"{studio.url}/study/ovens/ovens.yaml/-/run")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url("**/run/ovens/**", timeout=120_000)
        assert_not_in_arguments(studio.process.pid)
        kill_while_run_waits(studio, server)
    assert_not_in_arguments(find_process(folder / "outputs" / "ovens"))


def pause_and_resume(page: Page, studio: StudioProcess, server: ServerThread, folder: Path) -> None:
    """Pause and resume a run that an earlier studio started."""
    page.goto(studio.link)
    expect(page.locator(".state.running")).to_have_count(1)
    page.get_by_role("link", name="ovens", exact=True).click()
    page.get_by_role("button", name="Pause").click()
    # A pause waits for the calls in flight, which the server holds.
    server.model.plan = FaultPlan(hold_after=10, key=API_KEY)
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=120_000)
    wait_until(lambda: not find_process(folder / "outputs" / "ovens"))

    enter_key(page, studio)
    page.goto(f"{studio.url}/run/ovens/-/")
    page.get_by_role("button", name="Resume").click()
    wait_until(lambda: server.model.answering > 0)


def finish_run(server: ServerThread, folder: Path) -> None:
    """Release the waiting calls, and wait for the end of the run and of its process."""
    run = folder / "outputs" / "ovens"
    release_calls(server)
    wait_until(lambda: (run / "manifest.json").exists() and not find_process(run))


def read_pages_and_report(page: Page, studio: StudioProcess) -> None:
    """Check that the run is finished, no page shows the entered key, and there is a report."""
    page.goto(studio.link)
    expect(page.locator(".state.done")).to_have_count(1)
    for address in ("/", "/keys", "/run/ovens/-/", "/study/ovens/ovens.yaml/-/"):
        page.goto(f"{studio.url}{address}")
        assert API_KEY not in page.content(), address
    page.goto(f"{studio.url}/keys")
    page.get_by_role("button", name="Forget OPENAI_API_KEY").click()
    expect(page.get_by_text("entered here")).to_have_count(0)
    page.goto(f"{studio.url}/run/ovens/-/")
    page.get_by_role("link", name="Read the report").click(timeout=120_000)
    expect(page).to_have_title(REPORT_TITLE, timeout=120_000)


def assert_key_in_no_file(server: ServerThread, folder: Path) -> None:
    """Check that the key reached the model server and is in no file."""
    assert server.model.authorizations == {f"Bearer {API_KEY}"}
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 20
    for file in files:
        assert API_KEY.encode() not in file.read_bytes(), file


def assert_not_in_arguments(pid: int) -> None:
    assert pid
    assert API_KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
