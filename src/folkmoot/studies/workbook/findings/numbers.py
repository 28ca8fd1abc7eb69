"""Numeric measures: round by round, between treatments, between values of the constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from folkmoot.measures.clustered import clustered_difference, label_shuffle_p
from folkmoot.measures.estimates import plural
from folkmoot.records.findings import Finding, Grid, Intervals, Lines
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.workbook.findings.data import (
    CLUSTER,
    Measure,
    cell,
    clusters_of,
    mean_of,
    per_participant,
    signed,
    span,
)


def by_round(measure: Measure, data: pl.DataFrame, arms: Sequence[str]) -> Finding:
    number = {variable: k for k, variable in measure.rounds}
    rows: list[dict[str, str | float | int]] = []
    lines: list[tuple[str, float, float]] = []
    for arm in arms:
        for variable, k in number.items():
            mine = data.filter(treatment=arm, name=variable)["number"]
            if mine.is_empty():
                continue
            mean = float(np.mean(mine.to_numpy()))
            rows.append({"treatment": arm, "round": k, "mean": mean, "n": len(mine)})
            lines.append((arm, float(k), mean))
    said = "; ".join(_course(arm, [p for p in lines if p[0] == arm]) for arm in arms)
    return Finding(
        key=f"rounds_{measure.name}",
        title=f"{measure.name}, round by round",
        says=f"Mean {measure.name} under {said}.",
        grid=Grid.of(rows),
        chart=Lines(tuple(lines), x="round", y=measure.name),
        section="Rounds",
        headline=measure.computed,
    )


def _course(arm: str, points: Sequence[tuple[str, float, float]]) -> str:
    if not points:
        return f"{arm}: no values"
    first, last = points[0], points[-1]
    start, end = f"{first[2]:.3g} in round {first[1]:.0f}", f"{last[2]:.3g} in round {last[1]:.0f}"
    return f"{arm}: {start}, {end}"


def by_treatment(
    measure: Measure, data: pl.DataFrame, arms: Sequence[str], *, main: bool = True
) -> Finding:
    """A measure compared between treatments; `main` puts it among the main findings."""
    people = per_participant(data)
    estimates = {arm: mean_of(people.filter(treatment=arm)) for arm in arms}
    estimates = {arm: e for arm, e in estimates.items() if e.n}
    rows = [
        {
            "treatment": arm,
            "mean": e.value,
            "low": cell(e.low),
            "high": cell(e.high),
            "participants": e.n,
            "sessions": e.clusters,
        }
        for arm, e in estimates.items()
    ]
    says, notes = _compared(measure, people, list(estimates))
    spans = tuple(span(arm, e) for arm, e in estimates.items())
    return Finding(
        key=f"treatment_{measure.name}",
        title=f"{measure.name}, by treatment",
        says=says,
        grid=Grid.of(rows, "95 % intervals, clustered by session"),
        chart=Intervals(spans, unit=measure.name) if len(spans) > 1 else None,
        notes=notes,
        section="Treatments",
        headline=main and len(spans) > 1,
    )


def _compared(
    measure: Measure, people: pl.DataFrame, arms: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    over = f" (mean of {len(measure.rounds)} rounds)" if len(measure.rounds) > 1 else ""
    what = f"{measure.name}{over}"
    if len(arms) < 2:
        mean = float(people["number"].mean() or 0)  # type: ignore[arg-type]
        return f"Mean {what}: {mean:.3g} over {plural(people.height, 'participant')}.", ()
    said = [_contrast(people, arms[0], arm) for arm in arms[1:]]
    sessions = people.select(*CLUSTER).n_unique()
    notes = (
        f"{plural(sessions, 'session')} in all: with so few, even large differences can be chance."
        if sessions < 12
        else "Sessions are the units that were assigned.",
    )
    return f"For {what}, {'; '.join(said)}.", notes


def _contrast(people: pl.DataFrame, base: str, arm: str) -> str:
    both = people.filter(pl.col("treatment").is_in([base, arm]))
    treated = (both["treatment"] == arm).to_numpy()
    means = {a: _session_means(both.filter(treatment=a)) for a in (base, arm)}
    gap = float(np.mean(both["number"].to_numpy()[treated])) - float(
        np.mean(both["number"].to_numpy()[~treated])
    )
    head = f"{arm} minus {base} is {signed(gap)}"
    if min(len(m) for m in means.values()) < 2:
        return f"{head}, with too few sessions for an interval"
    found = clustered_difference(both["number"].to_numpy(), treated, clusters_of(both))
    p = label_shuffle_p(means[arm], means[base])
    exact = f", p = {p:.2g} by relabelling sessions" if math.isfinite(p) else ""
    return f"{head} (95 % interval {signed(found.low)} to {signed(found.high)}{exact})"


def _session_means(people: pl.DataFrame) -> list[float]:
    return (
        people.group_by(CLUSTER, maintain_order=True)
        .agg(pl.col("number").mean())["number"]
        .to_list()
    )


def by_constants(
    run: RunFolder, measures: Sequence[Measure], values: pl.DataFrame
) -> list[Finding]:
    """How each measure differs between the values of the constants."""
    if not run.has_table("permutations"):
        return []
    table = run.table("permutations")
    if table["experiment_id"].n_unique() < 2:
        return []
    labels = {
        experiment: ", ".join(
            f"{r['constant']} = {r['value']}"
            for r in table.filter(experiment_id=experiment).to_dicts()
        )
        for experiment in table["experiment_id"].unique(maintain_order=True).to_list()
    }
    found = []
    for measure in measures:
        people = per_participant(values.filter(pl.col("name").is_in(measure.variables)))
        means = {label: mean_of(people.filter(experiment_id=e)) for e, label in labels.items()}
        means = {label: e for label, e in means.items() if e.n}
        if len(means) < 2:
            continue
        rows = [
            {"experiment": label, "mean": e.value, "low": cell(e.low), "high": cell(e.high)}
            for label, e in means.items()
        ]
        spans = tuple(span(label, e) for label, e in means.items())
        found.append(
            Finding(
                key=f"constants_{measure.name}",
                title=f"{measure.name}, by constants",
                says=_extremes(measure.name, {label: e.value for label, e in means.items()}),
                grid=Grid.of(rows, "95 % intervals, clustered by session"),
                chart=Intervals(spans[:40], unit=measure.name),
                section="Constants",
                headline=True,
            )
        )
    return found


def _extremes(name: str, means: Mapping[str, float]) -> str:
    """Where a mean is lowest and highest, unless it is the same as far as it is shown."""
    ordered = sorted(means, key=lambda label: means[label])
    low, high = (f"{means[label]:.3g}" for label in (ordered[0], ordered[-1]))
    if low == high:
        return f"Mean {name} is {low} with all of them."
    return (
        f"Mean {name} is lowest with {ordered[0]} ({low}) and highest with {ordered[-1]} ({high})."
    )
