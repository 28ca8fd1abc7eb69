"""The deterministic vote: which options are on the table, what each member's words (and ballot)
say of each, and what follows from the count: its summary, the promise to a minority, the split.

The only input is text. Operators decide on a `Tally`; the audit trail is its `summary`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.groups import Member, natural
from folkmoot.studies.negotiation.polarity import STRONG_REJECTION

MOST_WORDS = 6
BARE_WORDS = 3
_NOTHING = frozenset(
    polarity.words_of(phrase)
    for phrase in (
        *("none", "n/a", "na", "nothing", "any", "anything", "no preference", "nil", "null"),
        *("no strong preference", "everything", "whatever"),
    )
)


@dataclass(frozen=True, slots=True)
class Ballot:
    """One member's ballot, options as the member wrote them. `scores`, where they were asked for,
    stand in place of the preference text and the other fields but `hard_no`."""

    member_id: str
    top_choice: str = ""
    acceptable: tuple[str, ...] = ()
    hard_no: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)


def candidates(
    catalogue: Sequence[str],
    texts: Mapping[str, str],
    ballots: Mapping[str, Ballot] | None = None,
) -> tuple[str, ...]:
    """The options on the table, alphabetical; the order of members does not matter.

    An option of the catalogue is on it when some text names it, in favour or not. A member whose
    text names none, or only some to turn down, adds their own words: what follows a positive
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
            for option in _all_named(entry, catalogue) or (clean(entry),):
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
    found[words] = known or min(option, found.get(words, option))


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


Voters = Sequence[Member]


@dataclass(frozen=True, slots=True)
class Tally:
    """Scores of every member for every option; `top` is what a voter put first. Options are in
    alphabetical order, voters by id, so that neither the order of members nor that of options can
    matter. Methods count all voters unless they are given some."""

    options: tuple[str, ...]
    voters: tuple[Member, ...]
    scores: Mapping[str, Mapping[str, float]]
    top: Mapping[str, str] = field(default_factory=dict)

    def score(self, voter: str, option: str) -> float:
        return self.scores[voter][option]

    def total(self, option: str, voters: Voters | None = None) -> float:
        return sum(self.score(v.id, option) for v in self._some(voters))

    def rejections(self, option: str, voters: Voters | None = None) -> tuple[str, ...]:
        """Ids of the voters who strongly reject the option."""
        some = self._some(voters)
        return tuple(v.id for v in some if self.score(v.id, option) <= STRONG_REJECTION)

    def lowest(self, option: str, voters: Voters | None = None) -> float:
        return min(self.score(v.id, option) for v in self._some(voters))

    def supporters(self, option: str, voters: Voters | None = None) -> tuple[str, ...]:
        """Ids of the voters who approve: a score above zero."""
        return tuple(v.id for v in self._some(voters) if self.score(v.id, option) > 0)

    def primary(self, voter: str) -> str | None:
        """The option a voter wants most: the ballot's top choice, else the highest score (ties:
        what the text names first, then the group's score, then alphabetical). Only what scores
        above zero is wanted; else None."""
        wanted = [o for o in self.options if self.score(voter, o) > 0]
        top = self.top.get(voter)
        if top in wanted or not wanted:
            return top if wanted else None
        return min(wanted, key=lambda o: (-self.score(voter, o), -self.total(o), o))

    def first_choices(self, voters: Voters | None = None) -> dict[str, str]:
        """Voter → primary option, of those who want one."""
        some = self._some(voters)
        return {v.id: wish for v in some if (wish := self.primary(v.id)) is not None}

    def passed_over(self, selected: str | None) -> dict[str, str]:
        """Voter → primary option, of those who wanted another than the selected one."""
        return {m: wish for m, wish in self.first_choices().items() if wish != selected}

    def ranked(self, voters: Voters | None = None) -> tuple[str, ...]:
        """Options by total score, then alphabetical."""
        return tuple(sorted(self.options, key=lambda o: (-self.total(o, voters), o)))

    def of_role(self, role: str) -> tuple[Member, ...]:
        """The voters of a role; of everybody for `all` and ``."""
        return tuple(v for v in self.voters if role in ("all", "", v.role))

    @property
    def conflict(self) -> bool:
        """Whether the scores alone conflict: first choices differ, or one is strongly rejected."""
        wanted = set(self.first_choices().values())
        return len(wanted) > 1 or any(self.rejections(o) for o in wanted)

    def _some(self, voters: Voters | None) -> Voters:
        return self.voters if voters is None else voters


def count(
    members: Iterable[Member],
    texts: Mapping[str, str],
    options: Sequence[str],
    ballots: Mapping[str, Ballot] | None = None,
) -> Tally:
    """The tally of some members. `texts` maps member ids to preference texts (none: no words)."""
    ordered = tuple(sorted(options))
    voters = tuple(sorted(members, key=lambda m: natural(m.id)))
    scored: dict[str, Mapping[str, float]] = {}
    top: dict[str, str] = {}
    for voter in voters:
        text, ballot = texts.get(voter.id, ""), (ballots or {}).get(voter.id)
        scored[voter.id] = member_scores(text, ordered, ballot)
        choice = named_option(ballot.top_choice, ordered) if ballot else None
        choice = choice or _first_named(text, scored[voter.id])
        if choice:
            top[voter.id] = choice
    return Tally(ordered, voters, scored, top)


def member_scores(text: str, options: Sequence[str], ballot: Ballot | None) -> dict[str, float]:
    """One member's scores: the text's, then the ballot's say on top.

    `acceptable` is weak support (+1); a top choice that the text does not name counts as named
    (+2), and no acceptable option stands above it; `hard_no` is a strong rejection, whatever
    else was said. Scores that the member gave replace the text's.
    """
    result: dict[str, float] = dict(polarity.scores(text, options))
    if ballot is None:
        return result
    refused = {o for entry in ballot.hard_no for o in _all_named(entry, options)}
    if ballot.scores:
        given = {o: s for entry, s in ballot.scores.items() for o in _all_named(entry, options)}
        result |= given
    else:
        acceptable = {o for entry in ballot.acceptable for o in polarity.adopted(entry, options)}
        for option in acceptable:
            result[option] += polarity.WEAK
        if top := named_option(ballot.top_choice, options):
            named = -math.inf if top in _all_named(text, options) else polarity.NAMED
            result[top] = max(named, result[top], *(result[o] for o in acceptable))
    for option in refused:
        result[option] = min(result[option], STRONG_REJECTION)
    return result


def named_option(entry: str, options: Sequence[str]) -> str | None:
    """The one option that a ballot's entry names and does not turn down; else None."""
    named = polarity.adopted(entry, options)
    return named[0] if len(named) == 1 else None


def _first_named(text: str, scores: Mapping[str, float]) -> str | None:
    """Of the options with the highest score, the one that the text names first."""
    most = max(scores.values(), default=0)
    return next((o for o in _all_named(text, tuple(scores)) if scores[o] == most), None)


def _all_named(entry: str, options: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(m.option for m in polarity.mentions(entry, options)))


def summary(tally: Tally, strategy_id: str, selected: str | None, ballots: str) -> dict[str, Any]:
    """The vote's audit trail as the planner gets it; `ballots` says whether there were any."""
    parents = strategy_id == "parent_vote_lower_misery"
    return {
        "method": "deterministic_vote_parser",
        "strategy_id": strategy_id,
        "selected_option": selected,
        "tie_break": f"{'strong_rejections' if parents else 'score'}_then_lexicographic",
        "ballots": ballots,
        "option_details": [
            {
                "option": option,
                "total_score": tally.total(option),
                "member_scores": {v.id: tally.score(v.id, option) for v in tally.voters},
                "strong_rejections": list(tally.rejections(option)),
            }
            for option in tally.ranked()
        ],
        "minority_members": list(tally.passed_over(selected)),
        "member_primary_option": {v.id: tally.primary(v.id) for v in tally.voters},
    }


COMMITMENT = "Include at least one minority-supported choice in a later day/phase when feasible."


def coverage(
    slot: str,
    tally: Tally,
    selected: str | None,
    given: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any] | None:
    """What is promised to whom because their first choice was passed over; None for nothing.

    `given`: member → options that the decision gives the member; those are promised no more.
    """
    passed = tally.passed_over(selected)
    targets = {m: wish for m, wish in passed.items() if wish not in (given or {}).get(m, ())}
    if selected is None or not targets:
        return None
    return {"slot": slot, "minority_targets": targets, "commitment": COMMITMENT}


METHOD = "preference_nearest_split_with_stable_tiebreak"
# Stand-ins where fewer than two options were named, so that a required split is still two groups.
OPEN_ANCHORS = ("own choice", "another choice")


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the two groups of a split: its option and the ids of its members."""

    anchor: str
    members: tuple[str, ...]


def nearest_split(tally: Tally) -> tuple[Branch, Branch]:
    """Groups A and B: each member goes to the higher-scoring of the top two options.

    Equal scores alternate by the member's place among all members by id (even A, odd B). Neither
    group is empty: the member who gives up least (then the last by id) is moved. Needs two
    members or more.
    """
    anchors = (*tally.ranked()[:2], *OPEN_ANCHORS)[:2]
    lean = {}
    for voter in tally.voters:
        a, b = (tally.scores[voter.id].get(anchor, 0.0) for anchor in anchors)
        lean[voter.id] = a - b
    in_a = {m: by > 0 or (by == 0 and place % 2 == 0) for place, (m, by) in enumerate(lean.items())}
    if len(set(in_a.values())) == 1:
        moved = min(reversed(in_a), key=lambda m: abs(lean[m]))
        in_a[moved] = not in_a[moved]
    return (
        Branch(anchors[0], tuple(m for m, a in in_a.items() if a)),
        Branch(anchors[1], tuple(m for m, a in in_a.items() if not a)),
    )
