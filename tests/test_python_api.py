"""`folkmoot.run` and `folkmoot.load`: the `Run` object, and notebook cells that are run again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import (
    Choice,
    Finding,
    Missing,
    ResultTable,
    RunFolder,
    Scope,
    Session,
    Speaker,
    Study,
    StudyConfig,
    join_texts,
)
from folkmoot.cli.app import app
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.errors import (
    BudgetReachedError,
    DriftError,
    InputError,
    ProtocolError,
    RunExistsError,
    RunInterruptedError,
    StorageError,
)
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from tests.fenced import find_blocks
from tests.killed import reopen_run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python_api.md").read_text("utf-8")


class Config(StudyConfig):
    """The number of voters."""

    people: int = 4
    run_name: str = "vote"


async def protocol(session: Session[Config]) -> None:
    async def vote(scope: Scope, number: int) -> None:
        choice = await scope.ask(
            Speaker(f"p{number}"), "Yes or no?", answer_type=Choice(("yes", "no"))
        )
        scope.record("votes", {"id": f"p{number}", "vote": str(choice)})

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


class CountingProvider(ScriptedProvider):
    """Answers yes and records the address of each call."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

        def answer(_request: ModelRequest, address: str) -> str:
            self.addresses.append(address)
            return "yes"

        super().__init__(answer)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingProvider:
    monkeypatch.chdir(tmp_path)
    return CountingProvider()


def test_a_rerun_cell_makes_no_calls_and_has_the_same_tables(model: CountingProvider) -> None:
    first = folkmoot.run(STUDY, {}, provider=model)
    journal = (first.path / "journal.sqlite").read_bytes()
    second = folkmoot.run(STUDY, {}, provider=model)
    assert len(model.addresses) == 4 and second.path == first.path
    assert all(second.tables[name].equals(first.tables[name]) for name in first.tables)
    assert second.manifest["calls"] == 4
    assert (first.path / "journal.sqlite").read_bytes() == journal


def test_a_run_object_can_be_verified_after_the_cell_was_run_again(model: CountingProvider) -> None:
    first = folkmoot.run(STUDY, {}, provider=model)
    assert first.verify().differences == []
    folkmoot.run(STUDY, {}, provider=model)
    assert first.verify().differences == []


def test_a_study_that_only_python_knows_has_a_report_and_findings(model: CountingProvider) -> None:
    run = folkmoot.run(STUDY, {}, provider=model)
    assert "4 voted." in run.report().read_text("utf-8")
    loaded = folkmoot.load(run.path, study=STUDY)
    assert loaded.findings[0].says == "4 voted." and loaded.report().exists()
    assert loaded.power() == run.power()
    with pytest.raises(InputError, match=r"no study type 'vote'.*folkmoot.load\(…, study=STUDY\)"):
        folkmoot.load(run.path).report()


def test_a_rerun_continues_a_stopped_cell(model: CountingProvider) -> None:
    with pytest.raises(BudgetReachedError):
        folkmoot.run(STUDY, {"budget_calls": 3}, provider=model)
    run = folkmoot.run(STUDY, {}, provider=model)
    assert len(model.addresses) == len(set(model.addresses)) == 4 and not run.partial


def test_a_changed_cell_keeps_the_run_and_the_error_names_a_remedy(model: CountingProvider) -> None:
    first = folkmoot.run(STUDY, {}, provider=model)
    file_contents = {
        path.name: path.read_bytes() for path in first.path.iterdir() if path.is_file()
    }
    with pytest.raises(DriftError) as error:
        folkmoot.run(STUDY, {"people": 5}, provider=model)
    assert "people" in str(error.value)
    assert 'if_exists="new"' in "".join(error.value.__notes__)
    assert "accept_changes=True is --accept-changes" in "".join(error.value.__notes__)
    assert {
        path.name: path.read_bytes() for path in first.path.iterdir() if path.is_file()
    } == file_contents
    second = folkmoot.run(STUDY, {"people": 5}, provider=model, if_exists="new")
    third = folkmoot.run(STUDY, {}, provider=model, if_exists="new")
    assert [run.path.name for run in (first, second, third)] == ["vote", "vote_2", "vote_3"]
    assert second.table("votes").height == 5 and len(model.addresses) == 4 + 5 + 4
    assert {
        path.name: path.read_bytes() for path in first.path.iterdir() if path.is_file()
    } == file_contents


def test_check_of_settings_given_in_python_names_no_file(model: CountingProvider) -> None:
    run = folkmoot.run(STUDY, {}, provider=model)
    assert "No problems in the settings (" in repr(run.check())


def test_a_change_can_be_accepted(model: CountingProvider) -> None:
    first = folkmoot.run(STUDY, {}, provider=model)
    second = folkmoot.run(STUDY, {"people": 5}, provider=model, accept_changes=True)
    assert second.path == first.path and second.table("votes").height == 5


def test_if_exists_error_refuses_only_existing_runs(model: CountingProvider) -> None:
    first = folkmoot.run(STUDY, {}, provider=model, if_exists="error")
    with pytest.raises(RunExistsError, match="if_exists"):
        folkmoot.run(STUDY, {}, provider=model, if_exists="error")
    assert len(model.addresses) == 4 == first.manifest["calls"]
    with pytest.raises(InputError, match="'resume', 'new', 'error'"):
        folkmoot.run(STUDY, {}, provider=model, if_exists="overwrite")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="if_exists"):
        folkmoot.run(STUDY, {}, provider=model, resume=True)


@pytest.mark.parametrize("if_exists", ["resume", "new", "error"])
def test_a_folder_without_a_run_is_refused(
    if_exists: Any, model: CountingProvider, tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.md").write_text("mine")
    # No value of `if_exists` would help, so the message names none.
    with pytest.raises(RunExistsError, match=r"is not the folder of a run[^_]*with out=…$"):
        folkmoot.run(STUDY, {}, provider=model, out="thesis", if_exists=if_exists)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == [
        "chapter.md"
    ] and not model.addresses


def test_run_and_load_give_the_same_object(model: CountingProvider) -> None:
    run = folkmoot.run(STUDY, {}, provider=model)
    loaded = folkmoot.load(run.path)
    assert type(loaded) is type(run) is folkmoot.Run and repr(loaded) == repr(run)
    assert repr(run) == "Run('outputs/vote': vote; tables answers, provenance, votes)"
    assert list(loaded.tables) == ["answers", "provenance", "votes"] and "votes" in loaded.tables
    assert isinstance(loaded.tables["votes"], pl.DataFrame)
    assert "votes: 4 rows" in repr(loaded.tables)
    with pytest.raises(KeyError, match="tables: answers, provenance, votes"):
        loaded.tables["voters"]
    assert loaded.codebook["votes"]["columns"]["vote"] and loaded.json("plan.json")["sealed"]


def test_findings_are_displayed_like_on_the_command_line(model: CountingProvider) -> None:
    run = folkmoot.run(STUDY, {}, provider=model)
    assert run.findings[0].key == "votes"
    assert run.findings[0].says == "4 voted."
    displayed = repr(run.findings)
    assert displayed.splitlines()[:2] == ["The vote", "4 voted."] and "100.0 %" in displayed
    assert "Finding(" not in displayed and "\x1b" not in displayed


def test_a_paused_run_is_loaded_with_partial_tables(model: CountingProvider) -> None:
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


def test_methods_and_commands_give_the_same_results(example: folkmoot.Run) -> None:
    def get_command_output(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "100"})
        assert result.exit_code == 0, result.output
        return result.stdout

    study = str(ROOT / "examples" / "cross_pollination.yaml")
    loaded = folkmoot.load(example.path)
    report_path = loaded.report()
    assert report_path == example.path / "report.html" and "<html" in report_path.read_text("utf-8")
    assert loaded.verify().is_consistent
    check = example.check()
    assert check.estimate.calls == example.manifest["calls"] and "Calls " in repr(check)
    priced_check = loaded.check("openai/gpt-4o")
    assert re.search(r"^Cost +about \$\d", repr(priced_check), re.MULTILINE), repr(priced_check)
    for power in (example.power(), loaded.power()):
        assert power[0].title in get_command_output("power", study) and power[0].title in repr(
            power
        )


CELLS = [block for block in find_blocks(PAGE, "python") if "if_exists" not in block]
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
    """Twice in one process, and the cell with the run again in another: one folder, one digest,
    no further call."""
    assert len(CELLS) > 3 and "folkmoot.run(" in CELLS[0]
    (tmp_path / "config").symlink_to(ROOT / "config")
    output_lines: list[str] = []
    for numbers in ([str(len(CELLS))] * 2, ["1"]):
        command = [sys.executable, "-c", EXECUTE, *numbers]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        output_lines += [
            line for line in process.stdout.splitlines() if line.startswith('["outputs')
        ]
    assert len(output_lines) == 3 and len(set(output_lines)) == 1
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["pilot_001"]


def test_the_page_names_every_member_and_keyword() -> None:
    members = [name for name in vars(folkmoot.Run) if not name.startswith("_")]
    assert [name for name in members if f"`{name}" not in PAGE] == []
    for name_start in ("folkmoot.load`", "folkmoot.run`", *folkmoot.run.__kwdefaults__):
        assert f"`{name_start}" in PAGE, name_start


def test_the_report_of_a_killed_run_writes_the_files_of_the_study(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    killed = shutil.copytree(run_of_small_study("town_hall"), tmp_path / "killed")
    reopen_run(killed)
    written = (killed / "levels.json").read_bytes()
    (killed / "levels.json").write_text('{"sets": 0}', "utf-8")
    run = folkmoot.load(killed)
    run.report()
    assert (killed / "levels.json").read_bytes() == written
    assert run.json("levels.json")["sets"] == 1


def test_a_report_covers_what_the_run_has_done_since_it_was_loaded(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    finished, folder = run_of_small_study("town_hall"), tmp_path / "run"
    shutil.copytree(finished, folder)
    reopen_run(folder)
    loaded = folkmoot.load(folder)
    shutil.rmtree(folder)
    shutil.copytree(finished, folder)
    assert "PARTIAL" not in loaded.report().read_text("utf-8")


def test_a_stopped_run_says_how_it_continues(tmp_path: Path) -> None:
    stopper = RunStopper()

    def stop_and_answer(_request: ModelRequest, _address: str) -> str:
        stopper()
        return "yes"

    with pytest.raises(RunInterruptedError, match="all answers are saved, and the same call"):
        folkmoot.run(
            STUDY,
            provider=ScriptedProvider(stop_and_answer),
            out=tmp_path / "run",
            stopper=stopper,
            concurrency=1,
        )


@pytest.mark.parametrize(
    "write_prompt",
    [
        lambda _scope, said: f"A neighbour says: {said}",
        lambda _scope, said: join_texts(" ", ["A neighbour says:", said]),
        lambda scope, said: scope.prompt("neighbour", said=said),
        lambda scope, said: scope.prompt("neighbours", said=[said]),
    ],
    ids=["f-string", "join_texts", "template", "list in a template"],
)
def test_a_missing_answer_never_becomes_words_in_a_prompt(
    tmp_path: Path, write_prompt: Callable[[Scope, object], str]
) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/neighbour.md").write_text("A neighbour says: {{ said }}")
    (tmp_path / "prompts/neighbours.md").write_text("Neighbours say: {{ said | join(', ') }}")
    prompts: list[str] = []
    tests_answers = False

    def decline(request: ModelRequest, _address: str) -> str:
        prompts.append(request.messages[-1].content)
        return "declined"

    async def ask_neighbours(session: Session[Config]) -> None:
        asked = session.child("vote")
        said = await asked.ask(Speaker("p1"), "Yes or no?", answer_type=Choice(("yes", "no")))
        if tests_answers and isinstance(said, Missing):
            session.record("votes", {"id": "p1", "reason": said.reason})
            return
        heard = session.child("hear")
        await heard.ask(Speaker("p2"), write_prompt(heard, said))

    study = Study("heard", "Heard", Config, ask_neighbours, prompts=tmp_path / "prompts")

    def run() -> folkmoot.Run:
        return folkmoot.run(study, provider=ScriptedProvider(decline), out=tmp_path / "run")

    with pytest.raises(ProtocolError, match=r"missing \(declined\).*isinstance\(answer, Missing\)"):
        run()
    assert prompts == ["Yes or no?"]
    tests_answers = True
    assert run().table("votes").to_dicts() == [{"id": "p1", "reason": "declined"}]
    assert prompts == ["Yes or no?"]


@pytest.mark.parametrize(
    "keywords, problem",
    [
        ({"overrides": ("peopel=6",)}, r"peopel: unknown key \(did you mean people\?\)"),
        ({"overrides": ("people=0.5",)}, "people: must be a whole number"),
        ({"budget": -1.0}, "budget_usd: must be at least 0, is -1"),
        ({"budget": float("nan")}, "budget_usd: must be a number"),
        ({"seed": "seven"}, "random_seed: must be a whole number"),
        ({"concurrency": 0}, "concurrency: must be at least 1, is 0"),
    ],
)
def test_keywords_are_checked_for_a_study_that_only_python_knows(
    model: CountingProvider, keywords: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        folkmoot.run(STUDY, {"people": 3}, provider=model, **keywords)
    assert not model.addresses


def test_overrides_change_the_settings_given_in_python(model: CountingProvider) -> None:
    settings = {"people": 3, "run_name": "many"}
    with pytest.raises(BudgetReachedError, match="2 calls"):
        folkmoot.run(
            STUDY, settings, provider=model, overrides=("people=6", "budget_calls=2"), concurrency=1
        )
    assert len(model.addresses) == 2
    run = folkmoot.run(STUDY, settings, provider=model, overrides=("people=6",))
    assert run.table("votes").height == 6 and len(model.addresses) == 6
    assert settings == {"people": 3, "run_name": "many"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": 5}, "model=: is of type int; pass the name of a model"),
        ({"limit": "2"}, "limit=: is of type str; pass a whole number"),
        ({"limit": 2.5}, "limit=: is of type float; pass a whole number"),
        ({"out": 5}, "out=: is of type int; pass the path of a folder"),
        ({"trust": "no"}, "trust=: is of type str; pass True or False"),
        ({"overrides": "random_seed=7"}, "overrides=: is of type str; pass a list of texts"),
        ({"overrides": [5]}, "overrides=: is of type list; pass a list of texts"),
        ({"settings": 5}, "settings=: is of type int; pass a dictionary"),
        ({"budget": "5"}, "budget=: is of type str; pass a number of USD"),
    ],
)
def test_an_option_of_a_wrong_kind_is_named(
    model: CountingProvider, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        folkmoot.run(STUDY, **{"settings": {}, "provider": model, **options})


@pytest.mark.parametrize("study", [None, 5])
def test_a_study_of_a_wrong_kind_is_named(study: Any) -> None:
    with pytest.raises(InputError, match="pass the path of a study file, the name of a study"):
        folkmoot.run(study)


def test_numbers_can_be_logged(model: CountingProvider) -> None:
    async def protocol(session: Session) -> None:
        session.log(5)  # type: ignore[arg-type]
        session.warn(6.5)  # type: ignore[arg-type]

    study = Study("logs", "Logs", StudyConfig, protocol)
    run = folkmoot.run(study, {}, provider=model)
    log = (run.path / "run.log").read_text()
    assert " 5\n" in log and " 6.5\n" in log


def test_settings_beside_a_study_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("study: cross_pollination\n")
    with pytest.raises(InputError, match=r"settings= goes with a study type \(for a study file"):
        folkmoot.run(path, {"language": "en"})


@pytest.mark.parametrize("name", ["", " ", "a/../b", "a\\b"])
def test_a_study_needs_a_plain_name(model: CountingProvider, name: str) -> None:
    with pytest.raises(InputError, match="name= is no name"):
        folkmoot.run(Study(name, "A", StudyConfig, protocol), {}, provider=model)


@pytest.mark.parametrize("budget", [-1.0, float("nan")])
def test_the_budget_of_a_fork_is_checked(model: CountingProvider, budget: float) -> None:
    run = folkmoot.run(STUDY, {"people": 2}, provider=model)
    address = run.table("answers")["address"][0]
    with pytest.raises(InputError, match="the budget must be at least 0"):
        folkmoot.fork(run, address, say="a", budget=budget, study=STUDY, provider=model)
