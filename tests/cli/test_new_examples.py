"""`folkmoot new examples` writes the files that the documentation uses."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.study.study_file import load_study_file

ROOT = Path(__file__).parents[2]


def test_all_examples_are_written_and_load(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["new", "examples", str(tmp_path)])
    assert result.exit_code == 0, result.output
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    shipped = {
        path.relative_to(ROOT)
        for name in ("examples", "config")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "outputs" not in path.parts
    }
    assert written == shipped
    for name in ("examples/town_hall.yaml", "examples/public_goods.xlsx", "config/pilot.yaml"):
        load_study_file(tmp_path / name)


def test_existing_examples_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    existing_file = tmp_path / "config" / "pilot.yaml"
    existing_file.write_text("mine", "utf-8")
    result = CliRunner().invoke(app, ["new", "examples", str(tmp_path)])
    assert result.exit_code != 0 and "already exists" in result.output
    assert existing_file.read_text("utf-8") == "mine" and not (tmp_path / "examples").exists()
