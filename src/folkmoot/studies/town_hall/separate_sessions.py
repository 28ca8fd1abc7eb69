"""Separate contexts (level 2 and above): every resident has calls and a memory of their own.

Within a round all residents think and speak side by side and know only the statements of the
round before; thoughts and reflections go into no prompt but their owner's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall import readers
from folkmoot.studies.town_hall.asking import Got, Stage, ask_one
from folkmoot.studies.town_hall.cognition import (
    MINIMAL_REFLECTION,
    MINIMAL_SPEAKING,
    MINIMAL_THINKING,
    Reflection,
    Speaking,
    Thinking,
)
from folkmoot.studies.town_hall.records import Call, Round, Turn
from folkmoot.studies.town_hall.room import Room, moderator_words, own_statements, statements

Rounds = tuple[Round, ...]


async def run_round(
    scope: Scope, room: Room, seats: Mapping[str, Speaker], earlier: Rounds
) -> tuple[Round, list[Call]]:
    """THINK and SPEAK of all residents in the round that follows `earlier`."""
    number = len(earlier) + 1

    async def take_turn(own: Scope, who: Speaker) -> tuple[Turn, list[Call]]:
        calls = []
        thoughts: Thinking | None = None
        if room.level.think:
            got = await think(own, room, who, earlier)
            thoughts = got.value or MINIMAL_THINKING
            calls.append(got.call)
        said = await speak(own, room, who, earlier, thoughts)
        return Turn(who.id, thoughts, said.value or MINIMAL_SPEAKING), [*calls, said.call]

    taken = await scope.each([seats[i] for i in room.ids], take_turn)
    turns = {resident: turn for resident, (turn, _) in taken.items()}
    order = room.set.orders[number - 1]
    return Round(number, order, turns), [c for _, calls in taken.values() for c in calls]


async def think(scope: Scope, room: Room, who: Speaker, earlier: Rounds) -> Got[Thinking]:
    """THINK: private reactions to the round before, and where one stands."""
    number, last = len(earlier) + 1, earlier[-1] if earlier else None
    own = own_statements(earlier, who.id)
    reflection = last.reflections.get(who.id) if last else None
    remembered = reflection is not None and not reflection.parse_error
    prompt = scope.prompt(
        "think",
        me=who.id,
        round=number,
        rounds=room.rounds,
        statements=statements(last, but=who.id),
        moderator=moderator_words(last),
        own=own,
        reflection=reflection.to_json() if reflection and remembered else None,
    )
    stage = Stage("think", number, len(own) + remembered)
    return await ask_one(scope, who, prompt, readers.thinking(room.ids, who.id, number), stage)


async def speak(
    scope: Scope, room: Room, who: Speaker, earlier: Rounds, thoughts: Thinking | None
) -> Got[Speaking]:
    """SPEAK: what the hall hears, from one's own thoughts (or straight from what was said)."""
    number, last = len(earlier) + 1, earlier[-1] if earlier else None
    known = thoughts is not None and not thoughts.parse_error
    prompt = scope.prompt(
        "speak",
        me=who.id,
        round=number,
        rounds=room.rounds,
        thoughts=_noted(thoughts) if thoughts is not None and known else None,
        heard=bool(last),
        statements=[] if known else statements(last, but=who.id),
        own=[] if known else own_statements(earlier, who.id),
        moderator=moderator_words(last),
    )
    stage = Stage("speak", number, int(known))
    return await ask_one(scope, who, prompt, readers.speaking(room.ids, who.id, number), stage)


def _noted(thoughts: Thinking) -> dict[str, Any]:
    """Thoughts as the resident's own prompt quotes them; the first round's have no reactions."""
    return {k: v for k, v in thoughts.to_json().items() if v or k != "reactions"}


async def reflect(
    scope: Scope, room: Room, seats: Mapping[str, Speaker], round_: Round
) -> tuple[Round, list[Call]]:
    """REFLECT: each looks back on the round; the round with the reflections in it."""

    async def look_back(own: Scope, who: Speaker) -> Got[Reflection]:
        turn = round_.turns[who.id]
        stance = (turn.thinking.overall_stance if turn.thinking else None) or ""
        prompt = own.prompt(
            "reflect",
            me=who.id,
            round=round_.number,
            rounds=room.rounds,
            statements=statements(round_, but=who.id),
            own_statement=turn.speaking.full_statement,
            stance=stance,
        )
        answer = readers.reflection(room.ids, who.id, stance)
        return await ask_one(own, who, prompt, answer, Stage("reflect", round_.number, 1))

    got = await scope.each([seats[i] for i in room.ids], look_back)
    reflections = {i: g.value or MINIMAL_REFLECTION for i, g in got.items()}
    return replace(round_, reflections=reflections), [g.call for g in got.values()]
