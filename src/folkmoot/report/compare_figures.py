"""Numeric measures that runs share, compared with intervals clustered by conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from folkmoot.measures.clustered import clustered_difference, clustered_mean
from folkmoot.measures.estimates import Estimate, plural
from folkmoot.measures.proportions import holm
from folkmoot.records.findings import Cell, Finding, Grid
from folkmoot.report.samples import (
    Sample,
    by_column,
    cluster_column,
    condition_name,
    known,
    split,
)

SECTION = "Comparison"
# Tables of one row per conversation with its measures come first; they make the rest superfluous.
SUMMARIES = ("measures", "discussions", "sessions")
TABLES = ("participants", "groups", "satisfaction", "intents", "opinions")
_NOT_MEASURES = (
    "id",
    "no",
    "number",
    "seed",
    "turn",
    "question",
    "round",
    "place",
    "row",
    "x",
    "y",
    "age",
)
_MOST_FIGURES = 25


def figures(found: Sequence[Sample]) -> Finding | None:
    """Numeric measures that all runs record, per condition, clustered by conversation."""
    rows: list[dict[str, Cell]] = []
    tests: list[tuple[str, str, str, Estimate]] = []
    for table, column in _shared_figures(found):
        parts = [split(s.tables[table]) for s in found]
        for condition in parts[0]:
            first = _values(parts[0][condition], column)
            for s, own in zip(found[1:], parts[1:], strict=True):
                if condition not in own:
                    continue
                second = _values(own[condition], column)
                d = _clustered(first, second)
                if d is None:
                    continue
                means = [clustered_mean(*v).value for v in (first, second)]
                rows.append(
                    {
                        "measure": column,
                        "condition": condition_name(condition),
                        found[0].name: means[0],
                        "run": s.name,
                        "there": means[1],
                        "difference": d.value,
                        "low": known(d.low),
                        "high": known(d.high),
                    }
                )
                tests.append((column, condition, s.name, d))
    if not rows:
        return None
    adjusted = holm([d.p for *_, d in tests])
    clear = [t for t, p in zip(tests, adjusted, strict=True) if p < 0.05]
    says = (
        "Clear differences: "
        + "; ".join(
            f"{c} in {condition_name(k)}, {run} {d.value:+.3g}" for c, k, run, d in clear[:8]
        )
        + "."
        if clear
        else f"None of {plural(len(tests), 'comparison')} of measures shows a difference beyond "
        "chance (Holm-adjusted)."
    )
    return Finding(
        "compare_figures",
        "Measures, run by run",
        says,
        Grid.of(rows, "Means and differences; 95 % intervals clustered by conversation."),
        notes=("Units that shared a conversation are one cluster; without such a column, rows.",),
        section=SECTION,
    )


def _shared_figures(found: Sequence[Sample]) -> list[tuple[str, str]]:
    """Numeric columns of tables that all samples have, ids and counters left out."""
    tables = [t for t in found[0].tables if all(t in s.tables for s in found)]
    summaries = [t for t in SUMMARIES if t in tables]
    wanted = summaries[:1] or [t for t in TABLES if t in tables]
    pairs = [
        (t, c)
        for t in wanted
        for c, kind in found[0].tables[t].schema.items()
        if kind.is_numeric()
        and c not in (by_column(found[0].tables[t]), cluster_column(found[0].tables[t]))
        and c.split("_")[-1] not in _NOT_MEASURES
        and not c.startswith("demographic_")
        and all(c in s.tables[t].columns and s.tables[t].schema[c].is_numeric() for s in found)
    ]
    # A gap between groups says more than its two sides.
    pairs.sort(key=lambda pair: not pair[1].startswith("gap_"))
    return pairs[:_MOST_FIGURES]


def _values(part: pl.DataFrame, column: str) -> tuple[list[float], list[Any]]:
    told = part.filter(pl.col(column).is_not_null())
    by = cluster_column(told)
    clusters = told[by].to_list() if by else list(range(told.height))
    return [float(v) for v in told[column].to_list()], clusters


def _clustered(
    first: tuple[list[float], list[Any]], second: tuple[list[float], list[Any]]
) -> Estimate | None:
    if not first[0] or not second[0]:
        return None
    values = [*first[0], *second[0]]
    treated = [False] * len(first[0]) + [True] * len(second[0])
    groups = [("first", c) for c in first[1]] + [("second", c) for c in second[1]]
    if len(set(values)) < 2:
        return None
    return clustered_difference(values, treated, groups)
