"""Constants filled in: a workbook and one combination of values give one `Experiment`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from folkmoot.errors import Problem
from folkmoot.studies.workbook.answers import NotALiteral, Options, read_options
from folkmoot.studies.workbook.config import Described, Role, Scalar, Task, Treatment, Workbook
from folkmoot.studies.workbook.placeholders import UNDEFINED, TemplateProblem, render
from folkmoot.studies.workbook.sheets import Problems

D = TypeVar("D", bound=Described)
Filler = Callable[[str, str], str]  # (text, its cell) → the text filled in


@dataclass(frozen=True)
class TaskInPlay:
    """A task with labels and options filled in; its prompts stay templates until they are put.

    `prompts`: role label → template in speaking order; `shared` when the cell was plain text for
    all user roles.
    """

    task: Task
    prompts: Mapping[str, str]
    options: Options | Mapping[str, Options] | None
    shared: bool

    @property
    def var_name(self) -> str:
        return self.task.var_name

    def options_for(self, role: str) -> Options | None:
        return self.options.get(role) if isinstance(self.options, Mapping) else self.options


@dataclass(frozen=True)
class Experiment:
    """One permutation, ready to be played. `number` counts from 1."""

    id: str
    number: int
    constants: Mapping[str, Scalar]
    treatments: Mapping[str, Treatment]
    roles: Mapping[str, Role]
    tasks: Mapping[str, TaskInPlay]
    workbook: Workbook

    def special(self, which: str) -> Role | None:
        """The role of that special name, if it is defined."""
        return next((r for r in self.roles.values() if r.special == which), None)


def count_permutations(workbook: Workbook) -> int:
    """How many experiments the constants spin off."""
    return math.prod(len(c.values) for c in workbook.constants)


def combinations(workbook: Workbook) -> Iterator[dict[str, Scalar]]:
    """The cartesian product of all constants; the last row varies fastest."""
    names = [c.name for c in workbook.constants]
    for values in itertools.product(*(c.values for c in workbook.constants)):
        yield dict(zip(names, values, strict=True))


def experiment_ids(workbook: Workbook) -> list[str]:
    """`<experiment_id>`, or `<experiment_id>_1`, `_2`, … when there is more than one."""
    base, n = workbook.settings.experiment_id, count_permutations(workbook)
    return [base] if n == 1 else [f"{base}_{i}" for i in range(1, n + 1)]


def experiments(workbook: Workbook) -> list[Experiment]:
    """All permutations of a workbook whose design was checked."""
    ids = experiment_ids(workbook)
    built = (
        build(workbook, values, number, name)
        for number, (name, values) in enumerate(zip(ids, combinations(workbook), strict=True), 1)
    )
    return [experiment for experiment, _ in built]


def build(
    workbook: Workbook, constants: Mapping[str, Scalar], number: int, name: str
) -> tuple[Experiment, list[Problem]]:
    """One permutation and what was wrong in it; every text that failed stays as it was."""
    problems = Problems()
    values = {**constants, "constant": dict(constants)}

    def fill(text: str, where: str) -> str:
        try:
            return render(text, values).strip()
        except TemplateProblem as problem:
            if problem.hint != UNDEFINED:  # `checks` reports those with the likely name
                problems.add(str(problem), where, problem.hint)
            return text

    treatments = {t.label: t for t in (_described(t, fill) for t in workbook.treatments)}
    roles = {r.label: r for r in (_described(r, fill) for r in workbook.roles)}
    experiment = Experiment(
        name,
        number,
        constants,
        treatments,
        roles,
        {t.task_id: _task(t, roles, fill, problems) for t in workbook.tasks},
        workbook,
    )
    labels = len({t.label for t in workbook.treatments}) + len({r.label for r in workbook.roles})
    if len(treatments) + len(roles) < labels:
        message = "two labels become one when placeholders are filled in"
        problems.add(message, hint="rename one")
    return experiment, problems.found


def _described(part: D, fill: Filler) -> D:
    what = "role" if isinstance(part, Role) else "treatment"
    where = part.at.get(f"{what}_description", "")
    description = part.description
    # What of a role depends on the treatment is filled in for each session.
    if what == "treatment" or "treatment." not in description:
        description = fill(description, where)
    return part.model_copy(
        update={
            "label": fill(part.label, part.at.get(f"{what}_label", "")),
            "description": description,
            "extra": {k: fill(v, where) for k, v in part.extra.items()},
        }
    )


def _task(
    task: Task,
    roles: Mapping[str, Role],
    fill: Filler,
    problems: Problems,
) -> TaskInPlay:
    options: Options | dict[str, Options] | None = None
    where = task.at.get("response_options", "")
    if task.response_options is not None:
        try:
            options = read_options(fill(task.response_options, where))
        except NotALiteral as error:
            hint = 'write a text, ["a", "b"], (0, 10) or {"Role 1": (0, 10)}'
            problems.add(f"the response options cannot be read: {error}", where, hint)
    if isinstance(task.llm_text, str):
        users = [r.label for r in roles.values() if r.special is None]
        return TaskInPlay(task, dict.fromkeys(users, task.llm_text), options, True)
    where = task.at.get("llm_text", "")
    prompts = {fill(label, where): text for label, text in task.llm_text.items()}
    return TaskInPlay(task, prompts, options, False)
