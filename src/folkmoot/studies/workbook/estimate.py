"""Before a run: loading a workbook, deeper checks, notes, the cut of `--limit`."""

from __future__ import annotations

import re
from pathlib import Path

from openpyxl.utils.cell import column_index_from_string

from folkmoot.errors import InputError, Problem
from folkmoot.studies.workbook.answers import Words
from folkmoot.studies.workbook.checks import design_problems
from folkmoot.studies.workbook.config import Workbook, WorkbookConfig, settings_of
from folkmoot.studies.workbook.experiments import (
    Experiment,
    TaskInPlay,
    build,
    combinations,
    count_permutations,
)
from folkmoot.studies.workbook.layouts import COMPUTED, LAYOUTS, SHEETS
from folkmoot.studies.workbook.participants import assign
from folkmoot.studies.workbook.reading import look_alikes, read_workbook
from folkmoot.studies.workbook.sheets import rows_in_words


def load(path: Path) -> WorkbookConfig:
    """The study file that a workbook is. Raises InputError with every mistake in it."""
    workbook, problems = read_workbook(path)
    if workbook is not None:
        found = design_problems(workbook, seated=not _about_people(problems, workbook))
        # A duplicate in its own column was reported as that.
        twice = {p.where for p in problems if p.message.startswith("duplicate")}
        found = [p for p in found if not ("is used twice" in p.message and p.where in twice)]
        problems += [Problem(p.message, path.name, p.where, p.key, p.mend) for p in found]
    if problems or workbook is None:
        listed = sorted(dict.fromkeys(problems), key=_place)
        raise InputError(listed)
    values, _ = settings_of(workbook)
    return WorkbookConfig(study="workbook", workbook=workbook, source=path.name, **values)


_RANK = {
    layout.sheet(ours): rank for layout in LAYOUTS for rank, ours in enumerate((*SHEETS, COMPUTED))
}


def _place(problem: Problem) -> tuple[int, str, int, int]:
    """Where a mistake stands: the file, sheets that do not belong, then sheet by sheet, by row."""
    sheet, _, cell = problem.where.partition("!")
    found = re.fullmatch(r"([A-Z]+)(\d+)", cell)
    if found is None:
        return (_RANK.get(sheet, -1), sheet, 0, 0)
    return (_RANK.get(sheet, -1), sheet, int(found[2]), column_index_from_string(found[1]))


def _about_people(problems: list[Problem], workbook: Workbook) -> bool:
    """Whether a sheet is wrong that the assignment reads: it would only complain once more."""
    addresses = [workbook.profiles.sheet, *workbook.settings.at.values()]
    addresses += [role.at.get("role_label", "") for role in workbook.roles]
    sheets = {address.partition("!")[0] for address in addresses}
    return any(p.where.partition("!")[0] in sheets for p in problems)


def check(config: WorkbookConfig, _folder: Path) -> list[Problem]:
    """What only the run's settings can tell: too many permutations, a design that --set broke."""
    count = count_permutations(config.workbook)
    if count > config.max_permutations:
        sheet = next((c.at.get("value", "") for c in config.workbook.constants), "")
        return [
            Problem(
                f"the constants spin off {count:,} experiments, more than "
                f"{config.max_permutations:,}",
                file=config.source,
                where=sheet,
                mend=f"shorten the lists, or say that you mean it: --set max_permutations={count}",
            )
        ]
    return [
        Problem(p.message, config.source, p.where, p.key, p.mend)
        for p in design_problems(config.workbook, config.random_seed)
    ]


def notes(config: WorkbookConfig) -> list[str]:
    """What the user should know that is no mistake: the layout, the model, what binds."""
    workbook = config.workbook
    _, about_model = settings_of(workbook)
    found = [*workbook.notes, *about_model]
    count = count_permutations(workbook)
    if count > 1:
        found.append(f"the constants spin off {count} experiments")
    found += _seat_notes(workbook, config.random_seed)
    found += _limit_notes(workbook)
    found += _option_notes(workbook)
    found += _column_notes(workbook)
    return found


def _seat_notes(workbook: Workbook, seed: int) -> list[str]:
    """Who takes no part and why, which arms nobody is in, and labels that may be meant as one."""
    settings, profiles = workbook.settings, workbook.profiles
    experiment = first_experiment(workbook)
    plans, problems = assign(experiment, seed)
    if problems:
        return []
    seated = {seat.row for plan in plans for seat in plan.seats}
    out: dict[str, list[int]] = {}
    columns = {
        what: profiles.column(getattr(settings, f"{what}_column") or "")
        for what in ("session", "treatment")
        if getattr(settings, f"{what}_assignment_strategy") == "manual"
    }
    for row, cells in enumerate(profiles.rows):
        if row not in seated:
            blank = [profiles.names[c] for c in columns.values() if c is not None and not cells[c]]
            why = f"{' and '.join(blank)} blank" if blank else "not drawn for a session"
            out.setdefault(why, []).append(profiles.lines[row])
    found = [
        f"{profiles.sheet}: {len(lines)} of {len(profiles.rows)} respondents take no part "
        f"({why}): {rows_in_words(lines)}"
        for why, lines in out.items()
    ]
    played = {plan.treatment for plan in plans}
    found += [
        f"{t.at.get('treatment_label', '')}: no session has the treatment {t.label}"
        for t in experiment.treatments.values()
        if t.label not in played
    ]
    session = columns.get("session")
    labels = {
        "sessions": [cells[session] for cells in profiles.rows] if session is not None else [],
        "treatments": list(experiment.treatments),
        "roles": list(experiment.roles),
        "variables": [t.var_name for t in workbook.tasks],
    }
    found += [
        f"the {what} {' and '.join(map(repr, alike))} look alike; they are different ones"
        for what, names in labels.items()
        for alike in look_alikes(names)
    ]
    return found


def first_experiment(workbook: Workbook) -> Experiment:
    """The first permutation, which stands for all where only its shape matters."""
    constants = next(combinations(workbook))
    return build(workbook, constants, 1, workbook.settings.experiment_id)[0]


def _speakers(task: TaskInPlay, experiment: Experiment, agents: int) -> int:
    """About how many speak in a task (roles are taken to be dealt evenly)."""
    users = [r for r in experiment.roles.values() if r.special is None]
    special = sum(1 for r in task.prompts if r in experiment.roles and experiment.roles[r].special)
    mine = sum(1 for r in task.prompts if r in experiment.roles) - special
    return special + round(agents * mine / max(1, len(users)))


def _limit_notes(workbook: Workbook) -> list[str]:
    experiment = first_experiment(workbook)
    settings = workbook.settings
    rounds = [t for t in experiment.tasks.values() if t.task.type != "context"]
    needed = sum(_speakers(t, experiment, settings.num_agents_per_session) for t in rounds)
    found = []
    limit = settings.max_conversation_length
    if limit is not None and needed > limit:
        found.append(
            f"a session needs about {needed} messages, max_conversation_length is {limit}: "
            "sessions will be cut, and what was not asked stays missing"
        )
    if settings.max_rounds is not None and len(rounds) > settings.max_rounds:
        found.append(
            f"there are {len(rounds)} rounds, max_num_rounds is {settings.max_rounds}: "
            "sessions will be cut"
        )
    return found


def _option_notes(workbook: Workbook) -> list[str]:
    found = []
    for play in first_experiment(workbook).tasks.values():
        options = play.options.values() if isinstance(play.options, dict) else [play.options]
        if play.task.validate_response and any(isinstance(o, Words) for o in options):
            what = play.task.var_type or "text"
            found.append(
                f"{play.task.at.get('response_options')}: options in words can only be checked for "
                f"being {what}; a range like (0, 10) or a list is enforced"
            )
    return found


def _column_notes(workbook: Workbook) -> list[str]:
    settings, found = workbook.settings, []
    for what in ("treatment", "session", "role"):
        column = getattr(settings, f"{what}_column")
        by_hand = getattr(settings, f"{what}_assignment_strategy") == "manual"
        if column and not by_hand:
            found.append(f"{what}_column is only used when {what}s are assigned by hand")
        if not column and what in (n.casefold() for n in workbook.profiles.names):
            found.append(
                f"the profile column {what!r} assigns nothing: participants will see it as part "
                "of who they are"
            )
    return found


def limit(config: WorkbookConfig, n: int) -> WorkbookConfig:
    """At most n sessions of each experiment."""
    return config.model_copy(update={"first_sessions": n})
