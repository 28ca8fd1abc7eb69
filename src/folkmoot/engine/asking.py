"""One question put to one speaker: asked, read by the answer's ladder, asked again when unreadable.

Used by `session.py` alone; leaves the row of the `answers` table that every ask leaves.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

from folkmoot.conversation.answers import Answer, Missing, Parsed
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.context import RunContext
from folkmoot.models.request import Message, Reply, Request

T = TypeVar("T")


class Exchange(NamedTuple, Generic[T]):
    """One answer with how it was had. `text` is the last raw reply, `rung` where it parsed.

    `messages` is what was sent last, `reply` what came back with tokens, latency and cost as the
    journal holds them (the same after a replay).
    """

    value: T | Missing
    text: str
    rung: str
    reasks: int
    model_served: str
    messages: tuple[Message, ...]
    reply: Reply


async def converse(
    run: RunContext,
    address: str,
    first: Request,
    wanted: Answer[T],
    reasks: int,
    patience: int = 0,
) -> Exchange[T]:
    """Ask until the answer can be read, at most `reasks` times more.

    Each further try is an effect of its own (`<address>.r1`, …): the conversation so far, the
    unreadable reply, and what was wrong with it.
    """
    request, step = first, 0
    while True:
        reply = await run.complete(f"{address}.r{step}" if step else address, request, patience)
        if reply.finish.startswith("refused:"):
            reason = reply.finish.removeprefix("refused:")
            return _exchange(Missing(reason, raw=reply.text), "missing", step, request, reply)
        read = wanted.parse(reply.text)
        if isinstance(read, Parsed):
            return _exchange(read.value, read.rung, step, request, reply)
        if step >= reasks:
            break
        step += 1
        corrected = (
            Message("assistant", reply.text or "(no answer)"),
            Message("user", read.problem),
        )
        request = Request(
            first.model,
            (*request.messages, *corrected),
            first.temperature,
            first.max_tokens,
            first.schema,
        )
    fallback = getattr(wanted, "fallback", None)
    if fallback is not None:
        return _exchange(cast("T", fallback), "minimal", reasks, request, reply)
    reason = "unparsed" if reply.text.strip() else "empty"
    missing = Missing(reason, read.problem, raw=reply.text)
    return _exchange(missing, "missing", reasks, request, reply)


def _exchange(
    value: T | Missing, rung: str, reasks: int, request: Request, reply: Reply
) -> Exchange[T]:
    return Exchange(value, reply.text, rung, reasks, reply.model_served, request.messages, reply)


def answer_row(
    path: tuple[str, ...],
    address: str,
    who: Speaker,
    wanted: Answer[T],
    got: Exchange[T],
    model: str,
) -> dict[str, Any]:
    """The row of the `answers` table that every ask leaves."""
    options = getattr(wanted, "options", None)
    value = got.value
    scored = wanted.kind in ("choice", "number") and not isinstance(value, Missing)
    return {
        "address": address,
        "stage": path[0] if path else "",
        "scope": "/".join(path),
        "speaker_id": who.id,
        "role": who.role,
        "kind": wanted.kind,
        "value": str(value) if scored else None,
        "rung": got.rung,
        "missing": value.reason if isinstance(value, Missing) else None,
        "reasks": got.reasks,
        "options": _listed(tuple(options)) if options else None,
        "position": options.index(value) + 1 if options and value in options else None,
        "words": len(got.text.split()),
        "model_asked": model,
    }


@lru_cache(maxsize=10_000)
def _listed(options: tuple[str, ...]) -> str:
    """Options as one cell; the same string object for the same options."""
    return json.dumps(options, ensure_ascii=False)
