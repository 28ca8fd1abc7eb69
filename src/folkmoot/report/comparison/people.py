"""Compare human answers with a run: how far the simulation is off, and what few humans can correct.

Humans are matched with simulated participants by `participant`, if the file has this column.
Personas made from a survey keep the ids of its respondents. Files without matching ids are compared
as separate samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from folkmoot.kit.findings import (
    ALPHA,
    HOLM_NOTE,
    HUMAN_BENCHMARK_SECTION,
    Row,
    collect_findings,
    estimate_cells,
    format_mean_value,
    format_points,
    interval_line,
    join_clauses,
    known,
    p_value_cells,
    p_value_words,
    with_adjusted_p,
)
from folkmoot.measures.diversity import total_variation, total_variation_by_chance
from folkmoot.measures.inference import estimates
from folkmoot.measures.inference.claims import Claim, Side, estimate_difference
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, format_count
from folkmoot.measures.inference.rectified import (
    Rectified,
    people_needed,
    rectified_difference,
    rectified_mean,
)
from folkmoot.report.comparison.measured_claims import (
    NOBODY,
    Measured,
    measures_of,
    name_arm,
    name_measure,
    read_measure,
)
from folkmoot.report.comparison.samples import EVERYBODY, Sample, condition_name, split_by_condition
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    CONDITION_COLUMNS,
    PARTICIPANT_COLUMNS,
    condition_column,
    units_of,
)

SECTION = HUMAN_BENCHMARK_SECTION
# An attribute with more levels, such as age in years, would give groups too small to compare.
MOST_LEVELS = 8
UNIT = "independent unit"
# The column that holds the answer of humans who voted only once.
CHOICE = "initial_choice"
IDS = frozenset({"participant_id", "initial_choice", "final_choice", "status", "error_message"})


@dataclass(frozen=True, slots=True)
class Pair:
    """One measure in one condition, simulated and human.

    Rows have `who` (null if ids are unknown), `unit` and `value`. `share` is true for shares.
    """

    measure: str
    arm: str
    simulated: pl.DataFrame
    people: pl.DataFrame
    share: bool


def against_people(run: Sample, people: Sample) -> list[Finding]:
    """Return calibration, corrected estimates and heterogeneity of one run and one file of
    answers."""
    real = people.tables["participants"]
    simulated = run.tables.get("participants", pl.DataFrame())
    if "status" in simulated.columns:
        # Participants who did not finish would count as unchanged.
        simulated = simulated.filter(pl.col("status") == "complete")
    simulated = _known_as(simulated, real)
    measured = measure_pairs(run, people)
    return collect_findings(
        calibration_finding(run.name, simulated, real, measured),
        rectified_finding(run.name, [*measured, *_choice_pairs(run, people)]),
        heterogeneity_finding(run.name, simulated, real),
    )


def measure_pairs(run: Sample, people: Sample) -> list[Pair]:
    """Return the measures that a run and a file of human answers share, by condition.

    These are the measures of the run's claims and further columns of its table of participants.
    """
    claims = measures_of(run.claims)
    claimed = {measure.measure.rpartition(".")[2] for measure in claims}
    table = run.tables.get("participants")
    if table is not None:
        plain = [
            column
            for column in _shared_columns(table, people.tables["participants"])
            if column not in claimed
        ]
        claims |= {Claim(f"participants.{column}", NOBODY): [] for column in plain}
    return [
        pair for measure, own in claims.items() for pair in _pairs_of(run, people, measure, own)
    ]


def _pairs_of(
    run: Sample, people: Sample, measure: Claim, claims: Sequence[Claim]
) -> Iterator[Pair]:
    model, human = read_measure(run, measure), read_measure(people, measure)
    if model is None or human is None:
        return
    name, share = name_measure(measure), model.claim.kind == "share"
    if {*human.arms} == {EVERYBODY}:
        arms = {EVERYBODY: (pl.concat(model.arms.values()), human.arms[EVERYBODY])}
    else:
        arms = {
            arm: (rows, human.arms[arm]) for arm, rows in model.arms.items() if arm in human.arms
        }
    for arm, (ours, theirs) in arms.items():
        shown = condition_name(arm) if arm == EVERYBODY else name_arm(arm, claims)
        yield Pair(name, shown, *_with_ids(ours, theirs, (model, human)), share)


def _with_ids(
    ours: pl.DataFrame, theirs: pl.DataFrame, read: tuple[Measured, Measured]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables with the columns `who`, `unit` and `value`, without missing values.

    `who` is the id under which the humans are known. This may be the id of a persona. If it is not
    unique, `who` includes the conversation. Without ids, `who` is the conversation.
    """
    own, other = (one.claim.subject for one in read)
    shared = [column for column in own if column in other and column in CLUSTER_COLUMNS]
    theirs_by = next((column for column in other if column in PARTICIPANT_COLUMNS), "")
    ids = [column for column in own if column in PARTICIPANT_COLUMNS]
    keys: tuple[list[str], list[str]] = (shared, shared)
    if theirs_by and ids:
        known_ids = theirs[theirs_by].cast(pl.String).implode()
        # Take the id column of the run that has the most ids in common with the file.
        best = max(ids, key=lambda column: ours[column].cast(pl.String).is_in(known_ids).sum())
        unique = not any(
            table[column].is_duplicated().any()
            for table, column in ((ours, best), (theirs, theirs_by))
        )
        keys = ([best], [theirs_by]) if unique else ([*shared, best], [*shared, theirs_by])
    elif theirs_by or ids:
        keys = ([], [])
    one, two = (
        rows.select(
            who=pl.concat_str([pl.col(name).cast(pl.String) for name in names], separator="/")
            if names
            else pl.lit(None, pl.String),
            unit="unit",
            value="value",
        ).drop_nulls("value")
        for rows, names in zip((ours, theirs), keys, strict=True)
    )
    return one, two


def _choice_pairs(run: Sample, people: Sample) -> list[Pair]:
    """Return each option of the first choice as a share, for humans who voted only once."""
    table, real = run.tables.get("participants"), people.tables["participants"]
    if (
        table is None
        or _in_both_tables("position_changed", table, real)
        or not _in_both_tables(CHOICE, table, real)
    ):
        return []
    simulated, real = _with_choices(CHOICE, table, real)
    ours = replace(run, tables={"participants": simulated})
    theirs = replace(people, tables={"participants": real})
    options = [
        column
        for column in real.columns
        if column.startswith(f"{CHOICE}: ") and column in simulated.columns
    ]
    return [
        pair
        for option in options
        for pair in _pairs_of(
            ours, theirs, Claim(f"participants.{option}", NOBODY, outcome=option), ()
        )
    ]


def _known_as(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    """Return the simulation with the ids under which the humans are known.

    These are persona ids if the study gives its participants new numbers.
    """
    who, persona = "participant_id", "persona_id"
    if not {who, persona} <= {*simulated.columns} or who not in real.columns:
        return simulated
    ids = real[who].cast(pl.String).implode()
    own, theirs = (simulated[column].cast(pl.String).is_in(ids).sum() for column in (who, persona))
    return simulated if own >= theirs else simulated.with_columns(pl.col(persona).alias(who))


def _shared_arms(
    simulated: pl.DataFrame, real: pl.DataFrame
) -> dict[str, tuple[pl.DataFrame, ...]]:
    """Map each condition of both tables to (simulated, human), or EVERYBODY if the file has no
    conditions."""
    one, two = split_by_condition(simulated), split_by_condition(real)
    if condition_column(real) is None:
        return {EVERYBODY: (simulated, real)}
    return {arm: (one[arm], two[arm]) for arm in one if arm in two}


def _shared_columns(simulated: pl.DataFrame, real: pl.DataFrame) -> list[str]:
    """Return the columns that are numbers or truth values in both tables."""

    def is_comparable(kind: pl.DataType) -> bool:
        return kind.is_numeric() or kind == pl.Boolean

    both = (
        column
        for column in simulated.columns
        if column in real.columns and column not in IDS and column not in CONDITION_COLUMNS
    )
    return [
        column
        for column in both
        if is_comparable(simulated.schema[column]) and is_comparable(real.schema[column])
    ]


def calibration_finding(
    name: str, simulated: pl.DataFrame, real: pl.DataFrame, measured: Sequence[Pair]
) -> Finding | None:
    """Return the finding on rates, choices and spread of the simulation against those of humans."""
    rows: list[Row] = []
    gaps: list[float] = []
    for arm, (model, human) in _shared_arms(simulated, real).items():
        for which in ("initial_choice", "final_choice"):
            if which in model.columns and which in human.columns:
                ours, theirs = (table[which].drop_nulls() for table in (model, human))
                if len(ours) < FEWEST_UNITS or len(theirs) < FEWEST_UNITS:
                    continue
                options = sorted({*ours.to_list(), *theirs.to_list()})
                a, b = (
                    [int((series == option).sum()) for option in options]
                    for series in (ours, theirs)
                )
                apart, spread = (
                    total_variation(a, b),
                    _safe_ratio(_chance_of_difference(a), _chance_of_difference(b)),
                )
                gaps.append(apart)
                chance = total_variation_by_chance(a, b)
                line = _calibration_row(
                    condition_name(arm), which.replace("_", " "), (None, None), apart, spread
                )
                rows.append({**line, "by_chance": chance})
    for pair in measured:
        ours, theirs = pair.simulated["value"], pair.people["value"]
        if len(ours) < FEWEST_UNITS or len(theirs) < FEWEST_UNITS:
            continue
        values = (float(ours.mean() or 0.0), float(theirs.mean() or 0.0))  # type: ignore[arg-type]
        off = values[0] - values[1]
        if pair.share:
            gaps.append(abs(off))
        spread = _safe_ratio(ours.std(), theirs.std())
        rows.append(_calibration_row(pair.arm, pair.measure, values, off, spread))
    if not rows:
        return None
    error = sum(gaps) / len(gaps) if gaps else math.nan
    said = (
        f"Over {format_count(len(gaps), 'share')} {name} is off by {points_apart(error)} on "
        "average."
        if gaps
        else f"{name} and people share {format_count(len(rows), 'measure')}."
    )
    return Finding(
        "people_calibration",
        f"How far {name} is off",
        said,
        ResultTable.from_records(
            rows,
            "Off: simulation minus people; for choices the total variation distance. Spread: the "
            "simulation's standard deviation (for choices: evenness) over that of people.",
        ),
        notes=(
            "A spread below 1 means that the simulation is more uniform than people are.",
            "By chance: two samples of these sizes that choose alike lie further apart than this "
            "in one of twenty draws. A distance below it is no sign that the simulation is off.",
        ),
        section=SECTION,
        headline=True,
    )


def points_apart(distance: float) -> str:
    """Format the size of a difference of shares without its sign."""
    return estimates.format_points(abs(distance)).lstrip("+")


def _calibration_row(
    arm: str, measure: str, means: tuple[float | None, float | None], off: float, spread: float
) -> Row:
    return {
        "arm": arm,
        "measure": measure,
        "simulated": means[0],
        "people": means[1],
        "off": off,
        "by_chance": None,
        "spread_ratio": spread if math.isfinite(spread) else None,
    }


def _chance_of_difference(counts: Sequence[int]) -> float:
    """Return the chance that two people chose differently (Gini–Simpson index)."""
    n = sum(counts)
    return 1 - sum((count / n) ** 2 for count in counts)


def _safe_ratio(ours: object, theirs: object) -> float:
    if not (isinstance(ours, float) and isinstance(theirs, float)) or not theirs:
        return math.nan
    return ours / theirs


# Width of the planned interval for a share: five points to each side.
PLANNED_WIDTH = 0.1


def rectified_finding(name: str, measured: Sequence[Pair]) -> Finding | None:
    """Return means and effects corrected by matched humans, or None if there are no matches.

    The estimates are prediction-powered: Angelopoulos et al. (2023), doi:10.1126/science.adi6000.
    """
    # The keys are the measure and then the condition.
    found: dict[str, dict[str, Rectified]] = {}
    for pair in measured:
        estimate = _match_people(pair)
        if estimate is not None:
            found.setdefault(pair.measure, {})[pair.arm] = estimate
    if not found:
        return None
    rows: list[Row] = []
    lines: list[tuple[str, float, float, float]] = []
    said: list[str] = []
    for measure, arms in found.items():
        shown = measure.replace("_", " ")
        for arm, estimate in arms.items():
            label = f"{arm}: {shown}"
            lines.append(interval_line(f"{label}, people alone", estimate.people))
            lines.append(interval_line(f"{label}, corrected", estimate.corrected))
            rows.append(_rectified_row(arm, measure, estimate))
            said.append(_say_rectified(label, estimate))
        first, *others = arms
        for other in others:
            effect = rectified_difference(arms[other], arms[first])
            label = f"{other} minus {first}: {shown}"
            lines.append(interval_line(label, effect))
            rows.append(
                {
                    "arm": f"{other} − {first}",
                    "measure": measure,
                    **estimate_cells(effect, "corrected"),
                }
            )
            said.append(f"{label} {format_mean_value(effect.value)} ({_bounds_of(effect)})")
    return Finding(
        "people_rectified",
        f"{name} corrected by people",
        f"{'. '.join(said[:4])}.",
        ResultTable.from_records(
            rows, "Prediction-powered means and their differences; 95 % intervals."
        ),
        IntervalChart(tuple(lines), "mean"),
        notes=(
            "Worth: how many people alone would give as narrow an interval. Weight: how much the "
            "simulation counts, by how well it predicts the same people. The intervals hold if the "
            "people are a random part of those who were simulated, in independent groups. Nothing "
            "is corrected below 20 people, 10 groups, or 10 people who gave the rarer answer. "
            "Angelopoulos et al. (2023), doi:10.1126/science.adi6000.",
            "People needed: to ask for an interval of five points to each side of a share, or a "
            "tenth of a standard deviation otherwise, at this fit.",
        ),
        section=SECTION,
        headline=True,
        unit="participant",
        units=max(estimate.person_count for arms in found.values() for estimate in arms.values()),
    )


def _rectified_row(arm: str, measure: str, rectified: Rectified) -> Row:
    # A share has a fixed scale. The width of an interval for a mean is planned in standard
    # deviations.
    scale = 1.0 if rectified.people.method == "Wilson" else rectified.spread
    plan = (
        people_needed(PLANNED_WIDTH * scale, rectified.spread, known(rectified.fit) or 0.0)
        if scale
        else None
    )
    return {
        "arm": arm,
        "measure": measure,
        "simulated": rectified.simulated,
        "people_alone": rectified.people.value,
        **estimate_cells(rectified.corrected, "corrected"),
        "weight": rectified.weight,
        "people": rectified.person_count,
        "worth": rectified.worth if rectified.corrected.has_interval else None,
        "fit_r": known(rectified.fit),
        "people_needed": plan,
        "not_corrected_because": rectified.refused or None,
    }


def _say_rectified(label: str, rectified: Rectified) -> str:
    told = (
        f"{label} {format_mean_value(rectified.corrected.value)} "
        f"({_bounds_of(rectified.corrected)})"
    )
    if rectified.refused:
        return f"{told}, of the people alone ({rectified.refused})"
    return f"{told}; the {rectified.person_count} people are worth {rectified.worth:.0f}"


def _bounds_of(estimate: Estimate) -> str:
    return (
        f"{format_mean_value(estimate.low)} to {format_mean_value(estimate.high)}"
        if estimate.has_interval
        else "no interval"
    )


def _match_people(pair: Pair) -> Rectified | None:
    """Match humans with the participants that simulate them, and estimate the corrected mean.

    Humans who talked to each other are one independent unit, which the file states. Returns None if
    ids are not unique or fewer than `FEWEST_UNITS` match.
    """
    own = pair.simulated.drop_nulls("who").select("who", model="value")
    theirs = pair.people.drop_nulls("who").select("who", "unit", people="value")
    if own["who"].is_duplicated().any() or theirs["who"].is_duplicated().any():
        return None
    both = own.join(theirs, on="who", maintain_order="left")
    if both.height < FEWEST_UNITS:
        return None
    rest = own.join(theirs, on="who", how="anti", maintain_order="left")
    together = pair.people["unit"].n_unique() < pair.people.height
    return rectified_mean(
        both["people"].to_list(),
        both["model"].to_list(),
        rest["model"].to_list(),
        clusters=both["unit"].to_list() if together else None,
        share=pair.share,
    )


def heterogeneity_finding(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
    """Return the finding on rates of change by attribute, or of each first choice if people vote
    once.

    If humans are matched, the simulation also gets the attributes that only their file has.
    """
    if simulated.is_empty():
        return None
    simulated = _with_attributes(simulated, real)
    simulated, real = (
        table.with_columns(units_of(table).of.alias(UNIT)) for table in (simulated, real)
    )
    outcomes = ["position_changed"] if _in_both_tables("position_changed", simulated, real) else []
    if not outcomes and _in_both_tables(CHOICE, simulated, real):
        simulated, real = _with_choices(CHOICE, simulated, real)
        outcomes = [column for column in real.columns if column.startswith(f"{CHOICE}: ")]
    rows: list[Row] = []
    gaps: dict[str, Estimate] = {}
    skip = IDS | set(CONDITION_COLUMNS) | {*outcomes, UNIT}
    for column in (
        column for column in real.columns if column in simulated.columns and column not in skip
    ):
        levels = real[column].drop_nulls().unique().sort().to_list()
        if not 2 <= len(levels) <= MOST_LEVELS:
            continue
        for level in levels:
            own, theirs = (
                table.filter(pl.col(column).cast(pl.String) == str(level))
                for table in (simulated, real)
            )
            for outcome in outcomes:
                sides = [table.drop_nulls(outcome).select(UNIT, outcome) for table in (own, theirs)]
                if all(side.height >= FEWEST_UNITS for side in sides):
                    (ours, n), (real_ones, of) = (
                        (int(side[outcome].sum()), side.height) for side in sides
                    )
                    rows.append(
                        {
                            "attribute": column,
                            "level": str(level),
                            "outcome": outcome.replace("_", " "),
                            "simulated_rate": ours / n,
                            "simulated_n": n,
                            "people_rate": real_ones / of,
                            "people_n": of,
                        }
                    )
                    first, second = (
                        Side.from_values(
                            side[outcome].cast(pl.Float64).to_list(), [(at, u) for u in side[UNIT]]
                        )
                        for at, side in enumerate(sides)
                    )
                    label = f"{column} {level}: {rows[-1]['outcome']}"
                    gaps[label] = estimate_difference(first, second, "share")
    if not rows:
        return None
    changes = outcomes == ["position_changed"]
    holm = with_adjusted_p(gaps)
    rows = [
        {**row, **estimate_cells(estimate, "off"), **p_value_cells(estimate, holm[label])}
        for row, (label, estimate) in zip(rows, gaps.items(), strict=True)
    ]
    apart = [
        f"{label} {format_points(estimate, p_value_words(estimate, holm[label]))}"
        for label, estimate in gaps.items()
        if holm[label] < ALPHA
    ]
    told = (
        f"Off by more than chance: {join_clauses(apart)}"
        if apart
        else "That any is off by more than chance is not shown."
    )
    return Finding(
        "people_heterogeneity",
        "Who changes, by attribute" if changes else "Who chooses what, by attribute",
        f"{'Rates of change' if changes else 'First choices'} of {name} beside those of people, by "
        f"{format_count(len({(row['attribute'], row['level']) for row in rows}), 'group')}. {told}",
        ResultTable.from_records(
            rows, "Off: simulation minus people, as between different people, by independent unit."
        ),
        notes=(HOLM_NOTE,),
        section=SECTION,
        unit="participant",
        units=real.height,
    )


def _in_both_tables(column: str, simulated: pl.DataFrame, real: pl.DataFrame) -> bool:
    return column in simulated.columns and column in real.columns


def _with_attributes(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    """Return the simulation with the attributes that only the human file has, joined by
    participant."""
    who = "participant_id"
    if not _in_both_tables(who, simulated, real) or real[who].is_duplicated().any():
        return simulated
    more = [
        column
        for column in real.columns
        if column not in simulated.columns and column not in CONDITION_COLUMNS
    ]
    theirs = real.select(pl.col(who).cast(pl.String), *more)
    return simulated.with_columns(pl.col(who).cast(pl.String)).join(theirs, on=who, how="left")


def _with_choices(
    column: str, simulated: pl.DataFrame, real: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables with a truth value for each option of a choice: "initial_choice:
    Agree"."""
    options = sorted({*simulated[column].drop_nulls(), *real[column].drop_nulls()})
    if len(options) > MOST_LEVELS:
        return simulated, real
    chosen = [(pl.col(column) == option).alias(f"{column}: {option}") for option in options]
    return simulated.with_columns(chosen), real.with_columns(chosen)
