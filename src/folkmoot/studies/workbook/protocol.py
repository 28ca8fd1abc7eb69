"""The protocol of a workbook.

It draws treatments, sessions, roles and the order of tasks before the run calls a model. Then it
runs each session and records its rows.
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
    record_answer,
    say_question,
    say_question_to,
    speakers_to_ask,
)
from folkmoot.studies.workbook.config import Task, WorkbookConfig
from folkmoot.studies.workbook.language.expressions import in_order
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
    """A session that has not started yet."""

    experiment: Experiment
    plan: SessionPlan
    order: tuple[TaskInPlay, ...]

    @property
    def id(self) -> str:
        return f"{self.experiment.id}.{self.plan.number}"


async def run_protocol(session: Session[WorkbookConfig]) -> None:
    """Run all experiments of a workbook."""
    config = session.config
    experiments = build_experiments(config.workbook)
    # All experiments share one assignment, so that they differ only in their constants.
    plans = sessions_of(config, experiments[0])
    planned_sessions = [
        PlannedSession(experiment, plan, ordered_tasks(experiment, plan, session.seed))
        for experiment in experiments
        for plan in plans
    ]
    await session.seal(
        "assignment",
        [_sealed_session(planned_session) for planned_session in planned_sessions[: len(plans)]],
    )
    await session.seal(
        "experiments",
        [
            {"id": experiment.id, "constants": dict(experiment.constants)}
            for experiment in experiments
        ],
    )
    record_design(session, experiments, plans)

    async def run_session(scope: Scope, item: PlannedSession) -> None:
        record_session(scope, await play_session(scope, item, config))

    # Blocks are the sessions with one label: the same participants in each experiment.
    await session.child("sessions").map(
        planned_sessions, run_session, block=lambda planned_session: planned_session.plan.label
    )


def available_seats(config: WorkbookConfig, _folder: Path) -> list[Seat]:
    """Return the seats that humans can take."""
    # Each participant of each session and experiment has one.
    experiments = build_experiments(config.workbook)
    plans = sessions_of(config, experiments[0])
    planned_sessions = [
        PlannedSession(experiment, plan, ()) for experiment in experiments for plan in plans
    ]
    return [
        Seat(
            session_participant.id,
            (planned_session.id,),
            session_participant.role,
            planned_session.plan.treatment,
            part=planned_session.plan.label,
        )
        for planned_session in planned_sessions
        for session_participant in planned_session.plan.seats
    ]


def sessions_of(config: WorkbookConfig, experiment: Experiment) -> list[SessionPlan]:
    """Return the sessions of an experiment.

    Raises InputError if the design has problems.
    """
    plans, problems = assign_sessions(experiment, config.random_seed)
    if problems:
        raise InputError(problems)
    return plans[: config.first_sessions]


def ordered_tasks(experiment: Experiment, plan: SessionPlan, seed: int) -> tuple[TaskInPlay, ...]:
    """Return the tasks in the order in which a session asks them."""
    # The order is the same in all experiments.
    # The path holds the session's number and not the experiment, so all experiments share the
    # order.
    rng = generator(seed, ("order", str(plan.number)))
    order = order_tasks([task_in_play.task for task_in_play in experiment.tasks.values()], rng)
    return tuple(experiment.tasks[task.task_id] for task in order)


def order_tasks(tasks: Sequence[Task], rng: np.random.Generator) -> tuple[Task, ...]:
    """Return the tasks sorted by `task_order`, with tasks of the same number in random order."""
    # Among tasks with the same number, context tasks come first.
    ordered = sorted(tasks, key=lambda task: (task.task_order, task.type != "context"))
    order: list[Task] = []
    for _, tied_tasks in groupby(
        ordered, key=lambda task: (task.task_order, task.type != "context")
    ):
        group = list(tied_tasks)
        order.extend(group[index] for index in rng.permutation(len(group)))
    return tuple(order)


def _sealed_session(planned: PlannedSession) -> dict[str, object]:
    return {
        "session": planned.plan.label,
        "treatment": planned.plan.treatment,
        "tasks": [task_in_play.task.task_id for task_in_play in planned.order],
        "participants": [
            {
                "ID": session_participant.id,
                "role": session_participant.role,
                "name": session_participant.name,
            }
            for session_participant in planned.plan.seats
        ],
    }


async def play_session(
    scope: Scope, planned: PlannedSession, config: WorkbookConfig
) -> SessionState:
    """Run one session from start to end and return its final state."""
    experiment = planned.experiment
    settings = experiment.workbook.settings
    computed = in_order(experiment.workbook.computed)
    sends_images = config.images == "send"
    state = SessionState(
        experiment, planned.plan, planned.order, computed, config.reasks, sends_images
    )
    await brief_speakers(scope, state)
    for task in planned.order:
        if task.task.type == "context":
            # Contexts are part of the system prompt.
            continue
        if settings.max_rounds is not None and state.rounds >= settings.max_rounds:
            state.stop_session(task, CUT_ROUNDS)
        # A limit may have ended the session within the previous task.
        if state.ended != "completed":
            break
        state.rounds += 1
        in_play = speakers_to_ask(state, task)
        await ROUNDS[task.task.type](scope.child(task.task.task_id), state, task, in_play)
        state.finish_task(task)
    state.finish()
    for note in (*state.unfilled_notes(), *state.share_notes()):
        scope.warn(note)
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
    """Let participants discuss a question in turn."""
    # Each hears the earlier answers.
    question = say_question(scope, state, task, in_play)
    speaker_scopes = [
        (speaker, scope.child(speaker if isinstance(speaker, str) else speaker.id))
        for speaker in in_play
    ]
    # Everyone hears the question before the first contribution.
    for speaker, speaker_scope in speaker_scopes:
        if isinstance(speaker, SessionParticipant):
            say_question_to(speaker_scope, state, task, speaker, question)
    for speaker, speaker_scope in speaker_scopes:
        if state.messages_left() <= 0:
            state.stop_session(task, CUT)
            return
        turn = state.turns + 1
        if isinstance(speaker, str):
            utterance = await ask_special(speaker_scope, state, task, speaker, turn)
            state.add_to_history(
                [session_participant.id for session_participant in state.taken_seats], utterance
            )
            state.add_to_history(
                [special_role for special_role in state.special_roles if special_role != speaker],
                utterance,
            )
        else:
            asked = await ask_seat(speaker_scope, state, task, speaker, turn=turn)
            record_answer(state, asked)
            state.add_to_history(
                [
                    session_participant.id
                    for session_participant in state.taken_seats
                    if session_participant is not speaker
                ],
                asked.utterance,
            )


async def public_question(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> None:
    """Put a question to each participant in turn."""
    # The prompt lists the answers so far. Participants who have already answered hear each later
    # answer immediately.
    say_question(scope, state, task, in_play)
    answers: list[Utterance] = []
    # Participants who sit out hear every answer at once.
    listeners = [
        session_participant.id
        for session_participant in state.taken_seats
        if session_participant not in in_play
    ]
    for speaker in in_play:
        if state.messages_left() <= 0:
            state.stop_session(task, CUT)
            return
        turn = state.turns + 1
        if isinstance(speaker, str):
            utterance = await ask_special(scope.child(speaker), state, task, speaker, turn)
            state.add_to_history(
                [special_role for special_role in state.special_roles if special_role != speaker],
                utterance,
            )
            state.add_to_history(listeners, utterance)
        else:
            speaker_scope = scope.child(speaker.id)
            asked = await ask_seat(speaker_scope, state, task, speaker, turn=turn, peers=answers)
            record_answer(state, asked)
            utterance = asked.utterance
            state.add_to_history(listeners, utterance)
            listeners.append(speaker.id)
        # A missing answer is not listed for those who answer later.
        if utterance.missing is None:
            answers.append(utterance)


async def private_question(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> None:
    """Put a question to all participants in parallel, and reveal their answers afterwards."""
    # In some layouts the answers stay private. A special role, such as the Summarizer, answers
    # after the participants before it.
    say_question(scope, state, task, in_play)
    utterances: list[Utterance] = []
    # Number the turns beforehand, because the order in which parallel answers arrive is not fixed.
    turns = {speaker: state.turns + place for place, speaker in enumerate(in_play, 1)}

    async def ask_alone(seat_scope: Scope, seat: SessionParticipant) -> AskedTask:
        return await ask_seat(seat_scope, state, task, seat, turn=turns[seat])

    # Neighbouring participants answer in parallel. A special role between them waits for those
    # before.
    for is_seat, group in groupby(
        in_play, key=lambda speaker: isinstance(speaker, SessionParticipant)
    ):
        members = list(group)
        # Parallel answers cannot stop at a limit, so only as many are asked as it allows.
        allowed = members[: max(0, state.messages_left())]
        if is_seat:
            seats = [speaker for speaker in allowed if isinstance(speaker, SessionParticipant)]
            for asked in (await scope.map(seats, ask_alone)).values():
                record_answer(state, asked)
                utterances.append(asked.utterance)
        else:
            for label in map(str, allowed):
                utterance = await ask_special(scope.child(label), state, task, label, turns[label])
                utterances.append(utterance)
        if len(allowed) < len(members):
            state.stop_session(task, CUT)
            break
    for utterance in utterances:
        is_special = utterance.speaker_id in state.special_roles
        if is_special:
            state.add_to_history(
                [
                    special_role
                    for special_role in state.special_roles
                    if special_role != utterance.speaker_id
                ],
                utterance,
            )
        if is_special or state.reveals_private:
            state.add_to_history(
                [
                    session_participant.id
                    for session_participant in state.taken_seats
                    if session_participant.id != utterance.speaker_id
                ],
                utterance,
            )


# Task type → the function that plays a round of it.
ROUNDS = {
    "discussion": run_discussion,
    "public_question": public_question,
    "private_question": private_question,
}
