"""The two files of an experiment: `<experiment_id>.json` and `<experiment_id>.csv`.

Both files are written again whenever sessions have finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict

from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.session.session import Session
from folkmoot.files import csv_text
from folkmoot.storage.tables import escape_formula
from folkmoot.studies.workbook.answers import GivenAnswer, Value, option_position
from folkmoot.studies.workbook.config import Scalar, WorkbookConfig
from folkmoot.studies.workbook.participants import Experiment
from folkmoot.studies.workbook.sessions import EMPTY_PROMPT, Response, SessionState
from folkmoot.studies.workbook.tables import missing_responses, variable_descriptions

NO_ANSWER = "NA"
# Share of new sessions at which files are written again. A fixed share keeps all writing together
# linear in the number of sessions.
GROWTH = 0.25


class AnswerRecord(TypedDict):
    """One answer of a participant or of a special role."""

    task_id: str
    place: int
    value: Value | None
    status: str
    reasks: int
    missing: NotRequired[str]
    speculation_score: NotRequired[int]
    options_shown: NotRequired[list[str]]
    position: NotRequired[int | None]


class PersonRecord(TypedDict):
    """The answers, computed values and history of one participant."""

    ID: str
    role: str
    name: str
    profile: dict[str, str]
    responses: dict[str, AnswerRecord]
    computed: dict[str, Scalar | None]
    message_history: list[dict[str, str]]


class SpecialRecord(TypedDict):
    """The utterances and the history of the Facilitator or the Summarizer."""

    responses: list[AnswerRecord]
    message_history: list[dict[str, str]]


class SessionRecord(TypedDict):
    """One session with all its data."""

    session_id: str
    treatment: str
    treatment_description: str
    task_order: list[str]
    messages: int
    ended: str
    stopped_in: str | None
    computed: dict[str, Scalar | None]
    participants: list[PersonRecord]
    special_roles: dict[str, SpecialRecord]


class ExperimentRecord(TypedDict):
    """The content of `<experiment_id>.json`."""

    experiment_id: str
    permutation: int
    constants: dict[str, Scalar]
    model_info: str
    temperature: float | None
    random_seed: int
    layout: str
    variables: list[dict[str, object]]
    treatments: dict[str, str]
    sessions_planned: int
    sessions_finished: int
    sessions: Sequence[SessionRecord]


def session_record(state: SessionState) -> SessionRecord:
    """Return a session as JSON data."""
    treatment = state.experiment.treatments.get(state.plan.treatment)
    return {
        "session_id": state.plan.label,
        "treatment": state.plan.treatment,
        "treatment_description": treatment.description if treatment else "",
        "task_order": [task_in_play.task.task_id for task_in_play in state.order],
        "messages": state.messages,
        "ended": state.ended,
        "stopped_in": state.stopped_in or None,
        "computed": {
            computed.name: _json_value(state.value(computed.name, None))
            for computed in state.computed
            if computed.scope == "session"
        },
        "participants": [_participant_record(state, seat.id) for seat in state.taken_seats],
        "special_roles": {
            label: {
                "responses": [
                    _answer_record(response)
                    for response in state.special_replies
                    if response.speaker_id == label
                ],
                "message_history": _speaker_history(state, label),
            }
            for label in state.special_roles
        },
    }


def _participant_record(state: SessionState, participant_id: str) -> PersonRecord:
    seat = next(
        session_participant
        for session_participant in state.taken_seats
        if session_participant.id == participant_id
    )
    profiles = state.experiment.workbook.profiles
    row = profiles.rows[seat.row]
    responses = [
        response
        for response in [*state.responses, *missing_responses(state)]
        if response.speaker_id == participant_id
    ]
    personal = [
        computed
        for computed in state.computed
        if computed.scope == "participant" and state.applies_to(computed, participant_id)
    ]
    return {
        "ID": participant_id,
        "role": seat.role,
        "name": seat.name,
        "profile": {
            name: row[i] for i, name in enumerate(profiles.names) if i != profiles.id_column
        },
        "responses": {response.task.var_name: _answer_record(response) for response in responses},
        "computed": {
            computed.name: _json_value(state.value(computed.name, participant_id))
            for computed in personal
        },
        "message_history": _speaker_history(state, participant_id),
    }


def _answer_record(response: Response) -> AnswerRecord:
    answer = response.given
    given = answer if isinstance(answer, GivenAnswer) else None
    record: AnswerRecord = {
        "task_id": response.task.task.task_id,
        "place": response.place,
        "value": given.value if given else None,
        "status": given.status if given else "missing",
        "reasks": response.reasks,
    }
    if isinstance(answer, Missing):
        record["missing"] = answer.reason
    if response.score is not None:
        record["speculation_score"] = response.score
    if response.order:
        record["options_shown"] = list(response.order)
        record["position"] = option_position(response.order, given.value) if given else None
    return record


def _speaker_history(state: SessionState, speaker_id: str) -> list[dict[str, str]]:
    system = {"role": "system", "name": "", "content": state.speakers[speaker_id].system}
    # A session that stopped early may have speakers who have heard nothing.
    history = state.histories.get(speaker_id, ())
    return [
        system,
        *(
            {
                "role": "assistant" if utterance.speaker_id == speaker_id else "user",
                "name": utterance.name,
                "content": utterance.text,
            }
            for utterance in history
            if utterance.missing is None
        ),
    ]


def _json_value(value: Scalar | Missing | None) -> Scalar | None:
    return None if isinstance(value, Missing) else value


class ExperimentFiles:
    """Writes the JSON and CSV files of all experiments while their sessions finish."""

    def __init__(
        self,
        session: Session[WorkbookConfig],
        experiments: Sequence[Experiment],
        numbers: Sequence[int],
    ) -> None:
        # `numbers` holds the session numbers that each experiment will have.
        self._session = session
        self._experiments = experiments
        self._numbers = numbers
        self._done: dict[str, dict[int, SessionRecord]] = {
            experiment.id: {} for experiment in experiments
        }
        self._written = dict.fromkeys(self._done, 0)

    def add_session(self, experiment: Experiment, number: int, record: SessionRecord) -> None:
        """Add a finished session."""
        # The files are written when enough sessions were added.
        # Sessions arrive in the order in which they finish.
        records, written_count = self._done[experiment.id], self._written[experiment.id]
        records[number] = record
        if len(records) - written_count >= max(1, GROWTH * written_count):
            self._write_experiment(experiment)

    def write_rest(self) -> None:
        """Write the files of experiments that have newly finished sessions."""
        for experiment in self._experiments:
            if len(self._done[experiment.id]) > self._written[experiment.id]:
                self._write_experiment(experiment)

    def _write_experiment(self, experiment: Experiment) -> None:
        finished = self._done[experiment.id]
        self._written[experiment.id] = len(finished)
        records = [finished[number] for number in self._numbers if number in finished]
        config = self._session.config
        data: ExperimentRecord = {
            "experiment_id": experiment.id,
            "permutation": experiment.number,
            "constants": dict(experiment.constants),
            "model_info": config.workbook.settings.model_info,
            "temperature": config.temperature,
            "random_seed": self._session.seed,
            "layout": config.workbook.layout,
            "variables": variable_descriptions(experiment.workbook),
            "treatments": {
                treatment.label: treatment.description
                for treatment in experiment.treatments.values()
            },
            "sessions_planned": len(self._numbers),
            "sessions_finished": len(records),
            "sessions": records,
        }
        self._session.write_json(f"{experiment.id}.json", data)
        self._session.write_text(f"{experiment.id}.csv", to_csv(experiment, records))


def to_csv(experiment: Experiment, records: Sequence[SessionRecord]) -> str:
    """Return the CSV text of an experiment: a row per participant, a column per variable.

    `NA` marks a question without an answer. A cell is blank if the participant did not have the
    task.
    """
    # The column `invalid` lists variables with answers that failed validation and were kept.
    workbook = experiment.workbook
    variables = [task.var_name for task in workbook.tasks if task.type != "context"]
    computed_names = [item.name for item in workbook.computed]
    # A column for each task that asks for a score, even if no score could be read.
    speculated = [
        task.var_name
        for task in workbook.tasks
        if task.type != "context" and task.generate_speculation_score
    ]
    profile_columns = [
        name for i, name in enumerate(workbook.profiles.names) if i != workbook.profiles.id_column
    ]
    # Profile columns and constants may have the name of another column, so they are renamed.
    taken = {"experiment_id", "session", "treatment", "ID", "role", *variables, *computed_names}
    title = _unique_titles(taken)
    header = [
        *("experiment_id", "session", "treatment", "ID", "role"),
        *(title(f"constant_{name}") for name in experiment.constants),
        *variables,
        *(title(f"{name}_speculation_score") for name in speculated),
        *computed_names,
        *("invalid", "missing"),
        *(title(name, "profile_") for name in profile_columns),
    ]
    rows = []
    for session in records:
        for person in session["participants"]:
            answers = person["responses"]
            rows.append(
                [
                    experiment.id,
                    session["session_id"],
                    session["treatment"],
                    person["ID"],
                    person["role"],
                    *experiment.constants.values(),
                    *(_answer_value(answers.get(name)) for name in variables),
                    *(_speculation_score(answers.get(name)) for name in speculated),
                    *(_computed_value(name, person, session) for name in computed_names),
                    ";".join(
                        name for name, answer in answers.items() if answer["status"] == "invalid"
                    ),
                    ";".join(name for name, answer in answers.items() if _is_missing(answer)),
                    *(person["profile"][name] for name in profile_columns),
                ]
            )
    return harmless_csv(header, rows)


def _unique_titles(taken: set[str]) -> Callable[..., str]:
    def build_title(name: str, prefix: str = "") -> str:
        title = name
        if title in taken and prefix:
            title = prefix + name
        while title in taken:
            title += "_"
        taken.add(title)
        return title

    return build_title


def _speculation_score(answer: AnswerRecord | None) -> int | str:
    return answer.get("speculation_score", "") if answer else ""


def _answer_value(answer: AnswerRecord | None) -> Value | None:
    if answer is None:
        return ""
    if _is_missing(answer):
        return NO_ANSWER
    return "" if answer["status"] == "missing" else answer["value"]


def _is_missing(answer: AnswerRecord) -> bool:
    return answer["status"] == "missing" and answer.get("missing") != EMPTY_PROMPT


def _computed_value(name: str, person: PersonRecord, session: SessionRecord) -> Scalar:
    for holder in (person["computed"], session["computed"]):
        if name in holder:
            value = holder[name]
            return NO_ANSWER if value is None else value
    return ""


def harmless_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return CSV text in which no cell can act as a formula."""
    return csv_text([_cell_text(cell) for cell in row] for row in (header, *rows))


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    # Truth values are numbers in Python, so they are tested first.
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (int, float)):
        return str(int(value)) if float(value).is_integer() else repr(value)
    return escape_formula(str(value)).replace("\r\n", "\n").replace("\r", "\n")
