"""Whatever is wrong in a study file of any type ends as a list of mistakes, never as a crash."""

from __future__ import annotations

import copy
import random  # noqa: TID251 (a seeded generator of its own, to damage files)
from pathlib import Path
from typing import Any

import pytest
import yaml

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError

ROOT = Path(__file__).parents[2]
FILES = [
    *(f for f in sorted((ROOT / "examples").glob("*.yaml")) if not f.stem.endswith("_groups")),
    ROOT / "config" / "pilot.yaml",
]
ODD: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**12, float("inf"), "", "x", "no", "../../etc/passwd", "Ünï\u202e"),
    *([], [[]], [{}], ["a", "a"], [1, "b", None], {}, {"a": {"b": []}}, {"": 1}),
]


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [p for key, child in inner for p in [(*path, key), *nodes(child, (*path, key))]]


def damaged(data: Any, dice: random.Random) -> Any:
    """The data with one to three values replaced, removed, or put under another name."""
    for _ in range(dice.randint(1, 3)):
        places = nodes(data)
        if not places:
            break
        *path, last = dice.choice(places)
        parent = data
        for key in path:
            parent = parent[key]
        kind = dice.random()
        if kind < 0.6:
            parent[last] = copy.deepcopy(dice.choice(ODD))
        elif kind < 0.8 or not isinstance(parent, dict):
            del parent[last]
        else:
            parent[f"{last}s"] = parent.pop(last)
    return data


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_damaged_files_give_mistakes_with_their_place(file: Path, tmp_path: Path) -> None:
    text = file.read_text("utf-8")
    assert load_study_file(file).config
    target = tmp_path / file.name
    refused = 0
    for seed in range(60):
        data = damaged(yaml.safe_load(text), random.Random(seed))
        target.write_text(yaml.safe_dump(data, allow_unicode=True), "utf-8")
        try:
            load_study_file(target)
        except InputError as error:
            refused += 1
            assert all(str(p) for p in error.problems)
            assert len({str(p) for p in error.problems}) == len(error.problems)
    assert refused > 20
