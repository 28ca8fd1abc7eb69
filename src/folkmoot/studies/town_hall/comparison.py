"""Levels compared: means over sets, and paired differences between levels within sets.

A set is the same residents at every level, so a difference is taken inside each set and then
averaged; the sets are the clusters of the 95 % intervals. Supplementary levels stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from folkmoot.measures.clustered import FEW_CLUSTERS, clustered_mean, sign_flip_p
from folkmoot.studies.town_hall.levels import Level
from folkmoot.studies.town_hall.measures import FIGURES, GROUPS

SWITCHES = (
    *("context", "models", "moderator", "think", "reflect"),
    *("vulnerable", "moderator_list", "labels", "stories"),
)
BySet = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Result:
    """The measures of one discussion, as `measures.measures` gives them."""

    set_no: int
    level: str
    measures: Mapping[str, Any]


def compare(levels: Sequence[Level], results: Sequence[Result]) -> dict[str, Any]:
    """The content of `levels.json`."""
    main = [level for level in levels if level.part == "main"]
    apart = [level for level in levels if level.part != "main"]
    return {
        "sets": len({r.set_no for r in results}),
        "intervals": "95 %, t over sets (G − 1 degrees of freedom, G sets); null with one set",
        "figures": dict(FIGURES),
        "main": {
            "levels": {level.name: _level(level, results) for level in main},
            "differences": [
                _step(a, b, results, consecutive=main.index(b) == main.index(a) + 1)
                for a, b in combinations(main, 2)
            ],
        },
        "supplementary": {
            "levels": {level.name: _level(level, results) for level in apart},
            "differences": [_step(a, b, results, consecutive=False) for b in apart for a in main],
        },
    }


def flat_rows(comparison: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The comparison as tidy records: one per level, figure and group; one per difference."""
    means: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for part in ("main", "supplementary"):
        for level, summary in comparison[part]["levels"].items():
            means += _rows({"part": part, "level": level}, summary)
        for entry in comparison[part]["differences"]:
            step = {
                "part": part,
                "from_level": entry["from"],
                "to_level": entry["to"],
                "consecutive": entry["consecutive"],
                "switches_changed": "|".join(entry["switches_changed"]),
            }
            differences += _rows(step, entry)
    return means, differences


def _rows(key: Mapping[str, Any], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {**key, "figure": figure, "group": group, **estimate}
        for figure, groups in summary["figures"].items()
        for group, estimate in groups.items()
    ]


def _level(level: Level, results: Sequence[Result]) -> dict[str, Any]:
    """Mean of every figure over the sets of one level, by group, with its interval."""

    def one(figure: str, group: str) -> dict[str, Any]:
        return _estimate(_by_set(results, level.name, figure, group))

    return {
        "switches": {name: level.to_json()[name] for name in SWITCHES},
        "figures": _of_all(one),
    }


def _step(
    before: Level, after: Level, results: Sequence[Result], *, consecutive: bool
) -> dict[str, Any]:
    """`after` minus `before` within sets, for every figure and group."""

    def one(figure: str, group: str) -> dict[str, Any]:
        a, b = (_by_set(results, level.name, figure, group) for level in (before, after))
        moved = {number: b[number] - a[number] for number in sorted(a.keys() & b.keys())}
        found = _estimate(moved)
        if not moved:
            return found | {"p": None}
        values, sets = list(moved.values()), list(moved)
        exact = 2 <= len(moved) <= FEW_CLUSTERS
        p = sign_flip_p(values, sets) if exact else clustered_mean(values, sets).p
        return found | {"p": _finite(p)}

    a, b = before.to_json(), after.to_json()
    return {
        "from": before.name,
        "to": after.name,
        "consecutive": consecutive,
        "switches_changed": [name for name in SWITCHES if a[name] != b[name]],
        "figures": _of_all(one),
    }


def _of_all(one: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    return {figure: {group: one(figure, group) for group in GROUPS} for figure in FIGURES}


def _by_set(results: Sequence[Result], level: str, figure: str, group: str) -> dict[int, float]:
    """Set → the figure at a level, where it is known."""
    own = {r.set_no: r.measures[group][figure] for r in results if r.level == level}
    return {number: float(value) for number, value in own.items() if value is not None}


def _estimate(by_set: BySet) -> dict[str, Any]:
    """Mean and interval over sets."""
    if not by_set:
        return {"estimate": None, "low": None, "high": None, "sets": 0}
    found = clustered_mean(list(by_set.values()), list(by_set))
    return {
        "estimate": _finite(found.value),
        "low": _finite(found.low),
        "high": _finite(found.high),
        "sets": found.n,
    }


def _finite(value: float) -> float | None:
    """Rounded to 12 digits, so that the last bits of sums do not differ between machines."""
    return round(value, 12) if math.isfinite(value) else None
