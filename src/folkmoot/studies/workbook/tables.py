"""Tidy long tables of a session: who sat where, what was answered, what was said, what it paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.workbook.answers import Given, position
from folkmoot.studies.workbook.config import Workbook
from folkmoot.studies.workbook.experiments import Experiment
from folkmoot.studies.workbook.literals import scalar_text
from folkmoot.studies.workbook.participants import SessionPlan
from folkmoot.studies.workbook.room import CUT, Response, Room

CODEBOOK: Mapping[str, Any] = {
    "experiment_id": "the experiment; with constants one per combination of their values",
    "session": "the session: its number, or the workbook's own label where assigned by hand",
    "treatment": "label of the treatment arm, the same for a whole session",
    "participant_id": "ID of the respondent in the profiles sheet",
    "role": "label of the role",
    "task_id": "the task, as in the prompts sheet",
    "task_type": "discussion, public_question or private_question",
    "place": "place of the task in the order that this session had, from 1",
    "task_order": "the task_order of the sheet; equal ones are shuffled for each session",
    "var_name": "the variable",
    "var_type": "category, integer or float, where the sheet says",
    "variables": {
        "question": "the prompt as the sheet has it; by role, as JSON, where roles differ",
        "response_options": "the response options as the sheet has them",
        "human_text": "the original wording",
        "is_adapted": "whether the original wording was changed",
        "expression": "how a computed value is calculated",
    },
    "assignment": {"name": "name under which others in the session see the participant"},
    "permutations": {
        "number": "number of the combination of constants, from 1; the last row varies fastest",
        "constant": "name of the constant",
        "value": "its value in this experiment",
    },
    "sessions": {
        "participants": "how many sat in the session",
        "messages": "messages that models wrote: answers, contributions, summaries",
        "ended": "completed, or which limit ended the session",
        "stopped_in": "the task in which a limit was reached",
        "order": "task ids in the order played, as JSON",
    },
    "responses": {
        "value": "the answer as text",
        "number": "the answer as a number, where it is one",
        "status": "valid, invalid (kept after the last re-ask), unchecked (no validation asked)",
        "reasks": "how often the answer was asked for again because it failed validation",
        "speculation_score": "0 not speculative at all to 100 entirely, by the model's own word",
        "options": "the options in the order shown to this participant, as JSON",
        "position": "place of the chosen option in the order shown, from 1",
        "missing": "why there is no answer; conversation_length: the session was cut before",
    },
    "computed": {
        "name": "name of the computed value",
        "scope": "participant: one value each; session: one value for all",
        "number": "the value, where it is a number",
        "value": "the value as text",
        "missing": "why it could not be computed",
    },
    "utterances": {"text": "what was said, as the others heard it"},
}


def variables(workbook: Workbook) -> list[dict[str, Any]]:
    """What each variable is: the task that asks for it, or the expression that gives it."""
    asked = [
        {
            "var_name": t.var_name,
            "task_id": t.task_id,
            "task_type": t.type,
            "task_order": t.task_order,
            "var_type": t.var_type,
            "question": t.llm_text if isinstance(t.llm_text, str) else dict(t.llm_text),
            "response_options": t.response_options,
            "human_text": t.human_text or None,
            "is_adapted": t.is_adapted,
        }
        for t in workbook.tasks
        if t.type != "context"
    ]
    computed = [
        {"var_name": c.name, "task_type": f"computed ({c.scope})", "expression": c.expression}
        for c in workbook.computed
    ]
    return [*asked, *computed]


_ONE = "experiment_id session treatment "
TABLES = {
    "permutations": "experiment_id number:int constant value",
    "responses": f"{_ONE}participant_id role task_id task_type place:int task_order:int var_name "
    "var_type value number:float status reasks:int speculation_score:int options position:int "
    "missing finish",
    "utterances": f"{_ONE}turn:int task_id speaker_id speaker_name speaker_role text "
    "missing finish",
    "computed": f"{_ONE}name scope participant_id number:float value missing",
}


def unusable(run: RunFolder) -> str:
    """Why nothing in a run is of use: not one valid response of those that were to be validated, or
    none at all."""
    had = set(run.table("responses")["status"])
    return "no response is valid" if had and "valid" not in had and had != {"unchecked"} else ""


def record_design(scope: Scope, experiments: list[Experiment], plans: list[SessionPlan]) -> None:
    """What is asked and who got what, before the first call."""
    for row in variables(experiments[0].workbook):
        scope.record("variables", row)
    for experiment in experiments:
        for name, value in experiment.constants.items():
            scope.record(
                "permutations",
                {
                    "experiment_id": experiment.id,
                    "number": experiment.number,
                    "constant": name,
                    "value": scalar_text(value),
                },
            )
        for plan in plans:
            for seat in plan.seats:
                row = {**_where(experiment, plan), "participant_id": seat.id}
                scope.record("assignment", {**row, "role": seat.role, "name": seat.name})


def record_session(scope: Scope, room: Room) -> None:
    """The tables of a session that was played."""
    where = _where(room.experiment, room.plan)
    scope.record(
        "sessions",
        {
            **where,
            "participants": len(room.seats),
            "messages": room.messages,
            "ended": room.ended,
            "stopped_in": room.stopped_in or None,
            "order": [t.task.task_id for t in room.order],
        },
    )
    for response in [*room.responses, *unasked(room), *room.special_replies]:
        scope.record("responses", {**where, **_response(response)})
    for turn, said in enumerate(room.said, 1):
        row = {"turn": turn, "task_id": said.stage, "speaker_id": said.speaker_id}
        words = {"speaker_role": said.role, "text": said.text, "missing": said.missing}
        words["finish"] = said.finish
        scope.record("utterances", {**where, **row, "speaker_name": said.name, **words})
    for row in computed_rows(room):
        scope.record("computed", {**where, **row})


def _where(experiment: Experiment, plan: SessionPlan) -> dict[str, Any]:
    return {"experiment_id": experiment.id, "session": plan.label, "treatment": plan.treatment}


def unasked(room: Room) -> list[Response]:
    """Answers that a limit kept from being asked for, as missing ones."""
    done = {(r.task.var_name, r.speaker_id) for r in room.responses}
    rounds = [t for t in room.order if t.task.type != "context"]
    return [
        Response(task, place, seat.id, seat.role, Missing(CUT))
        for place, task in enumerate(rounds, 1)
        for seat in room.seats
        if seat.role in task.prompts and (task.var_name, seat.id) not in done
    ]


def _response(response: Response) -> dict[str, Any]:
    task, answer = response.task.task, response.given
    given = answer if isinstance(answer, Given) else None
    number = given.value if given and not isinstance(given.value, str) else None
    return {
        "participant_id": response.speaker_id,
        "role": response.role,
        "task_id": task.task_id,
        "task_type": task.type,
        "place": response.place,
        "task_order": task.task_order,
        "var_name": task.var_name,
        "var_type": task.var_type,
        "value": given.text if given else None,
        "number": float(number) if number is not None else None,
        "status": given.status if given else None,
        "reasks": response.reasks,
        "speculation_score": response.score,
        "options": list(response.order) or None,
        "position": position(response.order, given.value) if given and response.order else None,
        "missing": answer.reason if isinstance(answer, Missing) else None,
        "finish": response.finish,
    }


def computed_rows(room: Room) -> list[dict[str, Any]]:
    """Every computed value of a session, in the order of the sheet."""
    rows: list[dict[str, Any]] = []
    for item in room.experiment.workbook.computed:
        holders: list[str | None] = [None]
        if item.scope == "participant":
            holders = [s.id for s in room.seats if room.applies(item, s.id)]
        for holder in holders:
            value = room.value(item.name, holder)
            missing = value if isinstance(value, Missing) else None
            number = value if isinstance(value, (int, float)) else None
            text = None if value is None or isinstance(value, Missing) else scalar_text(value)
            row = {"name": item.name, "scope": item.scope, "participant_id": holder}
            why = f"{missing.reason}: {missing.detail}" if missing else None
            rows.append({**row, "number": _float(number), "value": text, "missing": why})
    return rows


def _float(number: float | None) -> float | None:
    return None if number is None else float(number)
