"""Replies of speakers who lead a conversation, summarise or judge.

These speakers have no opinions. They repeat argument phrases that the request contains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from folkmoot.hints import capitalise, collapse_spaces, join_words
from folkmoot.respondent.mind.lexicon import Lexicon
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.passages import Passage, of_kind
from folkmoot.respondent.mind.reading import (
    argument_phrases,
    argument_sentences,
    names_in,
)
from folkmoot.respondent.mind.speech import load_frames

# The maximum number of phrases in the summary of one option.
MAX_PHRASES = 10
# The kinds of passages from which a moderator may take arguments.
GIVEN = ("summary", "material", "proposal", "unattributed")
LEADING = frozenset({"moderator", "mediator", "facilitator"})
# The chance that a moderator ends the conversation, by the number of its earlier turns.
_CONTENT = (0.0, 0.0, 0.35, 0.55, 0.75)


def answer_role(mind: SimulatedRespondent) -> str:
    """Return the reply of a speaker without opinions: a moderator's turn or a summary."""
    reading = mind.reading
    is_in_conversation = reading.own_utterances and of_kind(reading.heard_passages, "utterance")
    if is_in_conversation or reading.role in LEADING:
        return answer_turn(mind)
    return summarise_arguments(mind)


def summarise_arguments(mind: SimulatedRespondent) -> str:
    """Return two or three sentences on each option for which the request contains arguments."""
    phrases = phrases_of(mind, mind.reading.told)
    options = [option for option in (*mind.options, "") if phrases.get(option)]
    if options:
        return " ".join(
            _summarise_phrases(mind, option or _current_matter(mind), phrases[option])
            for option in options
        )
    mind.mark_unread()
    matter = join_words(mind.options) or _current_matter(mind)
    return f"On {matter} no reasons are given that could be summed up."


def phrases_of(mind: SimulatedRespondent, passages: Sequence[Passage]) -> dict[str, Counter[str]]:
    """Return, for each option, how often each phrase in the passages argues for the option."""
    phrases_by_option: dict[str, Counter[str]] = {}
    for passage in passages:
        for option, counts in argument_phrases(passage.text, mind.options, mind.at.lexicon).items():
            phrases_by_option.setdefault(option, Counter()).update(counts)
    return phrases_by_option


def restate_reasons(mind: SimulatedRespondent, option: str) -> str:
    """Return a text with the reasons that the request contains for an option."""
    # If the passages give no reasons, they are reasons that fit the person.
    heard_phrases = phrases_of(mind, mind.reading.heard_passages).get(option, Counter())
    shuffled = Counter(dict(mind.draws.shuffled_copy(list(heard_phrases.items()))))
    return (
        _summarise_phrases(mind, option, shuffled)
        if heard_phrases
        else mind.compose_reasons(option)
    )


def _summarise_phrases(mind: SimulatedRespondent, about: str, phrase_counts: Counter[str]) -> str:
    lexicon = mind.at.lexicon
    phrases = _proportional_phrases(phrase_counts, lexicon)
    nouns = [phrase for phrase in phrases if phrase not in lexicon.all_verbs]
    verbs = [phrase for phrase in phrases if phrase in lexicon.all_verbs]
    half = (len(nouns) + 1) // 2
    parts = []
    for kind, phrase_group in (
        ("sums_nouns", nouns[:half]),
        ("sums_nouns", nouns[half:]),
        ("sums_verbs", verbs),
    ):
        if phrase_group:
            frame = mind.speech.pick_unused(load_frames()[kind])
            parts.append(capitalise(frame.format(O=about, N=join_words(phrase_group))))
    return " ".join(parts)


def _current_matter(mind: SimulatedRespondent) -> str:
    return mind.talked_about_matters[0] if mind.talked_about_matters else "this"


def _proportional_phrases(phrase_counts: Counter[str], lexicon: Lexicon) -> list[str]:
    # At most `MAX_PHRASES`, for a summary. Each camp is as frequent among them as in
    # `phrase_counts`.
    weights = [0, 0, 0]
    for phrase, count in phrase_counts.items():
        weights[lexicon.phrase_camps[phrase]] += count
    places_left = [round(MAX_PHRASES * weight / sum(weights)) for weight in weights]
    chosen = []
    for phrase, _ in sorted(phrase_counts.items(), key=lambda item: -item[1]):
        camp = lexicon.phrase_camps[phrase]
        if places_left[camp] > 0:
            places_left[camp] -= 1
            chosen.append(phrase)
    return chosen


def answer_turn(mind: SimulatedRespondent) -> str:
    """Return a moderator's question or challenge, or the signal that ends the conversation."""
    reading, tongue, draws = mind.reading, mind.speech, mind.draws
    answer_count = len(reading.own_utterances)
    if reading.signal and draws.draw_chance(_CONTENT[min(answer_count, len(_CONTENT) - 1)]):
        return reading.signal
    heard_utterances = of_kind(reading.heard_passages, "utterance") if answer_count else []
    phrases = phrases_of(mind, heard_utterances)
    their_option = max(
        (option for option in phrases if option),
        key=lambda option: phrases[option].total(),
        default="",
    )
    other_options = [option for option in mind.options if option != their_option]
    sides = [option for option in singled_out(mind) if option in other_options] or other_options
    material = phrases_of(mind, of_kind(reading.passages, *GIVEN))
    material_by_side = {side: material[side] for side in sides if material.get(side)}
    # Without arguments in the passages there is nothing to challenge with, so ask a plain question.
    if not material_by_side or (not their_option and len(sides) < 2):
        about = their_option or (sides[0] if sides else _current_matter(mind))
        rivals = [option for option in mind.options if option != about] or ["the alternatives"]
        return tongue.draw_sentence(
            "asks" if answer_count else "asks_first", O=about, B=draws.pick_item(rivals)
        )
    if their_option:
        # Two challenges per turn, from two options if there are two.
        options = (*material_by_side, *material_by_side)[:2]
        return " ".join(
            _argument_sentence(mind, option, material_by_side[option], "challenges")
            for option in options
        )
    sides_said = [
        _argument_sentence(mind, option, phrase_counts, "sides")
        for option, phrase_counts in material_by_side.items()
    ]
    return " ".join([*sides_said, tongue.pick_unused(load_frames()["sides_ask"])])


def _argument_sentence(
    mind: SimulatedRespondent, option: str, phrase_counts: Counter[str], kind: str
) -> str:
    lexicon, tongue = mind.at.lexicon, mind.speech
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    earlier_text = " ".join(passage.text for passage in mind.reading.own_utterances).casefold()
    unused = [
        phrase
        for phrase in mind.draws.shuffled_copy(list(phrase_counts))
        if phrase not in earlier_text
    ]
    for phrase in unused if len(unused) > 3 else mind.draws.shuffled_copy(list(phrase_counts)):
        by_kind[phrase in lexicon.all_verbs].append(phrase)
    is_verbal = len(by_kind[True]) > 1 and (len(by_kind[False]) < 2 or mind.draws.draw_chance(0.5))
    pair = (by_kind[is_verbal] * 2)[:2]
    if not pair:
        pair = (by_kind[not is_verbal] * 2)[:2]
        is_verbal = not is_verbal
    frame = tongue.pick_unused(load_frames()[f"{kind}_{'verbs' if is_verbal else 'nouns'}"])
    slots = dict(zip("VW" if is_verbal else "NM", pair, strict=True))
    return capitalise(frame.format(O=option, **slots))


def singled_out(mind: SimulatedRespondent) -> tuple[str, ...]:
    """Return the options that the request emphasises."""
    # These are the options in the question, and options that are quoted alone (such as a vote).
    option_by_text = {collapse_spaces(option).casefold(): option for option in mind.options}
    by_source: dict[str, set[str]] = {}
    for passage in mind.reading.passages:
        if option := option_by_text.get(collapse_spaces(passage.text).casefold()):
            by_source.setdefault(passage.source.id, set()).add(option)
    single_options = {
        option for options in by_source.values() if len(options) == 1 for option in options
    }
    single_options |= set(names_in(mind.reading.about, mind.options))
    return tuple(option for option in mind.options if option in single_options)


def judge_opposition(mind: SimulatedRespondent) -> str:
    """Return the option that is most opposed to the option that the question names."""
    # The arguments for the most opposed option are least like those for the option in question.
    # The option in question is the one that `about` names. If `about` names none or several, it is
    # the first option with arguments in the passages.
    options, lexicon = mind.options, mind.at.lexicon
    counts = {option: Counter[int]() for option in options}
    named_options = names_in(mind.reading.about, options)
    first = named_options[0] if len(named_options) == 1 else ""
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
    # From 0 to 1. `first`, `second`: number of words by camp.
    return (
        math.fsum(
            abs(first[camp] / first.total() - second[camp] / second.total()) for camp in range(3)
        )
        / 2
    )
