"""Window-based polarity: how much a text speaks for or against each of some options.

The arithmetic is the vote parser's; it is used on members' preferences, on ballots' hard noes and
on the wording of decisions. No model is asked. What the rules leave open is settled in
docs/decisions/0010-vote-parser.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

NAMED = 2
NEGATED = -4
WANTED = 2
WEAK = 1
STRONG_REJECTION = -2
WINDOW = 4

NEGATION_CUES = frozenset(
    {"no", "not", "don't", "without", "avoid", "skip", "exclude", "hate", "dislike"}
)
POSITIVE_CUES = frozenset({"want", "prefer", "love", "enjoy", "like", "need"})

# Words that name nothing, so that they count neither as overlap nor as something in common.
_SMALL = """
a an and are as at be been but by can could did do does don't for from had has have he her
him his how i i'd i'm i've if in into is it it's its just let's me more most my no nor not of
on or our out rather really she so some such than that the their them then there these they
this to too two up us very was we we'd we'll we're were what when where which who will with
would you your
all also any anything both each else everybody everyone everything here maybe much nobody
nothing now one only please somebody someone something still
"""
STOP_WORDS = frozenset(_SMALL.split())
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+(?:'[^\W_]+)*")
_APOSTROPHES = re.compile("[\u2018\u2019\u201b\u2032\u02b9\u02bc\u00b4`]")
_BOUNDARY = re.compile(r"(?<!\d)[,.](?!\d)|[,.](?!\d)|(?<!\d)[,.]|[;!?\n\r]")


@lru_cache(maxsize=50_000)
def fold(word: str) -> str:
    """A word without its simple plural (or third-person) ending: diners, loves → diner, love."""
    word = word.removesuffix("'s")
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-2] + "y" if len(word) > 4 and word.endswith("ie") else word


_STOP_STEMS = frozenset(fold(w) for w in STOP_WORDS)


@lru_cache(maxsize=4_096)
def clauses(text: str) -> tuple[tuple[str, ...], ...]:
    """The text's clauses as folded words. Clauses end at , ; . ! ? or a line's end, at "but",
    and before the "not" of "and not". A comma or point inside a number ends nothing."""
    text = _plain(text)
    found: list[tuple[str, ...]] = []
    for part in _BOUNDARY.split(text):
        words: list[str] = []
        tokens = [fold(t) for t in _TOKEN.findall(part)]
        for i, word in enumerate(tokens):
            ends = word == "but"
            before_not = word == "and" and tokens[i + 1 : i + 2] == ["not"]
            if ends or before_not:
                found.append(tuple(words))
                words = []
            else:
                words.append(word)
        found.append(tuple(words))
    return tuple(c for c in found if c)


def _plain(text: str) -> str:
    """Case, width, accents and typographic quotes folded; hyphens open, save after a cue."""
    text = unicodedata.normalize("NFKC", _APOSTROPHES.sub("'", text)).casefold()
    text = re.sub(r"\bdont\b", "don't", text)
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in decomposed if not unicodedata.combining(c))
    # "no-frills diner" turns nothing down.
    text = re.sub(r"\b(no|not|non)[-‐‑](?=\w)", r"\1", text)
    return re.sub(r"[-‐‑–—/_]", " ", text.replace("&", " and "))


@lru_cache(maxsize=50_000)
def words_of(phrase: str) -> tuple[str, ...]:
    """An option's folded words, for matching; joining words are kept."""
    return tuple(fold(t) for t in _TOKEN.findall(_plain(phrase)))


def content_words(text: str) -> frozenset[str]:
    """The words of a text that carry content: folded, stop words and cue words left out."""
    empty = _STOP_STEMS | POSITIVE_CUES | NEGATION_CUES
    return frozenset(w for c in clauses(text) for w in c if w not in empty)


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a text names an option in full."""

    option: str
    negated: bool
    wanted: bool


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause and, word by word, the option that has taken it (None: free)."""

    words: tuple[str, ...]
    taken: tuple[str | None, ...]
    spans: tuple[tuple[int, int, str], ...]

    def cue_near(self, start: int, end: int) -> bool:
        """A negation cue within the window of words[start:end], itself part of no option."""
        near = range(max(0, start - WINDOW), min(len(self.words), end + WINDOW))
        return any(self.taken[i] is None and self.words[i] in NEGATION_CUES for i in near)

    def wish_before(self, start: int) -> bool:
        near = range(max(0, start - WINDOW), start)
        return any(self.taken[i] is None and self.words[i] in POSITIVE_CUES for i in near)


def mentions(text: str, options: Sequence[str]) -> tuple[Mention, ...]:
    """Every full naming of an option, in the order of the text; longer options take precedence."""
    found: list[Mention] = []
    for clause in _read(text, options):
        for start, end, option in clause.spans:
            negated = clause.cue_near(start, end)
            found.append(Mention(option, negated, not negated and clause.wish_before(start)))
    return tuple(found)


def scores(text: str, options: Sequence[str]) -> dict[str, int]:
    """What a text says of each option, in the options' order; an empty text gives zeros.

    Named in full +2; a negation cue in the window of a naming −4; a positive cue before a naming
    that is not turned down +2; else +1 per distinct word in common (stop words, words of other
    options and words under a negation cue left out). Each is counted once, so that saying a thing
    twice weighs no more.
    """
    read = _read(text, options)
    named: dict[str, list[Mention]] = {}
    for mention in mentions(text, options):
        named.setdefault(mention.option, []).append(mention)
    loose = _loose_words(read)
    result: dict[str, int] = {}
    for option in options:
        hits = named.get(option, [])
        if hits:
            result[option] = (
                NAMED
                + (NEGATED if any(h.negated for h in hits) else 0)
                + (WANTED if any(h.wanted for h in hits) else 0)
            )
        else:
            stems = {w for w in words_of(option) if w not in _STOP_STEMS}
            result[option] = WEAK * len(stems & loose)
    return result


def adopted(text: str, options: Sequence[str]) -> tuple[str, ...]:
    """The options that a text names and nowhere turns down, by first mention."""
    seen = mentions(text, options)
    refused = {m.option for m in seen if m.negated}
    return tuple(dict.fromkeys(m.option for m in seen if m.option not in refused))


def _loose_words(read: Iterable[_Clause]) -> frozenset[str]:
    """Words that belong to no option and are not negated."""
    return frozenset(
        word
        for clause in read
        for i, word in enumerate(clause.words)
        if clause.taken[i] is None and not clause.cue_near(i, i + 1)
    )


def _read(text: str, options: Sequence[str]) -> list[_Clause]:
    by_length: dict[int, dict[tuple[str, ...], str]] = {}
    for option in options:
        words = words_of(option)
        if words:
            by_length.setdefault(len(words), {}).setdefault(words, option)
    return [_claim(words, by_length) for words in clauses(text)]


def _claim(words: tuple[str, ...], by_length: dict[int, dict[tuple[str, ...], str]]) -> _Clause:
    """Give words to options: most words first, then from left to right (never by name)."""
    taken: list[str | None] = [None] * len(words)
    spans: list[tuple[int, int, str]] = []
    for length in sorted(by_length, reverse=True):
        phrases = by_length[length]
        for start in range(len(words) - length + 1):
            end = start + length
            option = phrases.get(words[start:end])
            if option is not None and not any(taken[start:end]):
                taken[start:end] = [option] * length
                spans.append((start, end, option))
    return _Clause(words, tuple(taken), tuple(sorted(spans)))
