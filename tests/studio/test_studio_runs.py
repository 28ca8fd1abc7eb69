"""Runs that a studio started: it is killed and started again, and keys reach the model alone."""

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
from tests.studio.test_studio import look, page
from tests.waiting import wait_until

__all__ = ["page"]

SECRET = "not-a-real-key-4711"
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
    """A model server that answers five calls and then lets all wait. It wants the key."""
    plan = FaultPlan(hold_after=5, key=SECRET)
    with ServerThread(plan, answers="respondent") as started:
        monkeypatch.setenv("OPENAI_BASE_URL", started.openai)
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ovens").mkdir()
    (tmp_path / "ovens" / "ovens.yaml").write_text(STUDY, "utf-8")
    return tmp_path


def enter_key(page: Page, studio: StudioProcess) -> None:
    """Enter the key on the page of keys."""
    page.goto(studio.link)
    page.get_by_role("link", name="API keys").click()
    page.get_by_label("OPENAI_API_KEY missing").fill(SECRET)
    page.get_by_role("button", name="Keep OPENAI_API_KEY until the studio ends").click()
    expect(page.get_by_text("entered here")).to_be_visible()


def release(server: ServerThread) -> None:
    """Let all calls that wait be answered, and the later ones too."""
    server.model.plan = FaultPlan(key=SECRET)


def process_of(run: Path) -> int:
    """The number of the process that holds a run, or 0."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run).encode() in words and b"run" in words:
            return int(folder.name)
    return 0


def kill_when_asked(studio: StudioProcess, server: ServerThread) -> None:
    """Kill a studio when its run has asked the server, which lets the run wait."""
    wait_until(lambda: server.model.answering > 0)
    os.kill(studio.process.pid, signal.SIGKILL)
    studio.process.wait()


reads_proc = pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="processes are read in /proc"
)


# Daily, commands are killed and resumed, and their keys are looked for in every file.
@reads_proc
@pytest.mark.nightly(part="pages")
def test_a_run_goes_on_without_its_studio_and_its_key_is_in_no_file(
    page: Page, server: ServerThread, folder: Path
) -> None:
    start_run_and_kill_studio(page, server, folder)
    with StudioProcess(folder) as later:
        pause_and_resume(page, later, server, folder)
        let_run_end(server, folder)
        read_pages_and_report(page, later)
    assert_key_in_no_file(server, folder)


# The same run, of which the second studio is killed as well.
@reads_proc
@pytest.mark.nightly(part="pages")
def test_a_run_that_was_resumed_ends_without_its_studio(
    page: Page, server: ServerThread, folder: Path
) -> None:
    start_run_and_kill_studio(page, server, folder)
    with StudioProcess(folder) as later:
        pause_and_resume(page, later, server, folder)
        kill_when_asked(later, server)
    # The run ends while no studio is there. The next one finds it finished.
    let_run_end(server, folder)
    with StudioProcess(folder) as last:
        enter_key(page, last)
        read_pages_and_report(page, last)
    assert_key_in_no_file(server, folder)


def start_run_and_kill_studio(page: Page, server: ServerThread, folder: Path) -> None:
    """Start a run in a studio, and kill the studio. The run survives it."""
    with StudioProcess(folder) as studio:
        page.goto(f"{studio.link}")
        page.get_by_role("link", name="API keys").click()
        look(page, "keys")
        enter_key(page, studio)
        page.goto(f"{studio.url}/study/ovens/ovens.yaml/-/run")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url("**/run/ovens/**", timeout=120_000)
        assert_not_in_arguments(studio.process.pid)
        kill_when_asked(studio, server)
    assert_not_in_arguments(process_of(folder / "outputs" / "ovens"))


def pause_and_resume(page: Page, studio: StudioProcess, server: ServerThread, folder: Path) -> None:
    """Pause a run that an earlier studio started, and resume it."""
    page.goto(studio.link)
    expect(page.locator(".state.running")).to_have_count(1)
    page.get_by_role("link", name="ovens", exact=True).click()
    page.get_by_role("button", name="Pause").click()
    # Pausing waits for the calls in flight, which the server holds back.
    server.model.plan = FaultPlan(hold_after=10, key=SECRET)
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=120_000)
    wait_until(lambda: not process_of(folder / "outputs" / "ovens"))

    enter_key(page, studio)
    page.goto(f"{studio.url}/run/ovens/-/")
    page.get_by_role("button", name="Resume").click()
    wait_until(lambda: server.model.answering > 0)


def let_run_end(server: ServerThread, folder: Path) -> None:
    """Release the calls that wait, and wait for the end of the run and of its process."""
    run = folder / "outputs" / "ovens"
    release(server)
    wait_until(lambda: (run / "manifest.json").exists() and not process_of(run))


def read_pages_and_report(page: Page, studio: StudioProcess) -> None:
    """The run is finished, no page shows the key that was entered, and there is a report."""
    page.goto(studio.link)
    expect(page.locator(".state.done")).to_have_count(1)
    for address in ("/", "/keys", "/run/ovens/-/", "/study/ovens/ovens.yaml/-/"):
        page.goto(f"{studio.url}{address}")
        assert SECRET not in page.content(), address
    page.goto(f"{studio.url}/keys")
    page.get_by_role("button", name="Forget OPENAI_API_KEY").click()
    expect(page.get_by_text("entered here")).to_have_count(0)
    page.goto(f"{studio.url}/run/ovens/-/")
    page.get_by_role("link", name="Read the report").click(timeout=120_000)
    expect(page).to_have_title("ovens: the report – Folkmoot", timeout=120_000)


def assert_key_in_no_file(server: ServerThread, folder: Path) -> None:
    """The key reached the model server and stands in no file."""
    assert server.model.authorizations == {f"Bearer {SECRET}"}
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 20
    for file in files:
        assert SECRET.encode() not in file.read_bytes(), file


def assert_not_in_arguments(pid: int) -> None:
    assert pid
    assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
