"""One session from its first word to its last, and the record that is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from folkmoot.engine.session import Scope
from folkmoot.randomness import generator
from folkmoot.studies.workbook.assignment import SessionPlan
from folkmoot.studies.workbook.computed import in_order
from folkmoot.studies.workbook.model import Task
from folkmoot.studies.workbook.outputs import session_record
from folkmoot.studies.workbook.permutations import Experiment, TaskInPlay
from folkmoot.studies.workbook.records import record_session
from folkmoot.studies.workbook.room import Room
from folkmoot.studies.workbook.tasks import ROUNDS
from folkmoot.studies.workbook.tasks.context import open_room

CUT_ROUNDS = "rounds"


@dataclass(frozen=True)
class Planned:
    """One session to be played: its experiment, its plan, the order of its tasks."""

    experiment: Experiment
    plan: SessionPlan
    order: tuple[TaskInPlay, ...]

    @property
    def id(self) -> str:
        return f"{self.experiment.id}.{self.plan.number}"


def realised_order(tasks: Sequence[Task], rng: np.random.Generator) -> tuple[Task, ...]:
    """The tasks by `task_order`, ties as drawn. Contexts come first, whatever is drawn."""
    ordered = sorted(tasks, key=lambda t: (t.task_order, t.type != "context"))
    out: list[Task] = []
    for _, tied in groupby(ordered, key=lambda t: (t.task_order, t.type != "context")):
        group = list(tied)
        out.extend(group[i] for i in rng.permutation(len(group)))
    return tuple(out)


def ordered_tasks(experiment: Experiment, plan: SessionPlan, seed: int) -> tuple[TaskInPlay, ...]:
    """The tasks of a session in its own order; the same in every permutation."""
    rng = generator(seed, ("order", str(plan.number)))
    rows = [t.task for t in experiment.tasks.values()]
    by_id = {t.task.task_id: t for t in experiment.tasks.values()}
    return tuple(by_id[row.task_id] for row in realised_order(rows, rng))


async def play_session(scope: Scope, planned: Planned, reasks: int) -> dict[str, Any]:
    """Play a session; its record, as JSON."""
    experiment = planned.experiment
    rounds = [t for t in planned.order if t.task.type != "context"]
    room = Room(
        experiment, planned.plan, planned.order, in_order(experiment.workbook.computed), reasks
    )
    await open_room(scope, room)
    await _play_rounds(scope, room, rounds)
    if room.ended != "completed":
        scope.warn(
            f"stopped in task {room.stopped_in} after {room.messages} messages: "
            f"{_limit_name(room)} is reached"
        )
    record_session(scope, room)
    return session_record(room)


async def _play_rounds(scope: Scope, room: Room, rounds: Sequence[TaskInPlay]) -> None:
    most = room.experiment.workbook.settings.max_rounds
    for task in rounds:
        if most is not None and room.rounds >= most:
            room.stop(task, CUT_ROUNDS)
        if room.ended != "completed":
            return
        room.rounds += 1
        await ROUNDS[task.task.type](scope.at(task.task.task_id), room, task)


def _limit_name(room: Room) -> str:
    settings = room.experiment.workbook.settings
    if room.ended == CUT_ROUNDS:
        return f"max_num_rounds ({settings.max_rounds})"
    return f"max_conversation_length ({settings.max_conversation_length})"
