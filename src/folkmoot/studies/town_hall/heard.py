"""Whether concerns were heard: not only mentioned, but understood, answered, taken into the
proposals, or distorted. A coder reads what others said and proposed after a resident had spoken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from folkmoot.engine.session import Session
from folkmoot.kit import coding
from folkmoot.kit.findings import cells, clustered_share, intervals, points
from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.estimates import Estimate, percent
from folkmoot.randomness import generator
from folkmoot.storage.findings import Cell, Finding, Grid
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import Discussion, one_line

CODEBOOK = Path(__file__).parent / "codebooks" / "concern.yaml"
CONCERN = "concern"


def concerns(discussion: Discussion, seed: int) -> list[coding.Text]:
    """What the coder reads, for each vulnerable resident and as many others, who are drawn by the
    seed and are the same at every level. Nothing for who never spoke: no concern was voiced."""
    meeting = discussion.meeting
    rng = generator(seed, ("town_hall", f"set{meeting.set.number:02d}", "concerns"))
    some = rng.permutation(len(meeting.general))[: len(meeting.vulnerable)]
    chosen = [*meeting.vulnerable, *(meeting.general[i] for i in sorted(some))]
    return [t for t in (_concern(discussion, i) for i in chosen) if t is not None]


def _concern(discussion: Discussion, me: str) -> coding.Text | None:
    """The points that a resident made aloud (without points, the statements), and all that others
    said and proposed after the first of them."""
    rounds, names = discussion.rounds, discussion.meeting.names
    spoke = [r for r in rounds if r.turns[me].speaking.full_statement]
    if not spoke:
        return None
    points = [p for r in spoke for p in r.turns[me].speaking.new_points]
    points = points or [one_line(r.turns[me].speaking.full_statement) for r in spoke]
    first = spoke[0].number
    said = [
        f"{s['name']} ({s['id']}): {s['text']}"
        for r in discussion.meeting.history([r for r in rounds if r.number > first], but=me)
        for s in r["statements"]
    ]
    chair = [one_line(r.moderation.spoken) for r in rounds[first - 1 :] if r.moderation]
    closing = discussion.closing.consensus
    parts = [
        *said,
        *(f"The chair: {words}" for words in chair if words),
        *(f"Proposal {i.id}: {i.text}" for i in discussion.items),
        *([f"The final text: {closing}"] if closing else []),
    ]
    about = {"resident": f"{names[me]} ({me})", "concern": " ".join(dict.fromkeys(points))}
    return coding.Text(f"{discussion.meeting.id}/{me}", "\n\n".join(parts), me, about)


async def code_concerns(session: Session[TownHallConfig], texts: Sequence[coding.Text]) -> None:
    """Code what became of the concerns (or only record the texts, where coding is off)."""
    if texts:
        await coding.code(session, CODEBOOK, texts)


def heard(run: RunFolder) -> list[Finding]:
    """What became of concerns, by level and group; nothing where no real coder coded them."""
    read = coding.codings(run).get(CONCERN)
    if read is None or not read.supports:
        return []
    vulnerable = {
        (r["discussion_id"], r["agent_id"]): r["is_vulnerable"]
        for r in run.table("rounds").iter_rows(named=True)
    }
    levels = {
        r["discussion_id"]: (r["level"], r["set"])
        for r in run.table("discussions").iter_rows(named=True)
    }
    rows: list[dict[str, Any]] = []
    for text_id in read.texts:
        discussion, _, who = text_id.rpartition("/")
        if (codes := read.of(text_id)) is not None:
            level, number = levels[discussion]
            group = "vulnerable" if vulnerable[discussion, who] else "general"
            rows.append({"id": text_id, "level": level, "set": number, "group": group, "c": codes})
    if not rows:
        return []
    names = [c.name for c in read.book.codes]
    table: list[dict[str, Cell]] = []
    gaps: dict[str, Estimate] = {}
    for level in dict.fromkeys(r["level"] for r in rows):
        for code in names:
            own = [(r, code in r["c"]) for r in rows if r["level"] == level]
            shares = {
                g: clustered_share([x for r, x in of], [r["set"] for r, x in of])
                for g in ("vulnerable", "general")
                if (of := [(r, x) for r, x in own if r["group"] == g])
            }
            gap = _gap(own)
            gaps[f"level {level}, {code}"] = gap
            table.append(
                {
                    "level": level,
                    "code": code,
                    **{f"{g}_share": e.value for g, e in shares.items()},
                    **cells(gap, "gap"),
                    "concerns": len(own),
                }
            )
    says = [
        f"At level {row['level']} the concerns of vulnerable residents were {_word(row['code'])} "
        f"in {percent(share)} of cases: a gap of {points(gap)} to the others."
        for row, gap in zip(table, gaps.values(), strict=True)
        if isinstance(share := row.get("vulnerable_share"), float)
    ]
    return [
        Finding(
            "heard",
            "What became of concerns",
            " ".join(says),
            Grid.of(table, "Share of voiced concerns; gap: vulnerable minus general"),
            intervals(gaps, "gap in the share of concerns", zero=0.0, percent=True),
            notes=(
                read.note,
                "One concern a resident: the points that they made aloud. Who never spoke is left "
                "out. Intervals: 95 %, t over sets of the difference within sets.",
            ),
            headline=True,
        ),
        _quotes(read, [r for r in rows if r["set"] == rows[0]["set"]]),
    ]


def _gap(own: Sequence[tuple[dict[str, Any], bool]]) -> Estimate:
    """Vulnerable minus general within sets, averaged over sets."""
    by_set: dict[int, dict[str, list[bool]]] = {}
    for row, given in own:
        by_set.setdefault(row["set"], {}).setdefault(row["group"], []).append(given)
    both = {n: g for n, g in by_set.items() if len(g) == 2}
    mean = {n: {k: sum(v) / len(v) for k, v in g.items()} for n, g in both.items()}
    return clustered_mean([m["vulnerable"] - m["general"] for m in mean.values()], list(mean))


def _quotes(read: coding.Codings, rows: Sequence[dict[str, Any]]) -> Finding:
    """The quotes of one set, so that codes can be judged by eye."""
    quoted: list[dict[str, Cell]] = [
        {
            "where": row["id"],
            "concern": json.loads(read.texts[row["id"]]["about"])["concern"],
            "became": _word(code),
            "quote": quote,
        }
        for row in rows
        for code, quote in (row["c"] or {"not heard": ""}).items()
    ]
    return Finding(
        "heard_quotes",
        "Concerns and the words that met them",
        f"Set {rows[0]['set']}: the quotes by which concerns were coded. The table codes has all.",
        Grid.of(quoted),
        notes=(read.note,),
        section="Concerns",
    )


def _word(code: Cell) -> str:
    return str(code).replace("_", " ")
