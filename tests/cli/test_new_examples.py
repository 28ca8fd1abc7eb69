"""`folkmoot new examples` writes what the documentation runs."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.study.study_file import load_study_file

ROOT = Path(__file__).parents[2]


def test_all_examples_are_written_and_load(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", "examples", str(tmp_path)])
    assert done.exit_code == 0, done.output
    written = {p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()}
    shipped = {
        p.relative_to(ROOT)
        for name in ("examples", "config")
        for p in (ROOT / name).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts and "outputs" not in p.parts
    }
    assert written == shipped
    for name in ("examples/town_hall.yaml", "examples/public_goods.xlsx", "config/pilot.yaml"):
        load_study_file(tmp_path / name)


def test_examples_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    mine = tmp_path / "config" / "pilot.yaml"
    mine.write_text("mine", "utf-8")
    done = CliRunner().invoke(app, ["new", "examples", str(tmp_path)])
    assert done.exit_code != 0 and "already exists" in done.output
    assert mine.read_text("utf-8") == "mine" and not (tmp_path / "examples").exists()
