"""What a dry run is for: a study that would fail is stopped before anybody is paid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from folkmoot.cli.app import app
from folkmoot.models.api_keys import _KEY_NAME
from tests.contract.small import small_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

KEY = "k" * 24
# Its second part fails after a call for each of 40 people: a paid run would pay for all of them.
OWN = """
from pathlib import Path
from folkmoot import Speaker, Study, StudyConfig

async def protocol(session):
    Path("rehearsed").touch()
    async def greet(scope, number):
        await scope.ask(Speaker(f"p{number}"), "Good day. " + "So it is. " * 2000)
    await session.map(range(40), greet)
    raise ValueError("the second part was never written")

STUDY = Study("mine", "Mine", StudyConfig, protocol)
"""


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ServerThread]:
    for name in list(os.environ):
        if _KEY_NAME.search(name) or name.endswith("_BASE_URL") or name == "DEFAULT_MODEL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    Path("mine.yaml").write_text("study: ./mine.py\nmodel: gpt-4o\n")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield server


def command(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], terminal_width=300)


@pytest.mark.parametrize(
    "words",
    [("check",), ("run",), ("run", "--preflight"), ("run", "--repeats", "2")],
    ids=" ".join,
)
def test_a_study_that_fails_in_its_dry_run_is_stopped_before_anybody_is_paid(
    words: tuple[str, ...], vendor: ServerThread
) -> None:
    shown = command(words[0], "mine.yaml", *words[1:])
    assert shown.exit_code == 2, shown.output
    assert "mine.py:10" in shown.output and "never written" in shown.output
    assert "No problems" not in shown.output and "1 problem" in shown.output
    assert vendor.model.counts["received"] == 0


def test_without_a_dry_run_the_study_is_run_as_it_is(vendor: ServerThread) -> None:
    shown = command("run", "mine.yaml", "--no-preflight")
    assert shown.exit_code == 2 and vendor.model.counts["answered"] == 40


@pytest.mark.parametrize("command_name", ["check", "run"])
def test_a_missing_key_is_told_before_anything_is_rehearsed(
    command_name: str, vendor: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    shown = command(command_name, "mine.yaml")
    assert shown.exit_code == 2 and "OPENAI_API_KEY" in shown.output
    if command_name == "run":
        assert not Path("rehearsed").exists()
    else:
        assert shown.output.index("OPENAI_API_KEY") < shown.output.index("never written")


def test_check_prints_no_mistakes_only_where_there_are_none(vendor: ServerThread) -> None:
    path = str(small_study("focus_group", Path("files")))
    shown = command("check", path, "--preview", "--trust")
    assert ("No problems" in shown.output) != ("1 problem" in shown.output), shown.output
    fine = command("check", path)
    assert fine.exit_code == 0 and "No problems" in fine.output


def test_a_study_whose_controls_are_switched_off_has_no_mistake(vendor: ServerThread) -> None:
    file = Path("off.yaml")
    text = small_study("focus_group", Path("files")).read_text("utf-8")
    kept = [line for line in text.splitlines() if not line.startswith("controls:")]
    file.write_text("\n".join([*kept, "controls: {negative: false, retest: false}"]), "utf-8")
    shown = command("check", str(file))
    assert shown.exit_code == 0 and "No problems" in shown.output, shown.output
