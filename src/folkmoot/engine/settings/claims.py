"""Claims read from the tables of a run: those of the study type and those of the study file.

`read_sides` is the only reader of both arms of a claim, and `evaluate_claims` the only place where
the claims of a run are put together as families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl
from pydantic import BaseModel, ValidationError

from folkmoot.measures.inference.claims import (
    ACROSS,
    Claim,
    Family,
    Read,
    Result,
    Side,
    judge_families,
)
from folkmoot.measures.inference.estimates import finite_or_none, format_count, format_percent
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    CONDITION_COLUMNS,
    DRAW,
    PARTICIPANT_COLUMNS,
    condition_column,
    units_of,
)

Config = TypeVar("Config", bound=BaseModel)
# Where a measure stands in several tables, the first of these that holds it is meant.
TABLES = ("participants", "discussions", "sessions", "groups", "measures", "members", "residents")
COMPLETE = "complete"
ENDINGS = (COMPLETE, "failed", "skipped", "pending")  # levels of `status` that say how rows ended


def read_declared(
    run: RunFolder, config: type[Config], declare: Callable[[Config], Sequence[Claim]]
) -> Sequence[Claim]:
    """The claims that a study type declares for a run; none where the run's settings are those of a
    version that this one cannot read."""
    try:
        return declare(config.model_validate(run.config))
    except ValidationError:
        return ()


def join_claims(stated: Sequence[Claim], declared: Sequence[Claim]) -> list[Claim]:
    """Hypotheses of a study file and the claims that its study type declares, as one list.

    Where hypotheses are stated they are the primary family, and all else is exploratory. A declared
    claim that a hypothesis states as well is left to the hypothesis.
    """
    if not stated:
        return list(declared)
    others = [claim for claim in declared if not any(is_same_contrast(claim, h) for h in stated)]
    return [*stated, *(replace(claim, family="exploratory") for claim in others)]


def is_same_contrast(claim: Claim, stated: Claim) -> bool:
    """Whether a hypothesis is about the contrast of a declared claim, in the same rows."""
    measure = claim.measure if "." in stated.measure else claim.measure.rpartition(".")[2]
    plain = not claim.where and claim.at_least is None
    return plain and (measure, claim.contrast) == (stated.measure, stated.contrast)


def evaluate_claims(run: RunFolder, claims: Sequence[Claim]) -> list[Result]:
    """The results of claims, in order, each allowing for the others of its family."""
    return judge_families(claims, ClaimReader(run).read_sides)


FAMILIES: tuple[Family, ...] = ("primary", "secondary", "exploratory")


def tested_finding(results: Sequence[Result]) -> Finding | None:
    """What was tested in the whole report: one row a claim, family by family; None without any.
    Primary claims are in it that could not be tested as well."""
    known_arms = [
        result for result in results if result.counts != (0, 0) or result.claim.family == "primary"
    ]
    if not known_arms:
        return None
    ordered = [
        result for family in FAMILIES for result in known_arms if result.claim.family == family
    ]
    size = {family: sum(result.claim.family == family for result in ordered) for family in FAMILIES}
    told = ", ".join(f"{n} {family}" for family, n in size.items() if n)
    tests = sum(result.is_tested for result in ordered)
    return Finding(
        "claims_tested",
        "What was tested",
        f"{format_count(len(ordered), 'claim')} ({told}), of which {tests} could be tested.",
        ResultTable.from_records(
            [
                {
                    "claim": result.claim.says,
                    "family": result.claim.family,
                    "estimand": result.claim.estimand,
                    "unit": result.claim.unit,
                    "units": result.estimate.unit_count,
                    "model": result.estimate.method or "none",
                    "level": format_percent(result.level, 1)
                    if result.estimate.has_interval
                    else "none",
                    "result": result.verdict_phrase
                    if result.claim.family == "primary" or result.why
                    else "no conclusion",
                    "excluded_first": result.lost[0],
                    "excluded_second": result.lost[1],
                    "least_if_missing": finite_or_none(result.bounds.low)
                    if result.bounds
                    else None,
                    "most_if_missing": finite_or_none(result.bounds.high)
                    if result.bounds
                    else None,
                }
                for result in ordered
            ],
            "Excluded: subjects of whom the measure is not known. Least and most if missing: the "
            "difference over all ways of filling them in, without sampling error (Horowitz and "
            "Manski 2000).",
        ),
        notes=(
            "Primary claims answer the main question of the study and were fixed before the run: "
            "their intervals hold together (Bonferroni). Secondary and exploratory claims have "
            "families of their own and 95 % intervals one by one, and nothing is concluded from "
            "them.",
        ),
        section="What was tested",
    )


def read_sides(run: RunFolder, claim: Claim) -> Read:
    """A claim and both of its arms, or why the run has them not; see `ClaimReader`."""
    return ClaimReader(run).read_sides(claim)


class ClaimReader:
    """Reads the claims of a run. What several claims need of a table is read once."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._tables: dict[tuple[str, ...], pl.DataFrame] = {}

    def read_sides(self, claim: Claim) -> Read:
        """A claim and both of its arms, or why the run has them not.

        The claim comes back with its kind, unit and estimand as the table has them. Subjects of
        whom the measure is not known are counted as lost; so are those who did not come to the
        end, and of a paired claim those who are observed in one arm alone.
        """
        table, column = self._table_of(claim)
        if table is None:
            return f"no table has {claim.measure} and arms"
        return _sides_of(table, column, claim)

    def _table_of(self, claim: Claim) -> tuple[pl.DataFrame | None, str]:
        """The table that a measure is read from, and its column."""
        named, _, column = claim.measure.rpartition(".")
        for name in [named] if named else [*TABLES, *self._run.table_names()]:
            if name in ("answers", "utterances") or not self._run.has_table(name):
                continue
            schema = self._run.scan_table(name).collect_schema()
            across = claim.by == ACROSS
            kinds = [
                schema.get(column)
                for column in (_arm_columns(claim, column) if across else [column])
            ]
            usable = all(kind and (kind.is_numeric() or kind == pl.Boolean) for kind in kinds)
            if usable and (
                across
                or any(by in schema for by in ([claim.by] if claim.by else CONDITION_COLUMNS))
            ):
                return self._read_columns(name, claim, column), column
        return None, column

    def _read_columns(self, name: str, claim: Claim, column: str) -> pl.DataFrame:
        """What a claim needs of a table: texts of participants take much memory."""
        asked = (column, claim.by, *claim.subject, *(name for name, _ in claim.where))
        asked += tuple(_arm_columns(claim, column)) if claim.by == ACROSS else ()
        table = self._run.scan_table(name)
        needed = {
            *asked,
            "status",
            DRAW,
            *CONDITION_COLUMNS,
            *CLUSTER_COLUMNS,
            *PARTICIPANT_COLUMNS,
        }
        columns = [column for column in table.collect_schema().names() if column in needed]
        key = name, *columns
        if key not in self._tables:
            self._tables[key] = table.select(columns).collect()
        return self._tables[key]


def read_rows(table: pl.DataFrame, column: str, claim: Claim) -> tuple[Claim, pl.DataFrame] | str:
    """The measure of a claim in its table, one row for each subject in an arm: the columns of the
    subject, `arm`, `value` (unknown: null) and `unit`. With the claim as the table has it, or why
    there is nothing.
    """
    if claim.by == ACROSS:
        table = _lengthen(table, column, claim)
    by = claim.by or condition_column(table)
    if by is None or by not in table.columns:
        return f"the table of {claim.measure} has no {by or 'arms'}"
    for name, values in claim.where:
        if name not in table.columns:
            return f"the table of {claim.measure} has no {name}"
        table = table.filter(pl.col(name).is_in(list(values), nulls_equal=True))
    value = pl.col(column).cast(pl.Float64)
    if claim.at_least is not None:
        value = (value >= claim.at_least).cast(pl.Float64)
    ended = table
    if "status" in table.columns and table["status"].is_in(ENDINGS).any():
        # Who did not come to the end is lost, whatever is recorded.
        ended = table.filter(pl.col("status") == COMPLETE)
        value = pl.when(pl.col("status") == COMPLETE).then(value)
    known_arms = ended[by].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list()
    if lacking := [arm for arm in claim.contrast if arm not in known_arms]:
        there = f"there are {', '.join(known_arms)}" if known_arms else "nobody came to the end"
        return f"no {by} {' or '.join(dict.fromkeys(lacking))}; {there}"
    units = units_of(table)
    rows = table.select(
        *claim.subject, arm=pl.col(by).cast(pl.String), value=value, unit=units.of
    ).filter(pl.col("arm").is_in(claim.contrast))
    if claim.subject:
        means = rows.group_by("arm", *claim.subject, "unit", maintain_order=True)
        rows = means.agg(pl.col("value").mean())
    shares = claim.at_least is not None or table.schema[column] == pl.Boolean
    if shares and claim.margin >= 1:
        return f"{column} is a share: write smallest: 0.05 for five points"
    return replace(claim, kind="share" if shares else "mean", unit=units.name), rows


def _arm_columns(claim: Claim, column: str) -> list[str]:
    """The columns of the arms of a claim that compares columns of a row."""
    return [f"{arm}_{column}" for arm in claim.contrast]


def _lengthen(table: pl.DataFrame, column: str, claim: Claim) -> pl.DataFrame:
    """A table with a row for each arm, of a claim that compares columns of a row."""
    return pl.concat(
        table.with_columns(pl.col(own).alias(column), pl.lit(arm).alias(ACROSS))
        for arm, own in zip(claim.contrast, _arm_columns(claim, column), strict=True)
    )


def _sides_of(table: pl.DataFrame, column: str, claim: Claim) -> Read:
    read = read_rows(table, column, claim)
    if isinstance(read, str):
        return read
    found, rows = read
    one, other = (rows.filter(pl.col("arm") == arm) for arm in claim.contrast)
    first, second = (
        pair_sides(one, other, claim.subject) if claim.paired else (side_of(one), side_of(other))
    )
    if empty := [
        a for a, side in zip(claim.contrast, (first, second), strict=True) if not side.units
    ]:
        return f"{column} is unknown in {' and '.join(empty)}"
    return replace(found, estimand=claim.estimand or _describe_estimand(found)), first, second


def side_of(rows: pl.DataFrame) -> Side:
    """One arm with its own subjects."""
    return Side.from_values(rows["value"].fill_null(math.nan).to_list(), rows["unit"].to_list())


def pair_sides(
    first: pl.DataFrame, second: pl.DataFrame, subject: Sequence[str]
) -> tuple[Side, Side]:
    """Both arms over the subjects that are known in both, in the order of the first arm."""
    keys = [*subject, "unit"]
    one, two = (rows.select(*keys, "value") for rows in (first, second))
    both = one.join(two, on=keys, how="full", coalesce=True, maintain_order="left_right")
    known = both.drop_nulls(["value", "value_right"])
    units, lost = tuple(known["unit"].to_list()), both.height - known.height
    subjects = tuple(known.select(keys).iter_rows())
    left, right = (
        Side(known[name].to_numpy(), units, lost, subjects) for name in ("value", "value_right")
    )
    return left, right


def as_declared(
    claim: Claim, tables: Mapping[str, Mapping[str, str]], others: Sequence[Claim] = ()
) -> Claim:
    """A claim of a study file with the kind of its measure, its unit and its estimand, as they are
    known before a run. `tables`: table → column → kind. Where one of the `others`, which the study
    type declares, is on the same arms of the same measure, its unit is taken."""
    table, kind = find_declared(claim.measure, tables)
    if kind is None:
        return claim
    measure = claim.measure.rpartition(".")[2]
    same = (
        other.unit
        for other in others
        if other.measure == f"{table}.{measure}" and {*other.contrast} == {*claim.contrast}
    )
    columns = pl.DataFrame(schema=dict.fromkeys(tables[table], pl.String))
    unit = next(same, units_of(columns).name)
    found = replace(claim, kind="share" if kind == "bool" else "mean", unit=unit)
    return replace(found, estimand=claim.estimand or _describe_estimand(found))


def find_declared(measure: str, tables: Mapping[str, Mapping[str, str]]) -> tuple[str, str | None]:
    """The declared table of a measure, and its kind: "bool", "int", "float" or "text"; None where
    no table has it."""
    named, _, column = measure.rpartition(".")
    order = [named] if named else [*TABLES, *tables]
    return next(
        ((text, tables[text][column]) for text in order if column in tables.get(text, {})),
        ("", None),
    )


def _describe_estimand(claim: Claim) -> str:
    """The estimand of a claim that states none, as of a hypothesis of a study file."""
    first, second = claim.arm_labels
    return (
        f"The {claim.kind} of {claim.outcome or claim.measure} in {first} minus that in {second}, "
        f"among those simulated in this run; independent unit: {claim.unit}."
    )
