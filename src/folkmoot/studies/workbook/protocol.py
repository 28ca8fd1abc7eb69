"""The study itself: constants spin off experiments, experiments hold sessions, all side by side.

1. Fill in the constants: one experiment per combination.
2. Draw treatments, sessions, roles and the order of tasks; seal and record them.
3. Play every session (`play.py`); write both files of an experiment as its sessions finish.
"""

from __future__ import annotations

from folkmoot.engine.session import Scope, Session
from folkmoot.errors import InputError
from folkmoot.studies.workbook.assignment import SessionPlan, assign
from folkmoot.studies.workbook.config import WorkbookConfig
from folkmoot.studies.workbook.outputs import Files
from folkmoot.studies.workbook.permutations import Experiment, experiments
from folkmoot.studies.workbook.play import Planned, ordered_tasks, play_session
from folkmoot.studies.workbook.records import record_design


async def protocol(session: Session) -> None:
    """Play all experiments of a workbook."""
    config: WorkbookConfig = session.config
    found = experiments(config.workbook)
    plans = sessions_of(config, found[0])
    planned = [
        Planned(e, plan, ordered_tasks(e, plan, session.seed)) for e in found for plan in plans
    ]
    await session.seal("assignment", _sealed(planned[: len(plans)]))
    await session.seal("experiments", [{"id": e.id, "constants": dict(e.constants)} for e in found])
    record_design(session, found, plans)
    settings = config.workbook.settings
    head = {
        "model_info": settings.model_info,
        "temperature": config.temperature,
        "random_seed": session.seed,
        "layout": config.workbook.layout,
    }
    expected = {e.id: [p.id for p in planned if p.experiment is e] for e in found}
    files = Files(session, head, expected)

    async def one(scope: Scope, item: Planned) -> None:
        files.add(item.experiment, item.id, await play_session(scope, item, config.reasks))

    await session.at("sessions").each(planned, one, sets=lambda p: p.plan.label)


def sessions_of(config: WorkbookConfig, experiment: Experiment) -> list[SessionPlan]:
    """The sessions of every experiment; all permutations share them."""
    plans, problems = assign(experiment, config.random_seed)
    if problems:
        raise InputError(problems)
    return plans[: config.first_sessions]


def _sealed(planned: list[Planned]) -> list[dict[str, object]]:
    return [
        {
            "session": p.plan.label,
            "treatment": p.plan.treatment,
            "tasks": [t.task.task_id for t in p.order],
            "participants": [{"ID": s.id, "role": s.role, "name": s.name} for s in p.plan.seats],
        }
        for p in planned
    ]
