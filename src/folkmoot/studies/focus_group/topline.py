"""The topline as data: intent, what moved, what people object to, need and talk about with their
quotes, what holds across groups."""

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
    When,
)
from folkmoot.studies.focus_group.participants import leaning, title_of
from folkmoot.studies.focus_group.reading import SMALLEST_SHIFT
from folkmoot.studies.focus_group.remarks import Codes, answer_id, kind_and_name

QUOTES = 3
WOULD_BUY = INTENTS[3:]


def topline(
    transcripts: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, Any]:
    """All of it as JSON, concept by concept. `pages`: "group/stimulus" → HTML transcript."""
    stimuli = list(dict.fromkeys(t.stimulus for t in transcripts))
    return {
        "concepts": [
            _concept([t for t in transcripts if t.stimulus == s], pages, codes) for s in stimuli
        ]
    }


def _concept(
    group: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, Any]:
    first = group[0]
    found = {
        "stimulus": first.stimulus,
        "product_concept": first.config.product_concept,
        "groups": len(group),
        "participants": sum(len(t.personas) for t in group),
        "purchase_intent": _intent(group),
        "positions": _positions(group),
        "coded": bool(codes),
        **_remarks(group, pages, codes),
        "sycophancy": sycophancy.of(group).reading(),
    }
    if len(group) == 1:
        found["who_said_what"] = _voices(first, pages)
    else:
        found["across_groups"] = _across(group)
    return found


def _intent(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    given = [(t.group, answer) for t in group for answer in t.would_buy(When.AFTER).values()]
    before = [answer for t in group for answer in t.would_buy(When.BEFORE).values()]
    counts = Counter(answer for _, answer in given)
    out: dict[str, Any] = {
        "price": group[0].config.price,
        "counts": {o: counts[o] for o in INTENTS},
        "answered": len(given),
        "would_buy_share_before": _share(before),
    }
    if given:
        # People of one group heard each other, so groups are the units.
        share = clustered_share([a in WOULD_BUY for _, a in given], [g for g, _ in given])
        out |= {
            "would_buy_share": round(share.value, 4),
            "interval": [round(share.low, 4), round(share.high, 4)] if share.has_interval else None,
        }
    return out


def _share(answers: Sequence[str]) -> float | None:
    return round(fmean(a in WOULD_BUY for a in answers), 4) if answers else None


def _positions(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    both = [pair for t in group for pair in t.moved().values()]
    moved = [m for t in group for m in _moved(t)]
    return {
        "planted": any(s.planted for t in group for s in t.statements),
        "mean_before": round(fmean(b for b, _ in both), 3) if both else None,
        "mean_after": round(fmean(a for _, a in both), 3) if both else None,
        "people_who_moved": len(moved),
        "people": len(both),
        "moved": moved if len(group) == 1 else [],
    }


def _moved(t: DiscussionTranscript) -> list[dict[str, Any]]:
    """Those whose position changed, and the turns in which a coder read a change."""
    people = {p.id: p for p in t.personas}
    return [
        {
            "group": t.group,
            "name": title_of(people[who]),
            "from": before,
            "to": after,
            "turns": [
                m.turn_number for m in t.by_participants() if m.speaker_id == who and m.changed_mind
            ],
        }
        for who, (before, after) in t.moved().items()
        if abs(after - before) >= SMALLEST_SHIFT
    ]


def _remarks(
    group: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, list[dict[str, Any]]]:
    """Objections, needs and themes by the number of people who raised them, with quotes and where
    they stand. Of one group each quote is another person's, of several groups another group's.
    """
    people: dict[str, set[tuple[str, str]]] = {}
    quotes: dict[str, dict[str, dict[str, Any]]] = {}
    for t in group:
        names = {p.id: title_of(p) for p in t.personas}
        page = pages[f"{t.group}/{t.stimulus}"]
        for m in t.by_participants():
            for found in codes.get(answer_id(t, m), ()):
                seen, kept = people.setdefault(found.code, set()), quotes.setdefault(found.code, {})
                heard = {who for g, who in seen if g == t.group}
                fresh = m.speaker_id not in heard if len(group) == 1 else not heard
                seen.add((t.group, m.speaker_id))
                if fresh and len(kept) < QUOTES and found.quote not in kept:
                    kept[found.quote] = {
                        "quote": found.quote,
                        "who": names[m.speaker_id],
                        "group": t.group,
                        "turn": m.turn_number,
                        "link": f"{page}#turn-{m.turn_number}",
                    }
    found_of: dict[str, list[dict[str, Any]]] = {"objections": [], "needs": [], "themes": []}
    for code in sorted(people, key=lambda code: (-len(people[code]), code)):
        kind, name = kind_and_name(code)
        found_of[f"{kind}s"].append(
            {
                "theme": name,
                "people": len(people[code]),
                "groups": len({g for g, _ in people[code]}),
                "quotes": list(quotes[code].values()),
            }
        )
    return found_of


def _voices(t: DiscussionTranscript, pages: dict[str, str]) -> list[dict[str, Any]]:
    """For each person: position at start and end, share of the words, and a line that sums up."""
    first, last = t.positions(When.BEFORE), t.positions(When.AFTER)
    intents = t.would_buy(When.AFTER)
    page = pages[f"{t.group}/{t.stimulus}"]
    total = sum(m.words for m in t.by_participants()) or 1
    out = []
    for p in t.personas:
        own = [m for m in t.by_participants() if m.speaker_id == p.id]
        later = [m for m in own if m.phase is not DiscussionPhase.WARMUP]
        telling = max(later, key=partial(_telling, last.get(p.id, 0.0)), default=None)
        out.append(
            {
                "name": title_of(p),
                "began": _leaning(first.get(p.id)),
                "ended": _leaning(last.get(p.id)),
                "share_of_words": round(sum(m.words for m in own) / total, 3),
                "purchase_intent": intents.get(p.id),
                "quote": telling.content if telling else None,
                "turn": telling.turn_number if telling else None,
                "link": f"{page}#turn-{telling.turn_number}" if telling else None,
            }
        )
    return out


def _leaning(position: float | None) -> str:
    return "of unknown opinion" if position is None else leaning(position)


def _telling(position: float, message: DiscussionMessage) -> float:
    """How well a message sums up somebody who stands here: its tone, on the side of a position."""
    tone = message.sentiment or 0.0
    return abs(tone) if abs(position) < 0.2 else math.copysign(1.0, position) * tone


def _across(group: Sequence[DiscussionTranscript]) -> dict[str, Any]:
    """What holds across groups: in how many of them each thing came out the same way."""
    drift, majority = [], 0
    for t in group:
        both = t.moved().values()
        drift += [fmean(a - b for b, a in both)] if both else []
        answers = list(t.would_buy(When.AFTER).values())
        majority += 2 * sum(answer in WOULD_BUY for answer in answers) > len(answers)
    return {
        "groups": len(group),
        "mean_shift_per_group": [round(d, 3) for d in drift],
        "groups_that_warmed": sum(d > 0.02 for d in drift),
        "groups_that_cooled": sum(d < -0.02 for d in drift),
        "groups_where_most_would_buy": majority,
    }
