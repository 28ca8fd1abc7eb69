"""Discussion: one question to the group, then each speaks in turn and hears those before."""

from __future__ import annotations

from folkmoot.engine.session import Scope
from folkmoot.studies.workbook.permutations import TaskInPlay
from folkmoot.studies.workbook.room import CUT, Room
from folkmoot.studies.workbook.tasks.asking import (
    ask_seat,
    ask_special,
    by_facilitator,
    question_aloud,
    settle,
    wording,
)


async def play(scope: Scope, room: Room, task: TaskInPlay) -> None:
    """Everybody hears the question first and each contribution as it is made."""
    place = room.rounds
    in_play = room.in_play(task)
    for seat in room.seats:
        if seat in in_play:
            room.tell([seat.id], by_facilitator(wording(room, task, seat, "")[0], task))
    question_aloud(room, task, in_play)
    for who in in_play:
        if room.left() <= 0:
            room.stop(task, CUT)
            return
        if isinstance(who, str):
            said = await ask_special(scope.at(who), room, task, who, place=place)
            room.tell([s.id for s in room.seats], said)
            room.tell([r for r in room.specials if r != who], said)
            continue
        asked = await ask_seat(
            scope.at(who.id),
            room,
            task,
            who,
            heard=room.heard[who.id],
            place=place,
            prompt="turn",
        )
        settle(room, asked)
        room.tell([who.id], asked.memory[0])
        for utterance in asked.memory[1:]:
            room.tell([who.id], utterance)
        room.tell([s.id for s in room.seats if s.id != who.id], asked.aloud(task))
