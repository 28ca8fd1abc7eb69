"""`SimulatedRespondent`: what somebody who is asked knows and thinks, for one reply.

The shared rules and those of the studies (`Part.answers`) are functions of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from folkmoot.models.request import FINISH_UNREAD
from folkmoot.respondent.mind.draws import Draws, gumbel_draw, normal_draw, uniform_draw
from folkmoot.respondent.mind.knobs import (
    ANCHOR,
    DISTANCE,
    HALF_READ,
    HALF_TURNS,
    RespondentSettings,
)
from folkmoot.respondent.mind.lexicon import Counts, Lexicon, camp_match
from folkmoot.respondent.mind.passages import of_kind
from folkmoot.respondent.mind.persona import ASKING, PersonaTraits, content_words, extract_topics
from folkmoot.respondent.mind.reading import (
    ExposureDose,
    PromptReading,
    argument_counts,
    argument_sentences,
    arguments_heard_for,
    count_names,
    dose_of,
    names_in,
    normalise_spaces,
)
from folkmoot.respondent.mind.scales import is_unsure, scale_of
from folkmoot.respondent.mind.speech import SentenceGenerator

SURE = 4  # times as near the middle of a scale are those who do not know as those who answer
ENOUGH_TOPICS = 3  # to talk about without looking further
MEANINGFUL = 3  # characters of an option that says by itself what it is
LONG_READING = 1500  # characters from which the length of a text moves with its full chance
MUCH = 12  # content words beside the question that make a text to read


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """What all minds of one reply share. `resolve_persona` gives the persona of a description,
    `names` are what opinions are about in this study."""

    reading: PromptReading
    names: tuple[str, ...]
    lexicon: Lexicon
    knobs: RespondentSettings
    seed: int
    address: str
    resolve_persona: Callable[[str], PersonaTraits]


class SimulatedRespondent:
    """Somebody who is asked. `person` is False for a moderator, a summarizer, a coder."""

    def __init__(self, at: ReplyContext, who: PersonaTraits, *, person: bool = True) -> None:
        self.at = at
        self.who = who
        self.person = person
        self.reading = at.reading
        self.knobs = at.knobs
        self.finish = "stop"
        self.draws = Draws(at.seed, at.address, who.key)
        said = " ".join(passage.text for passage in at.reading.own_utterances[-6:])
        self.tongue = SentenceGenerator(who, at.lexicon, self.draws, said)

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
        listed = dict.fromkeys(passage.text for passage in of_kind(read.passages, "option"))
        return tuple(listed) or self.mentioned_names

    @cached_property
    def mentioned_names(self) -> tuple[str, ...]:
        """The study's names that occur in the passages."""
        return names_in("\n".join(passage.text for passage in self.reading.passages), self.at.names)

    def mind_of(self, persona: str) -> SimulatedRespondent:
        """The mind of another person, by the text of their persona passage, for replies that write
        the parts of several people."""
        return SimulatedRespondent(self.at, self.at.resolve_persona(persona))

    @property
    def is_unpersuaded_by_text(self) -> bool:
        """Whether much was shown beside the question, and no argument in it, to a person of a study
        that names nothing that opinions are about."""
        read = self.reading
        if self.at.names or any(
            argument_sentences(passage.text, (), self.at.lexicon) for passage in read.told
        ):
            return False
        known = content_words(f"{read.about} {' '.join(self.options)}") | ASKING
        shown = {
            word for passage in read.heard_passages for word in content_words(passage.text) - known
        }
        return len(shown) >= MUCH

    def mark_unread(self) -> None:
        """Say that this answer has no relation to what was asked; the run counts such answers."""
        self.finish = FINISH_UNREAD

    # --- opinions --------------------------------------------------------------------------------

    def initial_utilities(self) -> list[float]:
        """u(0): what the person thinks of each option before anything is said (standard deviation
        1.3)."""
        spread = 1 - 0.8 * self.knobs.shrinking_variance
        return [self._option_taste(option, spread) for option in self.options]

    def _option_taste(self, option: str, spread: float = 1.0) -> float:
        # A letter or a number is another option in each question.
        about = self.reading.about if len(option) < MEANINGFUL else ""
        return self.who.option_taste(f"{about} {option}", spread)

    @cached_property
    def current_option(self) -> str:
        """The option that the person holds: the last own answer or utterance that is one of the
        options, else the one liked best; empty without options."""
        return next(reversed(self._own_choices), "") or self._liked_best

    @cached_property
    def _own_choices(self) -> tuple[str, ...]:
        called = {normalise_spaces(option).casefold(): option for option in self.options}
        own = of_kind(self.reading.passages, "utterance", "answer", own=True)
        chosen = (called.get(normalise_spaces(passage.text).casefold()) for passage in own)
        return tuple(filter(None, chosen))

    @cached_property
    def _liked_best(self) -> str:
        tastes = self.initial_utilities()
        return self.options[max(range(len(tastes)), key=tastes.__getitem__)] if tastes else ""

    @cached_property
    def exposure_dose(self) -> ExposureDose:
        """What the person was exposed to in this request."""
        # Whoever has changed sides was moved by the arguments for the new one.
        began_with = next(iter(self._own_choices), "") or self._liked_best
        return dose_of(self.reading.told, self.options, began_with, self.at.lexicon)

    def option_utilities(self) -> list[float]:
        """What the person thinks of each option after all that was read and heard."""
        first = self.initial_utilities()
        u = apply_persuasion(first, self.options, self.exposure_dose, self.who, self.knobs)
        if self.knobs.sycophancy:
            favoured = self._most_favoured_option()
            bonus = 2.5 * self.knobs.sycophancy
            u = [
                x + bonus * (option == favoured) for x, option in zip(u, self.options, strict=True)
            ]
        return u

    def _most_favoured_option(self) -> str:
        """What others favour: the option with most arguments, else the one that they name most."""
        pushed = self.exposure_dose.arguments
        if any(map(sum, pushed.values())):
            return max(pushed, key=lambda option: sum(pushed[option]))
        said = "\n".join(passage.text for passage in self.reading.heard_passages)
        named = count_names(said, self.options).most_common(2)
        clear = named and (len(named) < 2 or named[0][1] > named[1][1])
        return named[0][0] if clear else ""

    def opinion_of_option(self, option: str) -> float:
        """What the person thinks of one option after all that was said (mean about 0, standard
        deviation about 1.3)."""
        return self.option_utilities()[self.options.index(option)]

    def choose_option(self, options: Sequence[str] = (), purpose: str = "choice") -> str:
        """One of the options (left out: all): argmax of utility + position bias + σ·Gumbel."""
        asked = tuple(options) or self.options
        at, knobs = self.at, self.knobs
        if (
            knobs.instability
            and uniform_draw(at.seed, at.address, purpose, "?") < knobs.instability
        ):
            return asked[int(len(asked) * uniform_draw(at.seed, at.address, purpose, "any"))]
        if self._moved_by_length(purpose):
            return min(asked)
        known = dict(zip(self.options, self.option_utilities(), strict=True))
        u = [known[option] if option in known else self._option_taste(option) for option in asked]
        if 1 <= knobs.position <= len(u):
            u[knobs.position - 1] += knobs.position_bias
        noisy = [
            x + knobs.noise * gumbel_draw(at.seed, at.address, purpose, option)
            for x, option in zip(u, asked, strict=True)
        ]
        return asked[max(range(len(noisy)), key=noisy.__getitem__)]

    def _moved_by_length(self, purpose: str) -> bool:
        """Whether the length of what was read decides, whatever it says. The same person is moved
        by any text of that length."""
        knobs, at = self.knobs, self.at
        if not knobs.length_bias:
            return False
        read = sum(len(passage.text) for passage in self.reading.heard_passages)
        chance = knobs.length_bias * min(1.0, read / LONG_READING)
        return uniform_draw(at.seed, self.who.key, purpose, "length") < chance

    def stable_leaning(self, about: str, answer: str = "", part: str = "") -> float:
        """The person's leaning on a question (or to one answer to it, on one part of it), −1 to 1,
        by its content words: the same each time."""
        knobs = self.knobs
        lean = (1 - knobs.shrinking_variance) * self.who.question_lean(about, answer, part)
        lean += 0.15 * self.who.warmth
        return _clip_to_scale(lean + knobs.acquiescence + 0.5 * knobs.sycophancy)

    def draw_rating(self, about: str, answer: str = "", part: str = "") -> float:
        """`stable_leaning` with the noise of one asking, for answers on a scale."""
        at = self.at
        noise = normal_draw(at.seed, at.address, "rating", about, answer, *filter(None, [part]))
        sd = self.knobs.noise + 2 * self.knobs.instability
        return _clip_to_scale(self.stable_leaning(about, answer, part) + sd * noise)

    def draw_judgement(self, about: str, part: str = "") -> float:
        """`rating`, moved towards 1 by the arguments that were read and heard for what is asked:
        those that name nothing, or what the question (`about`) names."""
        matter = content_words(about) - ASKING
        rating = self.draw_rating(" ".join(sorted(matter)) or about, part=part)
        matters = ("", *names_in(about, self.mentioned_names))
        heard = arguments_heard_for(
            matters, self.reading.heard_passages, self.mentioned_names, self.at.lexicon
        )
        return rating + (1 - rating) * persuasion_strength(heard, self.who, self.knobs)

    def choose_on_scale(self, options: tuple[str, ...], about: str, part: str = "") -> str:
        """The answer nearest to the person's leaning on a question, with the noise of one asking;
        empty where the answers form no scale."""
        scale = scale_of(options)
        if not scale:
            return ""
        ends = [place for place in scale if math.isfinite(place)]
        low, high = min(ends), max(ends)
        target = low + (high - low) * (self.draw_judgement(about, part) + 1) / 2
        knobs = self.knobs
        if 1 <= knobs.position <= len(scale) and knobs.position_bias > 0:
            away = scale[knobs.position - 1] - target
            target += math.copysign(min((high - low) * 0.25 * knobs.position_bias, abs(away)), away)
        away_by = [
            abs(place - target) * (SURE if is_unsure(option) else 1)
            for place, option in zip(scale, options, strict=True)
        ]
        return options[away_by.index(min(away_by))]

    def agreement_with(self, text: str, options: tuple[str, ...] = ()) -> float:
        """How far the person agrees with a statement, −1 to 1: by its arguments, by the options
        (left out: all) for which it speaks, by its content words. The same each time."""
        found = argument_counts(text, options or self.options, self.at.lexicon)
        total = [sum(c[key] for c in found.values()) for key in range(3)]
        score = 0.45 * self.stable_leaning(text)
        if any(total):
            score += 0.8 * camp_match(total, self.who.camp) - 0.4
        spoken = [self.who.option_taste(option) for option in found if option]
        if spoken:
            score += 0.5 * math.tanh(sum(spoken) / len(spoken))
        return _clip_to_scale(score + 0.5 * self.knobs.sycophancy)

    def arguments_by_option(self, text: str) -> dict[str, Counts]:
        """Distinct argument words of a text by the option for which they speak, counted by camp."""
        return argument_counts(text, self.options, self.at.lexicon)

    # --- words -----------------------------------------------------------------------------------

    def compose_reasons(self, about: str = "", count: int = 0) -> str:
        """Sentences in the person's voice: reasons for `about` (left out: the option held); where
        there are no options, words about what the question is about. `count` sentences, by default
        as many as the voice likes."""
        matter = about or self.current_option
        if matter:
            return self.tongue.draw_reasons(matter, count)
        if not self.talked_about_matters:
            self.mark_unread()
        return self.tongue.talk(self.talked_about_matters or ("this",), count)

    @cached_property
    def talked_about_matters(self) -> tuple[str, ...]:
        """What is talked about if there are no options: names of the study that occur in the
        passages, else the runs of content words of what is asked; if those are few, also of what
        others said, the last first."""
        if self.mentioned_names:
            return self.mentioned_names
        read = self.reading
        fields = content_words(json.dumps(self.schema).replace("_", " "))
        found: dict[str, None] = {}
        for text in (read.about, *(passage.text for passage in reversed(read.heard_passages))):
            if len(found) < ENOUGH_TOPICS:
                fresh = (text for text in extract_topics(text) if not content_words(text) <= fields)
                found.update(dict.fromkeys(fresh))
        return tuple(found)


def apply_persuasion(
    first: Sequence[float],
    options: Sequence[str],
    dose: ExposureDose,
    who: PersonaTraits,
    knobs: RespondentSettings,
) -> list[float]:
    """u_j += .75·s·κ_j·n_j/(n_j + 8)·match(a_j, r)·exp(−((max u − u_j)/3)²): see
    `persuasion_strength`.

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
        after.append(value + factor * near * persuasion_strength(counts, who, knobs))
    return after


def persuasion_strength(counts: Counts, who: PersonaTraits, knobs: RespondentSettings) -> float:
    """.75·s·κ_read·n/(n + 8)·match(a, r): what n distinct argument words do that were read; a:
    their camps."""
    n = sum(counts)
    kappa = knobs.persuasion * knobs.kappa_read
    read = n / (n + HALF_READ) * camp_match(counts, who.camp)
    return (1 - ANCHOR) * who.susceptibility * kappa * read


def _clip_to_scale(value: float) -> float:
    return max(-1.0, min(1.0, value))
