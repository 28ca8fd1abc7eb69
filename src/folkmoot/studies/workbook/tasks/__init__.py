"""The task types, one module each: how a round is played and who hears what of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from folkmoot.engine.session import Scope
from folkmoot.studies.workbook.permutations import TaskInPlay
from folkmoot.studies.workbook.room import Room
from folkmoot.studies.workbook.tasks import discussion, private_question, public_question

Play = Callable[[Scope, Room, TaskInPlay], Awaitable[None]]

# Contexts are no rounds: they are part of the system message (see `tasks/context.py`).
ROUNDS: Mapping[str, Play] = {
    "discussion": discussion.play,
    "public_question": public_question.play,
    "private_question": private_question.play,
}
