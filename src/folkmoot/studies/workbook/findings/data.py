"""The numbers of a run as findings need them: long tables, measures, rounds taken together."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import polars as pl

from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.estimates import Estimate
from folkmoot.records.run_folder import RunFolder

MOST_MEASURES = 12
CLUSTER = ("experiment_id", "session")
_ROUND = re.compile(r"^(.*?)[ _-]?(\d{1,3})$")


@dataclass(frozen=True)
class Measure:
    """Something numeric that participants have: one variable, or one variable in rounds."""

    name: str
    rounds: tuple[tuple[int, str], ...]  # (round, variable)
    computed: bool

    @property
    def variables(self) -> list[str]:
        return [variable for _, variable in self.rounds]


def of_participants(run: RunFolder) -> pl.DataFrame:
    responses = run.table("responses")
    seated = run.table("assignment")["participant_id"].unique().to_list()
    return responses.filter(pl.col("participant_id").is_in(seated))


def values_of(run: RunFolder, responses: pl.DataFrame) -> pl.DataFrame:
    """Numbers that count, long: name, participant, session, treatment, number, computed."""
    keys = [*CLUSTER, "treatment", "participant_id"]
    answered = responses.filter(
        pl.col("number").is_not_null() & (pl.col("status") != "invalid")
    ).select(*keys, pl.col("var_name").alias("name"), "number", pl.lit(False).alias("computed"))
    if not run.has_table("computed"):
        return answered
    computed = run.table("computed")
    if "number" not in computed.columns or computed["number"].dtype == pl.String:
        return answered
    personal = computed.filter(
        pl.col("participant_id").is_not_null() & pl.col("number").is_not_null()
    ).select(*keys, "name", pl.col("number").cast(pl.Float64), pl.lit(True).alias("computed"))
    return pl.concat([answered.with_columns(pl.col("number").cast(pl.Float64)), personal])


def measures_of(values: pl.DataFrame) -> list[Measure]:
    """Variables, with those that differ by a number at the end taken together as rounds."""
    stems: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for name, computed in values.select("name", "computed").unique(maintain_order=True).iter_rows():
        match = _ROUND.match(name)
        stem, number = (match[1], int(match[2])) if match and match[1] else (name, 0)
        stems.setdefault((stem, computed), []).append((number, name))
    found = []
    for (stem, computed), rounds in stems.items():
        if len(rounds) > 1:
            found.append(Measure(stem.rstrip(" _-"), tuple(sorted(rounds)), computed))
        else:
            found.append(Measure(rounds[0][1], tuple(rounds), computed))
    return found[:MOST_MEASURES]


def per_participant(data: pl.DataFrame) -> pl.DataFrame:
    """One number a participant: the mean over rounds."""
    keys = [*CLUSTER, "treatment", "participant_id"]
    return data.group_by(keys, maintain_order=True).agg(pl.col("number").mean())


def clusters_of(data: pl.DataFrame) -> list[tuple[str, ...]]:
    return list(data.select(*CLUSTER).iter_rows())


def mean_of(people: pl.DataFrame) -> Estimate:
    return clustered_mean(people["number"].to_numpy(), clusters_of(people))


def cell(number: float) -> float | None:
    return number if math.isfinite(number) else None


def span(label: str, estimate: Estimate) -> tuple[str, float, float, float]:
    """An estimate as a line of a chart; without an interval it is a point."""
    value = estimate.value
    if not estimate.has_interval:
        return label, value, value, value
    return label, value, estimate.low, estimate.high


def signed(number: float) -> str:
    """+1.2 or −1.2; what is zero but for rounding is 0."""
    return "0" if abs(number) < 1e-9 else f"{number:+.3g}".replace("-", "−")
