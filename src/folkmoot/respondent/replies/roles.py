"""Those who are no persons of the study: whoever leads a conversation, sums up, or judges.

They have no opinions. What they say is made of the argument phrases that stand in the text, bound
to the options for which they stand there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from folkmoot.hints import enumerated
from folkmoot.respondent.mind.lexicon import Lexicon
from folkmoot.respondent.mind.mind import Mind
from folkmoot.respondent.mind.passages import Passage, of_kind
from folkmoot.respondent.mind.reading import fold, names_in, phrases, sentences
from folkmoot.respondent.mind.speech import capital, frames

ROOM = 10  # phrases of a summary of one option
# Kinds of texts that whoever leads a conversation may argue with.
GIVEN = ("summary", "material", "proposal", "unattributed")
LEADING = frozenset({"moderator", "mediator", "facilitator"})
# The chance that whoever leads is content, after so many answers.
_CONTENT = (0.0, 0.0, 0.35, 0.55, 0.75)


def said(mind: Mind) -> str:
    """The text of a role: a turn of who leads a conversation, else a summary of what is shown."""
    read = mind.reading
    in_talk = read.own_utterances and of_kind(read.heard, "utterance")
    if in_talk or read.role in LEADING:
        return turn(mind)
    return summary(mind)


def summary(mind: Mind) -> str:
    """Two or three sentences for each option that has arguments in the text."""
    found = phrases_of(mind, mind.reading.told)
    options = [o for o in (*mind.options, "") if found.get(o)]
    if options:
        return " ".join(_summed_up(mind, o or _matter(mind), found[o]) for o in options)
    mind.unread()
    named = enumerated(mind.options) or _matter(mind)
    return f"On {named} no reasons are given that could be summed up."


def phrases_of(mind: Mind, passages: Sequence[Passage]) -> dict[str, Counter[str]]:
    """The argument phrases of texts by the option for which they stand."""
    found: dict[str, Counter[str]] = {}
    for passage in passages:
        for option, some in phrases(passage.text, mind.options, mind.at.lexicon).items():
            found.setdefault(option, Counter()).update(some)
    return found


def restated(mind: Mind, option: str) -> str:
    """The reasons of those who are for an option, as far as the person read or heard them; else
    reasons that the person would have for it."""
    heard = phrases_of(mind, mind.reading.heard).get(option, Counter())
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
    answers = len(read.own_utterances)
    if read.signal and draws.chance(_CONTENT[min(answers, len(_CONTENT) - 1)]):
        return read.signal
    heard = of_kind(read.heard, "utterance") if answers else []
    said = phrases_of(mind, heard)
    theirs = max((o for o in said if o), key=lambda o: said[o].total(), default="")
    others = [o for o in mind.options if o != theirs]
    sides = [o for o in singled_out(mind) if o in others] or others
    material = phrases_of(mind, of_kind(read.passages, *GIVEN))
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


def _point(mind: Mind, option: str, found: Counter[str], kind: str) -> str:
    """A sentence with two arguments for an option that this speaker has not brought up yet."""
    lexicon, tongue = mind.at.lexicon, mind.tongue
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    brought_up = " ".join(p.text for p in mind.reading.own_utterances).casefold()
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


def singled_out(mind: Mind) -> tuple[str, ...]:
    """The options that stand by themselves: those that `about` names, and passages that are an
    option and come from elsewhere than a list of several, such as the choice of a participant."""
    called = {fold(option).casefold(): option for option in mind.options}
    by_source: dict[str, set[str]] = {}
    for passage in mind.reading.passages:
        if option := called.get(fold(passage.text).casefold()):
            by_source.setdefault(passage.source.id, set()).add(option)
    alone = {option for options in by_source.values() if len(options) == 1 for option in options}
    alone |= set(names_in(mind.reading.about, mind.options))
    return tuple(option for option in mind.options if option in alone)


def judged(mind: Mind) -> str:
    """The option with arguments that are least like those for the option that is asked about: the
    only one that `about` names, else the first for which arguments stand in the texts."""
    options, lexicon = mind.options, mind.at.lexicon
    counts = {o: Counter[int]() for o in options}
    named = names_in(mind.reading.about, options)
    first = named[0] if len(named) == 1 else ""
    for passage in mind.reading.heard:
        for sentence in sentences(passage.text, options, lexicon):
            for option, words in sentence.items():
                if option:
                    first = first or option
                    counts[option].update(lexicon.camp_of[word] for word in words)
    rivals = [o for o in options if o != first and counts[o]]
    if not rivals or not counts[first]:
        mind.unread()
        return mind.draws.pick([o for o in options if o != first] or options)
    return max(rivals, key=lambda o: _distance(counts[o], counts[first]))


def _distance(a: Counter[int], b: Counter[int]) -> float:
    """Half the L1 distance between two mixtures of camps (0 to 1)."""
    return sum(abs(a[k] / a.total() - b[k] / b.total()) for k in range(3)) / 2
