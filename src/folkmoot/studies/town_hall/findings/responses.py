"""Who responded to whom: for each level the residents of the first set, one against another."""

from __future__ import annotations

import polars as pl

from folkmoot.measures.estimates import plural
from folkmoot.records.findings import Finding, Grid, Heat


def responses(reactions: pl.DataFrame, residents: pl.DataFrame) -> list[Finding]:
    """One map a level. A response is any reaction but `ignore`; who was heard is the column."""
    if reactions.is_empty():
        return []
    first = reactions["set"].min()
    mine = reactions.filter(pl.col("set") == first)
    people = residents.filter(pl.col("set") == first)
    names = {
        row["id"]: f"{row['id']}*" if row["is_vulnerable"] else row["id"]
        for row in people.sort("id").iter_rows(named=True)
    }
    levels = mine["level"].unique(maintain_order=True).to_list()
    return [
        _one(level, int(str(first)), mine.filter(pl.col("level") == level), names)
        for level in sorted(levels)
    ]


def _one(level: str, number: int, reactions: pl.DataFrame, names: dict[str, str]) -> Finding:
    answered = reactions.filter(pl.col("reaction") != "ignore")
    counts = {
        (speaker, target): n
        for speaker, target, n in answered.group_by("speaker", "target").len().iter_rows()
    }
    cells = [
        (names[a], names[b], float(counts.get((a, b), 0))) for a in names for b in names if a != b
    ]
    rows = [
        {
            "who": names[a],
            **{names[b]: None if a == b else counts.get((a, b), 0) for b in names},
            "given": sum(counts.get((a, b), 0) for b in names),
            "received": sum(counts.get((b, a), 0) for b in names),
        }
        for a in names
    ]
    return Finding(
        key=f"who_responded_{level}",
        title=f"Who responded to whom, level {level}",
        says=_says(names, counts),
        grid=Grid.of(rows, "Responses over all rounds: rows respond, columns are responded to"),
        chart=Heat(tuple(cells), row="who", column="to whom", unit="responses"),
        notes=(
            f"* vulnerable resident. The discussion of set {number}; those of all sets are in the "
            "table reactions. A response refutes, asks, cites or agrees.",
        ),
        section="Who responded to whom",
    )


def _says(names: dict[str, str], counts: dict[tuple[str, str], int]) -> str:
    total = sum(counts.values())
    if not total:
        return "Nobody responded to anybody."
    received = {who: sum(n for (_, to), n in counts.items() if to == who) for who in names}
    most = max(received, key=lambda who: received[who])
    silence = [names[who] for who, n in received.items() if not n]
    unheard = (
        f"{plural(len(silence), 'resident')} met with no response ({', '.join(silence)})."
        if silence
        else "Everybody met with some response."
    )
    return (
        f"{plural(total, 'response')} between {plural(len(names), 'resident')}, most of them to "
        f"{names[most]} ({received[most]}). {unheard}"
    )
