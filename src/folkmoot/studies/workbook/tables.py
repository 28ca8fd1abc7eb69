"""The tables of a run: texts, assignment, answers, utterances and computed values."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl

from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.seats.utterances import UtteranceRow
from folkmoot.engine.session.session import Scope
from folkmoot.kit.findings import split_address
from folkmoot.storage.rows import AnswerRange, Row, column
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook.answers import (
    GivenAnswer,
    option_position,
    option_texts,
    scalar_text,
)
from folkmoot.studies.workbook.config import LabelledPart, Workbook, WorkbookConfig
from folkmoot.studies.workbook.language.expressions import variables_behind
from folkmoot.studies.workbook.participants import Experiment, SessionPlan, profile_of
from folkmoot.studies.workbook.sessions import CUT, Response, SessionState


class Variable(Row, table="variables"):
    """One variable: an asked task or a computed value, with its definition."""

    var_name: str = column("name of the variable")
    task_id: str | None = column("task_id of the prompts sheet", default=None)
    task_type: str = column("discussion, public_question or private_question, or computed")
    task_order: int | None = column(
        "task_order of the sheet; tasks with equal numbers are shuffled for each session",
        default=None,
    )
    var_type: str | None = column(
        "category, integer or float; empty if the sheet states none", default=None
    )
    question: str | dict[str, str] | None = column(
        "the prompt in the sheet; as JSON by role if roles have different prompts", default=None
    )
    response_options: str | None = column("the response options in the sheet", default=None)
    human_text: str | None = column("the original wording", default=None)
    is_adapted: bool | None = column("whether the original wording was changed", default=None)
    expression: str | None = column("expression of a computed value", default=None)


class InExperiment(Row):
    experiment_id: str = column(
        "id of the experiment; each combination of constants is one experiment"
    )


class Permutation(InExperiment, table="permutations", key=("experiment_id", "constant")):
    number: int = column(
        "number of the combination of constants, from 1; the last row varies fastest"
    )
    constant: str = column("name of the constant")
    value: str = column("value of the constant in this experiment")


class TreatmentTold(InExperiment, table="treatments", key=("experiment_id", "treatment")):
    treatment: str = column("label of the treatment arm")
    description: str = column("text that participants are told, with the constants filled in")
    attributes: dict[str, str] | None = column(
        "further columns of the sheet, as JSON", default=None
    )


class RoleTold(InExperiment, table="roles", key=("experiment_id", "role")):
    role: str = column("label of the role")
    description: str = column(
        "text that the role is told, with the constants filled in; parts that depend on the "
        "treatment are filled in for each session"
    )
    attributes: dict[str, str] | None = column(
        "further columns of the sheet, as JSON", default=None
    )


class OptionsOffered(InExperiment, table="options", key=("experiment_id", "task_id", "role")):
    task_id: str = column("task_id of the prompts sheet")
    role: str = column("label of the role that is asked")
    options: list[str] = column(
        "the response options, with the constants filled in, as JSON: the entries of a list, the "
        "two bounds of a range, or the free text"
    )


class InSession(InExperiment):
    session: str = column(
        "number of the session, or its label in the workbook if sessions are assigned manually"
    )
    treatment: str = column("label of the treatment arm, the same for a whole session")


class Assignment(InSession, table="assignment", key=("experiment_id", "participant_id")):
    participant_id: str = column("ID of the respondent in the profiles sheet")
    role: str = column("label of the role")
    name: str = column("name under which others in the session see the participant")
    profile: dict[str, str] = column(
        "column of the profiles sheet → the respondent's answer, as JSON, without the columns that "
        "assign sessions, treatments or roles"
    )


class SessionPlayed(InSession, table="sessions"):
    participants: int = column("number of participants in the session")
    messages: int = column("messages that models wrote: answers, contributions, summaries")
    ended: str = column("completed, or the limit that ended the session")
    stopped_in: str | None = column("the task in which a limit was reached")
    order: list[str] = column("task ids in the order played, as JSON")


class Answered(InSession, table="responses"):
    participant_id: str = column("ID of the respondent in the profiles sheet")
    role: str = column("label of the role")
    task_id: str = column("task_id of the prompts sheet")
    task_type: str = column("discussion, public_question or private_question")
    place: int = column("position of the task in the order of this session, from 1")
    task_order: int = column(
        "task_order of the sheet; tasks with equal numbers are shuffled for each session"
    )
    var_name: str = column("name of the variable")
    var_type: str | None = column("category, integer or float; empty if the sheet states none")
    value: str | None = column("the answer as text")
    number: float | None = column("the answer as a number, if it is one")
    status: str | None = column(
        "valid, invalid (kept after the last re-ask, or not a number of the variable's type), "
        "unchecked (no validation requested)"
    )
    reasks: int = column("number of re-asks because the answer failed validation")
    speculation_score: int | None = column(
        "0 (not speculative) to 100 (entirely speculative), as the model rates itself"
    )
    options: list[str] | None = column(
        "the options in the order shown to this participant, as JSON"
    )
    position: int | None = column("position of the chosen option in the order shown, from 1")
    missing: str | None = column(
        "reason for a missing answer; conversation_length: the session ended before the question; "
        "empty_prompt: the text of the task was empty for this participant, so nothing was asked"
    )
    finish: str | None


class Said(UtteranceRow, InSession):
    task_id: str | None = column(
        "the task, as in the prompts sheet; empty for the backstory of a participant"
    )
    turn: int | None = column(
        "position in the conversation of the session, from 1, including private answers; empty for "
        "texts of one participant alone (a question with its options, or a whole reply of which "
        "others hear only the answer)"
    )


class History(InSession, table="histories"):
    """The prompts and the conversation that one speaker of a session saw."""

    speaker_id: str = column("ID of the respondent in the profiles sheet, or the special role")
    system_prompt: str = column("the system prompt of the speaker")
    utterances: list[str] = column(
        "ids of the utterances that the speaker read and said, in their order, as JSON"
    )


class ComputedValue(
    InSession,
    table="computed",
    key=("experiment_id", "session", "name", "participant_id"),
    from_replies=True,
):
    name: str = column("name of the computed value")
    scope: str = column("participant: one value each; session: one value for all")
    participant_id: str | None = column("ID of the respondent in the profiles sheet")
    number: float | None = column("the value, if it is a number")
    value: str | None = column("the value as text")
    missing: str | None = column("reason why the value could not be computed")


class NumberType(InSession, table="number_types"):
    """The type of one computed number: integer or float."""

    # Not a column of `computed`, so that runs of earlier versions are verified.
    name: str = column("name of the computed value")
    participant_id: str | None = column("ID of the respondent in the profiles sheet")
    var_type: str = column("integer or float: how the JSON file of the experiment writes it")


TABLES = (
    *(Variable, Permutation, TreatmentTold, RoleTold, OptionsOffered, Assignment, SessionPlayed),
    *(Answered, Said, History, ComputedValue, NumberType),
)


def unusable_reason(run: RunFolder) -> str:
    """Return the reason why a run has no usable data.

    Returns "" for a usable run.
    """
    # A run with validation needs at least one valid response. A run without validation is always
    # usable.
    tasks = run.read_settings(WorkbookConfig).workbook.tasks
    validated = {task.var_name for task in tasks if task.validate_response}
    responses = run.read_table("responses").filter(pl.col("var_name").is_in(validated))
    return (
        "no response is valid"
        if not responses.is_empty() and "valid" not in responses["status"]
        else ""
    )


def variable_descriptions(workbook: Workbook) -> list[dict[str, Any]]:
    """Return the definition of each variable."""
    # Asked variables come before computed ones.
    asked = [
        {
            "var_name": task.var_name,
            "task_id": task.task_id,
            "task_type": task.type,
            "task_order": task.task_order,
            "var_type": task.var_type,
            "question": task.llm_text if isinstance(task.llm_text, str) else dict(task.llm_text),
            "response_options": task.response_options,
            "human_text": task.human_text or None,
            "is_adapted": task.is_adapted,
        }
        for task in workbook.tasks
        if task.type != "context"
    ]
    computed = [
        {
            "var_name": computed.name,
            "task_type": f"computed ({computed.scope})",
            "expression": computed.expression,
        }
        for computed in workbook.computed
    ]
    return [*asked, *computed]


def record_design(scope: Scope, experiments: list[Experiment], plans: list[SessionPlan]) -> None:
    """Record the texts and the assignment of all experiments, before the run calls a model."""
    # Variables are the same in all experiments.
    for row in variable_descriptions(experiments[0].workbook):
        scope.record(Variable(**row))
    for experiment in experiments:
        for name, value in experiment.constants.items():
            scope.record(
                Permutation(
                    experiment_id=experiment.id,
                    number=experiment.number,
                    constant=name,
                    value=scalar_text(value),
                )
            )
        _record_texts(scope, experiment)
        for plan in plans:
            where = _location_columns(experiment, plan)
            for seat in plan.seats:
                scope.record(
                    Assignment(
                        **where,
                        participant_id=seat.id,
                        role=seat.role,
                        name=seat.name,
                        profile={
                            column: answer["answer"]
                            for column, answer in profile_of(experiment, seat).items()
                        },
                    )
                )


def _record_texts(scope: Scope, experiment: Experiment) -> None:
    for label, treatment in experiment.treatments.items():
        scope.record(TreatmentTold(treatment=label, **_text_columns(experiment, treatment)))
    for label, role in experiment.roles.items():
        scope.record(RoleTold(role=label, **_text_columns(experiment, role)))
    for task in experiment.tasks.values():
        for label in task.prompts:
            if options := option_texts(task.options_for(label)):
                scope.record(
                    OptionsOffered(
                        experiment_id=experiment.id,
                        task_id=task.task.task_id,
                        role=label,
                        options=list(options),
                    )
                )


def _text_columns(experiment: Experiment, part: LabelledPart) -> dict[str, Any]:
    return {
        "experiment_id": experiment.id,
        "description": part.description,
        "attributes": dict(part.extra) or None,
    }


def record_session(scope: Scope, state: SessionState) -> None:
    """Record the rows of a finished session."""
    where = _location_columns(state.experiment, state.plan)
    scope.record(
        SessionPlayed(
            **where,
            participants=len(state.taken_seats),
            messages=state.messages,
            ended=state.ended,
            stopped_in=state.stopped_in or None,
            order=[task_in_play.task.task_id for task_in_play in state.order],
        )
    )
    # Each question of the session has a row, also if a limit kept it from being asked.
    for response in [*state.responses, *missing_responses(state), *state.special_replies]:
        scope.record(_answered_row(response, where))
    for speaker_id in [*(seat.id for seat in state.taken_seats), *state.special_roles]:
        # A session that stopped early may have speakers who have heard nothing.
        history = state.histories.get(speaker_id, ())
        scope.record(
            History(
                **where,
                speaker_id=speaker_id,
                system_prompt=state.speakers[speaker_id].system,
                utterances=[utterance.id for utterance in history if utterance.missing is None],
            )
        )
    for item in state.experiment.workbook.computed:
        is_personal = item.scope == "participant"
        holders = (
            [
                session_participant.id
                for session_participant in state.taken_seats
                if state.applies_to(item, session_participant.id)
            ]
            if is_personal
            else [None]
        )
        for holder in holders:
            value = state.value(item.name, holder)
            missing = value if isinstance(value, Missing) else None
            value_or_none = None if isinstance(value, Missing) else value
            scope.record(
                ComputedValue(
                    **where,
                    name=item.name,
                    scope=item.scope,
                    participant_id=holder,
                    number=float(value) if isinstance(value, (int, float)) else None,
                    value=None if value_or_none is None else scalar_text(value_or_none),
                    missing=None if missing is None else f"{missing.reason}: {missing.detail}",
                )
            )
            if isinstance(value, (int, float)):
                scope.record(
                    NumberType(
                        **where,
                        name=item.name,
                        participant_id=holder,
                        var_type="float" if isinstance(value, float) else "integer",
                    )
                )


def _location_columns(experiment: Experiment, plan: SessionPlan) -> dict[str, str]:
    return {"experiment_id": experiment.id, "session": plan.label, "treatment": plan.treatment}


def missing_responses(state: SessionState) -> list[Response]:
    """Return a `Response` with a missing answer for each question that was not asked."""
    # A question is not asked if the session was cut at the maximum length of its conversation.
    answered = {(response.task.var_name, response.speaker_id) for response in state.responses}
    # Contexts ask no question.
    rounds = [task_in_play for task_in_play in state.order if task_in_play.task.type != "context"]
    return [
        Response(task, place, seat.id, seat.role, Missing(CUT))
        for place, task in enumerate(rounds, 1)
        for seat in state.taken_seats
        if seat.role in task.prompts and (task.var_name, seat.id) not in answered
    ]


def _answered_row(response: Response, where: dict[str, str]) -> Answered:
    task, answer = response.task.task, response.given
    given = answer if isinstance(answer, GivenAnswer) else None
    # Texts that look like numbers stay texts, unless the task asks for a number.
    number = given.value if given and not isinstance(given.value, str) else None
    return Answered(
        **where,
        participant_id=response.speaker_id,
        role=response.role,
        task_id=task.task_id,
        task_type=task.type,
        place=response.place,
        task_order=task.task_order,
        var_name=task.var_name,
        var_type=task.var_type,
        value=given.recorded_text if given else None,
        number=float(number) if number is not None else None,
        status=given.status if given else None,
        reasks=response.reasks,
        speculation_score=response.score,
        options=list(response.order) or None,
        position=option_position(response.order, given.value) if given and response.order else None,
        missing=answer.reason if isinstance(answer, Missing) else None,
        finish=response.finish,
    )


def name_answers(run: RunFolder) -> dict[str, dict[str, str | float]]:
    """Return the usable options, numbers and speculation scores by the address of the answer."""
    if not run.has_table("responses"):
        return {}
    values: dict[tuple[str, ...], dict[str, str | float]] = {}
    for row in run.read_table("responses").iter_rows(named=True):
        key = (row["experiment_id"], row["task_id"], row["participant_id"])
        answers = values[key] = {}
        name, score = row["var_name"], row["speculation_score"]
        if row["status"] != "invalid" and row["number"] is not None:
            answers[name] = row["number"]
        elif row["status"] != "invalid" and row["position"] is not None:
            answers[name] = row["value"]
        if score is not None:
            answers[f"{name}: speculation score"] = float(score)
    named: dict[str, dict[str, str | float]] = {}
    for address in run.read_table("answers")["address"]:
        match split_address(address):
            # A separate question for the score has the next address.
            case ["sessions", session_id, task, participant_id, call]:
                key = (session_id.rpartition(".")[0], task, participant_id)
                named[address] = values.get(key, {}) if call == "ask0" else {}
    return named


def describe_participants(run: RunFolder) -> dict[tuple[str, ...], str]:
    """Return the profile of each participant, by id."""
    # The sealed assignment holds only ids, roles and names.
    # Runs of earlier versions did not record the profiles.
    assignment = run.read_rows(Assignment).drop_nulls("profile")
    rows = assignment.select("participant_id", "profile").iter_rows()
    return {(participant_id,): profile for participant_id, profile in rows}


def number_ranges(run: RunFolder) -> dict[str, AnswerRange]:
    """Return the range of each variable that is a number, the widest one if tasks differ."""
    options = run.read_rows(OptionsOffered)
    variables = run.read_rows(Variable).select("var_name", "task_id", "var_type")
    ranges: dict[str, AnswerRange] = {}
    for name, task_id, kind in variables.iter_rows():
        if kind not in ("integer", "float"):
            continue
        offered = options.filter(task_id=task_id)["options"]
        bounds = [number for texts in offered for number in _read_bounds(texts)]
        low, high = min(bounds, default=-math.inf), max(bounds, default=math.inf)
        own = AnswerRange(kind == "integer", low, high)
        ranges[name] = own.widened(ranges.get(name, own))
    return ranges


def _read_bounds(texts: str) -> list[float]:
    # A text for the answer, and not a range or a list of numbers, has no bounds.
    try:
        return [float(text) for text in json.loads(texts)]
    except ValueError:
        return [-math.inf, math.inf]


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """Return the tables `responses` and `computed` without the values of excluded answers."""
    # An excluded answer keeps its row, with empty cells. A session with an excluded answer loses
    # the computed values that may depend on the answer.
    excluded_keys = {
        (session_id.rpartition(".")[0], task, participant_id)
        for address, participant_id in excluded.select("address", "speaker_id").iter_rows()
        for _, session_id, task, *_ in [split_address(address)]
    }
    responses = run.read_table("responses")
    keys = responses.select("experiment_id", "task_id", "participant_id").iter_rows()
    left_out = pl.Series([key in excluded_keys for key in keys], dtype=pl.Boolean)
    tables = {
        "responses": responses.lazy().with_columns(
            pl.when(~pl.lit(left_out)).then(pl.col("value", "number", "status", "position"))
        )
    }
    if run.has_table("computed"):
        design = run.read_settings(WorkbookConfig).workbook
        used = pl.DataFrame(
            [
                (name, variable)
                for name, variables in variables_behind(design.computed).items()
                for variable in sorted(variables)
            ],
            {"name": pl.String, "var_name": pl.String},
            orient="row",
        )
        lost_values = responses.filter(left_out).join(used, on="var_name")
        keys_of_value = ["experiment_id", "session", "name"]
        tables["computed"] = run.scan_table("computed").join(
            lost_values.select(keys_of_value).unique().lazy(), on=keys_of_value, how="anti"
        )
    return tables
