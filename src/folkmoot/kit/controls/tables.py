"""The table of answers to control questions, its place in a run, and the names of the controls."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.seats.withdrawal import select_since_withdrawal
from folkmoot.storage.amendments import Amendment, read_amendments
from folkmoot.storage.findings import TableCell
from folkmoot.storage.rows import Row, column
from folkmoot.storage.run_folder import CONTROLS, RunFolder

# The kind of the amendment that names the controls. It is data of existing runs.
AMENDMENT = "controls"

NEGATIVE, FACT, RETEST = "negative", "fact", "retest"
NO_PERSONA, SAME_LENGTH, ORDER = "no_persona", "same_length", "order"
# The decision as in the run, the reference for all other controls. It needs no call.
AS_DESIGNED = "as_designed"
REPLACING = (NO_PERSONA, SAME_LENGTH, ORDER)

# The names of the controls in findings and messages.
NAMES = {
    AS_DESIGNED: "as designed",
    RETEST: "asked again",
    NO_PERSONA: "no persona",
    SAME_LENGTH: "neutral texts of equal length",
    ORDER: "order reversed",
}
# The column of the independent units, which the findings add to the table of control answers.
INDEPENDENT_UNIT = "independent_unit"
# The columns that tell apart decisions and control answers. A form has a row for each closed field.
_DECISION_KEYS = ["control", "moment", "condition", "unit", "participant_id", "decision_address"]
ANSWER_KEYS = [*_DECISION_KEYS, "question"]
# The value of the column `attribute` for the persona as a whole.
WHOLE_PERSONA = "the whole persona"


class PersonaVarianceRow(Row, table="persona_variance", key=("decision", "attribute")):
    """The share of a decision's variance that the persona, or one attribute, explains."""

    decision: str = column("the first decision of the participants, which was asked again")
    attribute: str = column(
        f"an attribute that the personas state, or “{WHOLE_PERSONA}”: whatever differs between them"
    )
    measure: str = column(
        "ICC(1): the variance between participants as share of all variance of a decision and its "
        "retest; ε²: the share of the variance of the decision that goes with the attribute, "
        "adjusted for the number of its values (about 0 without an effect, so it can be negative)"
    )
    variance_share: float | None = column("the share, at most 1")
    low: float | None = column("lower bound of its 95 % interval, by jackknife over the units")
    high: float | None = column("upper bound")
    participants: int = column("participants behind the share")
    units: int = column("independent units among them")
    missing: str | None = column(
        "why there is no share; too_few: fewer than 30 participants; too_many_values: a name or "
        "free text; one_value: fewer than two values with five participants each; no_variance: all "
        "answers are equal"
    )


class ControlRow(Row, table="control_answers"):
    """One answer to a control question, or the reason why the answer is missing."""

    control: str = column(
        "negative: a question that no treatment can change; fact: one that the persona answers; "
        "retest: the decision itself, asked again in a fresh conversation; no_persona, "
        "same_length, order: the decision without a persona, with neutral texts of equal length in "
        "place of the treatment, with options and material reversed; as_designed: the decision as "
        "the run has it"
    )
    question: str = column("the id of the question, or the name of the decision")
    field: str | None = column(
        "the field of a form with several closed fields; each field has a row. In a list of "
        "options, each option has a row: true if the list holds it"
    )
    participant_id: str = column("the participant, or the leading role, such as a mediator")
    speaker_id: str = column(
        "who was asked; it differs from the participant if one reply speaks for several"
    )
    role: str = column("the role of the speaker: participant, moderator, …")
    condition: str = column("the condition in which the decision was made")
    unit: str = column(
        "what is independent of others: the group, session or hall, or the person. In a workbook "
        "with several experiments it is the session in one of them, EXPERIMENT/SESSION. All "
        "experiments have the same participants in the same sessions, so figures count a session "
        "once"
    )
    moment: str = column(
        "first: the participant's first decision; final: the last of a condition. A decision that "
        "is both is the first one in the retest alone. Decisions apart from the treatment are "
        "neither; alone: after an interview without the group; delayed: a vote at the end, without "
        "the texts of the final one"
    )
    decision_address: str = column("the decision, in the journal of the run")
    value: str | None = column("the option chosen")
    number: float | None = column("the number given")
    expected: str | None = column(
        "what the persona states, or what was answered as designed; empty for negative controls"
    )
    missing: str | None = column(
        "why there is no answer; nothing_to_replace: the prompt holds no such text, so the "
        "decision is as designed; replied_to_it: the speaker has replied to the text before, and "
        "such a reply could not be asked again; computed_from_it: the protocol has computed a "
        "value in the prompt from such a reply of another session; humans_took_part, "
        "study_changed: the session could not be run again for this reason; "
        "not_reached: the session was run again, and the participant did not come to the decision; "
        "open_answer: the decision is no choice, number or form with a closed field, so it "
        "could not be asked again; given_by_researcher: the researcher changed this answer in the "
        "fork, so it is not asked again; reply_lacks_it: a new reply before the decision lacks "
        "what a later prompt quotes from it"
    )
    address: str = column("the control question, in the journal of the controls")


def with_independent_units(
    table: pl.DataFrame, independent_unit: Callable[[str], str]
) -> pl.DataFrame:
    """Return a table of control answers with the column `independent_unit`.

    `independent_unit`: returns the independent unit of a unit, see `DecisionDesign`.
    """
    # The column `unit` says in which conversation a participant answered.
    units = [independent_unit(unit) for unit in table["unit"].to_list()]
    return table.with_columns(pl.Series(INDEPENDENT_UNIT, units, pl.String))


def list_units(rows: pl.DataFrame) -> list[str]:
    """Return the independent unit of each row of a table of control answers."""
    # Without the column, each unit is independent.
    return rows[INDEPENDENT_UNIT if INDEPENDENT_UNIT in rows.columns else "unit"].to_list()


def closed_value(value: object) -> str | float:
    """Return an answer as a number if it is a finite number, otherwise as text."""
    # An option may be called "Nan" or "Infinity", which Python reads as numbers.
    text = str(value)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def count_decisions(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each decision.

    A decision that is answered with a form has one row for each closed field.
    """
    return rows.unique(_DECISION_KEYS, keep="first", maintain_order=True)


def expected_answers(rows: pl.DataFrame) -> list[str | float]:
    """Return the answers that participants gave in the original run."""
    return [closed_value(value) for value in rows["expected"].to_list()]


def given_answers(rows: pl.DataFrame) -> list[str | float]:
    """Return the answers in a table of answers to control questions, as numbers or texts."""
    return [
        closed_value(value) if value is not None else float(number)
        for value, number in rows.select("value", "number").iter_rows()
    ]


def name_role(role: str) -> str:
    """Return a leading role as the beginning of a label, such as "mediator, ".

    Returns "" for participants.
    """
    return "" if role == PARTICIPANT_ROLE else f"{role}, "


def unit_name(rows: pl.DataFrame) -> str:
    """Return the name of the unit of analysis, as in the field `unit` of a finding."""
    alone = list_units(rows) == rows["participant_id"].to_list()
    return "participant" if alone else "conversation"


def without_single_role(rows: list[dict[str, TableCell]]) -> list[dict[str, TableCell]]:
    """Return the rows of a finding, without the column `role` if all rows are on participants."""
    if all(row["role"] == PARTICIPANT_ROLE for row in rows):
        return [{key: cell for key, cell in row.items() if key != "role"} for row in rows]
    return rows


def finished_controls(run: RunFolder) -> Amendment | None:
    """Return the amendment that records a run's finished controls, or None.

    Raises StorageError if the amendments are unreadable.
    """
    # A withdrawal discards the controls, because their conversations quote the human. After a
    # withdrawal, the controls can be asked again.
    made = select_since_withdrawal(read_amendments(run.path), AMENDMENT)
    return made[-1] if made else None


def open_controls(run: RunFolder) -> RunFolder | None:
    """Return the folder of a run's finished controls, or None if there are none.

    Returns None also if the folder was deleted.
    """
    return None if finished_controls(run) is None else run.open_subfolder(CONTROLS)


def are_controls_missing(run: RunFolder) -> bool:
    """Return whether the folder of a run's finished controls was deleted."""
    return finished_controls(run) is not None and open_controls(run) is None
