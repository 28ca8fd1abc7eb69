"""Checks of the experiment as a whole: do the sheets fit each other, can it be played?

They need the model only, so that they run when a workbook is read and again after `--set`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rapidfuzz import fuzz, process

from folkmoot.errors import Problem
from folkmoot.studies.workbook.assignment import assign
from folkmoot.studies.workbook.computed import (
    BadExpression,
    in_order,
    names_used,
    parse_expression,
)
from folkmoot.studies.workbook.model import SPECIAL_ROLES, Computed, Workbook, special_role
from folkmoot.studies.workbook.permutations import (
    Experiment,
    build,
    combinations,
    count_permutations,
    experiment_ids,
)
from folkmoot.studies.workbook.templates import NAMESPACES, OPTIONS
from folkmoot.studies.workbook.wording import task_problems, text_problems

MOST_PERMUTATIONS_CHECKED = 1_000
FIXED_COLUMNS = ("experiment_id", "session", "treatment", "ID", "role", "invalid", "missing")


def design_problems(
    workbook: Workbook, seed: int | None = None, *, seated: bool = True
) -> list[Problem]:
    """Everything that keeps this workbook from being played, in the order of the sheets.

    `seated=False` leaves the assignment out, which makes no sense of sheets that are wrong.
    """
    problems = [
        *_endpoint(workbook),
        *_names(workbook),
        *_computed(workbook),
        *text_problems(workbook),
    ]
    for experiment, found in _sample(workbook):
        problems += [*found, *_specials(experiment), *task_problems(experiment)]
        if seated and experiment.number == 1 and workbook.profiles.rows:
            seed = workbook.settings.random_seed if seed is None else seed
            problems += assign(experiment, seed)[1]
    return list(dict.fromkeys(problems))


def _sample(workbook: Workbook) -> Iterator[tuple[Experiment, list[Problem]]]:
    """The permutations to look at: all, up to a bound that keeps a check quick."""
    if count_permutations(workbook) > MOST_PERMUTATIONS_CHECKED:
        first = list(islice(combinations(workbook), MOST_PERMUTATIONS_CHECKED))
        ids = [workbook.settings.experiment_id] * len(first)
    else:
        first = list(combinations(workbook))
        ids = experiment_ids(workbook)
    for number, (name, constants) in enumerate(zip(ids, first, strict=True), 1):
        yield build(workbook, constants, number, name)


def _endpoint(workbook: Workbook) -> Iterator[Problem]:
    settings = workbook.settings
    where = settings.at.get("api_endpoint", "")
    url = settings.api_endpoint
    if settings.model_info == "hf-inference" and not url:
        yield Problem("hf-inference needs the URL of its endpoint", where=where, mend="fill it in")
    if url and not url.startswith(("http://", "https://")):
        yield Problem(f"{url!r} is no URL", where=where, mend="it begins with https://")


def _specials(experiment: Experiment) -> Iterator[Problem]:
    """Each special role is there once, whatever case it is written in; nobody has its name."""
    for special in SPECIAL_ROLES:
        labels = [r for r in experiment.roles.values() if r.special == special]
        for role in labels[1:]:
            yield Problem(
                f"the role {special} is there twice, as {role.label!r} too",
                where=role.at.get("role_label", ""),
                mend="keep one of them",
            )
    profiles = experiment.workbook.profiles
    for row, identifier in enumerate(profiles.ids()):
        if special_role(identifier):
            yield Problem(
                f"the ID {identifier!r} is the name of a special role",
                where=profiles.cell(row, profiles.id_column),
                mend="give the respondent another ID",
            )


def _names(workbook: Workbook) -> Iterator[Problem]:
    """Variables, computed values and constants share one space of names."""
    taken: dict[str, str] = {c.name: c.at.get("name", "") for c in workbook.constants}
    variables = [(t.var_name, t.at.get("var_name", "")) for t in workbook.tasks]
    for name, where in [*variables, *((c.name, c.at.get("name", "")) for c in workbook.computed)]:
        if name in taken:
            yield Problem(
                f"the name {name!r} is used twice",
                where=where,
                mend=f"it is in {taken[name]} as well; rename one",
            )
        taken.setdefault(name, where)
    for name, where in taken.items():
        if name in (*FIXED_COLUMNS, *NAMESPACES, OPTIONS):
            yield Problem(f"the name {name!r} is reserved", where=where, mend="rename it")


def _computed(workbook: Workbook) -> Iterator[Problem]:
    known = {t.var_name: t for t in workbook.tasks if t.type != "context"}
    names = {*known, *(c.name for c in workbook.constants), *(c.name for c in workbook.computed)}
    shared = {c.name for c in workbook.computed if c.scope == "session"}
    shared |= {c.name for c in workbook.constants}
    sound = True
    for item in workbook.computed:
        where = item.at.get("expression", "")
        try:
            tree = parse_expression(item.expression)
        except BadExpression as error:
            sound = False
            yield Problem(f"the expression cannot be read: {error}", where=where, mend=error.mend)
            continue
        for name in sorted(names_used(tree) - names):
            sound = False
            guess = process.extractOne(name, sorted(names), scorer=fuzz.WRatio, score_cutoff=60)
            mend = f"did you mean {guess[0]}?" if guess else "name a variable or a constant"
            yield Problem(f"nothing is called {name}", where=where, mend=mend)
        yield from _alone(item, names_used(tree, outside_only=True) - shared & names, where)
    if sound:
        try:
            in_order(workbook.computed)
        except BadExpression as error:
            where = workbook.computed[0].at.get("expression", "")
            yield Problem(str(error), where=where, mend=error.mend)


def _alone(item: Computed, personal: set[str], where: str) -> Iterator[Problem]:
    if item.scope == "session":
        for name in sorted(personal):
            yield Problem(
                f"{name} differs between participants, but {item.name} is one value per session",
                where=where,
                mend=f"write sum({name}) or mean({name}), or scope participant",
            )
