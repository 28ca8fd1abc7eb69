"""The package page: links and pictures of the README work there or become plain text."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.build import prepare_metadata_for_build_wheel
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
ADDRESS = "https://forge.example/lab/folkmoot"
TAG = f"v{tomllib.loads(PROJECT.read_text('utf-8'))['project']['version']}"


def build_metadata(folder: Path, monkeypatch: pytest.MonkeyPatch, *, repository: str) -> Message:
    """Build the metadata of the wheel from a copy that states this address of the repository."""
    for name in ("README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "packaging", folder / "packaging")
    line = f'\nrepository = "{repository}"'
    project_text, replacements = re.subn(
        r'\nrepository = "[^"]*"', line, PROJECT.read_text("utf-8")
    )
    assert replacements == 1
    (folder / "pyproject.toml").write_text(project_text, "utf-8")
    (folder / "built").mkdir()
    monkeypatch.chdir(folder)
    metadata_folder = prepare_metadata_for_build_wheel(str(folder / "built"))
    return Parser().parsestr((folder / "built" / metadata_folder / "METADATA").read_text("utf-8"))


def list_targets(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the address of each link and picture, as a Markdown reader finds them."""
    for block in MarkdownIt("commonmark").enable("table").parse(markdown):
        for token in block.children or ():
            if token.type == "link_open":
                yield "blob", str(token.attrs["href"])
            elif token.type == "image":
                yield "raw", str(token.attrs["src"])


def test_with_a_repository_every_link_is_absolute_and_leads_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = build_metadata(tmp_path, monkeypatch, repository=ADDRESS)
    assert metadata.get_all("Project-URL") == [
        f"Homepage, {ADDRESS}",
        f"Documentation, {ADDRESS}/blob/{TAG}/docs/index.md",
        f"Changelog, {ADDRESS}/blob/main/CHANGELOG.md",
        f"Issues, {ADDRESS}/issues",
    ]
    readme = metadata.get_payload()
    assert isinstance(readme, str) and metadata["Description-Content-Type"] == "text/markdown"
    source_targets = list(list_targets((ROOT / "README.md").read_text("utf-8")))
    page_targets = list(list_targets(readme))
    assert [kind for kind, _ in page_targets] == [kind for kind, _ in source_targets]
    assert sum(kind == "raw" for kind, _ in page_targets) == 3
    for kind, target in page_targets:
        start = f"{ADDRESS}/{kind}/{TAG}/"
        assert target.startswith(start)
        assert (ROOT / target.removeprefix(start).partition("#")[0]).is_file(), target


def test_without_a_repository_links_become_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = build_metadata(tmp_path, monkeypatch, repository="")
    assert metadata.get_all("Project-URL") is None
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    assert list(list_targets(readme)) == []
    assert "The glossary explains the terms." in readme
    assert "*[Picture: A seat in a focus group: what others said, the question, and a box" in readme
    # Code keeps what looks like a link.
    assert "tuple[str | Missing, str | Missing]:" in readme


def test_an_address_without_a_scheme_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="must begin with https://"):
        build_metadata(tmp_path, monkeypatch, repository="forge.example/lab/folkmoot")
