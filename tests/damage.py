"""Damage data at random, for tests of readers."""

from __future__ import annotations

import copy
import random  # noqa: TID251 (a separate seeded generator for damage)
from typing import Any

ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**12, float("inf"), "", "x", "no", "../../etc/passwd", "Ünï\u202e"),
    *(10**400, -(10**400), 1e308, "9" * 400, "NaN", "٣", "½", "\x00", ["x"] * 2000),
    *(character * 30_000 for character in 'x 1\n.?("-|'),
    *([], [[]], [{}], ["a", "a"], [1, "b", None], {}, {"a": {"b": []}}, {"": 1}),
]


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [
        child_path
        for key, child in children
        for child_path in [(*path, key), *list_paths(child, (*path, key))]
    ]


def damage_values(data: Any, rng: random.Random) -> Any:
    """Replace, remove or rename one to three values in place, and return the data."""
    for _ in range(rng.randint(1, 3)):
        paths = list_paths(data)
        if not paths:
            break
        *path, last = rng.choice(paths)
        parent = data
        for key in path:
            parent = parent[key]
        action = rng.random()
        if action < 0.6:
            parent[last] = copy.deepcopy(rng.choice(ODD_VALUES))
        elif action < 0.8 or not isinstance(parent, dict):
            del parent[last]
        else:
            parent[f"{last}s"] = parent.pop(last)
    return data
