"""Wishes in words: how a traveller states a preference, and which options a text asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.reading import Reading

_LIKE: dict[str, tuple[str, ...]] = {
    "terse": ("I want {A}.", "I'd prefer {A}.", "I like {A}.", "I need {A}."),
    "plain": (
        "I would love {A}.",
        "I would prefer {A}, if I may choose.",
        "I want {A} this time.",
        "For me it's easy: I like {A} best.",
        "I always enjoy {A}.",
    ),
    "chatty": (
        "Oh, I would love {A}, I've been looking forward to it!",
        "You know me, I really want {A}.",
        "I'd so enjoy {A}, honestly!",
    ),
    "formal": (
        "I should prefer {A}.",
        "My preference would be clear: I want {A}.",
        "I would very much like {A}.",
    ),
}
_ALSO = ("I like {B} as well.", "I would also enjoy {B}.", "I'd like {B} too.")
_NOT = ("I don't want {D}.", "Please, no {C}.", "I would rather avoid {D}.", "Let's skip {D}.")
_SPECIAL = (
    (
        re.compile(r"travel style|kind of travel", re.IGNORECASE),
        (
            "I want to be {A} this time.",
            "I would love to be {A} on this trip.",
            "I like it best when we travel the way {A} does.",
            "I'd prefer it if we went as {A} would.",
        ),
    ),
    (
        re.compile(r"house rule", re.IGNORECASE),
        (
            "I want it written down: {A}.",
            "I would prefer {A}, please.",
            "I need {A}, I'm afraid.",
            "What I would like is {A}.",
        ),
    ),
    (
        re.compile(r"purpose of the trip|trip be for", re.IGNORECASE),
        (
            "I want {A} above all.",
            "I would love some {A}.",
            "For me it is simple: I need {A}.",
            "I'd like the trip to be about {A}.",
        ),
    ),
)
_BECAUSE = (
    "It is what I remember from our best trips.",
    "I have been working a lot lately.",
    "I have thought about it for weeks.",
    "That is half of the fun for me.",
    "The rest is up to you.",
    "My friends told me so much about it.",
    "It would make my trip.",
)
_NEGATIVE = re.compile(
    r"\b(?:no|not|don'?t|without|avoid|skip|exclude|hate|dislike|never|rather than)\b",
    re.IGNORECASE,
)


def preference(reading: Reading, who: Persona, draws: Draws) -> str:
    """One or two sentences that name a favourite, at times a second and one turned down."""
    ranked = sorted(reading.options, key=lambda o: -(who.taste(o) + 0.12 * draws.normal()))
    frames = next((f for about, f in _SPECIAL if about.search(reading.prompt)), _LIKE[who.voice])
    parts = [draws.pick(frames).format(A=named(ranked[0]))]
    if len(ranked) > 2 and frames is _LIKE[who.voice] and draws.chance(0.35):
        parts.append(draws.pick(_ALSO).format(B=named(ranked[1])))
    elif draws.chance(0.4):
        parts.append(draws.pick(_BECAUSE))
    turned_down = ranked[-1]
    if len(ranked) > 3 and not turned_down.lower().startswith("no ") and draws.chance(0.25):
        parts.append(draws.pick(_NOT).format(C=_spelled(turned_down), D=named(turned_down)))
    return " ".join(parts)


_ONE = re.compile(
    r"(?:diner|pub|bar|concert|film|festival|room|home|house|traveler"
    r"|traveller|seeker|lover|planner"
    r"|wanderer|museum|park|tour|cruise|cabin|tent|hotel)$",
    re.IGNORECASE,
)
_PEOPLES = re.compile(
    r"^(?:italian|mexican|indian|chinese|mediterranean|french|american|thai|greek|japanese|korean"
    r"|spanish)$",
    re.IGNORECASE,
)
_KIND = re.compile(
    r"^(?:vegetarian|vegan|economical|moderate|cheap|simple|local|quiet)$", re.IGNORECASE
)


def named(option: str) -> str:
    """An option as it stands in a sentence: "a diner", "something Italian", "museums"."""
    if _PEOPLES.match(option):
        return f"something {option.capitalize()}"
    if _KIND.match(option):
        return f"something {option}"
    if _ONE.search(option):
        return f"{'an' if option[:1].lower() in 'aeio' else 'a'} {option}"
    return option


def _spelled(option: str) -> str:
    return option.capitalize() if _PEOPLES.match(option) else option


def _clauses(text: str, options: Sequence[str]) -> list[tuple[bool, list[str]]]:
    """(turned down?, options named in order) for each clause; the longest name matches first."""
    out = []
    for clause in re.split(r"[.;!?\n,]|\bbut\b", text.lower()):
        at: dict[str, int] = {}
        for option in sorted(options, key=len, reverse=True):
            place = clause.find(option.lower())
            if place >= 0:
                at[option] = place
                clause = clause.replace(option.lower(), "#" * len(option))  # noqa: PLW2901
        out.append((bool(_NEGATIVE.search(clause)), sorted(at, key=lambda o: at[o])))
    return out


def wanted(text: str, options: Sequence[str]) -> list[str]:
    """Options that a text names without turning them down, in the order named."""
    named_ones = [o for bad, names in _clauses(text, options) if not bad for o in names]
    return list(dict.fromkeys(named_ones))


def rejected(text: str, options: Sequence[str]) -> list[str]:
    """Options that a text turns down."""
    return list(dict.fromkeys(o for bad, names in _clauses(text, options) if bad for o in names))


# --- synthesis --------------------------------------------------------------------------------
