"""The studio in a process of its own, as a user starts it, and a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.sweeps import SCREEN_WIDTHS
from tests.view.conftest import BROWSER_FLAGS, CHROMIUM_PATH


class StudioProcess:
    """`folkmoot studio` over a folder; `link` is the address with its token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "folkmoot", "studio", str(folder), "--port", "0"]
        environ = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder.parent,
            env={**environ, "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": str(folder / ".cache")},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        self.link = found[0]
        self.url = self.link.partition("/?")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", params=SCREEN_WIDTHS)
def screen_width(request: pytest.FixtureRequest) -> int:
    """How wide the pages of a test are."""
    return int(request.param)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, screen_width: int) -> Iterator[StudioProcess]:
    """A studio for all tests of a file with pages of one width. Each makes a study of another name.

    Its folder does not exist before, as on the first day of a user.
    """
    with StudioProcess(tmp_path_factory.mktemp("studio") / "my_studies") as started:
        yield started


@pytest.fixture(scope="module")  # a browser keeps an event loop, which no other test should meet
def browser() -> Iterator[Browser]:
    if CHROMIUM_PATH is None:
        pytest.skip("no Chromium on this machine")
    expect.set_options(timeout=60_000)  # on a busy machine
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM_PATH, args=list(BROWSER_FLAGS))
        yield opened
        opened.close()
