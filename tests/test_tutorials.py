"""The tutorials are correct: their code works as one file, and their commands run."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.kit.controls.conversations import find_decisions
from folkmoot.kit.exposure import describe_deviations
from folkmoot.storage.run_folder import RunFolder
from tests.fenced import ROOT, find_blocks

PAGE = (ROOT / "docs/tutorials/study_type.md").read_text("utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the blocks of the tutorial, in order, in the files that it names."""
    *study, test = find_blocks(PAGE, "python")
    (tmp_path / "jury.py").write_text("\n\n".join(study), "utf-8")
    (tmp_path / "test_jury.py").write_text("from jury import *\n" + test, "utf-8")
    (settings,) = find_blocks(PAGE, "yaml")
    (tmp_path / "jury.yaml").write_text(settings, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_study_type_of_the_tutorial_runs_with_its_commands(folder: Path) -> None:
    (commands,) = find_blocks(PAGE, "sh")
    for command in commands.strip().splitlines():
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, (command, result.output)
    run = RunFolder(folder / "outputs" / "jury")
    jurors = run.read_table("jurors")
    assert jurors.height == 200 and set(jurors["condition"]) == {"read", "alone"}
    texts = run.read_table("provenance")
    assert texts.filter(texts["kind"] == "utterance").height >= 200
    # Each vote is a decision: the first and the final one of each juror.
    assert len(find_decisions(run)) == 400
    assert describe_deviations(run) == []
    shown = run.read_table("exposure").filter(pl.col("texts") > 0)
    assert set(shown["condition"]) == {"read"} and set(shown["decision"]) == {"second vote"}
    report = (folder / "outputs/jury/report.html").read_text("utf-8")
    assert "changed their vote" in report


def test_the_test_of_the_tutorial_passes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("test_jury", folder / "test_jury.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        module.test_readers_read_two_others(tmp_path)
    finally:
        sys.modules.pop("jury", None)
