"""`folkmoot view` on the command line: its address, its end, its errors."""

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


def start_view(*arguments: str) -> subprocess.Popen[str]:
    command = add_default_signals(sys.executable, "-m", "folkmoot", "view", *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_view_serves_until_ctrl_c_and_ends_cleanly_with_an_open_page(tmp_path: Path) -> None:
    with start_view(str(tmp_path), "--port", "0") as server:
        assert server.stdout is not None
        address = urlsplit(server.stdout.readline().split()[-1])
        assert address.hostname == "127.0.0.1" and not address.query
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
        connection.request("GET", "/live")
        response = connection.getresponse()
        assert response.status == 200 and response.read()
        connection.request("GET", "/live", headers={"If-None-Match": response.headers["ETag"]})
        assert connection.getresponse().status == 304  # the connection stays open meanwhile
        server.send_signal(signal.SIGINT)
        _, error_text = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "Traceback" not in error_text and "Interrupted" not in error_text


@pytest.mark.parametrize(
    "invalid_argument",
    sample_daily(["folder", "file", "port", "host"], daily=["port"], part="pages"),
)
def test_an_invalid_argument_is_named(tmp_path: Path, invalid_argument: str) -> None:
    (tmp_path / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as used_port:
        arguments = {
            "folder": [str(tmp_path / "nothing")],
            "file": [str(tmp_path / "file")],
            "port": [str(tmp_path), "--port", str(used_port.getsockname()[1])],
            "host": [str(tmp_path), "--host", "no.such.host.invalid"],
        }[invalid_argument]
        with start_view(*arguments) as server:
            _, error_text = server.communicate(timeout=60)
    assert server.returncode == 2 and "Traceback" not in error_text
    messages = {
        "folder": "no such folder",
        "file": "no such folder",
        "port": "--port",
        "host": "no.such",
    }
    assert messages[invalid_argument] in error_text


def test_the_studio_creates_only_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path_in_folder in ("nothing/studies", "file"):
        command = [sys.executable, "-m", "folkmoot", "studio", str(tmp_path / path_in_folder)]
        process = subprocess.run(
            [*command, "--port", "0"], capture_output=True, text=True, timeout=60
        )
        assert process.returncode == 2 and "Traceback" not in process.stderr
        assert "no folder" in process.stderr or "cannot be the folder" in process.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
