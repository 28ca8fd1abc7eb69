"""Changing the data of a study file at a path: `--set key=value`, and repairs while checking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from folkmoot.engine.yaml_tree import Path_, Place, Tree, find_path, read_tree
from folkmoot.errors import InputError, Problem

SET = "--set"


def apply_overrides(tree: Tree, overrides: Sequence[str]) -> None:
    """Put `key=value` overrides into the tree."""
    for text in overrides:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InputError(
                Problem(f"{text!r} is not key=value", SET, mend="for example --set random_seed=7")
            )
        key = key.strip()
        part = read_tree(value, SET)
        path = find_path(tree.value, key)
        rest = key if not path else _beyond(key, path)
        path = (*path, *(rest.split(".") if rest else ()))
        if not put_at(tree.value, path, part.value):
            raise InputError(Problem(f"there is no group of keys to put {key} into", SET, key=key))
        for below, place in part.places.items():
            tree.places[(*path, *below)] = Place(place.file, 0, place.text)


def _beyond(key: str, path: Path_) -> str:
    """What of a dotted key comes after the part that the file already holds."""
    for part in path:
        if isinstance(part, int):
            key = key[key.index("]") + 1 :]
        else:
            key = key.removeprefix(".").removeprefix(part)
    return key.removeprefix(".")


def existing(data: Any, loc: Sequence[str | int]) -> Path_ | None:
    """The part of pydantic's location that is in the data; None for a missing key."""
    path: list[str | int] = []
    for part in loc:
        inside = isinstance(data, dict) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            path.append(part)
            data = data[part]
    return tuple(path) if path or not loc else None


def get_at(data: Any, path: Path_) -> Any:
    for part in path:
        data = data[part]
    return data


def put_at(data: Any, path: Path_, value: Any) -> bool:
    """Set the value at a path, making groups on the way; False when something else is there."""
    for part in path[:-1]:
        if isinstance(data, dict) and data.get(part) is None:
            data[part] = {}
        if not _fits(data, part):
            return False
        data = data[part]
    if not _fits(data, path[-1]):
        return False
    data[path[-1]] = value
    return True


def _fits(data: Any, part: str | int) -> bool:
    return isinstance(data, dict) or (isinstance(data, list) and isinstance(part, int))
