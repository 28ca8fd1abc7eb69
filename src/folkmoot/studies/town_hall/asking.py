"""Asking one resident one thing, or the shared session for several residents at once.

The only callers of the engine's `exchange` in this study; every answer leaves a `Call` for the
quality counts and the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.effects import Exchange
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.records import Call
from folkmoot.studies.town_hall.references import Mend
from folkmoot.studies.town_hall.replies import Batch, Many, One, Reader

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where in a discussion a question is asked; `memory` counts the earlier entries it holds."""

    name: str
    round: int | None = None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Got(Generic[T]):
    """What one resident answered; None where the minimal structure has to stand."""

    value: T | None
    call: Call


async def ask_one(scope: Scope, who: Speaker, prompt: str, answer: One[T], stage: Stage) -> Got[T]:
    """One answer of one speaker, after two re-asks that say what was wrong."""
    got = await scope.exchange(who, prompt, answer=answer)
    value = got.value
    if isinstance(value, Missing):
        return Got(None, call_of(stage, who.id, (who.id,), prompt, got, lost=1))
    return Got(value.value, call_of(stage, who.id, (who.id,), prompt, got, mends=value.mends))


@dataclass(frozen=True, slots=True)
class Group(Generic[T]):
    """What the shared session is asked for several residents: how each part is read.

    `tokens` is the expected length of one resident's part, which says how many fit in one reply.
    """

    readers: Mapping[str, Reader[T]]
    schemas: Mapping[str, dict[str, Any]]
    tokens: int

    def of(self, residents: Sequence[str]) -> Many[T]:
        return Many(
            {r: self.readers[r] for r in residents}, {r: self.schemas[r] for r in residents}
        )


async def ask_group(
    scope: Scope,
    who: Speaker,
    prompt: Callable[[list[str], Mapping[str, T]], str],
    group: Group[T],
    stage: Stage,
    *,
    longest: int,
    residents: Sequence[str] | None = None,
) -> tuple[dict[str, T], list[Call]]:
    """Answers of many residents from one session; who has none is left out.

    One call where the reply can hold all (`longest`, in tokens), else several, each prompt told
    what the calls before it gave. Residents that a reply did not come to are asked for again,
    until a call brings nobody new.
    """
    waiting = list(group.readers if residents is None else residents)
    values: dict[str, T] = {}
    calls: list[Call] = []
    size = max(1, longest // max(1, group.tokens))
    while waiting:
        chunk, waiting = waiting[:size], waiting[size:]
        question = prompt(chunk, values)
        got = await scope.exchange(
            who, question, answer=group.of(chunk), max_tokens=_room_for(who, longest)
        )
        batch: Batch[T] = Batch({}, {}) if isinstance(got.value, Missing) else got.value
        values.update({r: m.value for r, m in batch.values.items()})
        left = [r for r in chunk if r not in batch.values]
        mends = tuple(mend for m in batch.values.values() for mend in m.mends)
        lost = 0 if batch.values else len(left)
        calls.append(call_of(stage, who.id, tuple(chunk), question, got, mends=mends, lost=lost))
        if batch.values:
            waiting = left + waiting
    return values, calls


def _room_for(who: Speaker, longest: int) -> int | None:
    """Providers cut replies short unless told how long they may be."""
    return who.max_tokens or longest


def call_of(
    stage: Stage,
    agent: str,
    residents: tuple[str, ...],
    question: str,
    got: Exchange[Any],
    *,
    mends: tuple[Mend, ...] = (),
    lost: int = 0,
) -> Call:
    """The record of one answer. `lost`: residents for whom the minimal structure stands."""
    value = got.value
    return Call(
        stage=stage.name,
        round=stage.round,
        agent=agent,
        residents=residents,
        question=question,
        response=got.text,
        rung="minimal" if lost else got.rung,
        reasks=got.reasks,
        missing=value.reason if isinstance(value, Missing) else "",
        minimal=lost,
        mends=mends,
        memory_length=stage.memory,
        model=got.model_served,
        at=got.reply.started_at,
        latency_s=got.reply.latency_s,
        input_tokens=got.reply.usage.input_tokens,
        output_tokens=got.reply.usage.output_tokens,
        cost_usd=got.reply.cost_usd,
        finish=got.reply.finish,
    )
