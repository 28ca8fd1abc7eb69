"""The options and commands for seats: `--seat`, `try`, and `check` with seats."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import typer

from folkmoot.cli.console import note_started_run, with_error_handling
from folkmoot.errors import RunInterruptedError
from tests.contract.small import small_study
from tests.default_signals import add_default_signals
from tests.sweeps import sample_daily

FOLKMOOT = [sys.executable, "-m", "folkmoot"]


@pytest.mark.parametrize(
    ("study", "seats", "message"),
    sample_daily(
        [
            (
                "town_hall",
                "[set01_lv1/A01]",
                "at level 1 one call of a model speaks for all residents",
            ),
            (
                "negotiation",
                "2",
                "members say; set members_speak to true, or conditions to [C1, C2]",
            ),
            ("cross_pollination", "[p_9999]", "there is no participant 'p_9999'"),
        ],
        daily=1,
        part="sweeps",
    ),
)
def test_check_refuses_seats_of_participants_who_do_not_speak(
    tmp_path: Path, study: str, seats: str, message: str
) -> None:
    path = small_study(study, tmp_path)
    path.write_text(f"{path.read_text()}\nseats: {seats}\n")
    process = subprocess.run([*FOLKMOOT, "check", str(path)], capture_output=True, text=True)
    assert process.returncode == 2
    assert message in process.stderr and path.name in process.stderr


def test_the_suggested_setting_makes_the_seat_valid(tmp_path: Path) -> None:
    path = small_study("negotiation", tmp_path)
    path.write_text(f"{path.read_text()}\nseats: 2\n")
    command = [*FOLKMOOT, "check", str(path), "--set", "conditions=[C1, C2]"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def start_and_read_link(command: list[str], folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a process that serves seats. Return it with the link of the first seat."""
    process = subprocess.Popen(
        add_default_signals(*command), stderr=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Seat "):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, line.split(": ", 1)[1].strip()
    raise AssertionError(f"no link was printed; exit code {process.wait()}")


def test_try_opens_one_seat_and_writes_no_files(tmp_path: Path) -> None:
    path = small_study("town_hall", tmp_path)
    process, link = start_and_read_link([*FOLKMOOT, "try", str(path)], tmp_path)
    page = urlopen(link).read().decode()
    assert "A seat is kept for you" in page and "stays on the computer" in page
    process.terminate()
    process.wait()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_an_interrupted_trial_says_where_its_answers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["folkmoot", "try", "study.yaml"])

    @with_error_handling
    def interrupt_trial() -> None:
        note_started_run(tmp_path / "run", is_grid=False)
        raise RunInterruptedError

    with pytest.raises(typer.Exit):
        interrupt_trial()
    message = " ".join(capsys.readouterr().err.split())
    assert "All answers so far are saved. A trial cannot be resumed." in message
    assert f"folkmoot show {tmp_path / 'run'}" in message


@pytest.mark.nightly(part="pages")
def test_links_behind_a_proxy_have_the_public_name(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    public_url = "https://study.example.org"
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        port = str(free_socket.getsockname()[1])
    command = [*FOLKMOOT, "run", str(path), "--model", "synthetic", "--public-url", public_url]
    process, link = start_and_read_link([*command, "--seat", "p_0001", "--port", port], tmp_path)
    assert link.startswith(f"{public_url}/seat/")
    local_link = link.replace(public_url, f"http://127.0.0.1:{port}")
    reply = urlopen(Request(local_link, headers={"Host": "study.example.org"}))
    assert reply.status == 200
    process.terminate()
    process.wait()
