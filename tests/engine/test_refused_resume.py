"""A resume that is refused leaves every file of the run as it was, and the run what it was."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import BudgetReachedError, DriftError, FatalModelError, RunInterruptedError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import small_study

ANN = Speaker("p_0001", "Ann")


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != ".lock"
    }


@pytest.fixture(scope="module")
def pilots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and a paused one, beside their study file."""
    folder = tmp_path_factory.mktemp("pilots")
    study = small_study("cross_pollination", folder)
    folkmoot.run(study, model="synthetic", out=folder / "done")
    with pytest.raises(BudgetReachedError):
        budget = ("budget_calls=50",)
        folkmoot.run(study, model="synthetic", out=folder / "paused", overrides=budget)
    return folder


@pytest.fixture(params=["done", "paused"])
def run(request: pytest.FixtureRequest, pilots: Path, tmp_path: Path) -> Path:
    shutil.copy(pilots / "cross_pollination.yaml", tmp_path)
    return Path(shutil.copytree(pilots / request.param, tmp_path / request.param))


def study_of(run: Path) -> Path:
    return run.parent / "cross_pollination.yaml"


def edit(run: Path, old: str, new: str) -> tuple[str, ...]:
    path = study_of(run)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return ()


def other_prompt(run: Path) -> tuple[str, ...]:
    folder = run.parent / "prompts"
    folder.mkdir()
    (folder / "initial_vote.md").write_text("Choose one:\n{{ options | listed }}\n", "utf-8")
    return ("--set", f"prompts={folder}")


def change_journal(run: Path, statement: str) -> tuple[str, ...]:
    with closing(sqlite3.connect(run / "journal.sqlite")) as db, db:
        db.execute(statement)
    return ()


def cut_journal(run: Path) -> tuple[str, ...]:
    path = run / "journal.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return ()


def remove(run: Path, name: str) -> tuple[str, ...]:
    (run / name).unlink()
    return ()


def write(run: Path, name: str, text: str) -> tuple[str, ...]:
    (run / name).write_text(text, "utf-8")
    return ()


REPLY = "UPDATE entries SET reply = 'never said' WHERE number = 7"
REFUSED: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "another question": lambda run: edit(run, "can be funded", "will be funded"),
    "another option": lambda run: edit(run, "Safer streets", "Better streets"),
    "another number of participants": lambda run: edit(run, ": 6", ": 7"),
    "another seed": lambda run: ("--seed", "7"),
    "another model": lambda run: ("--model", "openai/gpt-4o", "--key", "sk-none"),
    "a model without a key": lambda run: ("--model", "openai/gpt-4o"),
    "an unknown setting": lambda run: edit(run, "pilot_id:", "pilot_ids: x\npilot_id:"),
    "another prompt": other_prompt,
    "people in seats": lambda run: ("--seat", "p_0001"),
    "no study file": lambda run: (study_of(run).unlink(), ())[1],
    "a changed reply": lambda run: change_journal(run, REPLY),
    "an entry less": lambda run: change_journal(run, "DELETE FROM entries WHERE number = 7"),
    "a journal of another format": lambda run: change_journal(
        run, "UPDATE meta SET value = '3' WHERE key = 'format'"
    ),
    "half a journal": cut_journal,
    "no journal": lambda run: remove(run, "journal.sqlite"),
    "no plan": lambda run: remove(run, "plan.json"),
    "half a plan": lambda run: write(run, "plan.json", '{"sealed": {'),
    "half a manifest": lambda run: write(run, "manifest.json", '{"outcome": "do'),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refusal_changes_no_file(kind: str, run: Path) -> None:
    given = REFUSED[kind](run)
    before = tree(run)
    model = () if "--model" in given else ("--model", "synthetic")
    command = ["run", str(study_of(run)), "--out", str(run), "--resume", *model, *given]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    assert tree(run) == before


def test_a_run_that_another_process_holds_is_left_alone(run: Path) -> None:
    before = tree(run)
    with FileLock(run / ".lock"):
        command = ["run", str(study_of(run)), "--out", str(run), "--resume"]
        assert CliRunner().invoke(app, [*command, "--model", "synthetic"]).exit_code == 2
    assert tree(run) == before


def test_a_finished_run_stays_finished_and_verified(pilots: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(pilots / "done", tmp_path / "done"))
    shutil.copy(pilots / "cross_pollination.yaml", tmp_path)
    edit(run, "can be funded", "will be funded")
    command = ["run", str(study_of(run)), "--out", str(run), "--resume", "--model", "synthetic"]
    assert CliRunner().invoke(app, command).exit_code == 2
    assert RunFolder(run).is_finished
    shutil.copy(pilots / "cross_pollination.yaml", tmp_path)
    verified = CliRunner().invoke(app, ["verify", str(run)])
    assert verified.exit_code == 0, verified.output


class Own:
    """A study of three stages that writes a file of its own, whose last question may change."""

    def __init__(self, question: str = "Why?") -> None:
        self.question = question

    def study(self) -> Study:
        async def protocol(session: Session) -> None:
            async def ask_one(scope: Scope, number: int) -> None:
                scope.record("said", {"text": str(await scope.ask(ANN, f"Number {number}?"))})

            await session.child("first").map(range(5), ask_one)
            session.write_json("first.json", {"question": self.question})
            session.log(f"asked for {self.question}")
            await session.child("second").ask(ANN, self.question)

        return Study("own", "Own", StudyConfig, protocol)

    def run(
        self,
        folder: Path,
        answer: Callable[[ModelRequest, str], str],
        calls: int = 99,
        **more: bool,
    ) -> None:
        settings, provider = {"budget_calls": calls}, ScriptedProvider(answer)
        folkmoot.run(self.study(), settings, out=folder, provider=provider, **more)


def said(_request: ModelRequest, address: str) -> str:
    return address


def refuse(_request: ModelRequest, _address: str) -> str:
    raise FatalModelError("the key is wrong")


def stop(_request: ModelRequest, _address: str) -> str:
    raise KeyboardInterrupt


def test_a_question_that_changed_late_in_the_protocol_changes_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Own().run(folder, said)
    before = tree(folder)
    with pytest.raises(DriftError):
        Own("How?").run(folder, said)
    assert tree(folder) == before
    Own("How?").run(folder, said, accept_changes=True)
    assert "How?" in (folder / "first.json").read_text("utf-8")
    assert "asked for How?" in (folder / "run.log").read_text("utf-8")
    assert RunFolder(folder).is_finished


@pytest.mark.parametrize(
    ("answer", "error"), [(refuse, FatalModelError), (stop, RunInterruptedError)]
)
def test_a_paused_run_that_gets_no_reply_stays_as_it_was(
    answer: Callable[[ModelRequest, str], str], error: type[BaseException], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(BudgetReachedError):
        Own().run(folder, said, calls=3)
    before = tree(folder)
    with pytest.raises(error):
        Own().run(folder, answer)
    assert tree(folder) == before
    Own().run(folder, said)
    assert RunFolder(folder).is_finished
