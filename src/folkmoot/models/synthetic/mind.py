"""What somebody who fills in an object knows: the request, the others named in it, the own views.

`Mind` is one person's; a reply that writes the part of many (one call for a whole hall) has one
mind per person, made by `Minds`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from folkmoot.models.synthetic.concerns import CONCERNS, Concern, held_by, is_local_plan, raised_in
from folkmoot.models.synthetic.draws import Draws, unit
from folkmoot.models.synthetic.grammar import Tongue
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.lexicon import match, reasons
from folkmoot.models.synthetic.reading import Reading
from folkmoot.models.synthetic.roster import all_statements, own_id, portraits, statements

STANCES = ("strong_oppose", "oppose", "neutral", "support", "strong_support")
_STANCE = re.compile(r"\b(strong_support|support|neutral|oppose|strong_oppose)\b")
_MY_STANCE = re.compile(
    r"your (?:own )?stance[^:\n]{0,60}:\s*[\"“]?"
    r"(strong_support|support|neutral|oppose|strong_oppose)",
    re.IGNORECASE,
)
_FOR = re.compile(
    r"\bI (?:am|would be|stay|remain) (?:firmly |still )?(?:for|in favou?r)|\bgo ahead", re.I
)
_AGAINST = re.compile(
    r"\bI (?:am|stay|remain) (?:firmly |still )?against|\bnot like this|stop this", re.I
)


@dataclass(frozen=True)
class Situation:
    """One request for an object: what was read, and the run's settings."""

    reading: Reading
    meet: Callable[..., Persona]
    knobs: Knobs
    seed: int
    address: str


class Mind:
    """One person within a situation. `me` is an id or name, empty where the text gives none."""

    def __init__(self, situation: Situation, who: Persona, me: str, said: dict[str, str]) -> None:
        self.at = situation
        self.who = who
        self.me = me
        self.reading = situation.reading
        self.text = situation.reading.prompt
        self.draws = Draws(situation.seed, situation.address, "object", me)
        own = " ".join((*situation.reading.own_turns[-4:], said.get(me, "")))
        self.tongue = Tongue(who, self.draws, own)
        self.heard = {k: v for k, v in said.items() if k != me}
        self.spoken: dict[str, str] = {}
        self._rated: tuple[tuple[tuple[str, str], ...], list[tuple[float, str]]] = ((), [])

    @cached_property
    def thoughts(self) -> dict[str, Any]:
        """The person's own noted thoughts, where the prompt carries them as JSON."""
        at = self.text.find("{")
        if at < 0:
            return {}
        try:
            found, _ = json.JSONDecoder().raw_decode(self.text[at:])
        except (json.JSONDecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def history(self) -> tuple[tuple[str, str], ...]:
        """All that others are quoted with, in order."""
        return tuple((who, text) for who, text in all_statements(self.text) if who != self.me)

    @cached_property
    def round(self) -> int:
        """The round that the text names, 1 where it names none."""
        found = re.search(r"\bround\s+(\d{1,2})\b", self.text, re.IGNORECASE)
        return int(found[1]) if found else 1

    @cached_property
    def local(self) -> bool:
        return is_local_plan(self.reading.system + self.text[:3000])

    @cached_property
    def concerns(self) -> tuple[Concern, ...]:
        """The person's own concerns about a local plan, strongest first; never none."""
        own = held_by(self.who.key)
        if own:
            return own
        start = int(unit(self.at.seed, self.who.key, "concern") * len(CONCERNS))
        return (CONCERNS[start], CONCERNS[(start + 5) % len(CONCERNS)])

    @cached_property
    def position(self) -> float:
        """The person's own view of the matter, −1 (against) to 1 (for), before any talk."""
        pulls = [c.pull for c in self.concerns[:3]] if self.local else []
        pulled = 0.5 * sum(pulls) / max(1, len(pulls)) ** 0.5
        spread = 1 - self.at.knobs.shrinking_variance
        lean: float = (
            0.7 * spread * self.who.lean("the matter") + pulled + self.at.knobs.acquiescence
        )
        return float(max(-1.0, min(1.0, lean)))

    @cached_property
    def stance(self) -> str:
        """The stance that the text says is the person's own, else that of the position."""
        noted = self.thoughts.get("overall_stance")
        if noted in STANCES:
            return str(noted)
        found = _MY_STANCE.findall(self.text)
        if not found and self.me:
            found = re.findall(
                rf"\b{re.escape(self.me)} (?:stood at|noted):.*?"
                r"(?:^|current_stance\W+|: )"
                r"(strong_support|support|neutral|oppose|strong_oppose)\b",
                self.text,
            )
        return found[-1].lower() if found else stance_of(self.position)

    @property
    def rated(self) -> list[tuple[float, str]]:
        """Those heard, each with how far the person agrees with what they said last."""
        known = tuple(self.heard.items())
        if self._rated[0] != known:
            self._rated = (known, [(self.agreement(t), k) for k, t in known if t.strip()])
        return self._rated[1]

    def agreement(self, text: str) -> float:
        """How far the person agrees with a statement, −1 to 1. No address: thinking and speaking
        about one statement agree with each other."""
        own = {c.key for c in self.concerns[:4]}
        theirs = {c.key for c in raised_in(text)}
        shared = len(own & theirs) / max(1, len(theirs)) if theirs else 0.0
        side = STANCES.index(self.stance) / 2 - 1
        with_side = side * side_of(text)
        fit: float = match(reasons(text), self.who.camp)
        chance = 2 * unit(self.at.seed, self.who.key, "agrees", text) - 1
        score = 0.55 * shared + 0.45 * with_side + 0.2 * fit + 0.3 * self.who.warmth + 0.45 * chance
        score += 0.7 * self.at.knobs.sycophancy + 0.5 * self.at.knobs.acquiescence - 0.05
        return float(max(-1.0, min(1.0, score)))


class Minds:
    """The minds of one reply: the one that is asked, and those whose part it writes."""

    def __init__(self, situation: Situation, who: Persona) -> None:
        self._situation = situation
        reading = situation.reading
        self.said = statements(reading.prompt)
        self._portraits = portraits(reading.system) or portraits(reading.prompt)
        me = own_id(reading.system, reading.prompt) if len(self._portraits) < 2 else ""
        self.main = Mind(situation, who, me or who.name, self.said)
        self._others: dict[str, Mind] = {}

    def of(self, name: str) -> Mind | None:
        """The mind of somebody whom the text describes; None for a stranger."""
        if name == self.main.me:
            return self.main
        if name not in self._portraits:
            return None
        if name not in self._others:
            text = self._portraits[name]
            who = self._situation.meet(text, self._situation.seed, text)
            self._others[name] = Mind(self._situation, who, name, self.said)
        return self._others[name]


def stance_of(position: float) -> str:
    """A position between −1 and 1 as one of the five stances."""
    return STANCES[sum(position > edge for edge in (-0.6, -0.18, 0.18, 0.6))]


@lru_cache(maxsize=8192)
def side_of(text: str) -> float:
    """Which side a statement takes: from its plain words, else from the concerns it raises."""
    if _AGAINST.search(text):
        return -1.0
    if _FOR.search(text):
        return 1.0
    raised = raised_in(text)
    return sum(c.pull for c in raised) / len(raised) if raised else 0.0


def gist(text: str, words: int = 14) -> str:
    """A statement in a few words: its weightiest clause, cut."""
    sentences = [s for s in re.split(r"(?<=[.!?])\s+", " ".join(text.split())) if s]
    if not sentences:
        return ""
    told = [s for s in sentences if not s.endswith("?")] or sentences
    best = max(told, key=lambda s: (len(raised_in(s)) + sum(reasons(s)) / 3, -len(s)))
    parts = best.rstrip(".!?").split()
    return " ".join(parts[:words]) + ("…" if len(parts) > words else "")
