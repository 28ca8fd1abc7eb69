"""Public question: put to each in turn; the answers so far stand before the question."""

from __future__ import annotations

from folkmoot.conversation.transcript import EMPTY, Utterance
from folkmoot.engine.session import Scope
from folkmoot.studies.workbook.permutations import TaskInPlay
from folkmoot.studies.workbook.room import CUT, Room
from folkmoot.studies.workbook.tasks.asking import (
    ask_seat,
    ask_special,
    question_aloud,
    settle,
)


async def play(scope: Scope, room: Room, task: TaskInPlay) -> None:
    """Each participant sees the answers of those before it at once, of those after it later."""
    place = room.rounds
    in_play = room.in_play(task)
    question_aloud(room, task, in_play)
    answers: list[Utterance] = []
    answered: set[str] = set()
    for who in in_play:
        if room.left() <= 0:
            room.stop(task, CUT)
            return
        if isinstance(who, str):
            said = await ask_special(scope.at(who), room, task, who, place=place)
            room.tell([r for r in room.specials if r != who], said)
            # Who has answered hears it now; the others find it before their question.
            room.tell([s.id for s in room.seats if s.id in answered or s not in in_play], said)
            if said.missing is None:
                answers.append(said)
            continue
        asked = await ask_seat(
            scope.at(who.id),
            room,
            task,
            who,
            heard=room.heard.get(who.id, EMPTY),
            place=place,
            peers=answers,
        )
        settle(room, asked)
        for utterance in asked.memory:
            room.tell([who.id], utterance)
        said = asked.aloud(task)
        others = [s for s in room.seats if s.id in answered or s not in in_play]
        room.tell([s.id for s in others], said)
        answered.add(who.id)
        if said.missing is None:
            answers.append(said)
