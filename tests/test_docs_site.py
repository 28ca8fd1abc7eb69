"""The documentation as a site: every page is in its navigation, and it asks no other host."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import folkmoot
from folkmoot.cli.app import app
from tests.view.conftest import BROWSER_FLAGS, CHROMIUM_PATH
from tools.build_site import describe_commands, describe_names, write_source

ROOT = Path(__file__).parents[1]
# Pages that the build adds to those of docs/.
GENERATED = {"command_line.md", "gallery.md", "python_names.md"}


def pages_in(navigation: object) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        for part in navigation.values():
            yield from pages_in(part)
    elif isinstance(navigation, list):
        for part in navigation:
            yield from pages_in(part)


def test_the_navigation_has_every_page_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    named = sorted(pages_in(project["nav"]))
    docs = ROOT / "docs"
    written = {p.relative_to(docs).as_posix() for p in docs.rglob("*.md")}
    decisions = {p for p in written if p.startswith("decisions/0")}  # their index names them
    assert named == sorted((written - decisions) | GENERATED)


def test_the_reference_has_every_command_and_every_name() -> None:
    commands = describe_commands()
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.rstrip("_").removesuffix("_command")
        assert f"## `folkmoot {name}`" in commands, name
    # Lists of commands have whole sentences.
    assert not re.findall(r"^\* `[\w-]+`: .*\.\.\.$", commands, re.MULTILINE)
    names = set(re.findall(r"^::: folkmoot\.(\w+)$", describe_names(), re.MULTILINE))
    assert names <= set(folkmoot.__all__) and {"run", "load", "Study", "Choice"} <= names


def test_links_out_of_the_docs_lead_to_copies(tmp_path: Path) -> None:
    write_source(tmp_path / "site", reports=False)
    pages = sorted((tmp_path / "site").rglob("*.md"))
    assert len(pages) > 80
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
            if not target.startswith(("http:", "https:", "gallery/")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.nightly(part="pages")
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="make docs installs it")
def test_the_site_is_built_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    subprocess.run([sys.executable, "-m", "tools.build_site"], cwd=ROOT, check=True)
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM_PATH, args=list(BROWSER_FLAGS)
        )
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "installation", "python_names", "gallery"):
            page.goto((ROOT / "site" / f"{name}.html").as_uri())
            assert page.title()
        browser.close()
    assert asked and all(url.startswith("file:") for url in asked)
