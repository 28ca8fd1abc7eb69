"""The argument words of three camps.

A camp is one way to justify a choice, such as caution.
"""
# The respondent argues with the phrases of a camp. It recognises arguments of other speakers by the
# words of a camp. A study type may provide a lexicon for its topic (`RespondentPart.lexicon`).

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from folkmoot.files import packaged_yaml

# One row per camp: the shares of the three camps' phrases in the speech of its members. Each row
# sums to 1. docs/respondent.md states them, and a change needs a new version in `MODEL_SERVED`.
MIXTURES = ((0.86, 0.12, 0.02), (0.12, 0.76, 0.12), (0.02, 0.12, 0.86))
Counts = tuple[int, int, int]


class Camp(NamedTuple):
    """One way to justify a choice, with its vocabulary."""

    name: str
    # Phrases that fit after "about" and "for".
    nouns: tuple[str, ...]
    # Phrases that fit after "would" and "to".
    verbs: tuple[str, ...]
    # The words by which the respondent recognises the camp.
    words: frozenset[str]


class Lexicon:
    """The vocabulary of three ways to justify a choice.

    Each way is called a camp. A word belongs to one camp only.
    """

    def __init__(self, camps: Sequence[Camp]) -> None:
        self.camps = tuple(camps)

    @classmethod
    def from_data(cls, data: Mapping[str, Mapping[str, Any]]) -> Lexicon:
        """Return a lexicon that is given as a mapping from three camps to their vocabulary.

        Example of the mapping:

            {"caution": {"nouns": ["high risks"], "verbs": ["fail"], "words": "risks fail"}, …}
        """
        return cls(
            [
                Camp(
                    name,
                    tuple(code["nouns"]),
                    tuple(code["verbs"]),
                    frozenset(code["words"].lower().split()),
                )
                for name, code in data.items()
            ]
        )

    @cached_property
    def camp_of(self) -> dict[str, int]:
        """For each word, the index of the camp (way to justify a choice) that uses the word."""
        return {word: index for index, camp in enumerate(self.camps) for word in camp.words}

    @cached_property
    def phrase_camps(self) -> dict[str, int]:
        """For each phrase, the index of the camp (way to justify a choice) that uses the phrase."""
        return {
            phrase.lower(): index
            for index, camp in enumerate(self.camps)
            for phrase in (*camp.nouns, *camp.verbs)
        }

    @cached_property
    def all_verbs(self) -> frozenset[str]:
        return frozenset(verb.lower() for camp in self.camps for verb in camp.verbs)

    @cached_property
    def any_word(self) -> re.Pattern[str]:
        """The pattern that matches any argument word in lower-case text."""
        return re.compile(rf"\b(?:{'|'.join(sorted(self.camp_of))})\b")

    @cached_property
    def any_phrase(self) -> re.Pattern[str]:
        """The pattern that matches any argument phrase in lower-case text."""
        # Longer phrases match first.
        longest_first = sorted(self.phrase_camps, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


@cache
def general_lexicon() -> Lexicon:
    """Return the default lexicon, for study types that declare none."""
    # Its phrases are about public choices.
    return Lexicon.from_data(packaged_yaml(__file__, "lexicon.yaml"))


def camp_match(counts: Sequence[float], camp: int) -> float:
    """Return how well arguments suit a person of one camp, from 0 to 1.

    - `counts`: the number of argument words of each camp.

    A camp is one way to justify a choice, such as caution.
    """
    # The result is 1 if the argument words have the proportions that a person of this camp uses. It
    # is 0 if there are no arguments.
    total = sum(counts)
    if not total:
        return 0.0
    mixture = MIXTURES[camp]
    fit = math.fsum(count * weight for count, weight in zip(counts, mixture, strict=True)) / total
    return min(1.0, fit / math.fsum(weight * weight for weight in mixture))
