"""A coder that calls no model, for tests, demos and dry runs.

The coder gives a text those codes that have words in common with the text.
"""
# No finding uses its codes, which are marked `embedded`.

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from folkmoot.conversation.sentiment import sentiment_score
from folkmoot.files import read_yaml
from folkmoot.models.request import ModelRequest
from folkmoot.respondent.mind.passages import passages_of

# The similarity of a sentence and a code from which the code is given.
ENOUGH = 0.4
# The distance of two tones (each −1 to 1) from which one code praises and the other one blames.
OPPOSITE = 0.5
# The table of codebooks, in the ids of sources.
BOOKS = "codebooks."
BOOK = f"{BOOKS}text/"
# The lookbehind keeps the time linear in a long text without signs.
_SENTENCE = re.compile(r"(?<![^.!?;\n])[^.!?;\n]*[^.!?;\s][^.!?;\n]*[.!?;]*")
# A crude stemmer: it removes English endings after at least three letters.
_ENDINGS = re.compile(r"(?<=\w{3})(?:ing|edly|ed|ly|es|s|e)$")
# Function words, and words that codebooks use about any text.
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
    """Return True if a request asks for the codes of a text."""
    return {"code", "quote"} <= _code_fields(request).keys()


def _code_fields(request: ModelRequest) -> dict[str, Any]:
    # {} if the request asks for no codes.
    part: Any = request.schema or {}
    for name in ("properties", "codes", "items", "properties"):
        part = part.get(name, {}) if isinstance(part, dict) else {}
    return dict(part)


def codes_of(request: ModelRequest) -> str:
    """Return the coder's reply as JSON."""
    # Without a codebook in the request, the reply has no codes.
    passages = [
        passage
        for passage in passages_of(request)
        if not passage.inner and passage.source.kind != "reply"
    ]
    codebook_texts = [passage.text for passage in passages if passage.source.id.startswith(BOOK)]
    if not codebook_texts:
        return json.dumps({"codes": []})
    book = _parse_codebook(codebook_texts[0])
    slots = {
        slot: part["enum"][:-1]
        for slot, part in _code_fields(request).items()
        if slot not in ("code", "quote")
    }
    system_passages = [
        passage for passage in passages if request.messages[passage.message].role == "system"
    ]
    text = "\n\n".join(passage.text for passage in passages if passage not in system_passages)
    slot_values = {value for values in slots.values() for value in values}
    references = [
        # The prompt shows this text as JSON, so its line breaks are escaped.
        passage.text.replace("\\n", "\n")
        for passage in system_passages
        if not passage.source.id.startswith(BOOKS) and passage.text not in slot_values
    ]
    if slots:
        items = _codes_by_slot_values(book, text, slots)
    elif book.data.get("choose") == "one":
        items = [_best_code(book, text, references)]
    else:
        items = _all_matching_codes(book, text, references)
    return json.dumps({"codes": items}, ensure_ascii=False)


def _all_matching_codes(
    book: _Codebook, text: str, references: Sequence[str]
) -> list[dict[str, str]]:
    reference_words = [_stemmed_words(value) for value in references]
    candidates = [
        text
        for text in _split_sentences(text)
        if all(words & _stemmed_words(text) for words in reference_words)
    ]
    items = []
    for code, likeness in book.codes:
        best = max(candidates, key=likeness, default="")
        if best and likeness(best) >= ENOUGH:
            items.append(_code_item(code, best))
    return items


def _best_code(book: _Codebook, text: str, references: Sequence[str]) -> dict[str, str]:
    # `references` are the texts that the question is about, such as an opposing view. If the codes
    # form a scale, the number of words shared with these texts decides.
    codes, sentences = book.codes, _split_sentences(text) or [text]
    if references and book.data.get("level") == "ordinal":
        reference_words = _stemmed_words(" ".join(references))
        share = len(reference_words & _stemmed_words(text)) / max(1, len(reference_words))
        place = min(len(codes) - 1, int((1 - min(1.0, 2.5 * share)) * len(codes)))
        return _code_item(
            codes[place][0],
            max(sentences, key=lambda sentence: len(reference_words & _stemmed_words(sentence))),
        )
    if book.tones:
        tone = sentiment_score(text)
        place = min(range(len(codes)), key=lambda i: abs(book.tones[i] - tone))
        return _code_item(
            codes[place][0],
            max(sentences, key=lambda sentence: -abs(sentiment_score(sentence) - tone)),
        )
    best_likeness, place, best = max(
        (likeness(sentence), -i, sentence)
        for i, (_, likeness) in enumerate(codes)
        for sentence in sentences
    )
    unquoted_codes = (code for code, _ in codes if code.get("quoted") is False)
    code = (
        codes[-place][0]
        if best_likeness >= ENOUGH
        else next(unquoted_codes, codes[len(codes) // 2][0])
    )
    return _code_item(code, best)


def _codes_by_slot_values(
    book: _Codebook, text: str, slots: Mapping[str, Sequence[str]]
) -> list[dict[str, str]]:
    # One code for each combination of slot values. A slot is a field that says what a code is
    # about, such as an option. A sentence that names no value of a slot counts for all its values.
    codes = book.codes
    items: dict[tuple[str, ...], dict[str, str]] = {}
    unquoted_code = next((code for code, _ in codes if code.get("quoted") is False), None)
    for combination in itertools.product(*slots.values()) if unquoted_code else ():
        items[combination] = _code_item(unquoted_code or {}, "")
    for sentence in _split_sentences(text):
        best_likeness, place = max((like(sentence), -i) for i, (_, like) in enumerate(codes))
        if best_likeness < ENOUGH:
            continue
        named_values = [
            [value for value in values if _names_value(sentence, value)] or values
            for values in slots.values()
        ]
        for combination in itertools.product(*named_values):
            items[combination] = _code_item(codes[-place][0], sentence)
    return [
        {**code, **dict(zip(slots, combination, strict=True))}
        for combination, code in items.items()
    ]


def _code_item(code: Mapping[str, Any], quote: str) -> dict[str, str]:
    return {"code": code["name"], "quote": "" if code.get("quoted") is False else quote}


Likeness = Callable[[str], float]


class _Codebook(NamedTuple):
    # The codes with their similarity functions, and the sentiment of each code.
    data: Mapping[str, object]
    codes: list[tuple[Mapping[str, object], Likeness]]
    # Empty if the codes form no scale from praise to blame.
    tones: tuple[float, ...]


# A run codes many texts with few codebooks, so each is parsed once.
@lru_cache(maxsize=64)
def _parse_codebook(block: str) -> _Codebook:
    data = read_yaml(block)
    return _Codebook(data, _code_likenesses(data["codes"]), _code_tones(data))


def _code_tones(data: Mapping[str, Any]) -> tuple[float, ...]:
    # The sentiment of each code, or () if the codes form no scale. The first and the last code get
    # those of their definitions. The others lie between them in equal steps.
    if data.get("level") != "ordinal":
        return ()
    ends = [
        [code["definition"], *code.get("examples", ())]
        for code in (data["codes"][0], data["codes"][-1])
    ]
    first, last = (math.fsum(map(sentiment_score, texts)) / len(texts) for texts in ends)
    steps = len(data["codes"]) - 1
    if first - last < OPPOSITE:
        return ()
    return tuple(first + (last - first) * step / steps for step in range(steps + 1))


def _code_likenesses(
    codes: Sequence[Mapping[str, Any]],
) -> list[tuple[Mapping[str, Any], Likeness]]:
    # Words that occur in few codes weigh more. Words of a counter-example reduce the similarity.
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
            shared = math.fsum(weight[word] for word in words & bag) - len(words & (counter - bag))
            return shared / math.sqrt(max(1, len(words)))

        return sentence_likeness

    return [
        (code, build_likeness(bag, counter))
        for code, bag, counter in zip(codes, bags, counters, strict=True)
    ]


def _names_value(sentence: str, value: str) -> bool:
    return re.search(rf"\b{re.escape(value)}\b", sentence, re.IGNORECASE) is not None


def _split_sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.findall(text) if re.search(r"\w", sentence)]


def _stemmed_words(text: str) -> frozenset[str]:
    words: Iterable[str] = re.findall(r"[a-z]+", text.casefold().replace("’", "'"))
    return frozenset(
        _ENDINGS.sub("", word) for word in words if word not in _EMPTY and len(word) > 2
    )
