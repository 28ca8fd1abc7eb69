"""Hypotheses that a study file states beforehand, tested first and reported apart from the rest.

They are part of the settings that the plan seals before the first call. Each is a difference of two
arms in one column of one table, with a direction and the smallest difference that matters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.measures.clustered import clustered_difference, paired_difference
from folkmoot.measures.estimates import (
    ALPHA,
    FEWEST_UNITS,
    Estimate,
    known,
    p_value,
    percent,
    points,
)
from folkmoot.measures.proportions import newcombe
from folkmoot.storage.findings import Cell, Finding, Grid, Intervals
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import PEOPLE, by_column, cluster_column

SECTION = "Hypotheses stated beforehand"
# Where a measure stands in several tables, the first of these that holds it is meant.
TABLES = ("participants", "discussions", "sessions", "groups", "measures", "members", "residents")
Direction = Literal["greater", "less", "different", "equivalent"]


class Hypothesis(BaseModel):
    """One hypothesis of a study file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: str = Field(
        min_length=1, description="column of a table, e.g. `position_changed` or `votes.choice`"
    )
    contrast: tuple[str, str] = Field(description="two arms; the difference is first minus second")
    direction: Direction = Field(description="greater, less, different or equivalent")
    smallest: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="smallest difference that matters"
    )
    expected: float | None = Field(
        None,
        allow_inf_nan=False,
        description="difference that is expected; `folkmoot power` computes with it",
    )

    @field_validator("contrast")
    @classmethod
    def _two_arms(cls, contrast: tuple[str, str]) -> tuple[str, str]:
        if contrast[0] == contrast[1]:
            raise ValueError("must name two different arms")
        return contrast

    @property
    def says(self) -> str:
        """The hypothesis in words."""
        first, second = contrast = self.contrast
        by = f" by more than {self.smallest:g}" if self.smallest else ""
        words = {
            "greater": f"{first} exceeds {second}{by}",
            "less": f"{first} falls below {second}{by}",
            "different": f"{first} and {second} differ{by}",
            "equivalent": f"{contrast[0]} and {contrast[1]} differ by less than {self.smallest:g}",
        }
        return f"{self.measure}: {words[self.direction]}"


def mistakes(
    hypotheses: Sequence[Hypothesis], tables: Mapping[str, Collection[str]]
) -> list[Problem]:
    """What can be known to be wrong before a run. `tables`: table → the columns it declares."""
    found = []
    columns = {column for own in tables.values() for column in own}
    for n, each in enumerate(hypotheses, 1):
        key = f"hypotheses[{n}]"
        table, _, column = each.measure.rpartition(".")
        known = tables.get(table, ()) if table else columns
        if tables and column not in known:
            hint = did_you_mean(column, sorted(known or columns))
            where = f"the table {table}" if table in tables else "any table of this study"
            found.append(Problem(f"there is no column {column} in {where}", key=key, hint=hint))
        if each.direction == "equivalent" and not each.smallest:
            hint = "write smallest: with the largest difference that still counts as none"
            found.append(Problem("equivalent needs a margin", key=f"{key}.smallest", hint=hint))
    return found


def hypotheses_finding(run: RunFolder, hypotheses: Sequence[Hypothesis]) -> Finding:
    """The finding that stands first: each hypothesis with its estimate and verdict.

    The level of all intervals is 1 − .05 / number of hypotheses (Bonferroni), so the chance that
    any null one comes out supported is at most 5 %.
    """
    alpha = ALPHA / len(hypotheses)
    rows: list[dict[str, Cell]] = []
    lines: list[tuple[str, float, float, float]] = []
    words = []
    units = [0]
    for each in hypotheses:
        e, shares, why = _difference(run, each, 1 - alpha)
        verdict = why or verdict_of(each, e, alpha)
        words.append(f"{each.says}: {verdict}{_size(e, shares)}.")
        rows.append(
            {
                "hypothesis": each.says,
                "verdict": verdict,
                "difference": known(e.value),
                "low": known(e.low),
                "high": known(e.high),
                "p": known(e.p),
                "units": e.clusters or e.n,
            }
        )
        units.append(e.units)
        if e.has_interval:
            lines.append((each.says, e.value, e.low, e.high))
    many = f" at a level of {percent(1 - alpha, 1)} each" if len(hypotheses) > 1 else ""
    return Finding(
        "hypotheses",
        "Hypotheses stated beforehand",
        " ".join(words),
        Grid.of(rows, f"95 % intervals{many}; units: independent units in both arms."),
        Intervals(tuple(lines), "difference", 0.0) if lines else None,
        notes=(
            "Sealed in the plan before the first call. Supported: the whole interval lies where "
            "the hypothesis says, beyond the smallest difference that matters. Contradicted: all "
            "of it lies elsewhere. Undecided: anything else. All other findings of this run are "
            "exploratory.",
        ),
        section=SECTION,
        headline=True,
        # Each hypothesis has its own; those with too few are not tested one by one.
        unit="unit of the table that holds the measure" if lines else "",
        units=max(units),
    )


def verdict_of(h: Hypothesis, e: Estimate, alpha: float) -> str:
    """Supported, contradicted or undecided; with few units the exact p must agree."""
    if not e.has_interval:
        return "undecided"
    low, high = (-e.high, -e.low) if h.direction == "less" else (e.low, e.high)
    m = h.smallest
    above, below, within = low > m, high < -m, -m <= low and high <= m
    sure = not math.isfinite(e.p) or e.p < alpha
    if h.direction == "equivalent":
        return "supported" if within else "contradicted" if above or below else "undecided"
    if h.direction == "different":
        if (above or below) and sure:
            return "supported"
        return "contradicted" if within and m else "undecided"
    if above and sure:
        return "supported"
    return "contradicted" if high <= m else "undecided"


def _difference(run: RunFolder, h: Hypothesis, level: float) -> tuple[Estimate, bool, str]:
    """The difference of the arms, whether it is one of shares, and why there is none."""
    none = Estimate(math.nan, math.nan, math.nan, 0)
    table, column = _table_of(run, h.measure)
    if table is None:
        return none, False, f"cannot be tested (no table has {h.measure} and arms)"
    by = by_column(table)
    assert by is not None
    if "status" in table.columns:
        table = table.filter(pl.col("status") == "complete")
    known = table[by].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list()
    if lacking := [arm for arm in h.contrast if arm not in known]:
        there = f"there are {', '.join(known)}" if known else "nobody came to the end"
        return none, False, f"cannot be tested (no {by} {' or '.join(lacking)}; {there})"
    table = table.filter(pl.col(column).is_not_null())
    arms = [table.filter(pl.col(by).cast(pl.String) == arm) for arm in h.contrast]
    if empty := [arm for arm, own in zip(h.contrast, arms, strict=True) if not own.height]:
        return none, False, f"cannot be tested ({column} is unknown in {' and '.join(empty)})"
    shares = table.schema[column] == pl.Boolean
    if shares and h.smallest >= 1:
        why = f"{column} is a share: write smallest: 0.05 for five points"
        return none, False, f"cannot be tested ({why})"
    e = _estimate(arms, column, shares, level)
    units = e.clusters or min(own.height for own in arms)
    if units < FEWEST_UNITS:
        e = replace(e, low=math.nan, high=math.nan, p=math.nan)
        return e, shares, f"not tested ({units} independent units are an illustration)"
    return e, shares, ""


def _estimate(arms: Sequence[pl.DataFrame], column: str, shares: bool, level: float) -> Estimate:
    first, second = ([float(v) for v in own[column].to_list()] for own in arms)
    cluster = cluster_column(arms[0]) or _repeated(pl.concat(arms))
    if cluster is None:
        if shares:
            return newcombe(int(sum(first)), len(first), int(sum(second)), len(second), level)
        ids = [("unit", n) for n in range(len(first) + len(second))]
        sides = [True] * len(first) + [False] * len(second)
        return clustered_difference([*first, *second], sides, ids, level)
    means = [own.group_by(cluster).agg(pl.col(column).cast(pl.Float64).mean()) for own in arms]
    both = means[0].join(means[1], on=cluster, how="inner", suffix="_second").sort(cluster)
    if both.height == means[0].height == means[1].height:  # the same clusters in both arms
        pairs = (both[column].to_list(), both[f"{column}_second"].to_list())
        return paired_difference(*pairs, both[cluster].to_list(), level)
    sides = [True] * len(first) + [False] * len(second)
    groups = [*arms[0][cluster].to_list(), *arms[1][cluster].to_list()]
    return clustered_difference([*first, *second], sides, groups, level)


def _repeated(table: pl.DataFrame) -> str | None:
    """The column of people, where some have several rows: then people are independent, not rows."""
    who = next((c for c in PEOPLE if c in table.columns), None)
    return who if who and table[who].is_duplicated().any() else None


def _table_of(run: RunFolder, measure: str) -> tuple[pl.DataFrame | None, str]:
    """The table that a measure is read from, and its column."""
    named, _, column = measure.rpartition(".")
    order = [named] if named else [*TABLES, *run.tables()]
    for name in order:
        if name in ("answers", "utterances") or not run.has_table(name):
            continue
        table = run.table(name)
        kind = table.schema.get(column)
        usable = kind is not None and (kind.is_numeric() or kind == pl.Boolean)
        if usable and by_column(table) is not None:
            return table, column
    return None, column


def _size(e: Estimate, shares: bool) -> str:
    if not math.isfinite(e.value):
        return ""
    size = points(e.value) if shares else f"{e.value:+.2f}".replace("-", "−")
    return f" ({size}, {p_value(e.p)})" if math.isfinite(e.p) else f" ({size})"
