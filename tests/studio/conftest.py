"""The studio in a separate process, as a researcher starts it, and a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import Browser

from tests.browsers import launch_browser
from tests.sweeps import SCREEN_WIDTHS


class StudioProcess:
    """`folkmoot studio` over a folder; `link` is the address with its token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "folkmoot", "studio", str(folder), "--port", "0"]
        environment = {
            key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")
        }
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder.parent,
            env={**environment, "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": str(folder / ".cache")},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        match = re.search(r"http://\S+", line)
        assert match is not None, line
        self.link = match[0]
        self.url = self.link.partition("/?")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", params=SCREEN_WIDTHS)
def screen_width(request: pytest.FixtureRequest) -> int:
    """The width of the pages of a test."""
    return int(request.param)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, screen_width: int) -> Iterator[StudioProcess]:
    """A studio for all tests of a file with pages of one width. Each test uses its own study name.

    The folder of the studio does not exist before, as for a new researcher.
    """
    with StudioProcess(tmp_path_factory.mktemp("studio") / "my_studies") as studio_process:
        yield studio_process


@pytest.fixture(scope="module")  # a browser keeps an event loop, which other tests must not use
def browser() -> Iterator[Browser]:
    with launch_browser() as launched_browser:
        yield launched_browser
