"""Check the arguments that study authors pass to scope functions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable
from numbers import Integral, Real
from typing import TypeVar

from folkmoot.conversation.answer_types import AnswerType
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance
from folkmoot.errors import ProtocolError

R = TypeVar("R")


def check_ask_arguments(
    speaker: Speaker,
    prompt: object,
    history: Transcript,
    answer_type: object,
    temperature: object,
    max_tokens: object,
) -> None:
    """Raise ProtocolError if an argument of `Scope.ask` has a wrong type."""
    require_type(speaker, Speaker, "ask(): speaker", 'pass Speaker("p_0001", system="You are …")')
    require_type(prompt, str, "ask(): the prompt", 'pass text, e.g. scope.prompt("name", …)')
    hint = "leave it out, or pass EMPTY_TRANSCRIPT + Utterance(…)"
    require_type(history, Transcript, "ask(): history", hint)
    for utterance in history:
        require_type(utterance, Utterance, "ask(): a member of history", hint)
        hint_for_id = "write Utterance(speaker.id, text)"
        require_type(utterance.speaker_id, str, "the speaker_id of an utterance", hint_for_id)
        require_type(utterance.text, str, "the text of an utterance", "pass the words")
    # A vendor would reject each call, and NaN is no JSON.
    for value in (temperature, speaker.temperature):
        if value is not None and not _is_number(value, Real, 0):
            raise ProtocolError(f"temperature={value!r} is no number from 0")
    for value in (max_tokens, speaker.max_tokens):
        if value is not None and not _is_number(value, Integral, 1):
            raise ProtocolError(f"max_tokens={value!r} is no whole number from 1")
    if answer_type is not None and not isinstance(answer_type, AnswerType):
        given = answer_type.__name__ if isinstance(answer_type, type) else repr(answer_type)[:60]
        raise ProtocolError(
            f"ask(): answer_type is {given}, which is not an answer type; pass Text(), "
            "Choice(options), Number(low, high) or Json(Model)"
        )


def _is_number(value: object, kind: type, low: int) -> bool:
    return isinstance(value, kind) and low <= float(value) < math.inf  # type: ignore[arg-type]


def require_list(values: object, argument: str) -> None:
    """Raise ProtocolError for a text in place of a list. It would be taken apart into letters."""
    if isinstance(values, str):
        raise ProtocolError(f"{argument} is one text; pass a list")


def require_type(value: object, kind: type, argument: str, hint: str) -> None:
    """Raise ProtocolError with `hint` if the value is not an instance of `kind`."""
    if isinstance(value, kind):
        return
    given = f"of type {type(value).__name__}"
    if inspect.iscoroutine(value):
        # The study author forgot an `await`. Close the coroutine, or Python would warn a second
        # time that it was never awaited.
        value.close()
        given, hint = "a coroutine", "put `await` before the call that returned it"
    raise ProtocolError(f"{argument} is {given}, not {kind.__name__}; {hint}")


def require_awaitable(awaitable: Awaitable[R], fn: object, role: str) -> Awaitable[R]:
    """Return `awaitable`, or raise ProtocolError if it cannot be awaited.

    `role`: what the error message calls `fn`.
    """
    if inspect.isawaitable(awaitable):
        return awaitable
    name = getattr(fn, "__name__", "fn")
    # Point the error at the definition of the function: the traceback holds no line of a function
    # that returned at once.
    code = getattr(fn, "__code__", None)
    location = (code.co_filename, code.co_firstlineno) if code else None
    hint = "make it call an async function" if name == "<lambda>" else f"write `async def {name}`"
    raise ProtocolError(f"{role} is not async; {hint}", location)


def item_key(item: object) -> str:
    """Return the name of an item in addresses, for a `Scope.map` call without `key=`.

    A string or an integer is its own name. The name of any other item is the item's `id`.
    Raises ProtocolError if there is no such `id`.
    """
    if isinstance(item, (str, int)):
        return str(item)
    item_id = getattr(item, "id", None)
    if isinstance(item_id, (str, int)):
        return str(item_id)
    raise ProtocolError(f"map() needs key= for items of type {type(item).__name__}")
