"""Private question: put to each alone; answers are hidden until the round ends."""

from __future__ import annotations

from itertools import groupby

from folkmoot.conversation.transcript import EMPTY, Utterance
from folkmoot.engine.session import Scope
from folkmoot.studies.workbook.assignment import Seat
from folkmoot.studies.workbook.permutations import TaskInPlay
from folkmoot.studies.workbook.room import CUT, Room
from folkmoot.studies.workbook.tasks.asking import (
    Asked,
    ask_seat,
    ask_special,
    question_aloud,
    settle,
)


async def play(scope: Scope, room: Room, task: TaskInPlay) -> None:
    """Participants answer side by side, knowing the round's beginning only.

    A special role speaks where the dict has it and hears those before it. When the round is over
    everybody hears everything, unless the layout keeps private answers private.
    """
    place = room.rounds
    in_play = room.in_play(task)
    question_aloud(room, task, in_play)
    aloud: list[Utterance] = []
    for is_special, group in groupby(in_play, key=lambda who: isinstance(who, str)):
        everybody = list(group)
        allowed = everybody[: max(0, room.left())]
        if is_special:
            for label in allowed:
                assert isinstance(label, str)
                aloud.append(await ask_special(scope.at(label), room, task, label, place=place))
        else:
            seats = [who for who in allowed if isinstance(who, Seat)]
            aloud += await _together(scope, room, task, seats, place)
        if len(allowed) < len(everybody):
            room.stop(task, CUT)
            break
    _reveal(room, aloud)


async def _together(
    scope: Scope, room: Room, task: TaskInPlay, seats: list[Seat], place: int
) -> list[Utterance]:
    """Answers of participants who do not hear each other, in speaking order."""

    async def one(inner: Scope, seat: Seat) -> Asked:
        heard = room.heard.get(seat.id, EMPTY)
        return await ask_seat(inner, room, task, seat, heard=heard, place=place)

    found = await scope.each(seats, one)
    for asked in found.values():
        settle(room, asked)
        for utterance in asked.memory:
            room.tell([asked.seat.id], utterance)
    return [asked.aloud(task) for asked in found.values()]


def _reveal(room: Room, aloud: list[Utterance]) -> None:
    """The round is over: everybody hears what the others said."""
    open_answers = room.experiment.workbook.settings.reveal_private
    for said in aloud:
        special = said.speaker_id in room.specials
        if special:
            room.tell([r for r in room.specials if r != said.speaker_id], said)
        if special or open_answers:
            room.tell([s.id for s in room.seats if s.id != said.speaker_id], said)
