"""Which options a decision is about: the usual ones that were named, ballots', own words.

The result does not depend on the order of members; it is what the vote parser scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.tally import Ballot

MOST_WORDS = 6
BARE_WORDS = 3
_NOTHING = frozenset(
    words
    for phrase in (
        "none",
        "n/a",
        "na",
        "nothing",
        "any",
        "anything",
        "no preference",
        "no strong preference",
        "nil",
        "-",
        "null",
        "everything",
        "whatever",
    )
    if (words := polarity.words_of(phrase))
)


def candidates(
    catalogue: Sequence[str],
    texts: Mapping[str, str],
    ballots: Mapping[str, Ballot] | None = None,
) -> tuple[str, ...]:
    """The options on the table, alphabetical.

    An option of the catalogue is on it when some text names it, in favour or not. A member whose
    text names none, or only some to turn down, puts the own words on it: what follows a positive
    cue to the clause's end, or the whole of a text of at most three words ("cheap, please").
    Ballots' top choices and acceptable options are on it as well. Options alike but for case,
    plurals and accents are one.
    """
    found: dict[tuple[str, ...], str] = {}
    for text in texts.values():
        seen = polarity.mentions(text, catalogue)
        own = set() if any(not m.negated for m in seen) else _own_words(text)
        for option in {m.option for m in seen} | own:
            _put(found, option, catalogue)
    for ballot in (ballots or {}).values():
        for entry in (ballot.top_choice, *ballot.acceptable):
            known = {m.option for m in polarity.mentions(entry, catalogue)}
            for option in known or {clean(entry)}:
                _put(found, option, catalogue)
    return tuple(sorted(found.values()))


def clean(entry: str) -> str:
    """A ballot's entry as an option: lower case, single spaces, no list marks; "" if it is none."""
    text = re.sub(r"^[\s\d.)*•\-–—\"'`]+|[\s.,;:!?\"'`]+$", "", entry.casefold())
    text = " ".join(text.split())
    words = polarity.words_of(text)
    return text if 0 < len(words) <= MOST_WORDS and words not in _NOTHING else ""


def _put(found: dict[tuple[str, ...], str], option: str, catalogue: Sequence[str]) -> None:
    words = polarity.words_of(option)
    if not words:
        return
    # One spelling for all, and the same whoever came first: the catalogue's, else the first
    # in the alphabet.
    known = next((o for o in catalogue if polarity.words_of(o) == words), None)
    spelling = known or min(option, found.get(words, option))
    found[words] = spelling


def _own_words(text: str) -> set[str]:
    """Phrases after a positive cue, or a bare phrase, without the small words around them."""
    words = polarity.words_of(text)
    cues = polarity.POSITIVE_CUES | polarity.NEGATION_CUES
    if len(words) <= BARE_WORDS and not cues & set(words) and words not in _NOTHING:
        bare = _between_small_words(words)
        return {_as_written(bare, text)} if any(len(w) > 2 for w in bare) else set()
    phrases: set[str] = set()
    for clause in polarity.clauses(text):
        cue = next((i for i, w in enumerate(clause) if w in polarity.POSITIVE_CUES), None)
        if cue is None or polarity.NEGATION_CUES & set(clause[:cue]):
            continue
        phrase = _between_small_words(clause[cue + 1 :])
        if phrase:
            phrases.add(_as_written(phrase, text))
    return phrases


def _as_written(phrase: Sequence[str], text: str) -> str:
    """Folded words with the endings that the text gives them: "tapas", not "tapa"."""
    written: dict[tuple[str, ...], str] = {}
    for token in re.findall(r"[\w'’]+", text.casefold()):
        written.setdefault(polarity.words_of(token), token)
    return " ".join(written.get((word,), word) for word in phrase)


def _between_small_words(words: Iterable[str]) -> list[str]:
    """The first run of content words, at most four."""
    run: list[str] = []
    for word in words:
        small = word in polarity.STOP_WORDS or word in polarity.POSITIVE_CUES
        if small and run:
            break
        if not small:
            run.append(word)
    return run[:4] if not set(run) & polarity.NEGATION_CUES else []
