"""A file of unknown origin: the command says what it would do, and asks before it does it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import py_compile
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.errors import InputError
from tests.cli.conftest import STUDY
from tests.faults import lab
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.studies.workbook.workbook_builder import make_workbook, save_workbook, with_cell
from tests.sweeps import sample_daily

# Participants only vote, because these tests are about what happens before the first call.
PILOT = f"""
{lab.PILOT.replace("participants_per_condition: 6", "participants_per_condition: 1")}
conditions: [simple_voting]
embedding_model: synthetic
"""
KEY = "key-that-must-not-be-found-0451"
FAR = "https://models.example.org/v1"  # a reserved name that has no owner


class UserMachine:
    """The machine of a user, with a folder of files of unknown origin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder.parent / "state"
        kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
        kept.pop("FOLKMOOT_TRUST")
        self.env = {
            **kept,
            "XDG_STATE_HOME": str(self.state),
            "HOME": str(folder.parent),
            "HF_TOKEN": KEY,
            "COLUMNS": "300",
        }

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def folkmoot(self, *words: str) -> tuple[int, str]:
        """Call the command in this process, because a new process takes longer than the test."""
        with (
            patch.dict(os.environ, self.env, clear=True),
            patch.object(sys, "argv", ["folkmoot", *words]),
            contextlib.chdir(self.folder),
        ):
            done = CliRunner().invoke(app, list(words))
        assert KEY not in done.output
        return done.exit_code, done.output

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str]:
        """Call the command in a new process, which has loaded no code of a study yet."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("folkmoot")), *words],
            cwd=self.folder,
            env=self.env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert KEY not in done.stdout
        return done.returncode, done.stdout

    def start_with_answer(self, answer: str, *words: str) -> tuple[int, str]:
        """Call the command in a new process with a terminal at which the user types an answer."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            return self.start(*words, stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)


@pytest.fixture
def machine(tmp_path: Path) -> UserMachine:
    (tmp_path / "folder").mkdir()
    return UserMachine(tmp_path / "folder")


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(FaultPlan()) as running:
        yield running


def write_marking_study(machine: UserMachine, more: str = "") -> Path:
    """Write a study that creates a file when its code runs. Return the path of that file."""
    mark = machine.folder / "mark"
    machine.write("evil.py", f"{STUDY}\nopen({str(mark)!r}, 'a').close()\n{more}")
    machine.write("evil.yaml", "study: ./evil.py\nmodel: synthetic\n")
    return mark


@pytest.mark.parametrize("command", ["check", "run", "power"])
def test_code_is_not_run_unasked(machine: UserMachine, command: str) -> None:
    mark = write_marking_study(machine)
    status, said = machine.folkmoot(command, "evil.yaml")
    assert status == 2, said
    assert "evil.py" in said
    assert "Python code" in said
    line = f"folkmoot {'check' if command == 'power' else command} evil.yaml --trust"
    assert line in said
    assert not mark.exists()
    assert not (machine.folder / "outputs").exists()


def test_a_yes_holds_until_the_file_is_another_one(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    status, said = machine.folkmoot("run", "evil.yaml", "--trust")
    assert status == 0, said
    mark.unlink()
    status, said = machine.start("report", "outputs/evil")
    assert status == 0, said
    assert mark.exists()
    mark.unlink()
    write_marking_study(machine, "# and something else\n")
    status, said = machine.folkmoot("run", "evil.yaml", "--out", "again")
    assert status == 2, said
    # This process has loaded the code of the run already, so it would not run it a second time.
    status, said = machine.start("report", "outputs/evil")
    assert status == 2, said
    assert not mark.exists()
    (memory,) = machine.state.rglob("trusted")
    assert memory.stat().st_mode & 0o777 == 0o600
    assert memory.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "answer", sample_daily(["y\n", "n\n", "\n", "\x04"], daily=["y\n", "\n"], part="pages")
)
def test_the_question_at_the_terminal(machine: UserMachine, answer: str) -> None:
    mark = write_marking_study(machine)
    status, said = machine.start_with_answer(answer, "run", "evil.yaml")
    assert "Do you trust it?" in said
    assert (status, mark.exists()) == ((0, True) if answer == "y\n" else (2, False)), said


def test_a_run_folder_from_somebody_else_runs_no_code(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    machine.folkmoot("run", "evil.yaml", "--trust")
    mark.unlink()
    next(machine.state.rglob("trusted")).unlink()
    status, said = machine.start("report", "outputs/evil")
    assert (status, mark.exists()) == (2, False), said
    assert "FOLKMOOT_TRUST=1" in said
    status, said = machine.start("show", "outputs/evil")
    assert (status, mark.exists()) == (0, False), said


def test_compiled_code_in_a_run_folder_is_code_too(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    machine.folkmoot("run", "evil.yaml", "--trust")
    mark.unlink()
    py_compile.compile(str(machine.folder / "evil.py"), str(machine.folder / "worse.pyc"))
    kept = machine.folder / "outputs" / "evil"
    for name in ("study.yaml", "plan.json", "manifest.json"):
        path = kept / name
        path.write_text(path.read_text().replace("./evil.py", "./worse.pyc"))
    status, said = machine.start("report", "outputs/evil")
    assert (status, mark.exists()) == (2, False), said
    assert "worse.pyc" in said


def test_where_profiles_and_keys_go_is_said_by_check(machine: UserMachine) -> None:
    machine.write("far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {FAR}}}\n")
    status, said = machine.folkmoot("check", "far.yaml")
    assert status == 0, said
    assert f"this file sends your profiles and the key HF_TOKEN to {FAR}" in said


@pytest.mark.parametrize(
    "url", ["https://h.example/v1?key=q7Zr4", "https://ann:q7Zr4@h.example/v1"]
)
def test_a_key_in_a_url_is_refused_and_shown_nowhere(machine: UserMachine, url: str) -> None:
    study = f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: '%s'}}\n"
    machine.write("written.yaml", study % url)
    machine.write("typed.yaml", study % FAR)
    typed = ("run", "typed.yaml", "--set", f"endpoints.hf-inference={url}")
    for words in (("check", "written.yaml"), typed):
        status, said = machine.folkmoot(*words)
        assert status == 2, said
        assert "holds a key" in said and "environment" in said and "q7Zr4" not in said
    assert not (machine.folder / "outputs").exists()


def test_nothing_is_sent_before_a_yes(machine: UserMachine) -> None:
    machine.write("far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {FAR}}}\n")
    status, said = machine.folkmoot("run", "far.yaml", "--seed", "3", "--key", KEY)
    assert status == 2, said
    assert f"sends your profiles and the key given with --key to {FAR}" in said
    assert "folkmoot run far.yaml --seed 3 --trust" in said
    assert not (machine.folder / "outputs").exists()
    status, said = machine.folkmoot(
        "run", "far.yaml", "--model", "synthetic"
    )  # sends nothing there
    assert status == 0, said


def test_a_workbook_that_names_an_address_is_asked_about(machine: UserMachine) -> None:
    book = with_cell(make_workbook(), "experimental_setting!B3", "hf-inference")
    save_workbook(with_cell(book, "experimental_setting!B4", FAR), machine.folder / "book.xlsx")
    for command, expected in (("check", 0), ("run", 2)):
        status, said = machine.folkmoot(command, "book.xlsx")
        assert status == expected, said
        assert f"sends your profiles and the key HF_TOKEN to {FAR}" in said
    assert not (machine.folder / "outputs").exists()


def test_an_address_that_only_begins_like_a_typed_one_is_asked_about(
    machine: UserMachine, server: ServerThread
) -> None:
    machine.env["OPENAI_API_KEY"] = KEY
    near = f"{PILOT}model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
    machine.write("near.yaml", near)
    typed = f"endpoints.openai/other={server.openai}/else"
    assert machine.folkmoot("run", "near.yaml", "--set", typed)[0] == 2
    assert not server.model.log


def test_a_key_for_a_server_on_this_machine_is_asked_about_too(
    machine: UserMachine, server: ServerThread
) -> None:
    near = f"{PILOT}model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
    machine.write("near.yaml", near)
    status, said = machine.folkmoot("run", "near.yaml", "--out", "without")
    assert status == 0, said  # no key goes along, and nothing leaves the machine
    server.model.log.clear()
    machine.env["OPENAI_API_KEY"] = KEY
    status, said = machine.folkmoot("run", "near.yaml")
    assert status == 2, said
    assert f"the key OPENAI_API_KEY to {server.openai}" in said
    assert not server.model.log
    assert machine.folkmoot("run", "near.yaml", "--trust")[0] == 0
    assert server.model.log
    assert machine.folkmoot("run", "near.yaml", "--out", "b")[0] == 0  # remembered
    machine.write("near.yaml", f"{near}random_seed: 8\n")
    assert machine.folkmoot("run", "near.yaml", "--out", "c")[0] == 2  # another file


def test_an_address_that_the_user_typed_or_exported_is_the_users(
    machine: UserMachine, server: ServerThread
) -> None:
    machine.env["OPENAI_API_KEY"] = KEY
    machine.write("plain.yaml", f"{PILOT}model: openai/m\n")
    typed = f"endpoints.openai/m={server.openai}"
    status, said = machine.folkmoot("run", "plain.yaml", "--set", typed, "--out", "a")
    assert status == 0, said
    machine.env["OPENAI_BASE_URL"] = server.openai
    status, said = machine.folkmoot("run", "plain.yaml", "--out", "b")
    assert status == 0, said


def test_an_env_file_in_a_strangers_folder_moves_no_key_unasked(
    machine: UserMachine, server: ServerThread
) -> None:
    machine.env["OPENAI_API_KEY"] = KEY
    machine.write("plain.yaml", f"{PILOT}model: openai/m\n")
    machine.write(".env", f"OPENAI_BASE_URL={server.openai}\n")
    status, said = machine.folkmoot("run", "plain.yaml")
    assert status == 2, said
    assert f".env that sends your profiles and the key OPENAI_API_KEY to {server.openai}" in said
    assert not server.model.log


def test_a_model_file_is_not_loaded_unasked(machine: UserMachine) -> None:
    pytest.importorskip("xllamacpp", reason="make local installs it")
    weights = machine.folder / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    machine.write("pilot.yaml", f"{PILOT}model: local:{weights}\n")
    book = with_cell(make_workbook(), "experimental_setting!B3", f"local:{weights}")
    save_workbook(book, machine.folder / "book.xlsx")
    for file in ("pilot.yaml", "book.xlsx"):
        status, said = machine.folkmoot("check", file)
        assert f"this file loads the model file {weights}" in said
        status, said = machine.folkmoot("run", file)
        assert status == 2 and f"loads the model file {weights}" in said, said
        assert f"folkmoot run {file} --trust" in said
    assert not (machine.folder / "outputs").exists()
    asked = "loads the model file"
    assert asked not in machine.folkmoot("run", "pilot.yaml", "--trust")[1]
    assert asked not in machine.folkmoot("run", "pilot.yaml", "--out", "again")[1]  # remembered
    assert asked not in machine.folkmoot("run", "pilot.yaml", "--model", f"local:{weights}")[1]
    weights.write_bytes(b"GGUF of another content")
    assert asked in machine.folkmoot("run", "pilot.yaml", "--out", "other")[1]
    status, said = machine.folkmoot("run", "pilot.yaml", "--model", "synthetic", "--out", "third")
    assert status == 0, said


def test_a_model_file_in_a_strangers_sealed_plan_is_not_loaded_unasked(
    machine: UserMachine,
) -> None:
    weights = machine.folder / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    machine.write("pilot.yaml", f"{PILOT}model: synthetic\n")
    assert machine.folkmoot("run", "pilot.yaml", "--out", "run")[0] == 0
    plan = machine.folder / "run" / "plan.json"
    sealed = json.loads(plan.read_text("utf-8"))
    sealed["sealed"]["design"]["data"]["model"] = f"local:{weights}"
    plan.write_text(json.dumps(sealed), "utf-8")
    status, said = machine.folkmoot("run", "pilot.yaml", "--out", "run", "--resume")
    assert status == 2 and f"loads the model file {weights}" in said, said


def test_check_refuses_a_key_over_plain_http(machine: UserMachine) -> None:
    far = "http://models.example.org/v1"
    machine.write("far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {far}}}\n")
    for words in (("check", "far.yaml"), ("run", "far.yaml", "--trust")):
        status, said = machine.folkmoot(*words)
        assert status == 2, said
        assert "unencrypted" in said
    del machine.env["HF_TOKEN"]
    assert machine.folkmoot("check", "far.yaml")[0] == 0


def test_from_python_a_file_needs_trust_and_a_dictionary_is_the_callers_own(
    machine: UserMachine, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.folder)
    monkeypatch.delenv("FOLKMOOT_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(machine.state))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    mark = write_marking_study(machine)
    with pytest.raises(InputError, match=r"trust=True"):
        folkmoot.run("evil.yaml")
    assert not mark.exists()
    moved = {"model": "openai/m", "endpoints": {"openai/m": server.openai}, "people": 1}
    assert folkmoot.run("./evil.py", moved, out="own").path.exists()
    mark.unlink()
    assert folkmoot.run("evil.yaml", out="theirs", trust=True).path.exists()
