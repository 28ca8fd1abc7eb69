"""Shared context (level 1): one session writes all residents' turns of a round in one reply.

The records have the same shapes as those of separate sessions. A reply that would be too long is
split, and residents that it did not come to are asked for again; `Round.parts` says how many calls
it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from folkmoot.conversation.answers import Json, JsonMap, Missing, Parsed, Unreadable, object_schema
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.answers import (
    MINIMAL_REFLECTION,
    MINIMAL_SPEAKING,
    MINIMAL_THINKING,
    Reflection,
    Turn,
    reflection,
    turn,
)
from folkmoot.studies.town_hall.discussion import (
    Call,
    Round,
    one_line,
)
from folkmoot.studies.town_hall.sessions import (
    Group,
    Hall,
    Stage,
    all_heard,
    ask_together,
    call_of,
    each_of,
    session_of,
)

# Tokens that one resident's part is expected to take: the fixed fields and each reaction.
TURN_TOKENS, REACTION_TOKENS, REFLECTION_TOKENS = 330, 55, 200

Turns = dict[str, Turn]
Reflections = dict[str, Reflection]


@dataclass(frozen=True, slots=True)
class UpcomingRound:
    """One round of the shared session, before it is held."""

    hall: Hall
    earlier: tuple[Round, ...]
    reflects: bool

    @property
    def number(self) -> int:
        return len(self.earlier) + 1

    @property
    def order(self) -> tuple[str, ...]:
        return self.hall.meeting.orders[self.number - 1]

    @property
    def stage(self) -> Stage:
        return Stage("round", self.number, len(self.earlier))

    @property
    def think(self) -> bool:
        return self.hall.meeting.level.think

    def tokens(self, *, reflects: bool) -> int:
        """Expected length of one resident's part of a reply."""
        others = len(self.order) - 1 if self.think and self.earlier else 0
        return TURN_TOKENS + REACTION_TOKENS * others + (REFLECTION_TOKENS if reflects else 0)

    def turns(self) -> dict[str, Json[Turn]]:
        """How each resident's turn is read."""
        asked = {i: self.hall.asked(i, round=self.number, think=self.think) for i in self.order}
        return {i: turn(of) for i, of in asked.items()}

    def prompt(self, scope: Scope, residents: list[str], there: Turns, *, whole: bool) -> str:
        """What is asked for these residents; `there` are turns that were written already."""
        last = self.earlier[-1] if self.earlier else None
        noted = last.reflections if last else {}
        said = {i: one_line(t.speaking.full_statement) for i, t in there.items()}
        return scope.prompt(
            "shared_round",
            ids=residents,
            round=self.number,
            rounds=self.hall.meeting.rounds,
            **all_heard(self.hall, self.earlier),
            notes=[
                {"id": i, "reflection": noted[i].to_json()}
                for i in residents
                if i in noted and not noted[i].parse_error
            ],
            already=self.hall.meeting.lines(said.items()),
            think=self.think,
            reflect=self.reflects and whole,
            whole=whole,
        )


async def shared_round(
    scope: Scope, hall: Hall, earlier: tuple[Round, ...], *, reflects: bool
) -> tuple[Round, list[Call]]:
    """One round: turns of all residents and, where wanted, their reflections."""
    ahead = UpcomingRound(hall, earlier, reflects)
    turns: Turns = {}
    reflections: Reflections = {}
    calls: list[Call] = []
    longest = hall.longest_reply
    if len(ahead.order) * ahead.tokens(reflects=reflects) <= longest:
        turns, reflections, calls = await _in_one_reply(scope, ahead)
    missing = [i for i in ahead.order if i not in turns]
    if missing:
        more, further = await _turns(scope, ahead, turns, missing)
        turns, calls = {**turns, **more}, [*calls, *further]
    silent = MINIMAL_THINKING if ahead.think else None
    unread = Turn.model_construct(thinking=silent, speaking=MINIMAL_SPEAKING)
    round_ = Round(ahead.number, ahead.order, {i: turns.get(i, unread) for i in hall.ids})
    if reflects:
        missing = [i for i in ahead.order if i not in reflections]
        if missing:
            late, further = await _reflections(scope, hall, (*earlier, round_), missing)
            reflections, calls = {**reflections, **late}, [*calls, *further]
        kept = {i: reflections.get(i, MINIMAL_REFLECTION) for i in hall.ids}
        round_ = replace(round_, reflections=kept)
    if len(calls) > 1:
        lost = calls[0].missing
        why = f"the first was no use ({lost})" if lost else "too long for one reply of the session"
        scope.log(f"round {ahead.number} took {len(calls)} calls: {why}")
    return replace(round_, parts=len(calls)), calls


async def _in_one_reply(
    scope: Scope, ahead: UpcomingRound
) -> tuple[Turns, Reflections, list[Call]]:
    who = session_of(ahead.hall)
    question = ahead.prompt(scope, list(ahead.order), {}, whole=True)
    longest = ahead.hall.longest_reply
    got = await scope.exchange(who, question, answer=WholeRound(ahead), max_tokens=longest)
    call = call_of(ahead.stage, who, ahead.order, question, got)
    if isinstance(got.value, Missing):
        # Its residents are asked for again, so that no minimal structure stands for them yet.
        return {}, {}, [replace(call, minimal=0, rung=got.rung)]
    turns, reflections = got.value
    return turns, reflections, [call]


@dataclass(frozen=True, slots=True)
class WholeRound:
    """The answer type of a round in one reply: all turns, then all reflections on them."""

    ahead: UpcomingRound
    kind: str = "json"

    @property
    def schema(self) -> dict[str, Any]:
        schemas = {"turns": each_of(self.ahead.turns()).schema}
        if self.ahead.reflects:
            schemas["reflections"] = self._back(dict.fromkeys(self.ahead.order, "")).schema
        return object_schema("Round", schemas)

    def _back(self, stances: Mapping[str, str]) -> JsonMap[Reflection]:
        return each_of(
            {i: reflection(self.ahead.hall.asked(i, stance=s)) for i, s in stances.items()}
        )

    def parse(self, reply: str) -> Parsed[tuple[Turns, Reflections]] | Unreadable:
        found = Json(AnyObject).parse(reply)
        if isinstance(found, Unreadable):
            return found
        raw = found.value.model_extra or {}
        said = each_of(self.ahead.turns()).read(_object(raw, "turns", raw))
        if isinstance(said, Unreadable):
            return said
        turns = said.value.values
        stances = {i: turn.stance for i, turn in turns.items()} if self.ahead.reflects else {}
        back = self._back(stances).read(_object(raw, "reflections", {}))
        if isinstance(back, Unreadable):
            return Parsed((turns, {}), found.rung, said.repairs)
        return Parsed((turns, back.value.values), found.rung, (*said.repairs, *back.repairs))


class AnyObject(BaseModel):
    """Any JSON object; its parts are read one by one."""

    model_config = ConfigDict(extra="allow")


async def _turns(
    scope: Scope, ahead: UpcomingRound, there: Turns, missing: list[str]
) -> tuple[Turns, list[Call]]:
    """Turns of those who are missing, in as many replies as they need."""

    def prompt(residents: list[str], given: Mapping[str, Turn]) -> str:
        return ahead.prompt(scope, residents, {**there, **given}, whole=False)

    turns = ahead.turns()
    group = Group(ahead.stage, {i: turns[i] for i in missing}, ahead.tokens(reflects=False), prompt)
    return await ask_together(scope, ahead.hall, group)


async def _reflections(
    scope: Scope, hall: Hall, rounds: tuple[Round, ...], missing: list[str]
) -> tuple[Reflections, list[Call]]:
    round_, meeting = rounds[-1], hall.meeting

    def prompt(residents: list[str], _: Mapping[str, Reflection]) -> str:
        return scope.prompt(
            "shared_reflect",
            ids=residents,
            round=round_.number,
            rounds=meeting.rounds,
            earlier=meeting.history(meeting.remembered(rounds)[:-1]),
            statements=meeting.statements(round_),
            stances=[{"id": i, "stance": round_.turns[i].stance} for i in residents],
        )

    stage = Stage("reflect", round_.number, 1)
    each = {i: reflection(hall.asked(i, stance=round_.turns[i].stance)) for i in missing}
    return await ask_together(scope, hall, Group(stage, each, REFLECTION_TOKENS, prompt))


def _object(raw: Mapping[str, Any], name: str, otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else otherwise
