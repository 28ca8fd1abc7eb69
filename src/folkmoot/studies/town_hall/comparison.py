"""The comparison of levels (`levels.json` and the tables `levels` and `differences`).

A set is the same residents at every level, so levels are compared within each set and then averaged
over sets, which are the independent units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from typing import TypeAlias, TypedDict, TypeVar

import polars as pl

from folkmoot.measures.inference.clustered import clustered_mean, paired_difference
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import Level
from folkmoot.studies.town_hall.tables import FIGURES, GROUPS, DifferenceRow, LevelRow

SWITCHES = (
    *("context", "models", "moderator", "think", "reflect"),
    *("vulnerable", "moderator_list", "labels", "stories"),
)
BySet = Mapping[int, float]


class OverSets(TypedDict):
    """A figure's mean over sets."""

    estimate: float | None
    low: float | None
    high: float | None
    sets: int
    each: list[float]  # the sets' own values, where there are fewer than five


class Moved(OverSets):
    """The mean over sets of a difference within them."""

    p: float | None


T = TypeVar("T")
ByGroup: TypeAlias = dict[str, dict[str, T]]  # figure → group


class LevelMeans(TypedDict):
    """One level in `levels.json`."""

    switches: dict[str, object]
    figures: ByGroup[OverSets]


Step = TypedDict(
    "Step",
    {
        "from": str,
        "to": str,
        "consecutive": bool,
        "switches_changed": list[str],
        "figures": ByGroup[Moved],
    },
)


class Part(TypedDict):
    """Some levels and the differences between them."""

    levels: dict[str, LevelMeans]
    differences: list[Step]


class Comparison(TypedDict):
    """The content of `levels.json`. Supplementary levels stand apart."""

    sets: int
    intervals: str
    figures: dict[str, str]
    main: Part
    supplementary: Part


def compare_levels(run: RunFolder) -> Comparison:
    """The comparison of the levels, from the discussions of a run: of sets that are complete."""
    levels = run.plan["sealed"]["discussions"]["data"]["levels"]
    held = run.table("discussions")
    complete = held.filter(pl.col("level").n_unique().over("set") == len(levels))
    return compare([Level.from_json(level) for level in levels.values()], complete)


def compare(levels: Sequence[Level], discussions: pl.DataFrame) -> Comparison:
    """Means of levels over sets, and differences between levels within sets. `discussions` has a
    row for each set and level, with a column for each figure of each group; runs of earlier
    versions have fewer figures."""
    results = Results(discussions)
    main = [level for level in levels if level.part == "main"]
    apart = [level for level in levels if level.part != "main"]
    following = set(pairwise(level.name for level in main))
    return {
        "sets": discussions["set"].n_unique(),
        "intervals": "95 %, t over sets (G − 1 degrees of freedom, G sets); null below five sets",
        "figures": {name: words for name, words in FIGURES.items() if name in results.figures},
        "main": {
            "levels": {level.name: _level_means(level, results) for level in main},
            "differences": [
                _step(a, b, results, consecutive=(a.name, b.name) in following)
                for a, b in combinations(main, 2)
            ],
        },
        "supplementary": {
            "levels": {level.name: _level_means(level, results) for level in apart},
            "differences": [_step(a, b, results, consecutive=False) for b in apart for a in main],
        },
    }


class Results:
    """The figures of discussions, by level, figure and group."""

    def __init__(self, discussions: pl.DataFrame) -> None:
        self._of_level = {
            level: of for (level,), of in discussions.partition_by("level", as_dict=True).items()
        }
        self.figures = [name for name in FIGURES if f"gap_{name}" in discussions.columns]

    def by_set(self, level: str, figure: str, group: str) -> BySet:
        """Set → the figure at a level, where it is known."""
        if level not in self._of_level:
            return {}
        rows = self._of_level[level].select("set", f"{group}_{figure}").drop_nulls()
        return dict(rows.iter_rows())

    def map(self, one: Callable[[str, str], T]) -> ByGroup[T]:
        """What `one` gives for each figure and group."""
        return {figure: {group: one(figure, group) for group in GROUPS} for figure in self.figures}


def _level_means(level: Level, results: Results) -> LevelMeans:
    return {
        "switches": {name: level.to_json()[name] for name in SWITCHES},
        "figures": results.map(lambda f, g: _over_sets(results.by_set(level.name, f, g))),
    }


def _step(before: Level, after: Level, results: Results, *, consecutive: bool) -> Step:
    """`after` minus `before` within sets, for every figure and group."""

    def moved(figure: str, group: str) -> Moved:
        a, b = (results.by_set(level.name, figure, group) for level in (before, after))
        both = sorted(a.keys() & b.keys())
        if not both:
            return {**_over_sets({}), "p": None}
        found = paired_difference([b[n] for n in both], [a[n] for n in both], both)
        return {**_kept(found), "p": _finite(found.p)}

    a, b = before.to_json(), after.to_json()
    return {
        "from": before.name,
        "to": after.name,
        "consecutive": consecutive,
        "switches_changed": [name for name in SWITCHES if a[name] != b[name]],
        "figures": results.map(moved),
    }


def _over_sets(by_set: BySet) -> OverSets:
    if not by_set:
        return {"estimate": None, "low": None, "high": None, "sets": 0, "each": []}
    return _kept(_estimate_mean(tuple(by_set.values()), tuple(by_set)))


# The tables, the file and the findings of a run are made one after the other of the same figures.
@lru_cache(maxsize=4096)
def _estimate_mean(values: tuple[float, ...], sets: tuple[int, ...]) -> Estimate:
    return clustered_mean(values, sets)


def _kept(e: Estimate) -> OverSets:
    return {
        "estimate": _finite(e.value),
        "low": _finite(e.low),
        "high": _finite(e.high),
        "sets": e.n,
        "each": list(e.each),
    }


def _finite(value: float) -> float | None:
    """Rounded to 12 digits, so that the last bits of sums do not differ between machines."""
    return round(value, 12) if math.isfinite(value) else None


def comparison_rows(comparison: Comparison) -> Iterator[Row]:
    """The levels and the differences between them, a row for each figure and group."""
    for name, part in (
        ("main", comparison["main"]),
        ("supplementary", comparison["supplementary"]),
    ):
        for level, summary in part["levels"].items():
            for figure, group, mean in _each(summary["figures"]):
                yield LevelRow.of(mean, part=name, level=level, figure=figure, group=group)
        for step in part["differences"]:
            about: dict[str, object] = {
                "part": name,
                "from_level": step["from"],
                "to_level": step["to"],
            }
            switches = "|".join(step["switches_changed"])
            about |= {"consecutive": step["consecutive"], "switches_changed": switches}
            for figure, group, moved in _each(step["figures"]):
                yield DifferenceRow.of(moved, **about, figure=figure, group=group)


def _each(figures: ByGroup[T]) -> Iterator[tuple[str, str, T]]:
    for figure, groups in figures.items():
        for group, found in groups.items():
            yield figure, group, found
