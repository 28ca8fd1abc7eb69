"""`--seat`, `try` and `withdraw` as a user types them."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.contract.small import small_study
from tests.default_signals import add_default_signals
from tests.sweeps import sample_daily

FOLKMOOT = [sys.executable, "-m", "folkmoot"]


@pytest.mark.parametrize(
    ("study", "seats", "says"),
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
def test_check_refuses_seats_where_others_speak(
    tmp_path: Path, study: str, seats: str, says: str
) -> None:
    path = small_study(study, tmp_path)
    path.write_text(f"{path.read_text()}\nseats: {seats}\n")
    done = subprocess.run([*FOLKMOOT, "check", str(path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr and path.name in done.stderr


def test_the_mend_that_it_names_opens_the_seat(tmp_path: Path) -> None:
    path = small_study("negotiation", tmp_path)
    path.write_text(f"{path.read_text()}\nseats: 2\n")
    command = [*FOLKMOOT, "check", str(path), "--set", "conditions=[C1, C2]"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def served(command: list[str], folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A process that serves seats, and the link of the first one."""
    process = subprocess.Popen(
        add_default_signals(*command), stderr=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Seat "):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, line.split(": ", 1)[1].strip()
    raise AssertionError(f"no link was printed; exit code {process.wait()}")


def test_try_seats_you_alone_and_writes_nothing_here(tmp_path: Path) -> None:
    path = small_study("town_hall", tmp_path)
    process, link = served([*FOLKMOOT, "try", str(path)], tmp_path)
    page = urlopen(link).read().decode()
    assert "A seat is kept for you" in page and "stays on the computer" in page
    process.terminate()
    process.wait()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.nightly(part="pages")
def test_behind_a_proxy_links_bear_the_public_name(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    public = "https://study.example.org"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [*FOLKMOOT, "run", str(path), "--model", "synthetic", "--public-url", public]
    process, link = served([*command, "--seat", "p_0001", "--port", port], tmp_path)
    assert link.startswith(f"{public}/seat/")
    inside = link.replace(public, f"http://127.0.0.1:{port}")
    reply = urlopen(Request(inside, headers={"Host": "study.example.org"}))
    assert reply.status == 200
    process.terminate()
    process.wait()
