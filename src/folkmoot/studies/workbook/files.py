"""The two files of an experiment: `<experiment_id>.json` and `<experiment_id>.csv`.

Both files are computed from the tables of the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import polars as pl

from folkmoot.engine.seats.questionnaire import WORDINGS
from folkmoot.files import csv_text
from folkmoot.kit.calls import JournalReader
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RowStream, RunFolder
from folkmoot.storage.tables import escape_formula
from folkmoot.studies.workbook.config import SPECIAL_ROLES, Scalar, WorkbookConfig
from folkmoot.studies.workbook.language.expressions import in_order
from folkmoot.studies.workbook.participants import Experiment, build_experiments
from folkmoot.studies.workbook.sessions import EMPTY_PROMPT
from folkmoot.studies.workbook.tables import (
    Answered,
    Assignment,
    ComputedValue,
    History,
    NumberType,
    Said,
    SessionPlayed,
    variable_descriptions,
)

NO_ANSWER = "NA"
# One row of a table.
Cells = Mapping[str, Any]


def derived_files(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield the name and content of both files of each experiment.

    The files are computed from the rows of finished sessions.
    """
    config = run.read_settings(WorkbookConfig)
    for experiment in build_experiments(config.workbook):
        # Killed runs of earlier versions have no histories. A resume records them.
        if rows_of_experiment(run, History, experiment):
            yield f"{experiment.id}.json", experiment_json(run, config, experiment)
            yield f"{experiment.id}.csv", experiment_csv(run, experiment)


def rows_of_experiment(
    run: RunFolder,
    table: type[Row],
    experiment: Experiment,
    sessions: Collection[str] | None = None,
) -> RowStream:
    """Return the rows of `table` that belong to one experiment.

    `sessions`: the sessions to which the rows must belong, or None for all.
    """
    rows = run.scan_table(table.table).filter(pl.col("experiment_id") == experiment.id)
    return RowStream(rows if sessions is None else rows.filter(pl.col("session").is_in(sessions)))


@dataclass(frozen=True)
class FinishedSession:
    """The rows of one session."""

    played: Cells
    # The participants, in the order of the assignment.
    seats: Sequence[Cells]
    # The answers of each participant and special role.
    answers: Mapping[str, Sequence[Cells]]
    # (name, participant, or None for a value of the session) → value, or None if it is missing.
    computed: Mapping[tuple[str, str | None], Scalar | None]
    # Speaker → system prompt and utterances read. Empty if the caller does not need it.
    histories: Mapping[str, tuple[str, Sequence[Cells]]]


def finished_sessions(
    run: RunFolder, experiment: Experiment, *, with_histories: bool
) -> Iterator[FinishedSession]:
    """Yield the finished sessions of an experiment in the order of the plan."""
    # All tables have this order, so the rows of one session at a time are in memory.
    tables: list[type[Row]] = [Assignment, Answered, ComputedValue, NumberType]
    wordings: Mapping[tuple[str, str], str] = {}
    if with_histories:
        tables += [History, Said]
        wordings = _read_wordings(run)
    sessions = [*rows_of_experiment(run, SessionPlayed, experiment)]
    labels = [str(played["session"]) for played in sessions]
    streams = {
        table: _SessionStream(rows_of_experiment(run, table, experiment, labels))
        for table in tables
    }
    for played in sessions:
        rows: dict[type[Row], list[Cells]] = defaultdict(list)
        rows |= {table: stream.take(played["session"]) for table, stream in streams.items()}
        answers: dict[str, list[Cells]] = defaultdict(list)
        for row in rows[Answered]:
            answers[row["participant_id"]].append(row)
        yield FinishedSession(
            played,
            rows[Assignment],
            answers,
            _read_computed(rows[ComputedValue], rows[NumberType]),
            _read_histories(run, rows[History], rows[Said], wordings),
        )


class _SessionStream:
    # The rows of a table, which are taken session by session.

    def __init__(self, rows: RowStream) -> None:
        self._sessions = groupby(rows, key=itemgetter("session"))
        self._next = next(self._sessions, None)

    def take(self, session: str) -> list[Cells]:
        # A session may have no rows in a table, for example no computed values.
        if self._next is None or self._next[0] != session:
            return []
        rows: list[Cells] = list(self._next[1])
        self._next = next(self._sessions, None)
        return rows


def _read_computed(
    values: Sequence[Cells], number_types: Sequence[Cells]
) -> dict[tuple[str, str | None], Scalar | None]:
    types = {(row["name"], row["participant_id"]): row["var_type"] for row in number_types}
    keys = [(row["name"], row["participant_id"]) for row in values]
    return {
        key: typed_value(row["value"], row["number"], types.get(key))
        for key, row in zip(keys, values, strict=True)
    }


def _read_histories(
    run: RunFolder,
    histories: Sequence[Cells],
    utterances: Sequence[Cells],
    wordings: Mapping[tuple[str, str], str],
) -> dict[str, tuple[str, Sequence[Cells]]]:
    ids = {row["speaker_id"]: json.loads(row["utterances"]) for row in histories}
    said = {row["utterance_id"]: row for row in utterances}
    # If an error of the study shows a text of another session, the file must show it too.
    if foreign := {read for ids_read in ids.values() for read in ids_read} - said.keys():
        rows = run.scan_table(Said.table).filter(pl.col("utterance_id").is_in(foreign))
        said |= {row["utterance_id"]: row for row in RowStream(rows)}
    # A partial run does not have the utterances of sessions that did not finish.
    return {
        row["speaker_id"]: _as_read(
            row["speaker_id"],
            row["system_prompt"],
            [said[read] for read in ids[row["speaker_id"]] if read in said],
            wordings,
        )
        for row in histories
    }


def _read_wordings(run: RunFolder) -> Mapping[tuple[str, str], str]:
    # Maps a participant and the id of an utterance, or of the answer to a question, to the wording
    # that the human in this seat read.
    if not run.has_table(WORDINGS):
        return {}
    return {
        (speaker_id, utterance_id or f"{part} {address}"): text
        for speaker_id, utterance_id, part, address, text in run.rows(
            WORDINGS, "read_by", "utterance_id", "part", "question", "text"
        )
    }


def _as_read(
    speaker_id: str,
    system_prompt: str,
    utterances: list[Cells],
    wordings: Mapping[tuple[str, str], str],
) -> tuple[str, list[Cells]]:
    # A human has read the wording for people, where the tables hold the wording for models.
    texts = [str(row["text"]) for row in utterances]
    for i, row in enumerate(utterances):
        texts[i] = wordings.get((speaker_id, row["utterance_id"]), texts[i])
        if row["speaker_id"] == speaker_id and row["address"] and i:
            address = row["address"]
            system_prompt = wordings.get((speaker_id, f"system {address}"), system_prompt)
            # The question is before the answer.
            texts[i - 1] = wordings.get((speaker_id, f"question {address}"), texts[i - 1])
    return system_prompt, [
        {**row, "text": text} for row, text in zip(utterances, texts, strict=True)
    ]


def typed_value(value: str | None, number: float | None, var_type: str | None) -> Scalar | None:
    """Return a table value as a text or as a number of the type `var_type`.

    - `value`: the text column of the row.
    - `number`: the number column of the row. It is None for a text.

    Returns None if both columns are empty.
    """
    if number is None:
        return value
    return number if var_type == "float" or not number.is_integer() else int(number)


def _answer_value(row: Cells) -> Scalar | None:
    return typed_value(row["value"], row["number"], row["var_type"])


def experiment_json(
    run: RunFolder, config: WorkbookConfig, experiment: Experiment
) -> dict[str, object]:
    """Return the content of `<experiment_id>.json`."""
    computed_names = [item.name for item in in_order(experiment.workbook.computed)]
    profiles = _profiles_by_id(experiment)
    return {
        "experiment_id": experiment.id,
        "permutation": experiment.number,
        "constants": dict(experiment.constants),
        "model_info": config.workbook.settings.model_info,
        "temperature": config.temperature,
        "random_seed": config.random_seed,
        "layout": config.workbook.layout,
        "variables": variable_descriptions(experiment.workbook),
        "treatments": {
            treatment.label: treatment.description for treatment in experiment.treatments.values()
        },
        "sessions_planned": len(run.plan["sealed"]["assignment"]["data"]),
        "sessions_finished": len(rows_of_experiment(run, SessionPlayed, experiment)),
        "sessions": (
            _session_json(experiment, session, computed_names, profiles)
            for session in finished_sessions(run, experiment, with_histories=True)
        ),
    }


def _session_json(
    experiment: Experiment,
    session: FinishedSession,
    computed_names: Sequence[str],
    profiles: Mapping[str, Mapping[str, str]],
) -> dict[str, object]:
    played = session.played
    treatment = experiment.treatments.get(played["treatment"])

    def computed_for(holder: str | None) -> dict[str, Scalar | None]:
        return {
            name: session.computed[name, holder]
            for name in computed_names
            if (name, holder) in session.computed
        }

    return {
        "session_id": played["session"],
        "treatment": played["treatment"],
        "treatment_description": treatment.description if treatment else "",
        "task_order": json.loads(played["order"]),
        "messages": played["messages"],
        "ended": played["ended"],
        "stopped_in": played["stopped_in"],
        "computed": computed_for(None),
        "participants": [
            {
                "ID": seat["participant_id"],
                "role": seat["role"],
                "name": seat["name"],
                "profile": profiles[seat["participant_id"]],
                "responses": {
                    row["var_name"]: _answer_json(row)
                    for row in session.answers.get(seat["participant_id"], ())
                },
                "computed": computed_for(seat["participant_id"]),
                "message_history": _message_history(session, seat["participant_id"]),
            }
            for seat in session.seats
        ],
        "special_roles": {
            label: {
                "responses": [_answer_json(row) for row in session.answers.get(label, ())],
                "message_history": _message_history(session, label),
            }
            for label in SPECIAL_ROLES
            if label in session.histories
        },
    }


def _profiles_by_id(experiment: Experiment) -> dict[str, dict[str, str]]:
    profiles = experiment.workbook.profiles
    return {
        row[profiles.id_column]: {
            name: row[i] for i, name in enumerate(profiles.names) if i != profiles.id_column
        }
        for row in profiles.rows
    }


def _answer_json(row: Cells) -> dict[str, object]:
    record: dict[str, object] = {
        "task_id": row["task_id"],
        "place": row["place"],
        "value": _answer_value(row),
        "status": row["status"] or "missing",
        "reasks": row["reasks"],
    }
    if row["missing"] is not None:
        record["missing"] = row["missing"]
    if row["speculation_score"] is not None:
        record["speculation_score"] = row["speculation_score"]
    if row["options"] is not None:
        record["options_shown"] = json.loads(row["options"])
        record["position"] = row["position"]
    return record


def _message_history(session: FinishedSession, speaker_id: str) -> list[dict[str, str]]:
    system_prompt, utterances = session.histories[speaker_id]
    return [
        {"role": "system", "name": "", "content": system_prompt},
        *(
            {
                "role": "assistant" if row["speaker_id"] == speaker_id else "user",
                "name": row["speaker_name"],
                "content": row["text"],
            }
            for row in utterances
        ),
    ]


def experiment_csv(run: RunFolder, experiment: Experiment) -> str:
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
    profiles = _profiles_by_id(experiment)
    rows = []
    for session in finished_sessions(run, experiment, with_histories=False):
        for seat in session.seats:
            participant = seat["participant_id"]
            answers = {row["var_name"]: row for row in session.answers.get(participant, ())}
            rows.append(
                [
                    experiment.id,
                    session.played["session"],
                    session.played["treatment"],
                    participant,
                    seat["role"],
                    *experiment.constants.values(),
                    *(_answer_cell(answers.get(name)) for name in variables),
                    *(_score_cell(answers.get(name)) for name in speculated),
                    *(_computed_cell(session, name, participant) for name in computed_names),
                    ";".join(name for name, row in answers.items() if row["status"] == "invalid"),
                    ";".join(name for name, row in answers.items() if _is_missing(row)),
                    *(profiles[participant][name] for name in profile_columns),
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


def _score_cell(row: Cells | None) -> int | str:
    # A score is missing if its answer is missing, or if it was declined or could not be read.
    if row is None or row["missing"] == EMPTY_PROMPT:
        return ""
    score: int | None = row["speculation_score"]
    return NO_ANSWER if score is None else score


def _answer_cell(row: Cells | None) -> Scalar | None:
    if row is None:
        return ""
    if _is_missing(row):
        return NO_ANSWER
    return "" if row["status"] is None else _answer_value(row)


def _is_missing(row: Cells) -> bool:
    return row["status"] is None and row["missing"] != EMPTY_PROMPT


def _computed_cell(session: FinishedSession, name: str, participant: str) -> Scalar:
    for holder in (participant, None):
        if (name, holder) in session.computed:
            value = session.computed[name, holder]
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
