"""Hypotheses that a study file states beforehand, tested first and reported apart from the rest.

Each is a claim (`measures.claims`): a difference of two arms in one column of one table, with a
direction and the smallest difference that matters. They are read from the plan, which seals them
before the first call, and not from the study file, which can be edited afterwards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.measures.claims import (
    Claim,
    Direction,
    Kind,
    Result,
    Side,
    evaluate,
    without_result,
)
from folkmoot.measures.estimates import ALPHA, known, percent, plural
from folkmoot.measures.proportions import holm
from folkmoot.randomness import digest
from folkmoot.storage.findings import Cell, Finding, Grid, Intervals
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import by_column, name_unit, units_of

KEY = "hypotheses"  # of the finding
SECTION = "Hypotheses stated beforehand"
# Where a measure stands in several tables, the first of these that holds it is meant.
TABLES = ("participants", "discussions", "sessions", "groups", "measures", "members", "residents")


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

    def claim(self, kind: Kind = "mean", unit: str = "") -> Claim:
        """The hypothesis as a claim about a measure of this kind."""
        first, second = self.contrast
        return Claim(
            self.measure,
            self.contrast,
            kind,
            self.direction,
            self.smallest,
            "primary",
            unit or "unit of the table",
            f"The {'share' if kind == 'share' else 'mean'} of {self.measure} in {first} minus that "
            f"in {second}, among those simulated in this run; independent unit: "
            f"{unit or 'row of the table'}.",
        )

    @property
    def says(self) -> str:
        """The hypothesis in words; the size of a share is told in points once the run has one."""
        return self.claim().says


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


NOT_SEALED = (
    "Not confirmed as stated beforehand: the sealed part of plan.json no longer has the hash that "
    "it was sealed with."
)


def read_sealed(run: RunFolder) -> tuple[list[Hypothesis], bool]:
    """The hypotheses of the sealed plan, and whether the seal is whole.

    A run without a plan has those of its study file, which nothing proves to be older than the
    data.
    """
    sealed = run.plan.get("sealed", {}).get("design", {})
    if not sealed:
        return [Hypothesis.model_validate(h) for h in run.config.get("hypotheses") or ()], False
    settings = sealed.get("data", {}).get("settings", {})
    found = [Hypothesis.model_validate(h) for h in settings.get("hypotheses") or ()]
    content = json.dumps(sealed.get("data"), sort_keys=True)
    whole = sealed.get("hash") == digest(content).hex()
    if not found:  # added to the study file after the run
        return [Hypothesis.model_validate(h) for h in run.config.get("hypotheses") or ()], False
    return found, whole


def hypotheses_finding(
    run: RunFolder, hypotheses: Sequence[Hypothesis], *, sealed: bool = True
) -> Finding:
    """The finding that stands first: each hypothesis with its estimate and verdict.

    The level of all intervals is 1 − .05 / number of hypotheses (Bonferroni), so the chance that
    any null one comes out supported is at most 5 %. `sealed`: they are as in the sealed plan.
    """
    results = evaluate_hypotheses(run, hypotheses)
    alpha = ALPHA / len(hypotheses)
    rows: list[dict[str, Cell]] = []
    lines: list[tuple[str, float, float, float]] = []
    for result in results:
        e, bounds = result.estimate, result.bounds
        rows.append(
            {
                "hypothesis": result.claim.says,
                "verdict": result.verdict,
                "difference": known(e.value),
                "low": known(e.low),
                "high": known(e.high),
                "p": known(e.p),
                "units": e.units,
                "unit": result.claim.unit,
                "estimand": result.claim.estimand,
                "method": e.method or None,
                "excluded": sum(result.lost),
                "least_if_missing": bounds.low if bounds else None,
                "most_if_missing": bounds.high if bounds else None,
            }
        )
        if e.has_interval:
            lines.append((result.claim.says, e.value, e.low, e.high))
    many = f" at a level of {percent(1 - alpha, 1)} each" if len(hypotheses) > 1 else ""
    seal = "Sealed in the plan before the first call. " if sealed else f"{NOT_SEALED} "
    return Finding(
        KEY,
        "Hypotheses stated beforehand" if sealed else "Hypotheses (not confirmed as sealed)",
        " ".join([*(result.says for result in results), *([] if sealed else [NOT_SEALED])]),
        Grid.of(
            rows,
            f"95 % intervals{many}; excluded: units of which the measure is not known; least and "
            "most if missing: the difference over all ways of filling them in, without sampling "
            "error (Horowitz and Manski 2000).",
        ),
        Intervals(tuple(lines), "difference", 0.0) if lines else None,
        notes=(
            f"{seal}Supported: the whole interval lies where "
            "the hypothesis says, beyond the smallest difference that matters. Contradicted: all "
            "of it lies elsewhere. Undecided: anything else. All other findings of this run are "
            "exploratory.",
            *_caveats(results),
        ),
        section=SECTION if sealed else "Hypotheses",
        headline=True,
        alarms=() if sealed else (NOT_SEALED,),
        # Each hypothesis has its own; those with too few are not tested one by one.
        unit="unit of the table that holds the measure" if lines else "",
        units=max(result.estimate.units for result in results),
    )


def _caveats(results: Sequence[Result]) -> list[str]:
    """A sentence for each result whose sign the missing answers could change."""
    return [
        f"{result.claim.says}: {plural(sum(result.lost), 'missing answer')} could change the sign "
        f"({result.claim.signed(result.bounds.low)} to {result.claim.signed(result.bounds.high)})."
        for result in results
        if result.bounds is not None and not result.bounds.sign_holds and not result.why
    ]


def evaluate_hypotheses(run: RunFolder, hypotheses: Sequence[Hypothesis]) -> list[Result]:
    """The results of hypotheses, in order, as one family."""
    alpha = ALPHA / len(hypotheses) if hypotheses else ALPHA
    results = []
    for h in hypotheses:
        read = read_sides(run, h)
        if isinstance(read, str):
            results.append(without_result(h.claim(), read))
        else:
            results.append(evaluate(*read, alpha))
    adjusted = holm([r.estimate.p for r in results])
    several = len(results) > 1
    return [
        replace(r, adjusted_p=p if several else math.nan)
        for r, p in zip(results, adjusted, strict=True)
    ]


def read_sides(run: RunFolder, h: Hypothesis) -> tuple[Claim, Side, Side] | str:
    """The claim of a hypothesis and both of its arms, or why the run has them not."""
    table, column = _table_of(run, h.measure)
    if table is None:
        return f"no table has {h.measure} and arms"
    by = by_column(table)
    assert by is not None
    ended = table
    if "status" in table.columns:
        ended = table.filter(pl.col("status") == "complete")
    known_arms = ended[by].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list()
    if lacking := [arm for arm in h.contrast if arm not in known_arms]:
        there = f"there are {', '.join(known_arms)}" if known_arms else "nobody came to the end"
        return f"no {by} {' or '.join(lacking)}; {there}"
    value = pl.col(column)
    if "status" in table.columns:  # who did not come to the end is lost, whatever is recorded
        value = pl.when(pl.col("status") == "complete").then(value)
    units = units_of(table)
    rows = table.select(
        pl.col(by).cast(pl.String).alias("arm"), value.cast(pl.Float64).alias("value"), unit=units
    )
    sides = []
    for arm in h.contrast:
        own = rows.filter(pl.col("arm") == arm)
        sides.append(Side.of(own["value"].fill_null(math.nan).to_list(), own["unit"].to_list()))
    if empty := [arm for arm, side in zip(h.contrast, sides, strict=True) if not len(side.values)]:
        return f"{column} is unknown in {' and '.join(empty)}"
    shares = table.schema[column] == pl.Boolean
    if shares and h.smallest >= 1:
        return f"{column} is a share: write smallest: 0.05 for five points"
    claim = h.claim("share" if shares else "mean", name_unit(table))
    return claim, sides[0], sides[1]


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
