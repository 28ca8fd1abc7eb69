"""`folkmoot view` on the command line: its address, its ends, its mistakes."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.default_signals import add_default_signals
from tests.sweeps import sample_daily


def start(*words: str) -> subprocess.Popen[str]:
    command = add_default_signals(sys.executable, "-m", "folkmoot", "view", *words)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_serves_until_ctrl_c_and_ends_well_while_a_page_is_open(tmp_path: Path) -> None:
    with start(str(tmp_path), "--port", "0") as server:
        assert server.stdout is not None
        address = urlsplit(server.stdout.readline().split()[-1])
        assert address.hostname == "127.0.0.1" and not address.query
        asked = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
        asked.request("GET", "/live")
        seen = asked.getresponse()
        assert seen.status == 200 and seen.read()
        asked.request("GET", "/live", headers={"If-None-Match": seen.headers["ETag"]})
        assert asked.getresponse().status == 304  # the connection stays open meanwhile
        server.send_signal(signal.SIGINT)
        _, told = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "Traceback" not in told and "Interrupted" not in told


@pytest.mark.parametrize(
    "case", sample_daily(["folder", "file", "port", "host"], daily=["port"], part="pages")
)
def test_a_mistake_is_named(tmp_path: Path, case: str) -> None:
    (tmp_path / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = {
            "folder": [str(tmp_path / "nothing")],
            "file": [str(tmp_path / "file")],
            "port": [str(tmp_path), "--port", str(taken.getsockname()[1])],
            "host": [str(tmp_path), "--host", "no.such.host.invalid"],
        }[case]
        with start(*words) as server:
            _, told = server.communicate(timeout=60)
    assert server.returncode == 2 and "Traceback" not in told
    said = {
        "folder": "no such folder",
        "file": "no such folder",
        "port": "--port",
        "host": "no.such",
    }
    assert said[case] in told


def test_the_studio_creates_its_folder_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in ("nothing/studies", "file"):
        command = [sys.executable, "-m", "folkmoot", "studio", str(tmp_path / place)]
        done = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert "no folder" in done.stderr or "cannot be the folder" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
