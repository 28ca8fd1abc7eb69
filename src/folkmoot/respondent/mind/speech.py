"""Sentences of the embedded respondent: frames by voice (`speech.yaml`), filled with argument
phrases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from folkmoot.files import packaged_yaml
from folkmoot.respondent.mind.draws import Draws
from folkmoot.respondent.mind.lexicon import MIXTURES, Lexicon
from folkmoot.respondent.mind.persona import Persona

LENGTH = {"terse": (2, 2), "plain": (2, 3), "chatty": (3, 4), "formal": (2, 3)}
_GOLDEN = 0.6180339887498949


@cache
def frames() -> Mapping[str, Any]:
    """All sentences by kind, and by voice where they have one."""
    found: Mapping[str, Any] = packaged_yaml(__file__, "speech.yaml")
    return found


class Tongue:
    """One speaker in one reply. Frames and phrases already used in `said` are avoided."""

    def __init__(self, who: Persona, lexicon: Lexicon, draws: Draws, said: str = "") -> None:
        self.who = who
        self.lexicon = lexicon
        self.draws = draws
        self._said = said.casefold()
        self._used: set[str] = set()
        self._at = -1.0

    def camp(self) -> int:
        """The camp of one argument phrase, from the speaker's mixture: spread evenly over a reply
        (steps of the golden ratio), so that few phrases already show the mixture."""
        self._at = (self._at + _GOLDEN) % 1.0 if self._at >= 0 else self.draws.unit()
        low, middle, _ = MIXTURES[self.who.camp]
        return 0 if self._at < low else 1 if self._at < low + middle else 2

    def noun(self) -> str:
        return self.fresh(self.lexicon.camps[self.camp()].nouns)

    def verb(self) -> str:
        return self.fresh(self.lexicon.camps[self.camp()].verbs)

    def fresh(self, items: Sequence[str]) -> str:
        """One that was not used yet, nor said before (of a frame: its fixed words)."""
        start = self.draws.between(0, len(items) - 1)
        for k in range(len(items)):
            item = items[(start + k) % len(items)]
            if item not in self._used and _fixed(item) not in self._said:
                break
        else:
            item = items[start]
        self._used.add(item)
        return item

    def fill(self, frame: str, **names: str) -> str:
        """The frame with phrases of the speaker's own camp mixture and the given names."""
        for slot, phrase in (
            ("N", self.noun),
            ("M", self.noun),
            ("V", self.verb),
            ("W", self.verb),
        ):
            if f"{{{slot}}}" in frame:
                names.setdefault(slot, phrase())
        return capital(frame.format(C=self.who.calling, **names))

    def say(self, kind: str, **names: str) -> str:
        """A sentence of a kind (`speech.yaml`), in the speaker's voice where it has one."""
        known = frames()[kind]
        voiced = known[self.who.voice] if isinstance(known, dict) else known
        return self.fill(self.fresh(voiced), **names)

    def reasons(self, about: str, n: int = 0) -> str:
        """`n` reasons for something, by default as many as the voice likes."""
        count = n or self.draws.between(*LENGTH[self.who.voice])
        return " ".join(self.say("reasons", O=about) for _ in range(count))

    def talk(self, topics: Sequence[str], n: int = 0) -> str:
        """`n` sentences about some topics, without reasons for or against anything."""
        count = n or self.draws.between(*LENGTH[self.who.voice])
        known = self.draws.shuffled(topics) * 2 * count
        kinds = [f for f in frames()["talks"] if len(topics) > 1 or "{U}" not in f]
        said = [
            self.fill(self.fresh(kinds), T=known[2 * k], U=known[2 * k + 1]) for k in range(count)
        ]
        return " ".join(said)


def _fixed(frame: str) -> str:
    """The longest stretch of a frame between its slots, in lower case."""
    parts = [p.split("}", 1)[-1] for p in frame.split("{")]
    return max(parts, key=len).strip(" .,;:!?").casefold()


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
