"""The answer types for replies of the mediator and of members, and the parsers of these replies."""

# Under all conditions with a mediator, a decision is stated in the same JSON fields. No decision is
# read from prose. Members, options and times must be values from a list.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from folkmoot.conversation.answer_types import (
    CANNOT_SAY,
    DECLINED,
    NONE_OF_THESE,
    FieldForPeople,
    Json,
    parse_way_out,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.json_schemas import json_schema
from folkmoot.conversation.lenient_fields import is_declined
from folkmoot.conversation.reply_forms import is_only_refusal
from folkmoot.engine.seats.utterances import PlaceInReply, UtteranceInReply
from folkmoot.studies.negotiation.rules.candidates import is_none
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP, Portion
from folkmoot.studies.negotiation.rules.strategies import RESERVED, Group
from folkmoot.studies.negotiation.rules.tally import MemberBallot, match_option
from folkmoot.studies.negotiation.rules.vocabulary import (
    fold_name,
    groups_of_members,
    is_empty,
    match_members,
    new_option_of,
    parse_time,
)

LOWEST_SCORE, HIGHEST_SCORE = -4, 4
M = TypeVar("M", bound=BaseModel)


class _Reply(BaseModel):
    # The prompts say what the objects are for, so the schemas have no descriptions of classes.
    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)


class Spoken(_Reply):
    """One utterance in a dialogue that the mediator writes."""

    model_config = pin_schema("Spoken")

    speaker: str = Field(description="who speaks")
    text: str = Field(description="what this speaker says, one or two sentences")


class Share(_Reply):
    """One entry of a stated decision: an option, the members who get it, and the time."""

    model_config = pin_schema("Share")

    option: str = Field(description=f"one option on the table, or {NONE_OF_THESE}")
    new_option: str = Field(
        "", description=f"where option is {NONE_OF_THESE}: the option's name, in a few words"
    )
    members: list[str] = Field(
        default_factory=list, description="who gets it: names of members, or a group of them"
    )
    when: str = Field("", description="its days or part of a day; empty for the whole trip")


_DECISION = "the whole decision as data"
_DROPPED = "the options that nobody gets"
_HAS_CONFLICT = "whether the stated preferences conflict"
_DESCRIPTION = "what they disagree on, in one sentence"
_EXPLANATION = "the proposal to the group, in plain words"
_PROPOSING = "the System's proposal, then each member's response"
_HARD_NO = "options on the table that you firmly reject; often none"
_OBJECTION = "any other firm no, in your own words; empty if there is none"
_NEW_OPTION = "an option that you miss on the table, in a few words; empty if there is none"


class Decided(Protocol):
    """A mediator's reply that states a decision."""

    @property
    def decision(self) -> list[Share]: ...

    @property
    def dropped(self) -> list[str]: ...


class PlainSynthesis(_Reply):
    """The mediator's proposal under condition C3, in which no strategy is assigned."""

    model_config = pin_schema("PlainSynthesis")

    has_conflict: bool = Field(description=_HAS_CONFLICT)
    conflict_description: str = Field(description=_DESCRIPTION)
    resolution_explanation: str = Field(description=_EXPLANATION)
    dialogue: list[Spoken] = Field(default_factory=list, description=_PROPOSING)
    decision: list[Share] = Field(description=_DECISION)
    dropped: list[str] = Field(default_factory=list, description=_DROPPED)


class GuidedSynthesis(_Reply):
    """The mediator's proposal under the conditions C4 and C5, in which a strategy is assigned."""

    model_config = pin_schema("GuidedSynthesis")

    has_conflict: bool = Field(description=_HAS_CONFLICT)
    conflict_description: str = Field(description=_DESCRIPTION)
    resolution_strategy: str = Field("", description="the strategy_id that the proposal follows")
    resolution_explanation: str = Field(description=_EXPLANATION)
    dialogue: list[Spoken] = Field(default_factory=list, description=_PROPOSING)
    decision: list[Share] = Field(description=_DECISION)
    dropped: list[str] = Field(default_factory=list, description=_DROPPED)


class FeedbackReply(_Reply):
    """The mediator's reply of one feedback round, under condition C5.

    `resolved` is None if the mediator cannot say whether the member accepts the decision.
    """

    model_config = pin_schema("FeedbackReply")

    resolved: bool | None = Field(
        None, description="whether the member asked can accept the decision; null if unclear"
    )
    updated_resolution_explanation: str = Field(
        "", description="what was adjusted, in one sentence; empty if nothing"
    )
    targeted_feedback_question: str = Field("", description="the question put to the member asked")
    final_revised_decision: str = Field(
        "", description="the whole decision as it stands now, naming each option"
    )
    dialogue: list[Spoken] = Field(
        default_factory=list, description="the member's reaction, then the System's answer"
    )
    decision: list[Share] = Field(description=_DECISION)
    dropped: list[str] = Field(default_factory=list, description=_DROPPED)
    hard_no: list[str] = Field(
        default_factory=list,
        description="options that the member asked firmly rejects; often none",
    )
    objection: str = Field(
        "", description="any other firm no of the member asked, as it was said; empty if none"
    )


class BallotForm(_Reply):
    """The answer type of a ballot, with the same fields as the ballot of the source study."""

    model_config = pin_schema("BallotForm")

    top_choice: str = Field(description="the option you want most")
    acceptable: list[str] = Field(
        default_factory=list, description="other options that you could accept"
    )
    hard_no: list[str] = Field(default_factory=list, description=_HARD_NO)
    new_option: str = Field("", description=_NEW_OPTION)
    objection: str = Field("", description=_OBJECTION)


class Score(_Reply):
    """A member's score of one option, from -4 to 4, or None for "I cannot say"."""

    model_config = pin_schema("Score")

    option: str = Field(description="an option on the table")
    score: int | None = Field(
        ge=LOWEST_SCORE,
        le=HIGHEST_SCORE,
        description="from -4 (against it) to 4 (all for it); null if you cannot say",
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_declined_score(cls, raw: object) -> object:
        # The whole reply has a field `declined`. Some models put it beside a score.
        return {**raw, "score": None} if isinstance(raw, Mapping) and is_declined(raw) else raw


class ScoreForm(_Reply):
    """The answer type of a ballot with a score for every option.

    It is used in place of BallotForm if the study file sets `ballots: scores`.
    """

    model_config = pin_schema("ScoreForm")

    scores: list[Score] = Field(description="one entry for every option on the table")
    hard_no: list[str] = Field(default_factory=list, description=_HARD_NO)
    objection: str = Field("", description=_OBJECTION)


class OwnScores(_Reply):
    """The answer type of a member's own scores, which only the researcher gets."""

    model_config = pin_schema("OwnScores")

    reason: str = Field("", description="why, in one or two sentences")
    scores: list[Score] = Field(description="one entry for every option on the table")
    hard_no: list[str] = Field(default_factory=list, description=_HARD_NO)
    objection: str = Field("", description=_OBJECTION)


# --- what is sent ------------------------------------------------------------------------------

# The order of the fields if the study file sets `field_order: reason_first`. A model then writes
# its reasons before the decision that depends on them.
REASON_FIRST: Mapping[str, tuple[str, ...]] = {
    "PlainSynthesis": (
        *("conflict_description", "has_conflict", "resolution_explanation", "dialogue"),
        *("decision", "dropped"),
    ),
    "GuidedSynthesis": (
        *("conflict_description", "has_conflict", "resolution_explanation", "resolution_strategy"),
        *("dialogue", "decision", "dropped"),
    ),
    "FeedbackReply": (
        *("targeted_feedback_question", "dialogue", "updated_resolution_explanation"),
        *("final_revised_decision", "decision", "dropped", "hard_no", "objection", "resolved"),
    ),
}


# How a human's page shows the fields of a ballot and of scores. The descriptions in the types
# are written for models.
FIELDS_FOR_PEOPLE = {
    "top_choice": FieldForPeople("The option that you want most"),
    "acceptable": FieldForPeople("Other options that you could accept"),
    "new_option": FieldForPeople("An option that you miss, in a few words"),
    "scores": FieldForPeople("Your scores"),
    "score": FieldForPeople("From -4 (against it) to 4 (all for it)"),
    "hard_no": FieldForPeople("Options that you firmly reject"),
    "objection": FieldForPeople("Any other firm no, in your own words"),
    "reason": FieldForPeople("Why, in one or two sentences"),
}


def json_answer(
    model: type[M],
    options: Mapping[str, Sequence[str]],
    *,
    order: str = "source",
    fallback: M | None = None,
) -> Json[M]:
    """Return the answer type for replies that are JSON objects of the type `model`.

    - `options`: the allowed values, by field. An example of a field is `decision.option`.
    - `order`: the order of the fields, `source` or `reason_first`.
    - `fallback`: the value to use for an unreadable reply. With None, such an answer is missing.
    """
    # The field `top_choice` also accepts answers such as "none of these".
    allowed = {
        path: with_ways_out(texts) if path.endswith("top_choice") else tuple(texts)
        for path, texts in options.items()
        if texts
    }
    schema = json_schema(model, allowed)
    names = REASON_FIRST.get(model.__name__) if order == "reason_first" else None
    if names:
        schema = schema | {"properties": {name: schema["properties"][name] for name in names}}
    return Json(
        model,
        fallback_value=fallback,
        schema=schema,
        may_decline=True,
        fields_for_people=FIELDS_FOR_PEOPLE,
    )


# --- ballots -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BallotRead:
    """A parsed ballot."""

    # None if the ballot is missing or empty.
    ballot: MemberBallot | None
    # Kind of value that is expected (such as option) → entries without a match.
    unmatched: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Why there is no ballot.
    missing: str = ""
    asked_again: bool = False
    # The address of the reply in the journal.
    address: str = ""
    # The options with null in place of a score.
    cannot_say: frozenset[str] = frozenset()

    def reason_without_score(self, option: str) -> str:
        """Return why an option has no score."""
        return CANNOT_SAY if option in self.cannot_say else self.missing or "unparsed"


OPTIONS_ON_THE_TABLE = "options on the table"
OPTIONS_SCORED = "options to which you gave a score"
OPTIONS_SCORED_ONCE = "options to which you gave only one score"
MEMBERS = "members and groups of members"
TIMES = "times (days or parts of a day)"


def read_ballot(form: BallotForm, member_id: str, options: Sequence[str]) -> BallotRead:
    """Return the parsed ballot of a member.

    - `form`: the ballot as the member filled it in.
    - `options`: the options that the ballot may name.
    """
    way_out = parse_way_out(form.top_choice)
    if way_out is not None and way_out.reason == DECLINED:
        return BallotRead(None, missing=DECLINED)
    unmatched: list[str] = []
    own_option = new_option_of(form.new_option, options) or ""
    if not own_option and not is_empty(form.new_option):
        unmatched.append(form.new_option)
    top_options = _match_all([form.top_choice], options, unmatched, own_option)
    top = own_option if way_out is not None else "".join(top_options)
    acceptable = _match_all(form.acceptable, options, unmatched, own_option)
    acceptable = tuple(
        option for option in dict.fromkeys((*acceptable, own_option)) if option and option != top
    )
    hard_no, objections = read_hard_no(form, options, unmatched, own_option)
    problems = {OPTIONS_ON_THE_TABLE: tuple(unmatched)} if unmatched else {}
    if not (top or acceptable or hard_no or objections):
        return BallotRead(None, problems, "unparsed" if way_out is None else way_out.reason)
    return BallotRead(
        MemberBallot(member_id, top, acceptable, hard_no, objections=objections), problems
    )


def read_scores(form: ScoreForm | OwnScores, member_id: str, options: Sequence[str]) -> BallotRead:
    """Return the scores that a member filled in, as a parsed ballot."""
    # An option without a score entry is recorded as a problem, so that the question is asked again.
    # So is an option with two different scores, which has no score: to choose one would be a guess.
    # The option with the highest score is the top choice. Other options with scores above zero are
    # acceptable.
    unmatched: list[str] = []
    stated_scores: dict[str, set[int | None]] = {}
    for score in form.scores:
        for option in _match_all([score.option], options, unmatched):
            stated_scores.setdefault(option, set()).add(score.score)
    contradictory = [option for option in options if len(stated_scores.get(option, ())) > 1]
    only_scores = {
        option: next(iter(stated))
        for option, stated in stated_scores.items()
        if option not in contradictory
    }
    scores: dict[str, float] = {
        option: score for option, score in only_scores.items() if score is not None
    }
    cannot_say = frozenset(only_scores.keys() - scores.keys())
    hard_no, objections = read_hard_no(form, options, unmatched)
    problems: dict[str, Sequence[str]] = {OPTIONS_ON_THE_TABLE: unmatched} if unmatched else {}
    unscored = [option for option in options if option not in stated_scores]
    if unscored:
        problems[OPTIONS_SCORED] = unscored
    if contradictory:
        problems[OPTIONS_SCORED_ONCE] = contradictory
    if not (scores or hard_no or objections):
        missing = "unparsed" if unscored or contradictory else CANNOT_SAY
        return BallotRead(None, problems, missing, cannot_say=cannot_say)
    liked_options = sorted(
        (option for option, score in scores.items() if score > 0 and option not in hard_no),
        key=lambda option: -scores[option],
    )
    top, acceptable = "".join(liked_options[:1]), tuple(liked_options[1:])
    ballot = MemberBallot(member_id, top, acceptable, hard_no, scores, objections)
    return BallotRead(ballot, problems, cannot_say=cannot_say)


def read_hard_no(
    form: BallotForm | ScoreForm | OwnScores | FeedbackReply,
    options: Sequence[str],
    unmatched: list[str],
    own_option: str = "",
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options that a member firmly rejects, and the rejections that name no option.

    The rejections that name no option are in the member's words.

    - `unmatched`: receives the entries of `hard_no` that name no option, and a refusal to answer in
      place of an objection.
    - `own_option`: an option that the member added, or "".
    """
    unmatched_rejections: list[str] = []
    hard_no = _match_all(form.hard_no, options, unmatched_rejections, own_option)
    unmatched += unmatched_rejections
    if is_only_refusal(form.objection):
        unmatched.append(form.objection)
    objections = (form.objection, *unmatched_rejections)
    # Who refuses to answer rejects no option.
    return hard_no, tuple(
        entry for entry in objections if not is_none(entry) and not is_only_refusal(entry)
    )


def _match_all(
    entries: Iterable[str], options: Sequence[str], unmatched: list[str], own: str = ""
) -> tuple[str, ...]:
    # Entries without a match are added to `unmatched`, and entries such as "none of these" are
    # skipped. `own` is the new option of the same reply, or "".
    known_options = (*options, own) if own else tuple(options)
    matched: dict[str, None] = {}
    for entry in entries:
        option = match_option(entry, known_options)
        if option is not None:
            matched[option] = None
        elif not is_none(entry):
            unmatched.append(entry)
    return tuple(matched)


# --- the dialogue ------------------------------------------------------------------------------


def sort_lines(
    dialogue: Sequence[Spoken], names: Sequence[str]
) -> tuple[str, list[tuple[str, str]], int]:
    """Divide a dialogue that the mediator wrote, and return its parts.

    The parts are: the mediator's opening, the (name, text) of each member's line, and the number of
    dropped lines. A line without text or with an unknown speaker is dropped.

    `names`: the names of the members.
    """
    # The opening is the first utterance under its own name (System).
    by_key = {fold_name(name): name for name in names}
    opening = ""
    lines: list[tuple[str, str]] = []
    dropped = 0
    for line in dialogue:
        text, key = line.text, fold_name(line.speaker)
        if text and key in by_key:
            lines.append((by_key[key], text))
        elif text and key in RESERVED:
            opening = opening or text
        else:
            dropped += 1
    return opening, lines, dropped


def find_line(utterance: UtteranceInReply, reply: object) -> PlaceInReply | None:
    """Return the place of an utterance in the dialogue that the mediator wrote.

    Returns None if the reply has no such line.
    """
    # The mediator's own lines after its opening are not recorded, and the members' lines keep their
    # order (`sort_lines`).
    dialogue = reply.get("dialogue") if isinstance(reply, Mapping) else None
    names = {fold_name(utterance.speaker_name)}
    if utterance.part == "opening":
        names = set(RESERVED)
    positions = [
        position
        for position, line in enumerate(dialogue if isinstance(dialogue, list) else ())
        if isinstance(line, Mapping) and str(line.get("text") or "").strip()
        if fold_name(str(line.get("speaker"))) in names
    ]
    is_listed = utterance.earlier < len(positions)
    return ("dialogue", positions[utterance.earlier], "text") if is_listed else None


# --- the decision ------------------------------------------------------------------------------

OPEN_TIME = "time left open"


@dataclass(frozen=True, slots=True)
class Settlement:
    """A decision that the mediator stated."""

    # The options, each with its members and time.
    portions: tuple[Portion, ...] = ()
    # Options that no member gets.
    dropped: tuple[str, ...] = ()
    # Kind of value (option, member or time) → entries that match no listed value.
    unmatched: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def unread_count(self) -> int:
        """The number of entries that could not be matched to an option or a member."""
        return sum(len(self.unmatched.get(what, ())) for what in (OPTIONS_ON_THE_TABLE, MEMBERS))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The options, members and times that a mediator's statement may name."""

    group: Group
    topic: str
    options: tuple[str, ...]
    days: int = 60
    # The current decision. A revision may repeat its times.
    in_force: tuple[Portion, ...] = ()
    # New options that are rejected, because they contain theory terms (lexicon.yaml).
    forbidden: tuple[str, ...] = ()

    @property
    def allowed_values(self) -> dict[str, Sequence[str]]:
        """The allowed values of a reply, by field."""
        names = [member.name for member in self.group.members]
        values: dict[str, Sequence[str]] = {
            "decision.option": (*self.options, NONE_OF_THESE),
            "decision.members": (*names, *groups_of_members(self.group)),
        }
        return values | ({"dropped": self.options} if self.options else {})


def parse_settlement(vocabulary: Vocabulary, reply: Decided) -> Settlement:
    """Return the decision that the mediator's reply states."""
    # Entries that differ only in times or only in members are merged. If a member gets several
    # options for the whole trip, each option gets a part of the trip. House rules are not divided
    # in this way, because several rules can apply at once.
    group, in_force = vocabulary.group, vocabulary.in_force
    not_options: list[str] = []
    not_members: list[str] = []
    not_times: list[str] = []
    times: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    known_times = [portion.when for portion in in_force]
    known_options = dict.fromkeys((*vocabulary.options, *(portion.option for portion in in_force)))
    for share in reply.decision:
        option = _option_of(share, tuple(known_options), vocabulary.forbidden)
        if option is None:
            new_option = parse_way_out(share.option) is not None and share.new_option
            not_options.append(new_option or share.option or share.new_option)
        members = _members_of(share, group, not_members)
        when = parse_time(share.when, vocabulary.days, known_times)
        if when is None:
            not_times.append(share.when)
        if option and members:
            # A new option of this entry is a listed one for the entries that follow.
            known_options[option] = None
            times.setdefault((option, members), []).append(when or OPEN_TIME)
    members_of_share: dict[tuple[str, str], set[str]] = {}
    for (option, members), stated_times in times.items():
        when = (
            WHOLE_TRIP if WHOLE_TRIP in stated_times else " and ".join(dict.fromkeys(stated_times))
        )
        members_of_share.setdefault((option, when), set()).update(members)
    portions = tuple(
        Portion(
            option, tuple(member.id for member in group.members if member.id in member_ids), when
        )
        for (option, when), member_ids in members_of_share.items()
    )
    given_options = {portion.option for portion in portions}
    # An entry of `dropped` that names no option changes nothing, so it causes no re-ask.
    dropped = _match_all(reply.dropped, tuple(known_options), [])
    # Several house rules can hold at once, whereas other options need a time each.
    if vocabulary.topic != "house_rule":
        portions = _shared_options(portions)
    unmatched = {OPTIONS_ON_THE_TABLE: not_options, MEMBERS: not_members, TIMES: not_times}
    return Settlement(
        portions,
        tuple(option for option in dropped if option not in given_options),
        {what: tuple(entries) for what, entries in unmatched.items() if entries},
    )


def _option_of(share: Share, options: Sequence[str], forbidden: Sequence[str]) -> str | None:
    # None if the entry names no option or a forbidden one.
    if share.option and parse_way_out(share.option) is None:
        return match_option(share.option, options)
    option = new_option_of(share.new_option, options)
    return None if option is None or option in forbidden else option


def _members_of(share: Share, group: Group, unmatched: list[str]) -> tuple[str, ...]:
    named: set[str] = set()
    for entry in share.members:
        ids = match_members(entry, group)
        named.update(ids)
        if not ids:
            unmatched.append(entry)
    if not share.members:
        unmatched.append("")
    return tuple(member.id for member in group.members if member.id in named)


def _shared_options(portions: tuple[Portion, ...]) -> tuple[Portion, ...]:
    # Two options for the whole trip would apply at the same time. So each gets its own part of the
    # trip ("part with sushi").
    whole_trip_members = [
        set(portion.members) for portion in portions if portion.when == WHOLE_TRIP
    ]

    def is_shared(portion: Portion) -> bool:
        return (
            portion.when == WHOLE_TRIP
            and sum(bool(set(portion.members) & members) for members in whole_trip_members) > 1
        )

    return tuple(
        replace(portion, when=f"part with {portion.option}") if is_shared(portion) else portion
        for portion in portions
    )


def summary_option(portions: Sequence[Portion]) -> str | None:
    """Return the option that most members get.

    Returns None for an empty decision.
    """
    # In a tie, the first of the tied options counts.
    receivers = _who_gets(portions)
    return max(receivers, key=lambda option: len(receivers[option]), default=None)


def same_allocation(first: Sequence[Portion], second: Sequence[Portion]) -> bool:
    """Return True if both decisions give each option to the same members. Times are ignored."""
    return _who_gets(first) == _who_gets(second)


def is_same_decision(first: Sequence[Portion], second: Sequence[Portion], days: int) -> bool:
    """Return True if two decisions are equal in options, members and times."""
    return _who_gets_when(first, days) == _who_gets_when(second, days)


def _who_gets(portions: Sequence[Portion]) -> Mapping[str, frozenset[str]]:
    receivers: dict[str, frozenset[str]] = {}
    for portion in portions:
        receivers[portion.option] = receivers.get(portion.option, frozenset()) | frozenset(
            portion.members
        )
    return receivers


def _who_gets_when(portions: Sequence[Portion], days: int) -> dict[tuple[str, str], frozenset[str]]:
    times_of: dict[tuple[str, str], frozenset[str]] = {}
    for portion in portions:
        times = frozenset(portion.when.replace(", ", " and ").split(" and "))
        for member in portion.members:
            key = portion.option, member
            times_of[key] = times_of.get(key, frozenset()) | times
    every_day = frozenset(f"Day {day + 1}" for day in range(days))
    return {
        key: frozenset({WHOLE_TRIP}) if times >= every_day else times
        for key, times in times_of.items()
    }
