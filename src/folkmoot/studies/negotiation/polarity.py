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
from itertools import pairwise

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
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+(?:'[^\W_]+)*|,")
_APOSTROPHES = re.compile("[\u2018\u2019\u201b\u2032\u02b9\u02bc\u00b4`]")
_BOUNDARY = re.compile(r"(?<!\d)\.|\.(?!\d)|[;!?\n\r]")
# What may stand between the options of one list: "sushi, a diner, or barbecue".
_OR, _BETWEEN = frozenset({"or", "nor"}), frozenset({",", "or", "nor", "a", "an", "the", "any"})


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


def clauses(text: str) -> tuple[tuple[str, ...], ...]:
    """The text's clauses as folded words. Clauses end at , ; . ! ? or a line's end, at "but",
    and before the "not" of "and not". A comma or point inside a number ends nothing."""
    return tuple(part for words in _sentences(text) for part in _parts(words))


@lru_cache(maxsize=4_096)
def _sentences(text: str) -> tuple[tuple[str, ...], ...]:
    """Folded words up to whatever ends a clause, save commas, which are words here."""
    found: list[tuple[str, ...]] = []
    for part in _BOUNDARY.split(_plain(text)):
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


def _parts(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Words between commas."""
    ends = [-1, *(i for i, word in enumerate(words) if word == ","), len(words)]
    parts = (tuple(words[a + 1 : b]) for a, b in pairwise(ends))
    return [part for part in parts if part]


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
    return tuple(fold(t) for t in _TOKEN.findall(_plain(phrase)) if t != ",")


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
    """A clause and, word by word, the option that has taken it (None: free). A span is an option's
    place: its list's first word, the word after the list's last, and the option; an option by
    itself is its own list."""

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
    options and words under a negation cue left out; for an option that turns something down, such
    as "no parties", words under a negation cue count and words wished for do not). The window is
    that of the whole list in which an option stands. Each is counted once, so that saying a thing
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
            words = set(words_of(option))
            agreeing = loose["refused" if words & NEGATION_CUES else "wanted"] | loose["plain"]
            result[option] = WEAK * len((words - _STOP_STEMS) & agreeing)
    return result


def adopted(text: str, options: Sequence[str]) -> tuple[str, ...]:
    """The options that a text names and nowhere turns down, by first mention."""
    seen = mentions(text, options)
    refused = {m.option for m in seen if m.negated}
    return tuple(dict.fromkeys(m.option for m in seen if m.option not in refused))


def _loose_words(read: Iterable[_Clause]) -> dict[str, set[str]]:
    """Words that belong to no option, by what is said of them: refused, wanted or plain."""
    found: dict[str, set[str]] = {"refused": set(), "wanted": set(), "plain": set()}
    for clause in read:
        for i, word in enumerate(clause.words):
            if clause.taken[i] is None:
                near = clause.cue_near(i, i + 1), clause.wish_before(i)
                found["refused" if near[0] else "wanted" if near[1] else "plain"].add(word)
    return found


def _read(text: str, options: Sequence[str]) -> list[_Clause]:
    by_length: dict[int, dict[tuple[str, ...], str]] = {}
    for option in options:
        words = words_of(option)
        if words:
            by_length.setdefault(len(words), {}).setdefault(words, option)
    return [
        clause
        for words in _sentences(text)
        for clause in _divided(words, _claimed(words, by_length))
    ]


def _claimed(
    words: Sequence[str], by_length: dict[int, dict[tuple[str, ...], str]]
) -> list[tuple[int, int, str]]:
    """Give words to options: most words first, then from left to right (never by name)."""
    taken = [False] * len(words)
    spans: list[tuple[int, int, str]] = []
    for length in sorted(by_length, reverse=True):
        phrases = by_length[length]
        for start in range(len(words) - length + 1):
            end = start + length
            option = phrases.get(tuple(words[start:end]))
            if option is not None and not any(taken[start:end]):
                taken[start:end] = [True] * length
                spans.append((start, end, option))
    return sorted(spans)


def _divided(words: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[_Clause]:
    """The clauses of a sentence: it ends at its commas, save those inside a list of options."""
    runs = _lists(words, spans)
    held = {i for run in runs for i in range(spans[run[0]][0], spans[run[-1]][1])}
    ends = [i for i, word in enumerate(words) if word == "," and i not in held]
    found: list[_Clause] = []
    for a, b in pairwise([-1, *ends, len(words)]):
        kept = [i for i in range(a + 1, b) if words[i] != ","]
        place = {i: n for n, i in enumerate(kept)}
        inside = [[spans[s] for s in run] for run in runs if a < spans[run[0]][0] < b]
        taken: list[str | None] = [None] * len(kept)
        placed: list[tuple[int, int, str]] = []
        for run in inside:
            edges = place[run[0][0]], place[run[-1][1] - 1] + 1
            for start, end, option in run:
                placed.append((*edges, option))
                taken[place[start] : place[end - 1] + 1] = [option] * (end - start)
        found.append(_Clause(tuple(words[i] for i in kept), tuple(taken), tuple(placed)))
    return [clause for clause in found if clause.words]


def _lists(words: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[list[int]]:
    """Places in `spans` by the list that they stand in: "A or B", "A, B, or C", "A, B and C".

    Commas join only where "or" or "and" closes the list: in "not A, B" the comma parts the two.
    "No A, B and C" may mean either, so that its commas part as well.
    """
    runs: list[list[int]] = []
    for i, (start, _, _) in enumerate(spans):
        gap = set(words[spans[i - 1][1] : start]) if i else {"."}
        if gap <= _BETWEEN | {"and"} and gap & (_OR | {",", "and"}):
            runs[-1].append(i)
        else:
            runs.append([i])
    return [part for run in runs for part in _kept_together(words, spans, run)]


def _kept_together(
    words: Sequence[str], spans: Sequence[tuple[int, int, str]], run: list[int]
) -> list[list[int]]:
    gaps = [set(words[spans[i][1] : spans[j][0]]) for i, j in pairwise(run)]
    first = spans[run[0]][0]
    before = set(words[max(0, first - WINDOW) : first])
    cues = before & (NEGATION_CUES | POSITIVE_CUES)
    closed_by_and = len(gaps) > 1 and "and" in gaps[-1] and "," in gaps[0]
    and_list = closed_by_and and (not cues or bool(cues - {"no", "not"}))
    closed = bool(gaps and gaps[-1] & _OR) or and_list
    parts = [[run[0]]]
    for i, gap in zip(run[1:], gaps, strict=True):
        if closed if "," in gap else bool(gap & _OR) or and_list:
            parts[-1].append(i)
        else:
            parts.append([i])
    return parts
