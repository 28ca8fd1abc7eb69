"""Answer types of a resident's thoughts, statement and reflection."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from folkmoot.conversation.answer_types import (
    DECLINED,
    WAYS_OUT,
    Json,
    ValidationContext,
    parse_way_out,
    pin_schema,
)
from folkmoot.conversation.json_schemas import json_schema, object_schema
from folkmoot.conversation.lenient_fields import (
    UNREADABLE,
    is_declined,
    read_switch,
    require_text,
)
from folkmoot.studies.town_hall.answers.for_people import FIELDS_FOR_PEOPLE
from folkmoot.studies.town_hall.answers.options import (
    CHANGES,
    CLOSED_FIELDS,
    FEELINGS,
    INTERACTIONS,
    STANCES,
    ChangeType,
    Feeling,
    InteractionType,
    Stance,
)
from folkmoot.studies.town_hall.answers.records import (
    MISSING_VALUE,
    TEMPLATE_SENTENCE,
    UNKNOWN_VALUE,
    Minimal,
    Record,
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

# Addressees of a question other than a single resident.
GROUP_TARGETS = ("all", "moderator", "planner")


def _parse_feeling(raw: object, info: ValidationInfo) -> str | None:
    return Repairer.from_info(info).choice(raw, FEELINGS, "reactions.my_feeling")


def _parse_level(raw: object, info: ValidationInfo) -> int | None:
    # A number out of range is not moved to the nearest bound.
    repairer, value, field = (
        Repairer.from_info(info),
        parse_whole_number(raw, 5),
        "reactions.agree_level",
    )
    if value is None:
        repairer.note(field, "unknown_value" if raw else "missing_value", raw)
    elif not 1 <= value <= 5:
        repairer.note(field, "out_of_range", raw)
        return None
    elif not isinstance(raw, int):
        repairer.note(field, "spelling", raw, str(value))
    return value


def _parse_truth(raw: object, info: ValidationInfo) -> bool | None:
    if isinstance(raw, bool):
        return raw
    parsed = read_switch(raw)
    kind = "spelling" if parsed is not None else "unknown_value" if raw else "missing_value"
    replacement = "" if parsed is None else str(parsed)
    Repairer.from_info(info).note("reactions.want_to_respond", kind, raw, replacement)
    return parsed


# A field of a reaction is None if its value was dropped or was a way out. The schemas are given by
# hand: only the level may be null there, which is its way out.
OptionalFeeling = Annotated[
    Feeling | None,
    WithJsonSchema({"type": "string", "enum": list(FEELINGS)}),
    BeforeValidator(_parse_feeling),
]
AgreeLevel = Annotated[
    int | None,
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 5}, {"type": "null"}]}),
    BeforeValidator(_parse_level),
]
OptionalBool = Annotated[
    bool | None, WithJsonSchema({"type": "boolean"}), BeforeValidator(_parse_truth)
]


class Reference(Record):
    """A public response of one resident to another, as part of a statement."""

    model_config = pin_schema("Reference", "A public response to another resident.")

    CLOSED: ClassVar = {"interaction_type": None}

    target_agent: str = Field(description="id of the resident who is answered")
    interaction_type: InteractionType | SkipJsonSchema[None] = Field(
        description="how that resident is answered"
    )
    content: Words = Field(
        description="the words of the statement in which that resident is answered"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _keep_untyped_reference(
        cls, raw: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        # A resident referred to another one, even if the type of the reference cannot be read.
        if not isinstance(raw, Mapping) or not ValidationContext.from_info(info).context:
            return handler(raw)
        stated = raw.get("interaction_type")
        # A way out is handled by the base class as any other missing value.
        if parse_way_out(stated, WAYS_OUT) is not None:
            return handler(raw)
        kind = Repairer.from_info(info).choice(stated, INTERACTIONS, "references.interaction_type")
        reference = handler({**raw, "interaction_type": kind})
        missing_reason = {"interaction_type": UNKNOWN_VALUE if stated else MISSING_VALUE}
        return (
            reference
            if kind
            else reference.model_copy(update={"missing": {**reference.missing, **missing_reason}})
        )


class Reaction(Record):
    """A resident's private reaction to an opinion of another resident."""

    model_config = pin_schema("Reaction", "A private reaction to what another resident said.")

    CLOSED: ClassVar = {"my_feeling": FEELINGS[0], "agree_level": 1}
    MAY_BE_NULL: ClassVar = ("agree_level",)

    target_agent: str = Field(description="id of the resident whose opinion this is about")
    target_summary: Words = Field(description="that opinion in a few words")
    my_feeling: OptionalFeeling = Field(description="the feeling about that opinion")
    agree_level: AgreeLevel = Field(
        description="agreement with it, a whole number from 1 (not at all) to 5 (fully), or null "
        "if it cannot be said"
    )
    reason: Words = Field(description="the reason for this feeling")
    want_to_respond: OptionalBool = Field(
        description="true or false: whether to answer that resident in public"
    )


T = TypeVar("T", Reaction, Reference)


def _keep_after_first_round(entries: list[T], name: str, repairer: Repairer) -> list[T]:
    if repairer.asked.round > 1:
        return entries
    # A model may refer to statements that have not been made.
    for entry in entries:
        repairer.note(name, "nothing_said_yet", entry.target_agent)
    return []


class ResidentAnswer(Minimal):
    """Base class of a resident's thoughts, statement and reflection."""

    # The paths of fields whose options prompts list in an order that is drawn for the set.
    LISTED_FIELDS: ClassVar[tuple[str, ...]] = ()
    # The fields about other residents, whom nobody has heard in round 1.
    NOT_IN_ROUND_1: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def answer_type(cls, asked: AskContext) -> Json[Self]:
        """Return the answer type for a question to one resident."""
        options = tuple(
            (path, getattr(asked.options, CLOSED_FIELDS[path.rpartition(".")[2]]))
            for path in cls.LISTED_FIELDS
        )
        excluded_fields = cls.NOT_IN_ROUND_1 if asked.round == 1 else ()
        return Json(
            cls,
            validation_context=asked,
            schema=asked_schema(cls, options, excluded_fields),
            may_decline=True,
            fields_for_people=FIELDS_FOR_PEOPLE,
        )


class Thinking(ResidentAnswer):
    """A resident's private thoughts before a statement (THINK). No other resident sees them."""

    model_config = pin_schema("Thinking", "THINK: private, never shown to anyone else.")

    CLOSED: ClassVar = {"overall_stance": STANCES[0]}
    MAY_LACK: ClassVar = ("overall_stance",)
    LISTED_FIELDS: ClassVar = ("overall_stance", "reactions.my_feeling")
    NOT_IN_ROUND_1: ClassVar = ("reactions",)

    reactions: tuple[Reaction, ...] = Field(
        description="one entry for each other resident who was heard"
    )
    overall_stance: Stance | SkipJsonSchema[None] = Field(description="the stance on the question")
    key_concerns: Texts = Field(description="the main concerns about the question")
    strategic_notes: Words = Field(
        description="what the next statement should achieve, or what to keep private"
    )

    @field_validator("reactions", mode="before")
    @classmethod
    def _keep_entries_about_others(cls, raw: object, info: ValidationInfo) -> object:
        repairer = Repairer.from_info(info)
        kept: dict[str, Reaction] = {}
        for entry in repairer.parse_entries(raw, "reactions"):
            target = repairer.target(entry.get("target_agent"), "reactions.target_agent")
            # Only the first reaction to a resident counts, so that each pair of residents has one.
            if target in kept:
                repairer.note("reactions", "repeated", target)
            elif target:
                entry_with_target = {**entry, "target_agent": target}
                kept[target] = Reaction.model_validate(entry_with_target, context=repairer.reading)
        return _keep_after_first_round(list(kept.values()), "reactions", repairer)

    @field_validator("overall_stance", mode="before")
    @classmethod
    def _normalise_stance(cls, raw: object, info: ValidationInfo) -> object:
        return Repairer.from_info(info).stance_or_reask(raw, "overall_stance")


class Question(Record):
    """A question in a public statement. `target` is a resident, `all`, `moderator` or `planner`."""

    model_config = pin_schema(
        "Question", "A public question: to a resident, `all`, `moderator` or `planner`."
    )

    target: str = Field(description="to whom the question is put")
    content: Words = Field(description="the question as the statement asks it")


class Speaking(ResidentAnswer):
    """The public statement of a resident (SPEAK). It is empty if the resident stays silent."""

    model_config = pin_schema(
        "Speaking", "SPEAK: what the whole hall hears. An empty statement is silence."
    )

    LISTED_FIELDS: ClassVar = ("references.interaction_type",)
    NOT_IN_ROUND_1: ClassVar = ("references",)

    references: tuple[Reference, ...] = Field(
        description="one entry for each resident who is answered, empty if there is none"
    )
    new_points: Texts = Field(description="points that answer no other resident")
    questions: tuple[Question, ...] = Field(
        description="one entry for each question that the statement asks"
    )
    full_statement: str = Field(
        description="the statement as it is spoken, in the resident's voice; empty to stay silent"
    )

    @field_validator("references", mode="before")
    @classmethod
    def _keep_entries_about_others(cls, raw: object, info: ValidationInfo) -> object:
        repairer = Repairer.from_info(info)
        # Several references to one resident are kept. The study file says which one counts.
        kept = []
        for entry in repairer.parse_entries(raw, "references"):
            target = repairer.target(entry.get("target_agent"), "references.target_agent")
            if target:
                entry_with_target = {**entry, "target_agent": target}
                kept.append(Reference.model_validate(entry_with_target, context=repairer.reading))
        return _keep_after_first_round(kept, "references", repairer)

    @field_validator("questions", mode="before")
    @classmethod
    def _keep_known_targets(cls, raw: object, info: ValidationInfo) -> object:
        repairer = Repairer.from_info(info)
        kept = []
        for entry in repairer.parse_entries(raw, "questions"):
            stated = entry.get("target")
            target = match_option(stated, GROUP_TARGETS) or repairer.target(
                stated, "questions.target"
            )
            if target:
                kept.append({**entry, "target": target})
        return kept

    @field_validator("full_statement")
    @classmethod
    def _strip_statement(cls, text: str) -> str:
        # `N/A` says nothing.
        with suppress(ValueError):
            return require_text(text.strip())
        return ""

    def _lists_to_state(self, asked: AskContext) -> tuple[str, ...]:
        # Round 1 asks for no references, and silence has none.
        return ("references",) if asked.round > 1 and self.full_statement else ()

    @property
    def is_silent(self) -> bool:
        """True if the resident chose to say nothing."""
        is_unread = self.unanswered or "full_statement" in self.missing
        return not is_unread and not self.full_statement


class Compelling(Record):
    model_config = pin_schema("Compelling", "The opinion that convinced most.")

    agent_id: str = Field(description="id of the resident whose opinion it is")
    opinion_summary: Words = Field(description="that opinion in a few words")
    why_compelling: Words = Field(description="why that opinion convinced most")


class Disagreed(Record):
    model_config = pin_schema("Disagreed", "The opinion that one disagrees with most.")

    agent_id: str = Field(description="id of the resident whose opinion it is")
    opinion_summary: Words = Field(description="that opinion in a few words")
    why_disagree: Words = Field(description="the reason for the disagreement")


class StanceEvolution(Record):
    """A resident's stances before and after a round, and the change between them."""

    model_config = pin_schema("StanceEvolution", "How one's stance moved in a round.")

    previous_stance: Stance | SkipJsonSchema[None] = Field(
        description="the stance as the round began"
    )
    current_stance: Stance | SkipJsonSchema[None] = Field(description="the stance after the round")
    change_type: ChangeType | SkipJsonSchema[None] = Field(description="how the stance moved")
    change_reason: Words = Field(description="the reason for the stance after the round")

    @model_validator(mode="before")
    @classmethod
    def _keep_recorded_stance(cls, raw: object, info: ValidationInfo) -> object:
        # The recorded stance replaces the stated previous one. The change follows from both
        # stances.
        if not isinstance(raw, Mapping):
            return raw
        repairer = Repairer.from_info(info)
        stance_fields = ("previous_stance", "current_stance", "change_type")
        ways_out = {name: parse_way_out(raw.get(name), WAYS_OUT) for name in stance_fields}
        missing = {
            name: way_out.reason for name, way_out in ways_out.items() if way_out is not None
        }
        repeated = {path.rpartition(".")[2] for path in repairer.reading.echoed}
        # Echoed fields have been removed from the reply, so only their paths tell of them.
        missing |= {
            name: TEMPLATE_SENTENCE
            for name in stance_fields
            if name in repeated and name not in raw
        }
        unread = {path.rpartition(".")[2] for path in repairer.reading.unread_fields}
        missing |= {
            name: UNKNOWN_VALUE for name in stance_fields if name in unread and not raw.get(name)
        }
        recorded_stance = repairer.asked.stance
        if repairer.reading.salvage and any(raw.values()):
            # The rest of the last reply counts without the stance that it lacks.
            lacking = [
                name for name in stance_fields[:2] if raw.get(name) is None and name not in missing
            ]
            missing |= dict.fromkeys(lacking, MISSING_VALUE)
            if "current_stance" in lacking:
                repairer.note("stance_evolution.current_stance", MISSING_VALUE, None)
        before, after = (
            None if name in missing else repairer.stance_or_reask(raw.get(name), name)
            for name in stance_fields[:2]
        )
        # A model may misremember its earlier stance. The recorded stance is what it answered then.
        if recorded_stance and before != recorded_stance:
            field = "stance_evolution.previous_stance"
            repairer.note(field, "contradiction", before, recorded_stance)
            before = recorded_stance
            missing.pop("previous_stance", None)
        change = match_option(raw.get("change_type"), CHANGES)
        if before in STANCES and after in STANCES:
            computed_change = change_between(str(before), str(after))
            # A resident may soften or harden and stay on the same step of the scale.
            is_compatible = computed_change == "maintain" and change in ("soften", "harden")
            if change != computed_change and not is_compatible:
                repairer.note(
                    "stance_evolution.change_type", "contradiction", change or "", computed_change
                )
                change = computed_change
            missing.pop("change_type", None)
        elif before is None or after is None:
            # A change from or to an unknown stance is unknown.
            change = None
            missing["change_type"] = missing.get("current_stance", MISSING_VALUE)
        return {
            **raw,
            "previous_stance": before,
            "current_stance": after,
            "change_type": change,
            "missing": missing,
        }


class Reflection(ResidentAnswer):
    """The private reflection of a resident between two rounds (REFLECT).

    Only one later prompt shows the reflection: the same resident's next THINK prompt.
    """

    model_config = pin_schema(
        "Reflection", "REFLECT: private, between rounds; feeds the same resident's next THINK only."
    )

    MAY_LACK: ClassVar = ("stance_evolution",)
    LISTED_FIELDS: ClassVar = (
        "stance_evolution.previous_stance",
        "stance_evolution.current_stance",
        "stance_evolution.change_type",
    )

    most_compelling: Annotated[Compelling | None, WithJsonSchema(json_schema(Compelling))] = Field(
        description="the opinion that convinced most, or null if none did"
    )
    most_disagreed: Annotated[Disagreed | None, WithJsonSchema(json_schema(Disagreed))] = Field(
        description="the opinion to disagree with most, or null if there is none"
    )
    stance_evolution: StanceEvolution | SkipJsonSchema[None] = Field(
        description="the stance before and after the round"
    )
    next_round_strategy: Words = Field(description="what to bring to the next round")

    @field_validator("most_compelling", "most_disagreed", mode="before")
    @classmethod
    def _drop_own_opinion(cls, raw: object, info: ValidationInfo) -> object:
        repairer, name = Repairer.from_info(info), str(info.field_name)
        if not isinstance(raw, Mapping):
            if raw:
                repairer.note(name, "wrong_shape", raw)
            return None
        # Without a known resident the opinion cannot be counted for anyone, so it is dropped.
        target = repairer.target(raw.get("agent_id"), f"{name}.agent_id")
        return {**raw, "agent_id": target} if target else None

    @field_validator("stance_evolution", mode="before")
    @classmethod
    def _replace_missing(cls, raw: object) -> object:
        # The type refuses an empty text, so the question is re-asked.
        return raw or ""

    @classmethod
    def _placeholder_value(cls, name: str) -> object:
        if name != "stance_evolution":
            return super()._placeholder_value(name)
        # Skip validation, because an answer without a stance is re-asked.
        return StanceEvolution.model_construct(
            previous_stance=None,
            current_stance=None,
            change_type=None,
            change_reason="",
            missing={},
        )


# Replacements for answers that could not be read.
MINIMAL_THINKING = Thinking.minimal_answer()
MINIMAL_SPEAKING = Speaking.minimal_answer()
NO_THINKING, NO_SPEAKING = Thinking.replacements(), Speaking.replacements()


class Turn(Record):
    """One resident's thoughts and statement in one round.

    `thinking` is None if the level has no THINK stage.
    """

    model_config = pin_schema("Turn")

    # A reply must not leave thoughts out, so null is no reading of unreadable ones.
    thinking: Thinking | SkipJsonSchema[None]
    speaking: Speaking

    @model_validator(mode="wrap")
    @classmethod
    def _expand_declined_turn(cls, raw: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(raw, Mapping) and is_declined(raw):
            raw = {part: {DECLINED: True} for part in ("thinking", "speaking")}
        return handler(raw)

    @field_validator("thinking", "speaking", mode="before")
    @classmethod
    def _require_objects(cls, raw: object, info: ValidationInfo) -> object:
        # A level without THINK must not keep thoughts that a model adds.
        if info.field_name == "thinking" and not Repairer.from_info(info).asked.think:
            return None
        if isinstance(raw, Mapping) and is_declined(raw):
            return (Thinking if info.field_name == "thinking" else Speaking).refused_answer()
        # An empty object lets each part find its own missing fields.
        return raw if isinstance(raw, Mapping) else {}

    @field_validator("thinking", "speaking", mode="wrap")
    @classmethod
    def _keep_readable_part(
        cls, raw: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> object:
        # As if both had been asked for in two calls: an unreadable statement leaves the thoughts,
        # and unreadable thoughts leave the statement. A statement without its text is unreadable as
        # a whole, because references that no resident heard would count as made.
        try:
            return handler(raw)
        except ValidationError:
            reading = ValidationContext.from_info(info)
            thinking = info.data.get("thinking")
            is_rest_readable = info.field_name == "thinking" or (
                thinking is not None and not thinking.parse_error
            )
            if not (reading.salvage and is_rest_readable):
                raise
            reading.add_repair(str(info.field_name), UNREADABLE, raw)
            return MINIMAL_THINKING if info.field_name == "thinking" else MINIMAL_SPEAKING

    @property
    def has_statement(self) -> bool:
        """True if the statement could be read."""
        # An empty statement counts as a statement.
        return bool(self.speaking.full_statement) or self.is_silent

    @property
    def has_known_references(self) -> bool:
        """True if the statement's references to other residents could be read."""
        return not self.speaking.unanswered and "references" not in self.speaking.missing

    @property
    def is_silent(self) -> bool:
        return self.speaking.is_silent

    @property
    def stance(self) -> str:
        """The stance in the resident's thoughts, or "" if the thoughts contain no stance."""
        return (self.thinking.overall_stance if self.thinking else None) or ""


def turn_answer_type(asked: AskContext) -> Json[Turn]:
    """Return the answer type of one turn in a reply for several residents."""
    schemas = {
        "speaking": {**(Speaking.answer_type(asked).schema or {}), "description": "said in public"}
    }
    if asked.think:
        thinking_schema = {
            **(Thinking.answer_type(asked).schema or {}),
            "description": "thought in private",
        }
        schemas = {"thinking": thinking_schema, **schemas}
    schema = object_schema("Turn", schemas)
    return Json(Turn, validation_context=asked, schema=schema)


def change_between(before: str, after: str) -> str:
    """Return the change between two stances: maintain, soften, harden or flip."""
    # Map the scale to 2 (strong support) … −2 (strong opposition), so that the sign is the side.
    before_value, after_value = (2 - STANCES.index(text) for text in (before, after))
    if before_value == after_value:
        return "maintain"
    if before_value * after_value < 0:
        return "flip"
    return "harden" if abs(after_value) > abs(before_value) else "soften"
