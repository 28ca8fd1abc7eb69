"""Findings on the talk itself: who replied to whom, who had the floor, who pleased whom."""

from __future__ import annotations

import polars as pl

from folkmoot.measures.inequality import gini
from folkmoot.measures.proportions import wilson
from folkmoot.records.findings import Bars, Finding, Grid, Heat, Intervals
from folkmoot.studies.focus_group import sycophancy

TALK = ["group", "stimulus"]
PERSON = [*TALK, "persona_id"]


def path_of(opinions: pl.DataFrame) -> pl.DataFrame:
    """One row a person: first and last position."""
    return opinions.group_by(PERSON, maintain_order=True).agg(
        pl.col("name").first(),
        pl.col("valence").first().alias("before"),
        pl.col("valence").last().alias("after"),
        pl.col("changed").sum().alias("shifts"),
    )


def who_to_whom(said: pl.DataFrame, key: str, tag: str) -> Finding:
    names = dict(said.select("speaker_id", "name").unique(maintain_order=True).rows())
    replies = said.filter((pl.col("role") == "participant") & pl.col("replied_to").is_not_null())
    counts: dict[tuple[str, str], int] = {}
    for a, b in replies.select("speaker_id", "replied_to").rows():
        counts[names[a], names.get(b, b)] = counts.get((names[a], names.get(b, b)), 0) + 1
    people = [n for i, n in names.items() if i != "moderator"]
    among = sum(n for (_, b), n in counts.items() if b != "Moderator")
    answers = said.filter(pl.col("role") == "participant").height
    cells = tuple((a, b, float(counts.get((a, b), 0))) for a in people for b in people if a != b)
    return Finding(
        key=f"replies{key}",
        title=f"Who replied to whom?{tag}",
        says=f"{among} of {answers} answers take up what another participant said.",
        grid=Grid.of([{"who": a, "to": b, "times": n} for (a, b), n in counts.items()]),
        chart=Heat(cells, row="who", column="to whom", unit="replies"),
        section="Conversation",
    )


def talk_time(said: pl.DataFrame, key: str, tag: str, single: bool) -> Finding:
    words = said.group_by([*TALK, "speaker_id"], maintain_order=True).agg(
        pl.col("name").first(), pl.col("words").sum(), pl.len().alias("messages")
    )
    total = int(words["words"].sum())
    people = words.filter(pl.col("speaker_id") != "moderator")
    moderator = total - int(people["words"].sum())
    each = [
        gini(part["words"].to_numpy()) for _, part in people.group_by(TALK, maintain_order=True)
    ]
    mean_gini = sum(each) / len(each)
    says = (
        f"The moderator has {moderator / total:.0%} of the words; among participants the Gini "
        f"coefficient of words is {mean_gini:.2f}{'' if single else ' on average'} (0: all the "
        "same)."
    )
    if single:
        rows = [
            {
                "who": r["name"],
                "words": r["words"],
                "words_share": r["words"] / total,
                "messages": r["messages"],
            }
            for r in words.sort("words", descending=True, maintain_order=True).iter_rows(named=True)
        ]
        chart = Bars(tuple((str(r["who"]), "words", float(r["words"])) for r in rows), unit="words")
    else:
        talks = list(dict.fromkeys(people.select(TALK).rows()))
        rows = [
            {"group": g, "gini of words": round(v, 3)}
            for (g, _), v in zip(talks, each, strict=True)
        ]
        chart = Bars(
            tuple((str(r["group"]), "Gini", float(r["gini of words"])) for r in rows[:40]),
            unit="Gini of words",
        )
    return Finding(
        key=f"talk_time{key}",
        title=f"Who had the floor?{tag}",
        says=says,
        grid=Grid.of(rows),
        chart=chart,
        section="Conversation",
    )


def pleasing(said: pl.DataFrame, opinions: pl.DataFrame, key: str, tag: str) -> Finding:
    answers = [
        sycophancy.Answered(
            f"{r['group']}/{r['stimulus']}/{r['question']}", r["position"], r["stance"]
        )
        for r in said.iter_rows(named=True)
        if r["role"] == "participant" and not r["probe"]
    ]
    paths = path_of(opinions)
    parts = [part for _, part in paths.group_by(TALK, maintain_order=True)]
    check = sycophancy.check(
        answers, [p["before"].to_list() for p in parts], [p["after"].to_list() for p in parts]
    )
    places = sorted({a.position for a in answers if a.position > 1})
    rows, items = [], []
    for place in places:
        at = [a for a in answers if a.position == place]
        agree = wilson(sum(a.stance == "agree" for a in at), len(at))
        disagree = wilson(sum(a.stance == "disagree" for a in at), len(at))
        rows.append(
            {
                "place in order": place,
                "answers": len(at),
                "agree_share": agree.value,
                "disagree_share": disagree.value,
            }
        )
        items.append((f"agree, place {place}", agree.value, agree.low, agree.high))
        items.append((f"disagree, place {place}", disagree.value, disagree.low, disagree.high))
    return Finding(
        key=f"sycophancy{key}",
        title=f"Did they only please each other?{tag}",
        says=check.reading(),
        grid=Grid.of(rows, caption="Answers that take up others, by place in the order"),
        chart=Intervals(tuple(items), unit="share of the answers", percent=True),
        notes=(
            "Agreement and disagreement are read from cue words. Convergence is compared with the "
            "same shifts dealt out at random among the people of a group.",
        ),
        section="Conversation",
    )
