"""Find the product and the participants' views in a prompt.

The built-in rules that answer in place of a model use this module. A view is a word for or against
the product in a first-person sentence.
"""
# The module `respondent` forms opinions from them.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot.files import packaged_yaml
from folkmoot.hints import collapse_spaces
from folkmoot.respondent import Passage, SimulatedRespondent, of_kind
from folkmoot.respondent.mind.passages import last_key
from folkmoot.studies.focus_group import texts
from folkmoot.studies.focus_group.discussion import MODERATOR


@cache
def load_wordings() -> Mapping[str, Any]:
    """Return the concerns and sentences in `respondent.yaml`."""
    # The file is beside this folder, because most of its sentences are for `respondent`.
    wordings: Mapping[str, object] = packaged_yaml(str(Path(__file__).parent), "respondent.yaml")
    return wordings


class View(NamedTuple):
    """A word for or against the product, and the concern that the word is about."""

    # `side` is 1 for and −1 against.

    concern: str
    side: int
    word: str


@cache
def _words_by_side() -> dict[str, tuple[str, int]]:
    return {
        word: (concern, side)
        for concern, words_by_key in load_wordings()["concerns"].items()
        for key, side in (("pro", 1), ("con", -1))
        for word in words_by_key[key]
    }


# A negation turns a word that follows it within five words.
_NEGATION_BEFORE = re.compile(
    r"(?:\b(?:no|not|never|without|hardly|nobody|cannot)|n['’]t)(?:\W+\w+){0,5}\W*$"
)
FIRST_PERSON = re.compile(r"\b(?:I|I['’](?:m|d|ve|ll)|[Mm]e|[Mm]y|[Mm]yself)\b")


@lru_cache(maxsize=16384)
def sentence_views(sentence: str) -> tuple[View, ...]:
    """Return the words for or against the product in a sentence."""
    # A negation reverses the side of a word that follows it. In a first-person sentence, quoted
    # text does not count, because the speaker repeats the words of others.
    views = []
    if FIRST_PERSON.search(sentence):
        sentence = re.sub("“[^”]*”", " ", sentence)
    for match in re.finditer(r"[A-Za-z-]+", sentence):
        if concern_and_side := _words_by_side().get(match[0].lower()):
            clause = re.split(r"[,;:.]", sentence[: match.start()])[-1]
            is_negated = bool(_NEGATION_BEFORE.search(clause.lower()))
            views.append(
                View(
                    concern_and_side[0],
                    -concern_and_side[1] if is_negated else concern_and_side[1],
                    match[0].lower(),
                )
            )
    return tuple(views)


_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")


def split_sentences(text: str) -> list[str]:
    """Split a text at the ends of sentences and lines."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


class Product(NamedTuple):
    """The facts about the product that the prompt shows."""

    described: str
    material: str
    category: str
    price: str
    # True if the price is one of the ladder. The first opinion was formed without that price.
    on_ladder: bool

    @property
    def texts(self) -> list[str]:
        return [text for text in (self.described, self.material) if text]

    @property
    def concept_text(self) -> str:
        """The concept for use in a sentence, or "this" if the prompt has no concept."""
        return self.described.strip().rstrip(".") or "this"

    @property
    def product_noun(self) -> str:
        """The product's noun with an article, such as "the oven".

        Returns "it" if no noun is found.
        """
        head = re.split(
            r"\b(?:that|which|who|with|without|for|of|by|to|in|from|made|where|on|at|and)\b|[,;:(.]",
            self.concept_text,
        )[0].split()
        noun = head[-1] if head else ""
        return f"the {noun}" if noun and noun.lower() not in ("a", "an", "the", "this") else "it"

    @property
    def claims(self) -> list[str]:
        """Short sentences from the material that speak for or against the product."""
        phrases = [phrase.rstrip(".!") for phrase in re.split(r"[:;\n]|(?<=\.)\s", self.material)]
        return [
            phrase.strip()
            for phrase in phrases
            if 2 <= len(phrase.split()) <= 9 and sentence_views(phrase)
        ]


# The lookbehinds keep the time linear in a long run of digits.
_PRICE_PATTERN = re.compile(
    r"[$€£]\s?\d[\d,.]*\d|"
    r"(?<!\d)(?<!\d[,.])\d[\d,.]*\s?(?:[$€£]|dollars?|euros?|pounds?|USD|EUR)\b"
)


def read_product(mind: SimulatedRespondent) -> Product:
    """Return the product of a request, with the price that the prompt asks about."""
    # If the prompt asks about none, the price is the product's own, or the last one in the texts.
    described, material = mind.shown_text(texts.CONCEPT), mind.shown_text(texts.MATERIAL)
    ladder_price = mind.shown_text(texts.LADDER)
    named_prices = _PRICE_PATTERN.findall(f"{described} {material}")
    price = (
        ladder_price or mind.shown_text(texts.PRICE) or (named_prices[-1] if named_prices else "")
    )
    category = mind.shown_text(texts.CATEGORY) or "this"
    return Product(described, material, category, price, bool(ladder_price))


def talk_passages(mind: SimulatedRespondent) -> list[Passage]:
    """Return the distinct utterances of the discussion or interview, in order."""
    passages: dict[str, Passage] = {}
    for passage in of_kind(mind.reading.passages, "utterance"):
        if texts.stage_of(passage.source.id) not in (texts.PLANNING, texts.FIRST_OPINION):
            passages.setdefault(passage.source.id, passage)
    return list(passages.values())


def own_words(mind: SimulatedRespondent) -> list[str]:
    """Return the respondent's own utterances in the discussion, in order."""
    return [passage.text for passage in talk_passages(mind) if passage.own]


def passages_since(mind: SimulatedRespondent) -> list[Passage]:
    """Return the utterances of participants since the respondent's last utterance."""
    passages = talk_passages(mind)
    last_own = max((index for index, passage in enumerate(passages) if passage.own), default=-1)
    return [passage for passage in passages[last_own + 1 :] if passage.source.speaker != MODERATOR]


class ReportedView(NamedTuple):
    """A sentence in which a different participant speaks for or against the product."""

    # The name of the participant. Empty if it is not known.
    name: str
    sentence: str
    # The words for or against the product.
    views: tuple[View, ...]


def names_of(mind: SimulatedRespondent) -> dict[str, str]:
    """Return a map from speaker id to name, for the speakers in the history and in the prompt."""
    shown_names = {last_key(passage): passage.text for passage in mind.shown_passages(texts.NAME)}
    return {**mind.reading.names, **shown_names}


def views_of_others(
    mind: SimulatedRespondent, passages: Sequence[Passage] | None = None
) -> list[ReportedView]:
    """Return other participants' first-person sentences for or against the product, in order.

    `passages`: the utterances to search, or None for all.
    """
    # A sentence that the respondent has said as well is not a view of others. The moderator has no
    # view of the product.
    own_sentences = {
        collapse_spaces(sentence) for text in own_words(mind) for sentence in split_sentences(text)
    }
    names = names_of(mind)
    reported_views: dict[str, ReportedView] = {}
    for passage in talk_passages(mind) if passages is None else passages:
        if passage.own or passage.source.speaker == MODERATOR:
            continue
        for sentence in split_sentences(passage.text):
            views = sentence_views(sentence)
            if (
                views
                and FIRST_PERSON.search(sentence)
                and collapse_spaces(sentence) not in own_sentences
            ):
                name = names.get(passage.source.speaker, "")
                reported_views.setdefault(
                    collapse_spaces(sentence), ReportedView(name, sentence, views)
                )
    return list(reported_views.values())
