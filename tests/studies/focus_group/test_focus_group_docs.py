"""The page on focus groups quotes a real transcript and lists every key with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import folkmoot
from tests.fenced import run_python

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "focus_group.md").read_text("utf-8")


def test_the_quoted_conversation_is_in_the_transcript_of_the_example(tmp_path: Path) -> None:
    run = folkmoot.run(
        ROOT / "examples" / "focus_group.yaml", model="synthetic", out=tmp_path / "r"
    )
    transcript = run.folder.text("transcript.md")
    quoted = [line[2:] for line in PAGE.splitlines() if line.startswith("> **")]
    assert len(quoted) >= 6
    for line in quoted:
        assert line in transcript, line


@pytest.mark.parametrize("path", re.findall(r"`([a-z_]+\.(?:py|md))`", PAGE))
def test_files_that_the_page_names_are_there(path: str) -> None:
    folder = ROOT / "src/folkmoot/studies/focus_group"
    runs = {"transcript.md", "topline.md"}
    assert path in runs or (folder / path).exists() or (folder / "prompts" / path).exists()


def test_the_example_on_the_page_of_personas_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_python("docs/personas.md") == 1
    assert "openness=" in capsys.readouterr().out


def test_the_example_for_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_python("docs/focus_group.md") == 1
    printed = capsys.readouterr().out
    assert "## Phase: Synthesis" in printed
    assert "**Moderator:**" in printed
