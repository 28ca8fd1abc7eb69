"""The embedded coder: codes texts by the words that they share with a codebook, without a model.

It serves tests, demos and dry runs: its codes are marked `embedded` and support no finding. It
reads the texts of known source in a request: the codebook, what its question refers to (further
texts of the system message), and the text to be coded (those of the other messages).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from folkmoot.conversation.sentiment import sentiment_score
from folkmoot.models.request import ModelRequest
from folkmoot.respondent.mind.passages import passages_of

ENOUGH = 0.4  # likeness of a sentence and a code from which the code is given
OPPOSITE = 0.5  # tones of two codes, in −1 … 1, so far apart that one praises and one blames
BOOKS = "codebooks."  # the table of codebooks, in ids of sources
BOOK = f"{BOOKS}text/"
_SENTENCE = re.compile(r"[^.!?;\n]*[^.!?;\s][^.!?;\n]*[.!?;]*")
_ENDINGS = re.compile(r"(?<=\w{3})(?:ing|edly|ed|ly|es|s|e)$")
# Words of grammar, and those in which codebooks speak of any text at all.
_GRAMMAR = (
    "a about after all also an and any are as at be because been but by can could did do does "
    "for from had has have her him his how if in into is it its just like may me more most "
    "must my no nor not of off on one only or other our out over own said say says so some "
    "such than that the their them then there these they this those to too under up us very "
    "was we were what when where which who whom whose why will with without would you your "
    "text speaker person people something someone anything thing"
)
_EMPTY = frozenset(_GRAMMAR.split())


def is_coding(request: ModelRequest) -> bool:
    """Whether a request asks for the codes of a text."""
    return {"code", "quote"} <= _code_fields(request).keys()


def _code_fields(request: ModelRequest) -> dict[str, Any]:
    """The fields of one code in the form that is to be filled in; none where codes aren't asked."""
    part: Any = request.schema or {}
    for name in ("properties", "codes", "items", "properties"):
        part = part.get(name, {}) if isinstance(part, dict) else {}
    return dict(part)


def codes_of(request: ModelRequest) -> str:
    """The reply of the embedded coder, in JSON; without any code where it finds no codebook."""
    passages = [
        passage
        for passage in passages_of(request)
        if not passage.inner and passage.source.kind != "reply"
    ]
    told = [passage.text for passage in passages if passage.source.id.startswith(BOOK)]
    if not told:
        return json.dumps({"codes": []})
    book = _parse_codebook(told[0])
    slots = {
        slot: part["enum"][:-1]
        for slot, part in _code_fields(request).items()
        if slot not in ("code", "quote")
    }
    shown = [passage for passage in passages if request.messages[passage.message].role == "system"]
    text = "\n\n".join(passage.text for passage in passages if passage not in shown)
    known = {value for values in slots.values() for value in values}
    about = [
        passage.text.replace("\\n", "\n")  # it is shown as JSON
        for passage in shown
        if not passage.source.id.startswith(BOOKS) and passage.text not in known
    ]
    if slots:
        found = _of_values(book, text, slots)
    elif book.data.get("choose") == "one":
        found = [_best_code(book, text, about)]
    else:
        found = _all_matching_codes(book, text, about)
    return json.dumps({"codes": found}, ensure_ascii=False)


def _all_matching_codes(book: _Book, text: str, about: Sequence[str]) -> list[dict[str, str]]:
    """Every code that some sentence is like enough, with the sentence that is most like it."""
    referred = [_stemmed_words(value) for value in about]
    near = [
        text
        for text in _split_sentences(text)
        if all(words & _stemmed_words(text) for words in referred)
    ]
    found = []
    for code, likeness in book.codes:
        best = max(near, key=likeness, default="")
        if best and likeness(best) >= ENOUGH:
            found.append(_code_item(code, best))
    return found


def _best_code(book: _Book, text: str, about: Sequence[str]) -> dict[str, str]:
    """The one code: by the share of what is referred to that the text takes up, where the codes
    stand in order (most first), else the most alike."""
    codes, sentences = book.codes, _split_sentences(text) or [text]
    if about and book.data.get("level") == "ordinal":
        wanted = _stemmed_words(" ".join(about))
        share = len(wanted & _stemmed_words(text)) / max(1, len(wanted))
        place = min(len(codes) - 1, int((1 - min(1.0, 2.5 * share)) * len(codes)))
        return _code_item(
            codes[place][0], max(sentences, key=lambda text: len(wanted & _stemmed_words(text)))
        )
    if book.tones:
        felt = sentiment_score(text)
        place = min(range(len(codes)), key=lambda i: abs(book.tones[i] - felt))
        return _code_item(
            codes[place][0], max(sentences, key=lambda text: -abs(sentiment_score(text) - felt))
        )
    like, place, best = max(
        (like(sentence), -i, sentence)
        for i, (_, like) in enumerate(codes)
        for sentence in sentences
    )
    absent = (code for code, _ in codes if code.get("quoted") is False)
    code = codes[-place][0] if like >= ENOUGH else next(absent, codes[len(codes) // 2][0])
    return _code_item(code, best)


def _of_values(book: _Book, text: str, slots: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """The code of each combination of values: that of the last sentence which is like a code and
    names the values, or names none of a slot. Where there is none, the code for what is absent."""
    codes = book.codes
    found: dict[tuple[str, ...], dict[str, str]] = {}
    absent = next((code for code, _ in codes if code.get("quoted") is False), None)
    for combination in itertools.product(*slots.values()) if absent else ():
        found[combination] = _code_item(absent or {}, "")
    for sentence in _split_sentences(text):
        like, place = max((like(sentence), -i) for i, (_, like) in enumerate(codes))
        if like < ENOUGH:
            continue
        named = [
            [value for value in values if _names_value(sentence, value)] or values
            for values in slots.values()
        ]
        for combination in itertools.product(*named):
            found[combination] = _code_item(codes[-place][0], sentence)
    return [
        {**code, **dict(zip(slots, combination, strict=True))}
        for combination, code in found.items()
    ]


def _code_item(code: Mapping[str, Any], quote: str) -> dict[str, str]:
    return {"code": code["name"], "quote": "" if code.get("quoted") is False else quote}


Likeness = Callable[[str], float]


class _Book(NamedTuple):
    """A codebook, and each code with its likeness."""

    data: Mapping[str, object]
    codes: list[tuple[Mapping[str, object], Likeness]]
    tones: tuple[float, ...]  # of each code, where their order is one from praise to blame


@lru_cache(maxsize=64)
def _parse_codebook(block: str) -> _Book:
    data = yaml.safe_load(block)
    return _Book(data, _code_likenesses(data["codes"]), _code_tones(data))


def _code_tones(data: Mapping[str, Any]) -> tuple[float, ...]:
    """The tone of each code, in equal steps between those of the first and the last one's own
    words; none where the codes don't lead from praise to blame."""
    if data.get("level") != "ordinal":
        return ()
    ends = [
        [column["definition"], *column.get("examples", ())]
        for column in (data["codes"][0], data["codes"][-1])
    ]
    first, last = (sum(map(sentiment_score, texts)) / len(texts) for texts in ends)
    steps = len(data["codes"]) - 1
    if first - last < OPPOSITE:
        return ()
    return tuple(first + (last - first) * n / steps for n in range(steps + 1))


def _code_likenesses(
    codes: Sequence[Mapping[str, Any]],
) -> list[tuple[Mapping[str, Any], Likeness]]:
    """Each code with the function that says how like it a sentence is: the weight of the words that
    they share, less that of counter-examples, by the root of the sentence's length. Words that few
    codes use weigh more."""
    texts = [
        [code["name"].replace("_", " "), code["definition"], *code.get("examples", ())]
        for code in codes
    ]
    bags = [_stemmed_words(" ".join(text)) for text in texts]
    weight = {word: 1 / sum(word in bag for bag in bags) for word in frozenset().union(*bags)}
    counters = [_stemmed_words(" ".join(code.get("counter_examples", ()))) for code in codes]

    def build_likeness(bag: frozenset[str], counter: frozenset[str]) -> Likeness:
        def sentence_likeness(sentence: str) -> float:
            words = _stemmed_words(sentence)
            shared = sum(weight[word] for word in words & bag) - len(words & (counter - bag))
            return shared / math.sqrt(max(1, len(words)))

        return sentence_likeness

    return [
        (code, build_likeness(bag, counter))
        for code, bag, counter in zip(codes, bags, counters, strict=True)
    ]


def _names_value(sentence: str, value: str) -> bool:
    return re.search(rf"\b{re.escape(value)}\b", sentence, re.IGNORECASE) is not None


def _split_sentences(text: str) -> list[str]:
    return [s.strip() for s in _SENTENCE.findall(text) if re.search(r"\w", s)]


def _stemmed_words(text: str) -> frozenset[str]:
    """Content words, their endings off."""
    words: Iterable[str] = re.findall(r"[a-z]+", text.casefold().replace("’", "'"))
    return frozenset(
        _ENDINGS.sub("", word) for word in words if word not in _EMPTY and len(word) > 2
    )
