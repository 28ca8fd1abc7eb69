"""`Mind`: what somebody who is asked knows and thinks, for one reply.

The shared rules and those of the studies (`Part.answers`) are functions of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from folkmoot.models.request import NOT_READ
from folkmoot.respondent.mind.draws import Draws, gumbel, normal, unit
from folkmoot.respondent.mind.knobs import ANCHOR, DISTANCE, HALF_READ, HALF_TURNS, Knobs
from folkmoot.respondent.mind.lexicon import Counts, Lexicon, match
from folkmoot.respondent.mind.passages import of_kind
from folkmoot.respondent.mind.persona import ASKING, Persona, content_words, topics
from folkmoot.respondent.mind.reading import (
    Dose,
    Reading,
    arguments,
    count_names,
    dose_of,
    fold,
    heard_for,
    names_in,
    sentences,
)
from folkmoot.respondent.mind.scales import scale_of, unsure
from folkmoot.respondent.mind.speech import Tongue

SURE = 4  # times as near the middle of a scale are those who do not know as those who answer
ENOUGH_TOPICS = 3  # to talk about without looking further
MEANINGFUL = 3  # characters of an option that says by itself what it is
LONG_READING = 1500  # characters from which the length of a text moves with its full chance
MUCH = 12  # content words beside the question that make a text to read


@dataclass(frozen=True, slots=True)
class Situation:
    """What all minds of one reply share. `meet` gives the persona of a description, `names` are
    what opinions are about in this study."""

    reading: Reading
    names: tuple[str, ...]
    lexicon: Lexicon
    knobs: Knobs
    seed: int
    address: str
    meet: Callable[[str], Persona]


class Mind:
    """Somebody who is asked. `person` is False for a moderator, a summarizer, a coder."""

    def __init__(self, at: Situation, who: Persona, *, person: bool = True) -> None:
        self.at = at
        self.who = who
        self.person = person
        self.reading = at.reading
        self.knobs = at.knobs
        self.finish = "stop"
        self.draws = Draws(at.seed, at.address, who.key)
        said = " ".join(passage.text for passage in at.reading.own_utterances[-6:])
        self.tongue = Tongue(who, at.lexicon, self.draws, said)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema that is asked for; empty where none is."""
        return self.reading.schema or {}

    @cached_property
    def options(self) -> tuple[str, ...]:
        """What opinions are about here: the options offered, else the texts of option passages,
        else the study's names that occur in the passages."""
        read = self.reading
        if read.kind == "choice" and read.offered:
            return read.offered
        listed = dict.fromkeys(p.text for p in of_kind(read.passages, "option"))
        return tuple(listed) or self.named

    @cached_property
    def named(self) -> tuple[str, ...]:
        """The study's names that occur in the passages."""
        return names_in("\n".join(p.text for p in self.reading.passages), self.at.names)

    def mind_of(self, persona: str) -> Mind:
        """The mind of another person, by the text of their persona passage, for replies that write
        the parts of several people."""
        return Mind(self.at, self.at.meet(persona))

    @property
    def untouched(self) -> bool:
        """Whether much was shown beside the question, and no argument in it, to a person of a study
        that names nothing that opinions are about."""
        read = self.reading
        if self.at.names or any(sentences(p.text, (), self.at.lexicon) for p in read.told):
            return False
        known = content_words(f"{read.about} {' '.join(self.options)}") | ASKING
        shown = {word for p in read.heard for word in content_words(p.text) - known}
        return len(shown) >= MUCH

    def unread(self) -> None:
        """Say that this answer has no relation to what was asked; the run counts such answers."""
        self.finish = NOT_READ

    # --- opinions --------------------------------------------------------------------------------

    def tastes(self) -> list[float]:
        """u(0): what the person thinks of each option before anything is said (standard deviation
        1.3)."""
        spread = 1 - 0.8 * self.knobs.shrinking_variance
        return [self._taste(o, spread) for o in self.options]

    def _taste(self, option: str, spread: float = 1.0) -> float:
        # A letter or a number is another option in each question.
        about = self.reading.about if len(option) < MEANINGFUL else ""
        return self.who.taste(f"{about} {option}", spread)

    @cached_property
    def held(self) -> str:
        """The option that the person holds: the last own answer or utterance that is one of the
        options, else the one liked best; empty without options."""
        return next(reversed(self._own_choices), "") or self._liked_best

    @cached_property
    def _own_choices(self) -> tuple[str, ...]:
        called = {fold(option).casefold(): option for option in self.options}
        own = of_kind(self.reading.passages, "utterance", "answer", own=True)
        chosen = (called.get(fold(passage.text).casefold()) for passage in own)
        return tuple(filter(None, chosen))

    @cached_property
    def _liked_best(self) -> str:
        tastes = self.tastes()
        return self.options[max(range(len(tastes)), key=tastes.__getitem__)] if tastes else ""

    @cached_property
    def dose(self) -> Dose:
        """What the person was exposed to in this request."""
        # Whoever has changed sides was moved by the arguments for the new one.
        began_with = next(iter(self._own_choices), "") or self._liked_best
        return dose_of(self.reading.told, self.options, began_with, self.at.lexicon)

    def utilities(self) -> list[float]:
        """What the person thinks of each option after all that was read and heard."""
        first = self.tastes()
        u = moved(first, self.options, self.dose, self.who, self.knobs)
        if self.knobs.sycophancy:
            favoured = self._favoured()
            bonus = 2.5 * self.knobs.sycophancy
            u = [x + bonus * (o == favoured) for x, o in zip(u, self.options, strict=True)]
        return u

    def _favoured(self) -> str:
        """What others favour: the option with most arguments, else the one that they name most."""
        pushed = self.dose.arguments
        if any(map(sum, pushed.values())):
            return max(pushed, key=lambda o: sum(pushed[o]))
        said = "\n".join(p.text for p in self.reading.heard)
        named = count_names(said, self.options).most_common(2)
        clear = named and (len(named) < 2 or named[0][1] > named[1][1])
        return named[0][0] if clear else ""

    def opinion(self, option: str) -> float:
        """What the person thinks of one option after all that was said (mean about 0, standard
        deviation about 1.3)."""
        return self.utilities()[self.options.index(option)]

    def choose(self, options: Sequence[str] = (), purpose: str = "choice") -> str:
        """One of the options (left out: all): argmax of utility + position bias + σ·Gumbel."""
        asked = tuple(options) or self.options
        at, knobs = self.at, self.knobs
        if knobs.instability and unit(at.seed, at.address, purpose, "?") < knobs.instability:
            return asked[int(len(asked) * unit(at.seed, at.address, purpose, "any"))]
        if self._moved_by_length(purpose):
            return min(asked)
        known = dict(zip(self.options, self.utilities(), strict=True))
        u = [known[o] if o in known else self._taste(o) for o in asked]
        if 1 <= knobs.position <= len(u):
            u[knobs.position - 1] += knobs.position_bias
        noisy = [
            x + knobs.noise * gumbel(at.seed, at.address, purpose, o)
            for x, o in zip(u, asked, strict=True)
        ]
        return asked[max(range(len(noisy)), key=noisy.__getitem__)]

    def _moved_by_length(self, purpose: str) -> bool:
        """Whether the length of what was read decides, whatever it says. The same person is moved
        by any text of that length."""
        knobs, at = self.knobs, self.at
        if not knobs.length_bias:
            return False
        read = sum(len(passage.text) for passage in self.reading.heard)
        chance = knobs.length_bias * min(1.0, read / LONG_READING)
        return unit(at.seed, self.who.key, purpose, "length") < chance

    def lean(self, about: str, answer: str = "", part: str = "") -> float:
        """The person's leaning on a question (or to one answer to it, on one part of it), −1 to 1,
        by its content words: the same each time."""
        knobs = self.knobs
        lean = (1 - knobs.shrinking_variance) * self.who.lean(about, answer, part)
        lean += 0.15 * self.who.warmth
        return _within(lean + knobs.acquiescence + 0.5 * knobs.sycophancy)

    def rating(self, about: str, answer: str = "", part: str = "") -> float:
        """`lean` with the noise of one asking, for answers on a scale."""
        at = self.at
        noise = normal(at.seed, at.address, "rating", about, answer, *filter(None, [part]))
        sd = self.knobs.noise + 2 * self.knobs.instability
        return _within(self.lean(about, answer, part) + sd * noise)

    def judgement(self, about: str, part: str = "") -> float:
        """`rating`, moved towards 1 by the arguments that were read and heard for what is asked:
        those that name nothing, or what the question (`about`) names."""
        matter = content_words(about) - ASKING
        rating = self.rating(" ".join(sorted(matter)) or about, part=part)
        matters = ("", *names_in(about, self.named))
        heard = heard_for(matters, self.reading.heard, self.named, self.at.lexicon)
        return rating + (1 - rating) * push(heard, self.who, self.knobs)

    def placed(self, options: tuple[str, ...], about: str, part: str = "") -> str:
        """The answer nearest to the person's leaning on a question, with the noise of one asking;
        empty where the answers form no scale."""
        scale = scale_of(options)
        if not scale:
            return ""
        ends = [place for place in scale if math.isfinite(place)]
        low, high = min(ends), max(ends)
        target = low + (high - low) * (self.judgement(about, part) + 1) / 2
        knobs = self.knobs
        if 1 <= knobs.position <= len(scale) and knobs.position_bias > 0:
            away = scale[knobs.position - 1] - target
            target += math.copysign(min((high - low) * 0.25 * knobs.position_bias, abs(away)), away)
        away_by = [
            abs(place - target) * (SURE if unsure(option) else 1)
            for place, option in zip(scale, options, strict=True)
        ]
        return options[away_by.index(min(away_by))]

    def agreement(self, text: str, options: tuple[str, ...] = ()) -> float:
        """How far the person agrees with a statement, −1 to 1: by its arguments, by the options
        (left out: all) for which it speaks, by its content words. The same each time."""
        found = arguments(text, options or self.options, self.at.lexicon)
        total = [sum(c[k] for c in found.values()) for k in range(3)]
        score = 0.45 * self.lean(text)
        if any(total):
            score += 0.8 * match(total, self.who.camp) - 0.4
        spoken = [self.who.taste(o) for o in found if o]
        if spoken:
            score += 0.5 * math.tanh(sum(spoken) / len(spoken))
        return _within(score + 0.5 * self.knobs.sycophancy)

    def arguments(self, text: str) -> dict[str, Counts]:
        """Distinct argument words of a text by the option for which they speak, counted by camp."""
        return arguments(text, self.options, self.at.lexicon)

    # --- words -----------------------------------------------------------------------------------

    def say(self, about: str = "", n: int = 0) -> str:
        """Sentences in the person's voice: reasons for `about` (left out: the option held); where
        there are no options, words about what the question is about. `n` sentences, by default as
        many as the voice likes."""
        matter = about or self.held
        if matter:
            return self.tongue.reasons(matter, n)
        if not self.matters:
            self.unread()
        return self.tongue.talk(self.matters or ("this",), n)

    @cached_property
    def matters(self) -> tuple[str, ...]:
        """What is talked about if there are no options: names of the study that occur in the
        passages, else the runs of content words of what is asked; if those are few, also of what
        others said, the last first."""
        if self.named:
            return self.named
        read = self.reading
        fields = content_words(json.dumps(self.schema).replace("_", " "))
        found: dict[str, None] = {}
        for text in (read.about, *(p.text for p in reversed(read.heard))):
            if len(found) < ENOUGH_TOPICS:
                fresh = (t for t in topics(text) if not content_words(t) <= fields)
                found.update(dict.fromkeys(fresh))
        return tuple(found)


def moved(
    first: Sequence[float], options: Sequence[str], dose: Dose, who: Persona, knobs: Knobs
) -> list[float]:
    """u_j += .75·s·κ_j·n_j/(n_j + 8)·match(a_j, r)·exp(−((max u − u_j)/3)²): see `push`.

    κ_j is κ_read, times `factor_interviewed` after an interview, and with t answered turns for j
    times 1 + (`factor_addressed` − 1)·t/(t + 1).
    """
    if not dose.arguments or not knobs.persuasion:
        return list(first)
    top = max(first)
    after = []
    for value, option in zip(first, options, strict=True):
        counts, t = dose.arguments.get(option, (0, 0, 0)), dose.turns.get(option, 0)
        factor = knobs.factor_interviewed if dose.interviewed else 1.0
        factor *= 1 + (knobs.factor_addressed - 1) * t / (t + HALF_TURNS)
        near = math.exp(-(((top - value) / DISTANCE) ** 2))
        after.append(value + factor * near * push(counts, who, knobs))
    return after


def push(counts: Counts, who: Persona, knobs: Knobs) -> float:
    """.75·s·κ_read·n/(n + 8)·match(a, r): what n distinct argument words do that were read; a:
    their camps."""
    n = sum(counts)
    kappa = knobs.persuasion * knobs.kappa_read
    read = n / (n + HALF_READ) * match(counts, who.camp)
    return (1 - ANCHOR) * who.susceptibility * kappa * read


def _within(value: float) -> float:
    return max(-1.0, min(1.0, value))
