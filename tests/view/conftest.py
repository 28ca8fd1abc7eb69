"""Small finished runs of all study types in one folder, and the reader that serves them."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright import async_api
from playwright.sync_api import Browser, expect, sync_playwright

from folkmoot.engine.study.study import registered_studies
from folkmoot.view.pages import Reader
from folkmoot.view.run_list import RunCollection
from folkmoot.view.site import Guard, create_app
from tests.servers.pages import Answer, PageServer
from tests.waiting import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="session")
def outputs(
    tmp_path_factory: pytest.TempPathFactory, run_of_small_study: Callable[[str], Path]
) -> Path:
    """A folder with a finished run of each study type, under its type's name."""
    folder = tmp_path_factory.mktemp("view")
    for name in sorted(registered_studies()):
        shutil.copytree(run_of_small_study(name), folder / "outputs" / name)
    return folder / "outputs"


@pytest.fixture
def copy(outputs: Path, tmp_path: Path) -> Path:
    """A run of one's own to change, in a folder of its own."""
    folder = tmp_path / "outputs" / "copy"
    shutil.copytree(outputs / "focus_group", folder)
    return folder


def reader(folder: Path, guard: Guard | None = None) -> PageServer:
    """The reader over a folder."""
    return PageServer(create_app(Reader(RunCollection(folder)).page_routes(), guard or Guard()))


def found_in(server: PageServer, run: str, query: str) -> str:
    """The page of what is found, once everything is indexed."""
    found = ""

    def indexed() -> bool:
        nonlocal found
        found = server.get(f"/run/{run}/-/search?q={quote(query)}").text
        return "of the run is indexed" not in found

    wait_until(indexed, lambda: found)
    return found


def made_in(server: PageServer, path: str, **headers: str) -> Answer:
    """A page that is made in a process of its own, once it is made."""
    got: Answer | None = None

    def made() -> bool:
        nonlocal got
        got = server.get(path, **headers)
        return "Reading the " not in got.text and "Making the " not in got.text

    wait_until(made, lambda: got)
    assert got is not None
    return got


@pytest.fixture(scope="session")
def served(outputs: Path) -> Iterator[PageServer]:
    with reader(outputs) as server:
        yield server


@pytest.fixture(scope="module")  # a browser keeps an event loop, which no other test should meet
def browser(outputs: Path) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    expect.set_options(timeout=60_000)  # on a busy machine
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def async_browser_of_module() -> AsyncIterator[async_api.Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    async_api.expect.set_options(timeout=60_000)  # on a busy machine
    async with async_api.async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        await opened.close()


@pytest_asyncio.fixture(loop_scope="module")
async def async_browser(
    async_browser_of_module: async_api.Browser,
) -> AsyncIterator[async_api.Browser]:
    """The browser of all tests of a file. No page, cookie or storage outlives a test."""
    yield async_browser_of_module
    for context in async_browser_of_module.contexts:
        await context.close()
