"""The effects of a scope: a question, asked again while its answer is unreadable; embeddings;
and expensive computations.

Used by `session.py` alone. Every ask leaves a row of the `answers` table.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from folkmoot.child_process import run_in_child
from folkmoot.conversation.answer_types import (
    CHOICE,
    DECLINED,
    NUMBER,
    WAYS_OUT,
    AnswerType,
    Missing,
    ParsedAnswer,
    ParseFailure,
    Repair,
)
from folkmoot.conversation.json_replies import close_cut_json
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.session.run_context import RunContext
from folkmoot.errors import InputError, Problem, ProtocolError
from folkmoot.files import storage_errors
from folkmoot.models.request import FINISH_LENGTH, Completion, FloatArray, Message, ModelRequest
from folkmoot.provenance import Source, Span
from folkmoot.randomness import digest, limit_to_one_thread
from folkmoot.storage.table_buffer import RowOrder

T = TypeVar("T")


MAX_QUOTED_CUT_CHARACTERS = 1000  # characters of a reply that was cut, before it is asked again
REFUSED = (DECLINED, "refused", "filtered")  # by the speaker, and by the provider
PARTIAL = "partial"  # parse step of an answer of which some fields could not be read
# Parse steps that take an answer out of what is around it.
STATED = ("number", "named", PARTIAL)
NO_REPLY = "give one that answers the question, or leave the reply out with --drop"
MAX_EMPTY_REPLY_RETRIES = (
    2  # times that an empty reply is asked for again, beside the answer's own re-asks
)


class AskResult(NamedTuple, Generic[T]):
    """One answer with how it was had. `text` is the last raw reply, `parse_step` where it parsed.

    `messages` is what was sent last, `reply` what came back with its finish reason, tokens, latency
    and cost as the journal holds them (the same after a replay). `repairs`: what a JSON answer's
    validators put right or dropped. `said` is the first raw reply, before any re-ask. `address` is
    where the question stands in the journal: the source of what the speaker said.
    """

    value: T | Missing
    text: str
    parse_step: str
    reasks: int
    model_served: str
    messages: tuple[Message, ...]
    reply: Completion
    repairs: tuple[Repair, ...] = ()
    said: str = ""
    address: str = ""


class AskedAt(NamedTuple):
    """Where a question stands in the journal and in the tables, and the id of who is asked."""

    address: str
    place: RowOrder
    speaker_id: str


async def ask_until_parsed(
    run: RunContext,
    at_place: AskedAt,
    first_request: ModelRequest,
    answer_type: AnswerType[T],
    reasks: int,
) -> AskResult[T]:
    """Ask until the answer can be read, with at most `reasks` re-asks.

    Each further try is an effect of its own (`<address>.r1`, …): the conversation so far, the last
    unreadable reply, and what was wrong with it; shown several such replies, small models take them
    for a pattern and repeat it. After an empty reply it is the question again. A reply cut by the
    token limit is asked for once more with twice the limit (`<address>.long`), which then holds for
    further tries; what is cut again is kept, and its finish reason says so.

    A choice that could not be read is asked for once more and no further: its `clarification` shows
    the speaker their reply and asks which option they stated. A speaker who takes a way out has
    answered, and is not asked again.
    """
    address, place, speaker_id = at_place
    if answer_type.configuration_error:
        raise ProtocolError(f"{address}: {answer_type.configuration_error}")
    clarification = answer_type.clarifying_answer
    reasks = min(reasks, 1) if clarification else reasks
    empty_tries = reasks if clarification else max(reasks, MAX_EMPTY_REPLY_RETRIES)
    request, step, longer, said_first = first_request, 0, False, ""
    while True:
        at = f"{address}.r{step}" if step else address
        run.record_spans(place, at, request.spans)
        reply = await run.complete_request(at, request)
        limit = max(request.max_tokens or 0, reply.usage.output_tokens or 0)
        if reply.finish == FINISH_LENGTH and limit and not longer:
            longer, request = True, replace(request, max_tokens=2 * limit)
            if not clarification:  # else the clarification comes in place of this request
                run.record_spans(place, f"{at}.long", request.spans)
                reply = await _ask_for_more(run, f"{at}.long", request, reply)
        said_first = said_first if step else reply.text
        read = _parse_reply(run, at, answer_type, reply)
        if isinstance(read, Missing):
            return _build_ask_result(read, "missing", step, request, reply, said_first)
        if isinstance(read, ParseFailure) and run.change is not None and run.change.gives(at):
            raise InputError(
                Problem(f"the reply given at {at} cannot be read: {read.problem}", hint=NO_REPLY)
            )
        if isinstance(read, ParsedAnswer):
            got = _build_ask_result(read.value, read.parse_step, step, request, reply, said_first)
            return got._replace(repairs=read.repairs)
        said = bool(reply.text.strip())
        # A limit used up before the first word was doubled already: more of the same only costs.
        used_up = longer and not said and reply.finish == FINISH_LENGTH and not clarification
        if used_up or step >= (reasks if said else empty_tries):
            break
        problem = read.problem
        if clarification:
            answer_type = clarification
            problem = clarification.prompt if said else f"{read.problem}\n\n{clarification.prompt}"
        step += 1
        sent = first_request.messages if said else request.messages
        # Of a reply without end the start will do: all of it may be more than the model can read.
        endless = reply.finish == FINISH_LENGTH and len(reply.text) > MAX_QUOTED_CUT_CHARACTERS
        back = f"{reply.text[:MAX_QUOTED_CUT_CHARACTERS]} …" if endless else reply.text
        messages = _build_reask_request(sent, back, problem)
        spans = first_request.spans
        if said:
            given_back = Source("reply", at, speaker_id, altered=endless)
            spans = (*spans, Span(0, min(len(back), len(reply.text)), given_back, len(sent)))
        request = replace(request, messages=messages, schema=answer_type.schema, spans=spans)
    if said and (kept := answer_type.salvage_reply(_readable_part(answer_type, reply))) is not None:
        got = _build_ask_result(kept.value, PARTIAL, step, request, reply, said_first)
        return got._replace(repairs=kept.repairs)
    if (fallback := answer_type.fallback_value) is not None:
        return _build_ask_result(fallback, "minimal", step, request, reply, said_first)
    # The speaker is told what to reply with; readers of the tables need not be.
    detail = read.problem.partition(" Reply with")[0]
    missing_answer = Missing("unparsed" if said else "empty", detail, last_reply=reply.text)
    return _build_ask_result(missing_answer, "missing", step, request, reply, said_first)


async def _ask_for_more(
    run: RunContext, address: str, request: ModelRequest, cut: Completion
) -> Completion:
    """Send a request again with its doubled token limit; the new reply, or the one that was cut."""
    again = await run.complete_request(address, request, spare=True)
    run.cut_retry_usage.calls += 1
    run.cut_retry_usage.add_reply(
        again.usage.input_tokens, again.usage.output_tokens, again.cost_usd
    )
    return again if again.text.strip() and not again.finish.startswith("refused:") else cut


def _parse_reply(
    run: RunContext, address: str, wanted: AnswerType[T], reply: Completion
) -> ParsedAnswer[T] | ParseFailure | Missing:
    """Read one reply: the answer, why it cannot be read, or why there is none."""
    if reply.finish.startswith("refused:"):
        return Missing(reply.finish.removeprefix("refused:"), f"asked at {address}", reply.text)
    is_cut = reply.finish == FINISH_LENGTH
    # "Park" may be cut from "Park and ride", 1 from 15; but not where white space follows.
    if is_cut and wanted.is_short and not reply.text[-1:].isspace():
        return ParseFailure("The reply was cut off. Reply with the answer alone, nothing else.")
    read = wanted.parse_reply(_readable_part(wanted, reply))
    if isinstance(read, Missing):
        return replace(read, detail=read.detail or f"asked at {address}", last_reply=reply.text)
    return read


def _readable_part(wanted: AnswerType[T], reply: Completion) -> str:
    """The text of a reply; of JSON that was cut without the value that it ends in."""
    return (
        close_cut_json(reply.text)
        if reply.finish == FINISH_LENGTH and wanted.kind == "json"
        else reply.text
    )


def _build_reask_request(
    request: tuple[Message, ...], reply_text: str, problem: str
) -> tuple[Message, ...]:
    """The conversation with an unreadable reply and what was wrong with it. Nobody said an empty
    one, so only the problem is added, to the last question."""
    if reply_text.strip():
        return (*request, Message("assistant", reply_text), Message("user", problem))
    *earlier, last = request
    return (*earlier, Message("user", f"{last.content}\n\n{problem}"))


def _build_ask_result(
    value: T | Missing,
    parse_step: str,
    reasks: int,
    request: ModelRequest,
    reply: Completion,
    said: str,
) -> AskResult[T]:
    served = reply.model_served
    return AskResult(
        value, reply.text, parse_step, reasks, served, request.messages, reply, said=said
    )


def build_answer_row(
    path: tuple[str, ...],
    address: str,
    who: Speaker,
    answer_type: AnswerType[T],
    result: AskResult[T],
) -> dict[str, object]:
    """The row that every ask leaves in the `answers` table, without who was asked."""
    options, closed = answer_type.listed_options, answer_type.is_closed
    value = result.value
    scored = answer_type.kind in (CHOICE, NUMBER) and not isinstance(value, Missing)
    recorded = str(value) if closed and not isinstance(value, Missing) else None
    if isinstance(value, Missing) and value.reason in WAYS_OUT:
        recorded = value.reason
    return {
        "address": address,
        "stage": path[0] if path else "",
        "scope": "/".join(path),
        "speaker_id": who.id,
        "role": who.role,
        "kind": answer_type.kind,
        "value": str(value) if scored else None,
        "said": result.said if closed else None,
        "recorded": recorded,
        "how": _how_read(answer_type, result),
        "agrees": _compare_with_first_reply(answer_type, result) if closed and recorded else None,
        "parse_step": result.parse_step,
        "missing": value.reason if isinstance(value, Missing) else None,
        "reasks": result.reasks,
        "options": _options_cell(options) if options else None,
        "position": options.index(value) + 1 if options and value in options else None,
        "finish": result.reply.finish,
        "words": len(result.text.split()),
    }


def _how_read(wanted: AnswerType[T], got: AskResult[T]) -> str | None:
    """Return how an answer was had: exact, stated, clarified, refused or unreadable.

    Free text is never read, so there is no such word for it unless it is missing.
    """
    if isinstance(got.value, Missing):
        if got.value.reason in REFUSED:
            return "refused"
        if got.value.reason not in WAYS_OUT:
            return "unreadable"
    elif got.parse_step == "minimal":
        return "unreadable"
    elif not wanted.is_read:
        return None
    if got.reasks:
        return "clarified"
    return "stated" if got.parse_step in STATED else "exact"


def _compare_with_first_reply(wanted: AnswerType[T], got: AskResult[T]) -> str | None:
    """Return whether the first reply names what was recorded (same), another option (other),
    several, or none; None if the answer type cannot tell."""
    values = wanted.find_mentioned_values(got.said)
    if values is None:
        return None
    mentioned = set(map(str, values))
    if not got.reasks and not isinstance(got.value, Missing):
        mentioned.add(str(got.value))  # it may have been named by its number alone
    if len(mentioned) > 1:
        return "several"
    return "none" if not mentioned else "same" if str(got.value) in mentioned else "other"


@lru_cache(maxsize=10_000)
def _options_cell(options: tuple[str, ...]) -> str:
    """Options as one cell; the same string object for the same options."""
    return json.dumps(options, ensure_ascii=False)


EMBED_BATCH = 100
MAX_EMBEDDING_BYTES_IN_MEMORY = 4_000_000  # bytes of embeddings; more are mapped from a file


async def embed_texts(run: RunContext, address: str, texts: Iterable[str]) -> FloatArray:
    """Embeddings (n, d) of texts, rows of length one, by batches at addresses of their own."""
    listed = list(texts)
    # Batches are addressed by their number, so they may as well be under way at once.
    asked = deque(
        asyncio.ensure_future(
            run.embed_texts(f"{address}.b{n}", listed[start : start + EMBED_BATCH])
        )
        for n, start in enumerate(range(0, len(listed), EMBED_BATCH))
    )
    vectors, filled = np.zeros((0, 0), dtype=np.float32), 0
    try:
        while asked:
            await asked[0]
            part = asked.popleft().result().astype(np.float32)
            if not filled:
                vectors = _allocate_vectors(run.folder, len(listed), part.shape[1])
            norms = np.linalg.norm(part, axis=1, keepdims=True)
            vectors[filled : filled + len(part)] = part / np.where(norms == 0, 1, norms)
            filled += len(part)
    except BaseException:
        await asyncio.gather(*asked, return_exceptions=True)
        raise
    return vectors


def _allocate_vectors(folder: Path, rows: int, columns: int) -> FloatArray:
    """Space for vectors; where they need much memory, in a file that goes with the process."""
    if rows * columns * 4 <= MAX_EMBEDDING_BYTES_IN_MEMORY:
        return np.zeros((rows, columns), dtype=np.float32)
    with storage_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        mapped = np.memmap(file, dtype=np.float32, mode="w+", shape=(rows, columns))
    return np.asarray(mapped)  # each row of a memmap would be one, of 500 bytes


async def run_computation(
    run: RunContext,
    address: str,
    fn: Callable[..., object],
    args: tuple[object, ...],
    version: int,
    name: str | None,
) -> object:
    """`fn(*args)` as its JSON round trip: from the journal, or done now and journaled."""
    name = name or f"{fn.__module__}.{fn.__qualname__}"
    fingerprint = digest(name, version, *(_hash_argument(arg) for arg in args))
    asked = {"function": name, "version": version}
    await run.prefetch_entry(address)
    entry = run.journal.lookup_entry(address, fingerprint, lambda: asked)
    if entry is None:
        run.check_halted()
        run.plan.write_plan()
        # One after another: side by side they would fight for the interpreter, with each other and
        # with the loop.
        async with run.compute_lock:
            with run.gateway.hold_batches():
                result = await asyncio.to_thread(_compute_now, run, fn, args)
        try:
            reply = json.dumps(result)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"compute(): what {name} gives is not JSON: {error}") from error
        entry = JournalEntry(address, "compute", fingerprint, asked, reply)
        run.journal.append(entry)
    return json.loads(entry.reply)


def _hash_argument(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return digest(str(value.dtype), str(value.shape), np.ascontiguousarray(value).tobytes())
    return digest(json.dumps(value, sort_keys=True, ensure_ascii=False))


_OWN = "folkmoot."  # functions of other modules may not be found by another process


def _compute_now(run: RunContext, fn: Callable[..., object], args: tuple[object, ...]) -> object:
    if run.is_large and fn.__module__.startswith(_OWN):
        return run_in_child(fn, args, folder=run.folder)
    with limit_to_one_thread():
        return fn(*args)
