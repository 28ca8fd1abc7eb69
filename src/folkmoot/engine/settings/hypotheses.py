"""Hypotheses of a study file, which are stated before the run and tested first."""

# Each hypothesis is a claim (`measures.inference.claims`) about a difference between two arms in
# one column of a table. It states a direction and the smallest difference that matters. Hypotheses
# are read from `plan.json`, to which they are written before the first call, because the study file
# can be edited later.

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from folkmoot.engine.settings.claimed_tables import (
    Conditions,
    Tables,
    comparable_columns,
    find_condition_column,
    find_declared,
    measured_columns,
)
from folkmoot.errors import Problem
from folkmoot.field_notes import field_notes
from folkmoot.hints import closest_name, did_you_mean, join_first
from folkmoot.measures.inference.claims import (
    ACROSS,
    MIRRORED,
    MOST_PRIMARY,
    Claim,
    Direction,
    Family,
    Result,
)
from folkmoot.measures.inference.estimates import finite_or_none, format_count
from folkmoot.measures.wording import (
    EXPLORATORY,
    FIXED_BEFOREHAND,
    NO_CONCLUSION,
    join_sentences,
    word,
)
from folkmoot.randomness import digest
from folkmoot.storage.findings import (
    Finding,
    IntervalChart,
    ResultTable,
    TableCell,
    cell_in_points,
)
from folkmoot.storage.run_folder import RunFolder, first_versions
from folkmoot.storage.tables import CONDITION_COLUMNS, join_unit_names

# The key of the finding.
KEY = "hypotheses"
FINDINGS_SECTION = "Preregistered hypotheses"
# The part of `plan.json` with the settings.
DESIGN = "design"
# The unit of a claim before its table is known.
UNKNOWN_UNIT = "unit of the table"
# At most this many columns are listed in a hint.
MAX_LISTED = 8


class Hypothesis(BaseModel):
    """One hypothesis of a study file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: str = Field(
        min_length=1,
        description="number or truth value in a table, e.g. `position_changed` or "
        "`measures.satisfaction`",
        json_schema_extra=field_notes(label="What is measured"),
    )
    contrast: tuple[str, str] = Field(
        description="two conditions; the difference is first minus second",
        json_schema_extra=field_notes(label="Conditions to compare"),
    )
    direction: Direction = Field(description="how the first condition differs from the second")
    smallest: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="smallest difference that matters",
        json_schema_extra=field_notes(
            unit="unit of the measure; 0.05 is 5 points of a share",
            label="Smallest difference that matters",
        ),
    )
    expected: float | None = Field(
        None,
        allow_inf_nan=False,
        description="difference that you expect, for `folkmoot power`",
        json_schema_extra=field_notes(unit="unit of the measure", label="Expected difference"),
    )

    @field_validator("contrast")
    @classmethod
    def _check_distinct_conditions(cls, contrast: tuple[str, str]) -> tuple[str, str]:
        if contrast[0] == contrast[1]:
            raise ValueError("must name two different conditions")
        return contrast

    def as_claim(self, family: Family = "primary") -> Claim:
        """Return the hypothesis as a claim, which is a comparison of two conditions."""
        # Kind and unit of the claim are placeholders until the table of the measure is known.
        return Claim(
            self.measure,
            self.contrast,
            "mean",
            self.direction,
            self.smallest,
            family,
            UNKNOWN_UNIT,
        )

    @property
    def says(self) -> str:
        """The hypothesis as a sentence."""
        return self.as_claim().says


def check_hypotheses(
    hypotheses: Sequence[Hypothesis],
    tables: Tables,
    conditions: Conditions,
    declared: Sequence[Claim],
) -> list[Problem]:
    """Return those problems of hypotheses that can be found before a run.

    - `tables`: the declared tables, each with the kinds of its columns. A study type that declares
      no tables may still record any column.
    - `conditions`: the conditions of the run. Empty if the study type does not name the conditions.
    - `declared`: the claims of the study type.
    """
    problems: list[Problem] = []
    for number, hypothesis in enumerate(hypotheses, 1):
        key = f"hypotheses[{number}]"
        claim = hypothesis.as_claim()
        claim = replace(claim, by=find_condition_column(claim, tables, declared, conditions))
        problems += _check_comparison(claim, tables, conditions, key)
        sizes = {"smallest": hypothesis.smallest, "expected": hypothesis.expected or 0.0}
        problems += _check_sizes(claim, sizes, tables, key)
        for earlier, other in enumerate(hypotheses[: number - 1], 1):
            if _comparison_of(hypothesis, tables) == _comparison_of(other, tables):
                hint = "several hypotheses are tested at a stricter level; remove one"
                message = f"states the same comparison as hypotheses[{earlier}]"
                problems.append(Problem(message, key=key, hint=hint))
    return problems


def check_claims(returned: object, tables: Tables, conditions: Conditions) -> list[Problem]:
    """Return those problems of the claims of a study type that can be found before a run.

    - `returned`: what the function `claims` of the study type returned.
    - `tables`, `conditions`: as in `check_hypotheses`.
    """
    claims = [*returned] if isinstance(returned, Iterable) else []
    if not (isinstance(returned, Iterable) and all(isinstance(claim, Claim) for claim in claims)):
        return [Problem("must be a list of Claim", key="claims", hint="return [Claim(…)]")]
    problems = []
    for number, claim in enumerate(claims, 1):
        key = f"claims[{number}]"
        if not _may_be_undeclared(claim, tables):
            problems += _check_comparison(claim, tables, conditions, key)
        if claim.contrast[0] == claim.contrast[1]:
            message = "must name two different conditions"
            problems.append(Problem(message, key=f"{key}.contrast"))
        problems += _check_sizes(claim, {"margin": claim.margin}, tables, key)
    primary = sum(claim.family == "primary" for claim in claims)
    if primary > MOST_PRIMARY:
        message = f"{primary} claims are primary, and at most {MOST_PRIMARY} may be"
        hint = "each one makes the test of all others stricter; make the others secondary"
        problems.append(Problem(message, key="claims", hint=hint))
    return problems


def _may_be_undeclared(claim: Claim, tables: Tables) -> bool:
    # A protocol may record tables that the study type does not declare. A name that is similar to a
    # declared one is taken for a typing error.
    columns = {name for declared in tables.values() for name in declared}
    name, declared_names = (
        (claim.named_table, set(tables)) if claim.named_table else (claim.column, columns)
    )
    return name not in declared_names and closest_name(name, declared_names) is None


def _check_comparison(
    claim: Claim, tables: Tables, conditions: Conditions, key: str
) -> list[Problem]:
    problem = _check_measure(claim, tables, key) if tables else None
    return [problem] if problem is not None else _check_contrast(claim, tables, conditions, key)


def _comparison_of(hypothesis: Hypothesis, tables: Tables) -> tuple[str, ...]:
    # (table, column, first condition, second condition, direction), with the conditions in
    # alphabetical order. "A exceeds B" and "B falls below A" are one comparison, whatever the
    # margin.
    claim = hypothesis.as_claim()
    table = claim.named_table or find_declared(claim, tables)[0]
    first, second = hypothesis.contrast
    direction = hypothesis.direction
    if first > second:
        first, second, direction = second, first, MIRRORED.get(direction, direction)
    return table, claim.column, first, second, direction


def _check_measure(claim: Claim, tables: Tables, claim_key: str) -> Problem | None:
    key = f"{claim_key}.measure"
    named_table = claim.named_table
    # With a condition in each column, the first of these columns is named.
    column = measured_columns(claim)[0]
    if named_table and named_table not in tables:
        hint = did_you_mean(named_table, tables, f"there are: {', '.join(sorted(tables))}")
        return Problem(f"there is no table {named_table} in this study", key=key, hint=hint)
    table, kind = find_declared(claim, tables)
    if kind is None:
        places = [named_table] if named_table else [*tables]
        known = {name for place in places for name in comparable_columns(place, tables, claim.by)}
        where = f"the table {named_table}" if named_table else "any table of this study"
        hint = did_you_mean(
            column, sorted(known), f"there are: {join_first(sorted(known), MAX_LISTED)}"
        )
        return Problem(f"there is no column {column} in {where}", key=key, hint=hint)
    further_columns = {
        "by": ("" if claim.by == ACROSS else claim.by,),
        "unit_column": (claim.unit_column,),
        "subject": claim.subject,
        "where": tuple(name for name, _ in claim.where),
    }
    for part, names in further_columns.items():
        for name in names:
            if name and name not in tables[table]:
                message = f"there is no column {name} in the table {table}"
                hint = did_you_mean(name, tables[table])
                return Problem(message, key=f"{claim_key}.{part}", hint=hint)
    comparable = comparable_columns(table, tables, claim.by)
    if column in comparable:
        return None
    if comparable:
        hint = f"numbers and truth values of {table}: {join_first(comparable, MAX_LISTED)}"
        return Problem(
            f"{column} is a text; only numbers and truth values differ", key=key, hint=hint
        )
    with_conditions = [name for name in tables if comparable_columns(name, tables)]
    hint = f"these have: {', '.join(sorted(with_conditions))}"
    return Problem(f"the table {table} has no conditions to compare", key=key, hint=hint)


def _check_contrast(
    claim: Claim, tables: Tables, conditions: Conditions, key: str
) -> list[Problem]:
    table, _ = find_declared(claim, tables)
    by = claim.by or next((name for name in CONDITION_COLUMNS if name in tables.get(table, ())), "")
    known = [*conditions.get(by, ())]
    # Without settings that switch the measure off, all conditions have it.
    measured = [*conditions.get(f"{table}.{claim.column}", known)]
    problems = []
    for arm in claim.contrast if known else ():
        if arm not in known:
            message = f"there is no {by} {arm} in this study with these settings"
            listed = f"there are: {', '.join(known)}"
        elif arm not in measured:
            message = f"{claim.column} is not recorded in the {by} {arm} with these settings"
            listed = f"it is recorded in: {', '.join(measured)}"
        else:
            continue
        hint = " ".join(filter(None, (did_you_mean(arm, measured), listed)))
        problems.append(Problem(message, key=f"{key}.contrast", hint=hint))
    return problems


def _check_sizes(
    claim: Claim, sizes: Mapping[str, float], tables: Tables, key: str
) -> list[Problem]:
    # `sizes`: differences by key. The first one is the margin.
    problems = []
    if claim.direction == "equivalent" and not claim.margin:
        margin = next(iter(sizes))
        hint = f"write {margin}: with the largest difference that still counts as none"
        problems.append(Problem("equivalent needs a margin", key=f"{key}.{margin}", hint=hint))
    is_share = find_declared(claim, tables)[1] == "bool"
    for name, size in sizes.items() if is_share else ():
        if abs(size) >= 1:
            hint = f"write {name}: {size / 100:g} for {size:g} points" if abs(size) < 100 else ""
            message = "the measure is a share, so a difference lies between −1 and 1"
            problems.append(Problem(message, key=f"{key}.{name}", hint=hint))
    return problems


NOT_SEALED = (
    "Not confirmed as preregistered: the sealed part of plan.json no longer has its original hash."
)
NO_PLAN = "Not confirmed as preregistered: the run has no sealed plan."
ADDED_LATER = "Not confirmed as preregistered: the sealed plan has no hypotheses."


def is_seal_intact(part: Mapping[str, Any]) -> bool:
    """Return whether a part of `plan.json` still matches the hash that is stored with this part."""
    # The same form as in `Plan.seal_part`, so that an edited plan has another hash.
    content = json.dumps(part.get("data"), sort_keys=True)
    return bool(part.get("hash") == digest(content).hex())


def read_sealed(run: RunFolder) -> tuple[list[Hypothesis], str]:
    """Return the hypotheses of a run, and a reason to doubt that they were stated before the data.

    The reason is "" if there is no doubt.
    """
    # The hypotheses come from `plan.json`, or from the settings of the run if the plan has none.
    # There is no doubt if the plan still matches its hash. Hypotheses that --accept-changes sealed
    # later are not those of before the data.
    sealed = run.plan.get("sealed", {}).get(DESIGN, {})
    registered = first_versions(run.plan).get(DESIGN, sealed)
    stated = hypotheses_of(registered)
    doubt = "" if is_seal_intact(sealed) and is_seal_intact(registered) else NOT_SEALED
    # The settings may still hold hypotheses that were added after the run.
    if not stated:
        stated = run.config.get("hypotheses") or ()
        doubt = ADDED_LATER if sealed else NO_PLAN
    return [Hypothesis.model_validate(hypothesis) for hypothesis in stated], doubt


def read_restated(run: RunFolder) -> list[Hypothesis]:
    """Return the hypotheses of the present plan if `--accept-changes` changed them, or none."""
    present = hypotheses_of(run.plan.get("sealed", {}).get(DESIGN, {}))
    changed = present != hypotheses_of(first_versions(run.plan).get(DESIGN, {}))
    return [Hypothesis.model_validate(hypothesis) for hypothesis in present] if changed else []


def hypotheses_of(design: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the hypotheses in a version of the plan's part with the settings."""
    return design.get("data", {}).get("settings", {}).get("hypotheses") or ()


def build_hypotheses_finding(results: Sequence[Result], *, doubt: str = "") -> Finding:
    """Return the finding with the estimate and the verdict on each hypothesis.

    - `results`: the results of the hypotheses.
    - `doubt`: a reason to doubt that the hypotheses were stated before the data, or "".
    """
    # With a doubt, hypotheses are exploratory and get no verdict. Several hypotheses are decided by
    # Holm's method. The table then has two intervals for each: one corrected for their number, and
    # the 95 % interval of the hypothesis alone.
    has_joint_intervals = any(result.joint is not None for result in results)
    rows: list[dict[str, TableCell]] = []
    lines: list[tuple[str, float, float, float]] = []
    # Long labels are cut, and hypotheses about one measure would then look alike.
    is_one_measure = len({result.claim.label for result in results}) == 1
    contrasts = {result.claim.contrast for result in results}
    has_short_names = is_one_measure and len(contrasts) == len(results)

    def line_name(claim: Claim) -> str:
        return claim.contrast_label if has_short_names else claim.says

    for result in results:
        estimate, bounds = result.estimate, result.bounds
        differences = {
            "difference": finite_or_none(estimate.value),
            "low": finite_or_none(estimate.low),
            "high": finite_or_none(estimate.high),
            **(_joint_bounds(result) if has_joint_intervals else {}),
        }
        if_missing = {
            "least_if_missing": bounds.low if bounds else None,
            "most_if_missing": bounds.high if bounds else None,
        }
        rows.append(
            {
                "hypothesis": result.claim.says,
                "verdict": result.verdict if result.why or not doubt else NO_CONCLUSION,
                **_in_unit(differences, result.claim),
                "adjusted_p": finite_or_none(result.p),
                "units": estimate.unit_count,
                "unit": result.claim.unit,
                "estimand": result.claim.estimand,
                "method": estimate.method or None,
                "excluded": sum(result.excluded) if result.excluded else None,
                **_in_unit(if_missing, result.claim),
            }
        )
        if estimate.has_interval:
            # The verdict follows the joint interval.
            low, high = (estimate.low, estimate.high) if result.joint is None else result.joint[:2]
            lines.append((line_name(result.claim), estimate.value, low, high))
    joint_text = (
        " of single hypotheses; joint: intervals that hold together at 95 % and agree with the "
        "verdict; if the verdict is “supported” or “contradicted”, a bound at zero or at the "
        "smallest difference is excluded"
        if has_joint_intervals
        else ""
    )
    null_text = "the smallest difference that matters, if one is stated, otherwise no difference"
    adjusted_text = f"of {null_text}{', among exploratory claims' * bool(doubt)}, by Holm's method"
    estimates = join_sentences(
        (
            word(
                "estimate",
                "of a measure",
                about=result.claim.label,
                estimate=result.estimate_text,
            )
            for result in results
        ),
        "; ",
    )
    margins = _margin_lines(results)
    legend = ["joint intervals"] * has_joint_intervals + ["dotted: margin"] * bool(margins)
    return Finding(
        KEY,
        "Hypotheses (not confirmed as sealed)" if doubt else "Preregistered hypotheses",
        word("estimate", "doubtful", doubt=doubt, estimates=estimates)
        if doubt
        else join_sentences(result.says for result in results),
        ResultTable.from_records(
            rows,
            f"95 % intervals{joint_text}; adjusted p: {adjusted_text}; "
            "excluded: units without a known measure"
            f"{', or not yet' * any(result.pending for result in results)}; least and "
            "most if missing: the difference over all ways of filling them in, without sampling "
            "error (Horowitz and Manski 2000).",
        ),
        IntervalChart(
            tuple(lines),
            f"difference ({'; '.join(legend)})" if legend else "difference",
            0.0,
            # Shares and means have different units, so an axis in points holds shares alone.
            percent=all(result.claim.in_points for result in results),
            margins=margins,
        )
        if lines
        else None,
        notes=(
            f"{doubt} {EXPLORATORY}"
            if doubt
            else f"Hypotheses: {FIXED_BEFOREHAND}. Supported: the whole interval (of "
            "several hypotheses: the joint one) is "
            "on the stated side, beyond the smallest difference that matters. Contradicted: the "
            "whole interval is on the other side. Neither shown nor ruled out: all other cases. "
            "All other findings of this run are exploratory.",
            *_missing_answer_caveats(results),
        ),
        section="Hypotheses" if doubt else FINDINGS_SECTION,
        headline=True,
        alarms=(doubt,) if doubt else (),
        # Each hypothesis has its own unit of analysis. If they differ, the table gives their
        # numbers.
        unit=join_unit_names(result.claim.unit for result in results) if lines else "",
        units=max(result.estimate.unit_count for result in results),
    )


def _margin_lines(results: Sequence[Result]) -> tuple[float, ...]:
    # One pair of lines can show the margin of all hypotheses only if unit and size are the same.
    margins = {result.claim.margin for result in results}
    if len(margins) > 1 or 0.0 in margins:
        return ()
    directions = {result.claim.direction for result in results}
    (margin,) = margins
    above = (margin,) if directions != {"less"} else ()
    below = (-margin,) if directions != {"greater"} else ()
    return (*below, *above)


def _in_unit(cells: Mapping[str, float | None], claim: Claim) -> dict[str, TableCell]:
    # Hypotheses of one table may have different units, so the cells and not the columns have them.
    return {name: cell_in_points(value, claim.in_points) for name, value in cells.items()}


def _joint_bounds(result: Result) -> dict[str, float | None]:
    low, high = result.joint[:2] if result.joint is not None else (None, None)
    return {"joint_low": low, "joint_high": high}


def _missing_answer_caveats(results: Sequence[Result]) -> list[str]:
    return [
        f"{result.claim.says}: {format_count(sum(result.lost), 'missing answer')} could change the "
        "sign "
        f"({result.claim.format_signed(result.bounds.low)} to "
        f"{result.claim.format_signed(result.bounds.high)})."
        for result in results
        if result.bounds is not None and not result.bounds.sign_holds and not result.why
    ]
