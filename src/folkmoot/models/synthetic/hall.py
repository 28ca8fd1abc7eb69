"""Fields of those who serve a town hall: moderator, planner, the final consensus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from folkmoot.models.synthetic.concerns import BY_KEY, raised_in
from folkmoot.models.synthetic.grammar import capital, listed
from folkmoot.models.synthetic.lexicon import VERB_PHRASES, phrases_in
from folkmoot.models.synthetic.mind import Mind, gist, side_of
from folkmoot.models.synthetic.roster import ids_in, items

Around = Mapping[str, Any]
_QUIET = re.compile(
    r"nothing or next to nothing[^:\n]*:\s*([^\n]+)|quiet[^:\n]{0,40}:\s*([^\n]+)", re.I
)
_MOST = re.compile(r"at most (\d+) items", re.IGNORECASE)
_PASSED = re.compile(r"\(\s*(?:passed|adopted|accepted)\b", re.IGNORECASE)


def agenda(mind: Mind, most: int = 6) -> list[dict[str, Any]]:
    """Matters to decide, most raised first, each with those who raised it."""
    by: dict[str, list[str]] = {}
    for who, text in mind.history:
        for concern in raised_in(text):
            if who not in by.setdefault(concern.key, []):
                by[concern.key].append(who)
    if by:
        ranked = sorted(by.items(), key=lambda kv: (-len(kv[1]), kv[0]))
        return [
            {"wording": BY_KEY[k].item, "from": who, "noun": BY_KEY[k].noun} for k, who in ranked
        ][:most]
    return _agenda_of_arguments(mind, most)


def _agenda_of_arguments(mind: Mind, most: int) -> list[dict[str, Any]]:
    """On a matter that is no local plan: the arguments heard, as proposals."""
    by: dict[str, list[str]] = {}
    for who, text in mind.history:
        for phrase, _ in phrases_in(text):
            if phrase not in VERB_PHRASES and who not in by.setdefault(phrase, []):
                by[phrase].append(who)
    ranked = sorted(by.items(), key=lambda kv: (-len(kv[1]), kv[0]))[:most]
    return [{"wording": f"Put {p} first", "from": who, "noun": p} for p, who in ranked]


def planned(mind: Mind) -> list[dict[str, Any]]:
    found = _MOST.search(mind.text)
    most = min(int(found[1]) if found else 6, 8)
    # Those few who raise a matter alone are heard as well: the rarest matter has a seat.
    ranked = agenda(mind, 50)
    kept = ranked if len(ranked) <= most else [*ranked[: most - 1], ranked[-1]]
    return kept or [
        {"wording": "Hold a further meeting before deciding", "from": [], "noun": "time"}
    ]


def proposal(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    return _entry(around).get("wording", "Hold a further meeting before deciding")


def proposal_reason(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    entry = _entry(around)
    who = entry.get("from", [])
    if not who:
        return "Several residents wished for more time."
    verb = "spoke" if len(who) > 1 else "alone spoke"
    return f"{listed(who[:5])}{' and others' if len(who) > 5 else ''} {verb} of {entry['noun']}."


def origin(mind: Mind, around: Around) -> list[str]:
    return [str(w) for w in _entry(around).get("from", [])]


def _entry(around: Around) -> Mapping[str, Any]:
    entry = around.get("#entry")
    return entry if isinstance(entry, Mapping) else {}


def overview(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    """Where a discussion stands, in a few sentences."""
    plan = agenda(mind, 4)
    if not plan:
        return "The discussion went in several directions, and no single matter stood out."
    parts = [f"{p['noun']} ({listed(p['from'][:3])})" for p in plan[:3]]
    sides = [side_of(t) for _, t in mind.history if t]
    pro, con = sum(s > 0.2 for s in sides), sum(s < -0.2 for s in sides)
    lean = "lean towards the plan" if pro > con else "lean against the plan"
    balance = f"More of the statements {lean} ({max(pro, con)} to {min(pro, con)})."
    frame = mind.tongue.frame(
        ("Most was said on {X}.", "The talk was above all of {X}.", "{X} took up most of the talk.")
    )
    return f"{capital(frame.format(X=listed(parts)))} {balance}"


def quiet(mind: Mind) -> list[str]:
    """Ids that the text calls quiet, at most four."""
    found = _QUIET.search(mind.text)
    return list(ids_in(found[1] or found[2] or ""))[:4] if found else []


def lonely_matters(mind: Mind) -> list[dict[str, Any]]:
    """Matters that one or two people raised and nobody took up, the rarest first."""
    rare = [p for p in agenda(mind, 50) if len(p["from"]) <= 2]
    return [
        {"id": p["from"][0], "noun": p["noun"], "wording": p["wording"]} for p in reversed(rare)
    ][:3]


def underrepresented(mind: Mind) -> list[str]:
    return [capital(f"{m['noun']}, which only {m['id']} brought up") for m in lonely_matters(mind)]


def resident(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    entry = _entry(around)
    heard = sorted(mind.heard)
    return entry.get("id") or (mind.draws.pick(heard) if heard else "all")


def concern(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    entry = _entry(around)
    return capital(str(entry.get("noun") or gist(str(entry.get("text", ""))) or "being heard"))


def spoken(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    """The moderator's words to the hall, made of the fields before."""
    parts = ["Thank you all.", str(around.get("summary") or overview(mind, schema, around))]
    for matter in lonely_matters(mind)[:2]:
        parts.append(
            mind.tongue.frame(
                (
                    "{T} spoke of {X}, and nobody has answered yet.",
                    "I would like us to come back to what {T} said on {X}.",
                    "Let us not lose sight of {X}, which {T} brought up.",
                )
            ).format(T=matter["id"], X=matter["noun"])
        )
    calm = quiet(mind)
    if calm:
        parts.append(f"{listed(calm)}, we have heard little from you: how do you see it?")
    return " ".join(parts)


def passed_items(mind: Mind) -> list[str]:
    """Wordings of the items that the text says were passed."""
    return [
        re.split(r"\s*\((?:passed|adopted|accepted)", wording)[0]
        for wording in items(mind.text).values()
        if _PASSED.search(wording)
    ]


def consensus(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    passed = [re.sub(r"\.$", "", p) for p in passed_items(mind)]
    if not passed:
        return (
            "The hall could not agree on any of the items put to it. It asks the planner to come "
            "back with changes, and to answer each resident who has spoken."
        )
    low = [p[:1].lower() + p[1:] for p in passed]
    first = f"The hall asks the city to {low[0]}."
    more = [f"It further asks to {p}." for p in low[1:]]
    failed = len(items(mind.text)) - len(passed)
    end = " One further item found no majority and is not part of this." if failed == 1 else ""
    if failed > 1:
        end = f" {failed} further items found no majority and are not part of this."
    return " ".join([first, *more]) + end


def taken_up(mind: Mind) -> list[dict[str, Any]]:
    """Who raised what a passed item answers: one entry per resident."""
    keys = {c.key for p in passed_items(mind) for c in raised_in(p)}
    out: dict[str, dict[str, Any]] = {}
    for who, text in mind.history:
        for c in raised_in(text):
            if c.key in keys and who not in out:
                out[who] = {"id": who, "noun": c.noun, "text": text}
    return mind.draws.shuffled(list(out.values()))[:14]
