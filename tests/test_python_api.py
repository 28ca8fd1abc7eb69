"""`folkmoot.run` and `folkmoot.load`: one `Run`, and cells of a notebook that are run again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import (
    Choice,
    Finding,
    ResultTable,
    RunFolder,
    Scope,
    Session,
    Speaker,
    Study,
    StudyConfig,
)
from folkmoot.cli.app import app
from folkmoot.errors import BudgetReachedError, DriftError, InputError, RunExistsError, StorageError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from tests.fenced import blocks

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python_api.md").read_text("utf-8")


class Config(StudyConfig):
    """How many vote."""

    people: int = 4
    run_name: str = "vote"


async def protocol(session: Session[Config]) -> None:
    async def vote(scope: Scope, number: int) -> None:
        said = await scope.ask(
            Speaker(f"p{number}"), "Yes or no?", answer_type=Choice(("yes", "no"))
        )
        scope.record("votes", {"id": f"p{number}", "vote": str(said)})

    await session.map(range(session.config.people), vote)


def findings(run: RunFolder) -> list[Finding]:
    votes = run.read_table("votes")
    grid = ResultTable(
        ("votes", "yes_rate"), ((votes.height, float((votes["vote"] == "yes").mean())),)
    )
    return [Finding("votes", "The vote", f"{votes.height} voted.", grid, headline=True)]


STUDY = Study(
    "vote", "A vote", Config, protocol, findings=findings, run_id=lambda config: config.run_name
)


class Counted(ScriptedProvider):
    """Answers yes and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

        def answer(_request: ModelRequest, address: str) -> str:
            self.asked.append(address)
            return "yes"

        super().__init__(answer)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.chdir(tmp_path)
    return Counted()


def test_a_cell_that_is_run_again_asks_nothing_and_has_the_same_tables(model: Counted) -> None:
    first = folkmoot.run(STUDY, {}, provider=model)
    journal = (first.path / "journal.sqlite").read_bytes()
    again = folkmoot.run(STUDY, {}, provider=model)
    assert len(model.asked) == 4 and again.path == first.path
    assert all(again.tables[name].equals(first.tables[name]) for name in first.tables)
    assert again.manifest["calls"] == 4
    assert (first.path / "journal.sqlite").read_bytes() == journal


def test_a_cell_that_was_stopped_goes_on_when_it_is_run_again(model: Counted) -> None:
    with pytest.raises(BudgetReachedError):
        folkmoot.run(STUDY, {"budget_calls": 3}, provider=model)
    done = folkmoot.run(STUDY, {}, provider=model)
    assert len(model.asked) == len(set(model.asked)) == 4 and not done.partial


def test_a_changed_cell_loses_nothing_and_says_how_to_run_it(model: Counted) -> None:
    first = folkmoot.run(STUDY, {}, provider=model)
    kept = {p.name: p.read_bytes() for p in first.path.iterdir() if p.is_file()}
    with pytest.raises(DriftError) as error:
        folkmoot.run(STUDY, {"people": 5}, provider=model)
    assert "people" in str(error.value)
    assert 'if_exists="new"' in "".join(error.value.__notes__)
    assert {p.name: p.read_bytes() for p in first.path.iterdir() if p.is_file()} == kept
    other = folkmoot.run(STUDY, {"people": 5}, provider=model, if_exists="new")
    third = folkmoot.run(STUDY, {}, provider=model, if_exists="new")
    assert [run.path.name for run in (first, other, third)] == ["vote", "vote_2", "vote_3"]
    assert other.table("votes").height == 5 and len(model.asked) == 4 + 5 + 4
    assert {p.name: p.read_bytes() for p in first.path.iterdir() if p.is_file()} == kept


def test_error_refuses_an_existing_run_and_nothing_else(model: Counted) -> None:
    first = folkmoot.run(STUDY, {}, provider=model, if_exists="error")
    with pytest.raises(RunExistsError, match="if_exists"):
        folkmoot.run(STUDY, {}, provider=model, if_exists="error")
    assert len(model.asked) == 4 == first.manifest["calls"]
    with pytest.raises(InputError, match="'resume', 'new', 'error'"):
        folkmoot.run(STUDY, {}, provider=model, if_exists="overwrite")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="if_exists"):
        folkmoot.run(STUDY, {}, provider=model, resume=True)


@pytest.mark.parametrize("if_exists", ["resume", "new", "error"])
def test_a_folder_that_holds_no_run_is_refused(
    if_exists: Any, model: Counted, tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.md").write_text("mine")
    with pytest.raises(RunExistsError):
        folkmoot.run(STUDY, {}, provider=model, out="thesis", if_exists=if_exists)
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter.md"] and not model.asked


def test_run_and_load_give_the_same_object(model: Counted) -> None:
    made = folkmoot.run(STUDY, {}, provider=model)
    read = folkmoot.load(made.path)
    assert type(read) is type(made) is folkmoot.Run and repr(read) == repr(made)
    assert repr(made) == "Run('outputs/vote': vote; tables answers, provenance, votes)"
    assert list(read.tables) == ["answers", "provenance", "votes"] and "votes" in read.tables
    assert isinstance(read.tables["votes"], pl.DataFrame)
    assert "votes: 4 rows" in repr(read.tables)
    with pytest.raises(KeyError, match="tables: answers, provenance, votes"):
        read.tables["voters"]
    assert read.codebook["votes"]["columns"]["vote"] and read.json("plan.json")["sealed"]


def test_findings_read_as_the_command_line_prints_them(model: Counted) -> None:
    done = folkmoot.run(STUDY, {}, provider=model)
    assert done.findings[0].key == "votes"
    assert done.findings[0].says == "4 voted."
    shown = repr(done.findings)
    assert shown.splitlines()[:2] == ["The vote", "4 voted."] and "100.0 %" in shown
    assert "Finding(" not in shown and "\x1b" not in shown


def test_a_paused_run_is_loaded_with_what_it_has(model: Counted) -> None:
    with pytest.raises(BudgetReachedError):
        folkmoot.run(STUDY, {"budget_calls": 3}, provider=model)
    run = folkmoot.load("outputs/vote")
    assert run.partial.startswith("PARTIAL") and run.partial in repr(run)
    assert 0 < run.table("votes").height < 4
    with pytest.raises(StorageError):
        folkmoot.load("outputs/elsewhere")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> folkmoot.Run:
    out = tmp_path_factory.mktemp("example") / "run"
    return folkmoot.run(ROOT / "examples" / "cross_pollination.yaml", out=out, limit=8)


def test_the_methods_do_what_the_commands_do(example: folkmoot.Run) -> None:
    def said(*words: str) -> str:
        done = CliRunner().invoke(app, [*words], env={"COLUMNS": "100"})
        assert done.exit_code == 0, done.output
        return done.stdout

    study = str(ROOT / "examples" / "cross_pollination.yaml")
    loaded = folkmoot.load(example.path)
    written = loaded.report()
    assert written == example.path / "report.html" and "<html" in written.read_text("utf-8")
    assert loaded.verify().is_consistent
    check = example.check()
    assert check.estimate.calls == example.manifest["calls"] and "Calls " in repr(check)
    priced = loaded.check("openai/gpt-4o")
    assert re.search(r"^Cost +about \$\d", repr(priced), re.MULTILINE), repr(priced)
    for power in (example.power(), loaded.power()):
        assert power[0].title in said("power", study) and power[0].title in repr(power)


CELLS = [block for block in blocks(PAGE, "python") if "if_exists" not in block]
EXECUTE = """
import json, sys
from tests.fenced import run_cells
from tests.test_python_api import CELLS
for number in sys.argv[1:]:  # so many cells are executed, one "Run all" after the other
    run = run_cells(CELLS[: int(number)], "docs/python_api.md")["run"]
    print(json.dumps([str(run.path), run.manifest["calls"], run.manifest["journal_digest"],
                      repr(run.findings)]))
"""


# Daily, test_notebooks runs a notebook twice.
@pytest.mark.nightly(part="pages")
def test_the_cells_of_the_page_can_be_executed_again(tmp_path: Path) -> None:
    """Twice in one kernel, and the cell with the run once more in another: one folder, one digest,
    no further call."""
    assert len(CELLS) > 3 and "folkmoot.run(" in CELLS[0]
    (tmp_path / "config").symlink_to(ROOT / "config")
    said: list[str] = []
    for numbers in ([str(len(CELLS))] * 2, ["1"]):
        words = [sys.executable, "-c", EXECUTE, *numbers]
        found = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, cwd=tmp_path, env=found, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said += [line for line in done.stdout.splitlines() if line.startswith('["outputs')]
    assert len(said) == 3 and len(set(said)) == 1
    assert [p.name for p in (tmp_path / "outputs").iterdir()] == ["pilot_001"]


def test_the_page_names_every_member_and_keyword() -> None:
    members = [name for name in vars(folkmoot.Run) if not name.startswith("_")]
    assert [name for name in members if f"`{name}" not in PAGE] == []
    for word in ("folkmoot.load`", "folkmoot.run`", *folkmoot.run.__kwdefaults__):
        assert f"`{word}" in PAGE, word
