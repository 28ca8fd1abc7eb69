"""What a focus group found, from its tables: for the end of a run and for the report.

How the talk went is in `findings_talk`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from folkmoot.measures.clustered import clustered_mean, paired_difference
from folkmoot.measures.proportions import wilson
from folkmoot.records.findings import Bars, Finding, Grid, Intervals, Lines
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.focus_group.discussion import INTENTS
from folkmoot.studies.focus_group.findings_coding import coding
from folkmoot.studies.focus_group.findings_talk import (
    TALK,
    path_of,
    pleasing,
    talk_time,
    who_to_whom,
)


def findings(run: RunFolder) -> list[Finding]:
    """All findings; those of a single group show its people, those of many its groups."""
    if not run.has_table("utterances"):
        return []
    said, opinions = run.table("utterances"), run.table("opinions")
    single = said.select(TALK).unique().height == 1
    stimuli = said["stimulus"].unique(maintain_order=True).to_list()
    found: list[Finding] = []
    for stimulus in stimuli:
        tag = f" ({stimulus})" if len(stimuli) > 1 else ""
        key = f"_{stimulus}" if len(stimuli) > 1 else ""
        of = pl.col("stimulus") == stimulus
        found += _intent(run, stimulus, key, tag)
        found.append(_moved(opinions.filter(of), key, tag, single))
        found += _objections(run, stimulus, key, tag)
        if single:
            found.append(who_to_whom(said.filter(of), key, tag))
        found.append(talk_time(said.filter(of), key, tag, single))
        found.append(pleasing(said.filter(of), opinions.filter(of), key, tag))
        read = coding(said.filter(of), key, tag)
        found += [read] if read else []
    if len(stimuli) > 1:
        found.insert(0, _concepts(opinions, stimuli))
    return found


def _intent(run: RunFolder, stimulus: str, key: str, tag: str) -> list[Finding]:
    if not run.has_table("intents"):
        return []
    table = run.table("intents").filter(pl.col("stimulus") == stimulus)
    known = table.filter(pl.col("answer").is_not_null())
    if known.is_empty():
        return []
    counts = {o: known.filter(pl.col("answer") == o).height for o in INTENTS}
    likely = counts[INTENTS[3]] + counts[INTENTS[4]]
    share = wilson(likely, known.height)
    groups = known["group"].n_unique()
    low, high = share.low, share.high
    if groups > 1:
        share = clustered_mean(
            (known["score"] >= 4).cast(pl.Float64).to_numpy(), known["group"].to_list()
        )
        # With few groups the t interval can reach past what a share can be.
        low, high = max(0.0, share.low), min(1.0, share.high)
    return [
        Finding(
            key=f"purchase_intent{key}",
            title=f"Would they buy it?{tag}",
            says=f"{share.value:.0%} would definitely or probably buy it "
            f"({low:.0%} to {high:.0%}), asked in private after the talk; "
            f"{known.height} people in {_groups(groups)}.",
            grid=Grid.of(
                [
                    {"answer": o, "people": n, "people_share": n / known.height}
                    for o, n in counts.items()
                ]
            ),
            chart=Bars(tuple((o, "people", float(n)) for o, n in counts.items()), unit="people"),
            notes=("Stated intent runs ahead of what people buy; read it as a comparison.",),
            section="Purchase intent",
            headline=True,
        )
    ]


def _moved(opinions: pl.DataFrame, key: str, tag: str, single: bool) -> Finding:
    paths = path_of(opinions)
    change = paired_difference(
        paths["after"].to_numpy(), paths["before"].to_numpy(), paths["group"].to_list()
    )
    movers = paths.filter((pl.col("after") - pl.col("before")).abs() >= 0.1).height
    toward = "warmer towards it" if change.value > 0 else "cooler towards it"
    span = (
        f" ({change.low:+.2f} to {change.high:+.2f}, groups as units)"
        if change.has_interval
        else ""
    )
    says = (
        f"{movers} of {paths.height} people ended somewhere else than they began; on average the "
        f"position moved {change.value:+.2f}{span} on a scale from −1 to 1"
        + (f", {toward}." if abs(change.value) >= 0.01 else ".")
    )
    if single:
        rows = [
            {"person": r["name"], "before": r["before"], "after": r["after"], "shifts": r["shifts"]}
            for r in paths.iter_rows(named=True)
        ]
        lines = Lines(
            tuple(
                (str(r["name"]), float(r["turn"]), float(r["valence"])) for r in _carried(opinions)
            ),
            x="turn",
            y="position (−1 against, 1 in favor)",
        )
    else:
        per_group = paths.group_by("group", maintain_order=True).agg(
            pl.col("before").mean(), pl.col("after").mean(), pl.col("shifts").sum()
        )
        rows = per_group.rename({"before": "mean before", "after": "mean after"}).to_dicts()
        lines = Lines(
            tuple((group, float(q), v) for group, q, v in _by_question(opinions)),
            x="question",
            y="mean position of the group",
        )
    return Finding(
        key=f"positions{key}",
        title=f"What moved?{tag}",
        says=says,
        grid=Grid.of(rows),
        chart=lines,
        section="Positions",
        headline=True,
    )


def _carried(opinions: pl.DataFrame) -> list[dict[str, Any]]:
    """Each person's positions, the last one carried to the last turn of the talk."""
    last = int(opinions["turn"].max() or 0)  # type: ignore[arg-type]
    rows = opinions.sort("turn", maintain_order=True).select("name", "turn", "valence").to_dicts()
    ends = {r["name"]: r["valence"] for r in rows}
    return rows + [{"name": n, "turn": last, "valence": v} for n, v in ends.items()]


def _by_question(opinions: pl.DataFrame) -> list[tuple[str, int, float]]:
    """Mean position of each group after each question (20 groups at most)."""
    out: list[tuple[str, int, float]] = []
    for group in opinions["group"].unique(maintain_order=True).to_list()[:20]:
        rows = opinions.filter(pl.col("group") == group).to_dicts()
        now: dict[str, float] = {}
        means: dict[int, float] = {}
        for r in rows:
            now[r["persona_id"]] = r["valence"]
            means[r["question"]] = sum(now.values()) / len(now)
        out += [(group, q, round(v, 4)) for q, v in means.items()]
    return out


def _objections(run: RunFolder, stimulus: str, key: str, tag: str) -> list[Finding]:
    if not run.has_table("objections"):
        return []
    table = run.table("objections").filter(pl.col("stimulus") == stimulus)
    if table.is_empty():
        return []
    everyone = run.table("personas").height
    groups = run.table("personas")["group"].n_unique()
    rows = []
    for (theme,), part in table.group_by(["theme"], maintain_order=True):
        people = part.select("group", "persona_id").unique().height
        first = part.row(0, named=True)
        rows.append(
            {
                "objection": theme,
                "people": people,
                "people_share": people / everyone,
                "groups": part["group"].n_unique(),
                "for example": f"“{first['quote']}” ({first['name']}, {first['group']} "
                f"turn {first['turn']})",
            }
        )
    rows.sort(key=lambda r: (-int(r["people"]), str(r["objection"])))
    top = rows[0]
    return [
        Finding(
            key=f"objections{key}",
            title=f"What do they object to?{tag}",
            says=f"Most often {top['objection']}: {top['people']} of {everyone} people, in "
            f"{top['groups']} of {groups} {'group' if groups == 1 else 'groups'}. "
            "The quotes with their turns are in topline.md.",
            grid=Grid.of(rows),
            chart=Bars(
                tuple((str(r["objection"]), "people", float(r["people"])) for r in rows),
                unit="people",
            ),
            notes=("Found by cue words in English; read the quotes.",),
            section="Objections",
            headline=True,
        )
    ]


def _concepts(opinions: pl.DataFrame, stimuli: Sequence[str]) -> Finding:
    """The same recruits on several concepts: final positions, and differences to the first."""
    paths = path_of(opinions)
    base = paths.filter(pl.col("stimulus") == stimuli[0])
    rows, items = [], []
    for stimulus in stimuli:
        own = paths.filter(pl.col("stimulus") == stimulus)
        mean = clustered_mean(own["after"].to_numpy(), own["group"].to_list())
        row: dict[str, Any] = {"concept": stimulus, "mean position": mean.value}
        if stimulus != stimuli[0]:
            both = base.join(own, on=["group", "persona_id"], suffix="_own", maintain_order="left")
            gap = paired_difference(
                both["after_own"].to_numpy(), both["after"].to_numpy(), both["group"].to_list()
            )
            row |= {"difference": gap.value, "low": _or_none(gap.low), "high": _or_none(gap.high)}
            items.append((f"{stimulus} − {stimuli[0]}", gap.value, gap.low, gap.high))
        else:
            row |= {"difference": 0.0, "low": None, "high": None}
        rows.append(row)
    best = max(rows, key=lambda r: float(r["mean position"]))
    gaps = [i for i in items if best["concept"] == stimuli[0] or i[0].startswith(best["concept"])]
    clear = all(math.isfinite(low) and (low > 0 or high < 0) for _, _, low, high in gaps)
    certain = (
        "which is more than chance between groups"
        if clear
        else "but the differences are within what chance between groups allows"
    )
    if opinions["group"].n_unique() == 1:
        certain = "but one group cannot tell a difference from chance: add replications"
    return Finding(
        key="concepts",
        title="Which concept does better?",
        says=f"The same people end most in favor of {best['concept']} (mean position "
        f"{best['mean position']:+.2f}), {certain}. Differences are within persons, intervals over "
        "groups.",
        grid=Grid.of(rows),
        chart=Intervals(tuple(items), unit="difference of final positions", zero=0.0)
        if all(math.isfinite(i[2]) for i in items)
        else None,
        section="Concept test",
        headline=True,
    )


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _groups(n: int) -> str:
    return "one group" if n == 1 else f"{n} groups"
