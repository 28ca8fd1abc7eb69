"""Embeddings without a download: hashed word and character n-grams, tf-idf weighted, 512 numbers.

The embedded default wherever no embedding model is named. A text's vector depends on that text
alone: the idf is a fixed table (docs/decisions/0003), so batches and scheduling change nothing.
Like all embeddings these tell topic and wording better than stance.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from folkmoot.models.request import FloatArray

DIMENSIONS = 512
NAME = "hashed-512"
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:\.\d+)?")
_BIGRAM = 0.25
_GRAMS = 0.8
# Everyday words beyond the stop words: they stand in any text on any matter.
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
_COMMON_WORDS = """
think believe feel say says said see look come comes go goes make makes made want know people
person way thing things really just like also even still one two first second good better best
well much many lot kind point reason reasons choice choose chose chosen option options favour
favours prefer matter matters most more would could should might may expect hope view group
participant participants position positions others stress weight adds add means mean stands
stand talk consideration honestly mind put puts same made behind unlike sets apart reasoning
heart return time year years add further given
"""
_COMMON = frozenset(_COMMON_WORDS.split())


def embed(texts: Sequence[str]) -> FloatArray:
    """Vectors of texts, shape (n, 512), float32, rows of length 1 (zero for a wordless text)."""
    rows = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    for at, text in enumerate(texts):
        rows[at] = _vector(text)
    return rows


@lru_cache(maxsize=65536)
def idf(word: str) -> float:
    """A fixed stand-in for inverse document frequency, by kind of word and by length.

    Stop words weigh nothing and everyday words little; for the rest Zipf's law of abbreviation
    (longer words are rarer) gives a weight that needs no corpus.
    """
    if word in _STOP_WORDS or len(word) < 2:
        return 0.0
    if word in _COMMON:
        return 0.15
    return min(1.6, 0.5 + 0.12 * len(word))


def _vector(text: str) -> FloatArray:
    words = _WORD.findall(text.casefold().replace("’", "'"))
    kept = [w for w in words if idf(w)]
    if not kept:
        return np.zeros(DIMENSIONS, dtype=np.float32)
    places, weights = [], []
    for word, n in Counter(kept).items():
        at, values = _features(word)
        places.append(at)
        weights.append((1.0 + math.log(n)) * values if n > 1 else values)
    pairs = Counter(pairwise(kept))
    if pairs:
        slots = [_pair(a, b) for a, b in pairs]
        tf = 1.0 + np.log(list(pairs.values()))
        places.append(np.array([place for place, _ in slots]))
        weights.append(tf * [weight for _, weight in slots])
    vector = np.bincount(
        np.concatenate(places), weights=np.concatenate(weights), minlength=DIMENSIONS
    )
    length = math.sqrt(float(vector @ vector))
    return (vector / length if length else vector).astype(np.float32)


def _slot(feature: str) -> tuple[int, float]:
    """Where a feature goes and with which sign (signed hashing keeps dot products unbiased)."""
    code = zlib.crc32(feature.encode())
    return code % DIMENSIONS, 1.0 if code & 0x80000000 else -1.0


@lru_cache(maxsize=65536)
def _pair(a: str, b: str) -> tuple[int, float]:
    """Slot and weight of two words that follow each other."""
    place, sign = _slot(f"{a} {b}")
    return place, sign * _BIGRAM * math.sqrt(idf(a) * idf(b))


@lru_cache(maxsize=65536)
def _features(word: str) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Slots and weights of a word and of its character 3- to 5-grams."""
    weight = idf(word)
    marked = f"<{word}>"
    grams = [marked[k : k + n] for n in (3, 4, 5) for k in range(len(marked) - n + 1)]
    each = weight * _GRAMS / math.sqrt(max(1, len(grams)))
    slots = [_slot(f"w {word}"), *(_slot(f"c {gram}") for gram in grams)]
    values = [sign * (each if k else weight) for k, (_, sign) in enumerate(slots)]
    return np.array([place for place, _ in slots]), np.array(values)
