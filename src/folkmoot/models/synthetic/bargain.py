"""Group negotiation: stated preferences, syntheses, ballots and feedback rounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from folkmoot.models.synthetic.grammar import capital, listed
from folkmoot.models.synthetic.mind import Mind
from folkmoot.models.synthetic.roster import members
from folkmoot.models.synthetic.wishes import named, rejected, wanted

_VAGUE = ("compromise", "policy", "Family Friendly", "majority", "balanced approach", "fair_split")


class Table:
    """The members, what they stated, and the options, as the prompt gives them."""

    def __init__(self, mind: Mind) -> None:
        self.mind = mind
        stated = members(mind.text)
        part = re.split(
            r"(?:stated )?preferences?\b[^\n:]*:\s*\n", mind.text, maxsplit=1, flags=re.I
        )
        self.stated = members(part[1]) if len(part) > 1 and members(part[1]) else stated

    @cached_property
    def options(self) -> tuple[str, ...]:
        return self.mind.reading.options or tuple(dict.fromkeys(self.stated.values()))[:4]

    @cached_property
    def wishes(self) -> dict[str, list[str]]:
        """For each member the options that the stated words favour, first named first."""
        return {who: wanted(text, self.options) for who, text in self.stated.items()}

    @cached_property
    def ranked(self) -> list[str]:
        """Options by how many favour them, best first; ties in the order of the list."""
        tally = {o: sum(o in w for w in self.wishes.values()) for o in self.options}
        first = {o: sum(w[:1] == [o] for w in self.wishes.values()) for o in self.options}
        return sorted(self.options, key=lambda o: (-tally[o], -first[o]))

    @cached_property
    def conflict(self) -> bool:
        """Whether no option is among the wishes of everybody who named one."""
        named = [set(w) for w in self.wishes.values() if w]
        return len(named) > 1 and not set.intersection(*named)


def has_conflict(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    return Table(mind).conflict


def conflict_description(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    table = Table(mind)
    if not around.get("has_conflict", table.conflict):
        return ""
    sides = [f"{who} would like {named(w[0])}" for who, w in table.wishes.items() if w]
    return capital(listed(sides[:4])) + "." if sides else "Members want different things."


def resolution_strategy(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """Mostly the id that the prompt gives, at times a vague label, as models are wont to."""
    found = re.search(r"strategy_id\W{0,2}:\W{0,3}([a-z_]+)", mind.text)
    if found and mind.draws.chance(0.75):
        return found[1]
    return mind.draws.pick(_VAGUE)


def resolution(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """What to do: the option with most support, with room for the next."""
    table = Table(mind)
    given = re.search(r"explains and does not change:\s*\n([^\n]+)", mind.text)
    if given:
        return given[1].strip()
    if not table.ranked:
        return "We go with what was said first and look again on the spot."
    first = table.ranked[0]
    if not around.get("has_conflict", table.conflict):
        first = named(first)
        return mind.tongue.frame(
            (
                f"Everybody is happy with {first}, so {first} it is.",
                f"We go for {first}.",
                f"{capital(first)} suits everyone.",
            )
        )
    second = next((o for o in table.ranked[1:] if any(o in w for w in table.wishes.values())), "")
    if not second:
        return f"We go for {named(first)} and look after the others on another day."
    first, second = named(first), named(second)
    return mind.tongue.frame(
        (
            f"We plan around {first} and keep a place for {second} on the second day.",
            f"{capital(first)} comes first, and {second} has its turn the day after.",
            f"Most of us can live with {first}; for {second} we set an afternoon aside.",
            f"We start with {first}, and whoever prefers {second} gets it before we leave.",
        )
    )


def cast(mind: Mind, speakers: Sequence[str]) -> list[dict[str, Any]]:
    """Who speaks in a synthesis or vote: the system first, then each member."""
    table = Table(mind)
    known = [s for s in speakers if s.lower() != "system"] or list(table.stated)
    return [{"speaker": "System"}, *({"speaker": m} for m in known[:8])]


def line(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """One turn of a negotiation: the system's proposal, a member's reaction."""
    table = Table(mind)
    entry = around.get("#entry") or {}
    speaker = str(around.get("speaker") or entry.get("speaker", ""))
    wish = missing_wish(mind) if speaker == asked(mind) else ""
    if wish and not around.get("resolved", True):
        # The member reacts to what stood, not to the revision that the reaction brings about.
        frames = ("Could we fit in {W} somewhere?", "I'd feel better with {W} on one day at least.")
        return mind.tongue.frame(frames).format(W=named(wish))
    decided = str(
        around.get("final_revised_decision")
        or around.get("updated_resolution_explanation")
        or around.get("resolution_explanation")
        or resolution(mind, schema, around)
    )
    if speaker.lower() == "system":
        return mind.tongue.frame(
            (
                "{D}",
                "Here is how it could go. {D}",
                "I suggest this. {D}",
                "I have listened to all of you. {D}",
            )
        ).format(D=decided)
    wishes = table.wishes.get(speaker) or []
    low = decided.lower()
    if wishes and any(w.lower() in low for w in wishes):
        got = next(w for w in wishes if w.lower() in low)
        glad = (
            "That works for me, I get {W}.",
            "Fine with me, as long as {W} stays in.",
            "Good, {W} is what I hoped for.",
            "Yes, with {W} in it I am happy.",
        )
        return mind.tongue.frame(glad).format(W=named(got))
    if wishes:
        content = ("I had hoped for {W}, but all right.", "I can live with it, though I miss {W}.")
        lacking = ("Could we fit in {W} somewhere?", "Hm, that leaves out {W}.")
        short = content if around.get("resolved") else (*content, *lacking)
        return mind.tongue.frame(short).format(W=named(wishes[0]))
    return mind.tongue.frame(("I am fine with that.", "Whatever suits the rest.", "Good idea."))


# --- ballots ----------------------------------------------------------------------------------


def own_words(mind: Mind, around: Mapping[str, Any]) -> str:
    """What the member of this ballot had stated."""
    entry = around.get("#entry") or {}
    named = str(around.get("member") or entry.get("member") or "")
    table = Table(mind)
    if named in table.stated:
        return table.stated[named]
    found = re.search(r"your (?:stated )?preference[^:\n]*:\s*([^\n]+)", mind.text, re.IGNORECASE)
    return found[1] if found else ""


def ballot_options(mind: Mind, schema: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(schema.get("enum") or ()) or Table(mind).options


def top_choice(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    options = ballot_options(mind, schema)
    liked = wanted(own_words(mind, around), options)
    if liked:
        return liked[0]
    return max(options, key=mind.who.taste) if options else "no preference"


def acceptable(mind: Mind, inner: Mapping[str, Any], around: Mapping[str, Any]) -> list[str]:
    options = ballot_options(mind, inner)
    words = own_words(mind, around)
    top = around.get("top_choice")
    bad = set(rejected(words, options))
    liked = [o for o in wanted(words, options) if o != top]
    rest = sorted(
        (o for o in options if o != top and o not in bad and o not in liked),
        key=lambda o: -mind.who.taste(o),
    )
    easy = 1 + (mind.who.warmth > 0) + (mind.at.knobs.acquiescence > 0)
    return [*liked, *(o for o in rest if mind.who.taste(o) > -0.2)][:easy]


def hard_no(mind: Mind, inner: Mapping[str, Any], around: Mapping[str, Any]) -> list[str]:
    options = ballot_options(mind, inner)
    out = rejected(own_words(mind, around), options)
    worst = min(options, key=mind.who.taste) if options else ""
    firm = mind.who.warmth < -0.25 and worst and mind.who.taste(worst) < -1.2
    if firm and worst not in out and worst != around.get("top_choice"):
        out.append(worst)
    liked = around.get("acceptable")
    taken = [around.get("top_choice"), *(liked if isinstance(liked, list) else [])]
    return [o for o in out if o not in taken]


# --- feedback ---------------------------------------------------------------------------------


def asked(mind: Mind) -> str:
    found = re.search(r"asked in this round:\s*([^\n]+)", mind.text, re.IGNORECASE)
    return found[1].strip(" .") if found else next(iter(Table(mind).stated), "")


def current_decision(mind: Mind) -> str:
    found = re.search(
        r"current (?:decision|resolution)[^:\n]*:\s*([^\n]+)", mind.text, re.IGNORECASE
    )
    return found[1].strip() if found else ""


def missing_wish(mind: Mind) -> str:
    """What the member asked would still like and the decision does not hold."""
    wishes = Table(mind).wishes.get(asked(mind)) or []
    low = current_decision(mind).lower()
    return next((w for w in wishes if w.lower() not in low), "")


def resolved(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    wish = missing_wish(mind)
    return not wish or mind.draws.chance(0.3 + 0.2 * mind.who.warmth)


def revised(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    decision = current_decision(mind) or str(resolution(mind, schema, around))
    wish = missing_wish(mind)
    if around.get("resolved", False) or not wish:
        return decision
    return f"{decision.rstrip('.')}, and {named(wish)} for {asked(mind)} on the second day."


def updated(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    wish = missing_wish(mind)
    if not wish:
        return "Nothing has to change; the plan stands."
    if around.get("resolved", False):
        return f"{asked(mind)} can live with the plan as it stands."
    return f"The plan now makes room for {named(wish)} on the second day."


def targeted_question(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    who, wish = asked(mind), missing_wish(mind)
    if not wish:
        return f"{who}, are you content with the plan as it stands?"
    return f"{who}, would {named(wish)} on the second day answer your concern?"


def feedback_cast(mind: Mind) -> list[dict[str, Any]]:
    return [{"speaker": asked(mind)}, {"speaker": "System"}]


def intent(mind: Mind, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """An intent in the pattern that the prompt uses, for the speaker of this turn."""
    speaker = str(around.get("speaker", "")).lower()
    prefix = "sys_" if speaker == "system" else "user_"
    found = re.findall(rf"\b{prefix}[a-z_]+\b", mind.text)
    return found[0] if found else f"{prefix}respond"
