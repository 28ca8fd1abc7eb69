"""Checks of the experiment as a whole: do the sheets fit each other, can it be played?

They need the model only, so that they run when a workbook is read and again after `--set`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.studies.workbook.answers import Listed, Options, Range
from folkmoot.studies.workbook.config import (
    SPECIAL_ROLES,
    Computed,
    Role,
    Task,
    Workbook,
    special_role,
)
from folkmoot.studies.workbook.experiments import (
    Experiment,
    TaskInPlay,
    build,
    combinations,
    count_permutations,
    experiment_ids,
)
from folkmoot.studies.workbook.participants import assign
from folkmoot.studies.workbook.placeholders import (
    NAMESPACES,
    OPTIONS,
    UNDEFINED,
    BadExpression,
    TemplateProblem,
    check_names,
    in_order,
    names_in,
    names_used,
    parse_expression,
    render,
    sources,
)
from folkmoot.studies.workbook.room import NOT_AVAILABLE, known_beforehand

DESCRIBED = ("description", "label")


def text_problems(workbook: Workbook) -> list[Problem]:
    """Placeholders of all texts, and the order of the tasks."""
    return [*_described(workbook), *_contexts(workbook), *_prompts(workbook)]


def _attributes(workbook: Workbook, label: str = "") -> dict[str, set[str]]:
    """What constant.…, treatment.… and role.… may be followed by, whoever is told it."""
    told = [r for r in workbook.roles if (r.label == label if label else r.special is None)]
    return {
        "constant": {c.name for c in workbook.constants},
        "treatment": {*DESCRIBED, *_shared([t.extra for t in workbook.treatments])},
        "role": {*DESCRIBED, *_shared([r.extra for r in told])},
    }


def _shared(extras: Sequence[Mapping[str, str]]) -> set[str]:
    """The attributes that all have: one that a single arm lacks would fail in its sessions."""
    return set.intersection(*(set(e) for e in extras)) if extras else set()


def _check(
    text: str, where: str, known: set[str], attributes: Mapping[str, set[str]]
) -> Iterator[Problem]:
    for problem in check_names(text, known, attributes):
        yield Problem(str(problem), where=where, mend=problem.mend)


def _described(workbook: Workbook) -> Iterator[Problem]:
    constants = {c.name for c in workbook.constants}
    spaces = _attributes(workbook)
    only_constants = {"constant": spaces["constant"]}
    with_treatment = {**only_constants, "treatment": spaces["treatment"]}
    for t in workbook.treatments:
        yield from _check(t.label, t.at.get("treatment_label", ""), constants, only_constants)
        for text in (t.description, *t.extra.values()):
            where = t.at.get("treatment_description", "")
            yield from _check(text, where, constants, only_constants)
    for r in workbook.roles:
        yield from _check(r.label, r.at.get("role_label", ""), constants, only_constants)
        where = r.at.get("role_description", "")
        yield from _check(r.description, where, constants, with_treatment)
        for text in r.extra.values():
            yield from _check(text, where, constants, only_constants)
    for task in workbook.tasks:
        if task.response_options:
            where = task.at.get("response_options", "")
            yield from _check(task.response_options, where, constants, only_constants)


def _contexts(workbook: Workbook) -> Iterator[Problem]:
    """The context comes first: it becomes the system message."""
    if not workbook.tasks:
        return
    contexts = [t for t in workbook.tasks if t.type == "context"]
    if not contexts:
        yield Problem(
            "there is no context task",
            where=workbook.tasks[0].at.get("type", ""),
            mend="the first task must be of type context",
        )
        return
    if len(contexts) == len(workbook.tasks):
        yield Problem(
            "there is nothing but context",
            where=contexts[-1].at.get("type", ""),
            mend="add a discussion or a question",
        )
        return
    first = min(t.task_order for t in workbook.tasks if t.type != "context")
    for task in contexts:
        if task.task_order >= first:
            yield Problem(
                f"the context {task.task_id} does not come before all other tasks",
                where=task.at.get("task_order", ""),
                mend=f"give it a task_order below {first}",
            )


def _prompts(workbook: Workbook) -> Iterator[Problem]:
    constants = {c.name for c in workbook.constants}
    for task in workbook.tasks:
        where = task.at.get("llm_text", "")
        earlier, later = _answers_known(task, workbook)
        by_role = {"": task.llm_text} if isinstance(task.llm_text, str) else task.llm_text
        for role, text in by_role.items():
            spaces = _attributes(workbook, role)
            if role:
                only_constants = {"constant": spaces["constant"]}
                yield from _check(role, where, constants, only_constants)
            known = constants | earlier
            if special_role(role):
                # A special role has no answers of its own, so it is told session values only.
                known -= _personal(workbook)
            if task.type != "context":
                known = known | {OPTIONS}
            unknown = (earlier | later) - known
            yield from _too_early(text, where, unknown, task)
            yield from _check(text, where, known | unknown, spaces)
            yield from _asks_for_options(task, text, where)


def _personal(workbook: Workbook) -> set[str]:
    return {t.var_name for t in workbook.tasks} | {
        c.name for c in workbook.computed if c.scope == "participant"
    }


def _answers_known(task: Task, workbook: Workbook) -> tuple[set[str], set[str]]:
    """Variables and computed values that are known when a task begins, and those that are not."""
    before = {
        t.var_name
        for t in workbook.tasks
        if t.type != "context" and t.task_order < task.task_order and task.type != "context"
    }
    variables = {t.var_name for t in workbook.tasks if t.type != "context"}
    try:
        behind = sources(workbook.computed)
    except BadExpression:  # reported with its own cell; here it would only be an echo
        behind = {c.name: frozenset() for c in workbook.computed}
    ready = {name for name, used in behind.items() if used & variables <= before}
    everything = variables | {c.name for c in workbook.computed}
    return before | ready, everything - before - ready


def _too_early(text: str, where: str, later: set[str], task: Task) -> Iterator[Problem]:
    try:
        names, _ = names_in(text)
    except TemplateProblem:
        return
    for name in sorted(names & later):
        yield Problem(
            f"{name} is not known yet when {task.task_id} is put (or not to this role)",
            where=where,
            mend="it needs a task_order below this one's; equal ones are shuffled",
        )


def _asks_for_options(task: Task, text: str, where: str) -> Iterator[Problem]:
    try:
        names, _ = names_in(text)
    except TemplateProblem:
        return
    if OPTIONS in names and task.response_options is None and task.type != "context":
        yield Problem(
            f"the prompt says {{{OPTIONS}}}, but there are none",
            where=where,
            mend=f"fill in {task.at.get('response_options', OPTIONS)} or leave the words out",
        )


def task_problems(experiment: Experiment) -> list[Problem]:
    """Roles, response options and filled-in texts of all tasks of one permutation."""
    tasks = experiment.tasks.values()
    return [
        *(p for task in tasks for p in _task(task, experiment)),
        *(p for task in tasks for p in _filled(task, experiment)),
        *(
            p
            for role in experiment.roles.values()
            for p in _fills(role.description, role, role.at.get("role_description", ""), experiment)
        ),
    ]


def _filled(play: TaskInPlay, experiment: Experiment) -> Iterator[Problem]:
    """Fill the prompts in with the constants and nothing else, to see whether that works."""
    for label, text in play.prompts.items():
        where = play.task.at.get("llm_text", "")
        yield from _fills(text, experiment.roles.get(label), where, experiment)


def _fills(text: str, role: Role | None, where: str, experiment: Experiment) -> Iterator[Problem]:
    try:
        names, _ = names_in(text)
        for treatment in experiment.treatments:
            values = known_beforehand(experiment, treatment, role)
            render(text, {**dict.fromkeys(names, NOT_AVAILABLE), **values})
    except TemplateProblem as problem:
        if problem.mend != UNDEFINED:  # names that do not exist are reported with the likely one
            yield Problem(str(problem), where=where, mend=problem.mend or "mend the placeholder")


def _task(play: TaskInPlay, experiment: Experiment) -> Iterator[Problem]:
    yield from _roles(play.prompts, play.task.at.get("llm_text", ""), experiment, special=True)
    if isinstance(play.options, Mapping):
        where = play.task.at.get("response_options", "")
        yield from _roles(play.options, where, experiment, special=False)
    users = [r for r in play.prompts if r in experiment.roles and not special_role(r)]
    if play.task.type == "context":
        return
    if not users:
        yield Problem(
            f"no participant has a part in {play.task.task_id}",
            where=play.task.at.get("llm_text", ""),
            mend="add a role of the participants to the dict",
        )
    for role in users:
        yield from _options(play, role)


def _roles(
    labels: Mapping[str, object], where: str, experiment: Experiment, *, special: bool
) -> Iterator[Problem]:
    known = [r for r, role in experiment.roles.items() if special or role.special is None]
    for label in labels:
        if label in known:
            continue
        mend = did_you_mean(label, known, f"roles are {', '.join(known)}")
        yield Problem(f"there is no role {label!r}", where=where, mend=mend)


def _options(play: TaskInPlay, role: str) -> Iterator[Problem]:
    task = play.task
    where = task.at.get("response_options", "")
    options = play.options_for(role)
    if options is None:
        if isinstance(play.options, Mapping):
            yield Problem(
                f"{role} has no response options",
                where=where,
                mend="add the role to the dict, or leave it out of the prompts",
            )
        elif (
            task.validate_response
            and task.response_options is None
            and task.var_type in (None, "category")
        ):
            yield Problem(
                f"the answers of {task.task_id} are to be validated, but against nothing",
                where=task.at.get("validate_response", where),
                mend="give response options or write 0",
            )
        return
    yield from _typed(task, options, where)


def _typed(task: Task, options: Options, where: str) -> Iterator[Problem]:
    if isinstance(options, Range):
        if task.var_type == "category":
            yield Problem(
                "a range of numbers cannot be of type category",
                where=where,
                mend="write integer or float as var_type, or a list of options",
            )
        elif task.var_type == "integer" and not options.low <= -(-options.low // 1) <= options.high:
            yield Problem("no whole number lies in the range", where=where, mend="widen it")
    if isinstance(options, Listed) and task.var_type in ("integer", "float"):
        for option in options.options:
            if not _is_number(option, task.var_type == "integer"):
                yield Problem(
                    f"the option {option!r} is not of type {task.var_type}",
                    where=where,
                    mend="write a number, or category as var_type",
                )


def _is_number(text: str, integer: bool) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return number.is_integer() if integer else abs(number) < float("inf")


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
            mend = did_you_mean(name, sorted(names), "name a variable or a constant")
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
