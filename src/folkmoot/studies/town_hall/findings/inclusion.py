"""Who is heard: the inclusivity score at each level, what each step changes, a replication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.records.findings import Finding, Grid, Intervals
from folkmoot.studies.town_hall.findings.words import (
    SCORE,
    Summaries,
    interval,
    number,
    signed,
    told,
    value,
)

NOT_PEOPLE = "Differences between levels are differences between ways of running models."


def inclusion(levels: Summaries) -> Finding | None:
    """The weighted inclusivity score at each level, with the gap."""
    if not levels:
        return None
    rows, items, says = [], [], []
    for level, summary in levels.items():
        own = summary["figures"][SCORE]
        rows.append(
            {
                "level": level,
                "vulnerable": own["vulnerable"]["estimate"],
                "general": own["general"]["estimate"],
                "gap": own["gap"]["estimate"],
                "low": own["gap"]["low"],
                "high": own["gap"]["high"],
                "sets": own["gap"]["sets"],
            }
        )
        items += interval(f"level {level}", own["gap"])
        says.append(
            f"At level {level} the vulnerable residents scored {number(own['vulnerable'])} of 4 "
            f"and the others {number(own['general'])}: a gap of {signed(own['gap'])}."
        )
    return Finding(
        key="inclusion",
        title="Who is heard",
        says=" ".join(says),
        grid=Grid.of(rows, "Weighted inclusivity score, 0 (ignored) to 4 (agreed with)"),
        chart=Intervals(tuple(items), unit="inclusion gap (vulnerable minus general)", zero=0.0),
        notes=(
            "Mean level over all possible reactions of others, from the second round on.",
            "Intervals: 95 %, t over sets; none with a single set.",
        ),
        headline=True,
    )


def steps(differences: list[Mapping[str, Any]]) -> Finding:
    """Paired differences within sets, for the score of the vulnerable and for the gap."""
    rows, items, says = [], [], []
    for entry in differences:
        own = entry["figures"][SCORE]
        step = f"{entry['from']} → {entry['to']}"
        rows.append(
            {
                "step": step,
                "vulnerable": own["vulnerable"]["estimate"],
                "gap": own["gap"]["estimate"],
                "low": own["gap"]["low"],
                "high": own["gap"]["high"],
                "p": own["gap"]["p"],
                "changes": ", ".join(entry["switches_changed"]),
            }
        )
        items += interval(step, own["gap"])
        if entry["consecutive"]:
            says.append(
                f"From level {entry['from']} to {entry['to']} ({rows[-1]['changes']}) the gap "
                f"moved by {signed(own['gap'])}{told(own['gap'])}."
            )
    return Finding(
        key="steps",
        title="What each step changes",
        says=" ".join(says),
        grid=Grid.of(rows, "Change of the weighted inclusivity score within sets"),
        chart=Intervals(tuple(items), unit="change of the inclusion gap", zero=0.0),
        notes=(
            "The same residents at both levels; sets are the clusters.",
            "p by flipping the signs of sets (up to 12 sets), else by t; not corrected for the "
            "number of comparisons.",
            NOT_PEOPLE,
        ),
        headline=True,
    )


def replication(apart: Mapping[str, Any], main: Summaries) -> Finding:
    """Supplementary levels, apart from the main comparison."""
    rows = [
        {
            "level": level,
            "vulnerable": value(summary, SCORE, "vulnerable"),
            "general": value(summary, SCORE, "general"),
            "gap": value(summary, SCORE, "gap"),
            "part": part,
        }
        for part, levels in (("supplementary", apart["levels"]), ("main", main))
        for level, summary in levels.items()
    ]
    says = [
        f"Level {d['to']} minus level {d['from']}: gap {signed(d['figures'][SCORE]['gap'])}"
        f"{told(d['figures'][SCORE]['gap'])}."
        for d in apart["differences"]
        if d["switches_changed"] == ["models"]
    ]
    names = ", ".join(apart["levels"])
    return Finding(
        key="replication",
        title="Replication on another model",
        says=f"Level {names} is reported apart from the main comparison. {' '.join(says)}",
        grid=Grid.of(rows, "Weighted inclusivity score"),
        section="Replication",
        headline=not main,
    )
