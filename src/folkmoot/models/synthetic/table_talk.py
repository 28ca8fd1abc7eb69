"""What a participant of a focus group says, played by the embedded respondent.

The words follow the person's position, the question, and who has just spoken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.reading import Reading
from folkmoot.models.synthetic.table_guest import Guest
from folkmoot.models.synthetic.table_reading import (
    COOLED,
    WARMED,
    Heard,
    article,
    bank,
    capital,
    fixed_words,
    names_in,
)

_KINDS: tuple[tuple[str, str], ...] = (
    ("intro", r"about yourself|introduce|get to know"),
    ("story", r"last time you bought|best or (?:your )?worst|experience with|how did that go"),
    ("money", r"price|money|pay\b|cost"),
    ("change", r"have to change|take it seriously|seriously"),
    ("seen", r"now that you have seen|this speak|put you off|want it for yourself"),
    ("buy", r"tomorrow|would you buy"),
    ("takeaway", r"take away|tell the people|stayed with you|last thought"),
    ("who_for", r"picture|who is that|who would use|remind"),
    ("part", r"which part|worries|go wrong|concern|matters most"),
    ("first_thought", r"come[s]? to mind|first thing|first thought"),
)
_NO_JOB = re.compile(r"retired|student|stay-at-home|homemaker|between jobs")


class Speech:
    """What one participant says in one turn."""

    def __init__(self, guest: Guest, reading: Reading, draws: Draws) -> None:
        self._guest = guest
        self._draws = draws
        self._bank: Mapping[str, Any] = bank()["participant"]
        told = [h.text for h in guest.others] + list(guest.own)
        self._said = " ".join(told).lower()
        self._question = _question(reading.prompt)
        self._probe = "about what you have just said" in reading.prompt
        self._names = names_in(reading)
        self._mood = guest.now + draws.normal(0.0, 0.12)
        self._used_themes: set[str] = set()
        self._used: set[str] = set()

    def text(self) -> str:
        """The whole turn."""
        kind = "probe_answer" if self._probe else _kind(self._question)
        if kind == "intro":
            return self._introduction()
        low, high = self._guest.length
        size = self._draws.between(low, high)
        parts = [] if self._probe or kind == "story" else self._taking_up()
        if kind == "story":
            parts.append(self._fill(self._fresh(self._bank["story"])))
            if size > 2:
                parts.append(self._experience())
            return self._joined(parts)
        stock = self._bank[kind][self._side()]
        if self._left(stock) or not parts:
            parts.append(self._fill(self._fresh(stock)))
        while len(parts) < size + (size == 1 and bool(self._draws.chance(0.4))):
            parts.append(self._reason())
        return self._joined(parts)

    def _side(self) -> str:
        return "pro" if self._mood > 0.18 else "con" if self._mood < -0.18 else "mid"

    def _introduction(self) -> str:
        key = "intro_nojob" if _NO_JOB.search(self._guest.job) else "intro"
        parts = [self._fill(self._fresh(self._bank[key])), self._experience()]
        if self._guest.length[1] > 3:
            parts.append(self._fill(self._fresh(self._bank["story"])))
        return self._joined(parts)

    def _experience(self) -> str:
        level = ("low", "middle", "high")[self._guest.engaged + 1]
        return self._fill(self._fresh(self._bank["experience"][level]))

    def _taking_up(self) -> list[str]:
        """Agreement, disagreement or a change of mind, where there is somebody to take up."""
        guest, draws = self._guest, self._draws
        recent = [h for h in guest.others[-5:] if abs(h.lean) > 0.2]
        if not recent:
            return []
        moved = self._moved(recent)
        if moved:
            return [moved]
        mid = self._side() == "mid"
        opposed = [h for h in recent if abs(h.lean) > 0.4 and (mid or h.lean * self._mood < 0)]
        differs = bool(opposed) and draws.chance(0.6)
        other = draws.pick(opposed) if differs else recent[-1]
        if differs or (not mid and other.lean * self._mood < 0):
            chance = (0.75, 0.6, 0.45, 0.3, 0.18)[guest.company] * (0.5 if mid else 1.0)
            chance *= 1 - guest.pleasing
            stock = self._bank["disagree_softly" if mid or guest.company >= 3 else "disagree"]
        elif mid:
            return []
        else:
            chance = (0.12, 0.25, 0.38, 0.52, 0.62)[guest.company]
            # Whoever pleases agrees the more the more have spoken before.
            chance += guest.pleasing * (0.5 + 0.12 * len(guest.others[-4:]))
            stock = self._bank["agree"]
        if not draws.chance(min(0.97, chance)):
            return []
        return [self._fresh(stock).format(name=other.name)]

    def _moved(self, recent: Sequence[Heard]) -> str:
        """A change of mind, said once the pull of the others has become strong enough."""
        guest = self._guest
        told = " ".join(guest.own)
        base = guest.lean + 0.35 * (len(WARMED.findall(told)) - len(COOLED.findall(told)))
        gap = guest.now - base
        if abs(gap) < 0.13 or not self._draws.chance(0.3):
            return ""
        cause = [h for h in recent if h.lean * gap > 0]
        if not cause or WARMED.search(told) or COOLED.search(told):
            return ""
        stock = self._bank["warming" if gap > 0 else "cooling"]
        # Whoever says that they were moved does not go on as firmly as before.
        self._mood = max(guest.now, 0.0) if gap > 0 else min(guest.now, 0.0)
        return self._fresh(stock).format(name=self._draws.pick(cause).name)

    def _reason(self) -> str:
        """One more reason, from the themes that matter to this person; both sides if undecided."""
        side, lines = self._side(), self._bank
        if side == "mid":
            if self._draws.chance(0.3) and not self._used.intersection(lines["both"]):
                pro = self._fresh(lines["reason"][self._theme("pro")]["pro"])
                con = self._fresh(lines["reason"][self._theme("con")]["con"])
                frame = self._fresh(lines["both"])
                return str(frame.format(pro=pro, con=con, Pro=capital(pro)))
            reason = self._fresh(lines["unsure"])
        elif self._draws.chance(0.2) and self._left(self._home_reasons(side)):
            return self._with_brood(self._fresh(self._home_reasons(side)))
        else:
            reason = self._fresh(lines["reason"][self._theme(side)][side])
        # Not "For me, it could go either way for me".
        echoes = {w for w in ("for me", "i think", "i mean") if w in reason.lower()}
        links = [link for link in lines["link"] if fixed_words(link) not in echoes]
        return str(self._fresh(links).format(reason=reason, Reason=capital(reason)))

    def _home_reasons(self, side: str) -> list[str]:
        return list(self._bank["home_reason"][self._home_key()][side])

    def _theme(self, side: str) -> str:
        guest = self._guest
        weights = {
            "price": 1.0 + 1.6 * guest.price * (1 if side == "con" else -1),
            "need": 1.0,
            "trust": 1.0 + 1.2 * guest.worries * (side == "con"),
            "effort": 1.0,
            "fit": 0.9,
            "fun": 0.7 + 0.5 * (guest.engaged > 0),
        }
        names = [t for t in weights if t not in self._used_themes] or list(weights)
        theme = names[self._draws.weighted([max(0.1, weights[t]) for t in names])]
        self._used_themes.add(theme)
        return theme

    def _home_key(self) -> str:
        words = self._guest.household
        if re.search(r"child", words):
            return "children"
        kinds = ("parents", "roommates", "relatives", "alone")
        return next((k for k in kinds if k in words), "couple")

    def _home(self) -> str:
        return self._with_brood(self._fresh(self._bank["homes"][self._home_key()]))

    def _with_brood(self, text: str) -> str:
        brood = re.search(r"(one child|two children|three children)", self._guest.household)
        kids = {"one child": "a kid", "two children": "two kids", "three children": "three kids"}
        return text.format(brood=kids[brood[1]] if brood else "kids")

    def _fill(self, frame: str) -> str:
        guest, n = self._guest, self._names
        home = self._home() if "{home}" in frame or "{Home}" in frame else ""
        job = guest.job
        return capital(
            frame.format(
                first=guest.first,
                job=f"{article(job)} {job}",
                place=guest.place,
                home=home,
                Home=capital(home),
                category=n["category"],
                Category=capital(n["category"]),
                thing=n["thing"],
                a_thing=n["a_thing"],
            )
        )

    def _fresh(self, stock: Sequence[str]) -> str:
        """A frame that nobody was heard to use, nor this turn; any where all are used up."""
        order = self._draws.shuffled(list(stock))
        unused = [f for f in order if f not in self._used] or order
        frame = next((f for f in unused if fixed_words(f) not in self._said), unused[0])
        self._used.add(frame)
        return frame

    def _left(self, stock: Sequence[str]) -> bool:
        """Whether a list holds anything that was not said yet."""
        return any(f not in self._used and fixed_words(f) not in self._said for f in stock)

    def _joined(self, parts: Sequence[str]) -> str:
        text = " ".join(p for p in parts if p)
        filler = self._guest.filler
        fits = filler in {"I guess", "you know", "let's be honest", "at the end of the day"}
        if fits and self._draws.chance(0.15):
            if filler in {"let's be honest", "at the end of the day"}:
                text = f"{capital(filler)}, {_uncapital(text)}"
            elif text.endswith("."):
                text = f"{text[:-1]}, {filler}."
        return text


def _question(prompt: str) -> str:
    found = re.search(r'The moderator asks: "(.+?)"\s*(?:\n|$)', prompt, re.DOTALL)
    return found[1] if found else prompt


def _kind(question: str) -> str:
    """What a question is about; the last interrogative sentence that gives a cue decides."""
    sentences = re.split(r"(?<=[.!?])\s+", question)[::-1]
    for sentence in sorted(sentences, key=lambda s: not s.endswith("?")):
        for kind, cue in _KINDS:
            if re.search(cue, sentence, re.IGNORECASE):
                return kind
    return "part"


def _uncapital(text: str) -> str:
    keep = re.match(r"(?:I\b|I'|[A-Z][a-z]+,|[A-Z][a-z]+ (?:has|is|took|may)\b)", text)
    return text if keep else text[:1].lower() + text[1:]
