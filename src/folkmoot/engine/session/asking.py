"""Ask a question until the answer can be parsed, and make the question's row of `answers`."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from folkmoot.conversation.answer_types import (
    CANNOT_SAY,
    CHOICE,
    NUMBER,
    WAYS_OUT,
    AnswerType,
    Missing,
    ParsedAnswer,
    ParseFailure,
    Repair,
)
from folkmoot.conversation.json_replies import close_cut_json, ends_inside_json
from folkmoot.conversation.lenient_fields import UNREADABLE
from folkmoot.conversation.parse_steps import (
    MINIMAL,
    MISSING,
    PARSE_STEPS,
    PARTIAL,
    UNFORMATTED,
)
from folkmoot.conversation.reply_forms import visible_text
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.run_context import RunContext
from folkmoot.errors import InputError, Problem
from folkmoot.hints import count_words
from folkmoot.models.request import (
    FINISH_LENGTH,
    FINISH_STOP,
    NO_REPLY,
    REFUSED,
    Completion,
    Message,
    ModelRequest,
    kind_of_missing_reply,
    reason_of_missing_reply,
)
from folkmoot.provenance import UNKNOWN, Quoted, Source, Span, join_texts, spans_of
from folkmoot.storage.table_buffer import RowOrder

T = TypeVar("T")


# Characters of a cut reply that a re-ask quotes. A model that repeats itself fills its whole limit,
# and all of that text may be more than it can read.
MAX_QUOTED_CUT_CHARACTERS = 1000
STATED_STEPS = frozenset(name for name, step in PARSE_STEPS.items() if step.is_stated)
READABLE_REPLY_HINT = "give a reply that answers the question, or leave it out with --drop"
# Empty replies are often transient (a server under load), so they are asked for again at least this
# often, even if the study allows no re-asks.
MAX_EMPTY_REPLY_RETRIES = 2


class AskResult(NamedTuple, Generic[T]):
    """The result of one question: the answer, and how it was obtained."""

    value: T | Missing
    # The last raw reply.
    text: str
    # The step of the parser that read the answer.
    parse_step: str
    reasks: int
    model_served: str
    # The request that was sent last.
    messages: tuple[Message, ...]
    # The completion of that request with finish reason, tokens, latency and cost. A replay returns
    # the same completion.
    reply: Completion
    # Values that the validators of a JSON answer corrected or dropped.
    repairs: tuple[Repair, ...] = ()
    # The first raw reply, before any re-ask.
    said: str = ""
    # The journal address of the question. It is the source of the speaker's utterance.
    address: str = ""

    def reason_of_null(self, field: str) -> str:
        """Return the reason of a missing answer for a field of a JSON answer that is null.

        The reason is `cannot_say`, or `unparsed` if the speaker gave a value that was not read.
        """
        is_unread = any(
            repair.field == field and repair.kind == UNREADABLE for repair in self.repairs
        )
        return "unparsed" if is_unread else CANNOT_SAY


class AskedAt(NamedTuple):
    """Where a question was asked: the address, the position of the rows, and the speaker's id."""

    address: str
    row_order: RowOrder
    speaker_id: str


async def ask_until_parsed(
    run: RunContext,
    asked_at: AskedAt,
    first_request: ModelRequest,
    answer_type: AnswerType[T],
    reasks: int,
) -> AskResult[T]:
    """Ask a question until the answer can be parsed, with at most `reasks` repetitions.

    Raises InputError if a reply that the researcher wrote cannot be parsed.
    """
    # A re-ask sends the conversation so far, the last unreadable reply and the problem. Its address
    # is `<address>.r1`, `<address>.r2`, … After an empty reply, the re-ask repeats the question. A
    # reply that was cut by the token limit is requested once more with twice the limit, at
    # `<address>.long`. An unreadable choice is re-asked only once: the speaker is asked which
    # option was meant. The last re-ask of a number asks for JSON. A speaker who declines in a
    # permitted way is not re-asked.
    address, row_order, speaker_id = asked_at
    clarification = answer_type.clarifying_answer
    reasks = min(reasks, 1) if clarification else reasks
    empty_tries = reasks if clarification else max(reasks, MAX_EMPTY_REPLY_RETRIES)
    request, reask, was_lengthened, said_first = first_request, 0, False, ""
    while True:
        request_address = f"{address}.r{reask}" if reask else address
        run.record_spans(row_order, request_address, request.spans)
        reply = await run.complete_request(request_address, request)
        if was_lengthened and clarification:
            _count_cut_retry(run, reply)
        # Without `max_tokens` the server's own limit cut the reply. The number of generated tokens
        # tells that limit.
        limit = max(request.max_tokens or 0, reply.usage.output_tokens or 0)
        # The model's own limit (`length:model`) does not grow with the limit of the request.
        if reply.finish == FINISH_LENGTH and limit and not was_lengthened:
            was_lengthened, request = True, replace(request, max_tokens=2 * limit)
            # For a choice, the clarification takes the place of this request.
            if not clarification:
                run.record_spans(row_order, f"{request_address}.long", request.spans)
                reply = await _ask_for_more(run, f"{request_address}.long", request, reply)
        said_first = said_first if reask else reply.text
        parsed = _parse_reply(request_address, answer_type, reply)
        if isinstance(parsed, Missing):
            return _build_ask_result(parsed, MISSING, reask, request, reply, said_first)
        # A re-ask would send the reply given by hand to a model, which is not what the researcher
        # asked for.
        if (
            isinstance(parsed, ParseFailure)
            and run.change is not None
            and run.change.gives(request_address)
        ):
            raise InputError(
                Problem(
                    f"the given reply at {request_address} cannot be read: {parsed.problem}",
                    hint=READABLE_REPLY_HINT,
                )
            )
        if isinstance(parsed, ParsedAnswer):
            result = _build_ask_result(
                parsed.value, parsed.parse_step, reask, request, reply, said_first
            )
            return result._replace(repairs=parsed.repairs)
        has_text = bool(visible_text(reply.text))
        is_empty = not has_text or parsed.is_empty
        # The model used the doubled limit up without a visible word (it spent it on reasoning).
        # Another attempt would cost the same and end the same.
        thought_to_limit = was_lengthened and not has_text and _is_cut(reply) and not clarification
        if thought_to_limit or reask >= (empty_tries if is_empty else reasks):
            break
        is_last = has_text and reask + 1 == reasks
        follow_up = clarification or (answer_type.last_reask if is_last else None)
        problem = parsed.problem
        if follow_up:
            answer_type = follow_up
            problem = (
                follow_up.prompt
                if has_text
                else join_texts("\n\n", (parsed.problem, follow_up.prompt), plain=None)
            )
        reask += 1
        # Show only the last unreadable reply: small models take several of them for a pattern and
        # repeat it.
        earlier_request = first_request if has_text else request
        # An endless reply is quoted by its beginning: all of it may exceed the model's context.
        is_endless = _is_cut(reply) and len(reply.text) > MAX_QUOTED_CUT_CHARACTERS
        quoted_reply = f"{reply.text[:MAX_QUOTED_CUT_CHARACTERS]} …" if is_endless else reply.text
        reply_source = Source("reply", request_address, speaker_id, altered=is_endless)
        messages, spans = _build_reask_messages(
            earlier_request, Quoted(quoted_reply, reply_source), problem
        )
        request = replace(request, messages=messages, schema=answer_type.schema, spans=spans)
    if (
        has_text
        and (salvaged := answer_type.salvage_reply(readable_part(answer_type, reply))) is not None
    ):
        result = _build_ask_result(salvaged.value, PARTIAL, reask, request, reply, said_first)
        return result._replace(repairs=salvaged.repairs)
    if (fallback := answer_type.fallback_value) is not None:
        return _build_ask_result(fallback, MINIMAL, reask, request, reply, said_first)
    # Problems end with an instruction to the speaker ("Reply with …"). Readers of the tables do not
    # need it.
    detail = parsed.problem.partition(" Reply with")[0]
    missing_answer = Missing("empty" if is_empty else "unparsed", detail)
    return _build_ask_result(missing_answer, MISSING, reask, request, reply, said_first)


async def _ask_for_more(
    run: RunContext, address: str, request: ModelRequest, cut: Completion
) -> Completion:
    # Twice the token limit. If the new reply is empty or a refusal, `cut` counts.
    longer_reply = await run.complete_request(address, request, has_alternative=True)
    _count_cut_retry(run, longer_reply)
    return (
        longer_reply
        if visible_text(longer_reply.text) and not reason_of_missing_reply(longer_reply.finish)
        else cut
    )


def _count_cut_retry(run: RunContext, reply: Completion) -> None:
    run.cut_retry_usage.calls += 1
    run.cut_retry_usage.add_reply(
        reply.usage.input_tokens, reply.usage.output_tokens, reply.cost_usd
    )


def _parse_reply(
    address: str, answer_type: AnswerType[T], reply: Completion
) -> ParsedAnswer[T] | ParseFailure | Missing:
    if reason := reason_of_missing_reply(reply.finish):
        return Missing(reason, f"asked at {address}")
    # A cut reply may be the beginning of another answer: "Park" of "Park and ride", 1 of 15. A line
    # break at the end shows that the answer was complete.
    if _is_cut(reply) and answer_type.is_short and not reply.text.endswith(("\n", "\r")):
        return ParseFailure("The reply was cut off. Reply with the answer alone, nothing else.")
    parsed = answer_type.parse_reply(readable_part(answer_type, reply))
    if isinstance(parsed, Missing):
        return replace(parsed, detail=parsed.detail or f"asked at {address}")
    return parsed


def _is_cut(reply: Completion) -> bool:
    # By the token limit of the request or by the model's own limit (`length:model`).
    return reply.finish.startswith(FINISH_LENGTH)


def readable_part(answer_type: AnswerType[T], reply: Completion) -> str:
    """Return the text of a reply. In cut JSON, the unfinished last value is marked or left out."""
    # Without a known finish reason, a reply that ends inside its JSON may have been cut. If it
    # ended by itself, only a closing bracket was forgotten, which the repair of JSON adds.
    may_be_cut = _is_cut(reply) or (
        not reply.finish.startswith(FINISH_STOP) and ends_inside_json(reply.text)
    )
    is_json = answer_type.schema is not None
    return close_cut_json(reply.text) if is_json and may_be_cut else reply.text


def _build_reask_messages(
    request: ModelRequest, quoted_reply: Quoted, problem: str
) -> tuple[tuple[Message, ...], tuple[Span, ...]]:
    # Returns the messages and the sources of their texts. An empty reply is not shown to the
    # speaker. The problem is then appended to the last question.
    if visible_text(quoted_reply):
        reply_message = Message("assistant", str(quoted_reply))
        messages = (*request.messages, reply_message, Message("user", str(problem)))
        offset = 0
    else:
        *earlier, last = request.messages
        messages = (*earlier, Message("user", f"{last.content}\n\n{problem}"))
        offset = len(last.content) + 2
    added = [
        *(span.shift_span(0, len(messages) - 2) for span in quoted_reply.spans),
        # The problem is an instruction. Only texts of known source in it, such as options that a
        # participant proposed, are recorded.
        *(
            span.shift_span(offset, len(messages) - 1)
            for span in spans_of(problem)
            if span.source != UNKNOWN
        ),
    ]
    return messages, (*request.spans, *added)


def _build_ask_result(
    value: T | Missing,
    parse_step: str,
    reasks: int,
    request: ModelRequest,
    reply: Completion,
    said: str,
) -> AskResult[T]:
    model_served = reply.model_served
    return AskResult(
        value, reply.text, parse_step, reasks, model_served, request.messages, reply, said=said
    )


def build_answer_row(
    path: tuple[str, ...],
    address: str,
    speaker: Speaker,
    answer_type: AnswerType[T],
    result: AskResult[T],
) -> dict[str, object]:
    """Return the row of a question for the table `answers`."""
    # The caller adds the columns that name the model or the human who answered.
    options, is_closed = answer_type.listed_options, answer_type.is_closed
    value = result.value
    has_value = answer_type.kind in (CHOICE, NUMBER) and not isinstance(value, Missing)
    how_read = _how_read(answer_type, result)
    recorded = str(value) if is_closed and not isinstance(value, Missing) else None
    if isinstance(value, Missing) and value.reason in WAYS_OUT:
        recorded = value.reason
    return {
        "address": address,
        "stage": path[0] if path else "",
        "scope": "/".join(path),
        "speaker_id": speaker.id,
        "role": speaker.role,
        "kind": answer_type.kind,
        "value": str(value) if has_value else None,
        "said": result.said if is_closed else None,
        "recorded": recorded,
        "how": how_read,
        "agrees": _compare_with_first_reply(answer_type, result)
        if is_closed and recorded and how_read != UNREADABLE
        else None,
        "parse_step": result.parse_step,
        "missing": value.reason if isinstance(value, Missing) else None,
        "reasks": result.reasks,
        "options": _options_cell(options) if options else None,
        "position": options.index(value) + 1 if options and value in options else None,
        "finish": result.reply.finish,
        "words": count_words(result.text),
    }


def is_unread(missing: str | None, parse_step: str | None) -> bool:
    """Return whether no answer was read, by two cells of a row of `answers`.

    A speaker who takes a way out, such as `none_of_these`, has given an answer.
    """
    return missing not in WAYS_OUT if missing else parse_step == MINIMAL


def _how_read(answer_type: AnswerType[T], result: AskResult[T]) -> str | None:
    # None for free text, which needs no parser.
    missing = result.value.reason if isinstance(result.value, Missing) else None
    # A prompt that the provider could not process is no refusal, but no answer was read.
    if (kind := kind_of_missing_reply(missing or "")) in (REFUSED, NO_REPLY):
        return kind
    if is_unread(missing, result.parse_step):
        return UNREADABLE
    if missing is None and not answer_type.is_read:
        return None
    if result.parse_step == UNFORMATTED:
        return UNREADABLE
    if result.reasks:
        return "clarified"
    return "stated" if result.parse_step in STATED_STEPS else "exact"


def _compare_with_first_reply(answer_type: AnswerType[T], result: AskResult[T]) -> str | None:
    # Options that the first reply mentions: "same" is only the recorded one, "other" only another
    # one. None if the answer type cannot find options in a reply.
    values = answer_type.find_mentioned_values(result.said)
    if values is None:
        return None
    mentioned = set(map(str, values))
    recorded = None if isinstance(result.value, Missing) else str(result.value)
    if recorded is not None and not result.reasks:
        # The reply may have given the option by its number alone, which is no mention.
        mentioned.add(recorded)
    if len(mentioned) > 1:
        return "several"
    return "none" if not mentioned else "same" if recorded in mentioned else "other"


# A run has millions of rows and few different lists of options: sharing one string saves memory.
@lru_cache(maxsize=10_000)
def _options_cell(options: tuple[str, ...]) -> str:
    # Equal options share one string, which saves memory.
    return json.dumps(options, ensure_ascii=False)
