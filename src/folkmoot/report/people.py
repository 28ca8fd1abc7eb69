"""People's answers beside a run: how far the simulation is off, and what a few people correct.

People are matched with simulated participants by `participant`, where the file has it: personas
made from a survey keep the respondents' ids. Unmatched files are compared as separate samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from folkmoot.measures.estimates import FEWEST_UNITS, Estimate, percent, plural
from folkmoot.measures.proportions import newcombe
from folkmoot.measures.rectified import (
    Rectified,
    people_needed,
    rectified_difference,
    rectified_mean,
)
from folkmoot.report.samples import EVERYBODY, Sample, condition_name, split
from folkmoot.storage.findings import Finding, Grid, Intervals
from folkmoot.storage.tables import BY, CLUSTERS, by_column

SECTION = "People beside the run"
MOST_LEVELS = 8
CHOICE = "initial_choice"  # what people are asked who vote only once
IDS = frozenset({"participant_id", "initial_choice", "final_choice", "status", "error_message"})


def against_people(run: Sample, people: Sample) -> list[Finding]:
    """Calibration, heterogeneity, and rectified estimates of one run and one file of answers."""
    simulated = run.tables.get("participants")
    if simulated is None:
        return []
    if "status" in simulated.columns:
        simulated = simulated.filter(pl.col("status") == "complete")
    real = people.tables["participants"]
    simulated = _known_as(simulated, real)
    return found(
        calibration(run.name, simulated, real),
        rectified(run.name, simulated, real),
        heterogeneity(run.name, simulated, real),
    )


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


def _measures(simulated: pl.DataFrame, real: pl.DataFrame) -> list[str]:
    """Columns that both have as numbers or truth values."""

    def usable(kind: pl.DataType) -> bool:
        return kind.is_numeric() or kind == pl.Boolean

    both = (c for c in simulated.columns if c in real.columns and c not in IDS and c not in BY)
    return [c for c in both if usable(simulated.schema[c]) and usable(real.schema[c])]


def calibration(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
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
                line = _line(arm, which.replace("_", " "), (None, None), apart, spread)
                rows.append({**line, "by_chance": chance})
        for measure in _measures(model, human):
            ours, theirs = (t[measure].drop_nulls().cast(pl.Float64) for t in (model, human))
            if len(ours) < FEWEST_UNITS or len(theirs) < FEWEST_UNITS:
                continue
            share = model.schema[measure] == pl.Boolean
            off = float(ours.mean() or 0.0) - float(theirs.mean() or 0.0)  # type: ignore[arg-type]
            spread = _ratio(ours.std(), theirs.std())
            if share:
                gaps.append(abs(off))
            values = (ours.mean(), theirs.mean())
            rows.append(_line(arm, measure, values, off, spread))  # type: ignore[arg-type]
    if not rows:
        return None
    error = sum(gaps) / len(gaps) if gaps else math.nan
    said = (
        f"Over {plural(len(gaps), 'share')} {name} is off by {percent(error)} on average."
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


def _line(
    arm: str, measure: str, means: tuple[float | None, float | None], off: float, spread: float
) -> Row:
    return {
        "arm": condition_name(arm),
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


def rectified(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
    """Means and effects that a few matched people correct; None without matches."""
    if "participant_id" not in real.columns or "participant_id" not in simulated.columns:
        return None
    if not _both("position_changed", simulated, real) and _both(CHOICE, simulated, real):
        simulated, real = _with_choices(CHOICE, simulated, real)
    found: dict[str, dict[str, Rectified]] = {}  # measure → arm → estimate
    for arm, (model, human) in _arms(simulated, real).items():
        for measure in _measures(model, human):
            estimate = _matched(model, human, measure)
            if estimate is not None:
                found.setdefault(measure, {})[condition_name(arm)] = estimate
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


def _matched(model: pl.DataFrame, human: pl.DataFrame, measure: str) -> Rectified | None:
    """People matched with their simulated selves, and the simulated rest."""
    key = pl.col("participant_id").cast(pl.String)
    own, theirs = (
        t.filter(pl.col(measure).is_not_null()).select(
            key.alias("who"), pl.col(measure).cast(pl.Float64).alias(column)
        )
        for t, column in ((model, "model"), (human, "people"))
    )
    if own["who"].is_duplicated().any() or theirs["who"].is_duplicated().any():
        return None
    both = own.join(theirs, on="who")
    if both.height < FEWEST_UNITS:
        return None
    rest = own.join(theirs, on="who", how="anti")
    # People who talked to each other are one unit; the file says so, or the run's design does.
    groups = next((c for c in CLUSTERS if c in human.columns), None)
    clusters = None
    if groups is not None:
        of = human.select(key.alias("who"), pl.col(groups).cast(pl.String).alias("group"))
        clusters = both.join(of, on="who", how="left", maintain_order="left")["group"].to_list()
    return rectified_mean(
        both["people"].to_list(),
        both["model"].to_list(),
        rest["model"].to_list(),
        clusters=clusters,
        share=model.schema[measure] == pl.Boolean,
    )


def heterogeneity(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
    """Rates of change, else of each first choice, by the attributes of people.

    An attribute that only the file of people has is theirs in the simulation too, where people are
    matched.
    """
    simulated = _with_attributes(simulated, real)
    outcomes = ["position_changed"] if _both("position_changed", simulated, real) else []
    if not outcomes and _both(CHOICE, simulated, real):
        simulated, real = _with_choices(CHOICE, simulated, real)
        outcomes = [c for c in real.columns if c.startswith(f"{CHOICE}: ")]
    rows: list[Row] = []
    gaps: dict[str, Estimate] = {}
    skip = IDS | set(BY) | {*outcomes}
    for column in (c for c in real.columns if c in simulated.columns and c not in skip):
        levels = real[column].drop_nulls().unique().sort().to_list()
        if not 2 <= len(levels) <= MOST_LEVELS:
            continue
        for level in levels:
            own, theirs = (
                t.filter(pl.col(column).cast(pl.String) == str(level)) for t in (simulated, real)
            )
            for outcome in outcomes:
                counts = own[outcome].drop_nulls(), theirs[outcome].drop_nulls()
                if all(len(c) >= FEWEST_UNITS for c in counts):
                    (ours, n), (real_ones, of) = ((int(c.sum()), len(c)) for c in counts)
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
                    gaps[f"{column} {level}: {rows[-1]['outcome']}"] = newcombe(
                        ours, n, real_ones, of
                    )
    if not rows:
        return None
    changes = outcomes == ["position_changed"]
    holm = adjusted(gaps)
    rows = [
        {**row, **cells(e, "off_rate", "_rate"), **p_cells(e, holm[label])}
        for row, (label, e) in zip(rows, gaps.items(), strict=True)
    ]
    apart = [
        f"{label} {points(e, chance(e, holm[label]))}"
        for label, e in gaps.items()
        if holm[label] < ALPHA
    ]
    told = (
        f"Off by more than chance: {listed(apart)}" if apart else "None is off by more than chance."
    )
    return Finding(
        "people_heterogeneity",
        "Who changes, by attribute" if changes else "Who chooses what, by attribute",
        f"{'Rates of change' if changes else 'First choices'} of {name} beside those of people, by "
        f"{plural(len({(r['attribute'], r['level']) for r in rows}), 'group')}. {told}",
        Grid.of(rows, "Off: simulation minus people, as between different people (Newcombe)."),
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
