"""Embeddings without a download: 512 numbers from the words and letter sequences of a text.

`embedding_model: synthetic` selects these embeddings.
"""

# Features are weighted by tf-idf with a fixed idf table (docs/decisions/0003). The vector of a text
# depends on the text alone and not on its batch. Like other embeddings, these vectors distinguish
# topic and wording better than stance.

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from folkmoot.models.request import FloatArray

DIMENSIONS = 512
# The dimensions of a feature and the weight in each dimension.
Features = tuple[list[int], list[float]]

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:\.\d+)?")
# The weights relative to a single word. They are part of the definition of the embeddings. A change
# would change the results of stored runs.
_BIGRAM_WEIGHT = 0.25
_NGRAM_WEIGHT = 0.8
# Words that occur in any text on any subject. They get no weight.
_STOP_TEXT = """
a about above after again against all almost also although always am among an and another any anyone
anything are around as at be because been before being below between both but by can can't cannot
could did didn't do does doesn't doing don't done down during each either else ever every everyone
everything few for from had has have haven't having he he'd he'll he's her here hers herself him
himself his how however i i'd i'll i'm i've if in into is isn't it it'd it'll it's its itself just
least less let let's may me might mine more most much must my myself neither never no nobody none
nor not nothing now of off often on once one only onto or other others our ours ourselves out over
own per perhaps quite rather re same shall she she's should since so some somebody someone something
sometimes still such than that that's the their theirs them themselves then there there's these they
they'd they'll they're they've this those though three through to together too toward towards two
under until up upon us very was wasn't we we'd we'll we're we've well were weren't what whatever
when where whether which while who whoever whole whom whose why will with within without won't
would wouldn't yet you you'd you'll you're you've your yours yourself
"""
_STOP_WORDS = frozenset(_STOP_TEXT.split())
# Frequent words of deliberations and of ordinary English. They get a low weight.
_COMMON_WORDS = """
think believe feel say says said see look come comes go goes make makes made want know people
person way thing things really just like also even still one two first second good better best
well much many lot kind point reason reasons choice choose chose chosen option options favour
favours prefer matter matters most more would could should might may expect hope view group
participant participants position positions others stress weight adds add means mean stands
stand talk consideration honestly mind put puts same made behind unlike sets apart reasoning
heart return time year years add further given
"""
_COMMON_WORD_SET = frozenset(_COMMON_WORDS.split())


def embed_texts(texts: Sequence[str]) -> FloatArray:
    """Return the embeddings of texts, shape (n, 512), float32, rows of Euclidean norm 1.

    A text without words gives a row of zeros.
    """
    token_index = _TokenIndex()
    word_numbers_by_text = [
        [*chain.from_iterable(map(token_index.__getitem__, text.split()))] for text in texts
    ]
    words = np.array([*chain.from_iterable(word_numbers_by_text)], dtype=np.intp)
    text_of_word = np.repeat(
        np.arange(len(texts)), [len(word_numbers) for word_numbers in word_numbers_by_text]
    )
    vocabulary = list(token_index.words)
    neighbours = text_of_word[1:] == text_of_word[:-1]
    # Each pair of neighbouring words gets one number, from which `divmod` returns both words.
    pairs = words[:-1][neighbours] * len(vocabulary) + words[1:][neighbours]
    distinct_pairs, pairs = np.unique(pairs, return_inverse=True)
    word_weights = _feature_weights(
        text_of_word, words, [_word_features(word) for word in vocabulary]
    )
    word_pairs = (divmod(pair, len(vocabulary)) for pair in distinct_pairs.tolist())
    bigram_weights = _feature_weights(
        text_of_word[:-1][neighbours],
        pairs,
        [_bigram_slot(vocabulary[first], vocabulary[second]) for first, second in word_pairs],
    )
    slots, weights = (
        np.concatenate(arrays) for arrays in zip(word_weights, bigram_weights, strict=True)
    )
    totals = np.bincount(slots, weights=weights, minlength=len(texts) * DIMENSIONS)
    rows = totals.reshape(len(texts), DIMENSIONS)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    # Avoid a division by zero for a text without words.
    return (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)


@lru_cache(maxsize=65536)
def word_weight(word: str) -> float:
    """Return the weight of a word, which is larger for rare words."""
    # A fixed substitute for the inverse document frequency. Stop words have the weight 0, and
    # common words a small weight. Otherwise the weight grows with the length of the word, because
    # longer words are rarer (Zipf's law of abbreviation).
    if word in _STOP_WORDS or len(word) < 2:
        return 0.0
    if word in _COMMON_WORD_SET:
        return 0.15
    return min(1.6, 0.5 + 0.12 * len(word))


class _TokenIndex(dict[str, list[int]]):
    # Maps a token (text between white space) to the numbers of its words. Words with the weight 0
    # get no number.

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def __missing__(self, piece: str) -> list[int]:
        words = _WORD.findall(piece.casefold().replace("’", "'"))
        self[piece] = [
            self.words.setdefault(word, len(self.words)) for word in words if word_weight(word)
        ]
        return self[piece]


def _feature_weights(
    text_of_item: NDArray[np.intp], items: NDArray[np.intp], features: list[Features]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    # Returns indices into the concatenated vectors of all texts, and a weight for each. `items` and
    # `text_of_item`: the index in `features` and the index of the text, for each occurrence of a
    # word or word pair.
    if not features:
        return np.zeros(0, dtype=np.intp), np.zeros(0)
    distinct, first_index, occurrences = np.unique(
        text_of_item * len(features) + items, return_index=True, return_counts=True
    )
    # `np.unique` sorts by number. Sums of floats depend on their order, so restore the order of
    # first occurrence. It depends on the text alone, while numbers depend on the whole batch.
    order = np.argsort(first_index)
    text, item = np.divmod(distinct[order], len(features))
    sizes = np.array([len(slots) for slots, _ in features])
    ends = np.cumsum(sizes)
    counts = sizes[item]
    offset_in_item = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    feature_index = offset_in_item + np.repeat(ends[item] - counts, counts)
    slots, weights = (
        np.array([*chain.from_iterable(values)]) for values in zip(*features, strict=True)
    )
    return (
        slots[feature_index] + np.repeat(text * DIMENSIONS, counts),
        # An item that occurs n times in a text counts once, with weight 1 + ln n.
        weights[feature_index] * np.repeat(1 + np.log(occurrences[order]), counts),
    )


def _hash_slot(feature: str) -> tuple[int, float]:
    # The dimension and the sign (1 or −1). Random signs keep dot products unbiased on average.
    code = zlib.crc32(feature.encode())
    return code % DIMENSIONS, 1.0 if code & 0x80000000 else -1.0


@lru_cache(maxsize=65536)
def _bigram_slot(first_word: str, second_word: str) -> Features:
    slot, sign = _hash_slot(f"{first_word} {second_word}")
    return [slot], [
        sign * _BIGRAM_WEIGHT * math.sqrt(word_weight(first_word) * word_weight(second_word))
    ]


@lru_cache(maxsize=65536)
def _word_features(word: str) -> Features:
    # The features are the word itself and its character 3- to 5-grams.
    weight = word_weight(word)
    marked = f"<{word}>"
    grams = [marked[start : start + n] for n in (3, 4, 5) for start in range(len(marked) - n + 1)]
    ngram_weight = weight * _NGRAM_WEIGHT / math.sqrt(max(1, len(grams)))
    slots = [_hash_slot(f"w {word}"), *(_hash_slot(f"c {gram}") for gram in grams)]
    values = [sign * (ngram_weight if index else weight) for index, (_, sign) in enumerate(slots)]
    return [slot for slot, _ in slots], values
