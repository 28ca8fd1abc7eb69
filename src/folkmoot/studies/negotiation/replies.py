"""The structured replies that the mediator and the members are asked for, as JSON models.

Names and options stand in the schema as an enum, so that an endpoint that keeps to schemas keeps
to them; a reply that spells one otherwise is still read, and matched afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Spoken(_Reply):
    """One line of dialogue."""

    speaker: str = Field(description="System, or a member's name exactly as listed")
    text: str = Field(description="what this speaker says, one or two sentences")


class PlainSynthesis(_Reply):
    """A proposal by plain reasoning."""

    has_conflict: bool = Field(description="whether the stated preferences conflict")
    conflict_description: str = Field(description="what they disagree on, in one sentence")
    resolution_explanation: str = Field(description="the proposal to the group, in plain words")
    dialogue: list[Spoken] = Field(
        default_factory=list, description="the System's proposal, then each member's response"
    )


class GuidedSynthesis(PlainSynthesis):
    """A proposal under the canonical strategy."""

    resolution_strategy: str = Field("", description="the strategy_id that the proposal follows")


class BallotForm(_Reply):
    """One member's ballot."""

    top_choice: str = Field(description="the option you want most")
    acceptable: list[str] = Field(
        default_factory=list, description="other options that you could accept"
    )
    hard_no: list[str] = Field(
        default_factory=list, description="options that you reject; often none"
    )


class FeedbackReply(_Reply):
    """One round of feedback."""

    resolved: bool = Field(description="whether the member asked can accept the decision")
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


@lru_cache(maxsize=1024)
def for_speakers(model: type[BaseModel], names: tuple[str, ...]) -> type[BaseModel]:
    """The reply model with the speakers of one group in its schema."""
    spoken = create_model(
        "Spoken", __base__=Spoken, speaker=(_one_of(names, "who speaks"), Field())
    )
    dialogue = model.model_fields["dialogue"]
    made = create_model(
        model.__name__,
        __base__=model,
        dialogue=(
            list[spoken],
            Field(default_factory=list, description=dialogue.description),
        ),
    )
    return cast("type[BaseModel]", made)


@lru_cache(maxsize=4096)
def ballot_for(options: tuple[str, ...]) -> type[BallotForm]:
    """The ballot with the options on the table in its schema."""
    if not options:
        return BallotForm
    fields = BallotForm.model_fields
    one = _one_of(options, fields["top_choice"].description or "")
    several = _one_of(options, "an option on the table")
    made = create_model(
        "BallotForm",
        __base__=BallotForm,
        top_choice=(one, Field()),
        acceptable=(
            list[several],  # type: ignore[valid-type]
            Field(default_factory=list, description=fields["acceptable"].description),
        ),
        hard_no=(
            list[several],  # type: ignore[valid-type]
            Field(default_factory=list, description=fields["hard_no"].description),
        ),
    )
    return cast("type[BallotForm]", made)


def _one_of(values: Sequence[str], description: str) -> Any:
    schema = {"type": "string", "enum": list(values), "description": description}
    return Annotated[str, WithJsonSchema(schema)]
