"""Levels compared: means over sets, and paired differences between levels within sets.

A set is the same residents at every level, so a difference is taken inside each set and then
averaged; the sets are the clusters of the 95 % intervals. Supplementary levels stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from folkmoot.measures.clustered import FEW_CLUSTERS, clustered_mean, sign_flip_p
from folkmoot.measures.estimates import Estimate
from folkmoot.studies.town_hall.levels import Level
from folkmoot.studies.town_hall.measures import FIGURES

GROUPS = ("vulnerable", "general", "gap")
SWITCHES = ("context", "models", "moderator", "think", "reflect")


@dataclass(frozen=True, slots=True)
class Result:
    """The measures of one discussion, as `measures.measures` gives them."""

    set_no: int
    level: str
    measures: Mapping[str, Any]

    def figure(self, name: str, group: str) -> float | None:
        value = self.measures[group][name]
        return None if value is None else float(value)


def compare(levels: Sequence[Level], results: Sequence[Result]) -> dict[str, Any]:
    """The content of `levels.json`."""
    main = [level for level in levels if level.part == "main"]
    apart = [level for level in levels if level.part != "main"]
    return {
        "sets": len({r.set_no for r in results}),
        "intervals": "95 %, t over sets (G − 1 degrees of freedom, G sets); null with one set",
        "figures": dict(FIGURES),
        "main": {
            "levels": {level.name: level_summary(level, results) for level in main},
            "differences": [
                difference_summary(a, b, results, consecutive=main.index(b) == main.index(a) + 1)
                for a, b in combinations(main, 2)
            ],
        },
        "supplementary": {
            "levels": {level.name: level_summary(level, results) for level in apart},
            "differences": [
                difference_summary(a, b, results, consecutive=False) for b in apart for a in main
            ],
        },
    }


def level_summary(level: Level, results: Sequence[Result]) -> dict[str, Any]:
    """Mean of every figure over the sets of one level, by group, with its interval."""
    return {
        "switches": {name: level.to_json()[name] for name in SWITCHES},
        "figures": {
            name: {group: _mean(level.name, name, group, results) for group in GROUPS}
            for name in FIGURES
        },
    }


def difference_summary(
    before: Level, after: Level, results: Sequence[Result], *, consecutive: bool
) -> dict[str, Any]:
    """`after` minus `before` within sets, for every figure and group."""
    a, b = before.to_json(), after.to_json()
    return {
        "from": before.name,
        "to": after.name,
        "consecutive": consecutive,
        "switches_changed": [name for name in SWITCHES if a[name] != b[name]],
        "figures": {
            name: {
                group: _difference(before.name, after.name, name, group, results)
                for group in GROUPS
            }
            for name in FIGURES
        },
    }


def flat_rows(comparison: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The comparison as tidy records: one per level, figure and group; one per difference."""
    means: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for part in ("main", "supplementary"):
        for level, summary in comparison[part]["levels"].items():
            for figure, group, estimate in _estimates(summary):
                means.append(
                    {"part": part, "level": level, "figure": figure, "group": group, **estimate}
                )
        for entry in comparison[part]["differences"]:
            shared = {
                "part": part,
                "from_level": entry["from"],
                "to_level": entry["to"],
                "consecutive": entry["consecutive"],
                "switches_changed": "|".join(entry["switches_changed"]),
            }
            for figure, group, estimate in _estimates(entry):
                differences.append({**shared, "figure": figure, "group": group, **estimate})
    return means, differences


def _estimates(summary: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (figure, group, dict(estimate))
        for figure, groups in summary["figures"].items()
        for group, estimate in groups.items()
    ]


def _mean(level: str, figure: str, group: str, results: Sequence[Result]) -> dict[str, Any]:
    own = [r for r in results if r.level == level]
    found = [(r.set_no, v) for r in own if (v := r.figure(figure, group)) is not None]
    return _as_json(clustered_mean([v for _, v in found], [s for s, _ in found]) if found else None)


def _difference(
    before: str, after: str, figure: str, group: str, results: Sequence[Result]
) -> dict[str, Any]:
    by_set: dict[int, dict[str, float]] = {}
    for result in results:
        value = result.figure(figure, group)
        if value is not None:
            by_set.setdefault(result.set_no, {})[result.level] = value
    both = {s: v for s, v in sorted(by_set.items()) if before in v and after in v}
    if not both:
        return _as_json(None) | {"p": None}
    moved = np.array([v[after] - v[before] for v in both.values()])
    found = clustered_mean(moved, list(both))
    exact = 2 <= len(moved) <= FEW_CLUSTERS
    return _as_json(found) | {"p": _finite(sign_flip_p(moved, list(both)) if exact else found.p)}


def _as_json(estimate: Estimate | None) -> dict[str, Any]:
    """Rounded to 12 digits, so that the last bits of sums do not differ between machines."""
    if estimate is None:
        return {"estimate": None, "low": None, "high": None, "sets": 0}
    return {
        "estimate": _finite(estimate.value),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
        "sets": estimate.n,
    }


def _finite(value: float) -> float | None:
    return round(value, 12) if math.isfinite(value) else None
