"""How the talk went: reactions, stances, and how well the answers could be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from folkmoot.records.findings import Bars, Finding, Grid
from folkmoot.studies.town_hall.measures import SPECTRUM


def spectrum(reactions: pl.DataFrame) -> Finding | None:
    """The five-level reaction spectrum by level and group."""
    counts = (
        reactions.group_by("level", "target_vulnerable", "reaction", maintain_order=True)
        .agg(pl.len().alias("n"))
        .to_dicts()
    )
    totals: dict[tuple[str, bool], int] = {}
    for row in counts:
        key = (row["level"], row["target_vulnerable"])
        totals[key] = totals.get(key, 0) + row["n"]
    found = {(r["level"], r["target_vulnerable"], r["reaction"]): r["n"] for r in counts}
    if not totals:
        return None
    rows, bars = [], []
    for (level, vulnerable), total in sorted(totals.items(), key=lambda item: not item[0][1]):
        who = "vulnerable" if vulnerable else "general"
        shares = {s: found.get((level, vulnerable, s), 0) / total for s in SPECTRUM}
        rows.append(
            {"to": who, "level": level, **{f"{s}_share": v for s, v in shares.items()}, "n": total}
        )
        bars += [(f"{who}, level {level}", s, v) for s, v in shares.items() if s != "ignore"]
    ignored = [
        f"{r['ignore_share']:.0%} at level {r['level']}" for r in rows if r["to"] == "vulnerable"
    ]
    return Finding(
        key="spectrum",
        title="How others react",
        says=f"What the vulnerable residents said was passed over by {', '.join(ignored)} of those "
        "who could have reacted.",
        grid=Grid.of(rows, "Share of possible reactions"),
        chart=Bars(tuple(bars), unit="share of possible reactions", percent=True),
        notes=("Five-level reaction spectrum after Park & Lee (2016); no reference is `ignore`.",),
        section="Effects",
    )


def stances(rounds: pl.DataFrame) -> Finding | None:
    """How often stances moved between rounds."""
    moved = rounds.filter(pl.col("change_type").is_not_null())
    if moved.is_empty():
        return None
    shares = (
        moved.group_by("level", "change_type", maintain_order=True).agg(pl.len().alias("n"))
    ).to_dicts()
    totals: dict[str, int] = {}
    for row in shares:
        totals[row["level"]] = totals.get(row["level"], 0) + row["n"]
    kinds = ("maintain", "soften", "harden", "flip")
    by = {(r["level"], r["change_type"]): r["n"] for r in shares}
    rows = [
        {"level": level, **{f"{k}_share": by.get((level, k), 0) / n for k in kinds}, "n": n}
        for level, n in totals.items()
    ]
    kept = ", ".join(f"{r['maintain_share']:.0%} at level {r['level']}" for r in rows)
    return Finding(
        key="stances",
        title="How stances move between rounds",
        says=f"Stances were kept in {kept} of the reflections.",
        grid=Grid.of(rows, "Share of reflections"),
        section="Effects",
    )


def reading(quality: Mapping[str, Any]) -> Finding:
    """How well answers could be read."""
    rows = []
    for level, own in quality["levels"].items():
        rungs = {f"{rung}": own["rungs"].get(rung, 0) for rung in ("exact", "fenced", "repaired")}
        rows.append(
            {
                "level": level,
                "answers": own["answers"],
                **rungs,
                "asked again": own["reasks"],
                "minimal structures": own["minimal_structures"],
                "fields repaired": sum(own["repaired"].values()),
                "fields dropped": sum(own["dropped"].values()),
                "silent turns": own["silent_turns"],
                "votes uncast": own["votes_uncast"],
                "rounds split": own["rounds_split"],
            }
        )
    total = quality["all"]
    dropped = sum(total["dropped"].values())
    return Finding(
        key="quality",
        title="How well answers could be read",
        says=f"Of {total['answers']:,} answers {total['rungs'].get('exact', 0):,} could be read as "
        f"they came; {total['reasks']:,} had to be asked for again, for "
        f"{total['minimal_structures']:,} the minimal structure stands, and {dropped:,} fields "
        "were dropped (ids that do not exist, self-references, levels out of range).",
        grid=Grid.of(rows),
        notes=(
            "Who could not be read is left out of the denominators and never counted as silent.",
            "`rounds split`: rounds of the shared session that took more than one call.",
        ),
        section="Quality",
    )
