"""The measures of claims in runs and in files of people's answers: read in one way, arm by arm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from folkmoot.engine.settings.claims import TABLES, read_rows
from folkmoot.measures.inference.claims import ACROSS, Claim, Side
from folkmoot.report.comparison.samples import CONDITION, EVERYBODY, UNITS, Sample, condition_name
from folkmoot.storage.tables import CLUSTER_COLUMNS, PARTICIPANT_COLUMNS, condition_column

NOBODY = ("", "")  # arms of a measure that no claim compares


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure in one sample: the claim as its table has it, and the rows of each arm.

    Rows have the columns of `claim.subject`, `unit` and `value` (unknown: null). Without `subject`
    nothing tells subjects apart.
    """

    claim: Claim
    arms: dict[str, pl.DataFrame]

    def rows(self, arm: str) -> pl.DataFrame | None:
        """The rows of an arm; those of everybody where the sample has no arms."""
        return self.arms.get(arm, self.arms.get(EVERYBODY))


def measures_of(claims: Iterable[Claim]) -> dict[Claim, list[Claim]]:
    """Each measure of claims, without arms, and the claims on it. A hypothesis on a column that
    another claim measures as it is belongs to that measure. Differences between columns of one row
    are described run by run, and left out here."""
    found: dict[Claim, list[Claim]] = {}
    plain: dict[str, Claim] = {}
    kept = [claim for claim in claims if claim.by != ACROSS]
    for claim in sorted(kept, key=lambda claim: not claim.by):  # hypotheses name no column of arms
        key = replace(
            claim,
            contrast=NOBODY,
            direction="different",
            margin=0.0,
            family="exploratory",
            unit="",
            estimand="",
            names=NOBODY,
            paired=False,
        )
        column = claim.measure.rpartition(".")[2]
        if not claim.where and claim.at_least is None:
            key = plain.setdefault(column, key)
        found.setdefault(key, []).append(claim)
    return found


def name_arm(arm: str, claims: Iterable[Claim]) -> str:
    """An arm as readers see it: as the claims on the measure name it."""
    for claim in claims:
        for own, name in zip(claim.contrast, claim.names, strict=True):
            if own == arm and name:
                return name
    return arm if arm in ("after", "before") else condition_name(arm)


def name_measure(measure: Claim) -> str:
    """A measure in words."""
    return measure.outcome or measure.measure.rpartition(".")[2].replace("_", " ")


def read_measure(sample: Sample, measure: Claim) -> Measured | None:
    """A measure in a sample; None where the sample has it not, or knows no value of it."""
    found = _table_of(sample, measure)
    if found is None:
        return None
    table, column, measure = found
    by = measure.by or condition_column(table)
    if by is None or by not in table.columns:
        by, table = EVERYBODY, table.with_columns(pl.lit(EVERYBODY).alias(EVERYBODY))
    measure = replace(measure, by=by, subject=_subject_columns(table, by, measure))
    arms = {}
    claim = measure
    for arm in table[by].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list():
        read = read_rows(table, column, replace(measure, contrast=(arm, arm)))
        if not isinstance(read, str):
            claim, rows = read
            if rows["value"].count():
                arms[arm] = rows.select(*measure.subject, "unit", "value")
    return Measured(replace(claim, contrast=NOBODY), arms) if arms else None


def _table_of(sample: Sample, measure: Claim) -> tuple[pl.DataFrame, str, Claim] | None:
    named, _, column = measure.measure.rpartition(".")
    if sample.is_human:
        return _of_people(sample.tables["participants"], column, measure)
    for name in [named] if named else [*TABLES, *sample.tables]:
        table = sample.tables.get(name)
        kind = None if table is None else table.schema.get(column)
        if table is not None and kind is not None and (kind.is_numeric() or kind == pl.Boolean):
            return table, column, measure
    return None


def _of_people(
    table: pl.DataFrame, column: str, measure: Claim
) -> tuple[pl.DataFrame, str, Claim] | None:
    """A measure in a file of people's answers.

    The column of arms may be called `arm` or `condition` as well. A filter on a column that the
    file has not is taken to hold, because a file has no rows that do not count; where it names the
    variable, the file may have one column for each.
    """
    columns = {*table.columns}
    if measure.by and measure.by not in columns and CONDITION in columns:
        table = table.rename({CONDITION: measure.by})
    if column not in columns:
        wide = [
            str(value) for _, values in measure.where for value in values if str(value) in columns
        ]
        numbers = [column for column in wide if table.schema[column].is_numeric()]
        if not numbers:
            return None
        table = table.with_columns(pl.mean_horizontal(numbers).alias(column))
    kind = table.schema[column]
    if not (kind.is_numeric() or kind == pl.Boolean):
        return None
    where = tuple((name, values) for name, values in measure.where if name in columns)
    return table, column, replace(measure, where=where)


def _subject_columns(table: pl.DataFrame, by: str, measure: Claim) -> tuple[str, ...]:
    """The columns that name subjects: those of the measure, else ids that tell rows apart."""
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
    """The sides of two samples of different subjects: units of the one are none of the other."""
    one, other = (
        _independent_side(rows, name) for rows, name in zip((first, second), names, strict=True)
    )
    return one, other


def _independent_side(rows: pl.DataFrame, name: str) -> Side:
    values = rows["value"].fill_null(float("nan")).to_list()
    return Side.from_values(values, [(name, unit) for unit in rows["unit"].to_list()])


def paired_differences(
    first: pl.DataFrame, second: pl.DataFrame, subject: Sequence[str]
) -> pl.DataFrame:
    """First minus second, subject by subject; unknown where either is."""
    keys = [*subject, "unit"]
    both = first.select(*keys, "value").join(
        second.select(*keys, "value"),
        on=keys,
        how="full",
        coalesce=True,
        maintain_order="left_right",
    )
    return both.select(*keys, value=pl.col("value") - pl.col("value_right"))
