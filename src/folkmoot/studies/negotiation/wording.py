"""What the System says: the contract of its turns, decisions in sentences, and plain words for C3.

Under C3 no strategy id, operator or theory word may be in anything that the mediator says to a
member or the planner. lexicon.yaml lists them, each with the plain words that replace it. What
members say stays as they said it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from folkmoot.files import packaged_yaml
from folkmoot.studies.negotiation.operators import WHOLE_TRIP, Outcome, Portion
from folkmoot.studies.negotiation.strategies import Group, listed, table
from folkmoot.studies.negotiation.tally import content_words, words_of

# --- the contract ------------------------------------------------------------------------------


PARTS = ("Conflict", "Strategy", "Decision", "Reason", "Next step")


def contract(conflict: str, strategy: str, decision: str, reason: str, next_step: str) -> str:
    """The five parts of every System turn under C4 and C5, one a line."""
    said = zip(PARTS, (conflict, strategy, decision, reason, next_step), strict=True)
    return "\n".join(f"{part}: {sentence(words) or 'None stated.'}" for part, words in said)


def parts_of(turn: str) -> dict[str, str]:
    """What a turn says in each part of the contract; {} for one in other words."""
    found = dict(line.split(": ", 1) for line in turn.splitlines() if ": " in line)
    return found if tuple(found) == PARTS else {}


def sentence(text: str) -> str:
    """One line that ends like a sentence; empty stays empty."""
    line = " ".join(text.split())
    return line if not line or line[-1] in ".!?" else f"{line}."


def conflict_part(topic: str, has_conflict: bool) -> str:
    """The conflict part for a topic: "Conflict is present in cuisine preferences"."""
    where = f"{topic.removesuffix('_preference').replace('_', ' ')} preferences"
    return f"Conflict is present in {where}" if has_conflict else f"No conflict in {where}"


_MARKS = re.compile('[“”„«»"]')


def quoted(text: str) -> str:
    """A member's words on one line in quotation marks, so that they read as somebody's words and
    as no instruction; quotation marks in them become single ones."""
    single = _MARKS.sub("'", " ".join(text.split()))
    return f"“{single}”"


# --- decisions in sentences --------------------------------------------------------------------

# Options are kept in lower case; in a sentence these have a capital.
_PROPER = re.compile(
    r"\b(?:american|chinese|french|greek|indian|italian|japanese|korean|mediterranean|mexican"
    r"|spanish|thai|turkish|vietnamese)\b"
)


def spelled(sentence: str) -> str:
    """A sentence of ours with the capitals that options lost ("American for everyone")."""
    return _PROPER.sub(lambda found: found[0].capitalize(), sentence)


def decision_sentence(group: Group, outcome: Outcome) -> str:
    """The operator's decision in one sentence; who gets what, when, where it differs."""
    if not outcome.portions:
        return "Nothing can be decided: nobody named an option"
    said = portions_sentence(group, outcome.portions)
    frame = outcome.selected_option if outcome.operator == "self_select" else None
    if frame and any(p.option != frame for p in outcome.portions):
        said = f"Around {frame} as the shared frame: {said}"
    for member, option in outcome.owed:
        said += f"; in return {group.names[member]} is owed {option}"
    return spelled(said[:1].upper() + said[1:])


def portions_sentence(group: Group, portions: Sequence[Portion]) -> str:
    """Who gets what, and when: "diner for everyone; barbecue for Child 1 (Day 2)"."""
    if len(portions) > 1 and len({(p.when, p.members) for p in portions}) == 1:
        who = _who(group, portions[0].members)
        return f"{listed([p.option for p in portions])} for {who}, together"
    return "; ".join(_portion(group, p) for p in portions)


def _portion(group: Group, portion: Portion) -> str:
    who = _who(group, portion.members)
    if portion.when.startswith("Group"):
        return f"{portion.when} ({portion.option}): {who}"
    if portion.when == WHOLE_TRIP:
        return f"{portion.option} for {who}"
    if portion.owner:
        return f"{portion.when} {portion.option} ({group.names[portion.owner]}'s choice)"
    return f"{portion.option} for {who} ({portion.when})"


def _who(group: Group, members: Sequence[str]) -> str:
    everyone = len(members) == len(group.members)
    return "everyone" if everyone else listed([group.names[m] for m in members])


def shares(group: Group, portions: Sequence[Portion]) -> list[dict[str, str]]:
    """Who gets what as the prompts list it: `option`, `who`, and `when` ("" for the whole trip)."""
    return [
        {
            "option": p.option,
            "who": _who(group, p.members),
            "when": "" if p.when == WHOLE_TRIP else p.when,
        }
        for p in portions
    ]


def firm_noes(group: Group, overridden: Mapping[str, Sequence[str]]) -> str:
    """What stands although somebody who gets it strongly rejects it; empty for nothing."""
    against = (
        f"{option} stands against the firm no of {listed([group.names[m] for m in who])}"
        for option, who in overridden.items()
    )
    said = "; ".join(against)
    return spelled(said[:1].upper() + said[1:])


def coverage_sentence(group: Group, targets: Mapping[str, str]) -> str:
    """What is promised to those whose first choice was not taken (member → option)."""
    by_option: dict[str, list[str]] = {}
    for member, option in targets.items():
        by_option.setdefault(option, []).append(group.names[member])
    promised = listed([f"{o} for {listed(names)}" for o, names in by_option.items()])
    return f"Later in the trip, when feasible: {promised}"


# --- plain words for C3 ------------------------------------------------------------------------


@cache
def lexicon() -> Mapping[str, str]:
    """Term → plain words. Every strategy id and operator of the table must be among the terms.

    Raises ValueError for one that is not, and for plain words that hold a term themselves.
    """
    terms = {str(k): str(v) for k, v in packaged_yaml(__file__, "lexicon.yaml").items()}
    pattern = _pattern(tuple(terms))
    labels = {label for s in table().values() for label in (s.strategy_id, s.operator)}
    faults = [f"{s} is not in the lexicon" for s in sorted(labels) if not pattern.fullmatch(s)]
    faults += [f"{k}: {v!r} holds a term" for k, v in terms.items() if pattern.search(v)]
    if faults:
        raise ValueError("lexicon.yaml: " + "; ".join(faults))
    return terms


def purify(text: str, said: Iterable[str] = ()) -> str:
    """The text with every term in plain words; a text without terms comes back as it is.

    A term that members `said` themselves beside the same word ("tour operator") is theirs, and
    stays.
    """
    own = [f" {' '.join(words_of(words))} " for words in said]

    def plain(match: re.Match[str]) -> str:
        if any(phrase in words for words in own for phrase in _phrases(match)):
            return match[0]
        words = _terms().get(_key(match[0])) or _terms()[_key(match[0].removesuffix("s"))]
        return words[:1].upper() + words[1:] if match[0][:1].isupper() else words

    return _pattern(tuple(lexicon())).sub(plain, text)


def theory_words(text: str) -> tuple[str, ...]:
    """The terms in a text, as it writes them."""
    return tuple(dict.fromkeys(m[0] for m in _pattern(tuple(lexicon())).finditer(text)))


def _phrases(match: re.Match[str]) -> list[str]:
    """A term with the word before it, and with the one after it, where these are plain words that
    carry content."""
    text, term = match.string, words_of(match[0])
    before, after = words_of(text[: match.start()])[-1:], words_of(text[match.end() :])[:1]
    beside = [(*before, *term)] if _plain_content(before) else []
    beside += [(*term, *after)] if _plain_content(after) else []
    return [f" {' '.join(words)} " for words in beside]


def _plain_content(words: Sequence[str]) -> bool:
    return bool(content_words(" ".join(words)) - _of_terms())


@cache
def _of_terms() -> frozenset[str]:
    return frozenset(word for term in lexicon() for word in words_of(term))


@cache
def _terms() -> Mapping[str, str]:
    return {_key(term): plain for term, plain in lexicon().items()}


def _key(term: str) -> str:
    return " ".join(re.split(r"[\s_\-‐‑–]+", term.casefold().strip())).replace("’", "'")


@cache
def _pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Longest terms first; a space stands for any of space, hyphen, underscore or none at all."""
    gap = r"[\s_\-‐‑–]*"
    parts = []
    for term in sorted(terms, key=lambda t: (-len(t), t)):
        words = (re.escape(w).replace("'", "['’]") for w in _key(term).split())
        parts.append(gap.join(words))
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(parts)})s?(?![^\W_])", re.IGNORECASE)
