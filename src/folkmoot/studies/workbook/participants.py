"""Who sits in which session, under which treatment, in which role: drawn before the first call.

Treatments belong to sessions. Every draw has a stream of its own, so that another number of
treatments moves nobody to another session. All permutations of the constants share one
assignment: they then differ in nothing but their constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.randomness import generator
from folkmoot.studies.workbook.config import Profiles, Settings
from folkmoot.studies.workbook.experiments import Experiment

MOST_LISTED = 10


@dataclass(frozen=True)
class Seat:
    """One participant in one session. `row` is its row in the profiles, from 0."""

    id: str
    row: int
    role: str
    name: str


@dataclass(frozen=True)
class SessionPlan:
    """One session: `number` counts from 1, `label` is the workbook's own where it has one."""

    number: int
    label: str
    treatment: str
    seats: tuple[Seat, ...]


@dataclass(frozen=True)
class _Group:
    """The rows of one session before treatment and roles are settled."""

    label: str
    rows: tuple[int, ...]
    treatment: str | None = None


class _Report:
    """Collects problems; many of one kind are counted, not listed."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, message: str, where: str = "", mend: str = "") -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= MOST_LISTED:
            self.found.append(Problem(message, where=where, mend=mend))

    def finish(self) -> list[Problem]:
        for kind, count in self._counts.items():
            if count > MOST_LISTED:
                self.found.append(Problem(f"{count - MOST_LISTED} more like this: {kind}"))
        return self.found


def assign(experiment: Experiment, seed: int) -> tuple[list[SessionPlan], list[Problem]]:
    """The sessions of an experiment, or the problems that stand in their way (then none)."""
    settings, profiles = experiment.workbook.settings, experiment.workbook.profiles
    report = _Report()
    columns = manual_columns(settings, profiles, report)
    if report.found:
        return [], report.finish()
    groups = _sessions(experiment, columns, seed, report)
    treatments = _treatments(experiment, groups, columns, seed, report)
    plans: list[SessionPlan] = []
    for number, (group, treatment) in enumerate(zip(groups, treatments, strict=True), 1):
        seats = _seats(experiment, group, number, columns, seed, report)
        plans.append(SessionPlan(number, group.label, treatment, seats))
    problems = report.finish()
    return ([] if problems else plans), problems


def manual_columns(settings: Settings, profiles: Profiles, report: _Report) -> Mapping[str, int]:
    """`treatment`, `session`, `role` → index of the column, for those assigned by hand."""
    found: dict[str, int] = {}
    for what in ("treatment", "session", "role"):
        if getattr(settings, f"{what}_assignment_strategy") != "manual":
            continue
        name = getattr(settings, f"{what}_column")
        where = settings.at.get(f"{what}_column", "")
        if not name:
            report.add(
                "column",
                f"{what}s are assigned by hand, but no column is named",
                where,
                "name a column of the profiles",
            )
            continue
        index = profiles.column(name)
        if index is None:
            mend = did_you_mean(name, profiles.names, "give the name in row 1 or row 2")
            report.add("column", f"the profiles have no column {name!r}", where, mend)
            continue
        if name not in profiles.names and profiles.questions.count(name) > 1:
            report.add(
                "column",
                f"{profiles.questions.count(name)} columns have the question {name!r}",
                where,
                "give the name in row 1",
            )
            continue
        found[what] = index
    return found


def hidden_columns(settings: Settings, profiles: Profiles) -> set[int]:
    """Columns that no persona may show: the identifier and those that assign."""
    named = (settings.treatment_column, settings.session_column, settings.role_column)
    found = {profiles.column(name) for name in named if name}
    return {i for i in found if i is not None} | {profiles.id_column}


def _sessions(
    experiment: Experiment, columns: Mapping[str, int], seed: int, report: _Report
) -> list[_Group]:
    settings, profiles = experiment.workbook.settings, experiment.workbook.profiles
    if "session" in columns:
        return _manual_sessions(settings, profiles, columns["session"], report)
    rng = generator(seed, ("assignment", "sessions"))
    n, size = settings.num_sessions, settings.num_agents_per_session
    where = settings.at.get("num_sessions", "")
    pools: dict[str | None, list[int]] = {None: list(range(len(profiles.rows)))}
    if "treatment" in columns:
        # Treatment belongs to the session, so those of one treatment sit together.
        pools = {}
        for row, cells in enumerate(profiles.rows):
            label = cells[columns["treatment"]]
            if label:
                pools.setdefault(label, []).append(row)
    groups: list[_Group] = []
    for treatment, rows in pools.items():
        drawn = [rows[i] for i in rng.permutation(len(rows))]
        full = len(drawn) // size
        groups += [
            _Group("", tuple(sorted(drawn[k * size : (k + 1) * size])), treatment)
            for k in range(full)
        ]
    if len(groups) < n:
        together = " of one treatment" if "treatment" in columns else ""
        report.add(
            "sessions",
            f"{n} sessions of {size} need more respondents{together} than the "
            f"{len(profiles.rows)} there are: they fill {len(groups)}",
            where,
            "add respondents or lower num_sessions or the size of sessions",
        )
        return []
    chosen = sorted(rng.permutation(len(groups))[:n]) if len(groups) > n else range(n)
    return [
        _Group(str(k), groups[i].rows, groups[i].treatment) for k, i in enumerate(chosen, start=1)
    ]


def _manual_sessions(
    settings: Settings, profiles: Profiles, column: int, report: _Report
) -> list[_Group]:
    members: dict[str, list[int]] = {}
    for row, cells in enumerate(profiles.rows):
        if cells[column]:  # blank: the respondent takes no part
            members.setdefault(cells[column], []).append(row)
    if len(members) != settings.num_sessions:
        report.add(
            "sessions",
            f"the column {profiles.names[column]} names {len(members)} sessions, "
            f"but {settings.num_sessions} are to be played",
            settings.at.get("num_sessions", ""),
            f"write {len(members)} or blank the sessions that are not to be played",
        )
    for label, rows in members.items():
        if len(rows) != settings.num_agents_per_session:
            report.add(
                "session sizes",
                f"session {label} has {len(rows)} respondents, "
                f"not {settings.num_agents_per_session}",
                profiles.cell(rows[0], column),
                "move respondents, or change the number of agents per session",
            )
    return [_Group(label, tuple(rows)) for label, rows in members.items()]


def _treatments(
    experiment: Experiment,
    groups: Sequence[_Group],
    columns: Mapping[str, int],
    seed: int,
    report: _Report,
) -> list[str]:
    labels = list(experiment.treatments)
    strategy = experiment.workbook.settings.treatment_assignment_strategy
    if strategy == "manual":
        return [_manual_treatment(experiment, g, columns["treatment"], report) for g in groups]
    if not labels:
        return [""] * len(groups)
    rng = generator(seed, ("assignment", "treatments"))
    if strategy == "simple_random":
        return [labels[i] for i in rng.integers(len(labels), size=len(groups))]
    return [labels[i] for i in balanced(len(groups), len(labels), rng)]


def balanced(n: int, arms: int, rng: np.random.Generator) -> list[int]:
    """n places dealt to arms as evenly as can be, in random order; who gets one more is drawn."""
    whole, rest = divmod(n, arms)
    places = [arm for arm in range(arms) for _ in range(whole)]
    places += [int(arm) for arm in rng.permutation(arms)[:rest]]
    return [places[i] for i in rng.permutation(n)]


def _manual_treatment(experiment: Experiment, group: _Group, column: int, report: _Report) -> str:
    profiles = experiment.workbook.profiles
    labels = [profiles.rows[row][column] for row in group.rows]
    for row, label in zip(group.rows, labels, strict=True):
        if label not in experiment.treatments:
            _report_label(report, "treatment", label, experiment.treatments, profiles, row, column)
    if len(set(labels)) > 1:
        report.add(
            "mixed sessions",
            f"session {group.label} mixes the treatments {', '.join(sorted(set(labels)))}",
            profiles.cell(group.rows[0], column),
            "a treatment belongs to a whole session",
        )
    return labels[0] if labels else ""


def _report_label(
    report: _Report,
    what: str,
    label: str,
    known: Mapping[str, object],
    profiles: Profiles,
    row: int,
    column: int,
) -> None:
    mend = did_you_mean(label, known, f"one of {', '.join(known)}")
    message = f"there is no {what} {label!r}" if label else f"the {what} is blank"
    report.add(f"{what} labels", message, profiles.cell(row, column), mend)


def _seats(
    experiment: Experiment,
    group: _Group,
    number: int,
    columns: Mapping[str, int],
    seed: int,
    report: _Report,
) -> tuple[Seat, ...]:
    profiles = experiment.workbook.profiles
    labels = [label for label, role in experiment.roles.items() if role.special is None]
    if not labels:
        return ()
    roles: list[str]
    if "role" in columns:
        column = columns["role"]
        roles = [profiles.rows[row][column] for row in group.rows]
        for row, label in zip(group.rows, roles, strict=True):
            if label not in labels:
                known = dict.fromkeys(labels)
                _report_label(report, "role", label, known, profiles, row, column)
                return ()
    elif len(labels) > len(group.rows):
        report.add(
            "roles",
            f"{len(labels)} roles are to be dealt to {len(group.rows)} participants",
            experiment.workbook.settings.at.get("num_agents_per_session", ""),
            "a session needs at least one participant for each role",
        )
        return ()
    else:
        rng = generator(seed, ("assignment", "roles", str(number)))
        roles = [labels[i] for i in balanced(len(group.rows), len(labels), rng)]
    seated = sorted(
        zip(roles, group.rows, strict=True), key=lambda pair: (labels.index(pair[0]), pair[1])
    )
    return _named(seated, experiment, profiles)


def _named(
    seated: Sequence[tuple[str, int]], experiment: Experiment, profiles: Profiles
) -> tuple[Seat, ...]:
    """Seats with the names that others see: the role, counted where several have it."""
    total = Counter(role for role, _ in seated)
    count: Counter[str] = Counter()
    taken = set(experiment.roles)
    seats: list[Seat] = []
    for role, row in seated:
        count[role] += 1
        name = role if total[role] == 1 else f"{role} {count[role]}"
        while total[role] > 1 and name in taken:
            name += "'"
        taken.add(name)
        seats.append(Seat(profiles.rows[row][profiles.id_column], row, role, name))
    return tuple(seats)
