"""Answer types of moderator and planner, and of residents' votes and satisfaction ratings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from folkmoot.conversation.answer_types import (
    DECLINED,
    NONE_OF_THESE,
    WAYS_OUT,
    Json,
    ValidationContext,
    parse_way_out,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.lenient_fields import UNREADABLE, is_declined, read_list, read_text
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.hints import collapse_spaces
from folkmoot.studies.town_hall.answers.for_people import FIELDS_FOR_PEOPLE
from folkmoot.studies.town_hall.answers.options import VOTES
from folkmoot.studies.town_hall.answers.records import (
    TEMPLATE_SENTENCE,
    UNREAD,
    Minimal,
    Record,
    StatedEntry,
    StatedText,
    Texts,
    Words,
    asked_schema,
)
from folkmoot.studies.town_hall.answers.repairs import (
    AskContext,
    Repairer,
    match_option,
    parse_whole_number,
)


class Concern(Record):
    model_config = pin_schema("Concern", "A concern of one resident that nobody has answered.")

    resident: str = Field(description="id of the resident whose concern it is")
    concern: str = Field(description="what that resident is concerned about")


class Moderation(Minimal):
    """The answer type of the moderator, who is asked after each round."""

    model_config = pin_schema("Moderating", "What the moderator is asked for.")

    summary: StatedText = Field(
        description="where the discussion stands, in three or four sentences", min_length=1
    )
    underrepresented_opinions: Texts = Field(description="the opinions that got too little room")
    invited_residents: tuple[str, ...] = Field(
        description="the ids of the quiet residents whom you invite"
    )
    overlooked_concerns: tuple[Concern, ...] = Field(
        description="one entry for each concern that got no answer"
    )
    spoken: StatedText = Field(
        description="all this in the words that the hall hears, naming the residents by name",
        min_length=1,
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_missing_speech(cls, raw: object) -> object:
        if isinstance(raw, Mapping) and not read_text(raw.get("spoken")):
            return {**raw, "spoken": read_text(raw.get("summary"))}
        return raw

    @field_validator("underrepresented_opinions", mode="before")
    @classmethod
    def _parse_list(cls, raw: object) -> object:
        return read_list(raw)

    @field_validator("invited_residents", mode="before")
    @classmethod
    def _keep_known_residents(cls, raw: object, info: ValidationInfo) -> object:
        return Repairer.from_info(info).parse_targets(read_list(raw), "invited_residents")

    @field_validator("overlooked_concerns", mode="before")
    @classmethod
    def _keep_known_concerns(cls, raw: object, info: ValidationInfo) -> object:
        # Some models list concerns as plain texts. Without a resident they are then dropped and
        # noted.
        entries = [
            entry if isinstance(entry, Mapping) else {"concern": read_text(entry)}
            for entry in read_list(raw)
        ]
        return _with_targets(entries, "overlooked_concerns", info)


class ReflectedConcern(Record):
    """A resident's concern that the closing text mentions."""

    model_config = pin_schema(
        "ReflectedConcern", "A concern of one resident that the text takes up."
    )

    resident: str = Field(description="id of the resident")
    concern: Words = Field(description="the concern of that resident which the text takes up")


class Closing(Minimal):
    """The answer type of the planner's closing text.

    The planner does not state who is vulnerable. The measures look that up by the residents' ids.
    """

    model_config = pin_schema(
        "Closing",
        "What is asked for. Nobody says here who is vulnerable; that is worked out from the ids.",
    )

    consensus: StatedText = Field(description="the text, one or two paragraphs", min_length=1)
    concerns_reflected: tuple[ReflectedConcern, ...] = Field(
        description="one entry for each resident whose concern the text takes up"
    )

    def _lists_to_state(self, _asked: AskContext) -> tuple[str, ...]:
        return ("concerns_reflected",)

    @field_validator("consensus")
    @classmethod
    def _strip_closing(cls, text: str) -> str:
        return text.strip()

    @field_validator("concerns_reflected", mode="before")
    @classmethod
    def _keep_known_concerns(cls, raw: object, info: ValidationInfo) -> object:
        concerns = Repairer.from_info(info).parse_entries(raw, "concerns_reflected")
        known_concerns = _with_targets(concerns, "concerns_reflected", info)
        # A list keeps the order of the text, and records cannot be hashed.
        return [
            concern for i, concern in enumerate(known_concerns) if concern not in known_concerns[:i]
        ]


def _with_targets(
    concerns: Sequence[Mapping[str, object]], field: str, info: ValidationInfo
) -> list[dict[str, object]]:
    # `Repairer.target` notes unknown residents as repairs. Their concerns are dropped.
    repairer = Repairer.from_info(info)
    with_targets = [
        (repairer.target(read_text(concern.get("resident")), f"{field}.resident"), concern)
        for concern in concerns
    ]
    return [
        {"resident": resident_id, "concern": concern.get("concern")}
        for resident_id, concern in with_targets
        if resident_id
    ]


# A declined answer counts as one that could not be read.
NO_MODERATION = {UNREAD: Moderation.minimal_answer(), DROPPED: Moderation.dropped_answer()}
MINIMAL_CLOSING = Closing.minimal_answer()
NO_CLOSING = {UNREAD: MINIMAL_CLOSING, DROPPED: Closing.dropped_answer()}


class PlannedItem(Record):
    model_config = pin_schema("PlannedItem", "One point to be decided.")

    proposal: StatedEntry = Field(
        description="what is to be voted on, worded so that yes means to do it", min_length=1
    )
    reasoning: Words = Field(description="what in the discussion it comes from")
    originating_residents: tuple[Words, ...] = Field(
        description="the ids of those whose statements it goes back to"
    )

    @field_validator("originating_residents", mode="before")
    @classmethod
    def _parse_list(cls, raw: object) -> object:
        return read_list(raw)


class Planned(Record):
    model_config = pin_schema("Planned", "What the planner is asked for.")

    items: tuple[PlannedItem, ...] = Field(description="one entry for each proposal", min_length=1)

    @field_validator("items", mode="before")
    @classmethod
    def _keep_proposals(cls, raw: object, info: ValidationInfo) -> object:
        # One item without a proposal would make the whole ballot invalid.
        echoed = ValidationContext.from_info(info).echoed
        return (
            [
                item
                for number, item in enumerate(raw)
                if isinstance(item, Mapping) and f"items.{number}.proposal" not in echoed
            ]
            if isinstance(raw, list)
            else raw
        )

    @field_validator("items")
    @classmethod
    def _drop_repeated_items(
        cls, items: tuple[PlannedItem, ...], info: ValidationInfo
    ) -> tuple[PlannedItem, ...]:
        repairer = Repairer.from_info(info)
        kept: dict[str, PlannedItem] = {}
        for item in items:
            wording = collapse_spaces(item.proposal)
            # Repeats are dropped before the maximum applies, so a repeat does not displace a later
            # item.
            if wording.casefold() in kept:
                repairer.note("items", "repeated", item.proposal)
            elif len(kept) == repairer.asked.most:
                repairer.note("items", "too_many", item.proposal)
            else:
                field = "items.originating_residents"
                # Sorted, so that the order in which a model lists residents does not matter.
                origin = tuple(sorted(repairer.parse_targets(item.originating_residents, field)))
                # The item stays on the ballot, but no resident is credited with it.
                if not origin:
                    repairer.note(field, "no_origin", f"V{len(kept) + 1}")
                changes = {"proposal": wording, "originating_residents": origin}
                kept[wording.casefold()] = item.model_copy(update=changes)
        return tuple(kept.values())


def planned_ballot_type(asked: AskContext) -> Json[Planned]:
    """Return the answer type for the planner's ballot."""
    return Json(Planned, validation_context=asked, schema=asked_schema(Planned))


# Models also answer with booleans, which become "true" and "false", and with words for motions.
_YES_NO = {"true": "yes", "approve": "yes", "for": "yes", "in_favour": "yes", "false": "no"}
_YES_NO |= {"reject": "no", "against": "no"}


class Ballot(BaseModel):
    """The votes of one resident on all ballot items.

    `votes` maps item id → yes or no. `reasons` maps item id → the resident's reason. `missing` maps
    the id of each item without a vote → the reason why the vote is missing.
    """

    model_config = pin_schema("Ballot")

    votes: dict[str, str] = {}
    reasons: dict[str, str] = {}
    # Item → the reason why there is no vote on it.
    missing: dict[str, str] = {}
    declined: bool = False
    parse_error: bool = False

    @model_validator(mode="before")
    @classmethod
    def _parse_votes(cls, raw: object, info: ValidationInfo) -> object:
        # An unclear vote raises ValueError, so the question is asked again and no vote is guessed.
        # If the last reply has one too, only this vote is missing.
        reading = ValidationContext.from_info(info)
        # Without a context the ballot was made in Python, as the constants below, and is complete.
        if reading.context is None or not isinstance(raw, Mapping):
            return raw
        votes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        missing: dict[str, str] = {}
        by_key: dict[str, object] = {}
        for name, value in raw.items():
            key = str(name).strip().casefold()
            # Two different votes on one item are no vote, as if the key were repeated.
            by_key[key] = {} if key in by_key and by_key[key] != value else value
        # Echoed fields have been removed from the reply, so they look like absent ones here.
        repeated = {path.casefold() for path in reading.echoed}
        for item in reading.context:
            key = item.casefold()
            entry = by_key.get(key)
            entry = entry if isinstance(entry, Mapping) else {"vote": entry}
            stated = entry.get("vote")
            reasons[item] = read_text(entry.get("reason"))
            try:
                is_item_declined = is_declined(entry)
            except ValueError:
                # `declined` with other words may be a refusal, so the vote beside it is unclear.
                is_item_declined, stated = False, entry
            if is_item_declined:
                missing[item] = DECLINED
            elif (way_out := parse_way_out(stated, WAYS_OUT)) is not None:
                missing[item] = way_out.reason
            elif stated is None and repeated & {key, f"{key}.vote"}:
                missing[item] = TEMPLATE_SENTENCE
            elif (vote := yes_or_no(stated)) is None:
                if reading.salvage:
                    missing[item] = UNREAD
                    reading.add_repair(f"{item}.vote", UNREADABLE, "" if stated is None else stated)
                    continue
                raise ValueError(
                    f"{item} has no vote of yes or no, {NONE_OF_THESE} or {DECLINED}. "
                    "Vote on every item"
                )
            else:
                votes[item] = vote
                if vote != stated:
                    reading.add_repair(f"{item}.vote", "spelling", stated, vote)
        if not votes and set(missing.values()) == {UNREAD}:
            raise ValueError("no vote could be read")
        return {"votes": votes, "reasons": reasons, "missing": missing}

    def to_json(self) -> dict[str, object]:
        """Return the ballot as JSON data, with the field names of the source study."""
        flags = {"_parse_error": self.parse_error, "_declined": self.declined}
        votes_and_reasons = {"votes": self.votes, "reasons": self.reasons}
        missing = {"_missing": self.missing} if self.missing else {}
        return {
            **votes_and_reasons,
            **{name: value for name, value in flags.items() if value},
            **missing,
        }


# The ballot of a discussion in which the planner proposed nothing to vote on.
NO_BALLOT = Ballot()


def empty_ballots(items: Iterable[str]) -> dict[str, Ballot]:
    """Return the ballot of a resident without votes, for each reason why there are none."""
    ids = tuple(items)
    return {
        UNREAD: Ballot(parse_error=True),
        DECLINED: Ballot(missing=dict.fromkeys(ids, DECLINED), declined=True),
        DROPPED: Ballot(missing=dict.fromkeys(ids, DROPPED)),
    }


def ballot_type(items: Iterable[str], options: Sequence[str] = VOTES) -> Json[Ballot]:
    """Return the answer type of a ballot with a vote and a reason for each item.

    `options`: "yes" and "no", in the order in which the prompt lists them.
    """
    # The reason comes before the vote, so that a model reasons before it decides.
    vote_schema = {
        "title": "Vote",
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "why, in one sentence"},
            "vote": {
                "type": "string",
                "description": "the vote on this item",
                "enum": list(with_ways_out(options)),
            },
        },
        "required": ["reason", "vote"],
    }
    # All items share one definition, which keeps the schema short.
    refs = {item: {"$ref": "#/$defs/Vote"} for item in items}
    schema = {
        "title": "Ballot",
        "type": "object",
        "properties": refs,
        "required": list(refs),
        "$defs": {"Vote": vote_schema},
    }
    return Json(
        Ballot,
        validation_context=tuple(refs),
        schema=schema,
        may_decline=True,
        fields_for_people=FIELDS_FOR_PEOPLE,
    )


def yes_or_no(raw: object) -> str | None:
    """Return "yes" or "no" for a vote such as true, "Yes." or "against".

    Returns None for any other value.
    """
    folded = str(raw).strip().casefold().replace(" ", "_") if raw is not None else ""
    return match_option(_YES_NO.get(folded.strip("."), raw), VOTES)


class Satisfaction(Record):
    """A resident's satisfaction rating from 1 to 10, with a reason.

    `satisfaction` is None if the rating is missing.
    """

    model_config = pin_schema("Satisfaction")

    CLOSED: ClassVar = {"satisfaction": 1}
    MAY_BE_NULL: ClassVar = ("satisfaction",)

    satisfaction: Annotated[int, Field(ge=1, le=10)] | None
    reason: Words

    @field_validator("satisfaction", mode="before")
    @classmethod
    def _check_score(cls, stated: object, info: ValidationInfo) -> object:
        # A rating out of range is not clipped.
        score = parse_whole_number(stated, 10)
        if score is None:
            raise ValueError("must be a whole number from 1 to 10, or null if you cannot say")
        if not isinstance(stated, int):
            Repairer.from_info(info).note("satisfaction", "spelling", stated, str(score))
        return score


SATISFACTION = Json(
    Satisfaction,
    schema={
        "title": "Satisfaction",
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "why, in one sentence"},
            "satisfaction": {
                "anyOf": [{"type": "integer", "minimum": 1, "maximum": 10}, {"type": "null"}],
                "description": "a whole number from 1 to 10, or null if it cannot be said",
            },
        },
        "required": ["reason", "satisfaction"],
    },
    may_decline=True,
    fields_for_people=FIELDS_FOR_PEOPLE,
)
# Reason why there is no rating → the answer without a rating.
NO_SATISFACTION = {
    reason: Satisfaction.model_construct(
        satisfaction=None, reason="", missing={"satisfaction": reason}
    )
    for reason in (UNREAD, DECLINED, DROPPED)
}
