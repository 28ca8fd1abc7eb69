"""The topline: purchase intent, what moved, objections with quotes, what holds across groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from folkmoot.measures.proportions import wilson
from folkmoot.studies.focus_group import balance, objections, personality, sycophancy
from folkmoot.studies.focus_group.discussion import INTENTS, DiscussionTranscript
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
    answers = [i.answer for t in group for i in t.intents if i.answer is not None]
    counts = Counter(answers)
    likely = sum(counts[o] for o in INTENTS[3:])
    out: dict[str, Any] = {"counts": {o: counts[o] for o in INTENTS}, "answered": len(answers)}
    if answers:
        share = wilson(likely, len(answers))
        out |= {
            "would_buy_share": round(share.value, 4),
            "interval": [round(share.low, 4), round(share.high, 4)],
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
            if fresh and len(kept) < QUOTES:
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
        telling = max(own, key=lambda m: abs(m.sentiment or 0.0), default=None)
        out.append(
            {
                "name": title_of(p),
                "began": personality.leaning(p.opinion.valence if p.opinion else 0.0),
                "ended": personality.leaning(last[p.id]),
                "share_of_words": round(shares.words[p.id] / total, 3),
                "purchase_intent": intents.get(p.id),
                "quote": telling.content if telling else None,
                "link": f"{page}#turn-{telling.turn_number}" if telling else None,
            }
        )
    return out


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


def to_markdown(data: dict[str, Any], mark: str = "") -> str:
    """The topline for readers."""
    lines = ["# Topline", ""]
    lines += [f"*{mark}*", ""] if mark else []
    for concept in data["concepts"]:
        lines += _concept_markdown(concept)
    return "\n".join(lines).rstrip() + "\n"


def _concept_markdown(c: dict[str, Any]) -> list[str]:
    where = f"{c['participants']} people" + (
        f" in {c['groups']} groups" if c["groups"] > 1 else " in one group"
    )
    lines = [f"## {c['product_concept']}", "", f"{where}.", "", "### Would they buy it?", ""]
    intent = c["purchase_intent"]
    if intent["answered"]:
        low, high = intent["interval"]
        lines += [
            f"**{intent['would_buy_share']:.0%}** would definitely or probably buy it "
            f"({low:.0%}–{high:.0%}, n = {intent['answered']}, asked in private at the end).",
            "",
            "| Answer | People |",
            "|---|---:|",
            *(f"| {o} | {n} |" for o, n in intent["counts"].items()),
            "",
        ]
    lines += _moved_markdown(c) + _objections_markdown(c) + _across_markdown(c)
    lines += ["### Did they only please each other?", "", c["sycophancy"], ""]
    return lines + _voices_markdown(c)


def _moved_markdown(c: dict[str, Any]) -> list[str]:
    p = c["positions"]
    lines = [
        "### What moved?",
        "",
        f"The mean position went from {p['mean_before']:+.2f} to {p['mean_after']:+.2f} on a scale "
        f"from −1 to 1; {p['people_who_moved']} of {p['people']} people ended somewhere else than "
        "they began.",
        "",
    ]
    for m in p["moved"]:
        turns = ", ".join(str(t) for t in m["turns"])
        lines.append(f"- {m['name']}: {m['from']:+.2f} → {m['to']:+.2f} (turn {turns})")
    return [*lines, ""] if p["moved"] else lines


def _objections_markdown(c: dict[str, Any]) -> list[str]:
    if not c["objections"]:
        return ["### Objections", "", "None were found.", ""]
    lines = ["### Objections", ""]
    for o in c["objections"]:
        people = f"{o['people']} {'person' if o['people'] == 1 else 'people'}"
        in_groups = f" in {o['groups']} of {c['groups']} groups" if c["groups"] > 1 else ""
        lines += [f"**{o['theme'].capitalize()}** ({people}{in_groups})", ""]
        lines += [
            f"- “{q['quote']}” ({q['who']}, [turn {q['turn']}]({q['link']}))" for q in o["quotes"]
        ]
        lines.append("")
    return lines


def _across_markdown(c: dict[str, Any]) -> list[str]:
    a = c.get("across_groups")
    if not a:
        return []
    n = a["groups"]
    return [
        "### What holds across groups?",
        "",
        f"- In {a['groups_where_most_would_buy']} of {n} groups most would buy it.",
        f"- {a['groups_that_warmed']} groups warmed to it in the course of the talk, "
        f"{a['groups_that_cooled']} cooled.",
        *(
            f"- Objections about {o['theme']} came up in {o['groups']} of {n} groups."
            for o in c["objections"][:4]
        ),
        "",
    ]


def _voices_markdown(c: dict[str, Any]) -> list[str]:
    voices = c.get("who_said_what")
    if not voices:
        return []
    lines = ["### Who said what?", ""]
    for v in voices:
        path = v["began"] if v["began"] == v["ended"] else f"{v['began']} → {v['ended']}"
        said = f" “{v['quote']}” ([turn]({v['link']}))" if v["quote"] else ""
        lines.append(
            f"- **{v['name']}**, {path}; {v['share_of_words']:.0%} of the words; "
            f"{(v['purchase_intent'] or 'no answer').lower()}.{said}"
        )
    return [*lines, ""]
