"""Those who are no persons of the study: whoever leads a conversation, sums up, or judges.

They have no opinions. What they say is made of the argument phrases that stand in the text, bound
to the options for which they stand there.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from folkmoot.hints import enumerated
from folkmoot.respondent.lexicon import Lexicon
from folkmoot.respondent.mind import Mind
from folkmoot.respondent.persona import content_words
from folkmoot.respondent.question import SENTENCE
from folkmoot.respondent.reading import (
    Reading,
    any_of,
    fold,
    phrases,
    sentences,
    standing,
)
from folkmoot.respondent.speech import capital, frames

ROOM = 10  # phrases of a summary of one option
LEADING = frozenset({"moderator", "mediator", "facilitator"})
_CAPITALS = re.compile(r"\b[A-Z][A-Z_]{3,}\b")
_QUOTED = re.compile(rf"[\"“'‘`*]({_CAPITALS.pattern})[.!]?[\"”'’`*]")
# The chance that whoever leads is content, after so many answers.
_CONTENT = (0.0, 0.0, 0.35, 0.55, 0.75)


def said(mind: Mind) -> str:
    """The text of a role: a turn of who leads a conversation, else a summary of what is shown."""
    read = mind.reading
    if read.own_words or read.role in LEADING:
        return turn(mind)
    return summary(mind)


def summary(mind: Mind) -> str:
    """Two or three sentences for each option that has arguments in the text."""
    found = phrases(mind.reading.prompt, mind.options, mind.at.lexicon)
    options = [o for o in (*mind.options, "") if found.get(o)]
    if options:
        return " ".join(_summed_up(mind, o or _matter(mind), found[o]) for o in options)
    mind.unread()
    named = enumerated(mind.options) or _matter(mind)
    return f"On {named} no reasons are given that could be summed up."


def restated(mind: Mind, option: str) -> str:
    """The reasons of those who are for an option, as far as the person read or heard them; else
    reasons that the person would have for it."""
    heard: Counter[str] = Counter()
    for passage in mind.reading.said:
        if not passage.own:
            heard.update(phrases(passage.text, mind.options, mind.at.lexicon).get(option, {}))
    some = Counter(dict(mind.draws.shuffled(list(heard.items()))))
    return _summed_up(mind, option, some) if heard else mind.say(option)


def _summed_up(mind: Mind, about: str, found: Counter[str]) -> str:
    lexicon = mind.at.lexicon
    kept = _proportional(found, lexicon)
    nouns = [p for p in kept if p not in lexicon.verbs]
    verbs = [p for p in kept if p in lexicon.verbs]
    half = (len(nouns) + 1) // 2
    parts = []
    for kind, some in (
        ("sums_nouns", nouns[:half]),
        ("sums_nouns", nouns[half:]),
        ("sums_verbs", verbs),
    ):
        if some:
            frame = mind.tongue.fresh(frames()[kind])
            parts.append(capital(frame.format(O=about, N=enumerated(some))))
    return " ".join(parts)


def _matter(mind: Mind) -> str:
    return mind.matters[0] if mind.matters else "this"


def _proportional(found: Counter[str], lexicon: Lexicon) -> list[str]:
    """At most `ROOM` phrases, the most frequent ones, the camps in the proportion in which they
    were voiced."""
    weight = [0, 0, 0]
    for phrase, n in found.items():
        weight[lexicon.phrases[phrase]] += n
    left = [round(ROOM * w / sum(weight)) for w in weight]
    kept = []
    for phrase, _ in sorted(found.items(), key=lambda kv: -kv[1]):
        camp = lexicon.phrases[phrase]
        if left[camp] > 0:
            left[camp] -= 1
            kept.append(phrase)
    return kept


def turn(mind: Mind) -> str:
    """One question or challenge of whoever leads a conversation, or the signal that ends it."""
    read, tongue, draws = mind.reading, mind.tongue, mind.draws
    answers = len(read.own_words)
    signal = _signal(read)
    if signal and draws.chance(_CONTENT[min(answers, len(_CONTENT) - 1)]):
        return signal
    known = mind.options, mind.at.lexicon
    spoken: Counter[str] = Counter()
    for passage in read.said[1:] if answers else ():
        if not passage.own:
            found = phrases(passage.text, *known)
            spoken.update({o: found[o].total() for o in found if o})
    theirs = spoken.most_common(1)[0][0] if spoken else ""
    others = [o for o in mind.options if o != theirs]
    sides = [o for o in singled_out(read.system, *known) if o in others] or others
    material = phrases(read.system, *known)
    shown = {o: material[o] for o in sides if material.get(o)}
    if not shown or (not theirs and len(sides) < 2):
        about = theirs or (sides[0] if sides else _matter(mind))
        rivals = [o for o in mind.options if o != about] or ["the alternatives"]
        return tongue.say("asks" if answers else "asks_first", O=about, B=draws.pick(rivals))
    if theirs:
        points = (*shown, *shown)[:2]
        return " ".join(_point(mind, o, shown[o], "challenges") for o in points)
    sides_said = [_point(mind, o, found, "sides") for o, found in shown.items()]
    return " ".join([*sides_said, tongue.fresh(frames()["sides_ask"])])


def _signal(read: Reading) -> str:
    """The signal that was pointed at, if the instructions name it; where none was, the word in
    capitals that they quote, else the last one in their last paragraph."""
    instructions = read.system
    if read.signal:
        return next(iter(standing((read.signal,), instructions)), "")
    last = instructions.strip().rpartition("\n\n")[2]
    bare = [word for word in _CAPITALS.findall(last) if content_words(word)]
    return next(iter([*_QUOTED.findall(instructions), *bare[::-1]]), "")


def _point(mind: Mind, option: str, found: Counter[str], kind: str) -> str:
    """A sentence with two arguments for an option that this speaker has not brought up yet."""
    lexicon, tongue = mind.at.lexicon, mind.tongue
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    brought_up = " ".join(mind.reading.own_words).casefold()
    fresh = [p for p in mind.draws.shuffled(list(found)) if p not in brought_up]
    for phrase in fresh if len(fresh) > 3 else mind.draws.shuffled(list(found)):
        by_kind[phrase in lexicon.verbs].append(phrase)
    verbal = len(by_kind[True]) > 1 and (len(by_kind[False]) < 2 or mind.draws.chance(0.5))
    two = (by_kind[verbal] * 2)[:2]
    if not two:
        two = (by_kind[not verbal] * 2)[:2]
        verbal = not verbal
    frame = tongue.fresh(frames()[f"{kind}_{'verbs' if verbal else 'nouns'}"])
    slots = dict(zip("VW" if verbal else "NM", two, strict=True))
    return capital(frame.format(O=option, **slots))


@lru_cache(maxsize=2048)
def singled_out(text: str, options: tuple[str, ...], lexicon: Lexicon) -> tuple[str, ...]:
    """The options that instructions name by themselves: outside of lists, headings and arguments,
    more often than the others; in their order."""
    times = dict.fromkeys(options, 0)
    names_of = {fold(o).casefold(): o for o in options}
    for line in SENTENCE.split(text) if options else ():
        named = [names_of[fold(m).casefold()] for m in any_of(options).findall(line)]
        # Of a list of them all, what is named besides.
        often = Counter(named)
        beyond = min(often[o] for o in options)
        apart = [o for o in often if often[o] > beyond]
        if not apart:
            continue
        rest = any_of(options).sub("", line)
        heading = line.lstrip().startswith("#") or not re.search(r"[^\W\d_]{2}", rest)
        if not heading and not lexicon.any_word.search(rest.lower()):
            times.update((o, times[o] + 1) for o in apart)
    least = min(times.values()) if len(options) > 2 else 0
    return tuple(o for o in options if times[o] > least)


def judged(mind: Mind) -> str:
    """The option whose arguments in the text are least like those that stand there first."""
    options = mind.options
    said = sentences(mind.reading.prompt, options, mind.at.lexicon)
    counts = {o: Counter[int]() for o in options}
    first = ""
    for sentence in said:
        for option, words in sentence.words.items():
            if option:
                first = first or option
                counts[option].update(mind.at.lexicon.camp_of[w] for w in words)
    rivals = [o for o in options if o != first and counts[o]]
    if not rivals:
        mind.unread()
        return mind.draws.pick([o for o in options if o != first] or options)
    return max(rivals, key=lambda o: _distance(counts[o], counts[first]))


def _distance(a: Counter[int], b: Counter[int]) -> float:
    """Half the L1 distance between two mixtures of camps (0 to 1)."""
    return sum(abs(a[k] / a.total() - b[k] / b.total()) for k in range(3)) / 2
