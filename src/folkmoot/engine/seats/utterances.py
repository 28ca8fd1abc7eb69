"""Declare the tables of utterances and self-descriptions, which the engine writes."""

# A replay computes both tables again.

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from folkmoot.storage.rows import Row, column

UTTERANCES = "utterances"
SELF_DESCRIPTIONS = "self_descriptions"

# The keys and list positions that lead to one text of a JSON reply.
PlaceInReply: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class UtteranceInReply:
    """What a run records of one utterance in a reply, to find its place in the reply."""

    # The part of the utterance id after `#`. Empty if the id is the address of the reply.
    part: str
    speaker_id: str
    speaker_name: str
    text: str
    # How many utterances of the same speaker the reply holds before this one.
    earlier: int


class UtteranceRow(Row, table=UTTERANCES, key=("utterance_id",)):
    """One utterance of a speaker."""

    # A study type may add columns, such as group or condition. It then lists a subclass in its
    # `tables` and passes the values of the new columns to `Scope.say`.

    utterance_id: str = column("the utterance: its address, and which part of the reply it is")
    address: str = column("the reply that it comes from; empty if no reply: prescribed words")
    scope: str
    stage: str
    round: int | None
    speaker_id: str
    speaker_name: str
    speaker_role: str
    public: bool = column("whether the other participants of the conversation hear it")
    text: str
    missing: str | None
    finish: str | None


class SelfDescriptionRow(Row, table=SELF_DESCRIPTIONS, key=("seat",)):
    """The self-description of one human who answers as themselves."""

    seat: str = column("the seat, as `seats:` of the study file names it")
    speaker_id: str
    address: str = column("the reply that it comes from")
    text: str = column("the self-description, as prompts contain it in place of a persona")
