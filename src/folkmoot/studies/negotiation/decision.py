"""`Negotiation`, one group under one condition, and `SlotDecision`, one decision of the group.

A slot is a part of the trip, such as the cuisine. The lexicon (lexicon.yaml) lists theory terms,
such as the ids of strategies, which the mediator must not use under condition C3.
"""

# The module also writes decisions and promises as sentences. Later steps receive only these
# sentences, never a text that the mediator wrote.
# The file lexicon.yaml lists theory terms, such as strategy ids and operators. Under C3 the
# mediator must not use them. If it does, it is asked again, and terms in its final reply are
# recorded.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from folkmoot.conversation.answer_types import DECLINED, Missing
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.session.session import Scope
from folkmoot.files import packaged_yaml
from folkmoot.hints import capitalise, collapse_spaces, count_words, join_words
from folkmoot.provenance import (
    SourcedText,
    alter_text,
    concatenate_texts,
    enumerate_texts,
    join_texts,
)
from folkmoot.randomness import uniform_values
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.rules.candidates import candidate_options
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP, Outcome, Portion
from folkmoot.studies.negotiation.rules.replies import BallotRead, Settlement, same_allocation
from folkmoot.studies.negotiation.rules.strategies import (
    CONDITIONS,
    SUBGROUP_SLOTS,
    Condition,
    Group,
    Member,
    Strategy,
    TripTopic,
    slot_of,
    strategy_for,
    strategy_table,
)
from folkmoot.studies.negotiation.rules.tally import (
    Branch,
    Coverage,
    MemberBallot,
    Tally,
    VoteSummary,
    count_votes,
    words_of,
)

# --- the contract ------------------------------------------------------------------------------


PARTS = ("Conflict", "Strategy", "Decision", "Reason", "Next step")


def format_contract(
    conflict: str, strategy: str, decision: str, reason: str, next_step: str
) -> str:
    """Return the mediator's explanation of a decision: five lines, one for each part."""
    parts = zip(PARTS, (conflict, strategy, decision, reason, next_step), strict=True)
    return "\n".join(f"{part}: {as_sentence(text) or 'None stated.'}" for part, text in parts)


def parts_of(turn: str) -> dict[str, str]:
    """Return the five parts of the mediator's explanation by heading. One heading is "Conflict".

    Returns an empty dictionary if a part is missing or the order is wrong.
    """
    parts = dict(line.split(": ", 1) for line in turn.splitlines() if ": " in line)
    return parts if tuple(parts) == PARTS else {}


def as_sentence(text: str) -> str:
    """Return a text on one line that ends with a punctuation mark."""
    # An empty text stays empty.
    line = collapse_spaces(text)
    return line if not line or line[-1] in ".!?" else f"{line}."


def conflict_part(topic: str, has_conflict: bool) -> str:
    """Return a line that states whether the members' preferences conflict."""
    # It is one of the five lines of the mediator's explanation.
    subject = f"{topic.removesuffix('_preference').replace('_', ' ')} preferences"
    return f"Conflict is present in {subject}" if has_conflict else f"No conflict in {subject}"


# Quotation marks of all kinds that could end a quotation in a prompt too early.
_MARKS = re.compile('[“”„«»"]')


def in_one_line(text: str) -> str:
    """Return a member's text on one line, for use inside double quotation marks."""
    # Double quotation marks in the text become single ones.
    return _MARKS.sub("'", collapse_spaces(text))


# --- decisions in sentences --------------------------------------------------------------------

# Options are stored in lower case. In a sentence these ones need a capital.
_PROPER = re.compile(
    r"\b(?:american|chinese|french|greek|indian|italian|japanese|korean|mediterranean|mexican"
    r"|spanish|thai|turkish|vietnamese)\b"
)


def restore_capitals(sentence: str) -> str:
    """Return a sentence in which names of cuisines, such as "Thai", have a capital letter."""
    return _PROPER.sub(lambda match: match[0].capitalize(), sentence)


NOTHING_DECIDED = "Nothing can be decided: nobody named an option"


class DecisionPart(NamedTuple):
    """One part of a decision, in words for prompts: an option, its members, and the time."""

    option: str
    who: str
    # Empty for the whole trip.
    when: str
    # The name of the member who chose the option. Empty if the rule lets no single member choose.
    owner: str


def share_of(group: Group, portion: Portion) -> DecisionPart:
    """Return one part of a decision (a `Portion`) in words for prompts."""
    everyone = len(portion.members) == len(group.members)
    who = (
        "everyone"
        if everyone
        else join_words([group.names_by_member[member] for member in portion.members])
    )
    when = "" if portion.when == WHOLE_TRIP else portion.when
    return DecisionPart(
        portion.option, who, when, group.names_by_member[portion.owner] if portion.owner else ""
    )


def decision_sentence(group: Group, outcome: Outcome, shown: Sequence[DecisionPart] = ()) -> str:
    """Return a sentence that states the decision of a fixed rule.

    `shown`: the parts of the decision, as texts that record where they come from.
    """
    # With `shown`, the sentence keeps the sources.
    if not outcome.portions:
        return NOTHING_DECIDED
    texts: list[object] = [_sentence_of(group, outcome.portions, shown)]
    frame = outcome.selected_option if outcome.operator == "self_select" else None
    if frame and any(portion.option != frame for portion in outcome.portions):
        texts.insert(0, f"Around {frame} as the shared frame: ")
    for member, option in outcome.owed:
        texts.append(f"; in return {group.names_by_member[member]} is owed {option}")
    text = concatenate_texts(texts, plain=None)
    return _capitalise_sentence(text) if shown else str(_capitalise_sentence(text))


def render_decision(group: Group, portions: Sequence[Portion]) -> str:
    """Return a sentence that states who gets which option and when.

    Returns "" if there are no portions.
    """
    if not portions:
        return ""
    return str(_capitalise_sentence(_sentence_of(group, portions)))


def render_change(group: Group, before: Sequence[Portion], after: Sequence[Portion]) -> str:
    """Return a sentence on the parts of a decision that a revision added and removed."""
    old_portions, new_portions = (
        {(portion.option, portion.when, portion.members): portion for portion in some}
        for some in (before, after)
    )
    added_portions = [portion for key, portion in new_portions.items() if key not in old_portions]
    removed_portions = [portion for key, portion in old_portions.items() if key not in new_portions]
    parts = [f"Now {_sentence_of(group, added_portions)}"] if added_portions else []
    parts += (
        [f"{'n' if added_portions else 'N'}o longer {_sentence_of(group, removed_portions)}"]
        if removed_portions
        else []
    )
    return restore_capitals("; ".join(parts))


def _capitalise_sentence(sentence: SourcedText) -> SourcedText:
    return alter_text(sentence, restore_capitals(capitalise(str(sentence))))


def _sentence_of(
    group: Group, portions: Sequence[Portion], shown: Sequence[DecisionPart] = ()
) -> SourcedText:
    # For example: "diner for everyone; barbecue for Child 1 (Day 2)".
    shares = shown or [share_of(group, portion) for portion in portions]
    if len(portions) > 1 and len({(portion.when, portion.members) for portion in portions}) == 1:
        options = enumerate_texts([share.option for share in shares])
        return concatenate_texts((options, " for ", shares[0].who, ", together"), plain=None)
    return join_texts("; ", map(_part_of_sentence, shares))


def _part_of_sentence(share: DecisionPart) -> SourcedText:
    option, who, when, owner = share
    parts: tuple[object, ...] = (option, " for ", who, " (", when, ")")
    if when.startswith("Group"):
        parts = (when, " (", option, "): ", who)
    elif not when:
        parts = (option, " for ", who)
    elif owner:
        parts = (when, " ", option, " (", owner, "'s choice)")
    return concatenate_texts(parts, plain=None)


def overridden_rejections(group: Group, overridden: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence that lists options given to members who had rejected these options.

    `overridden`: for each such option, the ids of the members who had rejected the option.

    Returns "" if `overridden` is empty.
    """
    clauses = (
        f"{option} against the firm no of "
        f"{join_words([group.names_by_member[member_id] for member_id in member_ids])}"
        for option, member_ids in overridden.items()
    )
    rejections = "; ".join(clauses)
    return restore_capitals(f"Kept: {rejections}") if rejections else ""


def coverage_sentence(group: Group, targets: Mapping[str, str]) -> str:
    """Return a sentence that promises options to members who missed their first choice.

    `targets`: the promised option of each member.
    """
    by_option: dict[str, list[str]] = {}
    for member, option in targets.items():
        by_option.setdefault(option, []).append(group.names_by_member[member])
    promises = join_words(
        [f"{option} for {join_words(names)}" for option, names in by_option.items()]
    )
    return f"Later in the trip, when feasible: {promises}"


# --- words of theory ---------------------------------------------------------------------------


@cache
def lexicon_terms() -> tuple[str, ...]:
    """Return the theory terms in lexicon.yaml.

    Raises ValueError if lexicon.yaml lacks a strategy id or the name of an operator.
    """
    terms = tuple(str(term) for term in packaged_yaml(__file__, "lexicon.yaml"))
    pattern = _terms_pattern(terms)
    labels = {
        label
        for strategy in strategy_table().values()
        for label in (strategy.strategy_id, strategy.operator)
    }
    problems = [
        f"{label} is not in the lexicon" for label in sorted(labels) if not pattern.fullmatch(label)
    ]
    if problems:
        raise ValueError("lexicon.yaml: " + "; ".join(problems))
    return terms


class Terms(NamedTuple):
    """The terms of lexicon.yaml in a text of the mediator: quoted terms and the mediator's own."""

    # A term is spelled as in the text.

    # The terms that are not in `quoted`.
    theory: tuple[str, ...] = ()
    # The terms that also occur in an option or in a member's text.
    quoted: tuple[str, ...] = ()


NO_TERMS = Terms()
# The characters that may join two words of a term: spaces, underscores, slashes, hyphens, dashes.
_JOINTS = r"\s_/\-‐‑‒–—−"


def find_terms(text: str, quotable: Iterable[str] = ()) -> Terms:
    """Return the terms of lexicon.yaml in a text of the mediator.

    `quotable`: the members' texts and the options. A term that occurs there counts as quoted. All
    other terms count as the mediator's own.
    """
    quotable_terms = {_term_of(term) for words in quotable for term in theory_words(words)}
    terms_found = theory_words(text)
    return Terms(
        tuple(term for term in terms_found if _term_of(term) not in quotable_terms),
        tuple(term for term in terms_found if _term_of(term) in quotable_terms),
    )


# Every reply about a topic is compared with the same statements, so their words are cached.
@lru_cache(maxsize=10_000)
def theory_words(text: str) -> tuple[str, ...]:
    """Return the terms of lexicon.yaml that occur in a text, each once."""
    # A term is spelled as in the text.
    return tuple(
        dict.fromkeys(
            match[0] for match in _terms_pattern(lexicon_terms()).finditer(_plain_letters(text))
        )
    )


def _plain_letters(text: str) -> str:
    # Category "Cf" holds invisible characters, such as soft hyphens.
    normalised = unicodedata.normalize("NFKC", text)
    return "".join(letter for letter in normalised if unicodedata.category(letter) != "Cf")


@lru_cache(maxsize=10_000)
def _term_of(written: str) -> str:
    # The term for a spelling of it: "vetoed" is a spelling of "veto".
    terms = sorted(lexicon_terms(), key=lambda term: (-len(term), term))
    return next(term for term in terms if _terms_pattern((term,)).fullmatch(written))


@lru_cache(maxsize=1_000)
def _terms_pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    # The longest term comes first, because the first alternative that matches wins.
    gap = rf"[{_JOINTS}]*"
    parts = []
    for term in sorted(terms, key=lambda text: (-len(text), text)):
        *first, last = (
            re.escape(word).replace("'", "['’]") for word in _normalise_term(term).split()
        )
        parts.append(gap.join((*first, _inflection_pattern(last))))
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(parts)})(?![^\W_])", re.IGNORECASE)


def _inflection_pattern(word: str) -> str:
    if word.endswith("y"):
        return rf"{word[:-1]}(?:y|ies|ied|ying)(?:['’]s?)?"
    stem, ending = (word[:-1], "(?:e|es|ed|ing|er|ers)") if word.endswith("e") else (word, "")
    return rf"{stem}{ending or '(?:s|es|ed|ing|er|ers)?'}(?:['’]s?)?"


def _normalise_term(term: str) -> str:
    return " ".join(re.split(rf"[{_JOINTS}]+", term.casefold().strip())).replace("’", "'")


SYSTEM = "System"
SYSTEM_SPEAKER = Speaker("system", SYSTEM, "moderator")
LEFT_OPEN, UNREADABLE = "left_open", "unreadable"
# The parse steps of a reply from which no answer could be read.
UNREAD_STEPS = ("minimal", DECLINED, DROPPED)
# Intent of an utterance → phase of the dialogue, both in the source's words.
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


# Topic → member id → stated preference. Members without a preference are not in the mapping.
Statements = Mapping[str, Mapping[str, Utterance]]
# Member id → option → score. Options that a member did not score are not in the mapping.
OwnScoresOfTopic = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One utterance of a dialogue."""

    utterance: Utterance
    intent: str
    phase: str

    @property
    def speaker(self) -> str:
        """The name of the speaker. The mediator is called System."""
        return self.utterance.name

    @property
    def text(self) -> str:
        return str(self.utterance.text)


class Origin(NamedTuple):
    """The origin of an utterance: a reply, and the part of the reply that holds the utterance."""

    # The address of the reply.
    address: str = ""
    part: str = ""
    # Who wrote the text, or "" if it was rendered from data.
    author: str = ""
    # The finish reason of the reply.
    finish: str | None = None
    # The number of the feedback round.
    round: int | None = None


def columns_of_line(group: Group, condition: str, topic: TripTopic, intent: str) -> dict[str, Any]:
    """Return the columns that this study adds to a row of the table `utterances`.

    `intent`: what the utterance does. A key of `PHASES`, such as "user_vote".
    """
    return {
        "group_id": group.id,
        "group_type": group.type.id,
        "condition": condition,
        "slot": topic.slot_name,
        "topic": topic.id,
        "phase": PHASES[intent],
        "intent": f"{intent}_{topic.slot_name}",
    }


@dataclass(frozen=True, slots=True)
class Negotiation:
    """One group under one condition."""

    group: Group
    condition: Condition
    stated: Statements
    topics: tuple[TripTopic, ...]
    config: NegotiationConfig
    # Topic → member id → option → the member's own score, given to the researcher alone.
    own_scores: Mapping[str, OwnScoresOfTopic] = field(default_factory=dict)

    @property
    def compared_as(self) -> str:
        """The id of the condition under which this dialogue is recorded."""
        # It is C5 if the study runs C4 only as the start of C5.
        return self.condition.id if self.condition.id in self.config.conditions else "C5"

    @property
    def heard_members(self) -> tuple[Member, ...]:
        """The members who take part: only one member under condition C1, otherwise all members."""
        return self.group.members[:1] if self.condition.one_member else self.group.members

    @property
    def with_all_statements(self) -> Negotiation:
        """A copy of this negotiation in which all members take part."""
        # If only one member takes part (C1), the measures still use the statements of all members.
        return replace(self, condition=CONDITIONS["C2"])

    def eligible_voters(self, topic: TripTopic) -> tuple[Member, ...]:
        """Return the members who may fill in a ballot on a topic."""
        # On some topics only parents vote.
        strategy = strategy_for(self.group.type.id, topic.id)
        if strategy.operator != "parent_vote_lower_misery":
            return self.heard_members
        return tuple(member for member in self.heard_members if member.role == strategy.binding)

    @property
    def has_feedback(self) -> bool:
        """True if feedback rounds follow a decision with a conflict."""
        return self.condition.feedback and self.config.enable_feedback

    def topic(self, id: str) -> TripTopic:
        return next(topic for topic in self.topics if topic.id == id)

    def texts(self, topic: str) -> dict[str, str]:
        """Return a map from member id to the member's stated preference on a topic."""
        statements = self.stated[topic]
        return {
            member.id: str(statements[member.id].text)
            for member in self.heard_members
            if member.id in statements
        }

    def tally_topic(
        self,
        topic: TripTopic,
        ballots: Mapping[str, MemberBallot] | None = None,
        more: Iterable[str] = (),
    ) -> Tally:
        """Return how all members score the options of a topic.

        `more`: options in addition to those that stated preferences or ballots name.
        """
        texts = self.texts(topic.id)
        options = dict.fromkeys([*candidate_options(topic.options, texts, ballots), *more])
        return count_votes(self.heard_members, texts, tuple(options), ballots)

    def overridden_members(
        self,
        topic: TripTopic,
        portions: Sequence[Portion],
        ballots: Mapping[str, MemberBallot] | None = None,
    ) -> dict[str, tuple[str, ...]]:
        """Return the members who get an option that they strongly reject.

        The result maps each such option to the ids of these members.
        """
        # An option that only the mediator named is not in the statements, so it is added to the
        # tally.
        options = dict.fromkeys(portion.option for portion in portions)
        tally, overridden = self.tally_topic(topic, ballots, options), {}
        for option in options:
            receivers = {
                member
                for portion in portions
                if portion.option == option
                for member in portion.members
            }
            if rejecting := tuple(
                member_id for member_id in tally.rejecting_voters(option) if member_id in receivers
            ):
                overridden[option] = rejecting
        return overridden

    def find_terms(self, topic: TripTopic, text: str) -> Terms:
        """Return the terms of lexicon.yaml that occur in `text`, a text of the mediator."""
        # Terms that also occur in an option of the topic or in a member's statement are returned as
        # quoted.
        statement_texts = [
            str(utterance.text)
            for of_topic in self.stated.values()
            for utterance in of_topic.values()
        ]
        return find_terms(text, (*statement_texts, *self.tally_topic(topic).options))

    def shuffled_names(
        self, topic: TripTopic, names: Sequence[str], who: str = "mediator"
    ) -> list[str]:
        """Return member ids or options in a random order, as prompts list them.

        `who`: the speaker who gets these prompts.
        """
        # The order depends only on group, topic, `who` and name, so it is the same under every
        # condition.
        draw_key = (self.config.random_seed, "negotiation order", self.group.id, topic.id, who)
        # Each name has its own draw, so a further option does not change the order of the others.
        return sorted(names, key=lambda name: uniform_values(*draw_key, name))

    def mediation_order(self, topic: TripTopic) -> list[Member]:
        """Return the members who take part, in the random order used in prompts to the mediator."""
        by_id = {member.id: member for member in self.heard_members}
        return [by_id[id] for id in self.shuffled_names(topic, list(by_id))]

    def record_line(
        self,
        scope: Scope,
        speaker: str,
        intent: str,
        text: str,
        topic: TripTopic,
        origin: Origin | None = None,
    ) -> DialogueTurn:
        """Record an utterance of a member or of the mediator.

        - `speaker`: a member id, or `SYSTEM` for the mediator.
        - `intent`: what the utterance does. A key of `PHASES`, such as "user_vote".
        - `origin`: the reply that contains the text. None if no model wrote the text.
        """
        # These texts are rendered. The text of a member is never changed.
        if speaker == SYSTEM or intent == "user_vote":
            text = restore_capitals(text)
        speaking = SYSTEM_SPEAKER
        if speaker != SYSTEM:
            speaking = Speaker(speaker, self.group.names_by_member[speaker])
        columns = columns_of_line(self.group, self.compared_as, topic, intent)
        utterance = scope.say(speaking, text, **(origin or Origin())._asdict(), **columns)
        return DialogueTurn(utterance, columns["intent"], columns["phase"])

    def preference_lines(self, topic: TripTopic) -> tuple[DialogueTurn, ...]:
        """Return the stated preferences on a topic, as utterances of the members who take part."""
        statements = self.stated[topic.id]
        columns = columns_of_line(self.group, self.compared_as, topic, "user_provide")
        intent_and_phase = columns["intent"], columns["phase"]
        return tuple(
            DialogueTurn(statements[member.id], *intent_and_phase)
            for member in self.heard_members
            if member.id in statements
        )


@dataclass(frozen=True, slots=True)
class FeedbackRound:
    """One feedback round with one member."""

    round: int
    target: str
    targeted: bool
    # True if the member accepts the decision, None if the mediator does not say.
    resolved: bool | None
    question: str
    updated_explanation: str
    revised_decision: str
    # The options because of which the revision was rejected.
    refused: tuple[str, ...] = ()
    # Why the revision was rejected: `struck` (removed by a hard constraint), `rejected` (given
    # against a strong rejection), `split` (undoes a required split) or `unstated` (lacks shares).
    because: str = ""
    hard_no: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    # A sentence with the portions that the revision added and removed.
    change: str = ""
    parse_error: bool = False


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """One decision, with all the steps that led to the decision."""

    topic: str
    # Who decided: single_user, preferences, synthesis, operator, vote or feedback.
    source: str
    has_conflict: bool
    resolution_text: str
    conflict_description: str = ""
    proposal: str = ""
    # The mediator's text.
    said: str = ""
    # The decision in the mediator's text.
    stated: Settlement | None = None
    dropped: tuple[str, ...] = ()
    # Option → members who get it against their strong rejection.
    overridden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The value of `overridden` before members were asked to confirm.
    overridden_unasked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Member → True if the member confirms the decision, or a missing answer.
    confirmed: Mapping[str, bool | Missing] = field(default_factory=dict)
    # Member → options of the decision that the member refused when asked to confirm.
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strategy: Strategy | None = None
    # The label that the model gave to its strategy, None if it could not be read.
    proposed: str | None = None
    options: tuple[str, ...] = ()
    # The operator's decision.
    outcome: Outcome | None = None
    # The final decision after feedback.
    portions: tuple[Portion, ...] = ()
    selected_option: str | None = None
    ballots: str = "none"
    cast: Mapping[str, MemberBallot] = field(default_factory=dict)
    vote_summary: VoteSummary | None = None
    coverage: Coverage | None = None
    split: tuple[Branch, Branch] | None = None
    feedback: tuple[FeedbackRound, ...] = ()
    lines: tuple[DialogueTurn, ...] = ()
    # The step that read the proposal. `minimal` means that it was unreadable.
    parse_step: str = ""
    dropped_lines: int = 0
    source_winner: str | None = None
    # The reason why nothing is decided, if it is known (see `undecided_reason`).
    cause: str = ""
    # Theory terms (see lexicon.yaml) in the mediator's final reply. C3 forbids them.
    terms: Terms = NO_TERMS
    # Theory terms in the first reply, if the mediator was asked again.
    terms_first: tuple[str, ...] = ()
    # The reasons for re-asks before this decision (theory, unmatched).
    asked_again: tuple[str, ...] = ()
    ballots_read: Mapping[str, BallotRead] = field(default_factory=dict)
    # Members' own scores of the options in `came_up`.
    late_scores: OwnScoresOfTopic = field(default_factory=dict)
    # Option that no statement named → the condition in which the option was added.
    came_up: Mapping[str, str] = field(default_factory=dict)

    @property
    def slot_name(self) -> str:
        return slot_of(self.topic)

    @property
    def strategy_id(self) -> str | None:
        """The id of the strategy that the strategy table gives to the mediator, or None."""
        return self.strategy.strategy_id if self.strategy else None

    @property
    def subgrouping_required(self) -> bool:
        """True if the travel plan must split the group for this part of the trip."""
        # The value depends only on strategy, slot and conflict, never on free text.
        return self._parts_by("subgroup_required")

    @property
    def subgrouping_optional(self) -> bool:
        """True if the travel plan may split the group for this part of the trip."""
        return self._parts_by("subgroup_optional")

    def _parts_by(self, strategy_id: str) -> bool:
        eligible = self.has_conflict and self.slot_name in SUBGROUP_SLOTS
        return eligible and self.strategy_id == strategy_id

    @property
    def strategy_drifted(self) -> bool | None:
        """True if the mediator named a strategy other than the assigned one.

        None if no strategy was assigned, or if the named strategy could not be read.
        """
        # Differences of spelling are ignored.
        if self.strategy is None or self.proposed is None:
            return None
        return words_of(self.proposed) != words_of(self.strategy.strategy_id)

    @property
    def statement_agrees(self) -> bool | None:
        """True if the mediator states the decision that the fixed rule (operator) made.

        None if the mediator states no decision, or if no rule decided before the mediator spoke.
        """
        # It is also None if members voted after the statement, because the mediator could not know
        # the decision.
        if self.outcome is None or self.stated is None or self.cast or not self.stated.portions:
            return None
        return same_allocation(self.stated.portions, self.outcome.portions)

    @property
    def is_stated_by_mediator(self) -> bool:
        return self.source in ("synthesis", "feedback")

    @property
    def parse_error(self) -> bool:
        return self.parse_step in UNREAD_STEPS

    @property
    def undecided_reason(self) -> str | None:
        """The reason why nothing is decided: left_open, unreadable, declined or dropped.

        None if something is decided.
        """
        if self.portions or self.source == "preferences":
            return None
        return self.cause or LEFT_OPEN

    @property
    def is_resolved(self) -> bool | None:
        """True if the last feedback round ended in agreement.

        None if there was no feedback round, or if its result could not be read.
        """
        return self.feedback[-1].resolved if self.feedback else None

    @property
    def words(self) -> int:
        """The number of words in the dialogue, without the stated preferences."""
        return sum(count_words(line.text) for line in self.lines if line.phase != "preference")

    def with_options(self, came_up: Mapping[str, str]) -> SlotDecision:
        return replace(self, came_up={**self.came_up, **came_up})

    def with_lines(self, *lines: DialogueTurn) -> SlotDecision:
        return replace(self, lines=(*self.lines, *lines))
