"""Read a request: find the speaker, the passages, and the arguments in the passages.

A passage is a text of known source, such as a quoted utterance. All other text is ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from folkmoot.hints import collapse_spaces
from folkmoot.models.request import ModelRequest
from folkmoot.provenance import UNATTRIBUTED
from folkmoot.respondent.mind.lexicon import Counts, Lexicon
from folkmoot.respondent.mind.passages import (
    TOLD,
    Passage,
    in_order_of_speech,
    of_kind,
    passages_of,
    persona_of,
    text_outside,
)

# The end of a sentence, with any closing quotation marks and brackets.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
# Only these kinds of passages address the person. Study material calls for no answer, so it counts
# as no turn.
_SAID_TO_SOMEONE = ("utterance", UNATTRIBUTED)
# Argument words from which a sentence is an argument. A single one may occur by chance.
ENOUGH_WORDS = 2


@dataclass(frozen=True)
class PromptReading:
    """Everything that the embedded respondent reads in one request.

    The docstring of `folkmoot.respondent` describes most fields.
    """

    role: str
    kind: str
    speaker: str
    about: str
    persona: str
    # The text of unknown source in the system message. It determines the person if no passage is a
    # persona.
    described: str
    passages: tuple[Passage, ...]
    # The passages that can contain arguments.
    told: tuple[Passage, ...]
    offered: tuple[str, ...]
    signal: str
    schema: Mapping[str, object] | None
    total: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def number_bounds(self) -> tuple[float, float, bool] | None:
        """The bounds of the asked number, as (lowest, highest, whole numbers only).

        None if the question has no such bounds.
        """
        if self.kind != "number" or len(self.offered) != 2:
            return None
        low, high = map(float, self.offered)
        return low, high, low.is_integer() and high.is_integer()

    @cached_property
    def heard_passages(self) -> tuple[Passage, ...]:
        """The passages of other speakers that can contain arguments."""
        return tuple(passage for passage in self.told if not passage.own)

    @cached_property
    def own_utterances(self) -> tuple[Passage, ...]:
        """The earlier utterances of the speaker who is asked."""
        # Answers such as a choice are not utterances.
        return tuple(of_kind(self.told, "utterance", own=True))


def read_prompt(request: ModelRequest) -> PromptReading:
    """Return the parts of a request that the embedded respondent reads."""
    hints = request.hints
    passages = passages_of(request)
    has_system_message = bool(request.messages) and request.messages[0].role == "system"
    described = [
        passage
        for passage in of_kind(passages, UNATTRIBUTED)
        if has_system_message and not passage.message
    ]
    return PromptReading(
        role=hints.role,
        kind=hints.kind or ("json" if request.schema else ""),
        speaker=hints.speaker,
        about=hints.about or text_outside(request),
        persona="\n".join(persona_of(passages, hints.speaker)),
        described="\n".join(passage.text for passage in described),
        passages=passages,
        # A passage inside another one is read as part of it, so it must not be counted twice.
        told=tuple(
            passage
            for passage in of_kind(passages, *TOLD)
            if not passage.inner and passage not in described
        ),
        offered=hints.offered,
        signal=hints.signal,
        schema=request.schema,
        total=hints.total,
        names=dict(hints.names),
    )


# --- names and arguments in a text ---------------------------------------------------------------


@lru_cache(maxsize=1024)
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    # A name of one letter must have the same case, because "a" is a word.
    patterns = (r"\s+".join(map(re.escape, name.split())) for name in longest_first)
    alternatives = "|".join(
        f"(?-i:{pattern})" if len(pattern) == 1 else pattern for pattern in patterns
    )
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)


@lru_cache(maxsize=2048)
def count_names(text: str, names: tuple[str, ...]) -> Counter[str]:
    """Return how often each name occurs in a text."""
    # Case and white space are ignored. An occurrence inside a longer name does not count.
    name_by_text = {collapse_spaces(name).casefold(): name for name in names}
    return Counter(
        name_by_text[collapse_spaces(match).casefold()] for match in _any_of(names).findall(text)
    )


def names_in(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that occur in a text."""
    # Names inside longer names count too.
    given_names = tuple(name for name in dict.fromkeys(names) if name.strip())
    texts_found = (
        [collapse_spaces(name).casefold() for name in count_names(text, given_names)]
        if given_names
        else []
    )
    return tuple(
        name
        for name in given_names
        if any(collapse_spaces(name).casefold() in text_found for text_found in texts_found)
    )


class _Parts(NamedTuple):
    # The pairs are (position, text).
    # The position of a name is its end.
    named: tuple[tuple[int, str], ...]
    # The position of a word is its start.
    words: tuple[tuple[int, str], ...]

    def option(self, position: int, before: str) -> str:
        # The last option named before the argument word. If there is none, the first option of the
        # sentence, or otherwise `before` (the last option in earlier sentences).
        names_before = [name for end, name in self.named if end <= position]
        return names_before[-1] if names_before else self.named[0][1] if self.named else before


@lru_cache(maxsize=4096)
def _sentence_parts(sentence: str, names: tuple[str, ...], lexicon: Lexicon) -> _Parts:
    name_ends: list[tuple[int, str]] = []
    without_names = sentence
    if names:
        name_by_text = {collapse_spaces(name).casefold(): name for name in names}
        matches = _any_of(names).finditer(sentence)
        name_ends = [
            (match.end(), name_by_text[collapse_spaces(match[0]).casefold()]) for match in matches
        ]
        # Replace names by spaces, so that an option called "safety" is no argument for itself.
        # Positions stay the same.
        without_names = (
            _any_of(names).sub(lambda match: " " * len(match[0]), sentence)
            if name_ends
            else sentence
        )
    words = tuple(
        (match.start(), match[0]) for match in lexicon.any_word.finditer(without_names.lower())
    )
    return _Parts(tuple(name_ends), words)


@lru_cache(maxsize=4096)
def _sentence_phrases(sentence: str, lexicon: Lexicon) -> tuple[tuple[int, str], ...]:
    return tuple(
        (match.start(), match[0]) for match in lexicon.any_phrase.finditer(sentence.lower())
    )


def _iterate_sentences(
    text: str, names: tuple[str, ...], lexicon: Lexicon
) -> Iterator[tuple[str, _Parts, str]]:
    # The last item is the last option named in earlier sentences.
    before = ""
    for raw in _SENTENCE_END.split(text):
        parts = _sentence_parts(raw, names, lexicon)
        yield raw, parts, before
        before = parts.named[-1][1] if parts.named else before


@lru_cache(maxsize=2048)
def argument_sentences(
    text: str, names: tuple[str, ...], lexicon: Lexicon
) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """Return, for each sentence of a text, the argument words that support each option.

    Words that support no option in `names` are under the key "".
    """
    # Sentences without an argument are left out.
    sentences = []
    for _, parts, before in _iterate_sentences(text, names, lexicon):
        if len(parts.words) >= ENOUGH_WORDS:
            by_option: dict[str, list[str]] = {}
            for position, word in parts.words:
                by_option.setdefault(parts.option(position, before), []).append(word)
            sentences.append({option: tuple(words) for option, words in by_option.items()})
    return tuple(sentences)


@lru_cache(maxsize=2048)
def argument_phrases(
    text: str, names: tuple[str, ...], lexicon: Lexicon
) -> Mapping[str, Counter[str]]:
    """Return, for each option, how often each argument phrase of a text supports the option.

    Phrases that support no option in `names` are under the key "".
    """
    phrases: dict[str, Counter[str]] = {}
    for raw, parts, before in _iterate_sentences(text, names, lexicon):
        for position, phrase in _sentence_phrases(raw, lexicon) if parts.words else ():
            phrases.setdefault(parts.option(position, before), Counter())[phrase] += 1
    return phrases


def argument_counts(text: str, names: tuple[str, ...], lexicon: Lexicon) -> dict[str, Counts]:
    """Return how many distinct words of a text argue for each option.

    An option has three numbers, one for each camp. A camp is a way to justify choices. Words that
    support no option in `names` are under the key "".
    """
    words: dict[str, set[str]] = {}
    for sentence in argument_sentences(text, names, lexicon):
        for option, option_words in sentence.items():
            words.setdefault(option, set()).update(option_words)
    return {option: by_camp(option_words, lexicon) for option, option_words in words.items()}


def by_camp(words: Sequence[str] | set[str], lexicon: Lexicon) -> Counts:
    counts = [0, 0, 0]
    for word in words:
        counts[lexicon.camp_of[word]] += 1
    return counts[0], counts[1], counts[2]


@dataclass(frozen=True)
class ExposureDose:
    """The arguments to which a person was exposed, for options other than the person's choice."""

    # Option → number of distinct argument words in each camp (way to justify choices).
    arguments: Mapping[str, Counts]
    # Option → number of turns in which the person replied to an argument for it.
    turns: Mapping[str, int]
    # True if the person spoke in some conversation before others gave arguments.
    interviewed: bool


def dose_of(
    told: Sequence[Passage], names: tuple[str, ...], held_option: str, lexicon: Lexicon
) -> ExposureDose:
    """Return the arguments to which a person was exposed, for options other than `held_option`.

    - `told`: the passages that can contain arguments.
    - `names`: the names of all options.
    """
    # `held_option` is the option that the person prefers.
    words: dict[str, set[str]] = {}
    turns: dict[str, int] = {}
    interviewed = False
    for conversation in in_order_of_speech(told):
        # `last_option` is the option of the last argument of another speaker. `last_speaker` makes
        # several own utterances in a row one turn.
        last_option, last_speaker = "", ""
        for passage in conversation:
            if passage.own:
                if passage.source.kind != "utterance" or not passage.text.strip():
                    continue
                if last_speaker != "own" and last_option:
                    turns[last_option] = turns.get(last_option, 0) + 1
                elif last_speaker != "own":
                    interviewed = True
                last_option, last_speaker = "", "own"
                continue
            for sentence in argument_sentences(passage.text, names, lexicon):
                for option, option_words in sentence.items():
                    if option not in ("", held_option):
                        words.setdefault(option, set()).update(option_words)
                        if passage.source.kind in _SAID_TO_SOMEONE:
                            last_option, last_speaker = option, "other"
    return ExposureDose(
        {option: by_camp(option_words, lexicon) for option, option_words in words.items()},
        turns,
        interviewed,
    )


def arguments_heard_for(
    options: Sequence[str], passages: Sequence[Passage], names: tuple[str, ...], lexicon: Lexicon
) -> Counts:
    """Return how many distinct words in passages argue for any of `options`.

    The result has three numbers, one for each camp. A camp is a way to justify choices.

    - `names`: the names of all options.
    """
    sentences = (
        sentence
        for passage in passages
        for sentence in argument_sentences(passage.text, names, lexicon)
    )
    return by_camp(
        {word for sentence in sentences for option in options for word in sentence.get(option, ())},
        lexicon,
    )
