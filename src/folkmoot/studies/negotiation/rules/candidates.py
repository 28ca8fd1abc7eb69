"""The options that members' texts and ballots name or describe."""

# `candidate_options` collects these options before the vote is counted. `tally` scores each option
# in the texts and ballots.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from folkmoot.conversation.answer_types import parse_way_out
from folkmoot.conversation.lenient_fields import says_none
from folkmoot.hints import collapse_spaces
from folkmoot.studies.negotiation.rules.tally import (
    NEGATION_CUES,
    POSITIVE_CUES,
    STOP_WORDS,
    MemberBallot,
    find_mentions,
    fold_option,
    match_option,
    split_clauses,
    symbols_of,
    words_of,
)

# The words and the symbols of an option. Options with equal keys are one option.
OptionKey: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"

# A longer entry of a ballot is a sentence and no option. A preference text without a cue counts as
# an option only if it is as short as `BARE_WORDS` ("cheap, please").
MOST_WORDS = 6
BARE_WORDS = 3
# Entries that name no option because each of them is welcome.
_ANY_OPTION = frozenset(
    words_of(phrase)
    for phrase in (
        *("any", "anything", "everything", "whatever"),
        *("no preference", "no strong preference"),
    )
)

# After one of these words comes the object of a verb: "visit the castle", "go to a spa", "see it".
_STARTS = """
a an the some my our your his her their to it them you me us him something anything everything
"""
_OBJECT_STARTS = frozenset(_STARTS.split())


def candidate_options(
    catalogue: Sequence[str],
    texts: Mapping[str, str],
    ballots: Mapping[str, MemberBallot] | None = None,
) -> tuple[str, ...]:
    """Return the options among which a group can decide, in alphabetical order.

    - `catalogue`: the usual options of the topic.
    - `texts`: a map from member id to stated preference.
    """
    # An option of the catalogue is on the table if at least one text names it, in favour or not. A
    # text that names none in favour adds an option in the member's own words. These are the words
    # after a positive cue (such as "prefer") up to the end of the clause. A text of at most three
    # words ("cheap, please") is taken as a whole.
    # Top choices and acceptable options of ballots are on the table as well. Options that differ
    # only in case, plurals or accents are one option. The order of members has no influence.
    candidates: dict[OptionKey, str] = {}
    for text in texts.values():
        mentions = find_mentions(text, catalogue)
        own_phrases = (
            set() if any(not mention.negated for mention in mentions) else _own_words(text)
        )
        for option in {mention.option for mention in mentions} | own_phrases:
            _add_candidate(candidates, option, catalogue)
    for ballot in (ballots or {}).values():
        for entry in (ballot.top_choice, *ballot.acceptable):
            _add_candidate(candidates, entry, catalogue)
    return tuple(sorted(candidates.values()))


# Marks of a list before an entry, and punctuation around it.
# The lookbehind keeps the time linear in a long run of signs.
_AROUND_ENTRY = re.compile(r"^[\s\d.)*•\-–—\"'`]+|(?<![\s.,;:!?\"'`])[\s.,;:!?\"'`]+$")


def normalise_entry(entry: str) -> str:
    """Return the option that an entry of a ballot names, in lower case.

    Returns "" if the entry names no option or has more than `MOST_WORDS` words.
    """
    text = collapse_spaces(_AROUND_ENTRY.sub("", entry.casefold()))
    words = words_of(text)
    return text if 0 < len(words) <= MOST_WORDS and not names_no_option(text) else ""


def is_none(entry: str) -> bool:
    """Return True if an entry is blank or says "none", which means an empty list."""
    # A boolean in quotation marks names nothing either. An entry such as "👎" has no words.
    words = words_of(entry)
    is_boolean = words in (("true",), ("false",))
    return not words or is_boolean or says_none(entry) or parse_way_out(entry) is not None


def names_no_option(entry: str) -> bool:
    """Return True if an entry says "none", or "whatever" and the like."""
    return is_none(entry) or words_of(entry) in _ANY_OPTION


def _add_candidate(candidates: dict[OptionKey, str], option: str, catalogue: Sequence[str]) -> None:
    words = fold_option(option)
    if not words:
        return
    key = words, symbols_of(option)
    # An option has one spelling, independent of the order of members: that of the catalogue,
    # otherwise the alphabetically first one.
    usual_option = match_option(option, catalogue)
    candidates[key] = usual_option or min(option, candidates.get(key, option))


def _own_words(text: str) -> set[str]:
    # A very short text without a word like "prefer" or "not" is itself an option.
    words = words_of(text)
    cues = POSITIVE_CUES | NEGATION_CUES
    if len(words) <= BARE_WORDS and not cues & set(words) and not names_no_option(text):
        content = _between_small_words(words)
        return {_as_written(content, text)} if any(len(word) > 2 for word in content) else set()
    phrases: set[str] = set()
    for clause in split_clauses(text):
        cue = next((i for i, word in enumerate(clause) if word in POSITIVE_CUES), None)
        if cue is None or NEGATION_CUES & set(clause[:cue]):
            continue
        if phrase := _wish_object(clause[cue + 1 :]):
            phrases.add(_as_written(phrase, text))
    return phrases


def _wish_object(words: Sequence[str]) -> list[str]:
    # The words after "prefer": "to visit the castle" gives "castle".
    with_object = words[:1] == ("to",) and words[2:3] and words[2] in _OBJECT_STARTS
    return _between_small_words(words[2:] if with_object else words)


def _as_written(phrase: Sequence[str], text: str) -> str:
    # Stemmed words get the endings that they have in the text: "tapas", not "tapa".
    written_forms: dict[tuple[str, ...], str] = {}
    for token in re.findall(r"[\w'’]+", text.casefold()):
        written_forms.setdefault(words_of(token), token)
    return " ".join(written_forms.get((word,), word) for word in phrase)


def _between_small_words(words: Iterable[str]) -> list[str]:
    # A run with a negation cue (such as "not") names no wish.
    run: list[str] = []
    for word in words:
        is_small = word in STOP_WORDS or word in POSITIVE_CUES
        if is_small and run:
            break
        if not is_small:
            run.append(word)
    return run[:4] if not set(run) & NEGATION_CUES else []
