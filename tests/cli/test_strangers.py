"""A file from somebody else: what it would do is said, and nothing of it is done before a yes."""

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
FAR = "https://models.example.org/v1"  # a name that belongs to nobody


class Desk:
    """A user's machine: a folder with a stranger's files, and `folkmoot` in it."""

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
        """The command in this process: starting one anew takes longer than what is tested."""
        with (
            patch.dict(os.environ, self.env, clear=True),
            patch.object(sys, "argv", ["folkmoot", *words]),
            contextlib.chdir(self.folder),
        ):
            done = CliRunner().invoke(app, list(words))
        assert KEY not in done.output
        return done.exit_code, done.output

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str]:
        """The command in a process of its own, which has loaded no code yet."""
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

    def typed(self, answer: str, *words: str) -> tuple[int, str]:
        """The same with a terminal at which somebody types."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            return self.start(*words, stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "folder").mkdir()
    return Desk(tmp_path / "folder")


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(FaultPlan()) as running:
        yield running


def code(desk: Desk, more: str = "") -> Path:
    """A study of Python code that leaves a mark when it is run."""
    mark = desk.folder / "mark"
    desk.write("evil.py", f"{STUDY}\nopen({str(mark)!r}, 'a').close()\n{more}")
    desk.write("evil.yaml", "study: ./evil.py\nmodel: synthetic\n")
    return mark


@pytest.mark.parametrize("command", ["check", "run", "power"])
def test_code_is_not_run_unasked(desk: Desk, command: str) -> None:
    mark = code(desk)
    status, said = desk.folkmoot(command, "evil.yaml")
    assert status == 2, said
    assert "evil.py" in said
    assert "Python code" in said
    line = f"folkmoot {'check' if command == 'power' else command} evil.yaml --trust"
    assert line in said
    assert not mark.exists()
    assert not (desk.folder / "outputs").exists()


def test_a_yes_holds_until_the_file_is_another_one(desk: Desk) -> None:
    mark = code(desk)
    status, said = desk.folkmoot("run", "evil.yaml", "--trust")
    assert status == 0, said
    mark.unlink()
    status, said = desk.start("report", "outputs/evil")
    assert status == 0, said
    assert mark.exists()
    mark.unlink()
    code(desk, "# and something else\n")
    status, said = desk.folkmoot("run", "evil.yaml", "--out", "again")
    assert status == 2, said
    # This process has loaded the code of the run already, so it would not run it a second time.
    status, said = desk.start("report", "outputs/evil")
    assert status == 2, said
    assert not mark.exists()
    (memory,) = desk.state.rglob("trusted")
    assert memory.stat().st_mode & 0o777 == 0o600
    assert memory.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "answer", sample_daily(["y\n", "n\n", "\n", "\x04"], daily=["y\n", "\n"], part="pages")
)
def test_the_question_at_the_terminal(desk: Desk, answer: str) -> None:
    mark = code(desk)
    status, said = desk.typed(answer, "run", "evil.yaml")
    assert "Do you trust it?" in said
    assert (status, mark.exists()) == ((0, True) if answer == "y\n" else (2, False)), said


def test_a_run_folder_from_somebody_else_runs_no_code(desk: Desk) -> None:
    mark = code(desk)
    desk.folkmoot("run", "evil.yaml", "--trust")
    mark.unlink()
    next(desk.state.rglob("trusted")).unlink()
    status, said = desk.start("report", "outputs/evil")
    assert (status, mark.exists()) == (2, False), said
    assert "FOLKMOOT_TRUST=1" in said
    status, said = desk.start("show", "outputs/evil")
    assert (status, mark.exists()) == (0, False), said


def test_compiled_code_in_a_run_folder_is_code_too(desk: Desk) -> None:
    mark = code(desk)
    desk.folkmoot("run", "evil.yaml", "--trust")
    mark.unlink()
    py_compile.compile(str(desk.folder / "evil.py"), str(desk.folder / "worse.pyc"))
    kept = desk.folder / "outputs" / "evil"
    for name in ("study.yaml", "plan.json", "manifest.json"):
        path = kept / name
        path.write_text(path.read_text().replace("./evil.py", "./worse.pyc"))
    status, said = desk.start("report", "outputs/evil")
    assert (status, mark.exists()) == (2, False), said
    assert "worse.pyc" in said


def test_where_profiles_and_keys_go_is_said_by_check(desk: Desk) -> None:
    desk.write("far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {FAR}}}\n")
    status, said = desk.folkmoot("check", "far.yaml")
    assert status == 0, said
    assert f"this file sends your profiles and the key HF_TOKEN to {FAR}" in said


@pytest.mark.parametrize(
    "url", ["https://h.example/v1?key=q7Zr4", "https://ann:q7Zr4@h.example/v1"]
)
def test_a_key_in_a_url_is_refused_and_shown_nowhere(desk: Desk, url: str) -> None:
    study = f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: '%s'}}\n"
    desk.write("written.yaml", study % url)
    desk.write("typed.yaml", study % FAR)
    typed = ("run", "typed.yaml", "--set", f"endpoints.hf-inference={url}")
    for words in (("check", "written.yaml"), typed):
        status, said = desk.folkmoot(*words)
        assert status == 2, said
        assert "holds a key" in said and "environment" in said and "q7Zr4" not in said
    assert not (desk.folder / "outputs").exists()


def test_nothing_is_sent_before_a_yes(desk: Desk) -> None:
    desk.write("far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {FAR}}}\n")
    status, said = desk.folkmoot("run", "far.yaml", "--seed", "3", "--key", KEY)
    assert status == 2, said
    assert f"sends your profiles and the key given with --key to {FAR}" in said
    assert "folkmoot run far.yaml --seed 3 --trust" in said
    assert not (desk.folder / "outputs").exists()
    status, said = desk.folkmoot("run", "far.yaml", "--model", "synthetic")  # sends nothing there
    assert status == 0, said


def test_a_workbook_that_names_an_address_is_asked_about(desk: Desk) -> None:
    book = with_cell(make_workbook(), "experimental_setting!B3", "hf-inference")
    save_workbook(with_cell(book, "experimental_setting!B4", FAR), desk.folder / "book.xlsx")
    for command, expected in (("check", 0), ("run", 2)):
        status, said = desk.folkmoot(command, "book.xlsx")
        assert status == expected, said
        assert f"sends your profiles and the key HF_TOKEN to {FAR}" in said
    assert not (desk.folder / "outputs").exists()


def test_an_address_that_only_begins_like_a_typed_one_is_asked_about(
    desk: Desk, server: ServerThread
) -> None:
    desk.env["OPENAI_API_KEY"] = KEY
    near = f"{PILOT}model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
    desk.write("near.yaml", near)
    typed = f"endpoints.openai/other={server.openai}/else"
    assert desk.folkmoot("run", "near.yaml", "--set", typed)[0] == 2
    assert not server.model.log


def test_a_key_for_a_server_on_this_machine_is_asked_about_too(
    desk: Desk, server: ServerThread
) -> None:
    near = f"{PILOT}model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
    desk.write("near.yaml", near)
    status, said = desk.folkmoot("run", "near.yaml", "--out", "without")
    assert status == 0, said  # no key goes along, and nothing leaves the machine
    server.model.log.clear()
    desk.env["OPENAI_API_KEY"] = KEY
    status, said = desk.folkmoot("run", "near.yaml")
    assert status == 2, said
    assert f"the key OPENAI_API_KEY to {server.openai}" in said
    assert not server.model.log
    assert desk.folkmoot("run", "near.yaml", "--trust")[0] == 0
    assert server.model.log
    assert desk.folkmoot("run", "near.yaml", "--out", "b")[0] == 0  # remembered
    desk.write("near.yaml", f"{near}random_seed: 8\n")
    assert desk.folkmoot("run", "near.yaml", "--out", "c")[0] == 2  # another file


def test_an_address_that_the_user_typed_or_exported_is_the_users(
    desk: Desk, server: ServerThread
) -> None:
    desk.env["OPENAI_API_KEY"] = KEY
    desk.write("plain.yaml", f"{PILOT}model: openai/m\n")
    typed = f"endpoints.openai/m={server.openai}"
    status, said = desk.folkmoot("run", "plain.yaml", "--set", typed, "--out", "a")
    assert status == 0, said
    desk.env["OPENAI_BASE_URL"] = server.openai
    status, said = desk.folkmoot("run", "plain.yaml", "--out", "b")
    assert status == 0, said


def test_an_env_file_in_a_strangers_folder_moves_no_key_unasked(
    desk: Desk, server: ServerThread
) -> None:
    desk.env["OPENAI_API_KEY"] = KEY
    desk.write("plain.yaml", f"{PILOT}model: openai/m\n")
    desk.write(".env", f"OPENAI_BASE_URL={server.openai}\n")
    status, said = desk.folkmoot("run", "plain.yaml")
    assert status == 2, said
    assert f".env that sends your profiles and the key OPENAI_API_KEY to {server.openai}" in said
    assert not server.model.log


def test_a_model_file_is_not_loaded_unasked(desk: Desk) -> None:
    pytest.importorskip("xllamacpp", reason="make local installs it")
    weights = desk.folder / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    desk.write("pilot.yaml", f"{PILOT}model: local:{weights}\n")
    book = with_cell(make_workbook(), "experimental_setting!B3", f"local:{weights}")
    save_workbook(book, desk.folder / "book.xlsx")
    for file in ("pilot.yaml", "book.xlsx"):
        status, said = desk.folkmoot("check", file)
        assert f"this file loads the model file {weights}" in said
        status, said = desk.folkmoot("run", file)
        assert status == 2 and f"loads the model file {weights}" in said, said
        assert f"folkmoot run {file} --trust" in said
    assert not (desk.folder / "outputs").exists()
    asked = "loads the model file"
    assert asked not in desk.folkmoot("run", "pilot.yaml", "--trust")[1]
    assert asked not in desk.folkmoot("run", "pilot.yaml", "--out", "again")[1]  # remembered
    assert asked not in desk.folkmoot("run", "pilot.yaml", "--model", f"local:{weights}")[1]
    weights.write_bytes(b"GGUF of another content")
    assert asked in desk.folkmoot("run", "pilot.yaml", "--out", "other")[1]
    status, said = desk.folkmoot("run", "pilot.yaml", "--model", "synthetic", "--out", "third")
    assert status == 0, said


def test_a_model_file_in_a_strangers_sealed_plan_is_not_loaded_unasked(desk: Desk) -> None:
    weights = desk.folder / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    desk.write("pilot.yaml", f"{PILOT}model: synthetic\n")
    assert desk.folkmoot("run", "pilot.yaml", "--out", "run")[0] == 0
    plan = desk.folder / "run" / "plan.json"
    sealed = json.loads(plan.read_text("utf-8"))
    sealed["sealed"]["design"]["data"]["model"] = f"local:{weights}"
    plan.write_text(json.dumps(sealed), "utf-8")
    status, said = desk.folkmoot("run", "pilot.yaml", "--out", "run", "--resume")
    assert status == 2 and f"loads the model file {weights}" in said, said


def test_check_refuses_a_key_over_plain_http(desk: Desk) -> None:
    far = "http://models.example.org/v1"
    desk.write("far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {far}}}\n")
    for words in (("check", "far.yaml"), ("run", "far.yaml", "--trust")):
        status, said = desk.folkmoot(*words)
        assert status == 2, said
        assert "unencrypted" in said
    del desk.env["HF_TOKEN"]
    assert desk.folkmoot("check", "far.yaml")[0] == 0


def test_from_python_a_file_needs_trust_and_a_dictionary_is_the_callers_own(
    desk: Desk, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.folder)
    monkeypatch.delenv("FOLKMOOT_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(desk.state))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    mark = code(desk)
    with pytest.raises(InputError, match=r"trust=True"):
        folkmoot.run("evil.yaml")
    assert not mark.exists()
    moved = {"model": "openai/m", "endpoints": {"openai/m": server.openai}, "people": 1}
    assert folkmoot.run("./evil.py", moved, out="own").path.exists()
    mark.unlink()
    assert folkmoot.run("evil.yaml", out="theirs", trust=True).path.exists()
