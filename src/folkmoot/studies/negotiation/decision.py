"""One negotiation (a group under a condition), the trail of each of its decisions, and what the
System says of them: the contract of its turns, decisions in sentences, plain words for C3.

Under C3 no strategy id, operator or theory word may be in anything that the mediator says to a
member or the planner. lexicon.yaml lists them, each with the plain words that replace it. What
members say stays as they said it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from folkmoot.conversation.answers import Missing
from folkmoot.files import packaged_yaml
from folkmoot.hints import enumerated
from folkmoot.randomness import uniform
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.replies import Settlement, same
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP, Outcome, Portion
from folkmoot.studies.negotiation.rules.strategies import (
    CONDITIONS,
    SUBGROUP_SLOTS,
    Condition,
    Group,
    Member,
    Strategy,
    Topic,
    slot_of,
    strategy_for,
    table,
)
from folkmoot.studies.negotiation.rules.tally import (
    Ballot,
    Branch,
    Coverage,
    Tally,
    VoteSummary,
    candidates,
    content_words,
    count,
    words_of,
)

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
        return f"{enumerated([p.option for p in portions])} for {who}, together"
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
    return "everyone" if everyone else enumerated([group.names[m] for m in members])


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
        f"{option} against the firm no of {enumerated([group.names[m] for m in who])}"
        for option, who in overridden.items()
    )
    said = "; ".join(against)
    return spelled(f"Kept: {said}") if said else ""


def coverage_sentence(group: Group, targets: Mapping[str, str]) -> str:
    """What is promised to those whose first choice was not taken (member → option)."""
    by_option: dict[str, list[str]] = {}
    for member, option in targets.items():
        by_option.setdefault(option, []).append(group.names[member])
    promised = enumerated([f"{o} for {enumerated(names)}" for o, names in by_option.items()])
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

    A term that members `said` themselves beside the same word ("utility room") is theirs, and
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


SYSTEM = "System"
PHASES = {
    "user_provide": "preference",
    "sys_synthesize": "synthesis",
    "user_respond": "synthesis",
    "sys_request_vote": "vote",
    "user_vote": "vote",
    "sys_vote_result": "vote",
    "sys_feedback": "feedback",
    "user_feedback": "feedback",
}


@dataclass(frozen=True, slots=True)
class Stated:
    """A stated preference, and how the reply ended that says it (None for a ready-made text)."""

    text: str
    finish: str | None = None


# Topic → member id → what was stated. Who stated nothing is not in the mapping.
Statements = Mapping[str, Mapping[str, Stated]]


@dataclass(frozen=True, slots=True)
class Line:
    """One turn of a dialogue: who says what, with which intent, in which phase."""

    speaker: str
    intent: str
    text: str
    phase: str
    round: int | None = None
    finish: str | None = None  # how the reply with these words ended; None for our own words


@dataclass(frozen=True, slots=True)
class Negotiation:
    """One group under one condition, with what it stated."""

    group: Group
    condition: Condition
    stated: Statements
    topics: tuple[Topic, ...]
    config: NegotiationConfig

    @property
    def members(self) -> tuple[Member, ...]:
        """The members this condition hears: one under C1, else all."""
        return self.group.members[:1] if self.condition.one_member else self.group.members

    @property
    def hearing_all(self) -> Negotiation:
        """The negotiation with all members' statements, which C1 does not hear but is measured
        by."""
        return replace(self, condition=CONDITIONS["C2"])

    def voters(self, topic: Topic) -> tuple[Member, ...]:
        """The members who fill in a ballot: the parents where only they vote, else all heard."""
        strategy = strategy_for(self.group.type.id, topic.id)
        if strategy.operator != "parent_vote_lower_misery":
            return self.members
        return tuple(m for m in self.members if m.role == strategy.binding)

    @property
    def feedback(self) -> bool:
        """Whether feedback rounds follow a decision with a conflict."""
        return self.condition.feedback and self.config.enable_feedback

    def topic(self, id: str) -> Topic:
        return next(t for t in self.topics if t.id == id)

    def texts(self, topic: str) -> dict[str, str]:
        """Member id → stated preference, of the members heard."""
        stated = self.stated[topic]
        return {m.id: stated[m.id].text for m in self.members if m.id in stated}

    def tally(
        self,
        topic: Topic,
        ballots: Mapping[str, Ballot] | None = None,
        more: Iterable[str] = (),
    ) -> Tally:
        """The tally of what was stated (and of ballots) on the options that were named, and on
        `more`."""
        texts = self.texts(topic.id)
        options = dict.fromkeys([*candidates(topic.options, texts, ballots), *more])
        return count(self.members, texts, tuple(options), ballots)

    def overridden(
        self,
        topic: Topic,
        portions: Sequence[Portion],
        ballots: Mapping[str, Ballot] | None = None,
    ) -> dict[str, tuple[str, ...]]:
        """Option → the members who get it although they strongly reject it, also one that nobody
        but the mediator had named."""
        options = dict.fromkeys(p.option for p in portions)
        tally, found = self.tally(topic, ballots, options), {}
        for option in options:
            gets = {m for p in portions if p.option == option for m in p.members}
            if against := tuple(m for m in tally.rejections(option) if m in gets):
                found[option] = against
        return found

    def seen(self, text: str) -> str:
        """The mediator's words as members and the planner may see them: under C3 without words of
        theory, save those that members said themselves."""
        if self.condition.synthesis != "raw":
            return text
        return purify(text, [s.text for said in self.stated.values() for s in said.values()])

    def drawn(self, topic: Topic, names: Sequence[str], who: str = "mediator") -> list[str]:
        """Members' ids or options in the order in which `who` sees them. The draw follows from
        group, topic and name alone, so that it is the same under every condition."""
        place = (self.config.random_seed, "negotiation order", self.group.id, topic.id, who)
        return sorted(names, key=lambda name: uniform(*place, name))

    def order(self, topic: Topic) -> list[Member]:
        """The members heard, in the order in which the mediator sees them."""
        by_id = {m.id: m for m in self.members}
        return [by_id[id] for id in self.drawn(topic, list(by_id))]

    def listing(self, topic: Topic) -> list[dict[str, str]]:
        """Names and stated preferences in quotes, as the prompts list them."""
        texts = self.texts(topic.id)
        return [
            {"name": m.name, "text": quoted(texts[m.id])}
            for m in self.order(topic)
            if m.id in texts
        ]

    def line(
        self,
        speaker: str,
        intent: str,
        text: str,
        topic: Topic,
        *,
        round: int | None = None,
        finish: str | None = None,
    ) -> Line:
        if speaker == SYSTEM or intent == "user_vote":  # words of ours; members' stay as said
            text = spelled(text)
        if speaker == SYSTEM:
            text = self.seen(text)
        return Line(speaker, f"{intent}_{topic.slot}", text, PHASES[intent], round, finish)

    def preference_lines(self, topic: Topic) -> tuple[Line, ...]:
        said = ((m, self.stated[topic.id].get(m.id)) for m in self.members)
        return tuple(
            self.line(m.name, "user_provide", s.text, topic, finish=s.finish)
            for m, s in said
            if s is not None
        )


@dataclass(frozen=True, slots=True)
class FeedbackRound:
    """One round of feedback: who was asked, whether it settled the matter, what changed.

    `refused` holds what the revision may not give, and `because` why it does not stand: `struck`
    (a hard constraint ruled it out), `rejected` (somebody who would get it strongly rejects it),
    `split` (it undoes a required split), `unstated` (it does not say who gets what, for all).
    """

    round: int
    target: str
    targeted: bool
    resolved: bool
    question: str
    updated_explanation: str
    revised_decision: str
    refused: tuple[str, ...] = ()
    because: str = ""
    hard_no: tuple[str, ...] = ()
    parse_error: bool = False


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """The whole audit trail of one decision.

    `source` says what settled it: single_user, preferences, synthesis, operator, vote or
    feedback. `proposed` is the label that the model gave its strategy, None if unread. `parse_step`
    is where the synthesis reply was read (`minimal`: it could not be, and the minimal structure was
    used). `outcome` is the operator's; `portions` what finally holds, after feedback. `stated` is
    the mediator's own statement of who gets what, `said` all its words as it wrote them.
    `overridden`: option → members who get it against their strong rejection. `confirmed`: member →
    whether the decision as recorded is the one that the conversation came to; `refused`: member →
    options of it that the member then refuses outright.
    """

    topic: str
    source: str
    has_conflict: bool
    resolution_text: str
    conflict_description: str = ""
    proposal: str = ""
    said: str = ""
    stated: Settlement | None = None
    dropped: tuple[str, ...] = ()
    overridden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    confirmed: Mapping[str, bool | Missing] = field(default_factory=dict)
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strategy: Strategy | None = None
    proposed: str | None = None
    options: tuple[str, ...] = ()
    outcome: Outcome | None = None
    portions: tuple[Portion, ...] = ()
    selected_option: str | None = None
    ballots: str = "none"
    cast: Mapping[str, Ballot] = field(default_factory=dict)
    vote_summary: VoteSummary | None = None
    coverage: Coverage | None = None
    split: tuple[Branch, Branch] | None = None
    feedback: tuple[FeedbackRound, ...] = ()
    lines: tuple[Line, ...] = ()
    parse_step: str = ""
    dropped_lines: int = 0
    source_winner: str | None = None

    @property
    def slot(self) -> str:
        return slot_of(self.topic)

    @property
    def strategy_id(self) -> str | None:
        """The canonical id: the label of the resolution, whatever the model proposed."""
        return self.strategy.strategy_id if self.strategy else None

    @property
    def subgrouping_required(self) -> bool:
        """Whether the plan must part the group for this slot. Both flags follow from strategy, slot
        and conflict alone, never from free text."""
        return self._parts_by("subgroup_required")

    @property
    def subgrouping_optional(self) -> bool:
        """Whether the plan may part the group for this slot."""
        return self._parts_by("subgroup_optional")

    def _parts_by(self, strategy_id: str) -> bool:
        eligible = self.has_conflict and self.slot in SUBGROUP_SLOTS
        return eligible and self.strategy_id == strategy_id

    @property
    def drifted(self) -> bool | None:
        """Whether the model named another strategy, spelling (case, spaces, hyphens) aside; None
        where none is locked or none was read."""
        if self.strategy is None or self.proposed is None:
            return None
        return words_of(self.proposed) != words_of(self.strategy.strategy_id)

    @property
    def statement_agrees(self) -> bool | None:
        """Whether the mediator states what the operator decided; None where it could not know
        (before a vote), had to decide itself, or made no statement."""
        if self.outcome is None or self.stated is None or self.cast or not self.stated.portions:
            return None
        return same(self.stated.portions, self.outcome.portions)

    @property
    def parse_error(self) -> bool:
        return self.parse_step == "minimal"

    @property
    def resolved(self) -> bool | None:
        """Whether feedback ended in agreement; None where there was none."""
        return self.feedback[-1].resolved if self.feedback else None

    @property
    def words(self) -> int:
        """Words spoken to come to this decision, stated preferences left out."""
        return sum(len(line.text.split()) for line in self.lines if line.phase != "preference")

    def with_lines(self, *lines: Line) -> SlotDecision:
        return replace(self, lines=(*self.lines, *lines))
