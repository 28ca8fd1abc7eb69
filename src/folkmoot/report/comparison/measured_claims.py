"""Read the values of the measures that claims are about, from runs or files of human answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from folkmoot.engine.settings.claims import average_rounds, read_rows
from folkmoot.kit.findings import condition_name
from folkmoot.measures.inference.claims import ACROSS, Claim, Level
from folkmoot.measures.inference.differences import Side
from folkmoot.report.comparison.samples import CONDITION, EVERYBODY, UNITS, Sample
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    FEWEST_DRAWS,
    PARTICIPANT_COLUMNS,
    condition_column,
)

# Placeholder for the contrast of a measure that is not bound to two conditions.
NO_ARMS = ("", "")


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure in one sample. An example of a measure is a change of opinion."""

    # The claim with the columns that the table has.
    claim: Claim
    # The rows by condition, with the columns of `claim.subject`, `unit` and `value` (null if
    # unknown). If `claim.subject` is empty, subjects cannot be identified.
    arms: dict[str, pl.DataFrame]
    # The name of the independent unit by condition.
    units: dict[str, str]

    def unit_of(self, arm: str) -> str:
        """Return the name of the independent unit in a condition."""
        return self.units.get(arm) or self.units[EVERYBODY]

    def rows(self, arm: str) -> pl.DataFrame | None:
        """Return the rows of a condition, or None if the sample lacks the condition.

        For a sample without conditions, return all rows.
        """
        return self.arms.get(arm, self.arms.get(EVERYBODY))


def measures_of(claims: Iterable[Claim]) -> dict[Claim, list[Claim]]:
    """Group claims by measure, so that claims on the same measure are in one list.

    Each key is a claim that states only the measure, without conditions.
    """
    # Claims of the study file and of the study type are grouped if both use the same column of one
    # table without a filter or threshold. Claims that compare two columns of one row are left out.
    claims_by_measure: dict[Claim, list[Claim]] = {}
    contrasts = [claim for claim in claims if claim.by != ACROSS]
    # Claims of study types come first, because hypotheses do not name a condition column.
    for claim in sorted(contrasts, key=lambda claim: not claim.by):
        key = replace(
            claim,
            contrast=NO_ARMS,
            direction="different",
            margin=0.0,
            family="exploratory",
            unit="",
            estimand="",
            names=NO_ARMS,
            paired=False,
        )
        if not claim.where and claim.at_least is None:
            same = (known for known in claims_by_measure if known.is_same_measure(key))
            key = next(same, key)
        claims_by_measure.setdefault(key, []).append(claim)
    return claims_by_measure


def with_shared_rounds(
    claims: Mapping[Claim, Sequence[Claim]], people: Iterable[Sample]
) -> dict[Claim, list[Claim]]:
    """Return measures with the claims on each, without the rounds that human answers lack.

    - `people`: files of human answers. A file without the measure has no effect.
    """
    # The levels of rounds differ, for example because gifts fall from round to round. A mean over
    # all rounds would differ from that over one round without any difference between subjects.
    tables = [sample.tables["participants"] for sample in people]
    shared: dict[Claim, list[Claim]] = {}
    for measure, stated in claims.items():
        where = measure.where
        for table in tables:
            where = _shared_where(table, replace(measure, where=where))
        kept = [replace(claim, where=where) for claim in stated]
        shared.setdefault(replace(measure, where=where), []).extend(kept)
    return shared


def missing_rounds(people: Sample, claims: Iterable[Claim]) -> list[str]:
    """Return the rounds of measures that a file of human answers lacks, such as `payoff_2`."""
    table = people.tables["participants"]
    return [
        str(value)
        for claim in claims
        for (_, values), (_, kept) in zip(claim.where, _shared_where(table, claim), strict=True)
        for value in values
        if value not in kept
    ]


class ArmsOfColumn(NamedTuple):
    """The conditions in one column of a file of human answers, and those of the runs."""

    in_file: tuple[str, ...]
    in_runs: frozenset[str]

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The conditions of the file that no run has."""
        return tuple(arm for arm in self.in_file if arm not in self.in_runs)


def compared_arms(people: Sample, runs: Sequence[Sample]) -> list[ArmsOfColumn]:
    """Return the conditions in each column of a file that the claims of runs compare.

    Such a column may be another one than that of the conditions: the claims of a focus group
    compare the statements before and after the talk.
    """
    arms_by_column: dict[str, ArmsOfColumn] = {}
    for measure in measures_of(claim for run in runs for claim in run.claims):
        human = read_measure(people, measure)
        if human is None or measure.by not in people.tables["participants"].columns:
            continue
        measured = [model for run in runs if (model := read_measure(run, measure)) is not None]
        known = {arm for model in measured for arm in model.arms}
        if known and EVERYBODY not in known:
            before = arms_by_column.get(measure.by, ArmsOfColumn((), frozenset()))
            in_file = tuple(dict.fromkeys((*before.in_file, *human.arms)))
            arms_by_column[measure.by] = ArmsOfColumn(in_file, before.in_runs | known)
    return [*arms_by_column.values()]


def _shared_where(table: pl.DataFrame, measure: Claim) -> tuple[tuple[str, tuple[Level, ...]], ...]:
    # The rows of the measure, in rounds that the table of people has too. A table without the
    # measure, or with one value for all rounds, has no rounds to compare.
    column = measure.column
    is_long = column in table.columns
    known_columns = {
        name
        for name, kind in table.schema.items()
        if kind.is_numeric() and table[name].cast(pl.Float64).fill_nan(None).count()
    }
    where: list[tuple[str, tuple[Level, ...]]] = []
    for name, values in measure.where:
        present = known_columns
        if is_long:
            is_round = name in measure.repeated and name in table.columns
            rows = table.drop_nulls(column)
            present = {*rows[name].drop_nulls().cast(pl.String)} if is_round else set()
        kept = tuple(value for value in values if str(value) in present)
        where.append((name, kept or values))
    return tuple(where)


def name_arm(arm: str, claims: Iterable[Claim]) -> str:
    """Return the name of a condition for readers."""
    for claim in claims:
        for claim_arm, name in zip(claim.contrast, claim.names, strict=True):
            if claim_arm == arm and name:
                return name
    return arm if arm in ("after", "before") else condition_name(arm)


def name_measure(measure: Claim) -> str:
    """Return a measure in words."""
    return measure.label


def unclaimed_measure(
    samples: Sequence[Sample], table: str, column: str, *, outcome: str = ""
) -> Claim:
    """Return the measure of a column that no claim is about, for a comparison of `samples`.

    - `outcome`: the measure in words.
    """
    # Its rows depend on each other as those of other measures in the table do.
    measure = Claim(f"{table}.{column}", NO_ARMS, "mean", outcome=outcome)
    for sample in samples:
        measure = sample.design_of(table).apply_to(measure)
    return measure


def read_measure(sample: Sample, measure: Claim, *, between_draws: bool = False) -> Measured | None:
    """Return the values of a measure in a sample.

    - `between_draws`: True if the sample is compared with a run that drew different texts. Then
      the participants who read the same drawn texts count as one independent unit.

    Returns None if the sample lacks the measure, or if all values are unknown.
    """
    table_and_column = _table_of(sample, measure)
    if table_and_column is None:
        return None
    table, column, measure = table_and_column
    by = measure.by or condition_column(table)
    if by is None or by not in table.columns:
        by, table = EVERYBODY, table.with_columns(pl.lit(EVERYBODY).alias(EVERYBODY))
    measure = replace(measure, by=by, subject=_subject_columns(table, by, measure))
    arms: dict[str, pl.DataFrame] = {}
    units: dict[str, str] = {}
    claim = measure
    # Within a run, results hold for its texts. Between runs both the texts and the settings differ,
    # and only several draws can separate the two. Conditions in which no participant reads drawn
    # texts keep their units.
    fewest_draws = 1 if between_draws else FEWEST_DRAWS
    for arm in table[by].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list():
        # `read_rows` reads the two conditions of a contrast. The same one twice reads one
        # condition.
        part = table.filter(pl.col(by).cast(pl.String) == arm) if between_draws else table
        claim_and_rows = read_rows(
            part, column, replace(measure, contrast=(arm, arm)), fewest_draws
        )
        if not isinstance(claim_and_rows, str):
            claim, rows = claim_and_rows
            if rows["value"].count():
                arms[arm] = rows.select(*measure.subject, "unit", "value")
                units[arm] = claim.unit
    return Measured(replace(claim, contrast=NO_ARMS), arms, units) if arms else None


def _table_of(sample: Sample, measure: Claim) -> tuple[pl.DataFrame, str, Claim] | None:
    column = measure.column
    if sample.is_human:
        return _of_people(sample.tables["participants"], column, measure)

    table = sample.find_table(measure)
    if not table:
        return None
    return sample.tables[table], column, sample.design_of(table).apply_to(measure)


def _of_people(
    table: pl.DataFrame, column: str, measure: Claim
) -> tuple[pl.DataFrame, str, Claim] | None:
    # Human data are less strict: the column with the conditions may be called `condition`, the
    # column that the claim filters by may be missing, and each variable of the measure may have its
    # own column. The result is then their mean.
    columns = {*table.columns}
    if measure.by and measure.by not in columns and CONDITION in columns:
        table = table.rename({CONDITION: measure.by})
    if column not in columns:
        value_columns = [
            str(value) for _, values in measure.where for value in values if str(value) in columns
        ]
        numeric_columns = [column for column in value_columns if table.schema[column].is_numeric()]
        if not numeric_columns:
            return None
        by = measure.by if measure.by in table.columns else condition_column(table)
        table = table.with_columns(_mean_of_columns(table, numeric_columns, by).alias(column))
    kind = table.schema[column]
    if not (kind.is_numeric() or kind == pl.Boolean):
        return None
    where = tuple((name, values) for name, values in measure.where if name in columns)
    unit_column = measure.unit_column if measure.unit_column in columns else ""
    repeated = measure.repeated if columns.issuperset(measure.repeated) else ()
    own = replace(measure, where=where, unit_column=unit_column, repeated=repeated)
    return table, column, own


def _mean_of_columns(table: pl.DataFrame, columns: Sequence[str], by: str | None) -> pl.Series:
    # As in a run, a mean does not depend on which of the columns are empty.
    arm = pl.col(by) if by else pl.lit(EVERYBODY)
    rows = table.select(pl.int_range(pl.len()).alias("row"), arm.alias("arm"), *columns)
    values = rows.unpivot(columns, index=["row", "arm"], variable_name="round")
    # A file may write an empty cell as NaN.
    values = values.with_columns(pl.col("value").cast(pl.Float64).fill_nan(None))
    means = average_rounds(values.with_columns(unit="row"), ("row",), ("round",))
    return means.sort("row")["value"]


def _subject_columns(table: pl.DataFrame, by: str, measure: Claim) -> tuple[str, ...]:
    # The columns that the measure names, or else all id columns. Empty if these do not identify
    # each row.
    if measure.subject and all(column in table.columns for column in measure.subject):
        return measure.subject
    ids = [
        column
        for column in (*CLUSTER_COLUMNS, *PARTICIPANT_COLUMNS, *UNITS)
        if column in table.columns
    ]
    keys = list(dict.fromkeys(column for column in ids if column != by))
    if not keys or (not measure.where and table.select(*keys, by).is_duplicated().any()):
        return ()
    return tuple(keys)


# --- two samples ---------------------------------------------------------------------------------


def sides_between(
    first: pl.DataFrame, second: pl.DataFrame, names: tuple[str, str]
) -> tuple[Side, Side]:
    """Return the data of two samples, for an estimate of the difference between the samples.

    - `names`: the names of the two samples.
    """
    # The units get the name of their sample, so that equal ids in both samples are different units.
    first_side, second_side = (
        _independent_side(rows, name) for rows, name in zip((first, second), names, strict=True)
    )
    return first_side, second_side


def _independent_side(rows: pl.DataFrame, name: str) -> Side:
    values = rows["value"].fill_null(float("nan")).to_list()
    return Side.from_values(values, [(name, unit) for unit in rows["unit"].to_list()])


def paired_differences(
    first: pl.DataFrame, second: pl.DataFrame, subject: Sequence[str]
) -> pl.DataFrame:
    """Return first minus second for each subject, or null if either value is unknown.

    - `subject`: the columns that identify a subject.
    """
    keys = [*subject, "unit"]
    joined = first.select(*keys, "value").join(
        second.select(*keys, "value"),
        on=keys,
        how="full",
        coalesce=True,
        maintain_order="left_right",
    )
    return joined.select(*keys, value=pl.col("value") - pl.col("value_right"))
