"""The table of control answers, and the names of the controls."""

from __future__ import annotations

from folkmoot.storage.rows import Row, column

NEGATIVE, FACT, RETEST = "negative", "fact", "retest"
NO_PERSONA, SAME_LENGTH, ORDER = "no_persona", "same_length", "order"
# The decision as in the run, the reference for all other controls. It needs no call.
AS_DESIGNED = "as_designed"
REPLACING = (NO_PERSONA, SAME_LENGTH, ORDER)


class ControlRow(Row, table="control_answers"):
    """One answer to a control question, or the reason for a missing one."""

    control: str = column(
        "negative: a question that no treatment can change; fact: one that the persona answers; "
        "retest: the decision itself, asked again in a fresh conversation; no_persona, "
        "same_length, order: the decision without a persona, with neutral texts of equal length in "
        "place of the treatment, with options and material reversed; as_designed: the decision as "
        "the run has it"
    )
    question: str = column("the id of the question, or the name of the decision")
    participant_id: str
    condition: str = column("the condition in which the decision was made")
    unit: str = column("what is independent of others: the group, session or hall, or the person")
    moment: str = column("first: the participant's first decision; final: the last of a condition")
    decision_address: str = column("the decision, in the journal of the run")
    value: str | None = column("the option chosen")
    number: float | None = column("the number given")
    expected: str | None = column(
        "what the persona states, or what was answered as designed; empty for negative controls"
    )
    missing: str | None = column(
        "why there is no answer; nothing_to_replace: the prompt holds no such text, so the "
        "decision is as designed; replied_to_it: the speaker has replied to the text before, and "
        "such a reply could not be asked again"
    )
    address: str = column("the control question, in the journal of the controls")
