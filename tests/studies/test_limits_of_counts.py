"""A count that no run could reach is refused before any memory is used for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("study", "key", "limit"),
    [
        ("focus_group", "replications", 10_000),
        ("focus_group", "questions_per_phase", 100),
        ("town_hall", "sets", 10_000),
        ("town_hall", "rounds", 1_000),
        ("negotiation", "groups_per_type", 10_000),
        ("cross_pollination", "participants_per_condition", 100_000),
    ],
)
def test_a_count_without_end_is_a_problem_of_its_line(
    tmp_path: Path, study: str, key: str, limit: int
) -> None:
    kept = (EXAMPLES / f"{study}.yaml").read_text("utf-8").splitlines()
    lines = [line for line in kept if not line.startswith(f"{key}:")]
    path = tmp_path / "study.yaml"
    path.write_text("\n".join([*lines, f"{key}: 1000000000"]) + "\n", "utf-8")
    shown = CliRunner().invoke(app, ["check", str(path)])
    assert shown.exit_code == 2
    message = f"study.yaml:{len(lines) + 1}: {key}: must be at most {limit}, is 1000000000"
    assert message in " ".join(shown.output.split())
