"""Files of unknown origin: commands ask before they run code or send data."""

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
from typer.main import get_command
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.cli.study_files import TRUSTING_COMMANDS
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
SECRET_KEY = "key-that-must-not-be-found-0451"
REMOTE_URL = "https://models.example.org/v1"  # a reserved name that has no owner


class UserMachine:
    """The machine of a user, with a folder of files of unknown origin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder.parent / "state"
        environment = {
            variable: value
            for variable, value in os.environ.items()
            if not variable.endswith(("_API_KEY", "_BASE_URL"))
        }
        environment.pop("FOLKMOOT_TRUST")
        self.env = {
            **environment,
            "XDG_STATE_HOME": str(self.state),
            "HOME": str(folder.parent),
            "HF_TOKEN": SECRET_KEY,
            "COLUMNS": "300",
        }

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run_folkmoot(self, *arguments: str) -> tuple[int, str]:
        """Call the command in this process, because a new process takes longer than the test."""
        with (
            patch.dict(os.environ, self.env, clear=True),
            patch.object(sys, "argv", ["folkmoot", *arguments]),
            contextlib.chdir(self.folder),
        ):
            process = CliRunner().invoke(app, list(arguments))
        assert SECRET_KEY not in process.output
        return process.exit_code, process.output

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str]:
        """Call the command in a new process, which has loaded no code of a study yet."""
        process = subprocess.run(
            [str(Path(sys.executable).with_name("folkmoot")), *arguments],
            cwd=self.folder,
            env=self.env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert SECRET_KEY not in process.stdout
        return process.returncode, process.stdout

    def start_with_answer(self, answer: str, *arguments: str) -> tuple[int, str]:
        """Call the command in a new process with a terminal at which the user types an answer."""
        terminal, process_terminal = pty.openpty()
        try:
            os.write(terminal, answer.encode())
            return self.start(*arguments, stdin=process_terminal)
        finally:
            os.close(terminal)
            os.close(process_terminal)


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


@pytest.mark.parametrize("command", ["check", "run", "power", "plan", "try"])
def test_code_is_not_run_without_trust(machine: UserMachine, command: str) -> None:
    mark = write_marking_study(machine)
    status, output = machine.run_folkmoot(command, "evil.yaml")
    assert status == 2, output
    assert "evil.py" in output
    assert "Python code" in output
    assert f"folkmoot {command} evil.yaml --trust" in output
    assert not mark.exists()
    assert not (machine.folder / "outputs").exists()


def test_all_commands_with_trust_can_be_named_in_the_message() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    with_option = [
        name
        for name, command in commands.items()
        if any(parameter.name == "trust" for parameter in command.params)
    ]
    assert sorted(with_option) == sorted(TRUSTING_COMMANDS)


def test_power_runs_code_that_is_trusted(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    status, output = machine.run_folkmoot("power", "evil.yaml", "--trust")
    assert status == 0, output
    assert mark.exists()


def test_trust_ends_when_the_file_changes(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    status, output = machine.run_folkmoot("run", "evil.yaml", "--trust")
    assert status == 0, output
    mark.unlink()
    status, output = machine.start("report", "outputs/evil")
    assert status == 0, output
    assert mark.exists()
    mark.unlink()
    write_marking_study(machine, "# and something else\n")
    status, output = machine.run_folkmoot("run", "evil.yaml", "--out", "again")
    assert status == 2, output
    # This process has loaded the code of the run already, so it would not run it a second time.
    status, output = machine.start("report", "outputs/evil")
    assert status == 2, output
    assert not mark.exists()
    (trust_file,) = machine.state.rglob("trusted")
    assert trust_file.stat().st_mode & 0o777 == 0o600
    assert trust_file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "answer", sample_daily(["y\n", "n\n", "\n", "\x04"], daily=["y\n", "\n"], part="pages")
)
def test_code_runs_only_after_a_yes_at_the_terminal(machine: UserMachine, answer: str) -> None:
    mark = write_marking_study(machine)
    status, output = machine.start_with_answer(answer, "run", "evil.yaml")
    assert "Do you trust it?" in output
    assert (status, mark.exists()) == ((0, True) if answer == "y\n" else (2, False)), output


def test_an_untrusted_run_folder_runs_no_code(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    machine.run_folkmoot("run", "evil.yaml", "--trust")
    mark.unlink()
    next(machine.state.rglob("trusted")).unlink()
    status, output = machine.start("report", "outputs/evil")
    assert (status, mark.exists()) == (2, False), output
    assert "FOLKMOOT_TRUST=1" in output
    status, output = machine.start("show", "outputs/evil")
    assert (status, mark.exists()) == (0, False), output


def test_compiled_code_in_a_run_folder_needs_trust(machine: UserMachine) -> None:
    mark = write_marking_study(machine)
    machine.run_folkmoot("run", "evil.yaml", "--trust")
    mark.unlink()
    py_compile.compile(str(machine.folder / "evil.py"), str(machine.folder / "worse.pyc"))
    run_folder = machine.folder / "outputs" / "evil"
    for name in ("study.yaml", "plan.json", "manifest.json"):
        path = run_folder / name
        path.write_text(path.read_text().replace("./evil.py", "./worse.pyc"))
    status, output = machine.start("report", "outputs/evil")
    assert (status, mark.exists()) == (2, False), output
    assert "worse.pyc" in output


def test_check_reports_where_profiles_and_keys_are_sent(machine: UserMachine) -> None:
    machine.write(
        "far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {REMOTE_URL}}}\n"
    )
    status, output = machine.run_folkmoot("check", "far.yaml")
    assert status == 0, output
    assert f"this file sends your profiles and the key HF_TOKEN to {REMOTE_URL}" in output


@pytest.mark.parametrize(
    "url", ["https://h.example/v1?key=q7Zr4", "https://ann:q7Zr4@h.example/v1"]
)
def test_a_key_in_a_url_is_refused_and_not_printed(machine: UserMachine, url: str) -> None:
    study = f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: '%s'}}\n"
    machine.write("written.yaml", study % url)
    machine.write("typed.yaml", study % REMOTE_URL)
    typed_arguments = ("run", "typed.yaml", "--set", f"endpoints.hf-inference={url}")
    for arguments in (("check", "written.yaml"), typed_arguments):
        status, output = machine.run_folkmoot(*arguments)
        assert status == 2, output
        assert "holds a key" in output and "environment" in output and "q7Zr4" not in output
    assert not (machine.folder / "outputs").exists()


def test_no_data_is_sent_without_trust(machine: UserMachine) -> None:
    machine.write(
        "far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {REMOTE_URL}}}\n"
    )
    status, output = machine.run_folkmoot("run", "far.yaml", "--seed", "3", "--key", SECRET_KEY)
    assert status == 2, output
    assert f"sends your profiles and the key given with --key to {REMOTE_URL}" in output
    assert "folkmoot run far.yaml --seed 3 --trust" in output
    assert not (machine.folder / "outputs").exists()
    status, output = machine.run_folkmoot(
        "run", "far.yaml", "--model", "synthetic"
    )  # sends nothing there
    assert status == 0, output


def test_a_workbook_with_an_endpoint_needs_trust(machine: UserMachine) -> None:
    book = with_cell(make_workbook(), "experimental_setting!B3", "hf-inference")
    save_workbook(
        with_cell(book, "experimental_setting!B4", REMOTE_URL), machine.folder / "book.xlsx"
    )
    for command, expected in (("check", 0), ("run", 2)):
        status, output = machine.run_folkmoot(command, "book.xlsx")
        assert status == expected, output
        assert f"sends your profiles and the key HF_TOKEN to {REMOTE_URL}" in output
    assert not (machine.folder / "outputs").exists()


def test_an_endpoint_that_extends_a_typed_one_needs_trust(
    machine: UserMachine, server: ServerThread
) -> None:
    machine.env["OPENAI_API_KEY"] = SECRET_KEY
    study_text = f"{PILOT}model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
    machine.write("near.yaml", study_text)
    override = f"endpoints.openai/other={server.openai}/else"
    assert machine.run_folkmoot("run", "near.yaml", "--set", override)[0] == 2
    assert not server.model.log


def test_a_key_for_a_local_server_needs_trust(machine: UserMachine, server: ServerThread) -> None:
    study_text = f"{PILOT}model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
    machine.write("near.yaml", study_text)
    status, output = machine.run_folkmoot("run", "near.yaml", "--out", "without")
    assert status == 0, output  # no key is sent, and no data leaves the machine
    server.model.log.clear()
    machine.env["OPENAI_API_KEY"] = SECRET_KEY
    status, output = machine.run_folkmoot("run", "near.yaml")
    assert status == 2, output
    assert f"the key OPENAI_API_KEY to {server.openai}" in output
    assert not server.model.log
    assert machine.run_folkmoot("run", "near.yaml", "--trust")[0] == 0
    assert server.model.log
    assert machine.run_folkmoot("run", "near.yaml", "--out", "b")[0] == 0  # remembered
    machine.write("near.yaml", f"{study_text}random_seed: 8\n")
    assert machine.run_folkmoot("run", "near.yaml", "--out", "c")[0] == 2  # another file


def test_a_typed_or_exported_endpoint_needs_no_trust(
    machine: UserMachine, server: ServerThread
) -> None:
    machine.env["OPENAI_API_KEY"] = SECRET_KEY
    machine.write("plain.yaml", f"{PILOT}model: openai/m\n")
    override = f"endpoints.openai/m={server.openai}"
    status, output = machine.run_folkmoot("run", "plain.yaml", "--set", override, "--out", "a")
    assert status == 0, output
    machine.env["OPENAI_BASE_URL"] = server.openai
    status, output = machine.run_folkmoot("run", "plain.yaml", "--out", "b")
    assert status == 0, output


def test_an_endpoint_in_an_untrusted_env_file_gets_no_key(
    machine: UserMachine, server: ServerThread
) -> None:
    machine.env["OPENAI_API_KEY"] = SECRET_KEY
    machine.write("plain.yaml", f"{PILOT}model: openai/m\n")
    machine.write(".env", f"OPENAI_BASE_URL={server.openai}\n")
    status, output = machine.run_folkmoot("run", "plain.yaml")
    assert status == 2, output
    assert f".env that sends your profiles and the key OPENAI_API_KEY to {server.openai}" in output
    assert not server.model.log


def test_a_model_file_is_not_loaded_without_trust(machine: UserMachine) -> None:
    pytest.importorskip("xllamacpp", reason="make local installs it")
    weights = machine.folder / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    machine.write("pilot.yaml", f"{PILOT}model: local:{weights}\n")
    book = with_cell(make_workbook(), "experimental_setting!B3", f"local:{weights}")
    save_workbook(book, machine.folder / "book.xlsx")
    for file in ("pilot.yaml", "book.xlsx"):
        status, output = machine.run_folkmoot("check", file)
        assert f"this file loads the model file {weights}" in output
        status, output = machine.run_folkmoot("run", file)
        assert status == 2 and f"loads the model file {weights}" in output, output
        assert f"folkmoot run {file} --trust" in output
    assert not (machine.folder / "outputs").exists()
    question = "loads the model file"
    assert question not in machine.run_folkmoot("run", "pilot.yaml", "--trust")[1]
    assert (
        question not in machine.run_folkmoot("run", "pilot.yaml", "--out", "again")[1]
    )  # remembered
    assert (
        question not in machine.run_folkmoot("run", "pilot.yaml", "--model", f"local:{weights}")[1]
    )
    weights.write_bytes(b"GGUF of another content")
    assert question in machine.run_folkmoot("run", "pilot.yaml", "--out", "other")[1]
    status, output = machine.run_folkmoot(
        "run", "pilot.yaml", "--model", "synthetic", "--out", "third"
    )
    assert status == 0, output


def test_a_model_file_in_an_untrusted_plan_is_not_loaded(
    machine: UserMachine,
) -> None:
    weights = machine.folder / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    machine.write("pilot.yaml", f"{PILOT}model: synthetic\n")
    assert machine.run_folkmoot("run", "pilot.yaml", "--out", "run")[0] == 0
    plan = machine.folder / "run" / "plan.json"
    plan_content = json.loads(plan.read_text("utf-8"))
    plan_content["sealed"]["design"]["data"]["model"] = f"local:{weights}"
    plan.write_text(json.dumps(plan_content), "utf-8")
    status, output = machine.run_folkmoot("run", "pilot.yaml", "--out", "run", "--resume")
    assert status == 2 and f"loads the model file {weights}" in output, output


def test_check_refuses_a_key_over_plain_http(machine: UserMachine) -> None:
    remote_url = "http://models.example.org/v1"
    machine.write(
        "far.yaml", f"{PILOT}model: hf-inference\nendpoints: {{hf-inference: {remote_url}}}\n"
    )
    for arguments in (("check", "far.yaml"), ("run", "far.yaml", "--trust")):
        status, output = machine.run_folkmoot(*arguments)
        assert status == 2, output
        assert "unencrypted" in output
    del machine.env["HF_TOKEN"]
    assert machine.run_folkmoot("check", "far.yaml")[0] == 0


def test_from_python_a_file_needs_trust_and_a_dictionary_does_not(
    machine: UserMachine, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.folder)
    monkeypatch.delenv("FOLKMOOT_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(machine.state))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET_KEY)
    mark = write_marking_study(machine)
    with pytest.raises(InputError, match=r"trust=True"):
        folkmoot.run("evil.yaml")
    assert not mark.exists()
    settings = {"model": "openai/m", "endpoints": {"openai/m": server.openai}, "people": 1}
    assert folkmoot.run("./evil.py", settings, out="own").path.exists()
    mark.unlink()
    assert folkmoot.run("evil.yaml", out="theirs", trust=True).path.exists()
