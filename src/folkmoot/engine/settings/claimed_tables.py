"""Find the tables that hold the measures of claims, and what the claims say about these tables.

A table is one of a run, or one that a study type declares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from folkmoot.measures.inference.claims import ACROSS, Claim
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    CONDITION_COLUMNS,
    FEWEST_DRAWS,
    PARTICIPANT_COLUMNS,
    Units,
    units_of,
)

# If several tables have a column of this name, the first of these tables is meant.
TABLES = ("participants", "discussions", "sessions", "groups", "measures", "members", "residents")
# Tables with one row for each answer or utterance, and no measures.
NOT_MEASURED = ("answers", "utterances")
# The kinds of the columns of each declared table.
Tables = Mapping[str, Mapping[str, str]]
# A column of conditions, or a measure (`table.column`) → its conditions → their names for readers.
Conditions = Mapping[str, Mapping[str, str]]


def find_table(
    claim: Claim,
    names: Iterable[str],
    read_kinds: Callable[[str], Mapping[str, str]],
    *,
    needs_arms: bool = True,
) -> str:
    """Return the name of the table that holds the measure of a claim, or "" if there is none.

    - `names`: the names of all tables.
    - `read_kinds`: returns the kinds of the columns of a table, or an empty mapping if there is no
      such table.
    - `needs_arms`: False if a table without conditions is returned when no other one holds the
      measure.
    """
    # A table with conditions comes first. An earlier table without them may hold the same measure
    # of all participants, from before they were assigned to conditions.
    named_table = claim.named_table
    columns = measured_columns(claim)
    by_columns = (claim.by,) if claim.by else CONDITION_COLUMNS
    without_arms = ""
    for name in [named_table] if named_table else dict.fromkeys((*TABLES, *names)):
        kinds = {} if name in NOT_MEASURED else read_kinds(name)
        if all(kinds.get(column, "text") != "text" for column in columns):
            if claim.by == ACROSS or any(by in kinds for by in by_columns):
                return name
            without_arms = without_arms or name
    return "" if needs_arms else without_arms


def column_kinds(table: pl.DataFrame | pl.LazyFrame) -> dict[str, str]:
    """Return the kind of each column of a table: "bool", "int", "float" or "text"."""

    def kind_of(data_type: pl.DataType) -> str:
        if data_type == pl.Boolean:
            return "bool"
        if data_type.is_integer():
            return "int"
        return "float" if data_type.is_numeric() else "text"

    return {name: kind_of(data_type) for name, data_type in table.collect_schema().items()}


def measured_columns(claim: Claim) -> list[str]:
    """Return the columns that hold the measure of a claim: one, or one for each condition."""
    if claim.by == ACROSS:
        return [f"{arm}_{claim.column}" for arm in claim.contrast]
    return [claim.column]


def find_declared(claim: Claim, tables: Tables) -> tuple[str, str | None]:
    """Return the table that declares the measure of a claim, and the kind of the measure's column.

    The kind is "bool", "int", "float" or "text". The kind is None if no table declares the measure.
    """

    def kinds_of(name: str) -> Mapping[str, str]:
        return tables.get(name, {})

    # As after a run, the first table that can be compared is meant. A table that cannot be compared
    # is returned for the message that says why.
    table = find_table(claim, sorted(tables), kinds_of)
    named_table, columns = claim.named_table, measured_columns(claim)
    names = [table or named_table] if table or named_table else [*TABLES, *sorted(tables)]
    name = next((name for name in names if kinds_of(name).keys() >= {*columns}), "")
    return name, tables[name][columns[0]] if name else None


def find_condition_column(
    claim: Claim, tables: Tables, others: Sequence[Claim], conditions: Conditions
) -> str:
    """Return the column with the conditions of a claim that names none, or "" for a usual column.

    - `others`: the claims of the study type.
    - `conditions`: the conditions of the run.
    """
    # A hypothesis does not name the column. A column of another name than the usual ones is known
    # from the study type: it lists the conditions of the column, or its claims compare some there.

    def kinds_of(name: str) -> Mapping[str, str]:
        return tables.get(name, {})

    def has_measure(by: str) -> bool:
        return bool(find_table(replace(claim, by=by), sorted(tables), kinds_of))

    if claim.by:
        return claim.by
    known: dict[str, set[str]] = {}
    for column, names in conditions.items():
        # A key with a table is a measure.
        if "." not in column:
            known.setdefault(column, set()).update(names)
    for other in others:
        if other.by != ACROSS:
            known.setdefault(other.by, set()).update(other.contrast)
    having_both = [column for column, arms in known.items() if arms >= {*claim.contrast}]
    usual = find_table(claim, sorted(tables), kinds_of)
    usual_columns = [*CONDITION_COLUMNS]
    if usual:
        usual_columns = [name for name in CONDITION_COLUMNS if name in kinds_of(usual)][:1]
    # The name of a usual column is empty in claims.
    if not {*having_both}.isdisjoint(("", *usual_columns)):
        return ""
    own = [column for column in known if column not in ("", *CONDITION_COLUMNS)]
    with_both = [column for column in own if column in having_both]
    listed = [column for column in with_both if column in conditions]
    # A protocol may record a table that is not declared. The columns of a sealed claim, which is
    # read without tables and conditions, count as they are written.
    if find_declared(claim, tables)[1] is None:
        return next(iter(listed), "")
    return next(filter(has_measure, listed if usual else (*with_both, *own)), "")


def name_conditions(claims: Iterable[Claim], conditions: Conditions) -> list[Claim]:
    """Return claims with the names of their conditions for readers, if they have none.

    - `conditions`: the conditions of the run with their names.
    """
    return [replace(claim, names=_names_of(claim, conditions)) for claim in claims]


def _names_of(claim: Claim, conditions: Conditions) -> tuple[str, str]:
    columns = (claim.by,) if claim.by else CONDITION_COLUMNS
    labels: dict[str, str] = {}
    for column in columns:
        # The usual columns are looked at in their order, and the first one counts.
        labels = {**conditions.get(column, {}), **labels}
    first, second = (
        # A name that repeats the condition says nothing new.
        name or (labels.get(arm, "") if labels.get(arm) != arm else "")
        for arm, name in zip(claim.contrast, claim.names, strict=True)
    )
    return first, second


def comparable_columns(table: str, tables: Tables, by: str = "") -> list[str]:
    """Return the columns of a declared table that a claim can compare between conditions.

    - `by`: as in the claim.
    """
    columns = tables[table]
    has_conditions = by == ACROSS or any(
        name in columns for name in ([by] if by else CONDITION_COLUMNS)
    )
    if table in NOT_MEASURED or not has_conditions:
        return []
    return [column for column, kind in columns.items() if kind != "text"]


class TableDesign(NamedTuple):
    """The columns of one table that hold its design, according to the claims about the table."""

    # The column with the conditions, or empty if the table has one with a usual name.
    by: str
    # As in a claim.
    unit_column: str
    # As in a claim, without columns that tell rounds apart. Empty if the table has a column with a
    # usual name for its units.
    subject: tuple[str, ...]
    # All columns that a claim names beside its measure.
    columns: frozenset[str]

    def apply_to(self, claim: Claim) -> Claim:
        """Return a claim with what it does not say about its table."""
        # A hypothesis names neither units nor conditions, and a comparison of runs is also about
        # columns that no claim is about. Their rows depend on each other as in the claims.
        return replace(
            claim,
            by=claim.by or self.by,
            unit_column=claim.unit_column or self.unit_column,
            subject=claim.subject or self.subject,
        )

    def units_of(self, table: pl.DataFrame, fewest_draws: int = FEWEST_DRAWS) -> Units:
        """Return the independent unit of each row of a table.

        Columns that the table lacks are ignored, for example in a table of human answers.
        """
        unit_column = self.unit_column if self.unit_column in table.columns else ""
        subject = self.subject if {*self.subject} <= {*table.columns} else ()
        return units_of(table, fewest_draws, unit_column, subject)


def design_of(columns: Iterable[str], claims: Sequence[Claim]) -> TableDesign:
    """Return what the claims about a table say about its columns.

    - `columns`: the columns of the table.
    - `claims`: the claims about this table. Several of them may name different columns. The first
      one counts.
    """
    known = {*columns}
    has_conditions = not known.isdisjoint(CONDITION_COLUMNS)
    has_units = not known.isdisjoint((*CLUSTER_COLUMNS, *PARTICIPANT_COLUMNS))
    names = {
        name
        for claim in claims
        for name in (claim.by, claim.unit_column, *claim.subject, *claim.repeated)
    }
    conditions = [claim.by for claim in claims if claim.by not in ("", ACROSS)]
    participants = [claim.participant_key for claim in claims if claim.participant_key]
    return TableDesign(
        "" if has_conditions else next(iter(conditions), ""),
        next((claim.unit_column for claim in claims if claim.unit_column), ""),
        () if has_units else next(iter(participants), ()),
        frozenset(names & known),
    )
