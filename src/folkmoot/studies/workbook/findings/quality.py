"""How far the answers can be trusted: validation, missing ones, the pull of the first option."""

from __future__ import annotations

import numpy as np
import polars as pl

from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.estimates import percent, plural
from folkmoot.records.findings import Finding, Grid
from folkmoot.studies.workbook.findings.data import cell, clusters_of


def quality(responses: pl.DataFrame) -> list[Finding]:
    rows = []
    for name in responses["var_name"].unique(maintain_order=True).to_list():
        mine = responses.filter(var_name=name)
        status = mine["status"].to_list()
        scores = mine["speculation_score"].drop_nulls() if "speculation_score" in mine else None
        rows.append(
            {
                "variable": name,
                "answers": mine.height,
                "invalid_rate": status.count("invalid") / mine.height,
                "missing_rate": status.count(None) / mine.height,
                "re-asks per answer": float(mine["reasks"].mean() or 0),  # type: ignore[arg-type]
                "speculation": _mean_or_none(scores),
            }
        )
    bad = sum(responses["status"] == "invalid")
    gone = responses["status"].null_count()
    found = [
        Finding(
            key="answer_quality",
            title="How the answers were had",
            says=f"Of {plural(responses.height, 'answer')} {bad} failed validation to the end and "
            f"were kept as they were, and {gone} could not be had.",
            grid=Grid.of(rows),
            notes=(
                "Invalid answers stay in the files and are left out of computed values.",
                "Speculation: 0 not speculative at all, 100 entirely, by the model's own word.",
            ),
            section="Noise",
            headline=bool(bad or gone),
        )
    ]
    return [*found, *_positions(responses)]


def _mean_or_none(scores: pl.Series | None) -> float | None:
    if scores is None or scores.is_empty() or scores.dtype == pl.String:
        return None
    return float(np.mean(scores.to_numpy()))


def _positions(responses: pl.DataFrame) -> list[Finding]:
    """Whether options are chosen for standing first: expected is one in as many as there are."""
    if (
        "position" not in responses.columns
        or responses["position"].null_count() == responses.height
    ):
        return []
    chosen = responses.filter(pl.col("position").is_not_null()).with_columns(
        pl.col("options").str.json_decode(pl.List(pl.String)).list.len().alias("listed")
    )
    shuffled = chosen.group_by("var_name", maintain_order=True).agg(
        pl.col("options").n_unique().alias("orders")
    )
    names = shuffled.filter(pl.col("orders") > 1)["var_name"].to_list()
    chosen = chosen.filter(pl.col("var_name").is_in(names))
    if chosen.is_empty():
        return []
    first = (chosen["position"] == 1).to_numpy().astype(float)
    expected = float((1 / chosen["listed"].to_numpy()).mean())
    found = clustered_mean(first, clusters_of(chosen))
    row = {
        "answers": chosen.height,
        "first_chosen_rate": found.value,
        "low_rate": cell(found.low),
        "high_rate": cell(found.high),
        "expected_rate": expected,
    }
    return [
        Finding(
            key="position",
            title="Are options chosen for standing first?",
            says=f"The option listed first was chosen in {percent(found.value)} of "
            f"{plural(chosen.height, 'answer')} from shuffled lists; {percent(expected)} is "
            "expected if the place does not matter.",
            grid=Grid.of([row]),
            section="Noise",
        )
    ]
