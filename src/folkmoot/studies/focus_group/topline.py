"""The topline as data: intent, what moved, objections with quotes, what holds across groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from folkmoot.kit.findings import clustered_share
from folkmoot.studies.focus_group import sycophancy
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    DiscussionMessage,
    DiscussionTranscript,
)
from folkmoot.studies.focus_group.participants import leaning, title_of
from folkmoot.studies.focus_group.reading import SMALLEST_SHIFT, objections

QUOTES = 3
WOULD_BUY = INTENTS[3:]


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
    counts = Counter(answer for _, answer in given)
    out: dict[str, Any] = {"counts": {o: counts[o] for o in INTENTS}, "answered": len(given)}
    if given:
        # People of one group heard each other, so groups are the units.
        share = clustered_share([a in WOULD_BUY for _, a in given], [g for g, _ in given])
        out |= {
            "would_buy_share": round(share.value, 4),
            "interval": [round(share.low, 4), round(share.high, 4)] if share.has_interval else None,
        }
    return out


def _positions(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    start = [v for t in group for v in t.first_positions().values()]
    end = [v for t in group for v in t.final_positions().values()]
    moved = [m for t in group for m in _moved(t)]
    return {
        "mean_before": round(fmean(start), 3),
        "mean_after": round(fmean(end), 3),
        "people_who_moved": len(moved),
        "people": len(start),
        "moved": moved if len(group) == 1 else [],
    }


def _moved(t: DiscussionTranscript) -> list[dict[str, Any]]:
    """Those whose position changed, and the turns that moved them."""
    first, last = t.first_positions(), t.final_positions()
    return [
        {
            "group": t.group,
            "name": title_of(p),
            "from": first[p.id],
            "to": last[p.id],
            "turns": [
                m.turn_number
                for m in t.by_participants()
                if m.speaker_id == p.id and m.changed_mind
            ],
        }
        for p in t.personas
        if abs(last[p.id] - first[p.id]) >= SMALLEST_SHIFT
    ]


def _objections(
    group: Sequence[DiscussionTranscript], pages: dict[str, str]
) -> list[dict[str, Any]]:
    """Themes by the number of people who raised them, with quotes and where they stand.

    Of one group each quote is another person's, of several groups another group's.
    """
    people: dict[str, set[tuple[str, str]]] = {}
    quotes: dict[str, dict[str, dict[str, Any]]] = {}
    for t in group:
        names = {p.id: title_of(p) for p in t.personas}
        page = pages[f"{t.group}/{t.stimulus}"]
        for o in objections(t):
            seen, kept = people.setdefault(o.theme, set()), quotes.setdefault(o.theme, {})
            heard = {who for g, who in seen if g == t.group}
            fresh = o.persona_id not in heard if len(group) == 1 else not heard
            seen.add((t.group, o.persona_id))
            if fresh and len(kept) < QUOTES and o.quote not in kept:
                kept[o.quote] = {
                    "quote": o.quote,
                    "who": names[o.persona_id],
                    "group": t.group,
                    "turn": o.turn,
                    "link": f"{page}#turn-{o.turn}",
                }
    return [
        {
            "theme": theme,
            "people": len(people[theme]),
            "groups": len({g for g, _ in people[theme]}),
            "quotes": list(quotes[theme].values()),
        }
        for theme in sorted(people, key=lambda theme: (-len(people[theme]), theme))
    ]


def _voices(t: DiscussionTranscript, pages: dict[str, str]) -> list[dict[str, Any]]:
    """For each person: position at start and end, share of the words, and a line that sums up."""
    first, last = t.first_positions(), t.final_positions()
    intents = {i.persona_id: i.answer for i in t.intents}
    page = pages[f"{t.group}/{t.stimulus}"]
    total = sum(m.words for m in t.by_participants()) or 1
    out = []
    for p in t.personas:
        own = [m for m in t.by_participants() if m.speaker_id == p.id]
        later = [m for m in own if m.phase is not DiscussionPhase.WARMUP]
        telling = max(later, key=partial(_telling, last[p.id]), default=None)
        out.append(
            {
                "name": title_of(p),
                "began": leaning(first[p.id]),
                "ended": leaning(last[p.id]),
                "share_of_words": round(sum(m.words for m in own) / total, 3),
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
    drift, majority = [], 0
    for t in group:
        drift.append(fmean(t.final_positions().values()) - fmean(t.first_positions().values()))
        answers = [i.answer for i in t.intents if i.answer is not None]
        majority += 2 * sum(answer in WOULD_BUY for answer in answers) > len(answers)
    return {
        "groups": len(group),
        "mean_shift_per_group": [round(d, 3) for d in drift],
        "groups_that_warmed": sum(d > 0.02 for d in drift),
        "groups_that_cooled": sum(d < -0.02 for d in drift),
        "groups_where_most_would_buy": majority,
    }
