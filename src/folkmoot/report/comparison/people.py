"""People's answers beside a run: how far the simulation is off, and what a few people correct.

People are matched with simulated participants by `participant`, where the file has it: personas
made from a survey keep the respondents' ids. Unmatched files are compared as separate samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from folkmoot.kit.findings import (
    ALPHA,
    HOLM,
    Row,
    adjusted,
    cells,
    chance,
    found,
    interval,
    known,
    listed,
    number,
    p_cells,
    points,
)
from folkmoot.measures.diversity import total_variation, total_variation_by_chance
from folkmoot.measures.inference import estimates
from folkmoot.measures.inference.claims import Claim, Side, estimate_difference
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, plural
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
from folkmoot.report.comparison.samples import EVERYBODY, Sample, condition_name, split
from folkmoot.storage.findings import Finding, Grid, Intervals
from folkmoot.storage.tables import BY, CLUSTERS, PEOPLE, by_column, units_of

SECTION = "People beside the run"
MOST_LEVELS = 8
UNIT = "independent unit"
CHOICE = "initial_choice"  # what people are asked who vote only once
IDS = frozenset({"participant_id", "initial_choice", "final_choice", "status", "error_message"})


@dataclass(frozen=True, slots=True)
class Pair:
    """A measure in one arm, simulated and of people: rows with `who` (null where ids are unknown),
    `unit` and `value`."""

    measure: str
    arm: str
    simulated: pl.DataFrame
    people: pl.DataFrame
    share: bool


def against_people(run: Sample, people: Sample) -> list[Finding]:
    """Calibration, heterogeneity, and rectified estimates of one run and one file of answers."""
    real = people.tables["participants"]
    simulated = run.tables.get("participants", pl.DataFrame())
    if "status" in simulated.columns:
        simulated = simulated.filter(pl.col("status") == "complete")
    simulated = _known_as(simulated, real)
    measured = pairs(run, people)
    return found(
        calibration(run.name, simulated, real, measured),
        rectified(run.name, [*measured, *_choice_pairs(run, people)]),
        heterogeneity(run.name, simulated, real),
    )


def pairs(run: Sample, people: Sample) -> list[Pair]:
    """The measures of the run's claims, and further columns of its participants, that a file of
    people's answers has too, arm by arm."""
    claims = measures_of(run.claims)
    claimed = {measure.measure.rpartition(".")[2] for measure in claims}
    table = run.tables.get("participants")
    if table is not None:
        plain = [
            c for c in _shared_columns(table, people.tables["participants"]) if c not in claimed
        ]
        claims |= {Claim(f"participants.{c}", NOBODY): [] for c in plain}
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
        arms = {a: (rows, human.arms[a]) for a, rows in model.arms.items() if a in human.arms}
    for arm, (ours, theirs) in arms.items():
        shown = condition_name(arm) if arm == EVERYBODY else name_arm(arm, claims)
        yield Pair(name, shown, *_with_ids(ours, theirs, (model, human)), share)


def _with_ids(
    ours: pl.DataFrame, theirs: pl.DataFrame, read: tuple[Measured, Measured]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with `who`: the id by which the people are known, which may be that of a persona. Where
    it is not unique, the conversation belongs to it; without ids, the conversation is who."""
    own, other = (one.claim.subject for one in read)
    shared = [c for c in own if c in other and c in CLUSTERS]
    theirs_by = next((c for c in other if c in PEOPLE), "")
    ids = [c for c in own if c in PEOPLE]
    keys: tuple[list[str], list[str]] = (shared, shared)
    if theirs_by and ids:
        known_ids = theirs[theirs_by].cast(pl.String).implode()
        best = max(ids, key=lambda c: ours[c].cast(pl.String).is_in(known_ids).sum())
        unique = not any(t[c].is_duplicated().any() for t, c in ((ours, best), (theirs, theirs_by)))
        keys = ([best], [theirs_by]) if unique else ([*shared, best], [*shared, theirs_by])
    elif theirs_by or ids:
        keys = ([], [])
    one, two = (
        rows.select(
            who=pl.concat_str([pl.col(c).cast(pl.String) for c in names], separator="/")
            if names
            else pl.lit(None, pl.String),
            unit="unit",
            value="value",
        ).drop_nulls("value")
        for rows, names in zip((ours, theirs), keys, strict=True)
    )
    return one, two


def _choice_pairs(run: Sample, people: Sample) -> list[Pair]:
    """Of people who voted only once, each option of their first choice as a share."""
    table, real = run.tables.get("participants"), people.tables["participants"]
    if table is None or _both("position_changed", table, real) or not _both(CHOICE, table, real):
        return []
    simulated, real = _with_choices(CHOICE, table, real)
    ours = replace(run, tables={"participants": simulated})
    theirs = replace(people, tables={"participants": real})
    options = [c for c in real.columns if c.startswith(f"{CHOICE}: ") and c in simulated.columns]
    return [
        pair
        for option in options
        for pair in _pairs_of(
            ours, theirs, Claim(f"participants.{option}", NOBODY, outcome=option), ()
        )
    ]


def _known_as(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    """The simulation with the ids by which the people are known: those of its personas, where a
    study numbers its participants anew."""
    who, persona = "participant_id", "persona_id"
    if not {who, persona} <= {*simulated.columns} or who not in real.columns:
        return simulated
    ids = real[who].cast(pl.String).implode()
    own, theirs = (simulated[c].cast(pl.String).is_in(ids).sum() for c in (who, persona))
    return simulated if own >= theirs else simulated.with_columns(pl.col(persona).alias(who))


def _arms(simulated: pl.DataFrame, real: pl.DataFrame) -> dict[str, tuple[pl.DataFrame, ...]]:
    """Arm → (simulated, people), for arms that both have; everybody where people have none."""
    one, two = split(simulated), split(real)
    if by_column(real) is None:
        return {EVERYBODY: (simulated, real)}
    return {arm: (one[arm], two[arm]) for arm in one if arm in two}


def _shared_columns(simulated: pl.DataFrame, real: pl.DataFrame) -> list[str]:
    """Columns that both have as numbers or truth values."""

    def usable(kind: pl.DataType) -> bool:
        return kind.is_numeric() or kind == pl.Boolean

    both = (c for c in simulated.columns if c in real.columns and c not in IDS and c not in BY)
    return [c for c in both if usable(simulated.schema[c]) and usable(real.schema[c])]


def calibration(
    name: str, simulated: pl.DataFrame, real: pl.DataFrame, measured: Sequence[Pair]
) -> Finding | None:
    """Rates, choices and spread of the simulation against those of people, arm by arm."""
    rows: list[Row] = []
    gaps: list[float] = []
    for arm, (model, human) in _arms(simulated, real).items():
        for which in ("initial_choice", "final_choice"):
            if which in model.columns and which in human.columns:
                ours, theirs = (t[which].drop_nulls() for t in (model, human))
                if len(ours) < FEWEST_UNITS or len(theirs) < FEWEST_UNITS:
                    continue
                options = sorted({*ours.to_list(), *theirs.to_list()})
                a, b = ([int((c == option).sum()) for option in options] for c in (ours, theirs))
                apart, spread = total_variation(a, b), _ratio(_evenness(a), _evenness(b))
                gaps.append(apart)
                chance = total_variation_by_chance(a, b)
                line = _line(
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
        spread = _ratio(ours.std(), theirs.std())
        rows.append(_line(pair.arm, pair.measure, values, off, spread))
    if not rows:
        return None
    error = sum(gaps) / len(gaps) if gaps else math.nan
    said = (
        f"Over {plural(len(gaps), 'share')} {name} is off by {points_apart(error)} on average."
        if gaps
        else f"{name} and people share {plural(len(rows), 'measure')}."
    )
    return Finding(
        "people_calibration",
        f"How far {name} is off",
        said,
        Grid.of(
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
    """The size of a difference of shares, without its sign."""
    return estimates.points(abs(distance)).lstrip("+")


def _line(
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


def _evenness(counts: Sequence[int]) -> float:
    """The chance that two people chose differently (Gini–Simpson)."""
    n = sum(counts)
    return 1 - sum((c / n) ** 2 for c in counts)


def _ratio(ours: object, theirs: object) -> float:
    if not (isinstance(ours, float) and isinstance(theirs, float)) or not theirs:
        return math.nan
    return ours / theirs


PLANNED_WIDTH = 0.1  # of an interval for a share: five points to each side


def rectified(name: str, measured: Sequence[Pair]) -> Finding | None:
    """Means and effects that a few matched people correct; None without matches."""
    found: dict[str, dict[str, Rectified]] = {}  # measure → arm → estimate
    for pair in measured:
        estimate = _matched(pair)
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
            lines.append(interval(f"{label}, people alone", estimate.people))
            lines.append(interval(f"{label}, corrected", estimate.corrected))
            rows.append(_rectified_row(arm, measure, estimate))
            said.append(_say_rectified(label, estimate))
        first, *others = arms
        for other in others:
            effect = rectified_difference(arms[other], arms[first])
            label = f"{other} minus {first}: {shown}"
            lines.append(interval(label, effect))
            rows.append(
                {"arm": f"{other} − {first}", "measure": measure, **cells(effect, "corrected")}
            )
            said.append(f"{label} {number(effect.value)} ({_bounds_of(effect)})")
    return Finding(
        "people_rectified",
        f"{name} corrected by people",
        f"{'. '.join(said[:4])}.",
        Grid.of(rows, "Prediction-powered means and their differences; 95 % intervals."),
        Intervals(tuple(lines), "mean"),
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
        units=max(estimate.n for arms in found.values() for estimate in arms.values()),
    )


def _rectified_row(arm: str, measure: str, e: Rectified) -> Row:
    scale = 1.0 if e.people.method == "Wilson" else e.spread
    plan = people_needed(PLANNED_WIDTH * scale, e.spread, known(e.fit) or 0.0) if scale else None
    return {
        "arm": arm,
        "measure": measure,
        "simulated": e.simulated,
        "people_alone": e.people.value,
        **cells(e.corrected, "corrected"),
        "weight": e.weight,
        "people": e.n,
        "worth": e.worth if e.corrected.has_interval else None,
        "fit_r": known(e.fit),
        "people_needed": plan,
        "not_corrected_because": e.refused or None,
    }


def _say_rectified(label: str, e: Rectified) -> str:
    told = f"{label} {number(e.corrected.value)} ({_bounds_of(e.corrected)})"
    if e.refused:
        return f"{told}, of the people alone ({e.refused})"
    return f"{told}; the {e.n} people are worth {e.worth:.0f}"


def _bounds_of(e: Estimate) -> str:
    return f"{number(e.low)} to {number(e.high)}" if e.has_interval else "no interval"


def _matched(pair: Pair) -> Rectified | None:
    """People matched with their simulated selves, and the simulated rest. People who talked to each
    other are one unit; the file says so."""
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


def heterogeneity(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
    """Rates of change, else of each first choice, by the attributes of people.

    An attribute that only the file of people has is theirs in the simulation too, where people are
    matched.
    """
    if simulated.is_empty():
        return None
    simulated = _with_attributes(simulated, real)
    simulated, real = (t.with_columns(units_of(t).of.alias(UNIT)) for t in (simulated, real))
    outcomes = ["position_changed"] if _both("position_changed", simulated, real) else []
    if not outcomes and _both(CHOICE, simulated, real):
        simulated, real = _with_choices(CHOICE, simulated, real)
        outcomes = [c for c in real.columns if c.startswith(f"{CHOICE}: ")]
    rows: list[Row] = []
    gaps: dict[str, Estimate] = {}
    skip = IDS | set(BY) | {*outcomes, UNIT}
    for column in (c for c in real.columns if c in simulated.columns and c not in skip):
        levels = real[column].drop_nulls().unique().sort().to_list()
        if not 2 <= len(levels) <= MOST_LEVELS:
            continue
        for level in levels:
            own, theirs = (
                t.filter(pl.col(column).cast(pl.String) == str(level)) for t in (simulated, real)
            )
            for outcome in outcomes:
                sides = [t.drop_nulls(outcome).select(UNIT, outcome) for t in (own, theirs)]
                if all(t.height >= FEWEST_UNITS for t in sides):
                    (ours, n), (real_ones, of) = ((int(t[outcome].sum()), t.height) for t in sides)
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
                        Side.of(t[outcome].cast(pl.Float64).to_list(), [(at, u) for u in t[UNIT]])
                        for at, t in enumerate(sides)
                    )
                    label = f"{column} {level}: {rows[-1]['outcome']}"
                    gaps[label] = estimate_difference(first, second, "share")
    if not rows:
        return None
    changes = outcomes == ["position_changed"]
    holm = adjusted(gaps)
    rows = [
        {**row, **cells(e, "off"), **p_cells(e, holm[label])}
        for row, (label, e) in zip(rows, gaps.items(), strict=True)
    ]
    apart = [
        f"{label} {points(e, chance(e, holm[label]))}"
        for label, e in gaps.items()
        if holm[label] < ALPHA
    ]
    told = (
        f"Off by more than chance: {listed(apart)}"
        if apart
        else "That any is off by more than chance is not shown."
    )
    return Finding(
        "people_heterogeneity",
        "Who changes, by attribute" if changes else "Who chooses what, by attribute",
        f"{'Rates of change' if changes else 'First choices'} of {name} beside those of people, by "
        f"{plural(len({(r['attribute'], r['level']) for r in rows}), 'group')}. {told}",
        Grid.of(
            rows, "Off: simulation minus people, as between different people, by independent unit."
        ),
        notes=(HOLM,),
        section=SECTION,
        unit="participant",
        units=real.height,
    )


def _both(column: str, simulated: pl.DataFrame, real: pl.DataFrame) -> bool:
    return column in simulated.columns and column in real.columns


def _with_attributes(simulated: pl.DataFrame, real: pl.DataFrame) -> pl.DataFrame:
    """The simulation with the attributes that only the file of people has, by participant."""
    who = "participant_id"
    if not _both(who, simulated, real) or real[who].is_duplicated().any():
        return simulated
    more = [c for c in real.columns if c not in simulated.columns and c not in BY]
    theirs = real.select(pl.col(who).cast(pl.String), *more)
    return simulated.with_columns(pl.col(who).cast(pl.String)).join(theirs, on=who, how="left")


def _with_choices(
    column: str, simulated: pl.DataFrame, real: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with a truth value for each option of a column of choices: "initial_choice: Agree"."""
    options = sorted({*simulated[column].drop_nulls(), *real[column].drop_nulls()})
    if len(options) > MOST_LEVELS:
        return simulated, real
    chosen = [(pl.col(column) == option).alias(f"{column}: {option}") for option in options]
    return simulated.with_columns(chosen), real.with_columns(chosen)
