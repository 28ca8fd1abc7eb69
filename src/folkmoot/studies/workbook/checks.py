"""Check whether the sheets of an experiment fit together and allow a run.

The checks run when the workbook is read, and again after `--set` has changed settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.models.images import (
    OTHER_MATERIAL,
    UNSUPPORTED_TYPES,
    Image,
    find_image_references,
    find_unusable_images,
)
from folkmoot.storage.run_folder import COMMON_FILES
from folkmoot.studies.workbook.answers import ListedOptions, NumberRange, Options
from folkmoot.studies.workbook.config import (
    SPECIAL_ROLES,
    LabelledPart,
    Problems,
    Role,
    Task,
    Workbook,
    WorkbookConfig,
    count_permutations,
    experiment_ids,
    special_role,
)
from folkmoot.studies.workbook.language.expressions import (
    KEYWORDS,
    NAMESPACES,
    ExpressionProblem,
    in_order,
    known_after,
    names_used,
    parse_expression,
)
from folkmoot.studies.workbook.language.placeholders import (
    OPTIONS,
    UnknownName,
    check_names,
    expressions_in,
    names_in,
    render_text,
)
from folkmoot.studies.workbook.language.value_types import (
    NUMBER,
    ValueType,
    answer_type,
    combine_types,
    type_of_values,
    type_problems,
)
from folkmoot.studies.workbook.participants import (
    Experiment,
    TaskInPlay,
    assign_sessions,
    build_experiment,
    constant_combinations,
    manual_columns,
)
from folkmoot.studies.workbook.sessions import (
    NOT_AVAILABLE,
    PERSONAL_NAMES,
    SHARED_NAMES,
    known_beforehand,
    parse_cell,
)

# Keeps a check quick if a researcher allows very many experiments.
MOST_PERMUTATIONS_CHECKED = 1_000
_SEND_AS = "save it as PNG, JPEG, GIF or WebP"


def cells_with_images(config: WorkbookConfig) -> list[str]:
    """Return the addresses of the cells that contain images for prompts, in sheet order."""
    cells: dict[str, None] = {}
    if config.images == "placeholder" or not _may_show(config.workbook):
        return []
    for experiment in iterate_permutations(config.workbook):
        cells.update(dict.fromkeys(where for _, where in shown_images(experiment)))
    return list(cells)


def cells_with_unusable_images(experiment: Experiment) -> dict[str, str]:
    """Return the first phrase of each cell that marks an image without an address of one."""
    found: dict[str, str] = {}
    for text, where in (*all_prompt_texts(experiment), *filled_texts(experiment)):
        # The checks report texts that cannot be filled in.
        for mark in find_unusable_images(text) if isinstance(text, str) else ():
            found.setdefault(where, mark)
    return found


def iterate_permutations(workbook: Workbook) -> Iterator[Experiment]:
    """Yield the experiments of a workbook."""
    # At most `MOST_PERMUTATIONS_CHECKED` of them, to keep the check fast.
    for number, values in enumerate(constant_combinations(workbook), 1):
        if number > MOST_PERMUTATIONS_CHECKED:
            return
        yield build_experiment(workbook, values, number, workbook.settings.experiment_id)[0]


def image_problems(experiment: Experiment, problems: Problems) -> None:
    """Report images that cannot be sent, and options that are images."""
    for image, where in shown_images(experiment):
        if image.file_extension in (*UNSUPPORTED_TYPES, *OTHER_MATERIAL):
            message = f"models accept no images of type {image.file_extension} ({image.url[:80]})"
            problems.add_problem(message, where, _SEND_AS)
    for play in experiment.tasks.values():
        option_sets = play.options.values() if isinstance(play.options, dict) else [play.options]
        for options in option_sets:
            if isinstance(options, ListedOptions) and any(
                map(find_image_references, options.options)
            ):
                problems.add_problem(
                    "an option is an image, which cannot be given as an answer",
                    play.task.at.get("response_options", ""),
                    "show the images in the prompt and give the options names",
                )


def shown_images(experiment: Experiment) -> Iterator[tuple[Image, str]]:
    """Yield (image, cell address) for each image in the texts of an experiment."""
    # Unfilled texts are searched too, because some branches are only chosen in the run.
    # Saves large workbooks the search.
    if not _may_show(experiment.workbook):
        return
    for text, where in (*all_prompt_texts(experiment), *filled_texts(experiment)):
        # The checks report texts that cannot be filled in.
        if isinstance(text, str):
            yield from ((image, where) for image in find_image_references(text))


def _may_show(workbook: Workbook) -> bool:
    rows = (*workbook.treatments, *workbook.roles, *workbook.tasks, *workbook.constants)
    text = "".join(map(str, rows))
    return "://" in text or "data:image" in text


def all_prompt_texts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield (text, cell address) for each text that speakers see."""
    # Placeholders are not filled in.
    yield from ((text, where) for text, _, where in _speaker_texts(experiment))


def filled_texts(experiment: Experiment) -> Iterator[tuple[str | ExpressionProblem, str]]:
    """Yield the texts of an experiment after their placeholders are filled in.

    Each pair holds a text and the address of its cell. An ExpressionProblem takes the place of a
    text that cannot be filled in.
    """
    for text, role, where in _speaker_texts(experiment):
        for treatment in experiment.treatments if "{" in text else ():
            try:
                values = known_beforehand(experiment, treatment, role)
                yield (
                    render_text(text, {**dict.fromkeys(names_in(text), NOT_AVAILABLE), **values}),
                    where,
                )
            except ExpressionProblem as problem:
                yield problem, where


def _speaker_texts(experiment: Experiment) -> Iterator[tuple[str, Role | None, str]]:
    # Yields text, role and cell address. The role is None if all roles see the text.
    for treatment in experiment.treatments.values():
        yield treatment.description, None, treatment.at.get("treatment_description", "")
    for role in experiment.roles.values():
        yield role.description, role, role.at.get("role_description", "")
    for play in experiment.tasks.values():
        for label, text in play.prompts.items():
            yield text, experiment.roles.get(label), play.task.at.get("llm_text", "")
        for label, text in play.people_prompts.items():
            yield text, experiment.roles.get(label), play.task.at.get("people_text", "")


# Columns of the CSV file that no variable may replace.
FIXED_COLUMNS = ("experiment_id", "session", "treatment", "ID", "role", "invalid", "missing")


def design_problems(
    workbook: Workbook, seed: int | None = None, *, seated: bool = True
) -> list[Problem]:
    """Return all problems that prevent a run of the workbook, in the order of the sheets.

    - `seed`: the seed of the assignment to sessions. Its default is the seed of the workbook.
    - `seated`: True to check the assignment to sessions too.
    """
    problems = Problems()
    _check_file_names(workbook, problems)
    _check_endpoint(workbook, problems)
    _check_names(workbook, problems)
    _check_computed(workbook, problems)
    _check_texts(workbook, problems)
    _check_contexts(workbook, problems)
    _check_prompts(workbook, problems)
    # Check all experiments up to a limit, to keep the check quick.
    sample = list(islice(constant_combinations(workbook), MOST_PERMUTATIONS_CHECKED))
    ids = (
        experiment_ids(workbook)
        if len(sample) == count_permutations(workbook)
        else [""] * len(sample)
    )
    value_types = _ValueTypes(workbook)
    for number, (name, constants) in enumerate(zip(ids, sample, strict=True), 1):
        experiment, experiment_problems = build_experiment(workbook, constants, number, name)
        problems.found += experiment_problems
        _check_special_roles(experiment, problems)
        value_types.add_experiment(experiment)
        for task in experiment.tasks.values():
            _check_task(task, experiment, problems)
        for filled, where in filled_texts(experiment):
            # `check_names` reports unknown names with the most similar name.
            if isinstance(filled, ExpressionProblem) and not isinstance(filled, UnknownName):
                problems.add_problem(str(filled), where, filled.hint or "correct the placeholder")
        image_problems(experiment, problems)
        # All experiments share one assignment, so the first one suffices.
        if seated and number == 1 and workbook.profiles.rows:
            seed = workbook.settings.random_seed if seed is None else seed
            problems.found += assign_sessions(experiment, seed)[1]
    # Labels and options can differ between experiments, so all of them must be known.
    if len(sample) == count_permutations(workbook):
        _check_expression_types(workbook, value_types, problems)
    return list(dict.fromkeys(problems.found))


def _check_file_names(workbook: Workbook, problems: Problems) -> None:
    # Case is ignored, because some file systems ignore it.
    if count_permutations(workbook) > MOST_PERMUTATIONS_CHECKED:
        # Each name then ends in a number.
        return
    taken_names = {name.casefold() for name in COMMON_FILES}
    for experiment in experiment_ids(workbook):
        for name in (f"{experiment}.json", f"{experiment}.csv"):
            if name.casefold() in taken_names:
                message = f"the experiment would write {name}, which every run writes for itself"
                where = workbook.settings.at.get("experiment_id", "")
                problems.add_problem(message, where, "choose another experiment_id")


def _check_endpoint(workbook: Workbook, problems: Problems) -> None:
    where = workbook.settings.at.get("api_endpoint", "")
    url = workbook.settings.api_endpoint
    if workbook.settings.model_info == "hf-inference" and not url:
        problems.add_problem("hf-inference needs the URL of its endpoint", where, "fill it in")
    if url and not url.startswith(("http://", "https://")):
        problems.add_problem(f"{url!r} is not a URL", where, "it starts with https://")


def _check_special_roles(experiment: Experiment, problems: Problems) -> None:
    for special in SPECIAL_ROLES:
        for role in [role for role in experiment.roles.values() if role.special_name == special][
            1:
        ]:
            message = f"duplicate role {special}, here as {role.label!r}"
            problems.add_problem(message, role.at.get("role_label", ""), "keep one of them")
    profiles = experiment.workbook.profiles
    for row, identifier in enumerate(profiles.ids()):
        if special_role(identifier):
            message = f"the ID {identifier!r} is the name of a special role"
            where = profiles.cell_address(row, profiles.id_column)
            problems.add_problem(message, where, "give the respondent another ID")


def _check_names(workbook: Workbook, problems: Problems) -> None:
    cells_by_name: dict[str, str] = {
        constant.name: constant.at.get("name", "") for constant in workbook.constants
    }
    variables = [(task.var_name, task.at.get("var_name", "")) for task in workbook.tasks]
    for name, where in [
        *variables,
        *((computed.name, computed.at.get("name", "")) for computed in workbook.computed),
    ]:
        if name in cells_by_name:
            hint = f"it is in {cells_by_name[name]} too; rename one of them"
            problems.add_problem(f"duplicate name {name!r}", where, hint)
        cells_by_name.setdefault(name, where)
    for name, where in cells_by_name.items():
        if name in (*FIXED_COLUMNS, *NAMESPACES, OPTIONS, *KEYWORDS, "None"):
            problems.add_problem(f"the name {name!r} is reserved", where, "rename it")


def _check_computed(workbook: Workbook, problems: Problems) -> None:
    variables = {task.var_name for task in workbook.tasks if task.type != "context"}
    constants = {constant.name for constant in workbook.constants}
    own_names = variables | constants | {computed.name for computed in workbook.computed}
    built_in_names = {*PERSONAL_NAMES, *SHARED_NAMES}
    names = (
        own_names
        | built_in_names
        | {name for name in workbook.profiles.names if name.isidentifier()}
    )
    shared = constants | {
        computed.name for computed in workbook.computed if computed.scope == "session"
    }
    # A workbook's own name hides the built-in one.
    shared |= {*SHARED_NAMES} - own_names
    problem_count = len(problems.found)
    for item in workbook.computed:
        where = item.at.get("expression", "")
        try:
            tree = parse_expression(item.expression)
        except ExpressionProblem as error:
            problems.add_problem(f"the expression cannot be read: {error}", where, error.hint)
            continue
        for name in sorted(names_used(tree) - names):
            usable = sorted(filter(str.isidentifier, names))
            hint = did_you_mean(name, usable, "name a variable, a constant or a column")
            problems.add_problem(f"nothing is called {name}", where, hint)
    # The order can be found only if all expressions can be parsed.
    if len(problems.found) == problem_count:
        try:
            in_order(workbook.computed)
        except ExpressionProblem as error:
            where = workbook.computed[0].at.get("expression", "")
            problems.add_problem(str(error), where, error.hint)
    for item in workbook.computed:
        if item.scope == "session":
            _check_shared(item.name, item.expression, names - shared, item.at, problems)


def _check_shared(
    name: str, expression: str, personal: set[str], at: Mapping[str, str], problems: Problems
) -> None:
    # `at` holds the cell of each field of the session value.
    try:
        unaggregated = names_used(parse_expression(expression), outside_only=True) & personal
    # `_check_computed` has reported it.
    except ExpressionProblem:
        return
    for used in sorted(unaggregated):
        message = f"{used} differs between participants, but {name} is one value per session"
        hint = f"write sum({used}) or mean({used}), or scope participant"
        problems.add_problem(message, at.get("expression", ""), hint)


# --- types of values ---------------------------------------------------------------------------


class _ValueTypes:
    # Collects the types of all names that expressions use, over all experiments of a workbook.

    def __init__(self, workbook: Workbook) -> None:
        self.workbook = workbook
        self.roles: set[str] = set()
        self.treatments: set[str] = set()
        self.answers: dict[str, list[ValueType | None]] = {}

    def add_experiment(self, experiment: Experiment) -> None:
        self.treatments |= set(experiment.treatments)
        self.roles |= {
            label for label, role in experiment.roles.items() if role.special_name is None
        }
        for play in experiment.tasks.values():
            # Options that cannot be read are a problem already, and their type is unknown.
            is_unreadable = play.options is None and play.task.response_options is not None
            answered = [
                None if is_unreadable else answer_type(play.task, play.options_for(label))
                for label in play.prompts
                if not special_role(label)
            ]
            types = self.answers.setdefault(play.var_name, [])
            types += [kind for kind in dict.fromkeys(answered) if kind not in types]

    def types(self) -> dict[str, ValueType | None]:
        # Names of the workbook hide built-in names. The values of profile columns are data, which
        # may be of both types.
        profiles, settings = self.workbook.profiles, self.workbook.settings
        session_column = manual_columns(settings, profiles).get("session")
        found: dict[str, ValueType | None] = {
            "role": ValueType(False, frozenset(self.roles)),
            "treatment": ValueType(False, frozenset(self.treatments)),
            "session": NUMBER
            if settings.session_assignment_strategy == "random"
            else type_of_values(
                parse_cell(row[session_column])
                for row in profiles.rows
                if session_column is not None and row[session_column]
            ),
            "members": NUMBER,
        }
        for constant in self.workbook.constants:
            kind = type_of_values(constant.values)
            found |= {constant.name: kind, f"constant.{constant.name}": kind}
        return found | {name: combine_types(types) for name, types in self.answers.items()}


def _check_expression_types(
    workbook: Workbook, value_types: _ValueTypes, problems: Problems
) -> None:
    types = value_types.types()
    # Other checks report expressions that cannot be parsed.
    with suppress(ExpressionProblem):
        for item in in_order(workbook.computed):
            types[item.name], found = type_problems(parse_expression(item.expression), types)
            for problem in found:
                problems.add_problem(str(problem), item.at.get("expression", ""), problem.hint)
    # Prompts are filled in with constants before a run, which reports those of a wrong type.
    for constant in workbook.constants:
        if types.get(constant.name) != NUMBER:
            types |= {constant.name: None, f"constant.{constant.name}": None}
    for task in workbook.tasks:
        for column, _, text in _texts_of(task):
            with suppress(ExpressionProblem):
                for tree in expressions_in(text):
                    for problem in type_problems(tree, types)[1]:
                        problems.add_problem(str(problem), task.at.get(column, ""), problem.hint)


# --- placeholders ------------------------------------------------------------------------------


def _known_attributes(workbook: Workbook, space: str, label: str = "") -> set[str]:
    # `space` is "treatment" or "role". With `label`, only the role with this label counts.
    parts: Sequence[LabelledPart] = workbook.treatments
    if space == "role":
        parts = [
            role
            for role in workbook.roles
            if (role.label == label if label else role.special_name is None)
        ]
    # Only attributes that all of them have. One that a single arm lacks would fail in its sessions.
    extras = set.intersection(*(set(part.extra) for part in parts)) if parts else set()
    return {f"{space}.{name}" for name in ("description", "label", *extras)}


def _constant_names(workbook: Workbook) -> set[str]:
    names = {constant.name for constant in workbook.constants}
    return names | {f"constant.{name}" for name in names}


def _check_placeholders(
    text: str,
    where: str,
    known: Collection[str],
    problems: Problems,
    only_computed: Collection[str] = (),
) -> None:
    for problem in check_names(text, known, only_computed):
        problems.add_problem(str(problem), where, problem.hint)


def _check_texts(workbook: Workbook, problems: Problems) -> None:
    constants = _constant_names(workbook)
    with_treatment = constants | _known_attributes(workbook, "treatment")
    texts = [
        *(
            (treatment.label, treatment.at.get("treatment_label", ""))
            for treatment in workbook.treatments
        ),
        *(
            (text, treatment.at.get("treatment_description", ""))
            for treatment in workbook.treatments
            for text in (treatment.description, *treatment.extra.values())
        ),
        *((role.label, role.at.get("role_label", "")) for role in workbook.roles),
        *(
            (text, role.at.get("role_description", ""))
            for role in workbook.roles
            for text in role.extra.values()
        ),
        *(
            (task.response_options or "", task.at.get("response_options", ""))
            for task in workbook.tasks
        ),
    ]
    for text, where in texts:
        _check_placeholders(text, where, constants, problems)
    for role in workbook.roles:
        _check_placeholders(
            role.description, role.at.get("role_description", ""), with_treatment, problems
        )


def _check_contexts(workbook: Workbook, problems: Problems) -> None:
    contexts = [task for task in workbook.tasks if task.type == "context"]
    later_orders = [task.task_order for task in workbook.tasks if task.type != "context"]
    if workbook.tasks and not contexts:
        where = workbook.tasks[0].at.get("type", "")
        problems.add_problem(
            "there is no context task", where, "the first task must be of type context"
        )
    elif contexts and not later_orders:
        where = contexts[-1].at.get("type", "")
        problems.add_problem("all tasks are context", where, "add a discussion or a question")
    for task in contexts:
        if later_orders and task.task_order >= min(later_orders):
            message = f"the context {task.task_id} must come before all other tasks"
            hint = f"give it a task_order below {min(later_orders)}"
            problems.add_problem(message, task.at.get("task_order", ""), hint)


def _check_prompts(workbook: Workbook, problems: Problems) -> None:
    constants = _constant_names(workbook)
    personal = {task.var_name for task in workbook.tasks}
    personal |= {computed.name for computed in workbook.computed if computed.scope == "participant"}
    order_known = _orders_known(workbook)
    known_names = constants | order_known.keys() | _known_attributes(workbook, "treatment")
    with_options = known_names | {OPTIONS}
    only_computed = {*PERSONAL_NAMES, *SHARED_NAMES, *workbook.profiles.names} - known_names
    for task in workbook.tasks:
        known = known_names if task.type == "context" else with_options
        for column, role, text in _texts_of(task):
            where = task.at.get(column, "")
            _check_placeholders(role, where, constants, problems)
            _check_placeholders(
                text,
                where,
                known | _known_attributes(workbook, "role", role),
                problems,
                only_computed,
            )
            # A special role has no answers, so its text may use only values of the session.
            withheld_names = personal - constants if special_role(role) else set()
            _check_availability(task, text, where, order_known, withheld_names, problems)


def _texts_of(task: Task) -> Iterator[tuple[str, str, str]]:
    for column, texts in (("llm_text", task.llm_text), ("people_text", task.people_text)):
        by_role = {"": texts} if isinstance(texts, str) else texts
        for role, text in by_role.items():
            yield column, role, text


def _orders_known(workbook: Workbook) -> dict[str, int | None]:
    # None means that the value is known from the start.
    asked_tasks = [task for task in workbook.tasks if task.type != "context"]
    orders = sorted({task.task_order for task in asked_tasks})
    place_of = {order: place for place, order in enumerate(orders)}
    places = {task.var_name: place_of[task.task_order] for task in asked_tasks}
    try:
        places |= known_after(in_order(workbook.computed), places)
    # It is reported with its cell. Here it would only be repeated.
    except ExpressionProblem:
        places |= dict.fromkeys((computed.name for computed in workbook.computed), -1)
    return {name: None if place < 0 else orders[place] for name, place in places.items()}


def _check_availability(
    task: Task,
    text: str,
    where: str,
    order_known: Mapping[str, int | None],
    withheld_names: Collection[str],
    problems: Problems,
) -> None:
    try:
        names = names_in(text)
    # `_check_placeholders` has reported it.
    except ExpressionProblem:
        return
    for name in sorted(names & order_known.keys()):
        order = order_known[name]
        is_too_early = order is not None and (task.type == "context" or order >= task.task_order)
        if is_too_early or name in withheld_names:
            problems.add_problem(
                f"{name} is not known yet when {task.task_id} is asked (or not to this role)",
                where,
                "give it a lower task_order than this task; tasks with equal numbers are shuffled",
            )
    if OPTIONS in names and task.response_options is None and task.type != "context":
        hint = f"fill in {task.at.get('response_options', OPTIONS)} or remove the placeholder"
        problems.add_problem(f"the prompt says {{{OPTIONS}}}, but there are none", where, hint)


# --- tasks -------------------------------------------------------------------------------------


def _check_task(play: TaskInPlay, experiment: Experiment, problems: Problems) -> None:
    task, where = play.task, play.task.at.get("response_options", "")
    roles = experiment.roles
    _check_roles(play.prompts, task.at.get("llm_text", ""), list(roles), problems)
    _check_roles(play.people_prompts, task.at.get("people_text", ""), list(roles), problems)
    if isinstance(play.options, Mapping):
        participant_labels = [label for label, role in roles.items() if role.special_name is None]
        _check_roles(play.options, where, participant_labels, problems)
    speaking_roles = [label for label in play.prompts if label in roles and not special_role(label)]
    if task.type == "context":
        return
    if not speaking_roles and roles:
        message = f"no participant takes part in {task.task_id}"
        hint = "add a role of the participants to the dict"
        problems.add_problem(message, task.at.get("llm_text", ""), hint)
    for role in speaking_roles:
        options = play.options_for(role)
        if options is not None:
            _check_types(task, options, problems)
        elif isinstance(play.options, Mapping):
            hint = "add the role to the dict, or leave it out of the prompts"
            problems.add_problem(f"{role} has no response options", where, hint)
        elif (
            task.validate_response
            and task.response_options is None
            and task.var_type in (None, "category")
        ):
            problems.add_problem(
                f"the answers of {task.task_id} must be validated, but there are no options",
                task.at.get("validate_response", where),
                "give response options or write 0",
            )


def _check_roles(
    labels: Mapping[str, object], where: str, known: Sequence[str], problems: Problems
) -> None:
    # Without any role, the missing rows of roles are the problem, which is reported at their sheet.
    for label in labels if known else ():
        if label not in known:
            hint = did_you_mean(label, known, f"roles are {', '.join(known)}")
            problems.add_problem(f"there is no role {label!r}", where, hint)


def _check_types(task: Task, options: Options, problems: Problems) -> None:
    where = task.at.get("response_options", "")
    if isinstance(options, NumberRange):
        if task.var_type == "category":
            hint = "write integer or float as var_type, or a list of options"
            problems.add_problem("a range of numbers cannot be of type category", where, hint)
        # The next whole number from the lower bound up must not exceed the upper bound.
        elif task.var_type == "integer" and not options.low <= -(-options.low // 1) <= options.high:
            problems.add_problem("the range contains no whole number", where, "widen it")
    if isinstance(options, ListedOptions) and task.var_type in ("integer", "float"):
        for option in options.options:
            if not _is_number(option, task.var_type == "integer"):
                message = f"the option {option!r} is not of type {task.var_type}"
                problems.add_problem(message, where, "write a number, or category as var_type")


def _is_number(text: str, integer: bool) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return number.is_integer() if integer else abs(number) < float("inf")
