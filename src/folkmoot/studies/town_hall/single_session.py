"""Shared context (level 1): one session writes all residents' turns of a round in one reply.

The records have the same shapes as those of separate sessions. A reply that would be too long is
split, and residents that it did not come to are asked for again; `Round.parts` says how many
calls it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from folkmoot.conversation.answers import Json, Missing, Parsed, Unreadable
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall import readers
from folkmoot.studies.town_hall.asking import Group, Stage, ask_group, call_of
from folkmoot.studies.town_hall.cognition import (
    MINIMAL_REFLECTION,
    MINIMAL_SPEAKING,
    MINIMAL_THINKING,
    Reflection,
)
from folkmoot.studies.town_hall.records import Call, Round, Turn
from folkmoot.studies.town_hall.replies import (
    AnyObject,
    Batch,
    Reader,
    keyed_schema,
    nobody,
    object_schema,
    read_batch,
    schema_of,
)
from folkmoot.studies.town_hall.room import Room, moderator_words, one_line, statements

# Tokens that one resident's part is expected to take: the fixed fields and each reaction.
TURN_TOKENS, REACTION_TOKENS, REFLECTION_TOKENS = 330, 55, 200


@dataclass(frozen=True, slots=True)
class RoundReply:
    """What one reply gave of a round."""

    turns: Batch[Turn]
    reflections: Batch[Reflection]


@dataclass(frozen=True, slots=True)
class WholeRound:
    """The answer type of a round in one reply: all turns, then all reflections on them."""

    turns: Mapping[str, Reader[Turn]]
    schema: dict[str, Any]
    ids: tuple[str, ...]
    reflects: bool
    kind: str = "json"

    def parse(self, reply: str) -> Parsed[RoundReply] | Unreadable:
        found = Json(AnyObject).parse(reply)
        if isinstance(found, Unreadable):
            return found
        raw = found.value.model_extra or {}
        turns = read_batch(_part(raw, "turns", raw), self.turns)
        if not turns.values:
            return nobody(turns)
        reflections: Batch[Reflection] = Batch({}, {})
        if self.reflects:
            stances = {i: stance_of(m.value) for i, m in turns.values.items()}
            reading = {i: readers.reflection(self.ids, i, s).reader for i, s in stances.items()}
            reflections = read_batch(_part(raw, "reflections", {}), reading)
        return Parsed(RoundReply(turns, reflections), found.rung)


async def run_round(
    scope: Scope, room: Room, session: Speaker, earlier: tuple[Round, ...], *, reflects: bool
) -> tuple[Round, list[Call]]:
    """One round: turns of all residents and, where wanted, their reflections."""
    number = len(earlier) + 1
    order = room.set.orders[number - 1]
    turns: dict[str, Turn] = {}
    reflections: dict[str, Reflection] = {}
    calls: list[Call] = []
    if len(order) * _tokens(room, number, reflects) <= room.config.longest_shared_reply:
        turns, reflections, calls = await _in_one_reply(scope, room, session, earlier, reflects)
    missing = [i for i in order if i not in turns]
    if missing:
        more, further = await _turns(scope, room, session, earlier, turns, missing)
        turns, calls = {**turns, **more}, [*calls, *further]
    round_ = Round(number, order, {i: turns.get(i) or _minimal(room, i) for i in room.ids})
    if reflects:
        missing = [i for i in order if i not in reflections]
        if missing:
            more_r, further = await _reflections(scope, room, session, round_, missing)
            reflections, calls = {**reflections, **more_r}, [*calls, *further]
        kept = {i: reflections.get(i, MINIMAL_REFLECTION) for i in room.ids}
        round_ = replace(round_, reflections=kept)
    if len(calls) > 1:
        lost = calls[0].missing
        why = f"the first was no use ({lost})" if lost else "too long for one reply of the session"
        scope.log(f"round {number} took {len(calls)} calls: {why}")
    return replace(round_, parts=len(calls)), calls


def stance_of(turn: Turn) -> str:
    """Where a resident stood as they went into the round, or nothing."""
    return (turn.thinking.overall_stance if turn.thinking else None) or ""


async def _in_one_reply(
    scope: Scope, room: Room, session: Speaker, earlier: tuple[Round, ...], reflects: bool
) -> tuple[dict[str, Turn], dict[str, Reflection], list[Call]]:
    number = len(earlier) + 1
    order = room.set.orders[number - 1]
    turn_schema = readers.turn_schema(number, think=room.level.think)
    parts = {"turns": keyed_schema(dict.fromkeys(order, turn_schema))}
    if reflects:
        parts["reflections"] = keyed_schema(dict.fromkeys(order, schema_of(Reflection)))
    answer = WholeRound(
        _turn_readers(room, number), object_schema("Round", parts), room.ids, reflects
    )
    question = _round_prompt(scope, room, earlier, list(order), {}, reflects=reflects, whole=True)
    longest = room.config.longest_shared_reply
    got = await scope.exchange(session, question, answer=answer, max_tokens=longest)
    stage = Stage("round", number, len(earlier))
    if isinstance(got.value, Missing):
        return {}, {}, [call_of(stage, session.id, order, question, got)]
    reply = got.value
    mends = tuple(
        mend
        for batch in (reply.turns.values, reply.reflections.values)
        for m in batch.values()
        for mend in m.mends
    )
    turns = {i: m.value for i, m in reply.turns.values.items()}
    reflections = {i: m.value for i, m in reply.reflections.values.items()}
    return turns, reflections, [call_of(stage, session.id, order, question, got, mends=mends)]


async def _turns(
    scope: Scope,
    room: Room,
    session: Speaker,
    earlier: tuple[Round, ...],
    there: Mapping[str, Turn],
    missing: list[str],
) -> tuple[dict[str, Turn], list[Call]]:
    """Turns of those who are missing, in as many replies as they need."""
    number = len(earlier) + 1

    def prompt(chunk: list[str], given: Mapping[str, Turn]) -> str:
        return _round_prompt(
            scope, room, earlier, chunk, {**there, **given}, reflects=False, whole=False
        )

    schema = readers.turn_schema(number, think=room.level.think)
    group = Group(
        _turn_readers(room, number),
        dict.fromkeys(room.ids, schema),
        _tokens(room, number, reflects=False),
    )
    return await ask_group(
        scope,
        session,
        prompt,
        group,
        Stage("round", number, len(earlier)),
        longest=room.config.longest_shared_reply,
        residents=missing,
    )


async def _reflections(
    scope: Scope, room: Room, session: Speaker, round_: Round, missing: list[str]
) -> tuple[dict[str, Reflection], list[Call]]:
    def prompt(chunk: list[str], _: Mapping[str, Reflection]) -> str:
        return scope.prompt(
            "shared_reflect",
            ids=chunk,
            round=round_.number,
            rounds=room.rounds,
            statements=statements(round_),
            stances=[{"id": i, "stance": stance_of(round_.turns[i])} for i in chunk],
        )

    group = Group(
        {i: readers.reflection(room.ids, i, stance_of(round_.turns[i])).reader for i in room.ids},
        dict.fromkeys(room.ids, schema_of(Reflection)),
        REFLECTION_TOKENS,
    )
    return await ask_group(
        scope,
        session,
        prompt,
        group,
        Stage("reflect", round_.number, 1),
        longest=room.config.longest_shared_reply,
        residents=missing,
    )


def _round_prompt(
    scope: Scope,
    room: Room,
    earlier: tuple[Round, ...],
    residents: list[str],
    there: Mapping[str, Turn],
    *,
    reflects: bool,
    whole: bool,
) -> str:
    last = earlier[-1] if earlier else None
    noted = last.reflections if last else {}
    notes = [
        {"id": i, "reflection": noted[i].to_json()}
        for i in residents
        if i in noted and not noted[i].parse_error
    ]
    said = [
        {"id": i, "text": one_line(t.speaking.full_statement)}
        for i, t in there.items()
        if t.speaking.full_statement
    ]
    return scope.prompt(
        "shared_round",
        ids=residents,
        round=len(earlier) + 1,
        rounds=room.rounds,
        history=[{"round": r.number, "statements": statements(r)} for r in earlier],
        moderator=moderator_words(last),
        notes=notes,
        already=said,
        think=room.level.think,
        reflect=reflects,
        whole=whole,
    )


def _turn_readers(room: Room, number: int) -> dict[str, Reader[Turn]]:
    think = room.level.think
    order = room.set.orders[number - 1]
    return {i: readers.turn(room.ids, i, number, think=think) for i in order}


def _minimal(room: Room, resident: str) -> Turn:
    return Turn(resident, MINIMAL_THINKING if room.level.think else None, MINIMAL_SPEAKING)


def _tokens(room: Room, number: int, reflects: bool) -> int:
    """Expected length of one resident's part of a reply."""
    reactions = REACTION_TOKENS * (len(room.ids) - 1) if room.level.think and number > 1 else 0
    return TURN_TOKENS + reactions + (REFLECTION_TOKENS if reflects else 0)


def _part(raw: Mapping[str, Any], name: str, otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else otherwise
