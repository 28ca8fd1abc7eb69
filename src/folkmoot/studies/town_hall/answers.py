"""What residents, moderator and planner answer: typed, with the fields of the source.

The types are strict. What a model writes more loosely is mended on the way in (`mending.py`). The
docstrings and field descriptions are part of the JSON schemas that go with the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from folkmoot.studies.town_hall.mending import Mender, listed, mender_of, spelled, text, whole
from folkmoot.studies.town_hall.replies import Answer, Mended, Unfit, model_answer

Stance = Literal["strong_support", "support", "neutral", "oppose", "strong_oppose"]
Feeling = Literal["worried", "relieved", "angry", "hopeful", "indifferent", "empathetic"]
InteractionType = Literal["agree", "disagree", "partial_agree", "cite", "question"]
ChangeType = Literal["maintain", "soften", "harden", "flip"]

STANCES: tuple[str, ...] = get_args(Stance)
FEELINGS: tuple[str, ...] = get_args(Feeling)
INTERACTIONS: tuple[str, ...] = get_args(InteractionType)
CHANGES: tuple[str, ...] = get_args(ChangeType)
EVERYONE = ("all", "moderator", "planner")


def _feeling(raw: Any, info: ValidationInfo) -> str | None:
    return mender_of(info).choice(raw, FEELINGS, "reactions.my_feeling")


def _level(raw: Any, info: ValidationInfo) -> int | None:
    """From 1 to 5; out of range is dropped, never moved to the nearest."""
    mender, value, where = mender_of(info), whole(raw, 5), "reactions.agree_level"
    if value is None:
        mender.note(where, "unknown_value" if raw else "missing_value", raw)
    elif not 1 <= value <= 5:
        mender.note(where, "out_of_range", raw)
        return None
    elif not isinstance(raw, int):
        mender.note(where, "spelling", raw, str(value))
    return value


def _truth(raw: Any, info: ValidationInfo) -> bool | None:
    if isinstance(raw, bool):
        return raw
    words = {"true": True, "yes": True, "false": False, "no": False}
    found = words.get(str(raw).strip().casefold())
    kind = "spelling" if found is not None else "unknown_value" if raw else "missing_value"
    became = "" if found is None else str(found)
    mender_of(info).note("reactions.want_to_respond", kind, raw, became)
    return found


def _texts(raw: Any, info: ValidationInfo) -> Any:
    if isinstance(raw, str):
        mender_of(info).note(str(info.field_name), "wrong_shape", raw, raw)
        raw = [raw]
    return [t for t in map(text, raw) if t] if isinstance(raw, Sequence) else raw


Words = Annotated[str, BeforeValidator(text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
# Asked for as a plain enumeration or number; None only when what came back was dropped.
OptionalFeeling = Annotated[
    Feeling | None,
    WithJsonSchema({"type": "string", "enum": list(FEELINGS)}),
    BeforeValidator(_feeling),
]
AgreeLevel = Annotated[
    int | None,
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 5}),
    BeforeValidator(_level),
]
OptionalBool = Annotated[bool | None, WithJsonSchema({"type": "boolean"}), BeforeValidator(_truth)]


class Record(BaseModel):
    """Base of all answers: unknown fields are ignored, values never change."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, raw: Any) -> Any:
        """A field that is not there is null, which its own validator mends or refuses."""
        if not isinstance(raw, Mapping):
            return raw
        needed = (n for n, f in cls.model_fields.items() if f.is_required())
        return {**dict.fromkeys(needed), **raw}

    def to_json(self) -> dict[str, Any]:
        """The fields under the source's names; `_parse_error` only where it is true."""
        data = self.model_dump(mode="json", by_alias=True)
        if data.pop("_parse_error", False):
            data["_parse_error"] = True
        return data


class Minimal(Record):
    """An answer that may stand for one that could not be read."""

    parse_error: SkipJsonSchema[bool] = Field(False, alias="_parse_error")


class Reference(Record):
    """A public response to another resident."""

    target_agent: str = Field(description="id of the resident who is answered")
    interaction_type: InteractionType
    content: Words


class Reaction(Record):
    """A private reaction to what another resident said."""

    target_agent: str = Field(description="id of the resident whose opinion this is about")
    target_summary: Words = Field(description="that opinion in a few words")
    my_feeling: OptionalFeeling
    agree_level: AgreeLevel
    reason: Words
    want_to_respond: OptionalBool


T = TypeVar("T", Reaction, Reference)


def _heard(kept: list[T], name: str, mender: Mender) -> list[T]:
    """Nothing in round 1, in which nobody has been heard yet."""
    if mender.round > 1:
        return kept
    for entry in kept:
        mender.note(name, "nothing_said_yet", entry.target_agent)
    return []


class Thinking(Minimal):
    """THINK: private, never shown to anyone else."""

    reactions: tuple[Reaction, ...] = Field(description="one per opinion heard")
    overall_stance: Stance | SkipJsonSchema[None]
    key_concerns: Texts
    strategic_notes: Words

    @field_validator("reactions", mode="before")
    @classmethod
    def _to_others(cls, raw: Any, info: ValidationInfo) -> Any:
        mender = mender_of(info)
        kept: dict[str, Reaction] = {}
        for entry in mender.entries(raw, "reactions"):
            target = mender.target(entry.get("target_agent"), "reactions.target_agent")
            if target in kept:
                mender.note("reactions", "repeated", target)
            elif target:
                own = {**entry, "target_agent": target}
                kept[target] = Reaction.model_validate(own, context=mender)
        return _heard(list(kept.values()), "reactions", mender)

    @field_validator("overall_stance", mode="before")
    @classmethod
    def _spelled(cls, raw: Any, info: ValidationInfo) -> Any:
        return mender_of(info).or_refused(raw, STANCES, "overall_stance")


class Question(Record):
    """A public question: to a resident, `all`, `moderator` or `planner`."""

    target: str
    content: Words


class Speaking(Minimal):
    """SPEAK: what the whole hall hears. An empty statement is silence."""

    references: tuple[Reference, ...]
    new_points: Texts = Field(description="points of one's own, not in answer to anyone")
    questions: tuple[Question, ...]
    full_statement: str = Field(description="the statement as it is spoken; empty to stay silent")

    @field_validator("references", mode="before")
    @classmethod
    def _to_others(cls, raw: Any, info: ValidationInfo) -> Any:
        mender = mender_of(info)
        kept = []
        for entry in mender.entries(raw, "references"):
            target = mender.target(entry.get("target_agent"), "references.target_agent")
            said = entry.get("interaction_type")
            kind = target and mender.choice(said, INTERACTIONS, "references.interaction_type")
            if kind:
                own = {**entry, "target_agent": target, "interaction_type": kind}
                kept.append(Reference.model_validate(own))
        return _heard(kept, "references", mender)

    @field_validator("questions", mode="before")
    @classmethod
    def _to_somebody(cls, raw: Any, info: ValidationInfo) -> Any:
        mender = mender_of(info)
        kept = []
        for entry in mender.entries(raw, "questions"):
            said = entry.get("target")
            target = spelled(said, EVERYONE) or mender.target(said, "questions.target")
            if target:
                kept.append({**entry, "target": target})
        return kept

    @field_validator("full_statement")
    @classmethod
    def _stripped(cls, said: str) -> str:
        return said.strip()


class Compelling(Record):
    """The opinion that convinced most."""

    agent_id: str
    opinion_summary: Words
    why_compelling: Words


class Disagreed(Record):
    """The opinion that one disagrees with most."""

    agent_id: str
    opinion_summary: Words
    why_disagree: Words


class StanceEvolution(Record):
    """How one's stance moved in a round."""

    previous_stance: Stance
    current_stance: Stance
    change_type: ChangeType
    change_reason: Words

    @model_validator(mode="before")
    @classmethod
    def _consistent(cls, raw: Any, info: ValidationInfo) -> Any:
        """The stance before is the one on record; the change is the one between the stances."""
        if not isinstance(raw, Mapping):
            return raw
        mender = mender_of(info)
        before = mender.or_refused(raw.get("previous_stance"), STANCES, "previous_stance")
        after = mender.or_refused(raw.get("current_stance"), STANCES, "current_stance")
        if mender.stance and before != mender.stance:
            where = "stance_evolution.previous_stance"
            mender.note(where, "contradiction", before, mender.stance)
            before = mender.stance
        said = spelled(raw.get("change_type"), CHANGES)
        if before in STANCES and after in STANCES:
            meant = change_between(before, after)
            # One may soften or harden and stay on the same step of the scale.
            within = meant == "maintain" and said in ("soften", "harden")
            if said != meant and not within:
                mender.note("stance_evolution.change_type", "contradiction", said or "", meant)
                said = meant
        return {
            **raw,
            "previous_stance": before,
            "current_stance": after,
            "change_type": said,
        }


class Reflection(Minimal):
    """REFLECT: private, between rounds; feeds the same resident's next THINK only."""

    most_compelling: Annotated[Compelling | None, WithJsonSchema(Compelling.model_json_schema())]
    most_disagreed: Annotated[Disagreed | None, WithJsonSchema(Disagreed.model_json_schema())]
    stance_evolution: StanceEvolution | SkipJsonSchema[None]
    next_round_strategy: Words

    @field_validator("most_compelling", "most_disagreed", mode="before")
    @classmethod
    def _of_another(cls, raw: Any, info: ValidationInfo) -> Any:
        mender, name = mender_of(info), str(info.field_name)
        if not isinstance(raw, Mapping):
            if raw:
                mender.note(name, "wrong_shape", raw)
            return None
        target = mender.target(raw.get("agent_id"), f"{name}.agent_id")
        return {**raw, "agent_id": target} if target else None

    @field_validator("stance_evolution", mode="before")
    @classmethod
    def _given(cls, raw: Any) -> Any:
        return raw or ""  # null is refused: without a stance there is no answer


MINIMAL_THINKING = Thinking.model_construct(
    reactions=(), overall_stance=None, key_concerns=(), strategic_notes="", parse_error=True
)
MINIMAL_SPEAKING = Speaking.model_construct(
    references=(), new_points=(), questions=(), full_statement="", parse_error=True
)
MINIMAL_REFLECTION = Reflection.model_construct(
    most_compelling=None,
    most_disagreed=None,
    stance_evolution=None,
    next_round_strategy="",
    parse_error=True,
)


def thinking(ids: Sequence[str], me: str, round_no: int) -> Answer[Thinking]:
    """The answer type of THINK; without reactions in the first round."""
    leave_out = ("reactions",) if round_no == 1 else ()
    return model_answer(Thinking, lambda: Mender(ids, me, round_no), *leave_out)


def speaking(ids: Sequence[str], me: str, round_no: int) -> Answer[Speaking]:
    """The answer type of SPEAK; without references in the first round."""
    leave_out = ("references",) if round_no == 1 else ()
    return model_answer(Speaking, lambda: Mender(ids, me, round_no), *leave_out)


def reflection(ids: Sequence[str], me: str, stance: str) -> Answer[Reflection]:
    """The answer type of REFLECT; `stance` is the resident's own before it, or empty."""
    return model_answer(Reflection, lambda: Mender(ids, me, stance=stance))


class Concern(Record):
    """A concern of one resident that nobody has answered."""

    resident: str
    concern: str


class Moderation(Minimal):
    """What the moderator is asked for."""

    model_config = ConfigDict(title="Moderating")

    summary: str = Field(min_length=1)
    underrepresented_opinions: tuple[Words, ...]
    invited_residents: tuple[str, ...]
    overlooked_concerns: tuple[Concern, ...]
    spoken: str = Field(description="the words that the hall hears", min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _spoken(cls, raw: Any) -> Any:
        """A speech that was left out: the summary is read to the hall."""
        if isinstance(raw, Mapping) and not text(raw.get("spoken")):
            return {**raw, "spoken": text(raw.get("summary"))}
        return raw

    @field_validator("underrepresented_opinions", mode="before")
    @classmethod
    def _listed(cls, raw: Any) -> Any:
        return listed(raw)

    @field_validator("invited_residents", mode="before")
    @classmethod
    def _known(cls, raw: Any, info: ValidationInfo) -> Any:
        return mender_of(info).targets(listed(raw), "invited_residents")

    @field_validator("overlooked_concerns", mode="before")
    @classmethod
    def _of_known(cls, raw: Any, info: ValidationInfo) -> Any:
        loose = [c if isinstance(c, Mapping) else {"concern": text(c)} for c in listed(raw)]
        return _with_targets(loose, "overlooked_concerns", info)


class ReflectedConcern(Record):
    """A concern of one resident that the text takes up."""

    resident: str = Field(description="id of the resident")
    concern: Words


class Closing(Minimal):
    """What is asked for. Nobody says here who is vulnerable; that is worked out from the ids."""

    consensus: str = Field(min_length=1)
    concerns_reflected: tuple[ReflectedConcern, ...]

    @field_validator("consensus")
    @classmethod
    def _stripped(cls, said: str) -> str:
        return said.strip()

    @field_validator("concerns_reflected", mode="before")
    @classmethod
    def _of_known(cls, raw: Any, info: ValidationInfo) -> Any:
        concerns = [c for c in (raw if isinstance(raw, list) else []) if isinstance(c, Mapping)]
        kept = _with_targets(concerns, "concerns_reflected", info)
        return [c for i, c in enumerate(kept) if c not in kept[:i]]


def _with_targets(
    concerns: Sequence[Mapping[str, Any]], where: str, info: ValidationInfo
) -> list[dict[str, Any]]:
    """Concerns of residents that there are."""
    mender = mender_of(info)
    named = [(mender.target(text(c.get("resident")), f"{where}.resident"), c) for c in concerns]
    return [{"resident": who, "concern": c.get("concern")} for who, c in named if who]


MINIMAL_MODERATION = Moderation.model_construct(
    summary="",
    underrepresented_opinions=(),
    invited_residents=(),
    overlooked_concerns=(),
    spoken="",
    parse_error=True,
)
MINIMAL_CLOSING = Closing.model_construct(consensus="", concerns_reflected=(), parse_error=True)


class PlannedItem(Record):
    """One point to be decided."""

    proposal: str = Field(description="worded so that yes means to do it", min_length=1)
    reasoning: Words
    originating_residents: tuple[Words, ...] = Field(description="ids of those who raised it")

    @field_validator("originating_residents", mode="before")
    @classmethod
    def _listed(cls, raw: Any) -> Any:
        return listed(raw)


class Planned(Record):
    """What the planner is asked for."""

    items: tuple[PlannedItem, ...] = Field(min_length=1)

    @field_validator("items", mode="before")
    @classmethod
    def _objects(cls, raw: Any) -> Any:
        return [i for i in raw if isinstance(i, Mapping)] if isinstance(raw, list) else raw


@dataclass(frozen=True, slots=True)
class Item:
    """One binary decision on the ballot and the residents whose words it goes back to."""

    id: str
    text: str
    reasoning: str
    origin: tuple[str, ...]


def items(ids: Sequence[str], most: int) -> Answer[tuple[Item, ...]]:
    """The ballot. Bad ids, repeated items and items beyond `most` are dropped and noted."""

    def read(raw: Mapping[str, Any]) -> Mended[tuple[Item, ...]]:
        mender, late = Mender(ids, "planner"), Mender(ids, "planner")
        kept: list[Item] = []
        for planned in Planned.model_validate(raw).items:
            proposal = planned.proposal
            if any(i.text.casefold() == proposal.strip().casefold() for i in kept):
                late.note("items", "repeated", proposal)
                continue
            if len(kept) == most:
                late.note("items", "too_many", proposal)
                continue
            where, name = "items.originating_residents", f"V{len(kept) + 1}"
            origin = mender.targets(planned.originating_residents, where)
            if not origin:
                mender.note(where, "no_origin", name)
            wording = " ".join(proposal.split())
            kept.append(Item(name, wording, planned.reasoning, tuple(sorted(origin))))
        return Mended(tuple(kept), (*mender.mends, *late.mends))

    return Answer(model_answer(Planned, lambda: Mender(ids, "planner")).schema, read)


@dataclass(frozen=True, slots=True)
class Ballot:
    """One resident's votes (item id → yes or no) and reasons; an item left out was not voted on."""

    votes: Mapping[str, str]
    reasons: Mapping[str, str]


NO_BALLOT = Ballot({}, {})
VOTES = ("yes", "no")
_YES_NO = {"true": "yes", "approve": "yes", "for": "yes", "in_favour": "yes", "false": "no"}
_YES_NO |= {"reject": "no", "against": "no"}


def ballot(on: Sequence[Item]) -> Answer[Ballot]:
    """A vote with a reason on each item. An item without a clear yes or no is refused."""
    one = {
        "title": "Vote",
        "type": "object",
        "properties": {
            "vote": {"type": "string", "enum": list(VOTES)},
            "reason": {"type": "string"},
        },
        "required": ["vote", "reason"],
    }
    schema = {
        "title": "Ballot",
        "type": "object",
        "properties": {i.id: {"$ref": "#/$defs/Vote"} for i in on},
        "required": [i.id for i in on],
        "$defs": {"Vote": one},
    }

    def read(raw: Mapping[str, Any]) -> Mended[Ballot]:
        mender = Mender((), "")
        votes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        by_key = {str(k).strip().casefold(): v for k, v in raw.items()}
        for item in on:
            entry = by_key.get(item.id.casefold())
            entry = entry if isinstance(entry, Mapping) else {"vote": entry}
            said = entry.get("vote")
            vote = yes_or_no(said)
            if vote is None:
                raise Unfit(f"{item.id} has no vote of yes or no. Vote on every item.")
            if vote != said:
                mender.note(f"{item.id}.vote", "spelling", said, vote)
            votes[item.id], reasons[item.id] = vote, text(entry.get("reason"))
        return Mended(Ballot(votes, reasons), tuple(mender.mends))

    return Answer(schema, read)


def yes_or_no(raw: Any) -> str | None:
    """`yes` or `no`, also when written as true, "Yes." or against; None for anything else."""
    folded = str(raw).strip().casefold().replace(" ", "_") if raw is not None else ""
    return spelled(_YES_NO.get(folded.strip("."), raw), VOTES)


@dataclass(frozen=True, slots=True)
class Satisfaction:
    """One resident's satisfaction (1–10) at one time; None where it could not be read."""

    score: int | None
    reason: str = ""


UNKNOWN = Satisfaction(None)
LOW, HIGH = 1, 10


def _read_satisfaction(raw: Mapping[str, Any]) -> Mended[Satisfaction]:
    """A score out of range is asked for again, never moved to the nearest."""
    mender, said = Mender((), ""), raw.get("satisfaction")
    score = whole(said, HIGH)
    if score is None or not LOW <= score <= HIGH:
        raise Unfit(f"satisfaction must be a whole number from {LOW} to {HIGH}.")
    if not isinstance(said, int):
        mender.note("satisfaction", "spelling", said, str(score))
    return Mended(Satisfaction(score, text(raw.get("reason"))), tuple(mender.mends))


SATISFACTION = Answer(
    {
        "title": "Satisfaction",
        "type": "object",
        "properties": {
            "satisfaction": {"type": "integer", "minimum": LOW, "maximum": HIGH},
            "reason": {"type": "string"},
        },
        "required": ["satisfaction", "reason"],
    },
    _read_satisfaction,
)


def change_between(before: str, after: str) -> str:
    """The change of stance that two stances amount to (maintain, soften, harden, flip).

    A flip goes to the other side; leaving neutral is hardening, going there softening.
    """
    a, b = (2 - STANCES.index(s) for s in (before, after))
    if a == b:
        return "maintain"
    if a * b < 0:
        return "flip"
    return "harden" if abs(b) > abs(a) else "soften"
