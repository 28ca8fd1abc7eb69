"""Who is asked and how: residents in sessions of their own, or one shared session for all.

The only callers of the engine's `exchange` in this study; every answer leaves a `Call` for the
quality counts and the logs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answers import Answer, Json, JsonMap, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Exchange, Scope
from folkmoot.models import catalog
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import Call, Meeting, Round, own_statements
from folkmoot.studies.town_hall.participants import Resident
from folkmoot.studies.town_hall.repairs import Asked, resolve

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Hall:
    """Who can be asked at a meeting: `seats` of residents, or the one shared `session`."""

    meeting: Meeting
    seats: Mapping[str, Speaker]
    session: Speaker | None
    planner: Speaker
    moderator: Speaker | None
    longest_reply: int  # tokens of one reply of the shared session, as far as they are known

    @property
    def ids(self) -> tuple[str, ...]:
        return self.meeting.ids

    def asked(self, me: str, **more: Any) -> Asked:
        """What reading an answer of `me` takes: who else is there, and what was asked for."""
        return Asked(self.ids, me, names=self.meeting.names, **more)


def open_hall(scope: Scope, meeting: Meeting) -> Hall:
    """Everybody with their system prompt: personas, the shared session, planner, moderator.

    The planner is not told who is vulnerable and is the same model at every level.
    """
    level = meeting.level
    known = {"residents": len(meeting.ids), "topic": meeting.topic}
    shared = level.context == "shared"
    moderator = None
    if level.moderated:
        listed = [
            {"id": r.id, "name": r.name, "label": r.label}
            for r in meeting.residents
            if r.is_vulnerable and level.moderator_list
        ]
        moderator = Speaker(
            id="moderator",
            name="Moderator",
            role="moderator",
            system=scope.prompt("moderator_system", vulnerable=listed, **known),
            model=None if level.moderator == "model" else level.moderator,
        )
    return Hall(
        meeting,
        {} if shared else {r.id: _resident(scope, meeting, r) for r in meeting.people},
        _shared_session(scope, meeting) if shared else None,
        Speaker(
            id="planner",
            name="Planner",
            role="planner",
            system=scope.prompt("planner_system", **known),
        ),
        moderator,
        longest_reply(meeting.config, scope.root.model_of("participant", meeting.one_model)),
    )


def longest_reply(config: TownHallConfig, model: str) -> int:
    """Tokens of the longest reply that a shared session is asked for: as the study file says, or
    as the model can give, whichever is less."""
    limit = catalog.longest_reply(model, config.endpoints)
    return min(config.longest_shared_reply, limit or config.longest_shared_reply)


def _resident(scope: Scope, meeting: Meeting, resident: Resident) -> Speaker:
    described = portrait(scope, meeting, resident)
    system = scope.prompt(
        "persona",
        r={"id": resident.id},
        portrait=described,
        topic=meeting.topic,
        residents=len(meeting.ids),
        rounds=meeting.rounds,
    )
    model = meeting.seats[resident.id]
    return Speaker(resident.id, resident.id, system=system, model=model, persona=described)


def _shared_session(scope: Scope, meeting: Meeting) -> Speaker:
    system = scope.prompt(
        "shared_session",
        portraits=[portrait(scope, meeting, r) for r in meeting.people],
        residents=list(meeting.ids),
        topic=meeting.topic,
        rounds=meeting.rounds,
    )
    return Speaker(id="session", name="session", system=system, model=meeting.one_model)


def portrait(scope: Scope, meeting: Meeting, resident: Resident) -> str:
    """Who a resident is, in one paragraph that opens with "You are"; the same at every level."""
    topic = meeting.config.topic
    return scope.prompt(
        "portrait",
        r=resident.to_row() | {"story": resident.story},
        contributions=meeting.concerning(resident, topic.contributions),
        stakes=[s for of in meeting.concerning(resident, topic.stakes) for s in of],
    )


def heard(hall: Hall, rounds: Sequence[Round], me: str) -> dict[str, Any]:
    """What a resident with a session of their own knows of these rounds, as variables of prompts:
    `statements` (others', of the last round), `earlier` (rounds before it), `own` statements,
    `questions` put to them in the last round, and what the `moderator` said after it."""
    meeting, rounds = hall.meeting, hall.meeting.remembered(rounds)
    *earlier, last = meeting.history(rounds, but=me) or [{"statements": [], "moderator": ""}]
    return {
        "me": me,
        "earlier": earlier,
        "statements": last["statements"],
        "moderator": last["moderator"],
        "own": own_statements(rounds, me),
        "questions": meeting.questions(rounds[-1:], me, "all", but=me),
    }


def all_heard(hall: Hall, rounds: Sequence[Round]) -> dict[str, Any]:
    """What the shared session knows of these rounds: the same, of all residents at once."""
    meeting, rounds = hall.meeting, hall.meeting.remembered(rounds)
    history = meeting.history(rounds)
    return {
        "history": history,
        "moderator": history[-1]["moderator"] if history else "",
        "questions": meeting.questions(rounds[-1:], *meeting.ids, "all"),
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """Where in a discussion a question is asked; `memory` counts the earlier entries it holds."""

    name: str
    round: int | None = None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Got(Generic[T]):
    """What one speaker answered; None where the minimal structure has to stand."""

    value: T | None
    call: Call


async def ask_one(
    scope: Scope, who: Speaker, prompt: str, answer: Answer[T], stage: Stage
) -> Got[T]:
    """One answer of one speaker, after two re-asks that say what was wrong."""
    got = await scope.exchange(who, prompt, answer=answer)
    value = None if isinstance(got.value, Missing) else got.value
    return Got(value, call_of(stage, who, (who.id,), prompt, got))


async def ask_alone(
    scope: Scope, hall: Hall, ask: Callable[[Scope, Speaker], Awaitable[Got[T]]]
) -> tuple[dict[str, T], list[Call]]:
    """Residents in their own sessions, side by side; who has no answer is left out."""
    got = await scope.each([hall.seats[i] for i in hall.ids], ask)
    values = {i: g.value for i, g in got.items() if g.value is not None}
    return values, [g.call for g in got.values()]


@dataclass(frozen=True, slots=True)
class Group(Generic[M]):
    """What the shared session is asked for several residents.

    `tokens` is the expected length of one resident's part, which says how many fit in one reply.
    `prompt` gets the residents who are asked for, and what calls before it gave.
    """

    stage: Stage
    answers: Mapping[str, Json[M]]
    tokens: int
    prompt: Callable[[list[str], Mapping[str, M]], str]


async def ask_together(
    scope: Scope, hall: Hall, group: Group[M]
) -> tuple[dict[str, M], list[Call]]:
    """Answers of many residents from the shared session; who has none is left out.

    One call where the reply can hold all, else several. Residents that a reply did not come to are
    asked for again, until a call brings nobody new.
    """
    who, longest = session_of(hall), hall.longest_reply
    waiting = list(group.answers)
    values: dict[str, M] = {}
    calls: list[Call] = []
    size = max(1, longest // max(1, group.tokens))
    while waiting:
        chunk, waiting = waiting[:size], waiting[size:]
        question = group.prompt(chunk, values)
        answer = each_of({i: group.answers[i] for i in chunk})
        # Providers cut replies short unless told how long they may be.
        most = who.max_tokens or longest
        got = await scope.exchange(who, question, answer=answer, max_tokens=most)
        found = {} if isinstance(got.value, Missing) else got.value.values
        calls.append(call_of(group.stage, who, tuple(chunk), question, got))
        values.update(found)
        if found:
            waiting = [i for i in chunk if i not in found] + waiting
    return values, calls


def each_of(answers: Mapping[str, Json[M]]) -> JsonMap[M]:
    """One object with an entry for each resident."""
    named_in = ("resident", "id", "agent_id")
    return JsonMap(answers, find=resolve, named_in=named_in, title="Residents")


def session_of(hall: Hall) -> Speaker:
    """The shared session of a hall that has one."""
    assert hall.session is not None
    return hall.session


def call_of(
    stage: Stage,
    who: Speaker,
    residents: tuple[str, ...],
    question: str,
    got: Exchange[Any],
) -> Call:
    """The record of one answer; without one, the minimal structure stands for its residents."""
    value = got.value
    lost = isinstance(value, Missing)
    return Call(
        stage=stage.name,
        round=stage.round,
        agent=who.id,
        residents=residents,
        question=question,
        response=got.text,
        rung="minimal" if lost else got.rung,
        reasks=got.reasks,
        missing=value.reason if isinstance(value, Missing) else "",
        minimal=len(residents) if lost else 0,
        mends=got.repairs,
        memory_length=stage.memory,
        model=got.model_served,
        at=got.reply.started_at,
        latency_s=got.reply.latency_s,
        input_tokens=got.reply.usage.input_tokens,
        output_tokens=got.reply.usage.output_tokens,
        cost_usd=got.reply.cost_usd,
        finish=got.reply.finish,
    )
