"""The tables that the engine writes of what was said.

`utterances` has one row for each thing that a speaker said, in public or in private, with the
address of the reply. `self_descriptions` has what people say of themselves.
Both are streamed like other tables, and a replay computes them again.
"""

from __future__ import annotations

from folkmoot.storage.rows import Row, column

UTTERANCES = "utterances"
SELF_DESCRIPTIONS = "self_descriptions"


class UtteranceRow(Row, table=UTTERANCES, key=("utterance_id",)):
    """One thing that a speaker said. A study type with columns of its own (which group, which
    condition) lists a subclass in its `tables` and gives these columns to `Scope.say`."""

    utterance_id: str = column("the utterance: its address, and which part of the reply it is")
    address: str = column("the reply that it comes from; empty if no reply: prescribed words")
    scope: str
    stage: str
    round: int | None
    speaker_id: str
    speaker_name: str
    speaker_role: str
    public: bool = column("whether the others in the conversation hear it")
    text: str
    missing: str | None
    finish: str | None


class SelfDescriptionRow(Row, table=SELF_DESCRIPTIONS, key=("seat",)):
    """What one person says of themselves, who speaks for themselves in a seat."""

    seat: str = column("the seat, as `seats:` of the study file names it")
    speaker_id: str
    address: str = column("the reply that it comes from")
    text: str = column("the self-description, as it stands in prompts in place of a persona")
