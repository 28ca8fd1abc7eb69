"""Compare human answers with a run, and correct the run's estimates with the human answers."""
# The column `participant` of the file matches humans with simulated participants. This works for
# personas that were made from a survey, because they keep the ids of its respondents. Files without
# matching ids are compared as separate samples.

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from folkmoot.engine.settings.claimed_tables import TableDesign
from folkmoot.kit.findings import (
    ALPHA,
    HOLM_NOTE,
    HUMAN_BENCHMARK_SECTION,
    Row,
    collect_findings,
    condition_name,
    estimate_cells,
    finite_or_none,
    format_mean_value,
    format_points,
    interval_line,
    join_clauses,
    p_value_cells,
    p_value_words,
    with_adjusted_p,
)
from folkmoot.measures.diversity import total_variation, total_variation_by_chance
from folkmoot.measures.inference import estimates
from folkmoot.measures.inference.claims import Claim, refuse_few_units
from folkmoot.measures.inference.differences import Side, estimate_difference
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, format_count
from folkmoot.measures.inference.rectified import (
    Rectified,
    people_needed,
    rectified_difference,
    rectified_mean,
)
from folkmoot.measures.wording import join_sentences, word
from folkmoot.people.sources.table_files import is_weight_column
from folkmoot.report.comparison.measured_claims import (
    NO_ARMS,
    Measured,
    measures_of,
    name_arm,
    name_measure,
    read_measure,
    unclaimed_measure,
    with_shared_rounds,
)
from folkmoot.report.comparison.samples import (
    EVERYBODY,
    Sample,
    are_independent,
    respell_choices,
    shared_arms,
)
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    COMPLETE,
    CONDITION_COLUMNS,
    PARTICIPANT_COLUMNS,
    has_endings,
    join_unit_names,
)

SECTION = HUMAN_BENCHMARK_SECTION
# An attribute with more levels, such as age in years, would give groups too small to compare.
MAX_LEVELS = 8
UNIT = "independent unit"
# The column that holds the answer of humans who voted only once.
CHOICE = "initial_choice"
IDS = frozenset({"participant_id", "initial_choice", "final_choice", "status", "error_message"})


@dataclass(frozen=True, slots=True)
class Pair:
    """One measure in one condition, from the simulation and from humans.

    Both tables have the columns `who`, `unit` and `value`. `who` is the id of the participant, or
    null in a table without ids.
    """

    measure: str
    arm: str
    simulated: pl.DataFrame
    people: pl.DataFrame
    # True if the measure is a share.
    share: bool
    # The name of the independent unit of the humans.
    unit: str


def against_people(run: Sample, people: Sample) -> list[Finding]:
    """Return findings that compare one run with one file of human answers."""
    human_table = people.tables["participants"]
    simulated = run.tables.get("participants", pl.DataFrame())
    if has_endings(simulated):
        # Participants who did not finish would count as unchanged.
        simulated = simulated.filter(pl.col("status") == COMPLETE)
    simulated = _known_as(simulated, human_table)
    pairs, design = measure_pairs(run, people), run.design_of("participants")
    return collect_findings(
        calibration_finding(run.name, simulated, human_table, pairs, design),
        rectified_finding(run.name, [*pairs, *_choice_pairs(run, people)]),
        heterogeneity_finding(run.name, simulated, human_table, design),
    )


def measure_pairs(run: Sample, people: Sample) -> list[Pair]:
    """Return each measure and condition that a run shares with a file of human answers."""
    # Measures of the run's claims come before other columns of the table of participants.
    claims = with_shared_rounds(measures_of(run.claims), [people])
    claimed_columns = {measure.column for measure in claims}
    table = run.tables.get("participants")
    if table is not None:
        other_columns = [
            column
            for column in _shared_columns(table, people.tables["participants"])
            if column not in claimed_columns | run.design_of("participants").columns
        ]
        claims |= {unclaimed_measure([run], "participants", column): [] for column in other_columns}
    return [
        pair
        for measure, measure_claims in claims.items()
        for pair in _pairs_of(run, people, measure, measure_claims)
    ]


def _pairs_of(
    run: Sample, people: Sample, measure: Claim, claims: Sequence[Claim]
) -> Iterator[Pair]:
    model, human = read_measure(run, measure), read_measure(people, measure)
    if model is None or human is None:
        return
    name, share = name_measure(measure), model.claim.kind == "share"
    if EVERYBODY in {*model.arms, *human.arms}:
        arms = {EVERYBODY: (pl.concat(model.arms.values()), pl.concat(human.arms.values()))}
    else:
        arms = {
            arm: (rows, human.arms[arm]) for arm, rows in model.arms.items() if arm in human.arms
        }
    for arm, (model_rows, human_rows) in arms.items():
        arm_name = condition_name(arm) if arm == EVERYBODY else name_arm(arm, claims)
        tables = _with_ids(model_rows, human_rows, (model, human))
        unit = join_unit_names(human.units.values()) if arm == EVERYBODY else human.unit_of(arm)
        yield Pair(name, arm_name, *tables, share, unit)


def _with_ids(
    model_rows: pl.DataFrame, human_rows: pl.DataFrame, measured: tuple[Measured, Measured]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    # `who` is the id column that shares most ids with the file. If ids are not unique, `who` also
    # includes the conversation. Without ids, `who` is the conversation.
    model_subject, human_subject = (measure.claim.subject for measure in measured)
    shared = [
        column for column in model_subject if column in human_subject and column in CLUSTER_COLUMNS
    ]
    human_id = next((column for column in human_subject if column in PARTICIPANT_COLUMNS), "")
    ids = [column for column in model_subject if column in PARTICIPANT_COLUMNS]
    keys: tuple[list[str], list[str]] = (shared, shared)
    if human_id and ids:
        known_ids = human_rows[human_id].cast(pl.String).implode()
        # Take the id column of the run that has the most ids in common with the file.
        best_id = max(
            ids, key=lambda column: model_rows[column].cast(pl.String).is_in(known_ids).sum()
        )
        unique = not any(
            table[column].is_duplicated().any()
            for table, column in ((model_rows, best_id), (human_rows, human_id))
        )
        keys = ([best_id], [human_id]) if unique else ([*shared, best_id], [*shared, human_id])
    elif human_id or ids:
        keys = ([], [])
    model_values, human_values = (
        rows.select(
            who=pl.concat_str([pl.col(name).cast(pl.String) for name in names], separator="/")
            if names
            else pl.lit(None, pl.String),
            unit="unit",
            value="value",
        ).drop_nulls("value")
        for rows, names in zip((model_rows, human_rows), keys, strict=True)
    )
    return model_values, human_values


def _choice_pairs(run: Sample, people: Sample) -> list[Pair]:
    # Shares who chose each option first. Empty if the people voted twice, or if either table has no
    # choices.
    table, real = run.tables.get("participants"), people.tables["participants"]
    if (
        table is None
        or _in_both_tables("position_changed", table, real)
        or not _in_both_tables(CHOICE, table, real)
    ):
        return []
    simulated, real = _with_choices(table, real)
    model_sample = replace(run, tables={"participants": simulated})
    human_sample = replace(people, tables={"participants": real})
    options = [
        column
        for column in real.columns
        if column.startswith(f"{CHOICE}: ") and column in simulated.columns
    ]
    measures = [
        unclaimed_measure([run], "participants", option, outcome=option) for option in options
    ]
    return [
        pair for measure in measures for pair in _pairs_of(model_sample, human_sample, measure, ())
    ]


def _known_as(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    # Persona ids replace participant ids if more persona ids occur in the file of human answers.
    id_column, persona_column = "participant_id", "persona_id"
    if not {id_column, persona_column} <= {*simulated.columns} or id_column not in real.columns:
        return simulated
    ids = real[id_column].cast(pl.String).implode()
    matching_ids, matching_personas = (
        simulated[column].cast(pl.String).is_in(ids).sum() for column in (id_column, persona_column)
    )
    return (
        simulated
        if matching_ids >= matching_personas
        else simulated.with_columns(pl.col(persona_column).alias(id_column))
    )


def _shared_columns(simulated: pl.DataFrame, real: pl.DataFrame) -> list[str]:
    def is_comparable(kind: pl.DataType) -> bool:
        return kind.is_numeric() or kind == pl.Boolean

    common_columns = (
        column
        for column in simulated.columns
        if column in real.columns
        and column not in IDS | {*CONDITION_COLUMNS}
        and not is_weight_column(column)
    )
    return [
        column
        for column in common_columns
        if is_comparable(simulated.schema[column]) and is_comparable(real.schema[column])
    ]


def calibration_finding(
    name: str,
    simulated: pl.DataFrame,
    real: pl.DataFrame,
    pairs: Sequence[Pair],
    design: TableDesign,
) -> Finding | None:
    """Compare the simulation with humans in rates, choices and spread.

    - `design`: what the claims say about the table of the simulation.
    """
    rows: list[Row] = []
    gaps: list[float] = []
    for arm, (model, human) in shared_arms(simulated, real).items():
        for column in ("initial_choice", "final_choice"):
            if column in model.columns and column in human.columns:
                model_values, human_values = (
                    table[column].drop_nulls() for table in (model, human)
                )
                # The distance between very small samples is mostly chance.
                if len(model_values) < FEWEST_UNITS or len(human_values) < FEWEST_UNITS:
                    continue
                options = sorted({*model_values.to_list(), *human_values.to_list()})
                model_counts, human_counts = (
                    [int((series == option).sum()) for option in options]
                    for series in (model_values, human_values)
                )
                distance, spread = (
                    total_variation(model_counts, human_counts),
                    _safe_ratio(
                        _chance_of_difference(model_counts), _chance_of_difference(human_counts)
                    ),
                )
                gaps.append(distance)
                # Votes after a shared conversation lie further apart by chance than these draws.
                chance_distance = (
                    total_variation_by_chance(model_counts, human_counts)
                    if all(are_independent(side, column, design) for side in (model, human))
                    else None
                )
                row = _calibration_row(
                    condition_name(arm), column.replace("_", " "), (None, None), distance, spread
                )
                rows.append({**row, "by_chance": chance_distance})
    for pair in pairs:
        model_values, human_values = pair.simulated["value"], pair.people["value"]
        if len(model_values) < FEWEST_UNITS or len(human_values) < FEWEST_UNITS:
            continue
        values = (float(model_values.mean() or 0.0), float(human_values.mean() or 0.0))  # type: ignore[arg-type]
        difference = values[0] - values[1]
        # Gaps of shares have one unit, so only these are averaged.
        if pair.share:
            gaps.append(abs(difference))
        spread = _safe_ratio(model_values.std(), human_values.std())
        rows.append(_calibration_row(pair.arm, pair.measure, values, difference, spread))
    if not rows:
        return None
    error = math.fsum(gaps) / len(gaps) if gaps else math.nan
    statement = (
        f"Over {format_count(len(gaps), 'share')} {name} is off by {points_apart(error)} on "
        "average."
        if gaps
        else f"{name} and people share {format_count(len(rows), 'measure')}."
    )
    return Finding(
        "people_calibration",
        f"How far {name} is off",
        statement,
        ResultTable.from_records(
            rows,
            "Off: simulation minus people; for choices the total variation distance. Spread: the "
            "simulation's standard deviation (for choices: evenness) over that of people.",
        ),
        notes=(
            "A spread below 1 means that the simulation is more uniform than people are.",
            "By chance: two samples of these sizes that choose alike lie further apart than this "
            "in one of twenty draws. A distance below it is no sign that the simulation is off. It "
            "is left out for votes of participants who shared a conversation or a draw of texts.",
        ),
        section=SECTION,
        headline=True,
    )


def points_apart(distance: float) -> str:
    """Return a difference of shares as text without a sign."""
    return estimates.format_points(abs(distance)).lstrip("+")


def _calibration_row(
    arm: str,
    measure: str,
    means: tuple[float | None, float | None],
    difference: float,
    spread: float,
) -> Row:
    return {
        "condition": arm,
        "measure": measure,
        "simulated": means[0],
        "people": means[1],
        "off": difference,
        "by_chance": None,
        "spread_ratio": spread if math.isfinite(spread) else None,
    }


def _chance_of_difference(counts: Sequence[int]) -> float:
    # The Gini–Simpson index of the number of people for each option.
    n = sum(counts)
    return 1 - math.fsum((count / n) ** 2 for count in counts)


def _safe_ratio(simulated: object, human: object) -> float:
    if not (isinstance(simulated, float) and isinstance(human, float)) or not human:
        return math.nan
    return simulated / human


# Width of the planned interval for a share: five points to each side.
PLANNED_WIDTH = 0.1


def rectified_finding(name: str, pairs: Sequence[Pair]) -> Finding | None:
    """Return the finding on means and effects, estimated from the run and from humans.

    Returns None if no human has a simulated counterpart.
    """
    # Prediction-powered inference: Angelopoulos et al. (2023), doi:10.1126/science.adi6000.

    # The keys are the measure and then the condition.
    matches_by_measure: dict[str, dict[str, Match]] = {}
    for pair in pairs:
        match = _match_people(pair)
        if match is not None:
            matches_by_measure.setdefault(pair.measure, {})[pair.arm] = match
    if not matches_by_measure:
        return None
    rows: list[Row] = []
    lines: list[tuple[str, float, float, float]] = []
    sentences: list[str] = []
    for measure, arms in matches_by_measure.items():
        measure_name = measure.replace("_", " ")
        for arm, match in arms.items():
            estimate = match.rectified
            label = f"{arm}: {measure_name}"
            lines.append(interval_line(f"{label}, people alone", estimate.people))
            lines.append(interval_line(f"{label}, corrected", estimate.corrected))
            rows.append(_rectified_row(arm, measure, match))
            sentences.append(_say_rectified(label, match))
        first_arm, *others = arms
        for other_arm in others:
            effect, refused = _rectified_effect(arms[other_arm], arms[first_arm])
            label = f"{other_arm} minus {first_arm}: {measure_name}"
            lines.append(interval_line(label, effect))
            rows.append(
                {
                    "condition": f"{other_arm} − {first_arm}",
                    "measure": measure,
                    **estimate_cells(effect, "corrected"),
                    "not_corrected_because": refused or None,
                }
            )
            claim = arms[first_arm].claim
            alone = f", of the people alone ({refused})" if refused else ""
            more = claim.needed_more([effect.low, effect.high])
            sentences.append(
                f"{label} {claim.format_signed(effect.value, more)} "
                f"({claim.format_interval(effect, more)}){alone}"
            )
    return Finding(
        "people_rectified",
        f"{name} corrected by people",
        f"{'. '.join(sentences[:4])}.",
        ResultTable.from_records(
            rows, "Prediction-powered means and their differences; 95 % intervals."
        ),
        IntervalChart(tuple(lines), "mean"),
        notes=(
            "Worth: how many people alone would give as narrow an interval. Weight: how much the "
            "simulation counts, by how well it predicts the same people. The intervals hold if the "
            "people are a random sample of the simulated ones, in independent groups. Nothing is "
            "corrected below 20 people, 10 groups of people or of others who were simulated, or "
            "10 people who gave the rarer answer. Differences between arms with other people: "
            "MOVER. Where the same people answered in both arms, their own differences are "
            "corrected. Angelopoulos et al. (2023), doi:10.1126/science.adi6000.",
            "People needed: to ask for an interval of five points to each side of a share, or "
            "otherwise a twentieth of a standard deviation to each side, at this fit, in groups "
            "like theirs, and with as many simulated participants as in this run. –: with a person "
            "for each of them the interval is still wider, so more must be simulated as well.",
        ),
        section=SECTION,
        headline=True,
        unit=join_unit_names(pair.unit for pair in pairs),
        units=max(
            match.people["unit"].n_unique()
            for arms in matches_by_measure.values()
            for match in arms.values()
        ),
    )


def _rectified_row(arm: str, measure: str, match: Match) -> Row:
    rectified = match.rectified
    # A share has a fixed scale. The width of an interval for a mean is planned in standard
    # deviations.
    scale = 1.0 if match.share else rectified.spread
    needed = (
        people_needed(
            PLANNED_WIDTH * scale,
            rectified.spread,
            finite_or_none(rectified.fit) or 0.0,
            design_effect=rectified.design_effect,
            simulated=match.people.height + match.others.height,
        )
        if scale and math.isfinite(rectified.design_effect)
        else None
    )
    return {
        "condition": arm,
        "measure": measure,
        "simulated": rectified.simulated,
        "people_alone": rectified.people.value,
        **estimate_cells(rectified.corrected, "corrected"),
        "weight": rectified.weight,
        "people": rectified.person_count,
        "worth": rectified.worth if rectified.corrected.has_interval else None,
        "fit_r": finite_or_none(rectified.fit),
        "people_needed": needed,
        "not_corrected_because": rectified.refused or None,
    }


def _say_rectified(label: str, match: Match) -> str:
    rectified = match.rectified
    statement = (
        f"{label} {match.format_level(rectified.corrected.value)} "
        f"({match.format_bounds(rectified.corrected)})"
    )
    if rectified.refused:
        return f"{statement}, of the people alone ({rectified.refused})"
    return f"{statement}; the {rectified.person_count} people are worth {rectified.worth:.0f}"


@dataclass(frozen=True, slots=True)
class Match:
    """The humans with a simulated counterpart, for one measure in one condition."""

    # One row for each human with a counterpart. Columns: `who`, `unit`, `people` (the human answer)
    # and `model` (the simulated answer).
    people: pl.DataFrame
    # The simulated participants without a human counterpart, with `who`, `unit` and `model`.
    others: pl.DataFrame
    share: bool
    rectified: Rectified

    @property
    def claim(self) -> Claim:
        """A claim on the measure, used to format differences."""
        return Claim("", NO_ARMS, "share" if self.share else "mean")

    def format_level(self, mean: float) -> str:
        """Return a mean as text, in percent if the measure is a share."""
        return estimates.format_percent(mean) if self.share else format_mean_value(mean)

    def format_bounds(self, estimate: Estimate) -> str:
        """Return the interval of a mean as text."""
        if not estimate.has_interval:
            return "no interval"
        if self.share:
            return estimates.format_span(estimate.low, estimate.high)
        return f"{format_mean_value(estimate.low)} to {format_mean_value(estimate.high)}"


def _match_people(pair: Pair) -> Match | None:
    simulated = pair.simulated.drop_nulls("who").select("who", "unit", model="value")
    human = pair.people.drop_nulls("who").select("who", "unit", people="value")
    if simulated["who"].is_duplicated().any() or human["who"].is_duplicated().any():
        return None
    matched = human.join(simulated.drop("unit"), on="who", maintain_order="left")
    if matched.height < FEWEST_UNITS:
        return None
    unmatched = simulated.join(human, on="who", how="anti", maintain_order="left")
    people_units, simulated_units = pair.people["unit"], pair.simulated["unit"]
    rectified = rectified_mean(
        matched["people"].to_list(),
        matched["model"].to_list(),
        unmatched["model"].to_list(),
        clusters=matched["unit"].to_list() if _are_shared(people_units) else None,
        simulated_clusters=unmatched["unit"].to_list() if _are_shared(simulated_units) else None,
        share=pair.share,
    )
    return Match(matched, unmatched, pair.share, rectified)


def _are_shared(units: pl.Series) -> bool:
    return units.n_unique() < len(units)


def _rectified_effect(first: Match, second: Match) -> tuple[Estimate, str]:
    # The text says why the simulated answers could not be used, and is empty otherwise. If the
    # conditions share independent units, only people who answered in both conditions count.
    reasons = dict.fromkeys(filter(None, (first.rectified.refused, second.rectified.refused)))
    if not {*first.people["unit"]} & {*second.people["unit"]}:
        return rectified_difference(first.rectified, second.rectified), "; ".join(reasons)
    keys = ["who", "unit"]
    people = first.people.join(second.people, on=keys, maintain_order="left")
    others = first.others.join(second.others, on=keys, maintain_order="left")
    if people.height < FEWEST_UNITS:
        value = first.rectified.corrected.value - second.rectified.corrected.value
        reason = "the same groups in both arms, but too few people in both"
        return Estimate(value, math.nan, math.nan, people.height), reason
    rectified = rectified_mean(
        (people["people"] - people["people_right"]).to_list(),
        (people["model"] - people["model_right"]).to_list(),
        (others["model"] - others["model_right"]).to_list(),
        clusters=people["unit"].to_list() if _are_shared(people["unit"]) else None,
        simulated_clusters=others["unit"].to_list() if _are_shared(others["unit"]) else None,
    )
    effect = rectified.corrected
    return effect.clip_bounds(-1.0, 1.0) if first.share else effect, rectified.refused


def heterogeneity_finding(
    name: str, simulated: pl.DataFrame, real: pl.DataFrame, design: TableDesign
) -> Finding | None:
    """Return the finding that compares the run with humans in each group of participants.

    - `design`: as in `calibration_finding`.

    Returns None if there is nothing to compare.
    """
    # A group has the same value of one attribute, such as gender. The outcome is the rate of
    # change, or the rate of each first choice if people voted only once. Simulated participants
    # without an attribute get that of the matched human.
    if simulated.is_empty():
        return None
    real = _respell_attributes(simulated, real)
    simulated = _with_attributes(simulated, real)
    unit_name = design.units_of(real).name
    simulated, real = (
        table.with_columns(design.units_of(table).of.alias(UNIT)) for table in (simulated, real)
    )
    outcomes = ["position_changed"] if _in_both_tables("position_changed", simulated, real) else []
    if not outcomes and _in_both_tables(CHOICE, simulated, real):
        simulated, real = _with_choices(simulated, real)
        outcomes = [column for column in real.columns if column.startswith(f"{CHOICE}: ")]
    rows: list[Row] = []
    gaps: dict[str, Estimate] = {}
    human_units: set[str] = set()
    skip = IDS | {*CONDITION_COLUMNS, *CLUSTER_COLUMNS, *design.columns, *outcomes, UNIT}
    levels_by_column = {
        column: levels
        for column in real.columns
        if column in simulated.columns
        and column not in skip
        and not is_weight_column(column)
        and 2 <= len(levels := real[column].drop_nulls().unique().sort().to_list()) <= MAX_LEVELS
    }
    arms = shared_arms(simulated, real)
    groups = product(
        arms, ((column, level) for column in levels_by_column for level in levels_by_column[column])
    )
    for arm, (column, level) in groups:
        in_level = pl.col(column).cast(pl.String) == str(level)
        for outcome in outcomes:
            sides = [
                table.filter(in_level).drop_nulls(outcome).select(UNIT, outcome)
                for table in arms[arm]
            ]
            if any(side.height < FEWEST_UNITS for side in sides):
                continue
            (simulated_count, simulated_n), (human_count, human_n) = (
                (int(side[outcome].sum()), side.height) for side in sides
            )
            rows.append(
                {
                    "condition": condition_name(arm),
                    "attribute": column,
                    "level": str(level),
                    "outcome": outcome.replace("_", " "),
                    "simulated_rate": simulated_count / simulated_n,
                    "simulated_n": simulated_n,
                    "people_rate": human_count / human_n,
                    "people_n": human_n,
                }
            )
            first, second = (
                Side.from_values(
                    side[outcome].cast(pl.Float64).to_list(),
                    [(side_number, unit) for unit in side[UNIT]],
                )
                for side_number, side in enumerate(sides)
            )
            attribute = column.removeprefix("demographic_").replace("_", " ")
            where = "" if arm == EVERYBODY else f" in {condition_name(arm)}"
            label = f"{attribute} {level}{where}: {rows[-1]['outcome']}"
            gaps[label] = estimate_difference(first, second, "share")
            human_units |= {*sides[1][UNIT]}
    if not rows:
        return None
    is_about_change = outcomes == ["position_changed"]
    holm = with_adjusted_p(gaps)
    rows = [
        {**row, **estimate_cells(estimate, "off"), **p_value_cells(estimate, holm[label])}
        for row, (label, estimate) in zip(rows, gaps.items(), strict=True)
    ]
    tested = [label for label in gaps if math.isfinite(holm[label])]
    differing = [
        f"{label} {format_points(estimate, p_value_words(estimate, holm[label]))}"
        for label, estimate in gaps.items()
        if holm[label] < ALPHA
    ]
    sentences = []
    if tested:
        case = "groups off" if differing else "groups not shown"
        sentences.append(word("runs", case, groups=join_clauses(differing)))
    reasons = [
        refuse_few_units(estimate.unit_count)
        for label, estimate in gaps.items()
        if label not in tested
    ]
    sentences += [
        word(
            "runs",
            "without a test",
            comparisons=format_count(reasons.count(why), "comparison"),
            why=why,
        )
        for why in dict.fromkeys(reasons)
    ]
    return Finding(
        "people_heterogeneity",
        "Who changes, by attribute" if is_about_change else "Who chooses what, by attribute",
        f"{'Rates of change' if is_about_change else 'First choices'} of {name} beside those of "
        "people, by "
        f"{format_count(len({(row['attribute'], row['level']) for row in rows}), 'group')}. "
        f"{join_sentences(sentences)}",
        ResultTable.from_records(
            rows, "Off: simulation minus people, as between different people, by independent unit."
        ),
        notes=(HOLM_NOTE,),
        section=SECTION,
        unit=unit_name,
        units=len(human_units),
    )


def _in_both_tables(column: str, simulated: pl.DataFrame, real: pl.DataFrame) -> bool:
    return column in simulated.columns and column in real.columns


def _with_attributes(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    # Simulated participants get the attributes that only the file of human answers has.
    id_column = "participant_id"
    if not _in_both_tables(id_column, simulated, real) or real[id_column].is_duplicated().any():
        return simulated
    attribute_columns = [
        column
        for column in real.columns
        if column not in simulated.columns and column not in (*CONDITION_COLUMNS, *CLUSTER_COLUMNS)
    ]
    attributes = real.select(pl.col(id_column).cast(pl.String), *attribute_columns)
    return simulated.with_columns(pl.col(id_column).cast(pl.String)).join(
        attributes, on=id_column, how="left"
    )


def _respell_attributes(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    # "f" and "F" are one group. The spelling of the run is used if it has the attribute.
    for column in real.select(pl.col(pl.String)).columns:
        spellings = real[column].str.strip_chars().str.to_lowercase().drop_nulls().n_unique()
        if column not in IDS | {*CONDITION_COLUMNS, *CLUSTER_COLUMNS} and spellings <= MAX_LEVELS:
            levels = (
                simulated[column] if column in simulated.columns else pl.Series([], dtype=pl.String)
            )
            real, _ = respell_choices(
                real, (column,), levels.cast(pl.String).drop_nulls().unique().to_list()
            )
    return real


def _with_choices(simulated: pl.DataFrame, real: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    options = sorted({*simulated[CHOICE].drop_nulls(), *real[CHOICE].drop_nulls()})
    if len(options) > MAX_LEVELS:
        return simulated, real
    indicator_columns = [
        (pl.col(CHOICE) == option).alias(f"{CHOICE}: {option}") for option in options
    ]
    return simulated.with_columns(indicator_columns), real.with_columns(indicator_columns)
