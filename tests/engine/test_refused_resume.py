"""A refused resume changes no file and no status of the run."""

from __future__ import annotations

import itertools
import json
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
from folkmoot.engine.calls.progress import Notice
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import BudgetReachedError, DriftError, FatalModelError, RunInterruptedError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import small_study

ANN = Speaker("p_0001", "Ann")


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != ".lock"
    }


@pytest.fixture(scope="module")
def finished_and_paused_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a finished run and a paused run beside their study file."""
    folder = tmp_path_factory.mktemp("pilots")
    study = small_study("cross_pollination", folder)
    folkmoot.run(study, model="synthetic", out=folder / "done")
    with pytest.raises(BudgetReachedError):
        budget = ("budget_calls=50",)
        folkmoot.run(study, model="synthetic", out=folder / "paused", overrides=budget)
    return folder


@pytest.fixture(params=["done", "paused"])
def run(request: pytest.FixtureRequest, finished_and_paused_run: Path, tmp_path: Path) -> Path:
    shutil.copy(finished_and_paused_run / "cross_pollination.yaml", tmp_path)
    return Path(shutil.copytree(finished_and_paused_run / request.param, tmp_path / request.param))


def find_study_path(run: Path) -> Path:
    return run.parent / "cross_pollination.yaml"


def edit_study(run: Path, old: str, new: str) -> tuple[str, ...]:
    path = find_study_path(run)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return ()


def change_prompt(run: Path) -> tuple[str, ...]:
    folder = run.parent / "prompts"
    folder.mkdir()
    (folder / "initial_vote.md").write_text("Choose one:\n{{ options | listed }}\n", "utf-8")
    return ("--set", f"prompts={folder}")


def change_journal(run: Path, statement: str) -> tuple[str, ...]:
    with closing(sqlite3.connect(run / "journal.sqlite")) as db, db:
        db.execute(statement)
    return ()


def truncate_journal(run: Path) -> tuple[str, ...]:
    path = run / "journal.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return ()


def delete_file(run: Path, name: str) -> tuple[str, ...]:
    (run / name).unlink()
    return ()


def write_file(run: Path, name: str, text: str) -> tuple[str, ...]:
    (run / name).write_text(text, "utf-8")
    return ()


CHANGE_REPLY = "UPDATE entries SET reply = 'never said' WHERE number = 7"
REFUSED: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "another question": lambda run: edit_study(run, "can be funded", "will be funded"),
    "another option": lambda run: edit_study(run, "Safer streets", "Better streets"),
    "another number of participants": lambda run: edit_study(run, ": 6", ": 7"),
    "another seed": lambda run: ("--seed", "7"),
    "another model": lambda run: ("--model", "openai/gpt-4o", "--key", "sk-none"),
    "a model without a key": lambda run: ("--model", "openai/gpt-4o"),
    "an unknown setting": lambda run: edit_study(run, "pilot_id:", "pilot_ids: x\npilot_id:"),
    "another prompt": change_prompt,
    "people in seats": lambda run: ("--seat", "p_0001"),
    "no study file": lambda run: (find_study_path(run).unlink(), ())[1],
    "a changed reply": lambda run: change_journal(run, CHANGE_REPLY),
    "an entry less": lambda run: change_journal(run, "DELETE FROM entries WHERE number = 7"),
    "a journal of another format": lambda run: change_journal(
        run, "UPDATE meta SET value = '3' WHERE key = 'format'"
    ),
    "half a journal": truncate_journal,
    "no journal": lambda run: delete_file(run, "journal.sqlite"),
    "no plan": lambda run: delete_file(run, "plan.json"),
    "half a plan": lambda run: write_file(run, "plan.json", '{"sealed": {'),
    "half a manifest": lambda run: write_file(run, "manifest.json", '{"outcome": "do'),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_resume_changes_no_file(kind: str, run: Path) -> None:
    arguments = REFUSED[kind](run)
    before = read_tree(run)
    model = () if "--model" in arguments else ("--model", "synthetic")
    command = ["run", str(find_study_path(run)), "--out", str(run), "--resume", *model, *arguments]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    assert read_tree(run) == before


def test_refused_resume_names_every_difference(run: Path) -> None:
    """A researcher who accepts a harmless change must not accept another one unseen."""
    edit_study(run, "per_condition: 6", "per_condition: 7")
    edit_study(run, "Safer streets", "Better streets")
    command = ["run", str(find_study_path(run)), "--out", str(run), "--resume"]
    output = CliRunner().invoke(app, [*command, "--model", "synthetic"]).output
    text = " ".join(output.split())
    assert "settings.participants_per_condition was 6, is now 7" in text
    assert "Safer streets" in text and "Better streets" in text


def test_changed_hash_is_named(run: Path) -> None:
    """A plan with a changed hash and the same content has no other difference to list."""
    plan = json.loads((run / "plan.json").read_bytes())
    plan["sealed"]["design"]["hash"] = "0" * 64
    (run / "plan.json").write_text(json.dumps(plan), "utf-8")
    command = ["run", str(find_study_path(run)), "--out", str(run), "--resume"]
    output = CliRunner().invoke(app, [*command, "--model", "synthetic"]).output
    text = " ".join(output.split())
    assert "the design differs from plan.json: only its hash differs, not its content." in text


def test_run_locked_by_another_process_is_unchanged(run: Path) -> None:
    before = read_tree(run)
    with FileLock(run / ".lock"):
        command = ["run", str(find_study_path(run)), "--out", str(run), "--resume"]
        assert CliRunner().invoke(app, [*command, "--model", "synthetic"]).exit_code == 2
    assert read_tree(run) == before


def test_finished_run_stays_finished_and_verified(
    finished_and_paused_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished_and_paused_run / "done", tmp_path / "done"))
    shutil.copy(finished_and_paused_run / "cross_pollination.yaml", tmp_path)
    edit_study(run, "can be funded", "will be funded")
    command = [
        "run",
        str(find_study_path(run)),
        "--out",
        str(run),
        "--resume",
        "--model",
        "synthetic",
    ]
    assert CliRunner().invoke(app, command).exit_code == 2
    assert RunFolder(run).is_finished
    shutil.copy(finished_and_paused_run / "cross_pollination.yaml", tmp_path)
    verified = CliRunner().invoke(app, ["verify", str(run)])
    assert verified.exit_code == 0, verified.output


class ThreeStageStudy:
    """A study of three stages that writes a file and has a variable last question."""

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


def answer_politely(_request: ModelRequest, address: str) -> str:
    return address


def raise_quota_error(_request: ModelRequest, _address: str) -> str:
    raise FatalModelError("the key is wrong")


def raise_interrupt(_request: ModelRequest, _address: str) -> str:
    raise KeyboardInterrupt


def test_changed_late_question_changes_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ThreeStageStudy().run(folder, answer_politely)
    before = read_tree(folder)
    with pytest.raises(DriftError):
        ThreeStageStudy("How?").run(folder, answer_politely)
    assert read_tree(folder) == before
    ThreeStageStudy("How?").run(folder, answer_politely, accept_changes=True)
    assert "How?" in (folder / "first.json").read_text("utf-8")
    assert "asked for How?" in (folder / "run.log").read_text("utf-8")
    assert RunFolder(folder).is_finished


@pytest.mark.parametrize(
    ("answer", "error"),
    [(raise_quota_error, FatalModelError), (raise_interrupt, RunInterruptedError)],
)
def test_paused_run_without_a_new_reply_is_unchanged(
    answer: Callable[[ModelRequest, str], str], error: type[BaseException], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(BudgetReachedError):
        ThreeStageStudy().run(folder, answer_politely, calls=3)
    before = read_tree(folder)
    with pytest.raises(error):
        ThreeStageStudy().run(folder, answer)
    assert read_tree(folder) == before
    ThreeStageStudy().run(folder, answer_politely)
    assert RunFolder(folder).is_finished


def run_twice(study: Study, folder: Path) -> list[str]:
    """Return the notices of the second run of a finished study."""
    notices: list[str] = []
    for _ in range(2):
        notices.clear()
        folkmoot.run(
            study,
            out=folder,
            provider=ScriptedProvider(answer_politely),
            progress=lambda event: (
                notices.append(event.message) if isinstance(event, Notice) else None
            ),
        )
    return notices


def test_tables_that_change_without_a_new_reply_are_named(tmp_path: Path) -> None:
    run_numbers = itertools.count()

    async def count_runs(session: Session) -> None:
        session.record("numbered", {"run": next(run_numbers)})
        session.record("said", {"text": str(await session.ask(ANN, "Well?"))})

    study = Study("own", "Own", StudyConfig, count_runs)
    (notice,) = run_twice(study, tmp_path / "run")
    assert "changed without a new reply (numbered): " in notice
    assert run_twice(ThreeStageStudy().study(), tmp_path / "repeatable") == ["asked for Why?"]


@pytest.mark.parametrize("key", ["software", "hashes"])
def test_a_manifest_without_a_key_is_written_anew(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "run"
    ThreeStageStudy().run(folder, answer_politely)
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({name: part for name, part in whole.items() if name != key}))
    run_twice(ThreeStageStudy().study(), folder)
    assert json.loads(path.read_text())[key].keys() == whole[key].keys()
