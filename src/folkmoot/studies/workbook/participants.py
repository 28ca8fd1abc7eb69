"""Build one experiment per combination of constants, and assign participants to sessions.

All participants of a session have the same treatment.
"""
# Each draw has a separate random stream, so adding a treatment moves no participant to another
# session. All experiments of a workbook share one assignment, drawn before the first call.

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.provenance import Kind, Source, SourcedText, cell_id, enclose_text, quote_value
from folkmoot.randomness import generator
from folkmoot.studies.workbook.answers import Options, read_options, scalar_text
from folkmoot.studies.workbook.config import (
    LabelledPart,
    Problems,
    Profiles,
    Role,
    Scalar,
    Settings,
    Task,
    Treatment,
    Workbook,
    experiment_ids,
)
from folkmoot.studies.workbook.language.expressions import ExpressionProblem
from folkmoot.studies.workbook.language.placeholders import UnknownName, render_text, with_source
from folkmoot.studies.workbook.literals import NotALiteral

D = TypeVar("D", bound=LabelledPart)
# (text, its cell) → the filled text.
Filler = Callable[[str, str], SourcedText]


@dataclass(frozen=True)
class TaskInPlay:
    """A task of one experiment, with labels and options filled in."""

    # The placeholders of prompts are filled in when the task is asked.

    task: Task
    # The template of each role by label, in speaking order.
    prompts: Mapping[str, str]
    options: Options | Mapping[str, Options] | None
    # True if one text serves all roles of participants.
    shared: bool
    # The study file key of the task's texts.
    cell: str
    # The template for humans by role label, for the roles that have one.
    people_prompts: Mapping[str, str] = field(default_factory=dict)

    @property
    def var_name(self) -> str:
        return self.task.var_name

    def options_for(self, role: str) -> Options | None:
        return self.options.get(role) if isinstance(self.options, Mapping) else self.options


@dataclass(frozen=True)
class Experiment:
    """The experiment for one combination of constants."""

    id: str
    # The number of the experiment, from 1.
    number: int
    constants: Mapping[str, Scalar]
    # The values that placeholders have before the run: the constants.
    named: Mapping[str, object]
    treatments: Mapping[str, Treatment]
    roles: Mapping[str, Role]
    tasks: Mapping[str, TaskInPlay]
    workbook: Workbook

    def find_special_role(self, name: str) -> Role | None:
        """Return the special role with this name.

        Returns None if the workbook has no such role.
        """
        return next((role for role in self.roles.values() if role.special_name == name), None)


def constant_combinations(workbook: Workbook) -> Iterator[dict[str, Scalar]]:
    """Yield each combination of the constants' values."""
    # The last constant varies fastest.
    names = [constant.name for constant in workbook.constants]
    for values in itertools.product(*(constant.values for constant in workbook.constants)):
        yield dict(zip(names, values, strict=True))


def build_experiments(workbook: Workbook) -> list[Experiment]:
    """Return all experiments of a workbook."""
    # The workbook must have passed the design checks.
    ids = experiment_ids(workbook)
    results = (
        build_experiment(workbook, values, number, name)
        for number, (name, values) in enumerate(
            zip(ids, constant_combinations(workbook), strict=True), 1
        )
    )
    return [experiment for experiment, _ in results]


def build_experiment(
    workbook: Workbook, constants: Mapping[str, Scalar], number: int, name: str
) -> tuple[Experiment, list[Problem]]:
    """Return one experiment and its problems."""
    # A text that cannot be filled in stays a template.
    problems = Problems()
    sources = {
        constant: Source("value", cell_id("permutations.value", name, constant))
        for constant in constants
    }
    # Both `name` and `constant.name` name a constant.
    quoted = {
        constant_name: with_source(value, sources[constant_name], scalar_text(value))
        for constant_name, value in constants.items()
    }
    named: dict[str, object] = {
        **quoted,
        **{f"constant.{constant_name}": value for constant_name, value in quoted.items()},
    }

    def fill_text(text: str, where: str) -> SourcedText:
        try:
            return render_text(text, named)
        # `checks` reports it with the most similar name.
        except UnknownName:
            return SourcedText(text)
        except ExpressionProblem as problem:
            problems.add_problem(str(problem), where, problem.hint)
            return SourcedText(text)

    treatments = {
        str(treatment.label): treatment
        for treatment in (
            _fill_part(treatment, name, fill_text) for treatment in workbook.treatments
        )
    }
    roles = {
        str(role.label): role
        for role in (_fill_part(role, name, fill_text) for role in workbook.roles)
    }
    experiment = Experiment(
        name,
        number,
        constants,
        named,
        treatments,
        roles,
        {
            task.task_id: _build_task(task, n, roles, fill_text, problems)
            for n, task in enumerate(workbook.tasks)
        },
        workbook,
    )
    labels = len({treatment.label for treatment in workbook.treatments}) + len(
        {role.label for role in workbook.roles}
    )
    # Dicts drop equal labels, so the lengths show whether two have become one.
    if len(treatments) + len(roles) < labels:
        message = "two labels are equal after placeholders are filled in"
        problems.add_problem(message, hint="rename one")
    return experiment, problems.found


def _fill_part(part: D, experiment: str, fill: Filler) -> D:
    kind = "role" if isinstance(part, Role) else "treatment"
    where = part.at.get(f"{kind}_description", "")
    # The label is filled first, because the sources of the other texts contain it.
    label = fill(part.label, part.at.get(f"{kind}_label", ""))
    description = SourcedText(part.description)
    # A role's text may depend on the treatment, so it is filled in for each session.
    if kind == "treatment" or "treatment." not in description:
        description = fill(description, where)

    def enclose_cell(text: SourcedText, column: str) -> SourcedText:
        return enclose_text(
            text, Source("material", cell_id(f"{kind}s.{column}", experiment, label))
        )

    # `model_copy` does not validate, so the texts keep their sources.
    return part.model_copy(
        update={
            "label": enclose_cell(label, kind),
            "description": enclose_cell(description, "description"),
            "extra": {
                key: enclose_cell(fill(value, where), "attributes")
                for key, value in part.extra.items()
            },
        }
    )


def _build_task(
    task: Task,
    number: int,
    roles: Mapping[str, Role],
    fill: Filler,
    problems: Problems,
) -> TaskInPlay:
    options: Options | dict[str, Options] | None = None
    key = f"study.workbook.tasks.{number}.llm_text"
    where = task.at.get("response_options", "")
    # Constants are filled in before the literal is read, since they may hold options.
    if task.response_options is not None:
        try:
            options = read_options(str(fill(task.response_options, where)))
        except NotALiteral as error:
            hint = 'write a text, ["a", "b"], (0, 10) or {"Role 1": (0, 10)}'
            problems.add_problem(f"the response options cannot be read: {error}", where, hint)
    users = [label for label, role in roles.items() if role.special_name is None]
    people_prompts = _by_role(task.people_text, task.at.get("people_text", ""), users, fill)
    prompts = _by_role(task.llm_text, task.at.get("llm_text", ""), users, fill)
    is_shared = isinstance(task.llm_text, str)
    return TaskInPlay(task, prompts, options, is_shared, key, people_prompts)


def _by_role(
    texts: str | Mapping[str, str], where: str, users: Sequence[str], fill: Filler
) -> dict[str, str]:
    # A single text is the template of all roles in `users`.
    if isinstance(texts, str):
        return dict.fromkeys(users, texts) if texts else {}
    return {str(fill(label, where)): text for label, text in texts.items()}


# Maximum number of listed problems of one kind.
MOST_LISTED = 10
# The key of the study file that holds the questions of the profiles.
QUESTIONS = "study.workbook.profiles.questions"


@dataclass(frozen=True)
class SessionParticipant:
    """One participant in one session."""

    id: str
    # The index of the participant's profile, from 0.
    row: int
    role: str
    name: str


@dataclass(frozen=True)
class SessionPlan:
    """The plan of one session: its treatment and its participants."""

    # The number of the session, from 1.
    number: int
    # The session's label in the workbook, or the number.
    label: str
    treatment: str
    seats: tuple[SessionParticipant, ...]


@dataclass(frozen=True)
class _Group:
    # `rows` are row indices of the profiles.
    label: str
    rows: tuple[int, ...]


def assign_sessions(experiment: Experiment, seed: int) -> tuple[list[SessionPlan], list[Problem]]:
    """Return the sessions of an experiment and the problems of the assignment.

    If there are problems, the list of sessions is empty.
    """
    draw = _Assignment(experiment, seed)
    plans = draw.session_plans() if not draw.problems_by_kind else []
    problems = draw.list_problems()
    return ([] if problems else plans), problems


def profile_of(experiment: Experiment, seat: SessionParticipant) -> dict[str, dict[str, str]]:
    """Return a participant's answers to the profile questions, by column."""
    # The ID, the columns that assign participants, and blank answers are left out.
    profiles, settings = experiment.workbook.profiles, experiment.workbook.settings
    # Columns that assign participants would tell them about the design. A column that the settings
    # name and that assigns nothing is an answer like all others.
    hidden = {*manual_columns(settings, profiles).values(), profiles.id_column}
    recorded = cell_id("assignment.profile", experiment.id, seat.id)
    return {
        profiles.names[i]: {
            "question": quote_value(profiles.questions[i], "material", QUESTIONS),
            "answer": quote_value(answer, "persona", recorded, seat.id),
        }
        for i, answer in enumerate(profiles.rows[seat.row])
        if answer and i not in hidden
    }


def name_of(experiment: Experiment, seat: SessionParticipant, kind: Kind = "value") -> str:
    """Return a participant's name as a string that carries the source of the name."""
    # Other participants see the name.
    return quote_value(seat.name, kind, cell_id("assignment.name", experiment.id, seat.id), seat.id)


def assign_balanced(count: int, group_count: int, rng: np.random.Generator) -> list[int]:
    """Draw groups at random, and return the group index of each participant.

    The sizes of the groups differ by at most one.
    """
    per_group, remainder = divmod(count, group_count)
    groups = [group for group in range(group_count) for _ in range(per_group)]
    groups += [int(group) for group in rng.permutation(group_count)[:remainder]]
    return [groups[index] for index in rng.permutation(count)]


def manual_columns(settings: Settings, profiles: Profiles) -> dict[str, int | None]:
    """Return the index of each profile column that assigns treatments, sessions or roles.

    The index is None if the profiles lack the column.
    """
    # Only for what the settings assign by hand.
    return {
        what: profiles.column_index(getattr(settings, f"{what}_column") or "")
        for what in ("treatment", "session", "role")
        if getattr(settings, f"{what}_assignment_strategy") == "manual"
    }


class _Assignment:
    def __init__(self, experiment: Experiment, seed: int) -> None:
        self.experiment, self.seed = experiment, seed
        self.settings = experiment.workbook.settings
        self.profiles = experiment.workbook.profiles
        self.problems_by_kind: dict[str, list[Problem]] = {}
        by_hand = manual_columns(self.settings, self.profiles)
        self.columns = {what: column for what, column in by_hand.items() if column is not None}
        for what, column in by_hand.items():
            self._check_column(what, column)

    def _report_problem(self, kind: str, message: str, where: str = "", hint: str = "") -> None:
        self.problems_by_kind.setdefault(kind, []).append(Problem(message, where=where, hint=hint))

    def list_problems(self) -> list[Problem]:
        listed = [
            problem
            for problems_of_kind in self.problems_by_kind.values()
            for problem in problems_of_kind[:MOST_LISTED]
        ]
        # The further ones are counted, so that a wrong column does not fill the screen.
        omitted_counts = {
            kind: len(problems_of_kind) - MOST_LISTED
            for kind, problems_of_kind in self.problems_by_kind.items()
        }
        return listed + [
            Problem(f"{count} more like this: {kind}")
            for kind, count in omitted_counts.items()
            if count > 0
        ]

    def session_plans(self) -> list[SessionPlan]:
        groups = self._draw_sessions()
        return [
            SessionPlan(number, group.label, treatment, self._fill_seats(group, number))
            for number, (group, treatment) in enumerate(
                zip(groups, self._assign_treatments(groups), strict=True), 1
            )
        ]

    def _check_column(self, what: str, column: int | None) -> None:
        name = getattr(self.settings, f"{what}_column")
        where = self.settings.at.get(f"{what}_column", "")
        if not name:
            message = f"{what}s are assigned manually, but no column is named"
            self._report_problem("column", message, where, "name a column of the profiles")
        elif column is None:
            hint = did_you_mean(name, self.profiles.names, "give the name in row 1 or row 2")
            self._report_problem("column", f"the profiles have no column {name!r}", where, hint)
        elif (match_count := len(self.profiles.matching_columns(name))) > 1:
            message = f"{match_count} columns have the question {name!r}"
            self._report_problem("column", message, where, "give the name in row 1")

    def _draw_sessions(self) -> list[_Group]:
        if "session" in self.columns:
            return self._manual_sessions(self.columns["session"])
        rng = generator(self.seed, ("assignment", "sessions"))
        session_count, size = self.settings.num_sessions, self.settings.num_agents_per_session
        people = len(self.profiles.rows)
        pools: dict[str, list[int]] = {"": list(range(people))}
        if "treatment" in self.columns:
            # A treatment belongs to a session, so participants of one treatment sit together.
            pools = self._rows_by_value(self.columns["treatment"])
        groups: list[tuple[int, ...]] = []
        for rows in pools.values():
            drawn = [rows[index] for index in rng.permutation(len(rows))]
            # Only full sessions are played. Remaining respondents take no part.
            group_numbers = range(len(drawn) // size)
            groups += [
                tuple(sorted(drawn[number * size : (number + 1) * size]))
                for number in group_numbers
            ]
        if len(groups) < session_count:
            treatment_text = " of one treatment" if "treatment" in self.columns else ""
            self._report_problem(
                "sessions",
                f"{session_count} sessions of {size} need more "
                f"respondents{treatment_text} than the available {people}, which fill "
                f"{len(groups)}",
                self.settings.at.get("num_sessions", ""),
                "add respondents or lower num_sessions or the size of sessions",
            )
            return []
        # If respondents fill more sessions than wanted, draw which of them are played.
        chosen = (
            sorted(rng.permutation(len(groups))[:session_count])
            if len(groups) > session_count
            else range(session_count)
        )
        return [_Group(str(number), groups[index]) for number, index in enumerate(chosen, start=1)]

    def _rows_by_value(self, column: int) -> dict[str, list[int]]:
        members: dict[str, list[int]] = {}
        for row, cells in enumerate(self.profiles.rows):
            if cells[column]:
                members.setdefault(cells[column], []).append(row)
        return members

    def _manual_sessions(self, column: int) -> list[_Group]:
        members = self._rows_by_value(column)
        session_count, size = self.settings.num_sessions, self.settings.num_agents_per_session
        if len(members) != session_count:
            self._report_problem(
                "sessions",
                f"the column {self.profiles.names[column]} names {len(members)} "
                f"sessions, but {session_count} "
                "must be played",
                self.settings.at.get("num_sessions", ""),
                f"write {len(members)} or blank the sessions that should not be played",
            )
        for label, rows in members.items():
            if len(rows) != size:
                self._report_problem(
                    "session sizes",
                    f"session {label} has {len(rows)} respondents, not {size}",
                    self.profiles.cell_address(rows[0], column),
                    "move respondents, or change the number of agents per session",
                )
        return [_Group(label, tuple(rows)) for label, rows in members.items()]

    def _assign_treatments(self, groups: Sequence[_Group]) -> list[str]:
        labels = list(self.experiment.treatments)
        if "treatment" in self.columns:
            return [self._manual_treatment(group, self.columns["treatment"]) for group in groups]
        if not labels:
            return [""] * len(groups)
        # A separate stream: the number of arms does not affect the draw of sessions.
        rng = generator(self.seed, ("assignment", "treatments"))
        if self.settings.treatment_assignment_strategy == "simple_random":
            return [labels[index] for index in rng.integers(len(labels), size=len(groups))]
        return [labels[i] for i in assign_balanced(len(groups), len(labels), rng)]

    def _manual_treatment(self, group: _Group, column: int) -> str:
        labels = [self.profiles.rows[row][column] for row in group.rows]
        self._check_labels("treatment", group, column, list(self.experiment.treatments))
        if len(set(labels)) > 1:
            self._report_problem(
                "mixed sessions",
                f"session {group.label} mixes the treatments {', '.join(sorted(set(labels)))}",
                self.profiles.cell_address(group.rows[0], column),
                "a treatment belongs to a whole session",
            )
        return labels[0]

    def _check_labels(self, what: str, group: _Group, column: int, known: Sequence[str]) -> bool:
        is_valid = True
        for row in group.rows:
            label = self.profiles.rows[row][column]
            if label not in known:
                is_valid = False
                hint = did_you_mean(label, known, f"one of {', '.join(known)}")
                message = f"there is no {what} {label!r}" if label else f"the {what} is blank"
                self._report_problem(
                    f"{what} labels", message, self.profiles.cell_address(row, column), hint
                )
        return is_valid

    def _fill_seats(self, group: _Group, number: int) -> tuple[SessionParticipant, ...]:
        labels = [
            label for label, role in self.experiment.roles.items() if role.special_name is None
        ]
        if not labels:
            return ()
        if "role" in self.columns:
            column = self.columns["role"]
            if not self._check_labels("role", group, column, labels):
                return ()
            roles = [self.profiles.rows[row][column] for row in group.rows]
        elif len(labels) > len(group.rows):
            self._report_problem(
                "roles",
                f"{len(labels)} roles cannot be assigned to {len(group.rows)} participants",
                self.settings.at.get("num_agents_per_session", ""),
                "a session needs at least one participant for each role",
            )
            return ()
        else:
            # One stream per session, so that a further session changes no roles of the others.
            rng = generator(self.seed, ("assignment", "roles", str(number)))
            roles = [labels[i] for i in assign_balanced(len(group.rows), len(labels), rng)]
        # The order of roles in the sheet is the order of seats, and so the default order of
        # speaking.
        seated = sorted(
            zip(roles, group.rows, strict=True), key=lambda pair: (labels.index(pair[0]), pair[1])
        )
        return self._name_seats(seated)

    def _name_seats(self, seated: Sequence[tuple[str, int]]) -> tuple[SessionParticipant, ...]:
        role_counts = Counter(role for role, _ in seated)
        used_counts: Counter[str] = Counter()
        taken_names = set(self.experiment.roles)
        seats: list[SessionParticipant] = []
        for role, row in seated:
            used_counts[role] += 1
            name = role if role_counts[role] == 1 else f"{role} {used_counts[role]}"
            # Another role may be called "Player 1", and two participants must not share a name.
            while role_counts[role] > 1 and name in taken_names:
                name += "'"
            taken_names.add(name)
            seats.append(
                SessionParticipant(
                    self.profiles.rows[row][self.profiles.id_column], row, role, name
                )
            )
        return tuple(seats)
