"""What is thought, said, written and voted at a meeting: typed answers with the source's fields.

The types are strict. What a model writes more loosely is repaired on the way in (`repairs.py`). The
descriptions in `pin_schema` and of fields are part of the JSON schemas that go with the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar, cast, get_args, get_origin

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
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from folkmoot.conversation.answers import (
    Json,
    Parsed,
    Reading,
    object_schema,
    pin_schema,
    schema_of,
)
from folkmoot.studies.town_hall.answers.repairs import Asked, Repairer, listed, spelled, text, whole

Stance = Literal["strong_support", "support", "neutral", "oppose", "strong_oppose"]
Feeling = Literal["worried", "relieved", "angry", "hopeful", "indifferent", "empathetic"]
InteractionType = Literal["agree", "disagree", "partial_agree", "cite", "question"]
ChangeType = Literal["maintain", "soften", "harden", "flip"]

STANCES: tuple[str, ...] = get_args(Stance)
FEELINGS: tuple[str, ...] = get_args(Feeling)
INTERACTIONS: tuple[str, ...] = get_args(InteractionType)
CHANGES: tuple[str, ...] = get_args(ChangeType)
EVERYONE = ("all", "moderator", "planner")


def _feeling(raw: object, info: ValidationInfo) -> str | None:
    return Repairer.of(info).choice(raw, FEELINGS, "reactions.my_feeling")


def _level(raw: object, info: ValidationInfo) -> int | None:
    """From 1 to 5; out of range is dropped, never moved to the nearest."""
    repairer, value, where = Repairer.of(info), whole(raw, 5), "reactions.agree_level"
    if value is None:
        repairer.note(where, "unknown_value" if raw else "missing_value", raw)
    elif not 1 <= value <= 5:
        repairer.note(where, "out_of_range", raw)
        return None
    elif not isinstance(raw, int):
        repairer.note(where, "spelling", raw, str(value))
    return value


def _truth(raw: object, info: ValidationInfo) -> bool | None:
    if isinstance(raw, bool):
        return raw
    words = {"true": True, "yes": True, "false": False, "no": False}
    found = words.get(str(raw).strip().casefold())
    kind = "spelling" if found is not None else "unknown_value" if raw else "missing_value"
    became = "" if found is None else str(found)
    Repairer.of(info).note("reactions.want_to_respond", kind, raw, became)
    return found


def _texts(raw: object, info: ValidationInfo) -> object:
    if isinstance(raw, str):
        Repairer.of(info).note(str(info.field_name), "wrong_shape", raw, raw)
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


def _plain(of: FieldInfo) -> bool:
    mended = any(isinstance(m, BeforeValidator) for m in of.metadata)
    return of.annotation is str and not mended


class Record(BaseModel):
    """Base of all answers: unknown fields are ignored, values never change."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, raw: object) -> object:
        """A field that is not there is null, if it has a validator that repairs or refuses that."""
        if not isinstance(raw, Mapping):
            return raw
        mended = (n for n, f in cls.model_fields.items() if f.is_required() and not _plain(f))
        # Whether an answer could be read is ours to say, not the model's.
        said = {k: v for k, v in raw.items() if k not in ("parse_error", "_parse_error")}
        return {**dict.fromkeys(mended), **said}

    def to_json(self) -> dict[str, object]:
        """The fields under the source's names; `_parse_error` only where it is true."""
        data = self.model_dump(mode="json", by_alias=True)
        if data.pop("_parse_error", False):
            data["_parse_error"] = True
        return data


class Minimal(Record):
    """An answer that may stand for one that could not be read."""

    parse_error: SkipJsonSchema[bool] = Field(False, alias="_parse_error")

    @classmethod
    def minimal(cls) -> Self:
        """The minimal structure that stands for such an answer: nothing said."""
        empty: dict[str, Any] = {
            name: "" if of.annotation is str else () if get_origin(of.annotation) is tuple else None
            for name, of in cls.model_fields.items()
        }
        return cast(Self, cls.model_construct(**(empty | {"parse_error": True})))


class Reference(Record):
    """A public response to another resident."""

    model_config = pin_schema("Reference", "A public response to another resident.")

    target_agent: str = Field(description="id of the resident who is answered")
    interaction_type: InteractionType
    content: Words


class Reaction(Record):
    """A private reaction to what another resident said."""

    model_config = pin_schema("Reaction", "A private reaction to what another resident said.")

    target_agent: str = Field(description="id of the resident whose opinion this is about")
    target_summary: Words = Field(description="that opinion in a few words")
    my_feeling: OptionalFeeling
    agree_level: AgreeLevel
    reason: Words
    want_to_respond: OptionalBool


T = TypeVar("T", Reaction, Reference)


def _heard(kept: list[T], name: str, repairer: Repairer) -> list[T]:
    """Nothing in round 1, in which nobody has been heard yet."""
    if repairer.asked.round > 1:
        return kept
    for entry in kept:
        repairer.note(name, "nothing_said_yet", entry.target_agent)
    return []


class Thinking(Minimal):
    """THINK: private, never shown to anyone else."""

    model_config = pin_schema("Thinking", "THINK: private, never shown to anyone else.")

    reactions: tuple[Reaction, ...] = Field(description="one per opinion heard")
    overall_stance: Stance | SkipJsonSchema[None]
    key_concerns: Texts
    strategic_notes: Words

    @field_validator("reactions", mode="before")
    @classmethod
    def _to_others(cls, raw: object, info: ValidationInfo) -> object:
        repairer = Repairer.of(info)
        kept: dict[str, Reaction] = {}
        for entry in repairer.entries(raw, "reactions"):
            target = repairer.target(entry.get("target_agent"), "reactions.target_agent")
            if target in kept:
                repairer.note("reactions", "repeated", target)
            elif target:
                own = {**entry, "target_agent": target}
                kept[target] = Reaction.model_validate(own, context=repairer.reading)
        return _heard(list(kept.values()), "reactions", repairer)

    @field_validator("overall_stance", mode="before")
    @classmethod
    def _spelled(cls, raw: object, info: ValidationInfo) -> object:
        return Repairer.of(info).or_refused(raw, STANCES, "overall_stance")


class Question(Record):
    """A public question: to a resident, `all`, `moderator` or `planner`."""

    model_config = pin_schema(
        "Question", "A public question: to a resident, `all`, `moderator` or `planner`."
    )

    target: str
    content: Words


class Speaking(Minimal):
    """SPEAK: what the whole hall hears. An empty statement is silence."""

    model_config = pin_schema(
        "Speaking", "SPEAK: what the whole hall hears. An empty statement is silence."
    )

    references: tuple[Reference, ...]
    new_points: Texts = Field(description="points of one's own, not in answer to anyone")
    questions: tuple[Question, ...]
    full_statement: str = Field(description="the statement as it is spoken; empty to stay silent")

    @field_validator("references", mode="before")
    @classmethod
    def _to_others(cls, raw: object, info: ValidationInfo) -> object:
        repairer = Repairer.of(info)
        kept = []
        for entry in repairer.entries(raw, "references"):
            target = repairer.target(entry.get("target_agent"), "references.target_agent")
            said = entry.get("interaction_type")
            kind = target and repairer.choice(said, INTERACTIONS, "references.interaction_type")
            if kind:
                own = {**entry, "target_agent": target, "interaction_type": kind}
                kept.append(Reference.model_validate(own))
        return _heard(kept, "references", repairer)

    @field_validator("questions", mode="before")
    @classmethod
    def _to_somebody(cls, raw: object, info: ValidationInfo) -> object:
        repairer = Repairer.of(info)
        kept = []
        for entry in repairer.entries(raw, "questions"):
            said = entry.get("target")
            target = spelled(said, EVERYONE) or repairer.target(said, "questions.target")
            if target:
                kept.append({**entry, "target": target})
        return kept

    @field_validator("full_statement")
    @classmethod
    def _stripped(cls, said: str) -> str:
        return said.strip()

    @model_validator(mode="after")
    def _aloud(self, info: ValidationInfo) -> Self:
        """Only what the hall heard counts: answers whose words the statement does not hold are
        dropped, and from the silent everything."""
        repairer, said = Repairer.of(info), self.full_statement
        if not repairer.asked.ids:
            return self
        heard = [
            r for r in self.references if repairer.asked.said_aloud(r.content, r.target_agent, said)
        ]
        for r in self.references:
            if r not in heard:
                repairer.note("references", "not_said_aloud", f"{r.target_agent}: {r.content}")
        if said:
            return self.model_copy(update={"references": tuple(heard)})
        for name in ("new_points", "questions"):
            for one in getattr(self, name):
                words = one.content if isinstance(one, Question) else one
                repairer.note(name, "not_said_aloud", words)
        return self.model_copy(update={"references": (), "new_points": (), "questions": ()})


class Compelling(Record):
    model_config = pin_schema("Compelling", "The opinion that convinced most.")

    agent_id: str
    opinion_summary: Words
    why_compelling: Words


class Disagreed(Record):
    model_config = pin_schema("Disagreed", "The opinion that one disagrees with most.")

    agent_id: str
    opinion_summary: Words
    why_disagree: Words


class StanceEvolution(Record):
    """How one's stance moved in a round."""

    model_config = pin_schema("StanceEvolution", "How one's stance moved in a round.")

    previous_stance: Stance
    current_stance: Stance
    change_type: ChangeType
    change_reason: Words

    @model_validator(mode="before")
    @classmethod
    def _consistent(cls, raw: object, info: ValidationInfo) -> object:
        """The stance before is the one on record; the change is the one between the stances."""
        if not isinstance(raw, Mapping):
            return raw
        repairer = Repairer.of(info)
        before = repairer.or_refused(raw.get("previous_stance"), STANCES, "previous_stance")
        after = repairer.or_refused(raw.get("current_stance"), STANCES, "current_stance")
        if repairer.asked.stance and before != repairer.asked.stance:
            where = "stance_evolution.previous_stance"
            repairer.note(where, "contradiction", before, repairer.asked.stance)
            before = repairer.asked.stance
        said = spelled(raw.get("change_type"), CHANGES)
        if before in STANCES and after in STANCES:
            meant = change_between(before, after)
            # One may soften or harden and stay on the same step of the scale.
            within = meant == "maintain" and said in ("soften", "harden")
            if said != meant and not within:
                repairer.note("stance_evolution.change_type", "contradiction", said or "", meant)
                said = meant
        return {
            **raw,
            "previous_stance": before,
            "current_stance": after,
            "change_type": said,
        }


class Reflection(Minimal):
    """REFLECT: private, between rounds; feeds the same resident's next THINK only."""

    model_config = pin_schema(
        "Reflection", "REFLECT: private, between rounds; feeds the same resident's next THINK only."
    )

    most_compelling: Annotated[Compelling | None, WithJsonSchema(schema_of(Compelling))]
    most_disagreed: Annotated[Disagreed | None, WithJsonSchema(schema_of(Disagreed))]
    stance_evolution: StanceEvolution | SkipJsonSchema[None]
    next_round_strategy: Words

    @field_validator("most_compelling", "most_disagreed", mode="before")
    @classmethod
    def _of_another(cls, raw: object, info: ValidationInfo) -> object:
        repairer, name = Repairer.of(info), str(info.field_name)
        if not isinstance(raw, Mapping):
            if raw:
                repairer.note(name, "wrong_shape", raw)
            return None
        target = repairer.target(raw.get("agent_id"), f"{name}.agent_id")
        return {**raw, "agent_id": target} if target else None

    @field_validator("stance_evolution", mode="before")
    @classmethod
    def _given(cls, raw: object) -> object:
        return raw or ""  # null is refused: without a stance there is no answer


MINIMAL_THINKING = Thinking.minimal()
MINIMAL_SPEAKING = Speaking.minimal()
MINIMAL_REFLECTION = Reflection.minimal()


class Turn(Record):
    """What one resident thought (None where thinking is off) and said in one round."""

    model_config = pin_schema("Turn")

    thinking: Thinking | None
    speaking: Speaking

    @field_validator("thinking", "speaking", mode="before")
    @classmethod
    def _objects(cls, raw: object, info: ValidationInfo) -> object:
        if info.field_name == "thinking" and not Repairer.of(info).asked.think:
            return None
        return raw if isinstance(raw, Mapping) else {}

    @property
    def heard(self) -> bool:
        """Was there a statement that could be read (silence included)?"""
        return not self.speaking.parse_error

    @property
    def silent(self) -> bool:
        return self.heard and not self.speaking.full_statement

    @property
    def stance(self) -> str:
        """Where the resident stood as they went into the round, or nothing."""
        return (self.thinking.overall_stance if self.thinking else None) or ""


def thinking(asked: Asked) -> Json[Thinking]:
    """The answer type of THINK; without reactions in the first round."""
    return Json(Thinking, about=asked, without=("reactions",) * (asked.round == 1))


def speaking(asked: Asked) -> Json[Speaking]:
    """The answer type of SPEAK; without references in the first round."""
    return Json(Speaking, about=asked, without=("references",) * (asked.round == 1))


def takes_up(place: Sequence[str], reply: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Whom a turn answers, and how: (interaction type, id), as SPEAK is read. Empty for any other
    reply."""
    stage, me = place[0], place[-1]
    if not stage.startswith("round") or me not in names:
        return []
    asked = Asked(tuple(names), me, int(stage.removeprefix("round")), names=names)
    read = speaking(asked).parse(reply)
    if not isinstance(read, Parsed):
        return []
    return [(r.interaction_type, r.target_agent) for r in read.value.references]


def turn(asked: Asked) -> Json[Turn]:
    """One resident's part of a shared session's reply: `thinking` and `speaking`."""
    thoughts = {"thinking": thinking(asked).schema or {}} if asked.think else {}
    schema = object_schema("Turn", {**thoughts, "speaking": speaking(asked).schema or {}})
    return Json(Turn, about=asked, schema=schema)


def reflection(asked: Asked) -> Json[Reflection]:
    """The answer type of REFLECT."""
    return Json(Reflection, about=asked)


class Concern(Record):
    model_config = pin_schema("Concern", "A concern of one resident that nobody has answered.")

    resident: str
    concern: str


class Moderation(Minimal):
    """What the moderator is asked for."""

    model_config = pin_schema("Moderating", "What the moderator is asked for.")

    summary: str = Field(min_length=1)
    underrepresented_opinions: tuple[Words, ...]
    invited_residents: tuple[str, ...]
    overlooked_concerns: tuple[Concern, ...]
    spoken: str = Field(description="the words that the hall hears", min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _spoken(cls, raw: object) -> object:
        """A speech that was left out: the summary is read to the hall."""
        if isinstance(raw, Mapping) and not text(raw.get("spoken")):
            return {**raw, "spoken": text(raw.get("summary"))}
        return raw

    @field_validator("underrepresented_opinions", mode="before")
    @classmethod
    def _listed(cls, raw: object) -> object:
        return listed(raw)

    @field_validator("invited_residents", mode="before")
    @classmethod
    def _known(cls, raw: object, info: ValidationInfo) -> object:
        return Repairer.of(info).targets(listed(raw), "invited_residents")

    @field_validator("overlooked_concerns", mode="before")
    @classmethod
    def _of_known(cls, raw: object, info: ValidationInfo) -> object:
        loose = [c if isinstance(c, Mapping) else {"concern": text(c)} for c in listed(raw)]
        return _with_targets(loose, "overlooked_concerns", info)


class ReflectedConcern(Record):
    """A concern of one resident that the text takes up."""

    model_config = pin_schema(
        "ReflectedConcern", "A concern of one resident that the text takes up."
    )

    resident: str = Field(description="id of the resident")
    concern: Words


class Closing(Minimal):
    """What is asked for. Nobody says here who is vulnerable; that is worked out from the ids."""

    model_config = pin_schema(
        "Closing",
        "What is asked for. Nobody says here who is vulnerable; that is worked out from the ids.",
    )

    consensus: str = Field(min_length=1)
    concerns_reflected: tuple[ReflectedConcern, ...]

    @field_validator("consensus")
    @classmethod
    def _stripped(cls, said: str) -> str:
        return said.strip()

    @field_validator("concerns_reflected", mode="before")
    @classmethod
    def _of_known(cls, raw: object, info: ValidationInfo) -> object:
        concerns = [c for c in (raw if isinstance(raw, list) else []) if isinstance(c, Mapping)]
        kept = _with_targets(concerns, "concerns_reflected", info)
        return [c for i, c in enumerate(kept) if c not in kept[:i]]


def _with_targets(
    concerns: Sequence[Mapping[str, object]], where: str, info: ValidationInfo
) -> list[dict[str, object]]:
    """Concerns of residents that there are."""
    repairer = Repairer.of(info)
    named = [(repairer.target(text(c.get("resident")), f"{where}.resident"), c) for c in concerns]
    return [{"resident": who, "concern": c.get("concern")} for who, c in named if who]


MINIMAL_MODERATION = Moderation.minimal()
MINIMAL_CLOSING = Closing.minimal()


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


class PlannedItem(Record):
    model_config = pin_schema("PlannedItem", "One point to be decided.")

    proposal: str = Field(description="worded so that yes means to do it", min_length=1)
    reasoning: Words
    originating_residents: tuple[Words, ...] = Field(description="ids of those who raised it")

    @field_validator("originating_residents", mode="before")
    @classmethod
    def _listed(cls, raw: object) -> object:
        return listed(raw)


class Planned(Record):
    model_config = pin_schema("Planned", "What the planner is asked for.")

    items: tuple[PlannedItem, ...] = Field(min_length=1)

    @field_validator("items", mode="before")
    @classmethod
    def _objects(cls, raw: object) -> object:
        return [i for i in raw if isinstance(i, Mapping)] if isinstance(raw, list) else raw

    @field_validator("items")
    @classmethod
    def _distinct(
        cls, items: tuple[PlannedItem, ...], info: ValidationInfo
    ) -> tuple[PlannedItem, ...]:
        """Bad ids, repeated items and items beyond `most` are dropped and noted."""
        repairer = Repairer.of(info)
        kept: dict[str, PlannedItem] = {}
        for item in items:
            wording = " ".join(item.proposal.split())
            if wording.casefold() in kept:
                repairer.note("items", "repeated", item.proposal)
            elif len(kept) == repairer.asked.most:
                repairer.note("items", "too_many", item.proposal)
            else:
                where = "items.originating_residents"
                origin = tuple(sorted(repairer.targets(item.originating_residents, where)))
                if not origin:
                    repairer.note(where, "no_origin", f"V{len(kept) + 1}")
                known = {"proposal": wording, "originating_residents": origin}
                kept[wording.casefold()] = item.model_copy(update=known)
        return tuple(kept.values())


@dataclass(frozen=True, slots=True)
class Item:
    """One binary decision on the ballot and the residents whose words it goes back to."""

    id: str
    text: str
    reasoning: str
    origin: tuple[str, ...]


VOTES = ("yes", "no")
_YES_NO = {"true": "yes", "approve": "yes", "for": "yes", "in_favour": "yes", "false": "no"}
_YES_NO |= {"reject": "no", "against": "no"}


class Ballot(BaseModel):
    """One resident's votes (item id → yes or no) and reasons; an item left out was not voted on."""

    model_config = pin_schema("Ballot")

    votes: dict[str, str] = {}
    reasons: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _on_each(cls, raw: object, info: ValidationInfo) -> object:
        """An item without a clear yes or no is refused."""
        reading = Reading.of(info)
        if reading.about is None or not isinstance(raw, Mapping):
            return raw
        votes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        by_key = {str(k).strip().casefold(): v for k, v in raw.items()}
        for item in reading.about:
            entry = by_key.get(item.casefold())
            entry = entry if isinstance(entry, Mapping) else {"vote": entry}
            said = entry.get("vote")
            vote = yes_or_no(said)
            if vote is None:
                raise ValueError(f"{item} has no vote of yes or no. Vote on every item")
            if vote != said:
                reading.repaired(f"{item}.vote", "spelling", text(said), vote)
            votes[item], reasons[item] = vote, text(entry.get("reason"))
        return {"votes": votes, "reasons": reasons}


NO_BALLOT = Ballot()


def ballot(items: Sequence[Item]) -> Json[Ballot]:
    """A vote with a reason on each item."""
    one = {
        "title": "Vote",
        "type": "object",
        "properties": {
            "vote": {"type": "string", "enum": list(VOTES)},
            "reason": {"type": "string"},
        },
        "required": ["vote", "reason"],
    }
    refs = {i.id: {"$ref": "#/$defs/Vote"} for i in items}
    schema = {
        "title": "Ballot",
        "type": "object",
        "properties": refs,
        "required": list(refs),
        "$defs": {"Vote": one},
    }
    return Json(Ballot, about=tuple(refs), schema=schema)


def yes_or_no(raw: object) -> str | None:
    """`yes` or `no`, also when written as true, "Yes." or against; None for anything else."""
    folded = str(raw).strip().casefold().replace(" ", "_") if raw is not None else ""
    return spelled(_YES_NO.get(folded.strip("."), raw), VOTES)


class Satisfaction(Record):
    """One resident's satisfaction at one time; None where it could not be read."""

    model_config = pin_schema("Satisfaction")

    satisfaction: Annotated[int, Field(ge=1, le=10)] | None
    reason: Words

    @field_validator("satisfaction", mode="before")
    @classmethod
    def _score(cls, said: object, info: ValidationInfo) -> object:
        """A score out of range is asked for again, never moved to the nearest."""
        score = whole(said, 10)
        if score is None:
            raise ValueError("must be a whole number from 1 to 10")
        if not isinstance(said, int):
            Repairer.of(info).note("satisfaction", "spelling", said, str(score))
        return score


SATISFACTION = Json(
    Satisfaction,
    schema={
        "title": "Satisfaction",
        "type": "object",
        "properties": {
            "satisfaction": {"type": "integer", "minimum": 1, "maximum": 10},
            "reason": {"type": "string"},
        },
        "required": ["satisfaction", "reason"],
    },
)
UNKNOWN = Satisfaction.model_construct(satisfaction=None, reason="")
