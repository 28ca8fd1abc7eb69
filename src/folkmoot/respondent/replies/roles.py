"""Replies of speakers who are no participants: they lead a conversation, summarise or judge.

They have no opinions. Their texts use argument phrases from the passages, for the same options.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from folkmoot.hints import join_words
from folkmoot.respondent.mind.lexicon import Lexicon
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.passages import Passage, of_kind
from folkmoot.respondent.mind.reading import (
    argument_phrases,
    argument_sentences,
    names_in,
    normalise_spaces,
)
from folkmoot.respondent.mind.speech import capitalise_first, load_frames

# The maximum number of phrases in the summary of one option.
ROOM = 10
# The kinds of passages from which a moderator may take arguments.
GIVEN = ("summary", "material", "proposal", "unattributed")
LEADING = frozenset({"moderator", "mediator", "facilitator"})
# The chance that a moderator ends the conversation, by the number of its earlier turns.
_CONTENT = (0.0, 0.0, 0.35, 0.55, 0.75)


def answer_role(mind: SimulatedRespondent) -> str:
    """Return the text of a role: a turn of a moderator, or a summary of the passages."""
    read = mind.reading
    in_talk = read.own_utterances and of_kind(read.heard_passages, "utterance")
    if in_talk or read.role in LEADING:
        return answer_turn(mind)
    return summarise_arguments(mind)


def summarise_arguments(mind: SimulatedRespondent) -> str:
    """Return two or three sentences for each option with arguments in the passages."""
    found = phrases_of(mind, mind.reading.told)
    options = [option for option in (*mind.options, "") if found.get(option)]
    if options:
        return " ".join(
            _summed_up(mind, option or _current_matter(mind), found[option]) for option in options
        )
    mind.mark_unread()
    named = join_words(mind.options) or _current_matter(mind)
    return f"On {named} no reasons are given that could be summed up."


def phrases_of(mind: SimulatedRespondent, passages: Sequence[Passage]) -> dict[str, Counter[str]]:
    """Return option → argument phrases of the passages with their counts."""
    found: dict[str, Counter[str]] = {}
    for passage in passages:
        for option, some in argument_phrases(passage.text, mind.options, mind.at.lexicon).items():
            found.setdefault(option, Counter()).update(some)
    return found


def restate_reasons(mind: SimulatedRespondent, option: str) -> str:
    """Return the reasons of the people who hold an option, from the passages.

    If the passages give none, return reasons that the person would have for it.
    """
    heard = phrases_of(mind, mind.reading.heard_passages).get(option, Counter())
    some = Counter(dict(mind.draws.shuffled_copy(list(heard.items()))))
    return _summed_up(mind, option, some) if heard else mind.compose_reasons(option)


def _summed_up(mind: SimulatedRespondent, about: str, found: Counter[str]) -> str:
    lexicon = mind.at.lexicon
    kept = _proportional_phrases(found, lexicon)
    nouns = [part for part in kept if part not in lexicon.all_verbs]
    verbs = [part for part in kept if part in lexicon.all_verbs]
    half = (len(nouns) + 1) // 2
    parts = []
    for kind, some in (
        ("sums_nouns", nouns[:half]),
        ("sums_nouns", nouns[half:]),
        ("sums_verbs", verbs),
    ):
        if some:
            frame = mind.tongue.pick_unused(load_frames()[kind])
            parts.append(capitalise_first(frame.format(O=about, N=join_words(some))))
    return " ".join(parts)


def _current_matter(mind: SimulatedRespondent) -> str:
    return mind.talked_about_matters[0] if mind.talked_about_matters else "this"


def _proportional_phrases(found: Counter[str], lexicon: Lexicon) -> list[str]:
    """Return the most frequent phrases, at most `ROOM`.

    The camps have the same proportions as in the passages.
    """
    weight = [0, 0, 0]
    for phrase, n in found.items():
        weight[lexicon.phrase_camps[phrase]] += n
    left = [round(ROOM * w / sum(weight)) for w in weight]
    kept = []
    for phrase, _ in sorted(found.items(), key=lambda kv: -kv[1]):
        camp = lexicon.phrase_camps[phrase]
        if left[camp] > 0:
            left[camp] -= 1
            kept.append(phrase)
    return kept


def answer_turn(mind: SimulatedRespondent) -> str:
    """Return a moderator's question or challenge, or the signal that ends the conversation."""
    read, tongue, draws = mind.reading, mind.tongue, mind.draws
    answers = len(read.own_utterances)
    if read.signal and draws.draw_chance(_CONTENT[min(answers, len(_CONTENT) - 1)]):
        return read.signal
    heard = of_kind(read.heard_passages, "utterance") if answers else []
    said = phrases_of(mind, heard)
    theirs = max(
        (option for option in said if option), key=lambda option: said[option].total(), default=""
    )
    others = [option for option in mind.options if option != theirs]
    sides = [option for option in singled_out(mind) if option in others] or others
    material = phrases_of(mind, of_kind(read.passages, *GIVEN))
    shown = {side: material[side] for side in sides if material.get(side)}
    # Without arguments in the passages there is nothing to challenge with, so ask a plain question.
    if not shown or (not theirs and len(sides) < 2):
        about = theirs or (sides[0] if sides else _current_matter(mind))
        rivals = [option for option in mind.options if option != about] or ["the alternatives"]
        return tongue.draw_sentence(
            "asks" if answers else "asks_first", O=about, B=draws.pick_item(rivals)
        )
    if theirs:
        # Two challenges per turn, from two options if there are two.
        points = (*shown, *shown)[:2]
        return " ".join(
            _argument_sentence(mind, point, shown[point], "challenges") for point in points
        )
    sides_said = [
        _argument_sentence(mind, option, found, "sides") for option, found in shown.items()
    ]
    return " ".join([*sides_said, tongue.pick_unused(load_frames()["sides_ask"])])


def _argument_sentence(
    mind: SimulatedRespondent, option: str, found: Counter[str], kind: str
) -> str:
    """Return a sentence with two arguments for an option, if possible ones not yet used."""
    lexicon, tongue = mind.at.lexicon, mind.tongue
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    brought_up = " ".join(passage.text for passage in mind.reading.own_utterances).casefold()
    fresh = [part for part in mind.draws.shuffled_copy(list(found)) if part not in brought_up]
    for phrase in fresh if len(fresh) > 3 else mind.draws.shuffled_copy(list(found)):
        by_kind[phrase in lexicon.all_verbs].append(phrase)
    verbal = len(by_kind[True]) > 1 and (len(by_kind[False]) < 2 or mind.draws.draw_chance(0.5))
    two = (by_kind[verbal] * 2)[:2]
    if not two:
        two = (by_kind[not verbal] * 2)[:2]
        verbal = not verbal
    frame = tongue.pick_unused(load_frames()[f"{kind}_{'verbs' if verbal else 'nouns'}"])
    slots = dict(zip("VW" if verbal else "NM", two, strict=True))
    return capitalise_first(frame.format(O=option, **slots))


def singled_out(mind: SimulatedRespondent) -> tuple[str, ...]:
    """Return the options that the request singles out.

    These are options that `about` names, and options quoted alone and not in a list of several,
    such as the choice of a participant.
    """
    called = {normalise_spaces(option).casefold(): option for option in mind.options}
    by_source: dict[str, set[str]] = {}
    for passage in mind.reading.passages:
        if option := called.get(normalise_spaces(passage.text).casefold()):
            by_source.setdefault(passage.source.id, set()).add(option)
    alone = {option for options in by_source.values() if len(options) == 1 for option in options}
    alone |= set(names_in(mind.reading.about, mind.options))
    return tuple(option for option in mind.options if option in alone)


def judge_opposition(mind: SimulatedRespondent) -> str:
    """Return the option with arguments least similar to those for the option of the question.

    The option of the question is the only one that `about` names. Otherwise it is the first with
    arguments in the passages.
    """
    options, lexicon = mind.options, mind.at.lexicon
    counts = {option: Counter[int]() for option in options}
    named = names_in(mind.reading.about, options)
    first = named[0] if len(named) == 1 else ""
    for passage in mind.reading.heard_passages:
        for sentence in argument_sentences(passage.text, options, lexicon):
            for option, words in sentence.items():
                if option:
                    first = first or option
                    counts[option].update(lexicon.camp_of[word] for word in words)
    rivals = [option for option in options if option != first and counts[option]]
    if not rivals or not counts[first]:
        mind.mark_unread()
        return mind.draws.pick_item([option for option in options if option != first] or options)
    return max(rivals, key=lambda option: _mixture_distance(counts[option], counts[first]))


def _mixture_distance(first: Counter[int], second: Counter[int]) -> float:
    """Return half the L1 distance between two mixtures of camps, 0 to 1."""
    return (
        sum(abs(first[key] / first.total() - second[key] / second.total()) for key in range(3)) / 2
    )
