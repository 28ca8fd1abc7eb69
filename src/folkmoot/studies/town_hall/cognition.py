"""What residents think, say and reflect: the typed answers, with the fields of the source.

The types are strict. What a model may write more loosely (ids, levels, spellings) is mended by
`references.py` before it gets here; the JSON schemas made from these types go with each request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

Stance = Literal["strong_support", "support", "neutral", "oppose", "strong_oppose"]
Feeling = Literal["worried", "relieved", "angry", "hopeful", "indifferent", "empathetic"]
InteractionType = Literal["agree", "disagree", "partial_agree", "cite", "question"]
ChangeType = Literal["maintain", "soften", "harden", "flip"]

STANCES: tuple[str, ...] = get_args(Stance)
FEELINGS: tuple[str, ...] = get_args(Feeling)
INTERACTIONS: tuple[str, ...] = get_args(InteractionType)
CHANGES: tuple[str, ...] = get_args(ChangeType)

# Asked for as a plain enumeration or number; None only when what came back was dropped.
OptionalFeeling = Annotated[
    Feeling | None, WithJsonSchema({"type": "string", "enum": list(FEELINGS)})
]
AgreeLevel = Annotated[int | None, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 5})]
OptionalBool = Annotated[bool | None, WithJsonSchema({"type": "boolean"})]


class Record(BaseModel):
    """Base of all answers: unknown fields are ignored, values never change."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        """The fields under the source's names; `_parse_error` only where it is true."""
        data = self.model_dump(mode="json", by_alias=True)
        if data.pop("_parse_error", False):
            data["_parse_error"] = True
        return data


class Minimal(Record):
    """An answer that may stand for one that could not be read."""

    parse_error: SkipJsonSchema[bool] = Field(False, alias="_parse_error")


class Reaction(Record):
    """A private reaction to what another resident said."""

    target_agent: str = Field(description="id of the resident whose opinion this is about")
    target_summary: str = Field(description="that opinion in a few words")
    my_feeling: OptionalFeeling
    agree_level: AgreeLevel
    reason: str
    want_to_respond: OptionalBool


class Thinking(Minimal):
    """THINK: private, never shown to anyone else."""

    reactions: tuple[Reaction, ...] = Field(description="one per opinion heard")
    overall_stance: Stance | SkipJsonSchema[None]
    key_concerns: tuple[str, ...]
    strategic_notes: str


class Reference(Record):
    """A public response to another resident."""

    target_agent: str = Field(description="id of the resident who is answered")
    interaction_type: InteractionType
    content: str


class Question(Record):
    """A public question: to a resident, `all`, `moderator` or `planner`."""

    target: str
    content: str


class Speaking(Minimal):
    """SPEAK: what the whole hall hears. An empty statement is silence."""

    references: tuple[Reference, ...]
    new_points: tuple[str, ...] = Field(description="points of one's own, not in answer to anyone")
    questions: tuple[Question, ...]
    full_statement: str = Field(description="the statement as it is spoken; empty to stay silent")


class Compelling(Record):
    """The opinion that convinced most."""

    agent_id: str
    opinion_summary: str
    why_compelling: str


class Disagreed(Record):
    """The opinion that one disagrees with most."""

    agent_id: str
    opinion_summary: str
    why_disagree: str


class StanceEvolution(Record):
    """How one's stance moved in a round."""

    previous_stance: Stance
    current_stance: Stance
    change_type: ChangeType
    change_reason: str


class Reflection(Minimal):
    """REFLECT: private, between rounds; feeds the same resident's next THINK only."""

    most_compelling: Annotated[Compelling | None, WithJsonSchema(Compelling.model_json_schema())]
    most_disagreed: Annotated[Disagreed | None, WithJsonSchema(Disagreed.model_json_schema())]
    stance_evolution: StanceEvolution | SkipJsonSchema[None]
    next_round_strategy: str


MINIMAL_THINKING = Thinking(
    reactions=(), overall_stance=None, key_concerns=(), strategic_notes="", parse_error=True
)
MINIMAL_SPEAKING = Speaking(
    references=(), new_points=(), questions=(), full_statement="", parse_error=True
)
MINIMAL_REFLECTION = Reflection(
    most_compelling=None,
    most_disagreed=None,
    stance_evolution=None,
    next_round_strategy="",
    parse_error=True,
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
