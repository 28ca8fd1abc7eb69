"""Damaged copies of data, for tests of what reads them."""

from __future__ import annotations

import copy
import random  # noqa: TID251 (a seeded generator of its own, to damage data)
from typing import Any

ODD: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**12, float("inf"), "", "x", "no", "../../etc/passwd", "Ünï\u202e"),
    *(10**400, -(10**400), 1e308, "9" * 400, "NaN", "٣", "½", "\x00", ["x"] * 2000),
    *(character * 30_000 for character in 'x 1\n.?("-|'),
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
