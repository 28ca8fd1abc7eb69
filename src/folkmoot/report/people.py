"""People's answers beside a run: how far the simulation is off, and what a few people correct.

People are matched with simulated participants by `participant`, where the file has it: personas
made from a survey keep the respondents' ids. Unmatched files are compared as separate samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from folkmoot.kit.findings import Row, cells, found, interval, number
from folkmoot.measures.diversity import total_variation
from folkmoot.measures.estimates import percent, plural
from folkmoot.measures.proportions import wilson
from folkmoot.measures.rectified import Rectified, rectified_mean
from folkmoot.report.samples import EVERYBODY, Sample, condition_name, split
from folkmoot.storage.findings import Finding, Grid, Intervals
from folkmoot.storage.tables import BY, by_column

SECTION = "People beside the run"
FEWEST = 5  # people, below which nothing is estimated
MOST_LEVELS = 8
IDS = frozenset({"participant_id", "initial_choice", "final_choice", "status", "error_message"})


def against_people(run: Sample, people: Sample) -> list[Finding]:
    """Calibration, heterogeneity, and rectified estimates of one run and one file of answers."""
    simulated = run.tables.get("participants")
    if simulated is None:
        return []
    if "status" in simulated.columns:
        simulated = simulated.filter(pl.col("status") == "complete")
    real = people.tables["participants"]
    return found(
        calibration(run.name, simulated, real),
        rectified(run.name, simulated, real),
        heterogeneity(run.name, simulated, real),
    )


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
                apart, spread = _choices(model[which].drop_nulls(), human[which].drop_nulls())
                if math.isfinite(apart):
                    gaps.append(apart)
                    rows.append(_line(arm, which.replace("_", " "), None, None, apart, spread))
        for measure in _measures(model, human):
            ours, theirs = (t[measure].drop_nulls().cast(pl.Float64) for t in (model, human))
            if len(ours) < FEWEST or len(theirs) < FEWEST:
                continue
            share = model.schema[measure] == pl.Boolean
            off = float(ours.mean() or 0.0) - float(theirs.mean() or 0.0)  # type: ignore[arg-type]
            spread = _ratio(ours.std(), theirs.std())
            if share:
                gaps.append(abs(off))
            values = (ours.mean(), theirs.mean())
            rows.append(_line(arm, measure, *values, off, spread))  # type: ignore[arg-type]
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
        notes=("A spread below 1 means that the simulation is more uniform than people are.",),
        section=SECTION,
        headline=True,
    )


def _line(
    arm: str, measure: str, ours: float | None, theirs: float | None, off: float, spread: float
) -> Row:
    return {
        "arm": condition_name(arm),
        "measure": measure,
        "simulated": ours,
        "people": theirs,
        "off": off,
        "spread_ratio": spread if math.isfinite(spread) else None,
    }


def _choices(model: pl.Series, human: pl.Series) -> tuple[float, float]:
    """Total variation distance of two columns of choices, and the ratio of their evenness."""
    if len(model) < FEWEST or len(human) < FEWEST:
        return math.nan, math.nan
    options = sorted({*model.to_list(), *human.to_list()})
    a, b = ([int((column == option).sum()) for option in options] for column in (model, human))
    return total_variation(a, b), _ratio(_evenness(a), _evenness(b))


def _evenness(counts: Sequence[int]) -> float:
    """The chance that two people chose differently (Gini–Simpson)."""
    n = sum(counts)
    return 1 - sum((c / n) ** 2 for c in counts)


def _ratio(ours: object, theirs: object) -> float:
    if not (isinstance(ours, float) and isinstance(theirs, float)) or not theirs:
        return math.nan
    return ours / theirs


def rectified(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
    """Means that a few matched people correct, with valid intervals; None without matches."""
    if "participant_id" not in real.columns or "participant_id" not in simulated.columns:
        return None
    rows: list[Row] = []
    lines: list[tuple[str, float, float, float]] = []
    said = []
    for arm, (model, human) in _arms(simulated, real).items():
        for measure in _measures(model, human):
            estimate = _matched(model, human, measure)
            if estimate is None:
                continue
            label = f"{condition_name(arm)}: {measure}"
            for who, e in (("people alone", estimate.people), ("corrected", estimate.corrected)):
                lines.append(interval(f"{label}, {who}", e))
            rows.append(
                {
                    "arm": condition_name(arm),
                    "measure": measure,
                    "simulated": estimate.simulated,
                    "people_alone": estimate.people.value,
                    **cells(estimate.corrected, "corrected"),
                    "weight": estimate.weight,
                    "people": estimate.n,
                    "worth": estimate.worth if estimate.corrected.has_interval else None,
                }
            )
            e = estimate.corrected
            said.append(
                f"{label} {number(e.value)} ({number(e.low)} to {number(e.high)}); the "
                f"{estimate.n} people are worth {estimate.worth:.0f}"
                if e.has_interval
                else f"{label} {number(e.value)}; all {estimate.n} people said so, which tells no "
                "interval"
            )
    if not rows:
        return None
    return Finding(
        "people_rectified",
        f"{name} corrected by people",
        f"{'. '.join(said[:4])}.",
        Grid.of(rows, "Prediction-powered means; 95 % intervals valid however wrong the model is."),
        Intervals(tuple(lines), "mean"),
        notes=(
            "Worth: how many people alone would give as narrow an interval. Weight: how much the "
            "simulation counts, by how well it predicts the same people. The people must be a "
            "random part of those who were simulated. Angelopoulos et al. (2023), "
            "doi:10.1126/science.adi6000.",
        ),
        section=SECTION,
        headline=True,
    )


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
    if both.height < FEWEST:
        return None
    rest = own.join(theirs, on="who", how="anti")
    return rectified_mean(
        both["people"].to_list(), both["model"].to_list(), rest["model"].to_list()
    )


def heterogeneity(name: str, simulated: pl.DataFrame, real: pl.DataFrame) -> Finding | None:
    """Rates of change by the attributes that both describe their people with."""
    if "position_changed" not in simulated.columns or "position_changed" not in real.columns:
        return None
    rows: list[Row] = []
    skip = IDS | set(BY) | {"position_changed"}
    for column in (c for c in real.columns if c in simulated.columns and c not in skip):
        levels = real[column].drop_nulls().unique().sort().to_list()
        if not 2 <= len(levels) <= MOST_LEVELS:
            continue
        for level in levels:
            counts = [
                t.filter(pl.col(column).cast(pl.String) == str(level))[
                    "position_changed"
                ].drop_nulls()
                for t in (simulated, real)
            ]
            if all(len(c) >= FEWEST for c in counts):
                ours, theirs = (wilson(int(c.sum()), len(c)) for c in counts)
                rows.append(
                    {
                        "attribute": column,
                        "level": str(level),
                        "simulated_rate": ours.value,
                        "simulated_n": ours.n,
                        **cells(theirs, "people_rate", "_rate"),
                        "people_n": theirs.n,
                    }
                )
    if not rows:
        return None
    return Finding(
        "people_heterogeneity",
        "Who changes, by attribute",
        f"Rates of change of {name} beside those of people, by {plural(len(rows), 'group')}.",
        Grid.of(rows, "Wilson intervals for people; not adjusted for the number of groups."),
        section=SECTION,
    )
