"""Argument words: the three ways of justifying a choice, and how they are found in a text.

An argument exists for the respondent only where its words stand in the text; it speaks in these
phrases and reads by these words. A study may bring phrases of its own topic (`Part.lexicon`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from folkmoot.files import packaged_yaml

# Share of each camp's phrases in the speech of a member of the camp (rows sum to 1).
MIXTURES = ((0.86, 0.12, 0.02), (0.12, 0.76, 0.12), (0.02, 0.12, 0.86))
Counts = tuple[int, int, int]


class Camp(NamedTuple):
    """One way of justifying. `nouns` fit after "about" and "for", `verbs` after "would" and "to";
    `words` are those of the phrases by which the camp is recognised."""

    name: str
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    words: frozenset[str]


class Lexicon:
    """Three camps with their phrases and words. A word belongs to one camp alone."""

    def __init__(self, camps: Sequence[Camp]) -> None:
        self.camps = tuple(camps)

    @classmethod
    def from_data(cls, data: Mapping[str, Mapping[str, Any]]) -> Lexicon:
        """From `{camp: {nouns: […], verbs: […], words: "one two …"}}`, three of them."""
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
        """Camp of each word."""
        return {word: n for n, camp in enumerate(self.camps) for word in camp.words}

    @cached_property
    def phrase_camps(self) -> dict[str, int]:
        """Camp of each phrase."""
        return {
            part.lower(): n
            for n, camp in enumerate(self.camps)
            for part in (*camp.nouns, *camp.verbs)
        }

    @cached_property
    def all_verbs(self) -> frozenset[str]:
        return frozenset(verb.lower() for camp in self.camps for verb in camp.verbs)

    @cached_property
    def any_word(self) -> re.Pattern[str]:
        """Any argument word, in lower case."""
        return re.compile(rf"\b(?:{'|'.join(sorted(self.camp_of))})\b")

    @cached_property
    def any_phrase(self) -> re.Pattern[str]:
        """Any phrase, in lower case."""
        longest_first = sorted(self.phrase_camps, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


@cache
def general_lexicon() -> Lexicon:
    """The phrases of public choices, for studies that bring none of their own."""
    return Lexicon.from_data(packaged_yaml(__file__, "lexicon.yaml"))


def camp_match(counts: Sequence[float], camp: int) -> float:
    """How well reasons fit a listener of `camp`: 1 for the mix in which the listener speaks, 0 for
    none. Their shares weighted by the listener's mixture, relative to that mixture itself."""
    total = sum(counts)
    if not total:
        return 0.0
    own = MIXTURES[camp]
    fit = sum(n * w for n, w in zip(counts, own, strict=True)) / total
    return min(1.0, fit / sum(w * w for w in own))
