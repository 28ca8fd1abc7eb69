"""Import a survey (`folkmoot new workbook --from survey.qsf`) and note what is left out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from folkmoot.child_process import run_in_child
from folkmoot.engine.study.imported_study import ImportedStudy, import_notes_name
from folkmoot.errors import InputError, LimitReached, Problem
from folkmoot.hints import number_text, shorten
from folkmoot.measures.inference.estimates import format_count
from folkmoot.spreadsheet_cells import LIMITS
from folkmoot.studies.workbook.config import FACILITATOR, Scalar
from folkmoot.studies.workbook.language.expressions import ExpressionProblem
from folkmoot.studies.workbook.language.placeholders import names_in
from folkmoot.studies.workbook.spreadsheet.layouts import (
    COLUMNS,
    FLAGS,
    SETTINGS,
    Rows,
    workbook_bytes,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.conditions import Condition
from folkmoot.studies.workbook.spreadsheet.qualtrics.flow import PlannedTask, SurveyFlow
from folkmoot.studies.workbook.spreadsheet.qualtrics.notes import NoteWriter
from folkmoot.studies.workbook.spreadsheet.qualtrics.questions import Item
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import ImportNote, read_survey
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import escape_braces
from folkmoot.studies.workbook.spreadsheet.reading import MAX_ID, UNSAFE

SUFFIX = ".qsf"
Problems = Sequence[Problem]
# Excel cuts longer texts off.
MAX_CELL = 32_767
# Respondents of a new workbook, until the researcher enters people.
MIN_RESPONDENTS = 20
RESPONDENTS_PER_TREATMENT = 10
NOTHING_TOLD = "{# nothing is told #}"
_CONTEXT = "You fill in a questionnaire by yourself. Answer each question as it applies to you."
_ROLE = "You are a respondent of a survey."
_FACILITATOR = "You hand out the questionnaire and pose its questions."


def import_survey(path: Path) -> ImportedStudy:
    """Return the workbook of a survey, and notes on what could not be imported.

    Raises InputError if the file is no QSF export or has no question that can be asked.
    """
    # The file is read in a separate process, because hostile HTML can take long to read.
    try:
        made = run_in_child(_make_study_or_problems, (str(path.absolute()),), limits=LIMITS)
    except LimitReached as error:
        memory = f"{LIMITS.memory_bytes // 1_000_000:,} MB"
        message = f"the survey takes more than {LIMITS.seconds} seconds or {memory} to read"
        raise InputError(Problem(message, str(path))) from error
    if not isinstance(made, ImportedStudy):
        raise InputError([replace(problem, file=str(path)) for problem in cast(Problems, made)])
    return made


def _make_study_or_problems(path: str) -> ImportedStudy | Problems:
    try:
        return make_study(Path(path))
    except InputError as error:
        return error.problems


def make_study(path: Path) -> ImportedStudy:
    """Read a survey in a QSF file and return the files of a workbook study."""
    # Unlike `import_survey`, it reads the file in this process, where hostile HTML can take long.
    try:
        flow = SurveyFlow(read_survey(path))
        flow.plan_tasks()
    except RecursionError as error:
        raise InputError(Problem("its flow is nested too deeply", str(path))) from error
    tasks = list(_write_tasks(flow))
    if not tasks:
        lines = [*map(NoteWriter(flow.survey).write, flow.notes[:5])]
        hint = "; ".join(lines) or "export it again"
        raise InputError(
            Problem("the survey has no question that can be asked", str(path), hint=hint)
        )
    name = UNSAFE.sub("_", path.stem).strip(" .-~")[:MAX_ID] or "survey"
    count = max(MIN_RESPONDENTS, RESPONDENTS_PER_TREATMENT * len(flow.treatments.labels))
    notes = _describe(flow, len(tasks), count)
    content = {
        "settings": _setting_rows(name, count, len(tasks)),
        "treatments": [(label, NOTHING_TOLD) for label in flow.treatments.labels],
        "roles": [(FACILITATOR, _FACILITATOR), ("Respondent", _ROLE)],
        "tasks": [_context_row(), *tasks],
        "profiles": _profile_rows(flow, count),
        "constants": (),
    }
    if flow.data.computed:
        # They hold embedded data for texts and conditions. No treatment can change them.
        content["computed"] = [
            (computed, "participant", text, "helper")
            for computed, text in flow.data.computed.items()
        ]
    book = f"{name}.xlsx"
    files: dict[str, str | bytes] = {
        book: workbook_bytes(content, notes=notes),
        import_notes_name(book): "".join(f"{line}\n" for line in notes),
    }
    return ImportedStudy(files, notes)


# --- sheets ------------------------------------------------------------------------------------


def _setting_rows(name: str, count: int, tasks: int) -> Rows:
    values: dict[str, Scalar] = {
        "experiment_id": name,
        "model_info": "synthetic",
        "temperature": 1,
        # One participant in each session, so that treatments are drawn for each participant.
        "num_agents_per_session": 1,
        "num_sessions": count,
        "max_conversation_length": tasks + 10,
        "treatment_assignment_strategy": "complete_random",
        "session_assignment_strategy": "random",
        "role_assignment_strategy": "random",
        "random_seed": 42,
    }
    return [(key, values.get(key)) for key in SETTINGS]


def _profile_rows(flow: SurveyFlow, count: int) -> Rows:
    columns = list(flow.data.columns.values())
    names = ("ID", *(column.name for column in columns))
    questions = ("ID", *(column.field for column in columns))
    values = tuple(column.value or None for column in columns)
    return [names, questions, *((f"R{number}", *values) for number in range(1, count + 1))]


def _context_row() -> Sequence[Scalar | None]:
    return _task_row(task_id="context", type="context", task_order=0, llm_text=_CONTEXT,
                     var_name="context")  # fmt: skip


def _task_row(**values: Scalar | None) -> Sequence[Scalar | None]:
    none: dict[str, Scalar | None] = dict.fromkeys(FLAGS, 0)
    return [{**none, **values}.get(column) for column in COLUMNS["tasks"]]


def _write_tasks(flow: SurveyFlow) -> Iterator[Sequence[Scalar | None]]:
    # A task that cannot be written has no row. A note tells the researcher why.
    order, last_group = 0, None
    left_out: set[str] = set()
    for task in flow.tasks:
        text, options = _write_text(flow, task), _write_options(task.item)
        if problem := _find_problem(text, options, left_out):
            flow.notes.append(ImportNote(task.task_id, problem))
            left_out.add(task.variable)
            continue
        if task.group is None or task.group != last_group:
            order += 1
        last_group = task.group
        yield _task_row(
            task_id=task.task_id,
            type="private_question",
            task_order=order,
            is_adapted=int(text != task.human_text),
            human_text=task.human_text[:MAX_CELL],
            llm_text=text,
            var_name=task.variable,
            # Q1 and Q2 are two questions, not two rounds of one.
            measure=task.variable,
            var_type=task.item.var_type,
            response_options=options or None,
            randomize_response_order=int(task.item.is_shuffled),
            validate_response=int(bool(options) or task.item.var_type is not None),
        )


def _write_text(flow: SurveyFlow, task: PlannedTask) -> str:
    before = "".join(
        _text_under_condition(flow, condition, f"{text}\n\n")
        for condition, text in task.before
        if text
    )
    return _text_under_condition(flow, task.condition, f"{before}{task.text}")


def _find_problem(text: str, options: str, left_out: Collection[str]) -> str:
    for what, cell in (("text", text), ("list of choices", options)):
        if len(cell) > MAX_CELL:
            return (
                f"the question, because its {what} has {len(cell):,} characters and a cell of the "
                f"workbook takes {MAX_CELL:,}; shorten it in the survey"
            )
    try:
        needed = sorted(names_in(text) & set(left_out))
    except ExpressionProblem as problem:
        return (
            "the question, because the rules on who is asked it are too long for a workbook "
            f"({problem})"
        )
    if not needed:
        return ""
    return f"the question, because its text or condition needs {needed[0]}, which is left out"


def _text_under_condition(flow: SurveyFlow, condition: Condition, text: str) -> str:
    if condition is True:
        return text
    return f"{{% if {flow.write_condition(condition)} %}}{text}{{% endif %}}"


def _write_options(item: Item) -> str:
    if item.bounds is not None:
        return f"({number_text(item.bounds[0])}, {number_text(item.bounds[1])})"
    if not item.choices:
        return ""
    return escape_braces(json.dumps(list(item.choices.values()), ensure_ascii=False))


# --- the summary -------------------------------------------------------------------------------


def _describe(flow: SurveyFlow, tasks: int, respondents: int) -> list[str]:
    questions = len({task.question_id for task in flow.tasks})
    treatments, columns = flow.treatments.labels, flow.data.columns.values()
    lines = [
        f"Kept: {format_count(questions, 'question')} as {format_count(tasks, 'task')} (a task has "
        f"one answer), {format_count(len(treatments), 'treatment')}"
        + (f" ({shorten(', '.join(treatments), 200)})" if len(treatments) > 1 else "")
        + (f", embedded data {', '.join(column.name for column in columns)}" if columns else "")
    ]
    lines.append(
        f"To do: a survey holds no people, so the {respondents} respondents have no description. "
        "Describe one person in each row of agent_profiles, and write their number into "
        "num_sessions"
    )
    blank = [column.field for column in columns if not column.value]
    if blank:
        lines.append(
            "To do: the survey takes these values from its link or its contacts; fill in their "
            f"columns in agent_profiles: {', '.join(blank)}"
        )
    lines.append(
        "To do: a simulated respondent answers so far. Write the name of the model that answers "
        "into model_info, in place of synthetic"
    )
    notes = list(dict.fromkeys(flow.notes))
    write = NoteWriter(flow.survey).write
    lines += [write(note) for note in notes if note.is_left_out]
    return lines + [write(note) for note in notes if not note.is_left_out]
