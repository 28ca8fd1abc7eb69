"""The table of control answers."""

from __future__ import annotations

from folkmoot.storage.rows import Row, column

NEGATIVE, FACT, RETEST = "negative", "fact", "retest"


class ControlRow(Row, table="control_answers"):
    """One answer to a control question."""

    control: str = column(
        "negative: a question that no treatment can change; fact: one that the persona answers; "
        "retest: the decision itself, asked again in a fresh conversation"
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
        "what the persona states, or what was answered the first time; empty for negative controls"
    )
    missing: str | None = column("why there is no answer")
    address: str = column("the control question, in the journal of the controls")
