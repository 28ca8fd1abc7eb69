"""Who speaks: probability by extraversion, always when addressed, everybody at least once.

Pure functions over a generator; the moderator composes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

HIGH, MEDIUM, LOW = 0.85, 0.60, 0.35


def probability(extraversion: int) -> float:
    """The chance that somebody of this extraversion (0–100) takes up a question unasked.

    The source's three levels; "high" is from 67, "low" below 34 (the outer thirds of the scale).
    """
    if extraversion >= 67:
        return HIGH
    return LOW if extraversion < 34 else MEDIUM


def room(people: int, cap: int) -> tuple[int, int]:
    """(fewest, most) who answer one question: 3–6 of eight, scaled, never more than `cap`."""
    most = max(1, min(cap, math.floor(6 * people / 8 + 0.5)))
    fewest = max(1, min(most, math.floor(3 * people / 8 + 0.5)))
    return fewest, most


def named(text: str, names: Mapping[str, str]) -> list[str]:
    """Ids of those whose first name a text uses, in the order of the text. `names`: id → name."""
    return [who for who, _ in _mentions(text, names)]


def addressed(text: str, names: Mapping[str, str]) -> list[str]:
    """Ids of those whom a text asks by name, in the order of the text.

    Not those who are only thanked ("Thank you, Ann.") or spoken of ("as Ann said").
    """
    called = []
    for who, hit in _mentions(text, names):
        before, after = text[max(0, hit.start() - 60) : hit.start()], text[hit.end() :]
        sentence = re.split(r"[.!?]\s+", before)[-1]
        if _SPOKEN_OF.match(after) or _BEFORE.search(sentence):
            continue
        if _THANKED.search(sentence) and re.match(r"\s*(?:[.!;–—]|,(?! what|  how))", after):
            continue
        called.append(who)
    return list(dict.fromkeys(called))


_SPOKEN_OF = re.compile(
    r"(?:['’]s\b|(?: just| also| has| have| and \w+)* (?:said|says|mentioned|brought|told|asked|"
    r"asks|put|raised|noted|likes?|thinks?|feels?|has|had|is|was|talked|spoke|described|pointed|"
    r"suggested|made|sees|saw|seem(?:s|ed)|called|worried|worries|wants|wanted|would|shared|gave)\b)"
)
_BEFORE = re.compile(
    r"\b(?:like|as|unlike|than|what|when|that|agree with|to what)\s+$", re.IGNORECASE
)
_THANKED = re.compile(
    r"\b(?:thank|thanks|appreciate|interesting|helpful|good point|fair point|i hear you|got it|"
    r"okay|ok|great|lovely|right|noted|i see|true|wonderful|good)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def _as_name(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'’]){re.escape(name)}(?!\w)")


def _mentions(text: str, names: Mapping[str, str]) -> list[tuple[str, re.Match[str]]]:
    hits = [
        (who, hit)
        for who, name in names.items()
        if name in text
        for hit in _as_name(name).finditer(text)
    ]
    return sorted(hits, key=lambda item: item[1].start())


@dataclass(frozen=True, slots=True)
class Floor:
    """What has been said so far, as far as it decides who speaks. All by id, in seating order."""

    spoken: Mapping[str, int]
    words: Mapping[str, int]
    questions_left: int

    def never(self) -> list[str]:
        """Those who have not spoken yet."""
        return [who for who, n in self.spoken.items() if n == 0]

    def quiet(self, most: int = 2) -> list[str]:
        """Up to `most` who have said clearly less than the others, the quietest first."""
        if not sum(self.spoken.values()):
            return []
        mean = sum(self.spoken.values()) / len(self.spoken)
        below = [who for who, n in self.spoken.items() if n < mean - 0.5]
        return sorted(below, key=lambda who: (self.spoken[who], self.words[who]))[:most]


def choose(
    willing: Sequence[str],
    called: Sequence[str],
    floor: Floor,
    limits: tuple[int, int],
    rng: np.random.Generator,
) -> list[str]:
    """Ids of those who answer, in the order in which they do.

    `willing` drew the floor, `called` were addressed by name. Those called always speak; of those
    who never spoke as many are taken in as it needs for all to get a turn; then the willing in
    random order; if they are too few, the quietest of the rest. Those called answer first.
    """
    fewest, most = limits
    chosen = list(dict.fromkeys(called))[:most]
    for who in _overdue(floor, chosen, most):
        chosen.append(who)
    others = [who for who in willing if who not in chosen]
    shuffled = [others[int(i)] for i in rng.permutation(len(others))]
    chosen += shuffled[: max(0, most - len(chosen))]
    if len(chosen) < fewest:
        rest = [who for who in floor.spoken if who not in chosen]
        rest.sort(key=lambda who: (floor.spoken[who], rng.random()))
        chosen += rest[: fewest - len(chosen)]
    first = [who for who in called if who in chosen]
    later = [who for who in chosen if who not in first]
    return first + [later[int(i)] for i in rng.permutation(len(later))]


def _overdue(floor: Floor, chosen: Sequence[str], most: int) -> list[str]:
    """Of those who never spoke, how many have to now: one from the third question on at least,
    and always as many as the remaining questions could not take.
    """
    waiting = [who for who in floor.never() if who not in chosen]
    if not waiting:
        return []
    later = floor.questions_left * most
    needed = max(0, len(waiting) - later)
    if sum(floor.spoken.values()) >= 2 * most:
        needed = max(needed, 1)
    return waiting[: min(needed, most - len(chosen))]
