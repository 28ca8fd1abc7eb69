"""The documentation site: navigation, reference, links, and no requests to other hosts."""

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
from tests.browsers import launch_browser
from tools.build_site import describe_commands, describe_names, write_source

ROOT = Path(__file__).parents[1]
# Pages that the build adds to those of docs/.
GENERATED = {"command_line.md", "gallery.md", "python_names.md"}


def list_pages(navigation: object) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        for child in navigation.values():
            yield from list_pages(child)
    elif isinstance(navigation, list):
        for child in navigation:
            yield from list_pages(child)


def test_the_navigation_has_every_page_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    navigation_pages = sorted(list_pages(project["nav"]))
    docs = ROOT / "docs"
    source_pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    decisions = {
        page for page in source_pages if page.startswith("decisions/0")
    }  # their index names them
    assert navigation_pages == sorted((source_pages - decisions) | GENERATED)


def test_the_reference_has_every_command_and_every_name() -> None:
    commands = describe_commands()
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.rstrip("_").removesuffix("_command")
        assert f"## `folkmoot {name}`" in commands, name
    # Descriptions in lists of commands are not cut off.
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
    subprocess.run([sys.executable, "-m", "tools.build_site"], cwd=ROOT, check=True)
    requested_urls: list[str] = []
    with launch_browser() as browser:
        page = browser.new_page()
        page.on("request", lambda request: requested_urls.append(request.url))
        for name in ("index", "installation", "python_names", "gallery"):
            page.goto((ROOT / "site" / f"{name}.html").as_uri())
            assert page.title()
    assert requested_urls and all(url.startswith("file:") for url in requested_urls)
