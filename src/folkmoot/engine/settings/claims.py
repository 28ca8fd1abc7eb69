"""Evaluate the claims of a run. A claim is a planned comparison of two conditions."""

# The study type declares claims, and each hypothesis of the study file is a claim as well.
# `evaluate_claims` evaluates all claims of a run together, so that it can correct for their number.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, get_args

import numpy as np
import polars as pl
from pydantic import BaseModel, ValidationError

from folkmoot.engine.settings.claimed_tables import (
    Conditions,
    Tables,
    column_kinds,
    design_of,
    find_condition_column,
    find_declared,
    find_table,
    measured_columns,
)
from folkmoot.measures.inference.claims import ACROSS, PARTICIPANT, Claim, Family, Result
from folkmoot.measures.inference.differences import Kind, Side
from folkmoot.measures.inference.estimates import finite_or_none, format_count
from folkmoot.measures.inference.families import Read, judge_families
from folkmoot.measures.inference.rounds import Indices, average_over_rounds
from folkmoot.measures.wording import NO_CONCLUSION, swap_words, word
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.partial_run import PartialRun
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    COMPLETE,
    CONDITION_COLUMNS,
    DRAW,
    DRAWS,
    DRAWS_OR_OWN,
    ENDING_COLUMNS,
    FEWEST_DRAWS,
    PARTICIPANT_COLUMNS,
    condition_column,
    has_endings,
    units_of,
)

Config = TypeVar("Config", bound=BaseModel)
# The key of the finding that lists all claims of a report.
CLAIMS_TESTED = "claims_tested"
# Part of the caption of this finding, with a space at its end.
WITHIN_SUBJECTS = (
    "A claim within subjects excludes a subject without one of the two measures from both "
    "conditions. "
)
# Part of the same caption.
MISSING_ROUNDS = (
    "Missing rounds: unknown values of subjects that count. A subject's mean is moved by the mean "
    "level of all rounds of its condition minus that of the rounds with a value. Levels are "
    "estimated with an effect of each participant, and intervals include their error. A round that "
    "one condition lacks is left out of both. "
)


def read_declared(
    run: RunFolder, config: type[Config], declare: Callable[[Config], Sequence[Claim]]
) -> Sequence[Claim]:
    """Return the claims that a study type declares for a run, given the settings of the run.

    - `declare`: returns the claims for given settings.
    """
    try:
        return declare(config.model_validate(run.config))
    # The settings are of a version that the present one cannot read. The report then has no claims.
    except ValidationError:
        return ()


def join_claims(stated: Sequence[Claim], declared: Sequence[Claim]) -> list[Claim]:
    """Return the hypotheses of a study file, followed by the claims of the study type.

    - `stated`: the hypotheses.
    - `declared`: the claims of the study type.
    """
    # If there are hypotheses, they are the primary family, and all declared claims become
    # exploratory. A declared claim about the same contrast as a hypothesis is left out.
    return [*stated, *_further_claims(stated, declared)] if stated else list(declared)


def add_claims(sealed: Sequence[Claim], others: Sequence[Claim]) -> list[Claim]:
    """Return the claims that a run fixed in its plan, followed by further claims.

    - `sealed`: the claims in the plan.
    - `others`: further claims. They become exploratory. Those about a contrast in the plan are left
      out.
    """
    return [*sealed, *_further_claims(sealed, others)]


def _further_claims(known: Sequence[Claim], others: Sequence[Claim]) -> list[Claim]:
    return [
        replace(claim, family="exploratory")
        for claim in others
        if not any(claim.is_same_contrast(other) for other in known)
    ]


def evaluate_claims(run: RunFolder, claims: Sequence[Claim]) -> list[Result]:
    """Return the result of each claim, in the order of `claims`."""
    # Each result is corrected for the number of claims in its family. An interim look tests
    # nothing. A run that ended without its failed parts is finished, so it is tested.
    results = judge_families(claims, ClaimReader(run).read_sides)
    return results if run.is_finished else [result.as_interim() for result in results]


FAMILIES: tuple[Family, ...] = get_args(Family)
OTHERS_WITHOUT_DATA = "Secondary and exploratory claims without data are not listed. "


def tested_finding(results: Sequence[Result]) -> Finding | None:
    """Return the finding that lists all claims of a report, one in each row.

    Returns None if there is nothing to list.
    """
    # The rows are ordered by family. Claims without any data are counted, as in the list of
    # registered claims, and listed only if they are primary: a study type may declare claims for
    # measures that a run did not record.
    shown_results = [
        result for result in results if result.counts != (0, 0) or result.claim.family == "primary"
    ]
    if not shown_results:
        return None
    ordered = [
        result for family in FAMILIES for result in shown_results if result.claim.family == family
    ]
    family_sizes = {
        family: sum(result.claim.family == family for result in results) for family in FAMILIES
    }
    size_text = ", ".join(f"{n} {family}" for family, n in family_sizes.items() if n)
    tests = sum(result.is_tested for result in ordered)
    has_missing_rounds = any(any(result.missing_rounds) for result in ordered)
    return Finding(
        CLAIMS_TESTED,
        "What was tested",
        word(
            "description",
            "claims",
            claims=format_count(len(results), "claim"),
            families=size_text,
            tested=tests,
        ),
        ResultTable.from_records(
            [
                {
                    "claim": result.claim.says,
                    "family": result.claim.family,
                    "estimand": result.claim.estimand,
                    "unit": result.claim.unit,
                    "units": result.estimate.unit_count,
                    "model": result.estimate.method or "none",
                    "result": result.verdict_phrase if result.is_concluded else NO_CONCLUSION,
                    **_excluded_cells(result),
                    **(_missing_round_cells(result) if has_missing_rounds else {}),
                    "least_if_missing": finite_or_none(result.bounds.low)
                    if result.bounds
                    else None,
                    "most_if_missing": finite_or_none(result.bounds.high)
                    if result.bounds
                    else None,
                }
                for result in ordered
            ],
            "Excluded: subjects without a known measure"
            f"{', or not yet' * any(result.pending for result in ordered)}. "
            f"{WITHIN_SUBJECTS * any(r.claim.paired and any(r.lost) for r in ordered)}"
            f"{MISSING_ROUNDS * has_missing_rounds}"
            f"{OTHERS_WITHOUT_DATA * (len(ordered) < len(results))}"
            "Least and most if missing, for shares alone: the difference over all ways of filling "
            "them in, without sampling error (Horowitz and Manski 2000).",
        ),
        notes=(
            "Primary claims answer the main question of the study and were fixed before the run: "
            "Holm's method decides them, and their joint intervals hold together. Secondary and "
            "exploratory claims are separate families with single 95 % intervals, without "
            "conclusions.",
        ),
        section="What was tested",
    )


def _excluded_cells(result: Result) -> dict[str, int | None]:
    first, second = result.excluded or (None, None)
    return {"excluded_first": first, "excluded_second": second}


def _missing_round_cells(result: Result) -> dict[str, int]:
    first, second = result.missing_rounds
    return {"missing_rounds_first": first, "missing_rounds_second": second}


def read_sides(run: RunFolder, claim: Claim) -> Read:
    """Return a claim with the data of both conditions, or the reason why there is no data."""
    return ClaimReader(run).read_sides(claim)


class ClaimReader:
    """A reader of the data that the claims of one run compare."""

    # Columns that several claims need are read only once, and so are the kinds of columns.

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._kinds: dict[str, Mapping[str, str]] = {}
        self._tables: dict[tuple[str, ...], pl.DataFrame] = {}

    def read_sides(self, claim: Claim) -> Read:
        """Return a claim with the data of both conditions, or the reason why there is no data."""
        # The kind, the unit and the estimand of the claim follow from the table. Subjects count as
        # lost if their measure is unknown or if they did not finish. In a paired claim, subjects
        # that are observed in only one arm count as lost as well.
        found = self.read_rows(claim)
        if isinstance(found, str):
            return found
        pending = [self._count_pending(arm, found[1]) for arm in claim.contrast]
        return _sides_of(claim, *found, pending)

    def _count_pending(self, arm: str, rows: pl.DataFrame) -> int:
        # The planned subjects of a condition that are not complete in an unfinished run. They are
        # known if each row is a part of the run, such as a participant.
        if not isinstance(self._run, PartialRun):
            return 0
        parts = self._run.parts
        planned = {*parts.arms.get(arm, ())}
        recorded = planned.intersection(parts.analysed)
        is_part_of_row = rows.filter(pl.col("arm") == arm).height == len(recorded)
        return len(planned.difference(parts.complete)) if is_part_of_row else 0

    def read_rows(self, claim: Claim) -> tuple[Claim, pl.DataFrame] | str:
        """Return a claim with the rows that it compares, or the reason why there are none."""
        table = find_table(claim, self._run.table_names(), self._read_kinds)
        if not table:
            return f"no table has {claim.measure} and arms"
        columns = self._read_columns(table, claim, claim.column)
        return read_rows(columns, claim.column, claim)

    def _read_kinds(self, name: str) -> Mapping[str, str]:
        if name not in self._kinds:
            has_table = self._run.has_table(name)
            self._kinds[name] = column_kinds(self._run.scan_table(name)) if has_table else {}
        return self._kinds[name]

    def _read_columns(self, name: str, claim: Claim, column: str) -> pl.DataFrame:
        # Never the whole table: its columns with texts of participants need much memory.
        asked_columns = (column, claim.by, *claim.subject, *(name for name, _ in claim.where))
        asked_columns += claim.repeated
        asked_columns += (claim.unit_column,)
        asked_columns += tuple(measured_columns(claim))
        table = self._run.scan_table(name)
        needed_columns = {
            *asked_columns,
            *ENDING_COLUMNS,
            DRAW,
            *CONDITION_COLUMNS,
            *CLUSTER_COLUMNS,
            *PARTICIPANT_COLUMNS,
        }
        columns = [column for column in table.collect_schema().names() if column in needed_columns]
        key = name, *columns
        if key not in self._tables:
            self._tables[key] = table.select(columns).collect()
        return self._tables[key]


def read_rows(
    table: pl.DataFrame, column: str, claim: Claim, fewest_draws: int = FEWEST_DRAWS
) -> tuple[Claim, pl.DataFrame] | str:
    """Return a claim with the rows that it compares, or the reason why there are no such rows.

    - `table`, `column`: the table and the column of the measure.
    - `fewest_draws`: if a model wrote at least this many versions (draws) of a text, the versions
      are the independent units.
    """
    # There is one row for each subject and arm. Its columns are those of the subject, `arm`,
    # `value` (null if unknown) and `unit`, with a subject also `missing_rounds`. The returned claim
    # has the kind and the unit of the table.
    if claim.by == ACROSS:
        table = _lengthen(table, column, claim)
    by = claim.by or condition_column(table)
    if by is None or by not in table.columns:
        return f"the table of {claim.measure} has no {by or 'arms'}"
    where_columns = [name for name, _ in claim.where]
    for name in (claim.unit_column, *claim.subject, *claim.repeated, *where_columns):
        if name and name not in table.columns:
            return f"the table of {claim.measure} has no {name}"
    # NaN is unknown as well. It compares as greater than each number.
    value = pl.col(column).cast(pl.Float64).fill_nan(None)
    if claim.at_least is not None:
        value = (value >= claim.at_least).cast(pl.Float64)
    table, value = _apply_where(table, value, claim)
    completed = table
    if has_endings(table):
        # A unit that did not finish is lost, even if a value is recorded. Otherwise the value of an
        # unfinished conversation would count like that of a finished one.
        completed = table.filter(pl.col("status") == COMPLETE)
        value = pl.when(pl.col("status") == COMPLETE).then(value)
    arms, finished_arms = (
        rows[by].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list()
        for rows in (table, completed)
    )
    if unknown := [arm for arm in claim.contrast if arm not in arms]:
        available = f"there are {', '.join(arms)}" if arms else "no one finished"
        return f"no {by} {' or '.join(dict.fromkeys(unknown))}; {available}"
    if unfinished := [arm for arm in claim.contrast if arm not in finished_arms]:
        return f"no one finished in {by} {' or '.join(dict.fromkeys(unfinished))}"
    # The units are found before other arms are dropped, because they depend on all of them. The
    # column with the conditions holds no unit, whatever its name is.
    own_columns = table.drop(by)
    participant = [name for name in claim.participant_key if name in own_columns.columns]
    units = units_of(own_columns, fewest_draws, claim.unit_column, participant)
    rows = table.select(
        *dict.fromkeys((*claim.subject, *claim.repeated)),
        arm=pl.col(by).cast(pl.String),
        value=value,
        unit=units.of,
    ).filter(pl.col("arm").is_in(claim.contrast))
    # A condition that reads no texts keeps its participants as units.
    is_draw = rows["unit"].str.starts_with("draw ")
    is_mixed = units.name == DRAWS and is_draw.any() and not is_draw.all()
    unit = DRAWS_OR_OWN if is_mixed else units.name
    had_values = rows["value"].count() > 0
    rows = _keep_common_rounds(rows, claim.repeated)
    if had_values and not rows["value"].count():
        return f"no round has values in both {' and '.join(claim.contrast)}"
    looks_like_share = _looks_like_share(column, rows["value"])
    # Several rows of one subject in one arm are no independent observations. The value of a subject
    # may lie beyond the values of its rounds if rounds are missing.
    if claim.paired:
        rows = _drop_unpaired(rows, claim.subject, claim.repeated)
    is_share = claim.at_least is not None or table.schema[column] == pl.Boolean
    # A study type may declare its measure a share. Other columns are judged by their names.
    in_points = not is_share and (claim.is_mean_of_shares or looks_like_share)
    if claim.subject:
        are_shares = is_share or in_points
        rows = average_rounds(rows, claim.subject, claim.repeated, are_shares=are_shares)
    # A share lies between 0 and 1, so a margin of 5 was meant as 5 percentage points.
    if is_share and claim.margin >= 1:
        return f"{column} is a share: write smallest: 0.05 for five points"
    kind: Kind = "share" if is_share else "mean"
    return replace(claim, kind=kind, unit=unit, is_mean_of_shares=in_points), rows


def _apply_where(table: pl.DataFrame, value: pl.Expr, claim: Claim) -> tuple[pl.DataFrame, pl.Expr]:
    # The rows that count, and the value of each. The status of a workbook's answer is empty if the
    # answer is missing, so a claim that counts this status asks whether answers are valid. A
    # subject with an invalid answer was asked. So it is lost, and its row stays. Any other column
    # selects rows, also a study type's own `status`.
    for name, levels in claim.where:
        is_counted = pl.col(name).is_in(list(levels), nulls_equal=True)
        if name == "status" and None in levels:
            value = pl.when(is_counted).then(value)
        else:
            table = table.filter(is_counted)
    return table, value


def _keep_common_rounds(rows: pl.DataFrame, repeated: Sequence[str]) -> pl.DataFrame:
    # A round that one arm lacks says nothing about a difference, so its values are removed. Rounds
    # without any value are not counted as missing, so their rows are removed.
    if not repeated:
        return rows
    known = pl.col("arm").filter(pl.col("value").is_not_null()).n_unique()
    arms = rows.select(known).item()
    if arms == 0:
        return rows
    rows = rows.with_columns(known_arms=known.over(repeated)).filter(pl.col("known_arms") > 0)
    is_common = pl.col("known_arms") == arms
    return rows.with_columns(pl.when(is_common).then(pl.col("value"))).drop("known_arms")


def average_rounds(
    rows: pl.DataFrame,
    subject: Sequence[str],
    repeated: Sequence[str],
    *,
    are_shares: bool = False,
) -> pl.DataFrame:
    """Return the mean value of each subject in each arm, with the number of its missing rounds.

    - `rows`: the columns of `subject` and `repeated`, `arm`, `unit`, and `value` (null if unknown).
    - `subject`: the columns that identify a subject.
    - `repeated`: the columns that identify a round. Empty: rows are averaged as they are.
    - `are_shares`: True if the mean of an arm lies between 0 and 1.
    """
    # A subject's mean must not depend on which rounds it answered, because rounds differ in their
    # levels (see `average_over_rounds`). The levels are those of the arm, so that an effect may
    # differ between rounds.
    keys = ["arm", *subject, "unit"]
    known = pl.col("value").is_not_null()
    subjects = rows.group_by(keys, maintain_order=True).agg(
        pl.col("value").mean(), missing_rounds=pl.len() - known.sum()
    )
    # If no round is missing, there is nothing to move, and rounding must not change a figure.
    is_complete = not repeated or _has_all_rounds(rows, subject, repeated)
    if is_complete or not rows["value"].count():
        return subjects
    participant = _participant_columns(subject, repeated)
    groups = _find_round_groups(rows, participant, repeated)
    moved = []
    for arm in rows.filter(known)["arm"].unique(maintain_order=True):
        # A person of a table from elsewhere may have no arm.
        is_used = rows.select(pl.col("arm").eq_missing(pl.lit(arm)) & known).to_series()
        part = rows.filter(is_used)
        values = average_over_rounds(
            part["value"].to_numpy(),
            rounds=_index_rows(part, repeated),
            subjects=_index_rows(part, keys),
            participants=_index_rows(part, participant),
            groups=groups[is_used.to_numpy()],
        )
        names = part.select(keys).unique(maintain_order=True)
        moved.append(names.with_columns(value=pl.Series(values, dtype=pl.Float64)))
    averaged = subjects.drop("value").join(
        pl.concat(moved), on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    if not are_shares:
        return averaged
    # Levels of rounds add up, so an estimated share near 1 may exceed it.
    mean = pl.col("value").mean().over("arm")
    return averaged.with_columns(value=pl.col("value") + mean.clip(0, 1) - mean)


def _participant_columns(subject: Sequence[str], repeated: Sequence[str]) -> list[str]:
    # As in `Claim.participant_key`.
    return ["arm", *(name for name in subject if name not in repeated), "unit"]


def _index_rows(rows: pl.DataFrame, columns: Sequence[str]) -> Indices:
    # The index of each row's combination of values, in the order of first occurrence. The columns
    # get other names, because one of them may be called `index`.
    renamed = rows.select(pl.col(name).alias(str(i)) for i, name in enumerate(columns))
    found = renamed.unique(maintain_order=True).with_row_index("index")
    keys = renamed.columns
    indexed = renamed.join(found, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return indexed["index"].to_numpy().astype(np.intp)


def _find_round_groups(
    rows: pl.DataFrame, participant: Sequence[str], repeated: Sequence[str]
) -> Indices:
    # The group of each row's round. Rounds that the same participants are asked are in one group.
    # Roles that answer different rounds miss none of the other role's rounds.
    people, rounds = _index_rows(rows, participant), _index_rows(rows, repeated)
    groups = rounds
    while True:
        # Each person's rounds get the lowest group of these rounds, until nothing changes.
        lowest = _lowest_within(people, groups)
        lowest = _lowest_within(rounds, lowest)
        if np.array_equal(lowest, groups):
            return groups
        groups = lowest


def _lowest_within(keys: Indices, values: Indices) -> Indices:
    lowest = np.full(keys.max() + 1, values.max())
    np.minimum.at(lowest, keys, values)
    return lowest[keys]


def _has_all_rounds(rows: pl.DataFrame, subject: Sequence[str], repeated: Sequence[str]) -> bool:
    # Whether no value is unknown, and all participants of an arm have as many rounds. A table may
    # record a missing round without a row. Roles that answer different rounds miss none.
    participant = _participant_columns(subject, repeated)
    counts = rows.select("arm", count=pl.struct(*repeated).n_unique().over(participant))
    is_most = pl.col("count") == pl.col("count").max().over("arm")
    return not rows["value"].null_count() and bool(counts.select(is_most.all()).item())


def _drop_unpaired(
    rows: pl.DataFrame, subject: Sequence[str], repeated: Sequence[str]
) -> pl.DataFrame:
    # Subjects without a value in one arm are lost, so their values are removed before the levels of
    # rounds are estimated. A round may then have no value in one arm, and its values are removed as
    # well, until every subject and every round has values in both arms.
    count = -1
    while rows["value"].count() != count:
        count = rows["value"].count()
        for keys in filter(None, ([*subject, "unit"], [*repeated])):
            arms = pl.col("arm").filter(pl.col("value").is_not_null()).n_unique()
            rows = rows.with_columns(pl.when(arms.over(keys) > 1).then(pl.col("value")))
    return rows


def _looks_like_share(column: str, values: pl.Series) -> bool:
    # As in reports, the ending of the name and the range of the values decide.
    known = values.drop_nulls()
    return column.endswith(("_share", "_rate")) and bool(known.is_between(0.0, 1.0).all())


def _lengthen(table: pl.DataFrame, column: str, claim: Claim) -> pl.DataFrame:
    # From one column for each arm to one row for each arm. One column may hold whole numbers and
    # the other one fractions.
    kinds = {table.schema[arm_column] for arm_column in measured_columns(claim)}
    kind = kinds.pop() if len(kinds) == 1 else pl.Float64()
    return pl.concat(
        table.with_columns(pl.col(arm_column).cast(kind).alias(column), pl.lit(arm).alias(ACROSS))
        for arm, arm_column in zip(claim.contrast, measured_columns(claim), strict=True)
    )


def _sides_of(claim: Claim, resolved: Claim, rows: pl.DataFrame, pending: Sequence[int]) -> Read:
    first_rows, second_rows = (rows.filter(pl.col("arm") == arm) for arm in claim.contrast)
    first, second = (
        pair_sides(first_rows, second_rows, claim.subject)
        if claim.paired
        else (side_of(first_rows), side_of(second_rows))
    )
    if empty_arms := [
        arm for arm, side in zip(claim.contrast, (first, second), strict=True) if not side.units
    ]:
        return f"{claim.column} is unknown in {' and '.join(empty_arms)}"
    missing_rounds = [
        _count_missing_rounds(rows, claim.repeated) for rows in (first_rows, second_rows)
    ]
    first, second = (
        replace(side, pending=more, missing_rounds=missing)
        for side, more, missing in zip((first, second), pending, missing_rounds, strict=True)
    )
    return replace(resolved, estimand=claim.estimand or _describe_estimand(resolved)), first, second


def _count_missing_rounds(rows: pl.DataFrame, repeated: Sequence[str]) -> int:
    # A subject without any value is lost, and is counted as such.
    known = rows.filter(pl.col("value").is_not_null())
    return int(known["missing_rounds"].sum()) if repeated else 0


def side_of(rows: pl.DataFrame) -> Side:
    """Return the values of one condition, for a comparison between different participants."""
    return Side.from_values(rows["value"].fill_null(math.nan).to_list(), rows["unit"].to_list())


def pair_sides(
    first: pl.DataFrame, second: pl.DataFrame, subject: Sequence[str]
) -> tuple[Side, Side]:
    """Return the values of two conditions, only for subjects with a value in both conditions.

    - `subject`: the columns that identify a subject.

    Subjects are in the order of `first`.
    """
    keys = [*subject, "unit"]
    first_values, second_values = (rows.select(*keys, "value") for rows in (first, second))
    joined = first_values.join(
        second_values, on=keys, how="full", coalesce=True, maintain_order="left_right"
    )
    is_known = pl.all_horizontal(pl.col("value", "value_right").is_not_null())
    complete_pairs = joined.filter(is_known)
    # A subject that is known in one arm only is lost for both sides.
    lost_units = tuple(joined.filter(~is_known)["unit"].to_list())
    units = tuple(complete_pairs["unit"].to_list())
    subjects = tuple(complete_pairs.select(keys).iter_rows())
    first_side, second_side = (
        Side(complete_pairs[name].to_numpy(), units, lost_units, subjects)
        for name in ("value", "value_right")
    )
    return first_side, second_side


def as_declared(
    claim: Claim,
    tables: Tables,
    others: Sequence[Claim] = (),
    conditions: Conditions | None = None,
) -> Claim:
    """Complete a claim that a hypothesis states: set its kind, its unit and missing names.

    - `tables`: the declared tables, each with the kinds of its columns. If no table declares the
      measure, kind and unit of the claim stay as they are.
    - `others`: the claims of the study type.
    - `conditions`: the conditions of the run with their names.
    """
    conditions = conditions or {}
    claim = replace(claim, by=find_condition_column(claim, tables, others, conditions))
    names = {key: name for own_names in conditions.values() for key, name in own_names.items()}
    names |= conditions.get(claim.by, {})
    # If another claim compares the same arms in the same measure, its unit is used.
    table, kind = find_declared(claim, tables)

    def table_of(other: Claim) -> str:
        declared = find_declared(other, tables)[0] if tables else ""
        return declared or other.named_table

    # The claims of a study type name the columns of a table once.
    name = table or claim.named_table
    own = [other for other in others if table_of(other) == name]
    design = design_of(tables.get(name, ()), own)
    # A plan is read without the tables, and the columns of its claims count as they are written.
    # They may be the usual ones.
    if not tables:
        design = design._replace(by="", subject=())
    named = _name_as_declared(claim, others, names)
    named = _plan_rows(named, own) if tables else _add_rounds(named, others)
    named = design.apply_to(named)
    if kind is None:
        return named
    measure = claim.column
    units_of_same_contrast = (
        with_declared_unit(other, tables).unit
        for other in others
        if other.measure == f"{table}.{measure}" and {*other.contrast} == {*claim.contrast}
    )
    unit = next(units_of_same_contrast, _unit_of_columns(named, tables[table]))
    kinds: dict[bool, Kind] = {True: "share", False: "mean"}
    resolved = replace(named, kind=kinds[kind == "bool"], unit=unit)
    return replace(resolved, estimand=resolved.estimand or _describe_estimand(resolved))


def with_declared_unit(claim: Claim, tables: Tables) -> Claim:
    """Return a claim of a study type with the unit that its table will have.

    - `tables`: the declared tables, each with the kinds of its columns.
    """
    # A study type may word the unit. Otherwise the plan must not state another one than the report.
    table, kind = find_declared(claim, tables)
    if claim.unit != PARTICIPANT or kind is None:
        return claim
    return replace(claim, unit=_unit_of_columns(claim, tables[table]))


def _unit_of_columns(claim: Claim, names: Iterable[str]) -> str:
    # As in `read_rows`, the column with the conditions holds no unit. Other columns are left out: a
    # table may have hundreds of measures, with a claim about each.
    own = {claim.unit_column, *claim.participant_key, DRAW, *CLUSTER_COLUMNS, *PARTICIPANT_COLUMNS}
    schema = {name: pl.String for name in names if name in own and name != claim.by}
    columns = pl.DataFrame(schema=schema)
    participant = [name for name in claim.participant_key if name in columns.columns]
    return units_of(columns, unit_column=claim.unit_column, subject=participant).name


def _plan_rows(stated: Claim, declared: Sequence[Claim]) -> Claim:
    # The result of a hypothesis is also that of the study type's claim about the same contrast. So
    # both count the same rows: of the same subjects, in the same rounds, and in the same pairs.
    same = [claim for claim in declared if claim.is_same_measure(stated) and claim.subject]
    same.sort(key=lambda claim: not claim.is_same_contrast(stated))
    if stated.subject or not same:
        return stated
    return replace(
        stated,
        subject=same[0].subject,
        repeated=same[0].repeated,
        # Subjects need not be in all conditions.
        paired=same[0].paired and same[0].is_same_contrast(stated),
        unit_column=same[0].unit_column,
    )


def _add_rounds(sealed: Claim, declared: Sequence[Claim]) -> Claim:
    # Plans of earlier versions do not name the rounds.
    rounds = (
        claim.repeated
        for claim in declared
        if claim.is_same_measure(sealed) and claim.subject == sealed.subject
    )
    return replace(sealed, repeated=sealed.repeated or next(rounds, ()))


def _name_as_declared(stated: Claim, declared: Sequence[Claim], names: Mapping[str, str]) -> Claim:
    # Names that the claim has already are kept. An arm or measure without a name in the study type
    # keeps its name in the tables.
    same = [claim for claim in declared if claim.is_same_measure(stated)]
    labels = dict(names) | {
        arm: name
        for claim in same or declared
        for arm, name in zip(claim.contrast, claim.names, strict=True)
        if name
    }
    first, second = (
        name or labels.get(arm, "") for arm, name in zip(stated.contrast, stated.names, strict=True)
    )
    worded = same[0] if same and not stated.outcome else stated
    # The study type states the population and what is held equal, such as the summaries of the run.
    # The name of a column does not say this.
    declared_estimands = (
        claim.estimand
        if claim.contrast == stated.contrast
        else swap_words(claim.estimand, *claim.arm_labels)
        for claim in same
        if {*claim.contrast} == {*stated.contrast}
    )
    estimand = stated.estimand or next(declared_estimands, "")
    return replace(
        stated,
        names=(first, second),
        outcome=worded.outcome,
        outcome_says_rows=worded.outcome_says_rows,
        estimand=estimand,
    )


def _describe_estimand(claim: Claim) -> str:
    first, second = claim.arm_labels
    rows, measure = claim.rows_label, claim.measure_label
    what = f"mean of “{measure}”"
    if claim.kind == "share":
        # Without words of the study type, a number to reach is part of the measure.
        is_number = claim.at_least is not None and not claim.outcome
        what = f"share with “{measure}”" if is_number else f"share for which “{measure}” is true"
    return (
        f"Among simulated cases like those of this run{f' ({rows})' * bool(rows)}, the {what} in "
        f"{first} minus that in {second}. Independent unit: {claim.unit}."
    )
