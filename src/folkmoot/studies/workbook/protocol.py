"""The protocol of a workbook.

1. Fill in the constants. Each combination of their values is a separate experiment. 2. Draw
treatments, sessions, roles and the order of tasks. Seal and record them. 3. Play each session: give
the context, then put the tasks in order. 4. Write both files of an experiment as its sessions
finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.session import Scope, Session
from folkmoot.errors import InputError
from folkmoot.randomness import generator
from folkmoot.studies.workbook.asking import (
    AskedTask,
    ask_seat,
    ask_special,
    asked_in,
    record_answer,
    say_question,
    say_question_to,
)
from folkmoot.studies.workbook.config import Task, WorkbookConfig
from folkmoot.studies.workbook.expressions import in_order
from folkmoot.studies.workbook.files import ExperimentFiles, session_record
from folkmoot.studies.workbook.participants import (
    Experiment,
    SessionParticipant,
    SessionPlan,
    TaskInPlay,
    assign_sessions,
    build_experiments,
)
from folkmoot.studies.workbook.sessions import CUT, CUT_ROUNDS, SessionState, brief_speakers
from folkmoot.studies.workbook.tables import record_design, record_session


@dataclass(frozen=True)
class PlannedSession:
    """A session that is still to be played: experiment, plan, and tasks in order."""

    experiment: Experiment
    plan: SessionPlan
    order: tuple[TaskInPlay, ...]

    @property
    def id(self) -> str:
        return f"{self.experiment.id}.{self.plan.number}"


async def run_protocol(session: Session[WorkbookConfig]) -> None:
    """Play all experiments of a workbook."""
    config = session.config
    found = build_experiments(config.workbook)
    # All experiments share one assignment, so that they differ only in their constants.
    plans = sessions_of(config, found[0])
    played = [
        PlannedSession(experiment, plan, ordered_tasks(experiment, plan, session.seed))
        for experiment in found
        for plan in plans
    ]
    await session.seal(
        "assignment", [_sealed_session(planned_session) for planned_session in played[: len(plans)]]
    )
    await session.seal(
        "experiments",
        [{"id": experiment.id, "constants": dict(experiment.constants)} for experiment in found],
    )
    record_design(session, found, plans)
    files = ExperimentFiles(session, found, [plan.number for plan in plans])

    async def run_session(scope: Scope, item: PlannedSession) -> None:
        state = await play_session(scope, item, config)
        record_session(scope, state)
        files.add_session(item.experiment, item.plan.number, session_record(state))

    try:
        # Blocks are the sessions with one label: the same participants in each experiment.
        await session.child("sessions").map(
            played, run_session, block=lambda planned_session: planned_session.plan.label
        )
    # However the run ends, the files must hold the sessions that finished.
    finally:
        files.write_rest()


def available_seats(config: WorkbookConfig, _folder: Path) -> list[Seat]:
    """Return the seats that humans can take: one per participant, session and experiment."""
    found = build_experiments(config.workbook)
    plans = sessions_of(config, found[0])
    played = [PlannedSession(experiment, plan, ()) for experiment in found for plan in plans]
    return [
        Seat(
            session_participant.id,
            (planned_session.id,),
            session_participant.role,
            planned_session.plan.treatment,
        )
        for planned_session in played
        for session_participant in planned_session.plan.seats
    ]


def sessions_of(config: WorkbookConfig, experiment: Experiment) -> list[SessionPlan]:
    """Return the sessions of every experiment. Raises InputError if the design has problems."""
    plans, problems = assign_sessions(experiment, config.random_seed)
    if problems:
        raise InputError(problems)
    return plans[: config.first_sessions]


def ordered_tasks(experiment: Experiment, plan: SessionPlan, seed: int) -> tuple[TaskInPlay, ...]:
    """Return the tasks of a session in its order, which is the same in every experiment."""
    # The path holds the session's number and not the experiment, so all experiments share the
    # order.
    rng = generator(seed, ("order", str(plan.number)))
    order = order_tasks([task_in_play.task for task_in_play in experiment.tasks.values()], rng)
    return tuple(experiment.tasks[task.task_id] for task in order)


def order_tasks(tasks: Sequence[Task], rng: np.random.Generator) -> tuple[Task, ...]:
    """Return the tasks sorted by `task_order`, with ties shuffled.

    Contexts come first among ties.
    """
    ordered = sorted(tasks, key=lambda task: (task.task_order, task.type != "context"))
    out: list[Task] = []
    for _, tied in groupby(ordered, key=lambda task: (task.task_order, task.type != "context")):
        group = list(tied)
        out.extend(group[item_id] for item_id in rng.permutation(len(group)))
    return tuple(out)


def _sealed_session(played: PlannedSession) -> dict[str, object]:
    return {
        "session": played.plan.label,
        "treatment": played.plan.treatment,
        "tasks": [task_in_play.task.task_id for task_in_play in played.order],
        "participants": [
            {
                "ID": session_participant.id,
                "role": session_participant.role,
                "name": session_participant.name,
            }
            for session_participant in played.plan.seats
        ],
    }


async def play_session(
    scope: Scope, played: PlannedSession, config: WorkbookConfig
) -> SessionState:
    """Play one session from start to end and return its final state."""
    experiment = played.experiment
    settings = experiment.workbook.settings
    computed = in_order(experiment.workbook.computed)
    sends_images = config.images == "send"
    state = SessionState(
        experiment, played.plan, played.order, computed, config.reasks, sends_images
    )
    await brief_speakers(scope, state)
    for task in played.order:
        if task.task.type == "context":
            # Contexts are part of the system prompt.
            continue
        if settings.max_rounds is not None and state.rounds >= settings.max_rounds:
            state.stop_session(task, CUT_ROUNDS)
        # A limit may have ended the session within the previous task.
        if state.ended != "completed":
            break
        state.rounds += 1
        in_play = asked_in(state, task)
        await ROUNDS[task.task.type](scope.child(task.task.task_id), state, task, in_play)
        state.finish_task(task)
    state.finish()
    if state.ended != "completed":
        limit = f"max_conversation_length ({settings.max_conversation_length})"
        if state.ended == CUT_ROUNDS:
            limit = f"max_num_rounds ({settings.max_rounds})"
        scope.warn(
            f"stopped in task {state.stopped_in} after {state.messages} messages: "
            f"{limit} is reached"
        )
    return state


async def run_discussion(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> None:
    """Put a question to the group. Participants then speak in turn and hear earlier speakers."""
    aloud = say_question(scope, state, task, in_play)
    places = [(who, scope.child(who if isinstance(who, str) else who.id)) for who in in_play]
    # Everyone hears the question before the first contribution.
    for who, place in places:
        if isinstance(who, SessionParticipant):
            say_question_to(place, state, task, who, aloud)
    for who, place in places:
        if state.left() <= 0:
            state.stop_session(task, CUT)
            return
        turn = state.turns + 1
        if isinstance(who, str):
            said = await ask_special(place, state, task, who, turn)
            state.add_to_history(
                [session_participant.id for session_participant in state.taken_seats], said
            )
            state.add_to_history(
                [special_role for special_role in state.special_roles if special_role != who], said
            )
        else:
            asked = await ask_seat(place, state, task, who, turn=turn)
            record_answer(state, asked)
            state.add_to_history(
                [
                    session_participant.id
                    for session_participant in state.taken_seats
                    if session_participant is not who
                ],
                asked.said,
            )


async def public_question(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> None:
    """Put a question to each participant in turn.

    The prompt lists the answers so far. Participants who have answered hear later answers at once.
    """
    say_question(scope, state, task, in_play)
    answers: list[Utterance] = []
    # Participants who sit out hear every answer at once.
    present = [
        session_participant.id
        for session_participant in state.taken_seats
        if session_participant not in in_play
    ]
    for who in in_play:
        if state.left() <= 0:
            state.stop_session(task, CUT)
            return
        turn = state.turns + 1
        if isinstance(who, str):
            said = await ask_special(scope.child(who), state, task, who, turn)
            state.add_to_history(
                [special_role for special_role in state.special_roles if special_role != who], said
            )
            state.add_to_history(present, said)
        else:
            place = scope.child(who.id)
            asked = await ask_seat(place, state, task, who, turn=turn, peers=answers)
            record_answer(state, asked)
            said = asked.said
            state.add_to_history(present, said)
            present.append(who.id)
        # A missing answer is not listed for those who answer later.
        if said.missing is None:
            answers.append(said)


async def private_question(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> None:
    """Put a question to each participant alone and in parallel, and reveal answers after the round.

    A special role speaks at its position in the dict and hears earlier private questions. After the
    round all answers are added to all histories, unless the layout keeps private answers private.
    """
    say_question(scope, state, task, in_play)
    aloud: list[Utterance] = []
    # Number the turns beforehand, because the order in which parallel answers arrive is not fixed.
    turns = {who: state.turns + place for place, who in enumerate(in_play, 1)}

    async def ask_alone(inner: Scope, seat: SessionParticipant) -> AskedTask:
        return await ask_seat(inner, state, task, seat, turn=turns[seat])

    # Neighbouring participants answer in parallel. A special role between them waits for those
    # before.
    for is_seat, group in groupby(in_play, key=lambda who: isinstance(who, SessionParticipant)):
        everybody = list(group)
        # Parallel answers cannot stop at a limit, so only as many are asked as it allows.
        allowed = everybody[: max(0, state.left())]
        if is_seat:
            seats = [who for who in allowed if isinstance(who, SessionParticipant)]
            for asked in (await scope.map(seats, ask_alone)).values():
                record_answer(state, asked)
                aloud.append(asked.said)
        else:
            for label in map(str, allowed):
                said = await ask_special(scope.child(label), state, task, label, turns[label])
                aloud.append(said)
        if len(allowed) < len(everybody):
            state.stop_session(task, CUT)
            break
    for said in aloud:
        is_special = said.speaker_id in state.special_roles
        if is_special:
            state.add_to_history(
                [
                    special_role
                    for special_role in state.special_roles
                    if special_role != said.speaker_id
                ],
                said,
            )
        if is_special or state.reveals_private:
            state.add_to_history(
                [
                    session_participant.id
                    for session_participant in state.taken_seats
                    if session_participant.id != said.speaker_id
                ],
                said,
            )


# Task type → the function that plays a round of it.
ROUNDS = {
    "discussion": run_discussion,
    "public_question": public_question,
    "private_question": private_question,
}
