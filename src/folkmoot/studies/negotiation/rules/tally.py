"""Scores of options, computed from the texts and ballots of members without model calls."""

# The parser compares words without differences of case, accents and width, and without plural and
# third-person endings. `candidates` finds the options on the table. The file
# docs/decisions/0010-vote-parser.md covers cases that the source study leaves open.

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypedDict

from folkmoot.conversation.reply_forms import normalise_text, strip_accents, undecorated_forms
from folkmoot.hints import natural_sort_key
from folkmoot.studies.negotiation.rules.strategies import Member

# The weights, the threshold of a strong rejection and the window (words to either side of a
# mention) are those of the source.
NAMED = 2
NEGATED = -4
WANTED = 2
WEAK = 1
STRONG_REJECTION = -2
WINDOW = 4

NEGATION_CUES = frozenset(
    {"no", "not", "don't", "without", "avoid", "skip", "exclude", "hate", "dislike"}
)
POSITIVE_CUES = frozenset({"want", "prefer", "love", "enjoy", "like", "need"})

# Words without content. They count neither as common words nor as an option.
_SMALL = """
a an and are as at be been but by can could did do does don't for from had has have he her
him his how i i'd i'm i've if in into is it it's its just let's me more most my no nor not of
on or our out rather really she so some such than that the their them then there these they
this to too two up us very was we we'd we'll we're were what when where which who will with
would you your
all also any anything both each else everybody everyone everything here maybe much nobody
nothing now one only please somebody someone something still
"""
STOP_WORDS = frozenset(_SMALL.split())
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+(?:'[^\W_]+)*|,")
# Pictures that cross out or reject what is beside them.
_REJECTING = frozenset("❌❎✖✕✗✘☒🗙👎🚫⛔🛑🙅🤮🤢😡😠🤬😒🙁☹😞😖😣😩😫😤💔💩❓❔⚠")
_SYMBOL = re.compile(r"[^\w\s'\"`.,;:/\\&()\[\]{}·•-]|\.{2,}|^-(?=\w)")
_APOSTROPHES = re.compile("[\u2018\u2019\u201b\u2032\u02b9\u02bc\u00b4`]")
_BOUNDARY = re.compile(r"(?<!\d)\.|\.(?!\d)|[;!?\n\r]")
# Words that may occur between the options of one list: "sushi, a diner, or barbecue".
_OR, _BETWEEN = frozenset({"or", "nor"}), frozenset({",", "or", "nor", "a", "an", "the", "any"})


# The same words come up in every text and option of a run, so stems and folded phrases are cached.
@lru_cache(maxsize=50_000)
def stem_word(word: str) -> str:
    """Return a word without its ending: "diners" gives "diner"."""
    word = word.removesuffix("'s")
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-2] + "y" if len(word) > 4 and word.endswith("ie") else word


_STOP_STEMS = frozenset(stem_word(stop_word) for stop_word in STOP_WORDS)


def split_clauses(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the clauses of a text. Each clause is a tuple of words without plurals and accents."""
    # A clause ends at a line end or a punctuation mark, but not at a comma or point inside a
    # number. The words "but" and "and not" begin a new clause.
    return tuple(part for words in _split_sentences(text) for part in _comma_parts(words))


@lru_cache(maxsize=4_096)
def _split_sentences(text: str) -> tuple[tuple[str, ...], ...]:
    clauses: list[tuple[str, ...]] = []
    for part in _BOUNDARY.split(_normalise_text(text)):
        words: list[str] = []
        tokens = [stem_word(text) for text in _TOKEN.findall(part)]
        for i, word in enumerate(tokens):
            ends_clause = word == "but"
            before_not = word == "and" and tokens[i + 1 : i + 2] == ["not"]
            if ends_clause or before_not:
                clauses.append(tuple(words))
                words = []
            else:
                words.append(word)
        clauses.append(tuple(words))
    return tuple(clause for clause in clauses if clause)


def _comma_parts(words: Sequence[str]) -> list[tuple[str, ...]]:
    ends = [-1, *(i for i, word in enumerate(words) if word == ","), len(words)]
    parts = (tuple(words[left + 1 : right]) for left, right in pairwise(ends))
    return [part for part in parts if part]


def _normalise_text(text: str) -> str:
    text = unicodedata.normalize("NFKC", _APOSTROPHES.sub("'", text)).casefold()
    # Participants and models write "don't" with many characters, or without an apostrophe.
    text = re.sub(r"\bdon[^a-z0-9]?t\b", "don't", text)
    text = strip_accents(text)
    # "no-frills diner" rejects nothing, so "nofrills" must not contain the cue "no".
    text = re.sub(r"\b(no|not|non)[-‐‑](?=\w)", r"\1", text)
    return re.sub(r"[-‐‑–—/_]", " ", text.replace("&", " and "))


@lru_cache(maxsize=50_000)
def words_of(phrase: str) -> tuple[str, ...]:
    """Return the words of a phrase in lower case, without plurals and accents.

    "Diners" gives "diner".
    """
    # Differences of case, accents and simple endings are removed.
    return tuple(stem_word(text) for text in _TOKEN.findall(_normalise_text(phrase)) if text != ",")


@lru_cache(maxsize=50_000)
def fold_option(text: str) -> tuple[str, ...]:
    """Return the words of an option for comparisons. "Sushis" and "sushi" give the same words."""
    return tuple(word.rstrip("s") or word for word in words_of(text))


def match_option(entry: str, options: Iterable[str]) -> str | None:
    """Return the listed option that an entry names.

    Returns None if the entry names no listed option.
    """
    # Differences of case, accents and plural endings are ignored. Decoration is, too, but other
    # symbols are kept, as in a `Choice`: "~~sushi~~", "sushi?", "❌ sushi" and "sushi…" (a word
    # that was cut off) name no option, and "Plan A+" is not "Plan A".
    folded = fold_option(entry)
    alike = [option for option in options if folded and fold_option(option) == folded]
    if entry in alike:
        return alike[alike.index(entry)]
    symbols = {symbols_of(form) for form in undecorated_forms(entry)} if alike else set()
    return next((option for option in alike if symbols_of(option) in symbols), None)


def symbols_of(text: str) -> tuple[str, ...]:
    """Return the symbols in a text that can change which option it names, such as "+" or "❌"."""
    # Hyphens, commas and brackets inside a phrase cannot, and neither can pictures such as "✅",
    # unless they reject something. A dash before the first word may mean "minus", and two dots may
    # mark a word that was cut off.
    return tuple(
        symbol
        for symbol in _SYMBOL.findall(normalise_text(text))
        if symbol in _REJECTING or not _is_picture(symbol)
    )


def _is_picture(symbol: str) -> bool:
    is_colour = "\U0001f3fb" <= symbol <= "\U0001f3ff"
    return is_colour or unicodedata.category(symbol[0]) == "So"


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text, except words such as "the", "not" and "prefer"."""
    ignored = _STOP_STEMS | POSITIVE_CUES | NEGATION_CUES
    return frozenset(
        word for clause in split_clauses(text) for word in clause if word not in ignored
    )


@dataclass(frozen=True, slots=True)
class Mention:
    """One place in a text that names an option in full."""

    option: str
    # True if a negation cue (such as "not") applies to the option.
    negated: bool
    # True if a positive cue (such as "prefer") applies to it.
    wanted: bool


@dataclass(frozen=True, slots=True)
class _Clause:
    words: tuple[str, ...]
    # For each word its option, or None.
    taken: tuple[str | None, ...]
    # (start, end, option) for each named option, in word indices. All options of a list ("A or B")
    # have the span of the whole list.
    spans: tuple[tuple[int, int, str], ...]
    # Indices of the words outside options that are negation cues (such as "not") and positive cues.
    negations: tuple[int, ...]
    wishes: tuple[int, ...]

    def cue_near(self, start: int, end: int) -> bool:
        return any(start - WINDOW <= i < end + WINDOW for i in self.negations)

    def wish_before(self, start: int) -> bool:
        return any(start - WINDOW <= i < start for i in self.wishes)


def find_mentions(text: str, options: Sequence[str]) -> tuple[Mention, ...]:
    """Return every place in a text that names an option in full, in the order of the text."""
    # Longer options take precedence: "brew pub" does not mention "pub".
    return _read_text(text, tuple(options)).mentions


def text_scores(text: str, options: Sequence[str]) -> dict[str, int]:
    """Return how strongly a text favours each option.

    A negative score means that the text rejects the option.
    """
    # An option that is named in full gets +2. A negation cue (such as "not") near a mention adds
    # −4. A positive cue (such as "prefer") before a mention without a negation adds +2. Each of the
    # three is added at most once. In a list of options ("A or B"), a cue near the list counts for
    # all of its options.
    # An option that is not named gets +1 for each distinct word in common with the text. Stop
    # words, words of other options and negated words do not count.
    mentions, loose = _read_text(text, tuple(options))
    mentions_of: dict[str, list[Mention]] = {}
    for mention in mentions:
        mentions_of.setdefault(mention.option, []).append(mention)
    result: dict[str, int] = {}
    for option in options:
        option_mentions = mentions_of.get(option, [])
        if option_mentions:
            result[option] = (
                NAMED
                + (NEGATED if any(mention.negated for mention in option_mentions) else 0)
                + (WANTED if any(mention.wanted for mention in option_mentions) else 0)
            )
        else:
            words = set(words_of(option))
            # For a negative option ("no parties"), negated words count, and words after a positive
            # cue do not.
            agreeing_words = (
                loose["refused" if words & NEGATION_CUES else "wanted"] | loose["plain"]
            )
            result[option] = WEAK * len((words - _STOP_STEMS) & agreeing_words)
    return result


class _TextReading(NamedTuple):
    """The statements of a text about a list of options."""

    mentions: tuple[Mention, ...]
    # The words outside options by kind: "refused" (near a negation), "wanted" (after a wish) and
    # "plain".
    loose_words: Mapping[str, set[str]]


# Every condition scores the same statements of a group, and each of them several times.
@lru_cache(maxsize=4_096)
def _read_text(text: str, options: tuple[str, ...]) -> _TextReading:
    clauses = _parse_clauses(text, options)
    mentions: list[Mention] = []
    for clause in clauses:
        for start, end, option in clause.spans:
            negated = clause.cue_near(start, end)
            mentions.append(Mention(option, negated, not negated and clause.wish_before(start)))
    return _TextReading(tuple(mentions), _loose_words(clauses))


def _loose_words(clauses: Iterable[_Clause]) -> dict[str, set[str]]:
    words_by_kind: dict[str, set[str]] = {"refused": set(), "wanted": set(), "plain": set()}
    for clause in clauses:
        for i, word in enumerate(clause.words):
            if clause.taken[i] is None:
                near = clause.cue_near(i, i + 1), clause.wish_before(i)
                words_by_kind["refused" if near[0] else "wanted" if near[1] else "plain"].add(word)
    return words_by_kind


def _parse_clauses(text: str, options: Sequence[str]) -> tuple[_Clause, ...]:
    by_length: dict[int, dict[tuple[str, ...], str]] = {}
    for option in options:
        words = words_of(option)
        if words:
            by_length.setdefault(len(words), {}).setdefault(words, option)
    return tuple(
        clause
        for words in _split_sentences(text)
        for clause in _divide_sentence(words, _claim_words(words, by_length))
    )


def _claim_words(
    words: Sequence[str], by_length: dict[int, dict[tuple[str, ...], str]]
) -> list[tuple[int, int, str]]:
    # (start, end, option) for each option that is named. Longer options take precedence, then those
    # further left. `by_length` maps a number of words to the options of that length, by their
    # words.
    taken = [False] * len(words)
    spans: list[tuple[int, int, str]] = []
    for length in sorted(by_length, reverse=True):
        phrases = by_length[length]
        for start in range(len(words) - length + 1):
            end = start + length
            option = phrases.get(tuple(words[start:end]))
            if option is not None and not any(taken[start:end]):
                taken[start:end] = [True] * length
                spans.append((start, end, option))
    return sorted(spans)


def _divide_sentence(words: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[_Clause]:
    # A comma divides the sentence, but not inside a list of options ("A, B or C").
    runs = _option_lists(words, spans)
    positions_in_lists = {i for run in runs for i in range(spans[run[0]][0], spans[run[-1]][1])}
    ends = [i for i, word in enumerate(words) if word == "," and i not in positions_in_lists]
    clauses: list[_Clause] = []
    for left, right in pairwise([-1, *ends, len(words)]):
        kept_positions = [i for i in range(left + 1, right) if words[i] != ","]
        new_position = {i: position for position, i in enumerate(kept_positions)}
        inside = [[spans[span] for span in run] for run in runs if left < spans[run[0]][0] < right]
        taken: list[str | None] = [None] * len(kept_positions)
        placed: list[tuple[int, int, str]] = []
        for run in inside:
            run_bounds = new_position[run[0][0]], new_position[run[-1][1] - 1] + 1
            for start, end, option in run:
                placed.append((*run_bounds, option))
                taken[new_position[start] : new_position[end - 1] + 1] = [option] * (end - start)
        kept = tuple(words[i] for i in kept_positions)
        free = [i for i, option in enumerate(taken) if option is None]
        clauses.append(
            _Clause(
                words=kept,
                taken=tuple(taken),
                spans=tuple(placed),
                negations=tuple(i for i in free if kept[i] in NEGATION_CUES),
                wishes=tuple(i for i in free if kept[i] in POSITIVE_CUES),
            )
        )
    return [clause for clause in clauses if clause.words]


def _option_lists(words: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[list[int]]:
    # The options of a list ("A, B, or C") are indices of `spans`. Commas join options only if "or"
    # or "and" closes the list. In the ambiguous "No A, B and C" they separate the options.
    runs: list[list[int]] = []
    for i, (start, _, _) in enumerate(spans):
        gap = set(words[spans[i - 1][1] : start]) if i else {"."}
        if gap <= _BETWEEN | {"and"} and gap & (_OR | {",", "and"}):
            runs[-1].append(i)
        else:
            runs.append([i])
    return [part for run in runs for part in _kept_together(words, spans, run)]


def _kept_together(
    words: Sequence[str], spans: Sequence[tuple[int, int, str]], run: list[int]
) -> list[list[int]]:
    # "A, B or C" is one list. `run` and the result hold indices of `spans`.
    gaps = [set(words[spans[i][1] : spans[j][0]]) for i, j in pairwise(run)]
    first = spans[run[0]][0]
    words_before = set(words[max(0, first - WINDOW) : first])
    cues = words_before & (NEGATION_CUES | POSITIVE_CUES)
    closed_by_and = len(gaps) > 1 and "and" in gaps[-1] and "," in gaps[0]
    and_list = closed_by_and and (not cues or bool(cues - {"no", "not"}))
    is_one_list = bool(gaps and gaps[-1] & _OR) or and_list
    groups = [[run[0]]]
    for i, gap in zip(run[1:], gaps, strict=True):
        if is_one_list if "," in gap else bool(gap & _OR) or and_list:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


@dataclass(frozen=True, slots=True)
class MemberBallot:
    """One member's ballot."""

    member_id: str
    top_choice: str = ""
    acceptable: tuple[str, ...] = ()
    hard_no: tuple[str, ...] = ()
    # If there are scores, they replace the member's stated preference and all other fields except
    # `hard_no`.
    scores: Mapping[str, float] = field(default_factory=dict)
    # Firm rejections in the member's words. An objection counts as soon as an option with the same
    # words is on the table.
    objections: tuple[str, ...] = ()


Voters = Sequence[Member]


@dataclass(frozen=True, slots=True)
class Tally:
    """The score that every member gives to every option.

    A method with the argument `voters` counts only the members in `voters`, or all members if
    `voters` is None.
    """

    # Options are in alphabetical order, voters in the order of their ids.
    options: tuple[str, ...]
    voters: tuple[Member, ...]
    scores: Mapping[str, Mapping[str, float]]
    # Voter → the option that the voter puts first.
    top: Mapping[str, str] = field(default_factory=dict)

    def score_of(self, voter: str, option: str) -> float:
        return self.scores[voter][option]

    def total(self, option: str, voters: Voters | None = None) -> float:
        return sum(self.score_of(member.id, option) for member in self._selected_voters(voters))

    def weighted_mean(self, option: str) -> float:
        """Return the mean score of an option, weighted by the voters' weights."""
        weighted_scores = (
            member.weight * self.score_of(member.id, option) for member in self.voters
        )
        return math.fsum(weighted_scores) / math.fsum(member.weight for member in self.voters)

    def rejecting_voters(self, option: str, voters: Voters | None = None) -> tuple[str, ...]:
        """Return the ids of the voters who strongly reject the option."""
        # A strong rejection is a score of −2 or less.
        selected = self._selected_voters(voters)
        return tuple(
            member.id for member in selected if self.score_of(member.id, option) <= STRONG_REJECTION
        )

    def lowest_score(self, option: str, voters: Voters | None = None) -> float:
        return min(self.score_of(member.id, option) for member in self._selected_voters(voters))

    def supporting_voters(self, option: str, voters: Voters | None = None) -> tuple[str, ...]:
        """Return the ids of the voters who approve of the option."""
        # An approval is a score above zero.
        return tuple(
            member.id
            for member in self._selected_voters(voters)
            if self.score_of(member.id, option) > 0
        )

    def first_choice(self, voter: str) -> str | None:
        """Return the option that a voter wants most.

        Returns None if no score is above zero.
        """
        # The option is the top choice of the ballot, otherwise the one with the highest score. Ties
        # go to the option that the text names first, then to the higher total score, then
        # alphabetically.
        wanted = [option for option in self.options if self.score_of(voter, option) > 0]
        ballot_choice = self.top.get(voter)
        if ballot_choice in wanted or not wanted:
            return ballot_choice if wanted else None
        return min(
            wanted, key=lambda option: (-self.score_of(voter, option), -self.total(option), option)
        )

    def first_choices(self, voters: Voters | None = None) -> dict[str, str]:
        """Return a map from voter id to first choice, for all voters who have a first choice."""
        selected = self._selected_voters(voters)
        return {
            member.id: wish
            for member in selected
            if (wish := self.first_choice(member.id)) is not None
        }

    def unmet_first_choices(self, selected: str | None) -> dict[str, str]:
        """Return a map from voter id to first choice, for first choices other than `selected`."""
        return {
            member_id: wish for member_id, wish in self.first_choices().items() if wish != selected
        }

    def ranked_options(self, voters: Voters | None = None) -> tuple[str, ...]:
        """Return the options from the highest to the lowest total score."""
        # Ties are alphabetical.
        return tuple(sorted(self.options, key=lambda option: (-self.total(option, voters), option)))

    def of_role(self, role: str) -> tuple[Member, ...]:
        """Return the voters who have this role."""
        # `all` and "" mean all voters.
        return tuple(member for member in self.voters if role in ("all", "", member.role))

    @property
    def has_conflict(self) -> bool:
        """True if first choices differ, or if a voter strongly rejects a first choice."""
        wanted = set(self.first_choices().values())
        return len(wanted) > 1 or any(self.rejecting_voters(option) for option in wanted)

    def _selected_voters(self, voters: Voters | None) -> Voters:
        return self.voters if voters is None else voters


def count_votes(
    members: Iterable[Member],
    texts: Mapping[str, str],
    options: Sequence[str],
    ballots: Mapping[str, MemberBallot] | None = None,
) -> Tally:
    """Return the score that every member gives to every option.

    `texts`: a map from member id to stated preference.
    """
    sorted_options = tuple(sorted(options))
    voters = tuple(sorted(members, key=lambda member: natural_sort_key(member.id)))
    scores: dict[str, Mapping[str, float]] = {}
    top: dict[str, str] = {}
    for voter in voters:
        text, ballot = texts.get(voter.id, ""), (ballots or {}).get(voter.id)
        scores[voter.id] = member_scores(text, sorted_options, ballot)
        choice = match_option(ballot.top_choice, sorted_options) if ballot else None
        choice = choice or _first_named(text, scores[voter.id])
        if choice:
            top[voter.id] = choice
    return Tally(sorted_options, voters, scores, top)


def member_scores(
    text: str, options: Sequence[str], ballot: MemberBallot | None
) -> dict[str, float]:
    """Return one member's scores of the options, computed from the member's text and ballot."""
    # Scores on the ballot replace those of the text. A ballot without scores adds 1 to each
    # acceptable option. Its top choice gets at least the score of every acceptable option. A top
    # choice that the text does not name gets at least 2. An option that the ballot firmly rejects
    # always gets −2 or less.
    result: dict[str, float] = dict(text_scores(text, options))
    if ballot is None:
        return result
    rejected = _match_entries((*ballot.hard_no, *ballot.objections), options)
    if ballot.scores:
        matched = (
            (match_option(option, options), score) for option, score in ballot.scores.items()
        )
        result |= {option: score for option, score in matched if option}
    else:
        acceptable = _match_entries(ballot.acceptable, options)
        for option in acceptable:
            result[option] += WEAK
        if top_option := match_option(ballot.top_choice, options):
            # If the text names the top choice, it already has the +2.
            named_score = -math.inf if top_option in all_named(text, options) else NAMED
            result[top_option] = max(
                named_score, result[top_option], *(result[option] for option in acceptable)
            )
    for option in rejected:
        result[option] = min(result[option], STRONG_REJECTION)
    return result


def _match_entries(entries: Iterable[str], options: Sequence[str]) -> set[str]:
    return {option for entry in entries if (option := match_option(entry, options))}


def _first_named(text: str, scores: Mapping[str, float]) -> str | None:
    # Among the options with the best score, the one that the text names first.
    highest = max(scores.values(), default=0)
    return next(
        (option for option in all_named(text, tuple(scores)) if scores[option] == highest), None
    )


def all_named(entry: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return the options that an entry mentions, including options that the entry negates."""
    return tuple(dict.fromkeys(mention.option for mention in find_mentions(entry, options)))


class OptionDetails(TypedDict):
    """The scores of one option in a vote."""

    option: str
    total_score: float
    member_scores: dict[str, float]
    strong_rejections: list[str]


class VoteSummary(TypedDict):
    """The record of a vote. The fields have the same names as in the source study."""

    method: str
    strategy_id: str
    selected_option: str | None
    tie_break: str
    ballots: str
    option_details: list[OptionDetails]
    minority_members: list[str]
    member_primary_option: dict[str, str | None]


class Coverage(TypedDict):
    """The promise to members who did not get their first choice."""

    slot: str
    # Member id → promised option.
    minority_targets: dict[str, str]
    # The promise in words.
    commitment: str


def summarise_vote(
    tally: Tally, strategy_id: str, selected: str | None, ballots: str
) -> VoteSummary:
    """Return the record of a vote.

    `ballots`: `collected`, `partial` or `missing`.
    """
    # The record is for the program that plans the trip.
    is_parent_vote = strategy_id == "parent_vote_lower_misery"
    return {
        "method": "deterministic_vote_parser",
        "strategy_id": strategy_id,
        "selected_option": selected,
        "tie_break": f"{'strong_rejections' if is_parent_vote else 'score'}_then_lexicographic",
        "ballots": ballots,
        "option_details": [
            {
                "option": option,
                "total_score": tally.total(option),
                "member_scores": {
                    member.id: tally.score_of(member.id, option) for member in tally.voters
                },
                "strong_rejections": list(tally.rejecting_voters(option)),
            }
            for option in tally.ranked_options()
        ],
        "minority_members": list(tally.unmet_first_choices(selected)),
        "member_primary_option": {
            member.id: tally.first_choice(member.id) for member in tally.voters
        },
    }


COMMITMENT = "Include at least one minority-supported choice in a later day/phase when feasible."


def describe_coverage(
    slot: str,
    tally: Tally,
    selected: str | None,
    given: Mapping[str, Collection[str]] | None = None,
) -> Coverage | None:
    """Return the promise to members who did not get their first choice.

    - `selected`: the option that sums up the decision.
    - `given`: the options that the decision gives to each member.

    Returns None if `selected` is None, or if every member got the first choice.
    """
    # A member who already gets the first choice is promised nothing.
    unmet_choices = tally.unmet_first_choices(selected)
    targets = {
        member_id: wish
        for member_id, wish in unmet_choices.items()
        if wish not in (given or {}).get(member_id, ())
    }
    if selected is None or not targets:
        return None
    return {"slot": slot, "minority_targets": targets, "commitment": COMMITMENT}


METHOD = "preference_nearest_split_with_stable_tiebreak"
# Placeholders if fewer than two options were named, so that a required split still has two groups.
OPEN_ANCHORS = ("own choice", "another choice")


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the two branches into which a group splits."""

    anchor: str
    members: tuple[str, ...]


def nearest_split(tally: Tally) -> tuple[Branch, Branch]:
    """Split the members between the two best options and return both branches.

    There must be at least two members.
    """
    # Each member joins the group of the option that the member prefers. With equal scores, members
    # at even positions join A, and those at odd positions join B.
    # If a group would be empty, it gets the member with the smallest difference of scores. In a tie
    # it gets the last of these members.
    anchors = (*tally.ranked_options()[:2], *OPEN_ANCHORS)[:2]
    # `voters` are sorted by id, so the position of a voter does not depend on the order of the
    # input.
    leanings = {}
    for voter in tally.voters:
        first_score, second_score = (tally.scores[voter.id].get(anchor, 0.0) for anchor in anchors)
        leanings[voter.id] = first_score - second_score
    is_in_first = {
        member_id: leaning > 0 or (leaning == 0 and position % 2 == 0)
        for position, (member_id, leaning) in enumerate(leanings.items())
    }
    if len(set(is_in_first.values())) == 1:
        moved_member = min(reversed(is_in_first), key=lambda member_id: abs(leanings[member_id]))
        is_in_first[moved_member] = not is_in_first[moved_member]
    return (
        Branch(anchors[0], tuple(member_id for member_id, first in is_in_first.items() if first)),
        Branch(
            anchors[1], tuple(member_id for member_id, first in is_in_first.items() if not first)
        ),
    )
