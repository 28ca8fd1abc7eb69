"""Economic games in a workbook: how much one gives, and what is said about it.

A giver's share is a fixed inclination (mean about a half, as people's first contributions are),
worn down from round to round, and drawn to what the text says that others gave.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from folkmoot.models.synthetic.draws import normal, unit
from folkmoot.models.synthetic.grammar import Tongue
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.reading import Reading

_GAME = re.compile(
    r"\b(?:tokens?|endowment|common pot|the pot|group account|public account|joint account"
    r"|contribut\w+ to the|payoffs?|dictator|trustee)\b",
    re.IGNORECASE,
)
_GIVING = re.compile(
    r"\b(?:contribut\w*|give|put into|put in|invest|send|return|transfer|share)\b", re.IGNORECASE
)
_MEAN = re.compile(
    r"(?:average|mean|per (?:head|member|person))[^.\d\n]{0,40}(\d+(?:\.\d+)?)", re.IGNORECASE
)
_NUMBER = re.compile(r"^\s*\W*(?:response\W+)?(-?\d+(?:\.\d+)?)\W*\s*$")
_WEAR = 0.93

_GENEROUS = (
    "I say we all put in as much as we dare, it comes back to all of us.",
    "If everybody gives, everybody ends up with more, so let us start high.",
    "I will begin with more than half and see whether you come along.",
    "Let's trust each other at least in the first round.",
    "The sum only works when nobody sits it out.",
)
_MIDDLING = (
    "I would put in about half and see what the others do.",
    "Let us agree on one amount, the same for each of us.",
    "I go along as long as the others do.",
    "Half seems right to me to begin with.",
    "If we keep to what we say here, I keep to it as well.",
)
_WARY = (
    "I have seen what happens to those who give first, so I will be careful.",
    "I will keep most of mine until I see what you all do.",
    "Talk is easy, so let us wait for the numbers.",
    "Each of us will look after themselves in the end, and so will I.",
    "Do not count on me for much.",
)
_AGREES = ("I go along with {T}.", "{T} has a point.", "I am with {T}.")
_DIFFERS = ("I see it differently from {T}.", "I heard {T}, but that is not how I see it.")
_HEARD = ("I heard {T}.", "I have listened to {T}.")


def is_game(reading: Reading) -> bool:
    """Whether the request is part of a game with tokens or shares."""
    return bool(_GAME.search(reading.prompt[-1500:]) or _GAME.search(reading.system[-2500:]))


def asks_for_a_gift(reading: Reading) -> bool:
    """Whether the number wanted is an amount to give."""
    return bool(_GIVING.search(reading.prompt[-500:])) and is_game(reading)


def inclination(who: Persona, knobs: Knobs) -> float:
    """The share that a person would give in a first round, between 0 and 1."""
    spread = 1 - knobs.shrinking_variance
    lean = spread * (unit(who.seed, who.key, "gives") - 0.5) + 0.15 * who.warmth
    return max(0.0, min(1.0, 0.48 + 0.9 * lean + 0.3 * knobs.acquiescence))


def gift(
    who: Persona, reading: Reading, low: float, high: float, knobs: Knobs, seed: int, address: str
) -> float:
    """An amount within bounds."""
    rounds = sum(bool(_NUMBER.match(t)) for t in reading.own_turns)
    share = inclination(who, knobs) * _WEAR**rounds
    told = _MEAN.findall(reading.prompt[-1500:])
    if told and high > low:
        others = max(0.0, min(1.0, (float(told[-1]) - low) / (high - low)))
        share += (0.3 + 0.5 * knobs.sycophancy) * who.susceptibility * (others - share)
    share += (0.07 + knobs.instability) * normal(seed, address, "gift")
    return low + (high - low) * max(0.0, min(1.0, share))


def _taking_up(words: str, mine: Sequence[str]) -> Sequence[str]:
    """How to take up what another said: as somebody of the same side, of the opposite, or neither.

    The middle agrees with nobody and contradicts nobody: it has heard them.
    """
    sides = (_GENEROUS, _MIDDLING, _WARY)
    theirs = next((side for side in sides if any(line in words for line in side)), ())
    if theirs == mine:
        return _AGREES
    return _DIFFERS if theirs and _MIDDLING not in (theirs, mine) else _HEARD


def talk(reading: Reading, tongue: Tongue, knobs: Knobs) -> str:
    """What somebody says before or between the rounds of a game."""
    share = inclination(tongue.who, knobs)
    frames = _GENEROUS if share > 0.6 else _WARY if share < 0.35 else _MIDDLING
    heard = re.findall(r"^([A-Z][\w'’. -]{0,24}): (.*)", reading.prompt, re.MULTILINE)
    said = [h for h in heard if h[0] not in {"Facilitator", "Summarizer", "Reply", "Round"}]
    parts = []
    if said and tongue.draws.chance(0.5):
        name, words = said[-1]
        parts.append(tongue.frame(_taking_up(words, frames)).format(T=name))
    parts += [tongue.frame(frames) for _ in range(tongue.draws.between(1, 2))]
    return " ".join(parts)
