"""Mistakes in a study file of any type give a list of problems and never a crash."""

from __future__ import annotations

import random  # noqa: TID251 (a seeded generator of its own, to damage files)
from pathlib import Path

import pytest
import yaml

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from tests.damage import damage_values
from tests.sweeps import sample_daily

ROOT = Path(__file__).parents[2]
FILES = [
    *(
        path
        for path in sorted((ROOT / "examples").glob("*.yaml"))
        if not path.stem.endswith("_groups")
    ),
    ROOT / "config" / "pilot.yaml",
]


# Daily, the file of one study type.
@pytest.mark.parametrize(
    "file", sample_daily(FILES, daily=1, part="mutations"), ids=lambda f: f.stem
)
def test_damaged_files_give_problems_with_their_place(file: Path, tmp_path: Path) -> None:
    text = file.read_text("utf-8")
    assert load_study_file(file).config
    target = tmp_path / file.name
    refused = 0
    for seed in range(60):
        data = damage_values(yaml.safe_load(text), random.Random(seed))
        target.write_text(yaml.safe_dump(data, allow_unicode=True), "utf-8")
        try:
            load_study_file(target)
        except InputError as error:
            refused += 1
            assert all(str(p) for p in error.problems)
            assert len({str(p) for p in error.problems}) == len(error.problems)
    assert refused > 20
