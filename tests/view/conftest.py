"""Small finished runs of all study types in one folder, and the run viewer that serves them."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright import async_api
from playwright.sync_api import Browser

from folkmoot.engine.study.study import registered_studies
from folkmoot.view.pages import Reader
from folkmoot.view.run_list import RunCollection
from folkmoot.view.site import Guard, create_app
from tests.browsers import (
    BROWSER_FLAGS,
    BUSY_MACHINE_TIMEOUT_MS,
    CHROMIUM_PATH,
    launch_browser,
)
from tests.servers.pages import PageResponse, PageServer
from tests.waiting import wait_until


@pytest.fixture(scope="session", autouse=True)
def _separate_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    previous_cache = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if previous_cache is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = previous_cache


@pytest.fixture(scope="session")
def outputs(
    tmp_path_factory: pytest.TempPathFactory, run_of_small_study: Callable[[str], Path]
) -> Path:
    """A folder with a finished run of each study type, named after the type."""
    folder = tmp_path_factory.mktemp("view")
    for name in sorted(registered_studies()):
        shutil.copytree(run_of_small_study(name), folder / "outputs" / name)
    return folder / "outputs"


@pytest.fixture
def run_copy(outputs: Path, tmp_path: Path) -> Path:
    """A copy of a run in its own folder, which a test may change."""
    folder = tmp_path / "outputs" / "copy"
    shutil.copytree(outputs / "focus_group", folder)
    return folder


def create_viewer_server(folder: Path, guard: Guard | None = None) -> PageServer:
    """Create a server of the run viewer for a folder."""
    return PageServer(create_app(Reader(RunCollection(folder)).page_routes(), guard or Guard()))


def wait_for_search_results(server: PageServer, run: str, query: str) -> str:
    """Return the page of search results once the whole run is indexed."""
    page_text = ""

    def is_indexed() -> bool:
        nonlocal page_text
        page_text = server.get(f"/run/{run}/-/search?q={quote(query)}").text
        return "of the run is indexed" not in page_text

    wait_until(is_indexed, lambda: page_text)
    return page_text


def wait_for_computed_page(server: PageServer, path: str, **headers: str) -> PageResponse:
    """Return a page that is computed in a separate process, once it is complete."""
    response: PageResponse | None = None

    def is_complete() -> bool:
        nonlocal response
        response = server.get(path, **headers)
        return "Reading the " not in response.text and "Making the " not in response.text

    wait_until(is_complete, lambda: response)
    assert response is not None
    return response


@pytest.fixture(scope="session")
def page_server(outputs: Path) -> Iterator[PageServer]:
    with create_viewer_server(outputs) as server:
        yield server


@pytest.fixture(scope="module")  # a browser keeps an event loop, which other tests must not use
def browser(outputs: Path) -> Iterator[Browser]:
    with launch_browser() as launched_browser:
        yield launched_browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def async_browser_of_module() -> AsyncIterator[async_api.Browser]:
    if CHROMIUM_PATH is None:
        pytest.skip("no Chromium on this machine")
    async_api.expect.set_options(timeout=BUSY_MACHINE_TIMEOUT_MS)
    async with async_api.async_playwright() as playwright:
        launched_browser = await playwright.chromium.launch(
            executable_path=CHROMIUM_PATH, args=list(BROWSER_FLAGS)
        )
        yield launched_browser
        await launched_browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def async_browser(
    async_browser_of_module: async_api.Browser,
) -> AsyncIterator[async_api.Browser]:
    """The browser of all tests of a file. Pages and cookies are removed after each test."""
    yield async_browser_of_module
    for context in async_browser_of_module.contexts:
        await context.close()
