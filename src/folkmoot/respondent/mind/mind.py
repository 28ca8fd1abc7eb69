"""`SimulatedRespondent`: the opinions and decisions of one speaker for one reply.

docs/respondent.md gives the formulas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from folkmoot.hints import collapse_spaces
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
from folkmoot.respondent.mind.passages import Passage, of_kind
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
)
from folkmoot.respondent.mind.scales import is_unsure, scale_of
from folkmoot.respondent.mind.speech import SentenceGenerator

# An answer such as "I do not know" counts as this many times farther from the person's judgement.
# So only persons very near the middle of the scale give it.
SURE = 4
# With this many topics from the question, those of other speakers are not used.
ENOUGH_TOPICS = 3
# A shorter option is a letter or a number, which means something only within its question.
MEANINGFUL = 3
# Characters of text from which `length_bias` has its full chance.
LONG_READING = 1500
# Content words besides the question from which a request counts as showing a long text.
MUCH = 12


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """Everything on which one reply depends."""

    # Several persons may be played in a reply.

    reading: PromptReading
    # The options or proposals of the study that opinions are about.
    names: tuple[str, ...]
    lexicon: Lexicon
    knobs: RespondentSettings
    seed: int
    address: str
    # Returns the traits of a person from a description.
    resolve_persona: Callable[[str], PersonaTraits]


class SimulatedRespondent:
    """The simulated speaker of one reply.

    - `person`: False for a role without opinions, such as moderator, summarizer or coder.

    Study types compute answers with methods such as `mind.choose_option()`.
    """

    def __init__(
        self, context: ReplyContext, persona: PersonaTraits, *, is_participant: bool = True
    ) -> None:
        self.at = context
        self.who = persona
        self.person = is_participant
        self.reading = context.reading
        self.knobs = context.knobs
        self.finish = "stop"
        self.draws = Draws(context.seed, context.address, persona.key)
        # Only the last six own utterances: a long conversation would otherwise use up all frames.
        earlier_text = " ".join(passage.text for passage in context.reading.own_utterances[-6:])
        self.speech = SentenceGenerator(persona, context.lexicon, self.draws, earlier_text)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the answer, or {} if there is none."""
        return self.reading.schema or {}

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The options on which the person has opinions in this request."""
        # The first of these that exists counts: the options that the question offers, the options
        # that the request quotes, the option names that its passages mention.
        reading = self.reading
        if reading.kind == "choice" and reading.offered:
            return reading.offered
        options = dict.fromkeys(passage.text for passage in of_kind(reading.passages, "option"))
        return tuple(options) or self.mentioned_names

    @cached_property
    def mentioned_names(self) -> tuple[str, ...]:
        """The names from `RespondentPart.option_names` that occur in passages of the request."""
        return names_in("\n".join(passage.text for passage in self.reading.passages), self.at.names)

    def mind_of(self, persona: str) -> SimulatedRespondent:
        """Return a respondent that answers as the person whom the text `persona` describes.

        Use this method if one reply contains utterances of several people.
        """
        return SimulatedRespondent(self.at, self.at.resolve_persona(persona))

    def shown_passages(self, *columns: str) -> list[Passage]:
        """Return the passages that quote a table column or a key of the study file, in order.

        - `columns`: for example "items.text", or "study.guide".
        """
        return [
            passage
            for passage in self.reading.passages
            if passage.source.id.partition("/")[0] in columns
        ]

    def shown_text(self, column: str) -> str:
        """Return the last passage that quotes a column, or "" if there is none."""
        passages = self.shown_passages(column)
        return passages[-1].text if passages else ""

    @property
    def is_unpersuaded_by_text(self) -> bool:
        """True if the request shows a long text in which the lexicon recognises no argument."""
        # Always False if the study type names the options that opinions are about.
        reading = self.reading
        if self.at.names or any(
            argument_sentences(passage.text, (), self.at.lexicon) for passage in reading.told
        ):
            return False
        expected_words = content_words(f"{reading.about} {' '.join(self.options)}") | ASKING
        new_words = {
            word
            for passage in reading.heard_passages
            for word in content_words(passage.text) - expected_words
        }
        return len(new_words) >= MUCH

    def mark_unread(self) -> None:
        """Record that this answer has no relation to the question."""
        # The run counts such answers.
        self.finish = FINISH_UNREAD

    # --- opinions --------------------------------------------------------------------------------

    def initial_utilities(self) -> list[float]:
        """Return how much the person likes each option before reading the request."""
        spread = 1 - 0.8 * self.knobs.shrinking_variance
        return [self._option_taste(option, spread) for option in self.options]

    def _option_taste(self, option: str, spread: float = 1.0) -> float:
        # "A" is another option in each question, so its utility depends on the question as well.
        about = self.reading.about if len(option) < MEANINGFUL else ""
        return self.who.option_taste(f"{about} {option}", spread)

    @cached_property
    def current_option(self) -> str:
        """The option that the person chose last. Before the first choice: the best-liked option.

        "" if there are no options.
        """
        # The person likes the option with the highest initial utility best.
        return next(reversed(self._own_choices), "") or self._liked_best

    @cached_property
    def _own_choices(self) -> tuple[str, ...]:
        option_by_text = {collapse_spaces(option).casefold(): option for option in self.options}
        own_passages = of_kind(self.reading.passages, "utterance", "answer", own=True)
        choices = (
            option_by_text.get(collapse_spaces(passage.text).casefold()) for passage in own_passages
        )
        return tuple(filter(None, choices))

    @cached_property
    def _liked_best(self) -> str:
        tastes = self.initial_utilities()
        return self.options[max(range(len(tastes)), key=tastes.__getitem__)] if tastes else ""

    @cached_property
    def exposure_dose(self) -> ExposureDose:
        """The arguments in this request that support options other than the preferred option."""
        # The person prefers the first option that was chosen, or before any choice the one that the
        # person likes best.
        # Use the first own choice, not the current option: a person who has changed the choice was
        # moved by the arguments for the new option, so these must count.
        first_option = next(iter(self._own_choices), "") or self._liked_best
        return dose_of(self.reading.told, self.options, first_option, self.at.lexicon)

    def option_utilities(self) -> list[float]:
        """Return the utility of each option after the person has read the request."""
        initial = self.initial_utilities()
        utilities = apply_persuasion(
            initial, self.options, self.exposure_dose, self.who, self.knobs
        )
        if self.knobs.sycophancy:
            favoured = self._most_favoured_option()
            bonus = 2.5 * self.knobs.sycophancy
            utilities = [
                utility + bonus * (option == favoured)
                for utility, option in zip(utilities, self.options, strict=True)
            ]
        return utilities

    def _most_favoured_option(self) -> str:
        # "" if it is unclear. If other speakers give no arguments, the option that they name most
        # often.
        arguments = self.exposure_dose.arguments
        if any(map(sum, arguments.values())):
            return max(arguments, key=lambda option: sum(arguments[option]))
        heard_text = "\n".join(passage.text for passage in self.reading.heard_passages)
        counts = count_names(heard_text, self.options).most_common(2)
        has_clear_winner = counts and (len(counts) < 2 or counts[0][1] > counts[1][1])
        return counts[0][0] if has_clear_winner else ""

    def choose_option(self, options: Sequence[str] = (), purpose: str = "choice") -> str:
        """Return one of the options, chosen by utility, position bias and random noise.

        - `options`: the options to choose from. The default is all options of the question.
        - `purpose`: the name of the random draw. Needed if one reply makes several choices.
        """
        asked_options = tuple(options) or self.options
        at, knobs = self.at, self.knobs
        if (
            knobs.instability
            and uniform_draw(at.seed, at.address, purpose, "?") < knobs.instability
        ):
            return asked_options[
                int(len(asked_options) * uniform_draw(at.seed, at.address, purpose, "any"))
            ]
        if self._moved_by_length(purpose):
            # Any fixed option serves, as long as it does not depend on the content of the texts.
            return min(asked_options)
        utility_of = dict(zip(self.options, self.option_utilities(), strict=True))
        utilities = [
            utility_of[option] if option in utility_of else self._option_taste(option)
            for option in asked_options
        ]
        if 1 <= knobs.position <= len(utilities):
            utilities[knobs.position - 1] += knobs.position_bias
        noisy_utilities = [
            utility + knobs.noise * gumbel_draw(at.seed, at.address, purpose, option)
            for utility, option in zip(utilities, asked_options, strict=True)
        ]
        return asked_options[max(range(len(noisy_utilities)), key=noisy_utilities.__getitem__)]

    def _moved_by_length(self, purpose: str) -> bool:
        # The draw does not depend on the condition, so a person reacts equally to texts of equal
        # length.
        knobs, at = self.knobs, self.at
        if not knobs.length_bias:
            return False
        read_characters = sum(len(passage.text) for passage in self.reading.heard_passages)
        chance = knobs.length_bias * min(1.0, read_characters / LONG_READING)
        return uniform_draw(at.seed, self.who.key, purpose, "length") < chance

    def stable_leaning(self, about: str, answer: str = "", part: str = "") -> float:
        """Return the person's tendency on a question, from −1 (against) to 1 (in favour).

        - `about`: the question.
        - `answer`: the possible answer that is rated, if the question has several answers.
        - `part`: the part of the question that is rated, if the question has several parts.

        The result is the same in every reply to this question.
        """
        knobs = self.knobs
        leaning = (1 - knobs.shrinking_variance) * self.who.question_lean(about, answer, part)
        leaning += 0.15 * self.who.warmth
        return _clip_to_scale(leaning + knobs.acquiescence + 0.5 * knobs.sycophancy)

    def draw_rating(self, about: str, answer: str = "", part: str = "") -> float:
        """Return the person's tendency on a question, with random noise in each reply.

        The parameters have the same meaning as in `stable_leaning`.
        """
        at = self.at
        noise = normal_draw(at.seed, at.address, "rating", about, answer, *filter(None, [part]))
        sd = self.knobs.noise + 2 * self.knobs.instability
        return _clip_to_scale(self.stable_leaning(about, answer, part) + sd * noise)

    def draw_judgement(self, about: str, part: str = "") -> float:
        """Return the person's judgement on a question, from −1 to 1.

        The person has read the arguments in the request.

        - `about`: the question.
        - `part`: the part of the question that is judged, if the question has several parts.
        """
        # It is the person's tendency (`draw_rating`), moved up by arguments that other speakers
        # gave. Arguments for options that the question does not name do not count.
        question_words = content_words(about) - ASKING
        rating = self.draw_rating(" ".join(sorted(question_words)) or about, part=part)
        options = ("", *names_in(about, self.mentioned_names))
        counts = arguments_heard_for(
            options, self.reading.heard_passages, self.mentioned_names, self.at.lexicon
        )
        return rating + (1 - rating) * persuasion_strength(counts, self.who, self.knobs)

    def choose_on_scale(self, options: tuple[str, ...], about: str, part: str = "") -> str:
        """Return the answer of a rating scale that is nearest to the person's judgement.

        - `options`: the answers of the scale.
        - `about`: the question.
        - `part`: the part of the question that is judged, if the question has several parts.

        Returns "" if the answers form no rating scale.
        """
        scale = scale_of(options)
        if not scale:
            return ""
        finite_places = [place for place in scale if math.isfinite(place)]
        low, high = min(finite_places), max(finite_places)
        target = low + (high - low) * (self.draw_judgement(about, part) + 1) / 2
        knobs = self.knobs
        # The simulated position bias moves the target towards the favoured place, not past it.
        if 1 <= knobs.position <= len(scale) and knobs.position_bias > 0:
            distance = scale[knobs.position - 1] - target
            target += math.copysign(
                min((high - low) * 0.25 * knobs.position_bias, abs(distance)), distance
            )
        distances = [
            # "Unsure" is chosen only if it is nearest by far.
            abs(place - target) * (SURE if is_unsure(option) else 1)
            for place, option in zip(scale, options, strict=True)
        ]
        return options[distances.index(min(distances))]

    def agreement_with(self, text: str, options: tuple[str, ...] = ()) -> float:
        """Return how far the person agrees with a statement, from −1 to 1.

        - `text`: the statement.
        - `options`: the options that the statement may support. The default is all options of the
          question.

        The result has no random noise.
        """
        # It depends on the statement's arguments, the options that it supports, and its content
        # words.
        counts_by_option = argument_counts(text, options or self.options, self.at.lexicon)
        total = [sum(counts[camp] for counts in counts_by_option.values()) for camp in range(3)]
        # We chose these weights. Arguments count more than the leaning on the words of the
        # statement.
        score = 0.45 * self.stable_leaning(text)
        if any(total):
            score += 0.8 * camp_match(total, self.who.camp) - 0.4
        tastes = [self.who.option_taste(option) for option in counts_by_option if option]
        if tastes:
            score += 0.5 * math.tanh(math.fsum(tastes) / len(tastes))
        return _clip_to_scale(score + 0.5 * self.knobs.sycophancy)

    def arguments_by_option(self, text: str) -> dict[str, Counts]:
        """Return how many distinct words of a text argue for each option.

        An option has three numbers, one for each camp. A camp is a way to justify choices.
        """
        return argument_counts(text, self.options, self.at.lexicon)

    # --- words -----------------------------------------------------------------------------------

    def compose_reasons(self, about: str = "", count: int = 0) -> str:
        """Return sentences with the person's reasons for an option.

        - `about`: the option. The default is the current option.
        - `count`: the number of sentences. With 0, the number depends on how the person speaks.
        """
        # Without options, the sentences only talk about topics of the question.
        matter = about or self.current_option
        if matter:
            return self.speech.draw_reasons(matter, count)
        if not self.talked_about_matters:
            self.mark_unread()
        return self.speech.talk(self.talked_about_matters or ("this",), count)

    @cached_property
    def talked_about_matters(self) -> tuple[str, ...]:
        """The topics that the person talks about if the question has no options."""
        # If the request contains names of options, it is those names. Otherwise it is short groups
        # of words from the question. If these are few, those of other speakers follow.
        if self.mentioned_names:
            return self.mentioned_names
        reading = self.reading
        field_words = content_words(json.dumps(self.schema).replace("_", " "))
        topics: dict[str, None] = {}
        for text in (
            reading.about,
            *(passage.text for passage in reversed(reading.heard_passages)),
        ):
            if len(topics) < ENOUGH_TOPICS:
                new_topics = (
                    topic
                    for topic in extract_topics(text)
                    if not content_words(topic) <= field_words
                )
                topics.update(dict.fromkeys(new_topics))
        return tuple(topics)


def apply_persuasion(
    initial: Sequence[float],
    options: Sequence[str],
    dose: ExposureDose,
    persona: PersonaTraits,
    knobs: RespondentSettings,
) -> list[float]:
    """Return the utilities of all options after persuasion by arguments.

    - `initial`: the utilities before persuasion.
    - `dose`: the arguments that the person has read or heard.
    """
    # Arguments for an option raise its utility, most if the option was already liked. They count
    # more after an interview, and more if the person replied to them in a conversation.
    if not dose.arguments or not knobs.persuasion:
        return list(initial)
    # For option j: u_j += f_j·exp(−((max u − u_j)/3)²)·P_j, where P_j is the `persuasion_strength`
    # of the arguments for j. f_j is `factor_interviewed` after an interview, otherwise 1. If the
    # person answered arguments for j in t turns, f_j is multiplied by
    # 1 + (`factor_addressed` − 1)·t/(t + 1).
    highest = max(initial)
    utilities = []
    for value, option in zip(initial, options, strict=True):
        counts, turn_count = dose.arguments.get(option, (0, 0, 0)), dose.turns.get(option, 0)
        factor = knobs.factor_interviewed if dose.interviewed else 1.0
        factor *= 1 + (knobs.factor_addressed - 1) * turn_count / (turn_count + HALF_TURNS)
        closeness = math.exp(-(((highest - value) / DISTANCE) ** 2))
        utilities.append(value + factor * closeness * persuasion_strength(counts, persona, knobs))
    return utilities


def persuasion_strength(counts: Counts, persona: PersonaTraits, knobs: RespondentSettings) -> float:
    """Return by how much argument words for an option raise the utility of the option.

    - `counts`: the number of distinct argument words of each camp.
    """
    # Words of the person's own camp persuade more.
    # .75·s·κ_read·n/(n + 8)·match(a, r). s: the person's susceptibility. κ_read: the setting
    # `kappa_read`. n: the number of distinct argument words. match: `camp_match`, where a are the
    # shares of the camps in `counts`, and r is the person's camp.
    n = sum(counts)
    kappa = knobs.persuasion * knobs.kappa_read
    match = n / (n + HALF_READ) * camp_match(counts, persona.camp)
    return (1 - ANCHOR) * persona.susceptibility * kappa * match


def _clip_to_scale(value: float) -> float:
    return max(-1.0, min(1.0, value))
