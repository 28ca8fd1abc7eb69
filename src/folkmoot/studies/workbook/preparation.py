"""Before a run: load and check the workbook, list notes and expected rows, and preview prompts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from openpyxl.utils.cell import column_index_from_string

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Utterance, build_messages
from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.engine.study.preview import Preview
from folkmoot.errors import InputError, Problem
from folkmoot.hints import shorten
from folkmoot.measures.inference.estimates import format_count
from folkmoot.measures.inference.power import DesignSize
from folkmoot.models.images import images_in_messages
from folkmoot.provenance import SourcedText
from folkmoot.randomness import generator
from folkmoot.studies.workbook.answers import (
    FreeOptions,
    ListedOptions,
    NumberRange,
    read_options,
)
from folkmoot.studies.workbook.asking import build_task_prompt, fill_prompt
from folkmoot.studies.workbook.checks import (
    cells_with_images,
    cells_with_unusable_images,
    design_problems,
)
from folkmoot.studies.workbook.config import (
    Task,
    Workbook,
    WorkbookConfig,
    count_permutations,
    settings_of,
)
from folkmoot.studies.workbook.language.expressions import (
    ExpressionProblem,
    counted_names,
    in_order,
    names_used,
    parse_expression,
)
from folkmoot.studies.workbook.language.placeholders import OPTIONS, empty_branches, names_in
from folkmoot.studies.workbook.literals import NotALiteral
from folkmoot.studies.workbook.participants import (
    Experiment,
    SessionParticipant,
    TaskInPlay,
    assign_sessions,
    build_experiment,
    build_experiments,
    constant_combinations,
    manual_columns,
)
from folkmoot.studies.workbook.protocol import ordered_tasks, sessions_of
from folkmoot.studies.workbook.sessions import (
    EMPTY_PROMPT,
    POSER,
    SessionState,
    participant_speaker,
    special_speaker,
)
from folkmoot.studies.workbook.spreadsheet.layouts import COMPUTED, LAYOUTS, SHEETS
from folkmoot.studies.workbook.spreadsheet.reading import look_alikes, read_workbook
from folkmoot.studies.workbook.spreadsheet.sheets import rows_in_words

# In a long questionnaire, nearly every question has a condition.
MAX_BRANCH_NOTES = 5
# Sheet name → rank, to list problems in the order in which a person goes through the sheets.
_RANK = {
    layout.sheet_name(own_name): rank
    for layout in LAYOUTS
    for rank, own_name in enumerate((*SHEETS, COMPUTED))
}


def load_workbook_config(path: Path) -> WorkbookConfig:
    """Read a workbook and return its configuration.

    Raises InputError with all problems of the workbook.
    """
    workbook, problems = read_workbook(path)
    if workbook is not None:
        found_problems = design_problems(
            workbook, seated=not _concerns_assignment(problems, workbook)
        )
        # A duplicate within one column was reported by the reader.
        duplicate_cells = {
            problem.where for problem in problems if problem.message.startswith("duplicate")
        }
        problems += [
            replace(problem, file=path.name)
            for problem in found_problems
            if not (
                problem.message.startswith("duplicate name") and problem.where in duplicate_cells
            )
        ]
    if problems or workbook is None:
        # The same mistake may be found by the reader and by the checks.
        sorted_problems = sorted(dict.fromkeys(problems), key=_problem_sort_key)
        raise InputError(sorted_problems)
    values, _ = settings_of(workbook)
    return WorkbookConfig(study="workbook", workbook=workbook, source=path.name, **values)


def _problem_sort_key(problem: Problem) -> tuple[int, str, int, int]:
    # Problems of the whole file come first, then those of unknown sheets.
    sheet, _, cell = problem.where.partition("!")
    match = re.fullmatch(r"([A-Z]+)(\d+)", cell)
    row, column = (int(match[2]), column_index_from_string(match[1])) if match else (0, 0)
    return (_RANK.get(sheet, -1), sheet, row, column)


def _concerns_assignment(problems: list[Problem], workbook: Workbook) -> bool:
    # The assignment is not checked if one of its sheets has a problem. The check would report the
    # same problem twice.
    addresses = [workbook.profiles.sheet, *workbook.settings.at.values()]
    addresses += [role.at.get("role_label", "") for role in workbook.roles]
    sheets = {address.partition("!")[0] for address in addresses}
    return any(problem.where.partition("!")[0] in sheets for problem in problems)


def check_config(config: WorkbookConfig, _folder: Path) -> list[Problem]:
    """Return the problems that depend on the settings of the run."""
    # Examples are too many experiments, and a design that `--set` has made impossible.
    count = count_permutations(config.workbook)
    if count <= config.max_permutations:
        found = design_problems(config.workbook, config.random_seed)
        return [replace(problem, file=config.source) for problem in found]
    maximum = config.max_permutations
    return [
        Problem(
            f"the constants make {count:,} experiments, more than {maximum:,}",
            file=config.source,
            where=config.workbook.constants[0].at.get("value", ""),
            hint=f"shorten the lists, or allow it: --set max_permutations={count}",
        )
    ]


def limit_sessions(config: WorkbookConfig, session_limit: int) -> WorkbookConfig:
    """Return a configuration with at most `session_limit` sessions of each experiment."""
    first_sessions = min(session_limit, config.first_sessions or session_limit)
    return config.model_copy(update={"first_sessions": first_sessions})


def expected_rows(sealed: Mapping[str, Any]) -> list[ExpectedRows]:
    """Return the rows of `sessions` and `assignment` that the pre-registered plan requires."""
    sessions = sealed.get("assignment", [])
    experiments = [{"experiment_id": entry["id"]} for entry in sealed.get("experiments", [])]
    # A single experiment needs no id in the names of rows.
    experiments = experiments if len(experiments) > 1 else [{}]
    session_rows = tuple(
        {**experiment, "session": session["session"], "treatment": session["treatment"]}
        for experiment in experiments
        for session in sessions
    )
    # The assignment is the same in all experiments, so it needs no experiment id.
    seats = tuple(
        {
            "session": session["session"],
            "participant_id": participant["ID"],
            "role": participant["role"],
        }
        for session in sessions
        for participant in session["participants"]
    )
    return [
        ExpectedRows(
            "sessions",
            (*experiments[0], "session"),
            session_rows,
            "session",
            done=("ended", "completed"),
            part="session",
        ),
        ExpectedRows("assignment", ("session", "participant_id"), seats),
    ]


# --- notes -------------------------------------------------------------------------------------


def config_advisories(config: WorkbookConfig) -> list[str]:
    """Return the advisories for the researcher: layout, model, and limits that will be reached."""
    workbook = config.workbook
    _, about_model = settings_of(workbook)
    count = count_permutations(workbook)
    # Advisories on texts use the first experiment, since there may be very many.
    first = build_experiment(
        workbook, next(constant_combinations(workbook)), 1, workbook.settings.experiment_id
    )[0]
    return [
        *workbook.notes,
        *about_model,
        *([f"the constants make {count} experiments"] if count > 1 else []),
        *_constant_notes(workbook, count),
        *_seat_notes(first, config.random_seed),
        *_limit_notes(first),
        *_option_notes(first),
        *_branch_notes(workbook),
        *_image_notes(config),
        *_unread_notes(first),
        *_count_notes(workbook),
        *_column_notes(workbook),
    ]


def _seat_notes(experiment: Experiment, seed: int) -> list[str]:
    workbook = experiment.workbook
    profiles = workbook.profiles
    plans, problems = assign_sessions(experiment, seed)
    if problems:
        return []
    seated = {seat.row for plan in plans for seat in plan.seats}
    columns = manual_columns(workbook.settings, profiles)
    lines_by_reason: dict[str, list[int]] = {}
    for row, cells in enumerate(profiles.rows):
        if row not in seated:
            # A respondent without a label in one of these columns was left out on purpose.
            manual_columns_of_row = [columns.get("session"), columns.get("treatment")]
            blank_columns = [
                profiles.names[column]
                for column in manual_columns_of_row
                if column is not None and not cells[column]
            ]
            reason = (
                f"{' and '.join(blank_columns)} blank"
                if blank_columns
                else "not drawn for a session"
            )
            lines_by_reason.setdefault(reason, []).append(profiles.lines[row])
    notes = [
        f"{profiles.sheet}: {len(lines)} of {len(profiles.rows)} respondents take no part "
        f"({reason}): {rows_in_words(lines)}"
        for reason, lines in lines_by_reason.items()
    ]
    played = {plan.treatment for plan in plans}
    notes += [
        f"{treatment.at.get('treatment_label', '')}: no session has the treatment {treatment.label}"
        for treatment in experiment.treatments.values()
        if treatment.label not in played
    ]
    session = columns.get("session")
    labels = {
        "sessions": [cells[session] for cells in profiles.rows] if session is not None else [],
        "treatments": list(experiment.treatments),
        "roles": list(experiment.roles),
        "variables": [task.var_name for task in workbook.tasks],
    }
    return notes + [
        f"the {what} {' and '.join(map(repr, alike))} look alike, but they are different"
        for what, names in labels.items()
        for alike in look_alikes(names)
    ]


def _limit_notes(experiment: Experiment) -> list[str]:
    settings = experiment.workbook.settings
    rounds = [
        task_in_play
        for task_in_play in experiment.tasks.values()
        if task_in_play.task.type != "context"
    ]
    # Each speaker of a task writes one message.
    needed = sum(_speaker_count(task_in_play, experiment) for task_in_play in rounds)
    notes = []
    limit = settings.max_conversation_length
    if limit is not None and needed > limit:
        notes.append(
            f"a session needs about {needed} messages, max_conversation_length is {limit}: "
            "sessions will end early, and questions that were not asked are missing"
        )
    if settings.max_rounds is not None and len(rounds) > settings.max_rounds:
        notes.append(
            f"there are {len(rounds)} rounds, max_num_rounds is {settings.max_rounds}: "
            "sessions will end early"
        )
    return notes


def _constant_notes(workbook: Workbook, count: int) -> list[str]:
    # An unused constant only repeats the same experiment.
    used_names = set().union(
        *(names_used(parse_expression(computed.expression)) for computed in workbook.computed)
    )
    for text in _template_texts(workbook):
        # The checks report texts that cannot be parsed.
        with suppress(ExpressionProblem):
            used_names |= {name.removeprefix("constant.") for name in names_in(text)}
    notes = []
    for constant in workbook.constants:
        if constant.name not in used_names:
            added = count - count // len(constant.values)
            adds = (
                f"it adds {format_count(added, 'experiment')} with the same texts" if added else ""
            )
            where = constant.at.get("name", "")
            note = f"{where}: no text uses the constant {constant.name}"
            notes.append(f"{note}; {adds}" if adds else note)
    return notes


def _template_texts(workbook: Workbook) -> Iterator[str]:
    for part in (*workbook.treatments, *workbook.roles):
        yield from (part.label, part.description, *part.extra.values())
    for task in workbook.tasks:
        by_role = {"": task.llm_text} if isinstance(task.llm_text, str) else task.llm_text
        yield from (*by_role, *by_role.values(), task.response_options or "")


def _branch_notes(workbook: Workbook) -> list[str]:
    notes = []
    for task in workbook.tasks:
        by_role = {"": task.llm_text} if isinstance(task.llm_text, str) else task.llm_text
        for role, text in by_role.items():
            branches = empty_branches(text) if task.type != "context" else []
            if branches:
                where = task.at.get("llm_text", "")
                role_text = f" of {role}" if role else ""
                count = format_count(len(branches), "branch", "branches")
                notes.append(
                    f"{where}: the prompt{role_text} is empty in {count} "
                    f"({'; '.join(branches)}): there {task.task_id} asks nothing, and the answer "
                    f"is missing with the reason {EMPTY_PROMPT}"
                )
    more = len(notes) - MAX_BRANCH_NOTES
    if more > 1:
        notes[MAX_BRANCH_NOTES:] = [f"{more:,} more prompts are empty in a branch"]
    return notes


def _speaker_count(task: TaskInPlay, experiment: Experiment) -> int:
    # Roles are assumed to be equally frequent.
    speaking_roles = [
        experiment.roles[label] for label in task.prompts if label in experiment.roles
    ]
    special_count = sum(1 for role in speaking_roles if role.special_name)
    participant_role_count = sum(
        1 for role in experiment.roles.values() if role.special_name is None
    )
    participant_count = experiment.workbook.settings.num_agents_per_session
    return special_count + round(
        participant_count * (len(speaking_roles) - special_count) / max(1, participant_role_count)
    )


def _option_notes(experiment: Experiment) -> list[str]:
    notes = []
    for play in experiment.tasks.values():
        options = play.options.values() if isinstance(play.options, dict) else [play.options]
        is_asked = play.task.type != "context"
        has_list = any(isinstance(option, ListedOptions) for option in options)
        if play.task.randomize_response_order and is_asked and not has_list:
            notes.append(
                f"{play.task.at.get('randomize_response_order')}: there is no list of options "
                "to randomize, so the setting has no effect"
            )
        if play.task.validate_response and any(
            isinstance(option, FreeOptions) for option in options
        ):
            type_name = play.task.var_type or "text"
            notes.append(
                f"{play.task.at.get('response_options')}: options in words are only checked to be "
                f"of type {type_name}; to enforce options, write a range like (0, 10) or a list"
            )
    return notes


def _image_notes(config: WorkbookConfig) -> list[str]:
    if config.images == "placeholder":
        return [
            "images: placeholder: models read [image] in place of each image, and no image is sent"
        ]
    cells = cells_with_images(config)
    note = "images are shown, and their tokens are not part of the estimate: "
    return [note + ", ".join(cells)] if cells else []


def _unread_notes(experiment: Experiment) -> list[str]:
    notes = [
        f"the sheet {name} has pictures or text boxes, and participants see none of them: write "
        "texts in cells, and images as addresses"
        for name in experiment.workbook.sheets_with_drawings
    ]
    for where, mark in cells_with_unusable_images(experiment).items():
        notes.append(
            f"{where}: {shorten(mark, 60)} is no image that can be sent, so participants read it "
            "as text: write an address that begins with https:// (%20 for a space, %28 and %29 "
            "for parentheses)"
        )
    return notes


def _count_notes(workbook: Workbook) -> list[str]:
    # `count` takes a condition, and in a spreadsheet program it counts all numbers.
    may_be_zero = {task.var_name for task in workbook.tasks if _may_be_zero(task)}
    return [
        f"{item.at.get('expression', '')}: count({name}) counts the participants whose {name} is "
        f"not 0; to count all who answered, write count({name} == {name})"
        for item in workbook.computed
        for name in counted_names(parse_expression(item.expression))
        if name in may_be_zero
    ]


def _may_be_zero(task: Task) -> bool:
    try:
        options = read_options(task.response_options or "")
    except NotALiteral:
        return False
    if isinstance(options, NumberRange):
        return options.low <= 0 <= options.high
    return task.var_type in ("integer", "float")


def _column_notes(workbook: Workbook) -> list[str]:
    settings, notes = workbook.settings, []
    for what in ("treatment", "session", "role"):
        column = getattr(settings, f"{what}_column")
        is_manual = getattr(settings, f"{what}_assignment_strategy") == "manual"
        if column and not is_manual:
            note = f"{what}_column is only used when {what}s are assigned manually"
            if workbook.profiles.column_index(column) is not None and settings.show_profile:
                note += f": participants will see the column {column!r} as part of their profile"
            notes.append(note)
        if not column and what in (name.casefold() for name in workbook.profiles.names):
            notes.append(
                f"the profile column {what!r} assigns nothing: participants will see it as part "
                "of their profile"
            )
    return notes


def design_size(config: WorkbookConfig, _folder: Path) -> DesignSize:
    """Return how many participants and sessions each treatment has, for `folkmoot power`."""
    # All experiments have the same sessions. If treatments have different numbers of sessions, the
    # smallest number counts. The sessions of a workbook without treatments are in one arm.
    experiment = build_experiments(config.workbook)[0]
    sessions = Counter(plan.treatment for plan in sessions_of(config, experiment))
    treatments = [treatment.label for treatment in config.workbook.treatments]
    fewest_sessions = min(sessions[treatment] for treatment in treatments or sessions)
    participant_count = config.workbook.settings.num_agents_per_session
    if participant_count == 1:
        return DesignSize("independent", len(treatments) or 1, fewest_sessions)
    return DesignSize(
        "clustered", len(treatments) or 1, fewest_sessions, participant_count, "session"
    )


# --- the first prompts ------------------------------------------------------------------------

STORY = SourcedText("(Backstory of this participant, which a model writes when the run starts.)")
SAID = "earlier messages are left out; they come before the last message"
NOT_YET = "answers that do not exist yet are shown as “not available”"


def preview_prompts(config: WorkbookConfig, prompts: PromptLibrary) -> list[Preview]:
    """Return the first prompt of each role in each experiment and treatment."""
    previews: list[Preview] = []
    for experiment in build_experiments(config.workbook):
        computed = in_order(experiment.workbook.computed)
        # One preview per treatment and role, however many sessions there are.
        seen: set[tuple[str, str]] = set()
        for plan in sessions_of(config, experiment):
            order = ordered_tasks(experiment, plan, config.random_seed)
            sends_images = config.images == "send"
            state = SessionState(experiment, plan, order, computed, config.reasks, sends_images)
            speakers: list[SessionParticipant | str] = [*plan.seats, *state.special_roles]
            for speaker in speakers:
                treatment_and_role = (
                    plan.treatment,
                    speaker.role if isinstance(speaker, SessionParticipant) else speaker,
                )
                task = _first_task(state, speaker)
                if task is not None and treatment_and_role not in seen:
                    seen.add(treatment_and_role)
                    previews.append(
                        _preview_prompt(config.random_seed, prompts, state, task, speaker)
                    )
    return previews


def _first_task(state: SessionState, speaker: SessionParticipant | str) -> TaskInPlay | None:
    tasks_in_turn = (task for task in _asked_tasks(state) if speaker in state.in_play(task))
    return next(
        (task for task in tasks_in_turn if fill_prompt(state, task, speaker, OPTIONS).text), None
    )


def _asked_tasks(state: SessionState) -> list[TaskInPlay]:
    return [task for task in state.order if task.task.type != "context"]


def _preview_prompt(
    seed: int,
    prompts: PromptLibrary,
    state: SessionState,
    task: TaskInPlay,
    addressee: SessionParticipant | str,
) -> Preview:
    experiment, task_id = state.experiment, task.task.task_id
    history = EMPTY_TRANSCRIPT
    question = fill_prompt(state, task, addressee, "")
    if isinstance(addressee, SessionParticipant):
        story = STORY if experiment.workbook.settings.include_backstories else ""
        speaker = participant_speaker(prompts.render_prompt, state, addressee, story)
        session = f"{experiment.id}.{state.plan.number}"
        # The same path of names as in the run, so that the preview shuffles options as the run
        # will.
        rng = generator(seed, ("sessions", session, task_id, addressee.id))
        task_prompt = build_task_prompt(prompts.render_prompt, rng, state, task, addressee)
        prompt, images = task_prompt.prompt, task_prompt.images
        if task.task.type == "discussion":
            history = EMPTY_TRANSCRIPT + Utterance(
                POSER.id, question.text, POSER.name, images=question.images
            )
    else:
        speaker = special_speaker(prompts.render_prompt, state, addressee)
        prompt, images = question.text, question.images
    messages = build_messages(speaker, history, prompt).messages
    constants = ", ".join(f"{name} = {value}" for name, value in experiment.constants.items())
    role = addressee.role if isinstance(addressee, SessionParticipant) else addressee
    place = f"task {task_id} of session {state.plan.label}"
    title = " · ".join(filter(None, (experiment.id, constants, state.plan.treatment, role, place)))
    is_first = task is _asked_tasks(state)[0]
    notes = [] if is_first and state.in_play(task)[0] is addressee else [SAID]
    notes += [] if is_first else [NOT_YET]
    images = images_in_messages({*speaker.images, *images}, messages)
    return Preview(title, messages, images, "; ".join(notes))
