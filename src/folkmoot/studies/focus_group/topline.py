"""The topline as data: intent, what moved, objections with quotes, what holds across groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.proportions import wilson
from folkmoot.studies.focus_group import balance, objections, personality, sycophancy
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    DiscussionMessage,
    DiscussionTranscript,
)
from folkmoot.studies.focus_group.transcript import final_positions, title_of

QUOTES = 3


def topline(transcripts: Sequence[DiscussionTranscript], pages: dict[str, str]) -> dict[str, Any]:
    """All of it as JSON, concept by concept. `pages`: "group/stimulus" → HTML transcript."""
    stimuli = list(dict.fromkeys(t.stimulus for t in transcripts))
    return {
        "concepts": [_concept([t for t in transcripts if t.stimulus == s], pages) for s in stimuli]
    }


def _concept(group: Sequence[DiscussionTranscript], pages: dict[str, str]) -> dict[str, Any]:
    first = group[0]
    found = {
        "stimulus": first.stimulus,
        "product_concept": first.config.product_concept,
        "groups": len(group),
        "participants": sum(len(t.personas) for t in group),
        "purchase_intent": _intent(group),
        "positions": _positions(group),
        "objections": _objections(group, pages),
        "sycophancy": sycophancy.of(group).reading(),
    }
    if len(group) == 1:
        found["who_said_what"] = _voices(first, pages)
    else:
        found["across_groups"] = _across(group)
    return found


def _intent(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    given = [(t.group, i.answer) for t in group for i in t.intents if i.answer is not None]
    answers = [answer for _, answer in given]
    counts = Counter(answers)
    likely = sum(counts[o] for o in INTENTS[3:])
    out: dict[str, Any] = {"counts": {o: counts[o] for o in INTENTS}, "answered": len(answers)}
    if answers:
        share = wilson(likely, len(answers))
        if len(group) > 1:  # people of one group heard each other: groups are the units
            buys = [float(answer in INTENTS[3:]) for answer in answers]
            share = clustered_mean(buys, [g for g, _ in given])
        ends = (max(0.0, share.low), min(1.0, share.high))
        out |= {
            "would_buy_share": round(share.value, 4),
            "interval": [round(x, 4) for x in ends] if math.isfinite(share.low) else None,
        }
    return out


def _positions(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    moved, start, end = [], [], []
    for t in group:
        last = final_positions(t)
        for p in t.personas:
            before = p.opinion.valence if p.opinion else 0.0
            start.append(before)
            end.append(last[p.id])
            if abs(last[p.id] - before) >= 0.1:
                moved.append(
                    {
                        "group": t.group,
                        "name": title_of(p),
                        "from": before,
                        "to": last[p.id],
                        "turns": [
                            m.turn_number
                            for m in t.by_participants()
                            if m.speaker_id == p.id and m.changed_mind
                        ],
                    }
                )
    return {
        "mean_before": round(fmean(start), 3),
        "mean_after": round(fmean(end), 3),
        "people_who_moved": len(moved),
        "people": len(start),
        "moved": moved if len(group) == 1 else [],
    }


def _objections(
    group: Sequence[DiscussionTranscript], pages: dict[str, str]
) -> list[dict[str, Any]]:
    """Themes by the number of people who raised them, with quotes and where they stand."""
    people: dict[str, set[tuple[str, str]]] = {}
    groups: dict[str, set[str]] = {}
    quotes: dict[str, list[dict[str, Any]]] = {}
    for t in group:
        names = {p.id: title_of(p) for p in t.personas}
        page = pages[f"{t.group}/{t.stimulus}"]
        for o in objections.in_transcript(t):
            key = (t.group, o.persona_id)
            seen = people.get(o.theme, set())
            fresh = key not in seen and (len(group) == 1 or t.group not in {g for g, _ in seen})
            people.setdefault(o.theme, set()).add(key)
            groups.setdefault(o.theme, set()).add(t.group)
            kept = quotes.setdefault(o.theme, [])
            if fresh and len(kept) < QUOTES and o.quote not in {q["quote"] for q in kept}:
                kept.append(
                    {
                        "quote": o.quote,
                        "who": names[o.persona_id],
                        "group": t.group,
                        "turn": o.turn,
                        "link": f"{page}#turn-{o.turn}",
                    }
                )
    ranked = sorted(people, key=lambda theme: (-len(people[theme]), theme))
    return [
        {
            "theme": theme,
            "people": len(people[theme]),
            "groups": len(groups[theme]),
            "quotes": quotes[theme],
        }
        for theme in ranked
    ]


def _voices(t: DiscussionTranscript, pages: dict[str, str]) -> list[dict[str, Any]]:
    """For each person: position at start and end, share of the words, and a line that sums up."""
    shares, last = balance.of(t), final_positions(t)
    total = sum(shares.words.values()) or 1
    intents = {i.persona_id: i.answer for i in t.intents}
    page = pages[f"{t.group}/{t.stimulus}"]
    out = []
    for p in t.personas:
        own = [m for m in t.by_participants() if m.speaker_id == p.id and m.phase.value != "warmup"]
        telling = max(own, key=partial(_telling, last[p.id]), default=None)
        out.append(
            {
                "name": title_of(p),
                "began": personality.leaning(p.opinion.valence if p.opinion else 0.0),
                "ended": personality.leaning(last[p.id]),
                "share_of_words": round(shares.words[p.id] / total, 3),
                "purchase_intent": intents.get(p.id),
                "quote": telling.content if telling else None,
                "turn": telling.turn_number if telling else None,
                "link": f"{page}#turn-{telling.turn_number}" if telling else None,
            }
        )
    return out


def _telling(position: float, message: DiscussionMessage) -> float:
    """How well a message sums up somebody who stands here: its tone, on the side of a position."""
    tone = message.sentiment or 0.0
    return abs(tone) if abs(position) < 0.2 else math.copysign(1.0, position) * tone


def _across(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    """What holds across groups: in how many of them each thing came out the same way."""
    drift = []
    majority = 0
    for t in group:
        last = final_positions(t)
        start = fmean(p.opinion.valence if p.opinion else 0.0 for p in t.personas)
        drift.append(fmean(last.values()) - start)
        scores = [INTENTS.index(i.answer) for i in t.intents if i.answer is not None]
        majority += bool(scores) and sum(s >= 3 for s in scores) > len(scores) / 2
    return {
        "groups": len(group),
        "mean_shift_per_group": [round(d, 3) for d in drift],
        "groups_that_warmed": sum(d > 0.02 for d in drift),
        "groups_that_cooled": sum(d < -0.02 for d in drift),
        "groups_where_most_would_buy": majority,
    }
