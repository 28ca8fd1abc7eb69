"""How answers spread: numbers in bins, options in shares, by treatment."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from folkmoot.measures.estimates import percent, plural
from folkmoot.records.findings import Bars, Finding, Grid
from folkmoot.studies.workbook.findings.data import MOST_MEASURES, Measure

MOST_BARS = 12


def distribution(measure: Measure, values: pl.DataFrame, arms: Sequence[str]) -> Finding:
    data = values.filter(pl.col("name").is_in(measure.variables))
    numbers = data["number"].to_numpy()
    labels = _bins(numbers)
    rows, bars = [], []
    for arm in arms:
        mine = [label for label, a in zip(labels.of, data["treatment"], strict=True) if a == arm]
        for label in labels.names:
            share = mine.count(label) / len(mine) if mine else 0.0
            rows.append({"treatment": arm, measure.name: label, "share": share})
            bars.append((label, arm, share))
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    middle = float(np.median(numbers)) if len(numbers) else 0.0
    return Finding(
        key=f"distribution_{measure.name}",
        title=f"{measure.name}, how answers spread",
        says=f"Answers run from {low:.3g} to {high:.3g}; half of them are at or below "
        f"{middle:.3g} ({plural(len(numbers), 'answer')}).",
        grid=Grid.of(rows),
        chart=Bars(tuple(bars), unit="share of answers", percent=True),
        section="Answers",
    )


@dataclass(frozen=True)
class _Bins:
    names: list[str]
    of: list[str]


def _bins(numbers: np.ndarray) -> _Bins:
    """Values as they are where there are few, else equal steps."""
    distinct = sorted(set(numbers.tolist()))
    if len(distinct) <= MOST_BARS:
        return _Bins([f"{v:g}" for v in distinct], [f"{v:g}" for v in numbers])
    edges = np.linspace(distinct[0], distinct[-1], MOST_BARS // 2 + 1)
    names = [f"{a:.3g}–{b:.3g}" for a, b in itertools.pairwise(edges)]
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(names) - 1)
    return _Bins(names, [names[i] for i in places])


def shares(
    responses: pl.DataFrame, arms: Sequence[str], listed: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """Answers chosen from a list, by treatment; `listed`: the options in the sheet's order."""
    found = []
    chosen = responses.filter(
        pl.col("options").is_not_null() & (pl.col("status") == "valid") & pl.col("number").is_null()
    )
    for name in chosen["var_name"].unique(maintain_order=True).to_list()[:MOST_MEASURES]:
        mine = chosen.filter(var_name=name)
        counts = Counter(mine["value"].to_list())
        options = list(dict.fromkeys([*listed.get(name, ()), *counts]))
        rows, bars = [], []
        for arm in arms:
            answers = mine.filter(treatment=arm)["value"].to_list()
            for option in options:
                share = answers.count(option) / len(answers) if answers else 0.0
                rows.append({"treatment": arm, "answer": option, "share": share})
                bars.append((option, arm, share))
        top, n = counts.most_common(1)[0]
        found.append(
            Finding(
                key=f"answers_{name}",
                title=f"{name}, by treatment",
                says=f'Most often "{top}" ({percent(n / mine.height)} of '
                f"{plural(mine.height, 'answer')}).",
                grid=Grid.of(rows),
                chart=Bars(tuple(bars), unit="share of answers", percent=True),
                section="Answers",
            )
        )
    return found
