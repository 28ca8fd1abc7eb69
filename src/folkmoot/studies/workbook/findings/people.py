"""Contributions to a public good beside those of people, where a workbook computes their share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from folkmoot.measures.bands import human_band, place, place_interval
from folkmoot.measures.estimates import Estimate, percent
from folkmoot.records.findings import Cell, Finding, Grid, Intervals
from folkmoot.studies.workbook.findings.data import (
    Measure,
    cell,
    mean_of,
    per_participant,
    span,
)

# A value of this name is what a participant gave to the public good, as a share (0 to 1).
SHARES = ("share_given", "share_contributed", "contribution_share")
OF = 20.0  # the published figures are of an endowment of 20


def beside_people(
    measures: Sequence[Measure], values: pl.DataFrame, arms: Sequence[str]
) -> list[Finding]:
    """Mean and spread of contributions per treatment, inside or outside the human range."""
    measure = next((m for m in measures if m.name in SHARES), None)
    if measure is None:
        return []
    people = per_participant(values.filter(pl.col("name").is_in(measure.variables)))
    if people.is_empty() or not people["number"].is_between(0, 1).all():
        return []
    mean, spread = human_band("public_goods_contribution"), human_band("public_goods_sd")
    low, high = mean.low / OF, mean.high / OF
    said: list[str] = []
    narrow: list[str] = []
    rows: list[dict[str, Cell]] = []
    lines: list[tuple[str, float, float, float]] = []
    for arm in arms:
        mine = people.filter(treatment=arm)
        if mine.is_empty():
            continue
        estimate = _bounded(mean_of(mine))
        sd = float(np.std(mine["number"].to_numpy(), ddof=1)) if mine.height > 1 else None
        if sd is not None and place(sd * OF, spread) == "below":
            narrow.append(arm)
        where = place(estimate.value * OF, mean)
        near = estimate.has_interval and (
            place_interval(estimate.low * OF, estimate.high * OF, mean) == "inside"
        )
        beside = "inside" if where == "inside" else f"outside ({where})"
        doubt = ", but within its uncertainty" if where != "inside" and near else ""
        said.append(f"{arm} {percent(estimate.value)}, {beside}{doubt}")
        rows.append(
            {
                "treatment": arm,
                "given_share": estimate.value,
                "given_share_low": cell(estimate.low),
                "given_share_high": cell(estimate.high),
                "people_low_share": low,
                "people_high_share": high,
                "place": where,
                "standard deviation": sd,
                "people_sd_low": spread.low / OF,
                "people_sd_high": spread.high / OF,
            }
        )
        lines.append(span(arm, estimate))
    flag = (
        f" Variance collapse: answers spread less than people's under {', '.join(narrow)} (a mean "
        "over rounds does so by itself)."
        if narrow
        else " Answers spread no less than people's."
    )
    return [
        Finding(
            key="human_bands",
            title="Contributions beside those of people",
            says=f"People give {percent(low)} to {percent(high)} of what they have; "
            f"{'; '.join(said)}.{flag}",
            grid=Grid.of(rows, "95 % intervals, clustered by session"),
            chart=Intervals(
                tuple(lines),
                unit="share given to the public good",
                percent=True,
                bands=(("people", low, high),),
            ),
            notes=(
                f"Range: {mean.range}. {mean.caveat}",
                f"Source: {mean.source}.",
            ),
            section="Human bands",
        )
    ]


def _bounded(estimate: Estimate) -> Estimate:
    """A share lies between 0 and 1, and so does its interval."""
    if not estimate.has_interval:
        return estimate
    return replace(estimate, low=max(0.0, estimate.low), high=min(1.0, estimate.high))
