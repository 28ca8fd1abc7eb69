"""How a persona chooses: utilities, what exposure does to them, and the noisy argmax.

The planted model of a run made with the embedded respondent; see docs/respondent.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from folkmoot.models.synthetic.draws import gumbel, unit
from folkmoot.models.synthetic.knobs import ANCHOR, DISTANCE, HALF_DOSE, Knobs
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.lexicon import match, reasons
from folkmoot.models.synthetic.reading import Reading

Counts = tuple[int, int, int]
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def utilities(who: Persona, reading: Reading, options: Sequence[str], knobs: Knobs) -> list[float]:
    """Utilities of the options after all that the request shows."""
    first = [who.taste(o, 1 - 0.8 * knobs.shrinking_variance) for o in options]
    held = reading.held or options[max(range(len(first)), key=first.__getitem__)]
    u = list(first)
    if reading.sections:
        kappa = knobs.kappa_clarified if clarified(reading) else knobs.kappa_summaries
        shown = {o: reasons(text) for o, text in reading.sections.items()}
        u = exposed(u, first, options, held, shown, who, kappa * knobs.persuasion)
    if reading.opponents_words:
        shown = by_option(reading.opponents_words, tuple(options), held)
        u = exposed(u, first, options, held, shown, who, knobs.kappa_adversarial * knobs.persuasion)
    if knobs.sycophancy:
        favoured = favourite(reading, options, held)
        u = [x + 2.5 * knobs.sycophancy * (o == favoured) for x, o in zip(u, options, strict=True)]
    return u


def clarified(reading: Reading) -> bool:
    """Whether the person had explained themselves to a neutral moderator before."""
    if reading.own_turns:
        return True
    return reading.interviewed and not reading.opponents_words


def exposed(
    u: Sequence[float],
    first: Sequence[float],
    options: Sequence[str],
    held: str,
    shown: Mapping[str, Counts],
    who: Persona,
    kappa: float,
) -> list[float]:
    """u_j += s·κ·exp(−((max u − u_j)/3)²)·o_j·match(a_j, r), then u ← .75u + .25u(0).

    `shown`: argument words per option and camp. The held option's own side is no news to its
    holder: o_j are shares among the other options, with a pseudo-count for thin texts.
    """
    others = {o: c for o, c in shown.items() if o != held}
    total = sum(sum(c) for c in others.values())
    if not total or kappa == 0:
        return list(u)
    top = max(u)
    moved = []
    for value, option in zip(u, options, strict=True):
        counts = others.get(option, (0, 0, 0))
        share = sum(counts) / (total + HALF_DOSE)
        near = math.exp(-(((top - value) / DISTANCE) ** 2))
        moved.append(value + who.susceptibility * kappa * near * share * match(counts, who.camp))
    return [(1 - ANCHOR) * m + ANCHOR * f for m, f in zip(moved, first, strict=True)]


@lru_cache(maxsize=2048)
def by_option(turns: tuple[str, ...], options: tuple[str, ...], held: str) -> dict[str, Counts]:
    """Argument words of a challenger's turns, each sentence counted for the option it names.

    A sentence that names none speaks for the option named last; one that names the held option
    beside another speaks for the other.
    """
    counts = {o: [0, 0, 0] for o in options}
    low = {o: o.lower() for o in options}
    current = ""
    for turn in turns:
        for sentence in _SENTENCE.split(turn):
            text = sentence.lower()
            named = [o for o in options if low[o] in text]
            others = [o for o in named if o != held]
            current = others[0] if others else (named[0] if named else current)
            if current:
                bare = text.replace(low[current], " ")
                for camp, n in enumerate(reasons(bare)):
                    counts[current][camp] += n
    return {o: (c[0], c[1], c[2]) for o, c in counts.items()}


def favourite(reading: Reading, options: Sequence[str], held: str) -> str:
    """The option that the text seems to want: the challenger's, or the one said most."""
    if reading.opponents_words:
        shown = by_option(reading.opponents_words, tuple(options), held)
        return max(options, key=lambda o: (sum(shown[o]), -options.index(o)))
    text = reading.everything.lower()
    return max(options, key=lambda o: (text.count(o.lower()), -options.index(o)))


def choose(
    who: Persona, reading: Reading, options: Sequence[str], knobs: Knobs, seed: int, address: str
) -> str:
    """argmax u_j + β·[listed at the favoured place] + σ·Gumbel, seeded by the address."""
    if knobs.instability and unit(seed, address, "unstable") < knobs.instability:
        return options[int(len(options) * unit(seed, address, "anything"))]
    scale = scale_order(tuple(options))
    if scale:
        return options[_on_scale(who, reading, scale, knobs, seed, address)]
    u = utilities(who, reading, options, knobs)
    if 1 <= knobs.position <= len(u):
        u[knobs.position - 1] += knobs.position_bias
    noisy = [
        x + knobs.noise * gumbel(seed, address, "choice", o)
        for x, o in zip(u, options, strict=True)
    ]
    return options[max(range(len(noisy)), key=noisy.__getitem__)]


_AGREE = re.compile(r"\b(?:agree|yes|support|favou?r|approve|likely|satisfied|accept|true)\b", re.I)
_DISAGREE = re.compile(
    r"\b(?:disagree|no|not|oppose|against|disapprove|unlikely|dissatisfied|reject|false)\b", re.I
)
_STRONG = re.compile(r"\b(?:strongly|very|completely|extremely|definitely)\b", re.I)
_WEAK = re.compile(r"\b(?:somewhat|slightly|rather|a little|partly|probably)\b", re.I)


@lru_cache(maxsize=1024)
def scale_order(options: tuple[str, ...]) -> tuple[float, ...]:
    """Places of the options on a rating scale (low to high), or empty where they form none."""
    numbers = [re.match(r"^\s*(-?\d+(?:\.\d+)?)\b", o) for o in options]
    if len(options) > 2 and all(numbers):
        return tuple(float(n[1]) for n in numbers if n)
    if not any(_DISAGREE.search(o) for o in options):
        return ()
    places = []
    for option in options:
        sign = -1.0 if _DISAGREE.search(option) else 1.0 if _AGREE.search(option) else 0.0
        size = 3.0 if _STRONG.search(option) else 1.0 if _WEAK.search(option) else 2.0
        places.append(sign * size)
    whole = len(set(places)) == len(places) and max(places) > 0
    return tuple(places) if whole and all(len(o) < 60 for o in options) else ()


def _on_scale(
    who: Persona, reading: Reading, scale: Sequence[float], knobs: Knobs, seed: int, address: str
) -> int:
    """A place on a rating scale: a fixed leaning on the question, warmth, noise, nearest place."""
    low, high = min(scale), max(scale)
    question = question_key(reading.prompt)
    lean = (1 - knobs.shrinking_variance) * who.lean(question)
    lean += 0.15 * who.warmth + knobs.acquiescence + 0.5 * knobs.sycophancy
    lean += 0.6 * knobs.noise * (gumbel(seed, address, "scale") - 0.577)
    target = low + (high - low) * (max(-1.0, min(1.0, lean)) + 1) / 2
    ranked = list(range(len(scale)))
    if 1 <= knobs.position <= len(scale) and knobs.position_bias > 0:
        bonus = (high - low) * 0.25 * knobs.position_bias
        return min(ranked, key=lambda k: abs(scale[k] - target) - bonus * (k == knobs.position - 1))
    return min(ranked, key=lambda k: abs(scale[k] - target))


def question_key(prompt: str) -> str:
    """What a question is about, whatever the order in which its options stand."""
    return " ".join(sorted(set(re.findall(r"[a-z]{4,}", prompt.lower()))))[:2000]
